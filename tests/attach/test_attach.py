#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attaches to processes that do their utmost not to be attached to well, and looks at what became of them."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from attaching import (
    AGAIN, BUILD, HANG, ROUNDS, TARGET, TOOL, attach_often, connect_surely, insist, look_at, require,
    run_cases, run_tool, served, skipped, start, wait_until_asleep)


def case_allocate():  # ctest: lock=threads
    attach_often("allocate", ROUNDS // 4)  # on two processors 64 threads leave it little time


def case_wait():
    attach_often("wait", ROUNDS)


def case_signals():
    attach_often("signals", ROUNDS)


def case_fork():
    attach_often("fork", ROUNDS)


def case_compute():
    attach_often("compute", ROUNDS)


def case_rest():
    """Threads that sleep for long: what earlier calls left on their stacks does not make them look busy."""
    target = start([TARGET, "rest"])
    child, tid = (int(word) for word in target.stdout.readline().split())
    tries = [(target.pid, target.pid), (child, child), (target.pid, tid)]
    for pid, thread in tries if os.uname().machine == "x86_64" else []:
        status, said = insist(lambda pid=pid, thread=thread: run_tool(pid, thread))
        require(status == 0, f"rest: {thread} of {pid}: {said}")
        look_at(pid)
    target.stdin.write("x")
    said, errors = target.communicate(timeout=HANG)
    require(target.returncode == 0 and said == "\ngood 1\n", f"rest: {target.returncode} {said} {errors}")


def case_programs():
    """Programs of every system, which wait: for input, or for a reader. Their stacks are what their own starts have left."""
    perl = "my @all = map { 'x' x $_ } 1..1000; <STDIN>"
    for words in (["yes"], ["sort"], ["cat"], ["sh"], ["bash"], ["sed", "p"], ["awk", "{ all[$1] = $2 }"], ["grep", "x"], ["tee"],
                  ["tail", "-f", "/dev/null"], ["xargs", "true"], ["perl", "-e", perl], [sys.executable, "-S", "-"]):
        if not shutil.which(words[0]):
            continue
        target = start(words)
        wait_until_asleep(target.pid)
        status, said = insist(lambda pid=target.pid: run_tool(pid))
        require(status == 0, f"programs: {words[0]}: {said}")
        look_at(target.pid)
        target.kill()
        target.communicate()


def attach_to_the_dying(name, words, sentences, good_end):
    """Processes that end, exec or change their user at that moment: attached, or one sentence; and they go on."""
    attached = 0
    for _ in range(ROUNDS):
        target = start(words)
        status, said = run_tool(target.pid)
        attached += status == 0
        require(status == 0 or re.search(sentences, said), f"{name}: {status} {said}")
        target.stdin.close()
        if target.wait(HANG) != good_end:
            require(False, f"{name}: ended with {target.returncode}: {target.stderr.read()}")
    print(f"{name}: {attached} of {ROUNDS} attached")


ENDED = "has ended|there is no process|meanwhile|zombie|ends$|about to start|no thread that could|does not run on"


def case_exit():
    code = "import time, random; time.sleep(random.random() * 0.2)"
    attach_to_the_dying("exit", [sys.executable, "-S", "-c", code], ENDED, 0)


def case_exec():
    code = "n=$1; if [ $n -gt 0 ]; then exec \"$2\" $((n - 1)) \"$2\"; fi; exit 5"
    script = BUILD / "tests/attach/exec.sh"
    script.write_text(f"#!/bin/sh\n{code}\n")
    script.chmod(0o755)
    loading = "a version of hakmem that cannot"  # a loader that must wait for a processor for more than a second
    attach_to_the_dying("exec", [str(script), "100", str(script)], f"{ENDED}|{loading}", 5)


def case_setuid():
    if os.geteuid() != 0:
        return
    code = """
import os, threading, time, random
halt = threading.Event()
threads = [threading.Thread(target=lambda: halt.wait()) for _ in range(4)]
for t in threads: t.start()
time.sleep(random.random() * 0.08)
os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
assert all("65534" in open(f"/proc/self/task/{t}/status").read().split("Uid:")[1].split()[0]
           for t in os.listdir("/proc/self/task"))
halt.set()
for t in threads: t.join()
"""
    attach_to_the_dying("setuid", [sys.executable, "-S", "-c", code], ENDED, 0)
    for path in Path("/dev/shm").glob("hakmem.0.*"):  # of processes that may not remove them any more
        if not Path(f"/proc/{path.suffix[1:]}").exists():
            path.unlink(missing_ok=True)  # each tool removes such files


def case_killed_tool():  # ctest: lock=threads
    """All processes of a tool are killed at one moment. On x86-64 the process goes on as before; else it may end by SIGTRAP,
    or say why it aborts. It never hangs."""
    ends, begun = {}, 0
    for turn in range(ROUNDS):
        target = start([TARGET, ("allocate", "wait", "signals", "compute")[turn % 4]])
        tool = subprocess.Popen([TOOL, str(target.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)
        children, killed = Path(f"/proc/{tool.pid}/task/{tool.pid}/children"), []
        while tool.poll() is None and not killed:  # until one of them works on a thread
            killed = children.read_text().split()
        time.sleep(random.random() * 0.002)
        for pid in (tool.pid, *map(int, killed)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        begun += bool(killed)
        tool.wait()
        said = ""
        try:
            said = target.communicate("", timeout=HANG)[1]
        except BrokenPipeError:
            said = target.stderr.read()
            target.wait(HANG)
        told = target.returncode == -signal.SIGABRT and "the tool that attached to the process was killed" in said
        may_end = os.uname().machine != "x86_64" and (target.returncode == -signal.SIGTRAP or told)
        require(target.returncode == 0 or may_end, f"killed tool: ended with {target.returncode}: {said}")
        ends[target.returncode] = ends.get(target.returncode, 0) + 1
    print(f"killed tool: ends {ends}, {begun} at work")


def case_at_once():  # ctest: lock=threads
    """Eight tools at once: all are content, and there is one observer."""
    for _ in range(ROUNDS // 10):
        target = start([TARGET, "allocate"])
        tools = [subprocess.Popen([TOOL, str(target.pid)], stderr=subprocess.PIPE, text=True) for _ in range(8)]
        for tool in tools:
            said = tool.communicate(timeout=HANG)[1]
            status = tool.returncode
            if re.search(AGAIN, said):
                status, said = insist(lambda: run_tool(target.pid))
            require(status == 0, f"at once: {said}")
        look_at(target.pid)
        names = [Path(f"/proc/{target.pid}/task/{tid}/comm").read_text() for tid in
                 os.listdir(f"/proc/{target.pid}/task")]
        require(names.count("hakmem-observe\n") == 1, f"at once: {names}")
        target.communicate("", timeout=HANG)
        require(target.returncode == 0, "at once: the process failed")
    print("at once: eight tools, one observer")


def case_python():
    code = """
import sys, json, threading
def work():
    while not over.is_set():
        assert json.loads(json.dumps({str(i): [i] * 10 for i in range(200)}))["7"] == [7] * 10
over = threading.Event()
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
sys.stdin.read(); over.set()
for t in threads: t.join()
print("good")
"""
    for _ in range(ROUNDS // 10):
        target = start([sys.executable, "-c", code])
        observer, started = connect_surely(target.pid)
        require(started and json.loads(observer.ask("json", HANG)), "python")
        observer.close()
        require(target.communicate("", timeout=HANG)[0] == "good\n" and target.returncode == 0, "python failed")
    print(f"python: {ROUNDS // 10} attached")


def case_linked():
    """A static program that was linked with libhakmem.a and stripped."""
    source, program = BUILD / "tests/attach/linked.c", str(BUILD / "tests/attach/linked")
    source.write_text("#include <stdlib.h>\n#include <stdio.h>\nint main(void) { void *p = malloc(9); return getchar() == (p == 0); }\n")
    words = ["gcc", "-static", "-s", "-fno-builtin", str(source), str(BUILD / "libhakmem.a"), "-o", program]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        skipped("linked", done.stderr.strip()[-100:])
        return
    target = subprocess.Popen([program], stdin=subprocess.PIPE, text=True, env=served(LD_PRELOAD=""))
    status, said = insist(lambda: run_tool(target.pid))
    require(status == 0, f"linked: {status} {said}")
    look_at(target.pid)
    target.communicate("x", timeout=HANG)
    require(target.returncode == 0, f"linked: the program ended with {target.returncode}")
    print("linked: attached")


def is_stopped(pid):
    """True if all threads of the process are stopped by a signal."""
    states = [status.read_text().split("\nState:")[1].split()[0] for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return set(states) == {"T"}


def run_as(user, pid):
    done = subprocess.run([TOOL, str(pid)], capture_output=True, text=True, timeout=HANG, user=user, group=user,
                          extra_groups=[])
    return done.returncode, done.stderr


def case_refusals():
    plain = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.1)
    stopped = start([TARGET, "wait"])
    os.kill(stopped.pid, signal.SIGSTOP)
    until = time.monotonic() + HANG
    while not is_stopped(stopped.pid):  # each thread stops when it runs next: on a busy machine, not at once
        require(time.monotonic() < until, "the process does not stop")
        time.sleep(0.001)
    for pid, wanted, words in ((plain.pid, 126, "does not run on hakmem"), (stopped.pid, 126, "is stopped"),
                               (2**22 + 5, 127, "there is no process"), (2, 126, "the kernel's")):
        status, said = run_tool(pid)
        require((status, words in said) == (wanted, True) or (pid == 2 and status == 127), f"{pid}: {status} {said}")
    for words in ([], ["abc"], ["0"], ["--verbose"], ["1", "2"], ["-1"]):
        done = subprocess.run([TOOL, *words], capture_output=True, text=True)
        require(done.returncode == 2 and "usage" in done.stderr, f"{words}: {done.stderr}")
    plain.kill()
    plain.wait()
    stopped.kill()
    stopped.wait()
    if os.geteuid() == 0:  # another user's, and one's own without root
        mine = start([TARGET, "wait"])
        other = start([TARGET, "wait"], user=65534, group=65534, extra_groups=[])
        for target, wanted in ((mine, 126), (other, 0)):
            status, said = insist(lambda: run_as(65534, target.pid))
            require(status == wanted, f"user: {status} {said}")
            require(wanted == 0 or "another user" in said, f"user: {said}")
            if wanted == 0:
                look_at(target.pid)
            target.communicate("", timeout=HANG)
            require(target.returncode == 0, "user: the process failed")
    print("refusals: one sentence each")


if __name__ == "__main__":
    run_cases(globals())
