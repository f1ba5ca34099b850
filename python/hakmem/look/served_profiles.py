# SPDX-License-Identifier: MIT
"""What `./hakmem metrics --profile` serves: heap profiles at the addresses at which Go programs have theirs, with the
parameters of net/http/pprof that have a meaning here."""
import io
import re
import threading
import time
from collections import Counter
from urllib.parse import parse_qs, urlsplit

from .observer import Observer, Replaced
from .pprof import write_pprof
from .processes import Ended, Refusal
from .profile_data import PEAK_SUMS, SUMS, make_profile, parse_document
from .sampling import RENEW_SECONDS, Claim
from .watched import ask_all

# What pprof shows first, by address.
PATHS = {"/debug/pprof/heap": "inuse_space", "/debug/pprof/allocs": "alloc_space"}
SECONDS_MAX = 600  # between the two profiles of a request
BEGIN_SECONDS = 30.0  # for those that are named when the server starts
CLOSE_SECONDS = 2.0  # for the last answers


class Unanswered(Exception):
    """A request that gets no profile: a status of HTTP and a sentence."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def read_question(url):
    """(path, process ids as texts or None for all, seconds or 0) of a request."""
    parts = urlsplit(url)
    words = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(words.keys() - {"debug", "pid", "seconds"})
    if unknown:
        raise Unanswered(400, f"there is no parameter {unknown[0][:40]!r}: there are pid and seconds")
    if words.get("debug", ["0"])[0] not in ("", "0"):
        raise Unanswered(400, "a profile as text (debug) is not served: leave debug out, and read the profile with pprof")
    text = words.get("seconds", [""])[0]
    if text and not (re.fullmatch(r"\+?[0-9]{1,9}", text, re.ASCII) and 0 < int(text) <= SECONDS_MAX):
        raise Unanswered(400, f"seconds must be a whole number from 1 to {SECONDS_MAX}, not {text[:40]!r}")
    return parts.path, words.get("pid"), int(text or 0)


def change(before, after, seconds):
    """The document of what has changed between two of one process; `before` may be None. The peak is of neither."""
    head, stacks, _ = after
    old = {}
    for stack in before[1] if before else ():
        old.setdefault(key_of(stack), Counter()).update({name: stack[name] for name in SUMS})
    for stack in stacks:
        sums = old.pop(key_of(stack), Counter())
        stack.update({name: stack[name] - sums[name] for name in SUMS} | dict.fromkeys(PEAK_SUMS, 0))
    head["duration_us"] = int(seconds * 1e6)
    return after


def key_of(stack):
    return stack["frames"], stack["site"], stack.get("cut"), stack.get("thread")


class Sampling(threading.Thread):
    """Samples a process that does not sample itself until close(). In a thread of its own: one that does not answer costs
    nobody else's samples."""

    def __init__(self, observer):
        super().__init__(daemon=True)
        self.observer = observer  # whom others ask
        self.closed, self.begun = threading.Event(), threading.Event()
        self.why_not = None
        self.start()

    def run(self):
        try:
            own = Observer(self.observer.process)
            try:
                head = read_profile(own.ask("profile"), own.process.pid)[0]
                if head.get("own_period", 0) == 0:
                    self.keep(Claim(own))
            finally:
                own.close()
        except (Refusal, KeyError, OSError) as why:  # it has ended, or does not answer now
            self.why_not = why
        self.begun.set()

    def keep(self, claim):
        self.begun.set()
        while not self.closed.wait(RENEW_SECONDS):
            try:
                claim.renew(RENEW_SECONDS)
            except (Ended, Replaced):
                return
            except (Refusal, OSError):  # it does not answer now
                pass
        claim.end()

    def wait(self, until):
        self.begun.wait(max(until - time.monotonic(), 0))


def read_profile(data, pid):
    return parse_document(data.decode("latin-1"), f"process {pid}")


class ServedProfiles:
    """The profiles of processes, each sampled from when it is first seen. For one thread at a time, as an Observer."""

    def __init__(self, watched):
        self.watched = watched
        self.samplings = {}  # by process id
        self.begin(watched.given, time.monotonic() + BEGIN_SECONDS)
        refused = [one.why_not for one in self.samplings.values() if one.why_not]
        if refused:
            self.close()
            raise refused[0]

    def begin(self, observers, until):
        """Samples processes that have come."""
        for pid, one in list(self.samplings.items()):
            if observers.get(pid) is not one.observer or one.why_not:
                self.samplings.pop(pid).closed.set()
        for pid, observer in observers.items():
            if pid not in self.samplings:
                self.samplings[pid] = Sampling(observer)
        for one in self.samplings.values():
            one.wait(until)

    def close(self):
        until = time.monotonic() + CLOSE_SECONDS
        for one in self.samplings.values():
            one.closed.set()
        for one in self.samplings.values():
            one.join(max(until - time.monotonic(), 0))

    def take(self, pids, seconds):
        """The moment, and {process id: (process, document)} of those that answer. `pids`: as texts; None: all."""
        until = time.monotonic() + seconds
        observers = self.watched.now(seconds / 2)
        self.begin(observers, until - seconds / 4)
        known = {str(pid): pid for pid in observers}
        if any(pid not in known for pid in pids or ()):
            raise Unanswered(404, "there is no such process here")
        chosen = {known[pid]: observers[known[pid]] for pid in pids or known}
        asked = ask_all(chosen, "profile", until - time.monotonic(), read_profile)
        documents = {process.pid: (process, document) for process, document in asked if document}
        return time.monotonic(), documents


def packed(path, first, last):
    """What pprof reads of what take() gave, or, unless `first` is None, of what changed between two of these."""
    profiles = []
    for pid, (process, document) in last[1].items():
        if first is not None:
            before, old = first[1].get(pid, (None, None))
            same = before is not None and (before.start, before.stack) == (process.start, process.stack)
            document = change(old if same else None, document, last[0] - first[0])
        profiles.append(make_profile(document, process=process))
    if not profiles:
        raise Unanswered(503, "no process gave a profile")
    file = io.BytesIO()
    write_pprof(profiles, file, PATHS[path])
    return file.getvalue()
