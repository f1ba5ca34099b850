#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attaches to processes in containers, behind filters, and to those that nobody can attach to."""
# ctest: own-shm once
import atexit
import json
import mmap
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

from attaching import (
    BUILD, HANG, ROOT, ROUNDS, TARGET, TOOL, connect_surely, insist, is_asleep, is_loaded, maps, processes,
    require, run_cases, run_tool, served, skipped, start, wait_until_asleep)
from hakmem.look.observer import HEAD, MAGIC, VERSION, NotObserved, Observer, file_name, observed


def start_apart(flags, command, wrapper=("sh", "-c", 'exec "$@"', "sh")):
    """A process in name spaces of its own that runs the command on hakmem; its number out here. None: not permitted."""
    words = ["unshare", *flags, "--", *wrapper, "env", f"LD_PRELOAD={BUILD / 'libhakmem.so'}", *command]
    outer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             start_new_session=True)
    until = time.monotonic() + HANG
    while outer.poll() is None and time.monotonic() < until:
        for pid in family(outer.pid):
            if "libhakmem" in maps(pid) and command[0] == Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]:
                atexit.register(end_apart, outer, pid)  # also if the test fails
                wait_until_asleep(pid)
                return outer, pid
        time.sleep(0.005)
    outer.kill()
    return outer, None


def family(pid):
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from family(int(child))


def end_apart(outer, pid):
    if outer.poll() is None:
        os.kill(pid, signal.SIGKILL)  # the first process of a name space has no other end
    outer.stdin.close()
    outer.wait(HANG)


OWN_SHM = ("sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")
OWN_ROOT = ("sh", "-c", 'root=$1; shift; mount --rbind / "$root" && mount -t tmpfs none "$root/dev/shm" && '
            'exec chroot "$root" "$@"', "sh")
LINKED_SHM = ("sh", "-c", 'mount -t tmpfs none "$1" && ln -s "$1/place" "$1/shm" && mkdir "$1/place" && '
              'mount -t tmpfs none /dev && ln -s "$1/place" /dev/shm && shift && exec "$@"', "sh")


def case_containers():
    """Name spaces of mounts, process ids, users and time; a root directory and a /dev/shm of one's own."""
    root = BUILD / "tests/attach/root"
    root.mkdir(exist_ok=True)
    kinds = {"own /dev/shm": (["--mount"], OWN_SHM), "a root directory": (["--mount"], (*OWN_ROOT, str(root))),
             "/dev/shm is a link": (["--mount"], (*LINKED_SHM, str(root))),
             "own process ids": (["--pid", "--fork"], OWN_SHM[:2] + ('exec "$@"', "sh")),
             "own process ids and /proc": (["--pid", "--fork", "--mount-proc"], OWN_SHM),
             "own users": (["--user", "--map-root-user"], OWN_SHM[:2] + ('exec "$@"', "sh")),
             "own users, not root": (["--user", "--map-user=4711"], OWN_SHM[:2] + ('exec "$@"', "sh")),
             "own clock": (["--time", "--boottime", "1000000", "--fork"], OWN_SHM[:2] + ('exec "$@"', "sh"))}
    for name, (flags, wrapper) in kinds.items():
        outer, pid = start_apart(flags, ["sleep", "1000"], wrapper)
        if pid is None:
            skipped(name, outer.stderr.read().strip()[-100:])
            continue
        observer, started = connect_surely(pid)
        require(started, f"{name}: it was observed already")
        report = json.loads(observer.ask("json", HANG))
        require(report["hakmem"]["process"] == observer.process.inner_pid, f"{name}: another process answers")
        observer.close()
        again, started = connect_surely(pid)
        require(not started, f"{name}: its file was not found again")
        again.close()
        end_apart(outer, pid)
        print(f"{name}: attached")


