"""What `./hakmem metrics --profile` serves: heap profiles at the addresses at which Go programs have theirs."""
import io
import time
from urllib.parse import parse_qs, urlsplit

from .pprof import write_pprof
from .processes import Refusal
from .profile_data import parse_document, parse_profiles

# What pprof shows first, by address.
PATHS = {"/debug/pprof/heap": "inuse_space", "/debug/pprof/allocs": "alloc_space"}


class ServedProfiles:
    """The profiles of processes, which are sampled from now on. Those that were not sampled before are so until close().
    For one thread at a time, as an Observer."""

    def __init__(self, observers):
        self.observers = observers
        self.begun = []
        try:
            for pid, observer in observers.items():
                text = observer.ask("profile").decode("utf-8", "replace")
                if parse_document(text, f"process {pid}")[0]["period"] == 0:
                    self.begun.append(observer)
                    observer.ask("profile_start")
        except BaseException:
            self.close()
            raise

    def close(self):
        for observer in self.begun:
            try:
                observer.ask("profile_stop")
            except (Refusal, OSError):  # it has ended
                pass

    def answer(self, url, seconds):
        """The HTTP status, and the profile for a status of 200."""
        parts = urlsplit(url)
        words = parse_qs(parts.query, keep_blank_values=True)
        pids = words.pop("pid", None) or [str(pid) for pid in self.observers]
        if words.keys() - {"debug"} or words.get("debug", ["0"]) != ["0"]:
            return 400, None  # a difference (seconds=) or text (debug=1), which nobody could take for what was asked
        if any(pid not in map(str, self.observers) for pid in pids):
            return 404, None
        profiles = list(self._ask(dict.fromkeys(map(int, pids)), seconds))
        if not profiles:
            return 503, None
        packed = io.BytesIO()
        write_pprof(profiles, packed, PATHS[parts.path])
        return 200, packed.getvalue()

    def _ask(self, pids, seconds):
        until = time.monotonic() + seconds
        for number, pid in enumerate(pids):
            observer = self.observers[pid]
            part = max(until - time.monotonic(), 0) / (len(pids) - number)
            try:
                text = observer.ask("profile", part).decode("utf-8", "replace")
                yield from parse_profiles([text], f"process {pid}", process=observer.process)
            except (Refusal, OSError):  # it has ended, or does not answer now
                pass
