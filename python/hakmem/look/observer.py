# SPDX-License-Identifier: MIT
"""Talks to the observer of a process through its file in /dev/shm. src/observe/observer.h defines the protocol."""
import ctypes
import errno
import fcntl
import itertools
import math
import mmap
import os
import platform
import re
import signal
import stat
import struct
import sys
import time

from .processes import (
    OTHERS_SECONDS, Ended, Refusal, STATUS_FAILED, inner_uids, inside, is_number, is_of_another_user, look, maps_file, pid_space,
    process_folder, require_running)

MAGIC, VERSION = b"hakmem\0O", 1
PAGE_SIZE, REPLY_OFFSET, REQUEST_OFFSET, REQUEST_SIZE = 4096, 4096, 56, 960
REQUEST_WORD, REPLY_WORD = 24, 28
HEAD = struct.Struct("=8sIIQIIQI")  # magic, version, process, start time, request, reply, reply size, status
WORD = struct.Struct("=I")
# Bytes of an answer: far more than hakmem writes. Text and figures have a line for each thread, by the kernel's count.
THREAD_BYTES = 2 << 10
ANSWER_BYTES = {"summary": 64 << 10, "names": 256 << 10, "json": 1 << 20, "full": 1 << 20, "profile": 64 << 20, "map": 128 << 20}
WORD_BYTES = 4 << 10  # of the answer to any other request
FILES_MAX = 1 << 20  # of /dev/shm that are looked at, where everybody can make files
ASK_SECONDS = 30.0  # a busy machine lets a thread wait for seconds; what has ended or stopped is noticed much sooner
NOTE_SECONDS = 5.0  # then the user is told what is waited for
TRACED_SECONDS = 1.0  # a process that a debugger has held for as long does not answer; strace holds it for moments
FUTEX_WAIT, FUTEX_WAKE, EVERYBODY = 0, 1, 0x7FFFFFFF
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())


class NotObserved(Refusal):
    """The process has no observer."""


class Replaced(Refusal):
    """The process has become another program."""


def require_same_program(before, now):
    """Raises Replaced if the process has got another stack since, by exec; 0: the kernel does not tell us."""
    if before.start == now.start and before.stack != now.stack and 0 not in (before.stack, now.stack):
        raise Replaced(f"process {now.pid} has become another program, {now.name}, by exec; what was known of the one before, "
                       f"{before.name}, is gone")


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Observer:
    """An open connection. Raises NotObserved if there is nobody to talk to."""
    work = None  # the last question of watched.ask_all

    def __init__(self, process):
        self.process = process
        self.descriptor = self.path = None
        self.traced_since = None  # a debugger has held the process at each look since then
        self.is_interrupted = lambda: False  # whether to give up a question
        self.may_note = sys.stderr is not None and sys.stderr.isatty()
        self.note_at = 0.0
        self.allow()
        for path in candidates(process):
            if self._open(path):
                return
        raise NotObserved(f"process {process.pid} is not observed")

    def _open(self, path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            is_the_process = self._is_the_process(descriptor, path)
        except OSError:  # a pipe, or a file that becomes another one meanwhile
            is_the_process = False
        if not is_the_process:
            os.close(descriptor)
            return False
        self.descriptor, self.path = descriptor, path
        self.page = mmap.mmap(descriptor, PAGE_SIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.futex = ctypes.CDLL(None, use_errno=True).syscall
        return True

    def _is_the_process(self, descriptor, path):
        """Whether the file is of this process and somebody serves it. Removes it if it is a dead one of ours."""
        about = os.fstat(descriptor)
        # Anybody may make a file of this name. Only the process's own users and root are believed.
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, *self.process.uids):
            return False
        head = os.pread(descriptor, HEAD.size, 0)
        if len(head) < HEAD.size or about.st_size < PAGE_SIZE:
            return False
        magic, version, pid, start = HEAD.unpack(head)[:4]
        if magic != MAGIC:  # the observer writes it last
            return False
        stale = pid != self.process.inner_pid or (start and self.process.start and start != self.process.start)
        if stale or maps_file(self.process.pid, about.st_ino) is False:
            remove_stale(path, descriptor)
            return False
        if version != VERSION:
            raise Refusal(f"process {self.process.pid} runs on another version of hakmem than this tool")
        return True

    def close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def allow(self):
        """From now on the process may take as long as at first: that much for all questions of one command or picture."""
        self.is_of_another_user = is_of_another_user(self.process)
        self.until = time.monotonic() + (OTHERS_SECONDS if self.is_of_another_user else math.inf)

    def ask(self, request, seconds=None):
        """The reply to a request, as bytes. Raises Ended, Refusal, or KeyError if the process does not know the
        request. `seconds`: for this question, instead of what is left."""
        now = time.monotonic()
        until = min(now + ASK_SECONDS, self.until) if seconds is None else now + seconds
        self.note_at = now + NOTE_SECONDS
        self.traced_since = None
        self._check(until, "")
        self._lock(until)
        try:
            number = (self._word(REQUEST_WORD) + 1) & 0xFFFFFFFF
            text = request.encode()[: REQUEST_SIZE - 1]
            os.pwrite(self.descriptor, text + b"\0", REQUEST_OFFSET)
            os.pwrite(self.descriptor, WORD.pack(number), REQUEST_WORD)
            self._wake()
            self._wait_for(number, until)
            return self._reply(request)
        finally:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def _lock(self, until):
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self._check(until, "another tool has been asking it all the time")
                time.sleep(0.002)

    def _word(self, offset):
        return WORD.unpack(os.pread(self.descriptor, WORD.size, offset) or b"\0\0\0\0")[0]

    def _wake(self):
        self.futex(SYS_FUTEX, ctypes.c_void_p(self.address + REQUEST_WORD), FUTEX_WAKE, EVERYBODY, None, None, 0)

    def _wait_for(self, number, until):
        while (now := self._word(REPLY_WORD)) != number:
            self._check(until, "it does not answer")
            pause = Timespec(0, 50_000_000)
            self.futex(SYS_FUTEX, ctypes.c_void_p(self.address + REPLY_WORD), FUTEX_WAIT, now, ctypes.byref(pause),
                       None, 0)

    def _check(self, until, why):
        """Raises if the process cannot answer, or has not answered in time; `why` says what it was waited for."""
        pid, now = self.process.pid, time.monotonic()
        try:
            process = look(pid)
        except Refusal:
            raise Ended(pid) from None
        require_same_program(self.process, process)
        if os.fstat(self.descriptor).st_nlink == 0 or process.start != self.process.start or not process.has_memory:
            raise Ended(pid)
        require_running(process)
        self.traced_since = (self.traced_since or now) if process.state == "t" else None
        if self.traced_since and now - self.traced_since > TRACED_SECONDS:
            raise Refusal(f"process {pid} is stopped by a debugger; let it go on first")
        if now > until or self.is_interrupted():
            why += f" in {OTHERS_SECONDS} s; ask as its user to wait longer" if now > self.until else ""
            raise Refusal(f"process {pid} gives no report: {why}", STATUS_FAILED)
        if now > self.note_at and self.may_note:
            self.may_note = False
            print(f"hakmem: process {pid} gives no report yet: {why}; waiting {until - now:.0f} s more", file=sys.stderr)

    def _reply(self, request):
        size, status = HEAD.unpack(os.pread(self.descriptor, HEAD.size, 0))[6:8]
        if status == errno.ENOENT:
            raise KeyError(request)
        most = bytes_of(request.partition(" ")[0], self.process.pid)
        if status != 0 or size > most:
            why = os.strerror(status) if status else f"its answer has {size} bytes, and hakmem writes at most {most}"
            raise Refusal(f"process {self.process.pid} gives no report: {why}", STATUS_FAILED)
        pieces, offset = [], 0
        while offset < size:
            piece = os.pread(self.descriptor, min(size - offset, 1 << 20), REPLY_OFFSET + offset)
            if not piece:
                raise Refusal(f"process {self.process.pid} gives no report: its file is too short", STATUS_FAILED)
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)


