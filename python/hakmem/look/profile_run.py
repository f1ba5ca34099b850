# SPDX-License-Identifier: MIT
"""Runs a program for ./hakmem profile. A program that a signal ends writes no profile, and hakmem must not catch signals
that the program may ask about. So its observer is asked for a profile again and again, and the last answer is kept."""
import signal
import subprocess
import time

from .observer import Observer, remove_stale_files
from .processes import Refusal, look

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25  # seconds between two questions; they grow
TIME_SHARE = 50  # answers take at most one part in so many of the time,
LONGEST_SHARED = 0.1  # where they take at most as many seconds
ANSWER_SECONDS = 30.0  # unless a signal comes, or the program ends
LAST_ANSWER_SECONDS = 1.0  # before a signal is passed on
OWN_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Pauses:
    """Between two questions: they grow, and leave the process its time."""

    def __init__(self):
        self.pause, self.until = FIRST_PAUSE, time.monotonic() + FIRST_PAUSE

    def note(self, took):
        """An answer took so many seconds."""
        self.pause = max(min(2 * self.pause, LONGEST_PAUSE), TIME_SHARE * min(took, LONGEST_SHARED))
        self.until = time.monotonic() + self.pause

    def left(self):
        return max(self.until - time.monotonic(), 0)


class Watch:
    """The newest profile of a process, if it could be had."""

    def __init__(self, pid, signals):
        self.pid = pid
        self.signals = signals  # that wait for this process to look
        self.text = b""
        self.taken = 0.0  # when, on time.monotonic()
        self.pauses = Pauses()
        self.observer = None

    def ask(self, seconds=ANSWER_SECONDS):
        began = time.monotonic()
        try:
            if self.observer is None:
                self.observer = Observer(look(self.pid))
                self.observer.may_note = False
                self.observer.is_interrupted = lambda: bool(self.signals & signal.sigpending())
            self.text = self.observer.ask("profile", seconds)
            self.taken = time.monotonic()
        except (Refusal, KeyError, OSError):  # not started yet, stopped, or another program now
            self.close()
        self.pauses.note(time.monotonic() - began)

    def close(self):
        if self.observer is not None:
            self.observer.close()
        self.observer = None

    def end(self):
        self.close()
        remove_stale_files()  # a killed program has left one


def wait(child, watch, signals):
    """Until the child has ended. A signal that the terminal sends to all processes in the foreground has reached the
    program, too; one that was sent to this process is passed on, after a last question."""
    while child.poll() is None:
        came = signal.sigtimedwait(signals, watch.pauses.left())
        if came is not None and came.si_signo == signal.SIGCHLD:
            continue
        watch.ask(ANSWER_SECONDS if came is None else LAST_ANSWER_SECONDS)
        if came is not None and came.si_code <= 0:  # not from the kernel
            child.send_signal(came.si_signo)


def run_watched(command, environment):
    """Its exit status, negative for a signal, and a Watch."""
    signals = OWN_SIGNALS | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        child = subprocess.Popen(command, env=environment,
                                 preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before))
        watch = Watch(child.pid, signals)
        try:
            wait(child, watch, signals)
        finally:
            watch.end()
        while signal.sigtimedwait(signals, 0):  # such as came just before the end
            pass
        return child.returncode, watch
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
