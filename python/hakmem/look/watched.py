# SPDX-License-Identifier: MIT
"""The processes that `./hakmem metrics` serves: some by number until the end, others by name or cgroup while they live. Each is
attached to and asked in a thread of its own, so that one that is slow, or lies, costs nobody else's figures."""
import os
import threading
import time
from collections import Counter

from .attach import connect
from .observer import ASK_SECONDS, NotObserved, Observer
from .processes import Refusal, is_number, look, process_folder, read_text, require_rights

NAME_MAX = 15  # bytes of a name that the kernel keeps
RETRY_SECONDS = 60.0  # before a process that could not be looked into is asked again
USER_MAX = 256  # processes of one user that are served by name or cgroup
LOOKS_MAX = 8  # processes of one user that are attached to at once


class Work(threading.Thread):
    """Does something in a thread that the end of this tool does not wait for: it may hang in the kernel."""

    def __init__(self, do, *arguments):
        super().__init__(daemon=True)
        self.do, self.arguments = do, arguments
        self.result = None  # also if a process ended or refused
        self.start()

    def run(self):
        try:
            self.result = self.do(*self.arguments)
        except (Refusal, KeyError, OSError):
            pass


def wait_for(works, until):
    """Until all have ended, or that moment."""
    for work in works:
        work.join(max(until - time.monotonic(), 0))


class Watched:
    """Observers by process id. For one thread at a time, as an Observer."""

    def __init__(self, pids, names=(), cgroups=(), users=None):
        """`users`: numbers of those whose processes are served by name or cgroup; None: of all."""
        self.given = {pid: connect(pid)[0] for pid in dict.fromkeys(pids)}
        self.names = {os.fsencode(name)[:NAME_MAX] for name in names}
        self.cgroups = [f"/{cgroup.strip('/')}/".replace("//", "/") for cgroup in cgroups]
        self.users = users
        self.found = {}
        self.looks = {}  # Work by key_of(process)
        self.refused = {}  # when to ask again, by the same

    def now(self, seconds=ASK_SECONDS):
        """{pid: Observer}. Looks for processes that have come, attaches to them if need be, and forgets those that have
        ended. One that takes longer is there at a later call."""
        if not self.names and not self.cgroups:
            return self.given
        until, before = time.monotonic() + seconds, self.found
        wanted = self._wanted()
        self.found = {pid: observer for pid, observer in before.items() if key_of(observer.process) in wanted}
        users = Counter(observer.process.uids[0] for observer in self.found.values())
        looking = Counter(work.user for work in self.looks.values())
        for key, process in wanted.items():
            user = process.uids[0]
            is_new = process.pid not in self.found and key not in self.looks and key not in self.refused
            if is_new and looking[user] < LOOKS_MAX and users[user] + looking[user] < USER_MAX:
                self.looks[key] = work = Work(find_observer, process)
                work.user = user
                looking[user] += 1
        wait_for(self.looks.values(), until)
        for key, work in [pair for pair in self.looks.items() if not pair[1].is_alive()]:
            del self.looks[key]
            if work.result is None:
                self.refused[key] = time.monotonic() + RETRY_SECONDS
            elif key in wanted:
                self.found[key[0]] = work.result
            else:
                work.result.close()
        for pid, observer in before.items():
            if self.found.get(pid) is not observer:
                observer.close()
        self.refused = {key: at for key, at in self.refused.items() if at > time.monotonic()}
        return self.given | dict(sorted(self.found.items()))

    def _wanted(self):
        """{key: process} of those with a name or a cgroup that is served, of the users that are."""
        wanted = {}
        for pid in sorted(int(name) for name in os.listdir("/proc") if is_number(name)):
            if pid in self.given or not self._is_wanted(pid):
                continue
            try:
                process = look(pid)
                require_rights(process)
            except (Refusal, OSError):
                continue
            if self.users is None or self.users.issuperset(process.uids):
                wanted[key_of(process)] = process
        return wanted

    def _is_wanted(self, pid):
        try:
            with open(f"/proc/{pid}/comm", "rb") as file:
                if file.read().removesuffix(b"\n") in self.names:
                    return True
            paths = [line.split(":", 2)[2] for line in read_text(f"/proc/{pid}/cgroup").splitlines()] if self.cgroups else []
        except (OSError, IndexError):  # it has ended
            return False
        return any(cgroup in f"{path}/" for path in paths for cgroup in self.cgroups)


def key_of(process):
    """Another one for another process of the same number, and after an exec, which makes another stack."""
    return process.pid, process.start, process.stack


def find_observer(process):
    """Attaches only to what has hakmem mapped by its name: a cgroup holds other processes, too."""
    try:
        return Observer(process)
    except NotObserved:
        if "/libhakmem" not in read_text(f"{process_folder(process.pid)}/maps"):
            raise
    return connect(process.pid)[0]


def ask_all(observers, request, seconds, read):
    """Yields (process, what `read` makes of its answer and process id, or None). All are asked at once. One that does not answer is left
    alone until its question has ended."""
    until = time.monotonic() + seconds
    for observer in observers.values():
        if not is_busy(observer):
            observer.work = Work(ask, observer, request, until, read)
            observer.work.request = request
    for observer in observers.values():
        wait_for([observer.work], until)
        asked = observer.work.request == request and not is_busy(observer)
        yield observer.process, observer.work.result if asked else None


def ask(observer, request, until, read):
    return read(observer.ask(request, max(until - time.monotonic(), 0)), observer.process.pid)


def is_busy(observer):
    return observer.work is not None and observer.work.is_alive()
