# SPDX-License-Identifier: MIT
"""What the tests of attaching share: starting processes on hakmem, attaching to them, and running the cases.

Usage of each test: FILE BUILD [CASE...]
"""
import atexit
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OTHER = 65534  # a user of whom root plays the part
PARTS = ("libhakmem.so", "libhakmem.a", "hakmem-attach", "tests/attach/target", "tests/attach/silent", "tests/attach/libsilent.so")


def others_reach(path):
    """Asks as that user: modes of folders are not all that decides."""
    return subprocess.run(["test", "-x", path], user=OTHER, group=OTHER, extra_groups=[]).returncode == 0


def reachable(build):
    """The folder with what was built, or, for root, a copy that other users can reach. A clone may be root's alone."""
    for place in (None, "/tmp", "/var/tmp", "/dev/shm") if os.geteuid() == 0 and not others_reach(build / PARTS[0]) else ():
        copy = Path(tempfile.mkdtemp(prefix="hakmem-attach-", dir=place))
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        copy.chmod(0o755)
        (copy / "tests/attach").mkdir(parents=True)
        for part in PARTS:
            shutil.copy(build / part, copy / part)
        if others_reach(copy / PARTS[0]):
            return copy
    return build


BUILD = reachable(Path(sys.argv[1]).resolve())
sys.path.insert(0, str(ROOT / "python"))

from hakmem.look import processes  # noqa: E402
from hakmem.look.attach import connect  # noqa: E402
from hakmem.look.observer import NotObserved, Observer  # noqa: E402
from hakmem.look.processes import Refusal  # noqa: E402

TOOL = str(BUILD / "hakmem-attach")
TARGET = str(BUILD / "tests/attach/target")
os.environ["HAKMEM_ATTACH_TOOL"] = TOOL
ROUNDS = int(os.environ.get("TEST_ROUNDS", "100"))
SKIPPED = 77  # as ctest counts it
HANG = 300  # seconds after which a process hangs
# Of a tool that finds no good moment, or waits for another one: a busy machine's fault. Another try may do.
AGAIN = "no thread that could be used|another tool is attaching"
TRIES = 40
skips = []


def require(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def served(**more):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    return environment | {"LD_PRELOAD": str(BUILD / "libhakmem.so")} | more


def start(words, **more):
    """In a session of its own: where the kernel shares processors among sessions (autogroups), many busy threads leave the
    other tests their part."""
    process = subprocess.Popen(words, env=served(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True, **more)
    atexit.register(process.kill)  # Ctrl-C does not reach it
    until = time.monotonic() + HANG
    while not is_loaded(process.pid) and process.poll() is None:
        require(time.monotonic() < until, f"{words} does not start")
        time.sleep(0.001)
    time.sleep(0.05)
    return process


def is_loaded(pid):
    """True if the loader has mapped all of hakmem: the part that is written comes last. While there is only a first part,
    the tool waits for a second, and then takes it for another version of hakmem."""
    return any(" rw" in line and "libhakmem" in line for line in maps(pid).splitlines())


def wait_until_asleep(pid, name=None):
    """Until the process, or the program `name` that it becomes, has nothing more to do."""
    until = time.monotonic() + HANG
    while not (is_loaded(pid) and is_asleep(pid, name)):
        require(time.monotonic() < until and Path(f"/proc/{pid}").exists(), f"{pid} does not come to rest")
        time.sleep(0.002)


def is_asleep(pid, name=None):
    found, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
    return rest[0] == "S" and name in (None, found)


def maps(pid):
    try:
        return Path(f"{processes.process_folder(pid)}/maps").read_text()
    except OSError:
        return ""


def run_tool(pid, tid=None):
    """What the tool says: its status and its last line."""
    words = [TOOL, "--verbose", *(["--thread", str(tid)] if tid else []), str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def insist(run):
    """What the tool says that `run` runs: its status and its sentence. A busy machine's sentences are not the last."""
    for _ in range(TRIES):
        status, said = run()
        if status == 0 or not re.search(AGAIN, said):
            break
    return status, said


def connect_surely(pid):
    """As connect does, an observer and whether it was started now."""
    for turn in range(TRIES):
        try:
            return connect(pid)
        except Refusal as refusal:
            if turn + 1 == TRIES or not re.search(AGAIN, str(refusal)):
                raise


def look_at(pid):
    observer = wait_for_observer(pid)
    report = json.loads(observer.ask("json", HANG))
    observer.close()
    require(report["totals"]["bytes_mapped"] > 0, "an empty report")
    return report


def wait_for_observer(pid):
    until = time.monotonic() + HANG
    while True:
        try:
            return Observer(processes.look(pid))
        except NotObserved:
            require(time.monotonic() < until, f"{pid} is not observed")
            time.sleep(0.001)


def attach_often(mode, rounds):
    """Attaches by another thread each time. The target stops its observer when it gets a byte. Threads that allocate all the
    time may all be inside hakmem, and on a busy machine often are: then more attempts are made."""
    target = start([TARGET, mode])
    done = attempts = 0
    while attempts < rounds or (done < rounds // 4 and attempts < 20 * rounds):
        attempts += 1
        tids = os.listdir(f"/proc/{target.pid}/task")
        status, said = run_tool(target.pid, random.choice(tids) if random.random() < 0.7 else None)
        if target.poll() is not None:
            require(False, f"{mode}: the process has ended: {target.stderr.read()}")
        if status != 0:
            require("no thread that could be used" in said, f"{mode}: {status} {said}")
            continue
        look_at(target.pid)
        target.stdin.write("x")
        target.stdin.flush()
        require(target.stdout.readline() == "\n", f"{mode}: no answer")
        done += 1
    said, errors = target.communicate("", timeout=HANG)
    require(target.returncode == 0 and said == f"good {done}\n", f"{mode}: {target.returncode} {said} {errors}")
    require(done >= rounds // 4, f"{mode}: only {done} of {attempts} attached")
    print(f"{mode}: {done} of {attempts} attached")


def skipped(name, why):
    skips.append(name)
    print(f"{name}: skipped, {why}")


def run_cases(cases):
    """The functions case_NAME of a file, or those that the command line names. A case that skips a part is skipped."""
    cases = {name.removeprefix("case_"): function for name, function in cases.items() if name.startswith("case_")}
    for name in sys.argv[2:] or cases:
        cases[name]()
    if skips:
        sys.exit(SKIPPED)
