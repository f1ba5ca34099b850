# SPDX-License-Identifier: MIT
"""The processes that `./hakmem metrics` serves: some by number until the end, others by name or cgroup while they live."""
import os
import time

from .attach import connect
from .observer import ASK_SECONDS, NotObserved, Observer
from .processes import Refusal, is_number, look, process_folder, read_text, require_rights

NAME_MAX = 15  # bytes of a name that the kernel keeps
RETRY_SECONDS = 60.0  # before a process that could not be looked into is asked again


class Watched:
    """Observers by process id. For one thread at a time, as an Observer."""

    def __init__(self, pids, names=(), cgroups=()):
        self.given = {pid: connect(pid)[0] for pid in dict.fromkeys(pids)}
        self.names = {os.fsencode(name)[:NAME_MAX] for name in names}
        self.cgroups = [f"/{cgroup.strip('/')}/".replace("//", "/") for cgroup in cgroups]
        self.found = {}
        self.refused = {}  # by process id: what it was, and when to ask it again

    def now(self, seconds=ASK_SECONDS):
        """{pid: Observer}. Looks for processes that have come, attaches to them if need be, and forgets those that have
        ended; those that there was no time for are looked at the next time."""
        if not self.names and not self.cgroups:
            return self.given
        until, before, self.found = time.monotonic() + seconds, self.found, {}
        for pid in sorted(int(name) for name in os.listdir("/proc") if is_number(name)):
            if pid not in self.given and self._is_wanted(pid):
                self._find(pid, before.get(pid), until)
        for pid, observer in before.items():
            if self.found.get(pid) is not observer:
                observer.close()
        self.refused = {pid: note for pid, note in self.refused.items() if note[1] > time.monotonic()}
        return self.given | self.found

    def _is_wanted(self, pid):
        try:
            with open(f"/proc/{pid}/comm", "rb") as file:
                if file.read().removesuffix(b"\n") in self.names:
                    return True
            paths = [line.split(":", 2)[2] for line in read_text(f"/proc/{pid}/cgroup").splitlines()] if self.cgroups else []
        except (OSError, IndexError):  # it has ended
            return False
        return any(cgroup in f"{path}/" for path in paths for cgroup in self.cgroups)

    def _find(self, pid, observer, until):
        try:
            process = look(pid)
            identity = process.start, process.stack  # another stack after an exec
            if observer is not None and (observer.process.start, observer.process.stack) == identity:
                self.found[pid] = observer
            elif self.refused.get(pid, [None])[0] != identity and time.monotonic() < until:
                self.refused[pid] = identity, time.monotonic() + RETRY_SECONDS
                self.found[pid] = find_observer(process)
                del self.refused[pid]
        except (Refusal, OSError):
            pass


def find_observer(process):
    """Attaches only to what has hakmem mapped by its name: a cgroup holds other processes, too."""
    require_rights(process)
    try:
        return Observer(process)
    except NotObserved:
        if "/libhakmem" not in read_text(f"{process_folder(process.pid)}/maps"):
            raise
    return connect(process.pid)[0]


def ask_all(observers, request, seconds):
    """Yields (process, answer as bytes or None). Each has an equal part of the time that is left: one that does not answer
    leaves the others theirs."""
    until = time.monotonic() + seconds
    for number, observer in enumerate(observers.values()):
        part = max(until - time.monotonic(), 0) / (len(observers) - number)
        try:
            answer = observer.ask(request, part)
        except (Refusal, KeyError, OSError):  # it has ended, or does not answer now
            answer = None
        yield observer.process, answer
