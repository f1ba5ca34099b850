#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attaches to a program that never comes back, and ends the tool in all ways: the program goes on untraced, with the
scheduling that it had. As root, the program is another user's. It does not run on hakmem: one form answers for all."""
# ctest: once
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from attaching import BUILD, HANG, ROOT, TOOL, require, run_cases, skipped

STRANGER = 64124
PROGRAM = str(BUILD / "tests/attach/silent")
NICE = os.getpriority(os.PRIO_PROCESS, 0)


def start_silent(is_others=os.geteuid() == 0):
    other = {"user": STRANGER, "group": STRANGER, "extra_groups": []} if is_others else {}
    target = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, **other,
                              env=os.environ | {"LD_PRELOAD": str(BUILD / "tests/attach/libsilent.so")})
    answers(target, "at first")
    return target


def answers(target, when):
    target.stdin.write(b"x")
    target.stdin.flush()
    require(target.stdout.read(1) == b"x", f"the program does not answer {when}")


def tracer(target):
    return int(Path(f"/proc/{target.pid}/status").read_text().split("TracerPid:")[1].split()[0])


def wait_until(condition, what):
    until = time.monotonic() + HANG
    while not condition():
        require(time.monotonic() < until, what)
        time.sleep(0.005)


def is_ordinary(target):
    """It has the scheduling with which it was started."""
    return os.sched_getscheduler(target.pid) == os.SCHED_OTHER and os.getpriority(os.PRIO_PROCESS, target.pid) == NICE


def is_usual(target):
    return is_ordinary(target) and tracer(target) == 0


def is_calling(target):
    """In the call: untouched it sleeps, stopped it is in state t."""
    state = Path(f"/proc/{target.pid}/stat").read_text().rpartition(") ")[2][0]
    return tracer(target) != 0 and state == "R"


def attach_in(words, target):
    """Starts the command, and returns when the program makes the call."""
    tool = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: is_calling(target) or tool.poll() is not None, "nobody attaches")
    if tool.poll() is not None:
        require(False, f"the tool ended: {tool.communicate()}")
    return tool


def case_never():
    """Nobody ends the tool: it gives up by itself, and the program is urgent for a moment only."""
    target = start_silent()
    tool = attach_in([TOOL, str(target.pid)], target)
    wait_until(lambda: is_ordinary(target), "the program stays urgent")
    require(tracer(target) != 0, "never: the program was urgent until the tool gave up")
    said, errors = tool.communicate(timeout=HANG)
    require(tool.returncode == 126 and "did not come back" in errors, f"never: {tool.returncode} {said} {errors}")
    require(is_usual(target), "never: the program is not as before")
    answers(target, "after the tool has given up")
    target.kill()


def case_told():
    """Signals end the tool, and put the program back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        target = start_silent()
        tool = attach_in([TOOL, str(target.pid)], target)
        tool.send_signal(number)
        said, errors = tool.communicate(timeout=HANG)
        require(tool.returncode == -number, f"told: {number}: {tool.returncode} {said} {errors}")
        require(is_usual(target), f"told: {number}: the program is not as before")
        answers(target, f"after signal {number}")
        target.kill()


def case_killed():
    """One of the tool's processes is killed, or its group: the other one restores what it can."""
    for whom in ("parent", "group", "child"):
        target = start_silent()
        tool = attach_in([TOOL, str(target.pid)], target)
        if whom == "child":
            os.kill(tracer(target), signal.SIGKILL)
        elif whom == "group":
            os.killpg(tool.pid, signal.SIGKILL)
        else:
            tool.kill()
        tool.communicate(timeout=HANG)
        wait_until(lambda: is_usual(target), f"killed: {whom}: the program is not as before")
        if whom != "child":  # nobody was left who had its registers
            answers(target, f"after the {whom} was killed")
        target.kill()


def case_command():
    """Ctrl-C of a command, which the terminal sends to all its processes; and its kill."""
    os.environ["HAKMEM_ATTACH_TOOL"] = TOOL
    for number in (signal.SIGINT, signal.SIGKILL):
        target = start_silent(False)  # another user's is left after 3 s
        command = attach_in([sys.executable, "-I", "-B", str(ROOT / "python/hakmem/cli.py"), "stat", str(target.pid)], target)
        os.killpg(command.pid, number)
        said, errors = command.communicate(timeout=HANG)
        require(command.returncode == (130 if number == signal.SIGINT else -number), f"command: {command.returncode} {errors}")
        require("Traceback" not in errors, errors)
        wait_until(lambda: is_usual(target), f"command: signal {number}: the program is not as before")
        answers(target, f"after signal {number} to the command")
        target.kill()


def squat(pid):
    """Takes all names and locks for this process that anybody can."""
    squat.held = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)]
    squat.held[0].bind(f"\0hakmem-attach-{pid}")
    for name in ("environ", "stat", "status", "maps", "cmdline"):
        try:
            squat.held.append(open(f"/proc/{pid}/{name}"))
            fcntl.flock(squat.held[-1], fcntl.LOCK_EX)
        except OSError:
            pass


def case_lock():
    """Another user's lock keeps nobody from attaching."""
    if os.geteuid() != 0:
        return skipped("lock", "it needs root")
    target = start_silent()
    ready, done = os.pipe()
    other = os.fork()
    if other == 0:
        os.setgroups([]), os.setgid(STRANGER + 1), os.setuid(STRANGER + 1)
        squat(target.pid)
        os.write(done, b"x")
        signal.pause()
    os.read(ready, 1)
    tool = attach_in([TOOL, str(target.pid)], target)
    tool.terminate()
    tool.communicate(timeout=HANG)
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    target.kill()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without
    run_cases(globals())