def bytes_of(request, pid):
    """The most that an answer to this request of this process may have."""
    more = THREAD_BYTES * look(pid).threads if request in ("json", "full") else 0
    return ANSWER_BYTES.get(request, WORD_BYTES) + more


def files_in(folder, start):
    """The paths of files in the folder whose names start so; none if there are too many to look at."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, FILES_MAX) if entry.name.startswith(start)]
    except OSError:
        names = []
    return [os.path.join(folder, name) for name in sorted(names)]


def file_name(uid, pid, space):
    return f"hakmem.{uid}.{pid}.{space}" if space else f"hakmem.{uid}.{pid}"


def candidates(process):
    """Paths that may be the process's file: in /dev/shm as the process sees it now, and in ours, where it was made if
    the process has left its root directory since (chroot). Where another user has taken the name, a number stands
    behind it."""
    for directory in directories(process.pid):
        for space in dict.fromkeys([process.space, 0]):  # 0 in a container, too, if that has no /proc
            for uid in dict.fromkeys([*inner_uids(process), 0]):
                path = os.path.join(directory, file_name(uid, process.inner_pid, space))
                yield path
                yield from files_in(directory, f"{os.path.basename(path)}-")


def directories(pid):
    """The directory /dev/shm as the process sees it, if we may look there, and as we do."""
    try:
        yield inside(f"{process_folder(pid)}/root", "dev/shm")
    except OSError:
        pass
    yield "/dev/shm"


def is_open_elsewhere(descriptor):
    """Whether any process but this one has the file open or mapped, also one in another container that /proc here does
    not show. The kernel grants a write lease on a file only to the one who has it open alone."""
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # for whoever opens it meanwhile; SIGIO would end this tool
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    return False


def remove_stale(path, descriptor):
    """Removes a file that a killed process has left, if it is ours, still the same file, and used by nobody."""
    try:
        about, now = os.fstat(descriptor), os.lstat(path)
        is_ours = stat.S_ISREG(about.st_mode) and os.geteuid() in (0, about.st_uid)
        if is_ours and os.path.samestat(about, now) and not is_open_elsewhere(descriptor):
            os.unlink(path)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        pass


def remove_stale_files():
    """Removes the files that this user's killed processes have left; for root, those of all users."""
    user = "[0-9]+" if os.geteuid() == 0 else os.geteuid()
    for path in files_in("/dev/shm", "hakmem."):
        if not re.match(rf"/dev/shm/hakmem\.{user}\.[0-9]", path, re.ASCII):
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        remove_stale(path, descriptor)
        os.close(descriptor)


def observed():
    """The observed processes that this user may ask, in the order of their numbers. Removes stale files. Files of other
    containers in the same /dev/shm are left alone: their numbers mean nothing here."""
    remove_stale_files()
    space = pid_space(os.getpid())
    found = {}
    for path in files_in("/dev/shm", "hakmem."):
        name = os.path.basename(path).partition("-")[0]
        user, number = (name.split(".") + ["", ""])[1:3]
        if name != file_name(user, number, space) or not is_number(number) or os.geteuid() not in (0, int(user) if is_number(user) else -1):
            continue
        try:
            process = look(int(number))
            Observer(process).close()
            found[process.pid] = process
        except (Refusal, OSError):  # of another user where /proc hides processes, too
            pass
    return [found[pid] for pid in sorted(found)]
