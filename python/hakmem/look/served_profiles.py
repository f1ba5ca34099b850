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


class ServedProfiles:
    """The profiles of processes, each sampled from when it is first seen. Those that do not sample themselves are sampled until
    close(). For one thread at a time, as an Observer."""

    def __init__(self, watched):
        self.watched = watched
        self.seen = {}  # observers, by process id
        self.claims = []  # of those that do not sample themselves; each has an observer of its own
        self.closed = threading.Event()
        self.keeper = threading.Thread(target=self._keep, daemon=True)
        self.keeper.start()
        try:
            for pid, observer in watched.given.items():
                self._begin(pid, observer)
        except BaseException:
            self.close()
            raise

    def _begin(self, pid, observer):
        text = observer.ask("profile").decode("utf-8", "replace")
        head = parse_document(text, f"process {pid}")[0]
        if head.get("own_period", 0) == 0:
            self.claims.append(Claim(Observer(observer.process)))
        self.seen[pid] = observer

    def _keep(self):
        """Renews the claims, in a thread: whoever is asked for profiles is asked rarely."""
        while not self.closed.wait(RENEW_SECONDS):
            for claim in list(self.claims):
                try:
                    claim.renew(RENEW_SECONDS)
                except (Ended, Replaced):
                    self.claims.remove(claim)
                    claim.observer.close()
                except (Refusal, OSError):  # it does not answer now
                    pass

    def begin(self, observers):
        """Samples processes that have come."""
        for pid, observer in observers.items():
            if self.seen.get(pid) is not observer:
                try:
                    self._begin(pid, observer)
                except (Refusal, OSError):  # it has ended, or does not answer now
                    pass
        self.seen = {pid: observer for pid, observer in self.seen.items() if pid in observers}

    def close(self):
        self.closed.set()
        self.keeper.join()
        for claim in self.claims:
            claim.end()

    def take(self, pids, seconds):
        """The moment, and {process id: (process, document)} of those that answer. `pids`: as texts; None: all."""
        observers = self.watched.now(seconds / 2)
        self.begin(observers)
        known = {str(pid): pid for pid in observers}
        if any(pid not in known for pid in pids or ()):
            raise Unanswered(404, "there is no such process here")
        chosen = {known[pid]: observers[known[pid]] for pid in pids or known}
        documents = {}
        for process, text in ask_all(chosen, "profile", seconds / 2):
            try:
                documents.update({process.pid: (process, parse_document(text.decode("utf-8", "replace"), "profile"))} if text else {})
            except Refusal:  # what it says is no profile
                pass
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