def case_pod():
    """Two containers with one /dev/shm, as in a Kubernetes pod: both have a process 1, of the same user."""
    both = [start_apart(["--pid", "--fork", "--mount-proc"], ["sleep", "1000"]) for _ in range(2)]
    if any(pid is None for _, pid in both):
        skipped("pod", both[0][0].stderr.read().strip()[-100:])
        return
    for turn in range(2):
        for _, pid in both:
            observer, started = connect_surely(pid)
            require(started == (turn == 0), f"pod: turn {turn}, started {started}")
            require(json.loads(observer.ask("json", HANG))["hakmem"]["process"] == 1, "pod: another process answers")
            observer.close()
    for outer, pid in both:
        path = Path("/dev/shm", observer_file(pid))
        require(path.exists(), f"pod: there is no {path}")
        end_apart(outer, pid)
        path.unlink(missing_ok=True)  # in a common /dev/shm another test's tool may do it
    print("pod: two processes 1 in one /dev/shm")


def observer_file(pid):
    process = processes.look(pid)
    return file_name(processes.inner_uids(process)[1], process.inner_pid, process.space)


def case_stale_files():
    """A file that a killed process has left is removed if it is the process's, and not if it may be another container's."""
    if "TEST_OWN_SHM" not in os.environ:  # tools of other tests would remove the files
        skipped("stale files", "no /dev/shm of one's own is permitted")
        return
    process = processes.look(os.getpid())
    other = Path("/dev/shm", file_name(process.uids[1], process.inner_pid, 4711))
    mine = Path("/dev/shm", file_name(process.uids[1], process.inner_pid, process.space))
    theirs, document = Path("/dev/shm/hakmem.65534.999999999"), Path("/dev/shm/hakmem.65534.txt")
    head = HEAD.pack(MAGIC, VERSION, process.inner_pid, process.start + 1, 0, 0, 0, 0)
    for path in (other, mine, theirs, document):
        path.write_bytes(head.ljust(4096, b"\0"))
    try:
        Observer(process)
        require(False, "stale: a dead file is taken for a living one")
    except NotObserved:
        require(other.exists() and not mine.exists(), f"stale: {other.exists()} {mine.exists()}")
    with other.open("r+b") as file:  # as a process in that container has it, or only its mapping
        page = mmap.mmap(file.fileno(), 0)
        require(process.pid not in [p.pid for p in observed()], "stale: another container's process is seen")
    observed()
    require(other.exists(), "stale: another container's file is gone")
    page.close()
    observed()
    require(not other.exists() or os.geteuid() != process.uids[1], "stale: the file stays after its last user has ended")
    require(theirs.exists() == (os.geteuid() != 0) and document.exists(), "stale: root removes what users' processes have left")
    for path in (other, theirs, document):
        path.unlink(missing_ok=True)
    print("stale files: removed if they are the process's")


CLONES = {"x86_64": ["56", "435"], "aarch64": ["220", "435"]}.get(os.uname().machine)
MOUNT = {"x86_64": ["165"], "aarch64": ["40"]}.get(os.uname().machine)
READ = {"x86_64": ["310"], "aarch64": ["270"]}.get(os.uname().machine)  # process_vm_readv
KILL, TRAP, ERRNO = 0x80000000, 0x00030000, 0x00050001  # ERRNO: EPERM


def filtered(action, calls, *words):
    return [TARGET, "filtered", str(action), *calls, "--", *words]


def case_filtered():
    """Threads with system call filters (seccomp): a filter that would end the process is found by reading it."""
    preload = ["env", f"LD_PRELOAD={BUILD / 'libhakmem.so'}"]
    root = os.geteuid() == 0
    hidden = (126, "only root may read")
    kinds = (("kill", KILL, CLONES, (126, "would end it")), ("trap", TRAP, CLONES, (126, "would end it")),
             ("error", ERRNO, CLONES, (126, "cannot start another thread: Operation not permitted")),
             ("another call", KILL, MOUNT, (0, "")))
    for name, action, calls, wanted in kinds:
        for user in (None, 65534) if root else (None,):
            rights = {"user": user, "group": user, "extra_groups": []} if user else {}
            target = subprocess.Popen(filtered(action, calls, *preload, "sleep", "1000"), stderr=subprocess.PIPE, text=True,
                                      **rights)
            atexit.register(target.kill)
            until = time.monotonic() + HANG
            while not is_loaded(target.pid) and target.poll() is None and time.monotonic() < until:
                time.sleep(0.005)
            if target.poll() is not None:
                skipped("filtered", target.stderr.read().strip()[-100:])
                return
            wait_until_asleep(target.pid)
            done = subprocess.run([TOOL, str(target.pid)], capture_output=True, text=True, timeout=HANG, **rights)
            status, words = wanted if root and not user else hidden
            require(done.returncode == status and words in done.stderr, f"{name}, {user}: {done.returncode} {done.stderr}")
            if name == "another call":  # a tool that has the filter, too, as in a container
                done = subprocess.run(filtered(action, calls, TOOL, str(target.pid)), capture_output=True, text=True,
                                      timeout=HANG, **rights)
                require(done.returncode == 0, f"{name}, {user}: {done.returncode} {done.stderr}")
            require(target.poll() is None, f"{name}, {user}: the process has ended")
            target.kill()
            target.communicate()
            print(f"filter, {name}, {'another user' if user else 'own user'}: {done.stderr.strip() or 'attached'}")


