# SPDX-License-Identifier: MIT
"""Samples a living process for a tool, beside other tools and the process's own sampling (src/observe/claims.h)."""
import json
import os
import signal
import time

from .document import parse
from .observer import Replaced
from .processes import Ended, Refusal, STATUS_FAILED
from .profile_data import LIVE_SUMS, SUMS, numbers
from .profile_run import ANSWER_SECONDS, LAST_ANSWER_SECONDS, OWN_SIGNALS, Pauses

RENEW_SECONDS = 1.0  # from one renewal to the next; the process takes a tool for dead after 5 s


class Claim:
    """Samples a process until end(), or until this tool is killed. Raises Refusal."""

    def __init__(self, observer, period=0, by_thread=False):
        """`period`: bytes; 0: hakmem's own."""
        self.observer = observer
        self.number = int.from_bytes(os.urandom(7), "little") + 1
        self.words = f"profile_claim {self.number} {period}{' threads' * by_thread}"
        self.has_gap = False  # the process took this tool for dead
        self.began = self._claim(ANSWER_SECONDS)

    def _claim(self, seconds):
        pid = self.observer.process.pid
        try:
            began = int(self.observer.ask(self.words, seconds))
        except (KeyError, ValueError):
            raise Refusal(f"process {pid} runs on another version of hakmem than this tool") from None
        if began == 0:
            raise Refusal(f"process {pid} is sampled by too many tools at once", STATUS_FAILED)
        return began

    def renew(self, seconds=ANSWER_SECONDS):
        self.has_gap |= self._claim(seconds) != self.began

    def profile(self, seconds):
        """Its live bytes are those of the blocks that were allocated since the claim began."""
        return self.observer.ask(f"profile {self.began}", seconds)

    def end(self):
        try:
            self.observer.ask(f"profile_release {self.number}", LAST_ANSWER_SECONDS)
        except (Refusal, KeyError, OSError):  # it has ended; or it takes this tool for dead soon
            pass


class Gathered:
    """What gather() got: the text of a profile, when that was taken, on time.monotonic(), the signal that came, if any, and
    why the process says no more."""

    def __init__(self):
        self.text, self.taken, self.signal, self.why = b"", 0.0, 0, None

    def is_over(self):
        """Whether what was sampled is gone."""
        return isinstance(self.why, (Ended, Replaced))

    def ask(self, claim, seconds):
        began = time.monotonic()
        self.text, self.taken = claim.profile(seconds), began
        return time.monotonic() - began


def gather(claim, seconds):
    """Lets the process go on, and asks it again and again, because it may end. A signal ends this, and a second one the last
    question."""
    got, pauses, until = Gathered(), Pauses(), time.monotonic() + seconds
    claim.observer.is_interrupted = lambda: bool(OWN_SIGNALS & signal.sigpending())
    renewed = time.monotonic()
    while not got.signal and not got.is_over() and (left := until - time.monotonic()) > 0:
        came = signal.sigtimedwait(OWN_SIGNALS, min(left, pauses.left(), RENEW_SECONDS))
        got.signal = came.si_signo if came else 0
        is_last = got.signal or time.monotonic() >= until
        allowed = LAST_ANSWER_SECONDS if got.signal else ANSWER_SECONDS
        try:
            if time.monotonic() - renewed >= RENEW_SECONDS:
                claim.renew(allowed)
                renewed = time.monotonic()
            if is_last or pauses.left() == 0:
                pauses.note(got.ask(claim, allowed))
            got.why = None
        except (Refusal, OSError) as refusal:  # it has ended, or is stopped for now
            got.why = refusal
    claim.observer.is_interrupted = lambda: False
    return got


def own_part(before, after, lasted_ms):
    """The text of the profile `after`, without what the profile `before` has already."""
    def key(stack):
        return tuple(stack.get(name) for name in ("frames", "site", "thread", "cut"))

    try:
        old = {key(stack): stack for stack in parse(before.decode("utf-8", "replace"))["stacks"]}
        document = json.loads(after)
        ago = numbers(document["history"]["ago_ms"])
        shown = [index for index, moment in enumerate(ago) if moment <= lasted_ms]
        document["history"]["ago_ms"] = " ".join(str(ago[index]) for index in shown)
        for stack in document["stacks"]:
            elder = max(stack["allocated_bytes"] - stack["freed_bytes"] - stack["live_bytes"], 0)  # than this sampling
            history = numbers(stack["history_bytes"])
            stack["history_bytes"] = " ".join(str(max(history[index] - elder, 0)) for index in shown)
            for name in SUMS:
                if name not in LIVE_SUMS:
                    stack[name] = max(stack[name] - old.get(key(stack), {}).get(name, 0), 0)
            for name, least in (("samples", "samples_live"), ("allocated_count", "live_count"), ("allocated_bytes", "live_bytes")):
                stack[name] = max(stack[name], stack[least])
            for name in ("count", "bytes"):
                stack[f"freed_{name}"] = stack[f"allocated_{name}"] - stack[f"live_{name}"]
        document["stacks"] = [stack for stack in document["stacks"] if stack["samples"]]
    except (KeyError, ValueError, TypeError, IndexError):
        return after  # whoever reads it says what is wrong
    return (json.dumps(document) + "\n").encode()
