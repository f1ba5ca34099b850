# SPDX-License-Identifier: MIT
"""Starts the observer of a process that was started without one. The program beside the library (attach/) does it."""
import glob
import os
import subprocess
import sys
import time

from .observer import NotObserved, Observer, remove_stale_files
from .processes import Refusal, STATUS_FAILED, look, read_text, require_rights, require_running

WAIT_SECONDS = 30.0  # for the file of an observer's thread that runs, on a busy machine
START_SECONDS = 5.0  # for such a thread
TOOL_SECONDS = 150  # for the program that attaches, whose own waits end sooner
END_SECONDS = 10  # for its end after a signal: it lets the process go first


def tool():
    """The path of the program that attaches, which lies beside the launcher of an installed hakmem; else builds it if it is
    not there, or older than its sources."""
    path = os.environ.get("HAKMEM_ATTACH_TOOL")
    launcher = os.environ.get("HAKMEM_LAUNCHER")
    beside = os.path.join(os.path.dirname(launcher or ""), "hakmem-attach")
    if not path and launcher and os.path.exists(beside):
        path = beside
    if not path and launcher:
        root = os.path.dirname(launcher)
        path = os.path.join(root, "build/release/hakmem-attach")
        sources = glob.glob(f"{glob.escape(root)}/attach/*") + [f"{root}/include/hakmem/observe.h"]
        if not os.access(path, os.X_OK) or any(os.path.getmtime(path) < os.path.getmtime(source) for source in sources):
            command = [sys.executable, "-I", "-B", os.path.join(root, "python/hakmem/cli.py"), "--tool"]
            built = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            if built.returncode != 0:
                raise Refusal("the program that attaches to processes could not be built", built.returncode)
            path = built.stdout.strip()
    if not path or not os.access(path, os.X_OK):
        raise Refusal("the program that attaches to processes is missing", STATUS_FAILED)
    return path


def attach(process, verbose=False):
    """Runs the tool. What it says, a sentence, becomes the Refusal."""
    words = [tool(), *(["--verbose"] if verbose else []), str(process.pid)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=None if verbose else subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, errors="replace") as child:
        try:
            said = child.communicate(timeout=TOOL_SECONDS)[1].strip().splitlines()
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


def connect(pid, verbose=False, may_attach=True):
    """An Observer of the process, started if need be. Returns it and whether it was started now."""
    remove_stale_files()
    process = look(pid)
    require_rights(process)
    require_running(process)
    try:
        return Observer(process), False
    except NotObserved:
        if not may_attach:
            raise
    attach(process, verbose)
    began = time.monotonic()
    while True:
        try:
            return Observer(look(pid)), True
        except NotObserved:
            waited = time.monotonic() - began
            if waited > WAIT_SECONDS or (waited > START_SECONDS and not has_observer_thread(pid)):
                raise Refusal(f"process {pid} was attached to, but it could not make its file in /dev/shm",
                              STATUS_FAILED) from None
            time.sleep(0.005)