def case_unreadable():
    """The kernel, or the filter of a container, refuses to read the memory of a process whose mappings may be read."""
    target = start(["sleep", "1000"])
    wait_until_asleep(target.pid)
    done = subprocess.run(filtered(ERRNO, READ, TOOL, str(target.pid)), capture_output=True, text=True, timeout=HANG)
    if done.returncode == 77:
        skipped("unreadable", done.stderr.strip()[-100:])
    else:
        require(done.returncode == 126 and re.search("Linux does not let (root|you) attach", done.stderr),
                f"unreadable: {done.returncode} {done.stderr}")
        print(f"unreadable: {done.stderr.strip()}")
    target.kill()
    target.communicate()


def refused_as(user, pid, status, words):
    done = subprocess.run([TOOL, str(pid)], capture_output=True, text=True, timeout=HANG, user=user, group=user,
                          extra_groups=[])
    require(done.returncode == status and words in done.stderr, f"{words}: {done.returncode} {done.stderr}")
    require(done.stderr.count("\n") == 1, f"more than a sentence: {done.stderr}")


def case_twice():
    """A thread whose sleep or poll was interrupted before: by a stop of the process, and by the tool."""
    sleep = "import time; time.sleep(1000)"
    poll = "import select; p = select.poll(); p.register(0, 0); p.poll(1000000)"
    for code in (sleep, poll):
        target = start([sys.executable, "-S", "-c", code])
        wait_until_asleep(target.pid)
        os.kill(target.pid, signal.SIGSTOP)
        while ") T " not in Path(f"/proc/{target.pid}/stat").read_text():
            time.sleep(0.005)
        os.kill(target.pid, signal.SIGCONT)
        for _ in range(3):
            status, said = insist(lambda: run_tool(target.pid))
            require(status == 0, f"twice: {code}: {status} {said}")
        require(target.poll() is None, f"twice: {code}: the sleep has ended")
        target.kill()
        target.communicate()
    print("twice: interrupted sleeps")


