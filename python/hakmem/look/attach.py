# SPDX-License-Identifier: MIT
"""Starts the observer of a process that was started without one. The program beside the library (attach/) does it."""
import functools
import glob
import math
import os
import subprocess
import time

from .observer import NotObserved, Observer, remove_stale_files, require_same_program
from .processes import (
    OTHERS_SECONDS, Refusal, STATUS_FAILED, is_of_another_user, look, read_text, require_rights, require_running)

WAIT_SECONDS = 30.0  # for the file of an observer's thread that runs, on a busy machine
START_SECONDS = 5.0  # for such a thread
TOOL_SECONDS = 150  # for the program that attaches, whose own waits end sooner
END_SECONDS = 10  # for its end after a signal: it lets the process go first


@functools.lru_cache(maxsize=None)
def tool():
    """The path of the program that attaches, which lies beside the launcher of an installed hakmem; else builds it."""
    path = os.environ.get("HAKMEM_ATTACH_TOOL") or os.path.join(os.path.dirname(os.environ["HAKMEM_LAUNCHER"]), "hakmem-attach")
    if not os.access(path, os.X_OK):
        from ..build import build_tool
        path = build_tool()
    return path


def attach(process, seconds=TOOL_SECONDS):
    """Runs the tool. What it says, a sentence, becomes the Refusal."""
    with subprocess.Popen([tool(), str(process.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, errors="replace") as child:
        try:
            said = child.communicate(timeout=max(seconds, 0))[1].strip().splitlines()
        except BaseException as error:  # Ctrl-C, too
            end(child)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = []
    if child.returncode < 0:
        said = [f"process {process.pid} could not be attached to in time"]
    if child.returncode != 0:
        said = said or [f"the program that attaches ended with {child.returncode}"]
        raise Refusal(said[-1].removeprefix("hakmem: "), child.returncode if child.returncode > 0 else STATUS_FAILED)


def end(child):
    child.terminate()
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def has_observer_thread(pid):
    for path in glob.glob(f"/proc/{pid}/task/*/comm"):
        try:
            if read_text(path) == "hakmem-observe\n":
                return True
        except OSError:  # that thread has ended
            pass
    return False


def connect(pid):
    """An Observer of the process, started if need be. Returns it and whether it was started now."""
    remove_stale_files()
    process = look(pid)
    require_rights(process)
    require_running(process)
    began = time.monotonic()
    until = began + (OTHERS_SECONDS if is_of_another_user(process) else math.inf)
    try:
        return Observer(process), False
    except NotObserved:
        attach(process, min(until - began, TOOL_SECONDS))
    began = time.monotonic()
    while True:
        now = look(pid)
        require_same_program(process, now)
        try:
            observer = Observer(now)
            observer.until = min(observer.until, until)
            return observer, True
        except NotObserved:
            waited = time.monotonic() - began
            if waited > WAIT_SECONDS or began + waited > until or (waited > START_SECONDS and not has_observer_thread(pid)):
                raise Refusal(f"process {pid} was attached to, but it could not make its file in /dev/shm",
                              STATUS_FAILED) from None
            time.sleep(0.005)
