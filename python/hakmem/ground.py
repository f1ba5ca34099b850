# SPDX-License-Identifier: MIT
"""What the commands that need the sources stand on: the launcher, places to write to, packages, messages."""
import contextlib
import fcntl
import functools
import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

from .look.processes import STATUS_FAILED, Refusal
from .places import build_directory, cache_directory

ROOT = Path(__file__).resolve().parents[2]
JOBS = min(len(os.sched_getaffinity(0)), 8)
# What the launcher says. Programs that are started from here do not see it: to hakmem these would be unknown options.
LAUNCHER = os.environ.pop("HAKMEM_LAUNCHER", str(ROOT / "hakmem"))
CALLERS_PATH = os.environ.pop("HAKMEM_CALLER_PATH", "")
mode = {"install": os.environ.pop("HAKMEM_INSTALL", "") or "ask"}  # yes, no or ask


def say(text):
    print(f"hakmem: {text}", file=sys.stderr, flush=True)


@functools.lru_cache(maxsize=None)
def place(kind):
    """The folder of a kind, build or cache."""
    try:
        return cache_directory() if kind == "cache" else build_directory(ROOT)
    except OSError as error:
        raise Refusal(f"there is no place for the {kind}: {error.strerror}", STATUS_FAILED) from None


# --- building ---

@contextlib.contextmanager
def locked(path):
    """Two first commands at once: the second waits, then finds everything done."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise Refusal(f"{path} is not a plain file; remove it", STATUS_FAILED)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def clock(what):
    """How long it has taken stands on the terminal meanwhile."""
    done = threading.Event()
    start = time.monotonic()

    def tick():
        while not done.wait(1):
            print(f"\rhakmem: {what}, {time.monotonic() - start:.0f} s ", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident:
            thread.join()
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def call(words, log, **more):
    """Without the preloads that are meant for the program, and without its input. True: it went well."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                          env=environment, **more).returncode == 0


def is_configured(directory):
    """For this checkout: a folder that came along with a copy builds the original."""
    try:
        cache = (directory / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return False
    return (directory / "build.ninja").exists() and f"\nCMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" in cache


def configure(directory, preset, log, *options):
    if set('"\\') & set(str(ROOT)):
        raise Refusal(f"cmake cannot build what is in {ROOT}; a path without quotation marks and backslashes will do", STATUS_FAILED)
    if not is_configured(directory):
        subprocess.run(["rm", "-rf", "--", directory], check=True)
    return call(["cmake", "--preset", preset, "-S", ROOT, "-B", directory, *options], log)


def make(directory, log, *targets):
    return call(["cmake", "--build", directory, "-j", str(JOBS), *(["--target", *targets] if targets else [])], log)


def show_log(path, stream):
    """Of a failed build, without the steps that went well."""
    stream.flush()
    for line in path.read_text(errors="replace").splitlines():
        if not re.match(r"\[\d+/\d+\]", line):
            print(line, file=stream)
