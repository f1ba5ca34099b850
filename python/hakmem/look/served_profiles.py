# SPDX-License-Identifier: MIT
"""What `./hakmem metrics --profile` serves: heap profiles at the addresses at which Go programs have theirs."""
import io
import threading
from urllib.parse import parse_qs, urlsplit

from .observer import Observer, Replaced
from .pprof import write_pprof
from .processes import Ended, Refusal
from .profile_data import parse_document, parse_profiles
from .sampling import RENEW_SECONDS, Claim
from .watched import ask_all

# What pprof shows first, by address.
PATHS = {"/debug/pprof/heap": "inuse_space", "/debug/pprof/allocs": "alloc_space"}


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

    def answer(self, url, seconds):
        """The HTTP status, and the profile for a status of 200."""
        parts = urlsplit(url)
        words = parse_qs(parts.query, keep_blank_values=True)
        if words.keys() - {"debug", "pid"} or words.get("debug", ["0"]) != ["0"]:
            return 400, None  # a difference (seconds=) or text (debug=1), which nobody could take for what was asked
        observers = self.watched.now(seconds / 2)
        self.begin(observers)
        pids = {str(pid): pid for pid in observers}
        if any(pid not in pids for pid in words.get("pid", ())):
            return 404, None
        chosen = {pids[pid]: observers[pids[pid]] for pid in words.get("pid", pids)}
        profiles = []
        for process, text in ask_all(chosen, "profile", seconds / 2):
            try:
                profiles += parse_profiles([text.decode("utf-8", "replace")], f"process {process.pid}", process=process) if text else []
            except Refusal:  # what it says is no profile
                pass
        if not profiles:
            return 503, None
        packed = io.BytesIO()
        write_pprof(profiles, packed, PATHS[parts.path])
        return 200, packed.getvalue()