def run_command(command, pid):
    return subprocess.Popen([sys.executable, "-m", "hakmem.look", *command, str(pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | {"PYTHONPATH": str(ROOT / "python")})


def case_tools():
    """The commands that look into a process which ends, execs or forks at that moment: a result, or one sentence. The
    process does so when it gets a byte, at a random moment of the time that the command takes."""
    fork = "for _ in range(20):\n    child = os.fork()\n    if child == 0: os._exit(0)\n    os.waitpid(child, 0)\n"
    kinds = ("", "os.execv(sys.executable, [sys.executable, '-S', '-c', 'import sys; sys.stdin.read()'])", fork)
    page = str(BUILD / "tests/attach/page.html")
    commands = (["stat"], ["stat", "--json"], ["top", "--batch", "2", "--delay", "0.1"], ["metrics", "--once"],
                ["heap", "-o", page], ["observe"])
    results, took = 0, {}
    for turn, code in enumerate(("sys.stdin.read()", *kinds * max(ROUNDS // 20, 1))):
        for command in commands:
            target = start([sys.executable, "-S", "-c", "import os, sys\nos.read(0, 1)\n" + code])
            wait_until_asleep(target.pid)
            began = time.monotonic()
            tool = run_command(command, target.pid)
            if turn != 0:
                time.sleep(random.random() * took[command[0]])
                target.stdin.write("x")
                target.stdin.flush()
            said, errors = tool.communicate(timeout=HANG)
            took.setdefault(command[0], time.monotonic() - began)
            results += tool.returncode == 0
            fine = tool.returncode == 0 or (turn != 0 and re.fullmatch(r"hakmem: [^\n]+\n", errors))
            require(fine, f"tools: {command} of turn {turn}: {tool.returncode} {said[-300:]} {errors}")
            target.stdin.close()
            require(target.wait(HANG) == 0, f"tools: {command} of turn {turn}: the process ended with {target.returncode}")
    Path(page).unlink(missing_ok=True)
    print(f"tools: {results} of {len(commands) * (turn + 1)} with a result, the others with a sentence")


def case_main_ended():
    """A process whose main thread has ended, by pthread_exit: all of its memory and files are the other threads'."""
    target = start([TARGET, "main ended"])
    until = time.monotonic() + HANG
    while ") Z " not in Path(f"/proc/{target.pid}/stat").read_text():
        require(time.monotonic() < until, "main ended: it lives on")
        time.sleep(0.005)
    page = str(BUILD / "tests/attach/page.html")
    wanted = {("stat",): r"resident memory \(RSS\) +[1-9].*MiB", ("stat", "--json"): r'"mapped": {"program_and_libraries_bytes": [1-9]',
              ("top", "--once"): "resident +[1-9]", ("metrics", "--once"): "hakmem_rss_bytes{[^}]*} [1-9]|resident",
              ("heap", "-o", page): "resident heap +[1-9]", ("observe",): "is observed already",
              ("profile", "--allocated", "--period", "1", "--seconds", "2"): r"blocks  live_on\("}
    for command, words in wanted.items():
        tool = run_command(list(command), target.pid)
        said, errors = tool.communicate(timeout=HANG)
        require(tool.returncode == 0 and re.search(words, said), f"main ended: {command}: {tool.returncode} {said[-300:]} {errors}")
    Path(page).unlink(missing_ok=True)
    target.stdin.close()
    require(target.wait(HANG) == 0, f"main ended: the process ended with {target.returncode}")
    print("main ended: all commands answer")


def case_loading():
    """A process whose loader has mapped only the first part of the library so far, or none of it any more when the tool looks
    into what it has seen; later, all of it or nothing."""
    library = BUILD / "libhakmem.so"
    code = f"""
import ctypes, mmap, os, signal, sys, time
file = os.open({str(library)!r}, os.O_RDONLY)
part = mmap.mmap(file, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
if sys.argv[1] == "loads" and signal.sigwait([signal.SIGUSR1]):
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        part.close()
        part = mmap.mmap(file, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
    part.close()
    ctypes.CDLL({str(library)!r})
    print("ready", flush=True)
sys.stdin.read()
"""
    refused = "a version of hakmem that cannot be observed"
    changing = "does not run on hakmem|meanwhile"  # what the last look of a second may say, and no earlier one
    for kind in ["stays"] + ["loads"] * 30:
        target = subprocess.Popen([sys.executable, "-S", "-c", code, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=served(LD_PRELOAD=""))
        require(target.stdout.readline() == "ready\n", "loading: it does not start")
        began = time.monotonic()
        tool = subprocess.Popen([TOOL, str(target.pid)], stderr=subprocess.PIPE, text=True)
        while tool.poll() is None and not is_asleep(tool.pid):  # until it has looked once
            time.sleep(0.001)
        if kind == "loads":
            target.send_signal(signal.SIGUSR1)
        said = tool.communicate(timeout=HANG)[1]
        waited = time.monotonic() - began
        target.communicate("", timeout=HANG)
        require(target.returncode == 0, f"loading: the process ended with {target.returncode}")
        print(f"loading, {kind}: {said.strip() or 'attached'}")
        fine = tool.returncode == 0 or (waited > 1 and re.search(changing, said))
        require((fine and kind == "loads") or refused in said, f"loading: {tool.returncode} {said}")
        if tool.returncode == 0:
            return
    require(False, "loading: the tool does not wait for the loader")  # so often: not for a busy machine's sake


def case_zombie():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    status, said = run_tool(child)
    require(status == 127 and "zombie" in said, f"zombie: {status} {said}")
    os.waitpid(child, 0)
    print("zombie: refused")


def case_kernel_thread():
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if "\nVmSize:" not in text and "State:\tZ" not in text and "State:\tX" not in text:
            status, said = run_tool(int(path.parent.name))
            require(status == 126 and "the kernel's" in said or status == 127, f"kernel thread: {status} {said}")
            if status == 126:
                print("kernel thread: refused")
                return
    skipped("kernel thread", "no kernel thread is to be seen")


def case_protected():
    """A process that made itself undumpable is for root alone."""
    if os.geteuid() != 0:
        skipped("protected", "not root")
        return
    target = start([TARGET, "protected"], user=65534, group=65534, extra_groups=[])
    require(target.stdout.readline() == "ready\n", "protected: it does not start")
    refused_as(65534, target.pid, 126, "protects itself (prctl PR_SET_DUMPABLE)")
    observer, started = connect_surely(target.pid)
    require(started and json.loads(observer.ask("json", HANG)), "protected: root cannot look")
    observer.close()
    target.communicate("", timeout=HANG)
    require(target.returncode == 0, "protected: the process failed")
    print("protected: for root alone")


def case_yama():
    """The sentence for each value of kernel.yama.ptrace_scope, which a file system of our own plays."""
    if os.geteuid() != 0:
        skipped("yama", "not root")
        return
    # What is refused is another thing: one user may not attach to a process with more capabilities.
    target = start(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+net_raw",
                    "--ambient-caps=+net_raw", "sleep", "1000"])
    wait_until_asleep(target.pid, "sleep")
    words = {1: "type: sudo sysctl kernel.yama.ptrace_scope=0", 2: "type: sudo sysctl kernel.yama.ptrace_scope=0",
             3: "until the machine starts anew"}
    script = ('mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && '
              'echo "$1" >/proc/sys/kernel/yama/ptrace_scope && shift && echo good && exec setpriv --reuid=65534 '
              '--regid=65534 --clear-groups "$@"')
    for scope, wanted in words.items():
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", str(scope), TOOL, str(target.pid)],
                              capture_output=True, text=True, timeout=HANG)
        if done.stdout != "good\n" or target.poll() is not None:
            skipped("yama", done.stderr.strip()[-100:])
            break
        require(done.returncode == 126 and wanted in done.stderr, f"yama {scope}: {done.returncode} {done.stderr}")
        require(f"kernel.yama.ptrace_scope is {scope}" in done.stderr and "HAKMEM_OBSERVE=1" in done.stderr, done.stderr)
        require(done.stderr.count("\n") == 1, f"more than a sentence: {done.stderr}")
        print(f"yama {scope}: {done.stderr.strip()}")
    target.kill()
    target.communicate()


def case_thirty_two_bits():
    """A program for x86 of 32 bits that waits: push $29; pop %eax; int $0x80 (pause); jmp to the start."""
    if os.uname().machine != "x86_64":
        skipped("32 bits", "for x86 only")
        return
    code = bytes.fromhex("6a1d58cd80ebf9")
    head = b"\x7fELF\1\1\1".ljust(16, b"\0") + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, 0x8048054, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<8I", 1, 0, 0x8048000, 0x8048000, 84 + len(code), 84 + len(code), 5, 4096)
    path = BUILD / "tests/attach/thirty_two_bits"
    path.write_bytes(head + segment + code)
    path.chmod(0o755)
    try:
        target = subprocess.Popen([str(path)])
    except OSError as error:
        skipped("32 bits", error.strerror)
        return
    status, said = run_tool(target.pid)
    target.kill()
    target.wait()
    require(status == 126 and "32-bit program" in said, f"32 bits: {status} {said}")
    print("32 bits: refused")


if __name__ == "__main__":
    run_cases(globals())
