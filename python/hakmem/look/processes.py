# SPDX-License-Identifier: MIT
"""What /proc says of a process. A process that a tool cannot look into is a Refusal: one sentence and a status."""
import errno
import math
import os
import signal
import threading
import time
from dataclasses import dataclass

TEXT_MAX = 64 << 20  # bytes of a file in /proc: 65,530 mappings, the most that Linux allows by itself, with usual names
OTHERS_SECONDS = 3.0  # a process of another user may be slow on purpose: this is all the time that a command waits for it
LINKS_MAX = 40  # as the kernel follows
FIRST_SPACE = 0xEFFFFFFC  # the kernel's number for the machine's own name space of process ids
# Exit statuses of all these tools: docs/observability/README.md.
STATUS_USAGE, STATUS_FAILED, STATUS_CANNOT, STATUS_NO_PROCESS = 2, 125, 126, 127


class Refusal(Exception):
    def __init__(self, text, status=STATUS_CANNOT):
        super().__init__(text)
        self.status = status


class Ended(Refusal):
    """The process is not there any more."""

    def __init__(self, pid):
        super().__init__(f"process {pid} has ended", STATUS_NO_PROCESS)


@dataclass
class Process:
    pid: int
    name: str
    state: str
    uids: tuple  # real, effective, saved, file system
    inner_pid: int  # its number in its own name space, as in a container
    space: int  # inode number of that name space; 0: the machine's own, or we may not look
    threads: int
    rss: int  # bytes
    start: int  # clock ticks after boot; 0: unknown, as in a container whose clock is another one
    stack: int  # address at which its stack starts, another one after each exec; 0: the kernel does not tell us
    has_memory: bool  # False: it is the kernel's, or ends


def parse_pid(text):
    if not is_number(text) or not 0 < int(text) < 1 << 31:
        raise Refusal(f"a process id is a number, not '{printable(text)}'", STATUS_USAGE)
    return int(text)


def source(word):
    """What the user names: a file, or a process. A negative number is the name of a file only if there is one."""
    if word.startswith("-") and is_number(word[1:]) and not os.path.exists(word):
        raise Refusal(f"'{printable(word)}' is neither a file nor the id of a process", STATUS_USAGE)
    return word


def is_number(text):
    """Of ASCII digits, and few: int takes others, too, and refuses very many."""
    return text.isascii() and text.isdigit() and len(text) < 20


def printable(text):
    return "".join(c if " " <= c <= "~" else "?" for c in text)[:60]


def read_text(path, seconds=math.inf):
    """OSError, too, if the file is longer than TEXT_MAX, or takes longer than so many seconds."""
    pieces, left, until = [], TEXT_MAX, time.monotonic() + seconds
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 16):
            pieces.append(piece)
            left -= len(piece)
            if left < 0 or time.monotonic() > until:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return b"".join(pieces).decode("utf-8", "replace")


def process_folder(pid):
    """The directory in /proc of a process's memory, files and name spaces. When its main thread has ended, by pthread_exit,
    those of another thread are the process's. ProcessLookupError: no thread lives."""
    if is_alive(pid):
        return f"/proc/{pid}"
    for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        if is_alive(thread):
            return f"/proc/{thread}"
    raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def is_alive(thread):
    try:
        return read_text(f"/proc/{thread}/stat").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def pid_space(pid):
    try:
        space = os.stat(f"{process_folder(pid)}/ns/pid").st_ino
    except OSError:
        return 0
    return space if space != FIRST_SPACE else 0


def inner_uids(process):
    """Its user numbers as the process itself sees them, which in a name space of users are others."""
    try:
        ranges = [[int(word) for word in line.split()] for line in read_text(f"{process_folder(process.pid)}/uid_map").splitlines()]
    except OSError:
        return list(process.uids)
    return [next((inner + uid - outer for inner, outer, count in ranges if 0 <= uid - outer < count), uid)
            for uid in process.uids]


def shares_clock(pid):
    try:
        return os.stat(f"{process_folder(pid)}/ns/time").st_ino == os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return True  # a kernel without such name spaces, or we may not look


def fields_of(lines):
    """Of /proc/PID/status."""
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def look(pid):
    """The process; raises Refusal if there is none that can be looked into."""
    try:
        lines = read_text(f"/proc/{pid}/status").splitlines()
        numbers = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # from the third field on
        start, stack = int(numbers[19]), int(numbers[25])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        raise Refusal(f"there is no process {pid}", STATUS_NO_PROCESS) from None
    fields = fields_of(lines)
    if int(fields.get("Tgid", pid)) != pid:
        raise Refusal(f"{pid} is a thread of process {fields['Tgid']}; give that number", STATUS_USAGE)
    main = fields
    if fields.get("State", "?")[0] in "ZX":
        try:
            place = process_folder(pid)
            fields = fields_of(read_text(f"{place}/status").splitlines())
            stack = int(read_text(f"{place}/stat").rpartition(")")[2].split()[25])
        except (OSError, IndexError):
            raise Refusal(f"process {pid} has ended; its parent has not waited for it yet (zombie)", STATUS_NO_PROCESS) from None
    return Process(
        pid=pid,
        name=printable(main.get("Name", "")),
        state=fields.get("State", "?")[0],
        uids=tuple(int(uid) for uid in fields["Uid"].split()),
        inner_pid=int(main.get("NSpid", str(pid)).split()[-1]),
        space=pid_space(pid),
        threads=int(fields.get("Threads", 1)),
        rss=int(fields.get("VmRSS", "0 kB").split()[0]) * 1024,
        start=start if shares_clock(pid) else 0,
        stack=stack,
        has_memory="VmSize" in fields,
    )


def inside(root, path):
    """The path in a process's root directory, whose symbolic links count from there."""
    at, parts, links = root, path.split("/"), 0
    os.stat(root)  # raises an error if we may not look
    while parts:
        part = parts.pop(0)
        if part == "..":
            at = at if at == root else os.path.dirname(at)
        elif part not in ("", "."):
            try:
                target = os.readlink(os.path.join(at, part))
            except OSError:  # no link
                at = os.path.join(at, part)
                continue
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            at = root if target.startswith("/") else at
            parts = target.split("/") + parts
    return at


def maps_file(pid, inode):
    """Whether the process maps a file of this inode number; None: the kernel does not tell us."""
    try:
        lines = read_text(f"{process_folder(pid)}/maps").split("\n")
        return any(line.split(None, 5)[4:5] == [str(inode)] for line in lines)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return None


def require_running(process):
    """A process that is stopped (SIGSTOP, Ctrl-Z) answers nobody. A debugger's stop may be over in a moment, so the
    caller judges that one."""
    if process.state == "T":
        raise Refusal(f"process {process.pid} is stopped; let it go on first (kill -CONT {process.pid})")


class Late(Exception):
    """The time is over."""


def within(seconds, do):
    """What do() returns, or Late. The main thread breaks off what takes longer; what another thread began goes on by itself."""
    if seconds <= 0:
        raise Late
    if threading.current_thread() is not threading.main_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(do()), daemon=True)
        thread.start()
        thread.join(seconds)
        if not found:
            raise Late
        return found[0]

    def ring(*_):
        raise Late

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return do()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_of_another_user(process):
    """Only root can look into such a process."""
    return any(uid != os.geteuid() for uid in process.uids)


def require_rights(process):
    if os.geteuid() not in (0, *process.uids[:1]):
        raise Refusal(f"process {process.pid} belongs to another user; ask as that user or as root")
