"""Talks to the observer of a process through its file in /dev/shm. src/observe/observer.h defines the protocol."""
import ctypes
import errno
import fcntl
import glob
import mmap
import os
import platform
import stat
import struct
import time

from .processes import Ended, Refusal, STATUS_FAILED, is_alive, look, maps_file

MAGIC, VERSION = b"hakmem\0O", 1
PAGE_SIZE, REPLY_OFFSET, REQUEST_OFFSET, REQUEST_SIZE = 4096, 4096, 56, 960
REQUEST_WORD, REPLY_WORD = 24, 28
HEAD = struct.Struct("=8sIIQIIQI")  # magic, version, process, start time, request, reply, reply size, status
WORD = struct.Struct("=I")
REPLY_MAX = 256 << 20
FUTEX_WAIT, FUTEX_WAKE, EVERYBODY = 0, 1, 0x7FFFFFFF
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())


class NotObserved(Refusal):
    """The process has no observer."""


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Observer:
    """An open connection. Raises NotObserved if there is nobody to talk to."""

    def __init__(self, process):
        self.process = process
        self.descriptor = self.path = None
        for path in candidates(process):
            if self._open(path):
                return
        raise NotObserved(f"process {process.pid} is not observed")

    def _open(self, path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        if not self._is_the_process(descriptor, path):
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
        head = os.pread(descriptor, HEAD.size, 0)
        # Anybody may make a file of this name. Only the process's own users and root are believed.
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, *self.process.uids):
            return False
        if len(head) < HEAD.size or about.st_size < PAGE_SIZE:
            return False
        magic, version, pid, start = HEAD.unpack(head)[:4]
        if magic != MAGIC:  # the observer writes it last
            return False
        stale = pid != self.process.inner_pid or start not in (0, self.process.start)
        if stale or maps_file(self.process.pid, about.st_ino) is False:
            remove_stale(path, about)
            return False
        if version != VERSION:
            raise Refusal(f"process {self.process.pid} runs on another version of hakmem than this tool")
        return True

    def close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def ask(self, request, seconds=5.0):
        """The reply to a request, as bytes. Raises Ended, Refusal, or KeyError if the process does not know the
        request."""
        until = time.monotonic() + seconds
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
                self._check_time(until, "another tool has been asking it all the time")
                time.sleep(0.002)

    def _word(self, offset):
        return WORD.unpack(os.pread(self.descriptor, WORD.size, offset) or b"\0\0\0\0")[0]

    def _wake(self):
        self.futex(SYS_FUTEX, ctypes.c_void_p(self.address + REQUEST_WORD), FUTEX_WAKE, EVERYBODY, None, None, 0)

    def _wait_for(self, number, until):
        while (now := self._word(REPLY_WORD)) != number:
            self._check_time(until, "it does not answer")
            pause = Timespec(0, 50_000_000)
            self.futex(SYS_FUTEX, ctypes.c_void_p(self.address + REPLY_WORD), FUTEX_WAIT, now, ctypes.byref(pause),
                       None, 0)

    def _check_time(self, until, why):
        if not is_alive(self.process):
            raise Ended(self.process.pid)
        now = look(self.process.pid)
        if now.stack != self.process.stack:
            raise Refusal(f"process {now.pid} has become another program, {now.name}, by exec; what was known of "
                          f"the one before, {self.process.name}, is gone")
        if os.fstat(self.descriptor).st_nlink == 0:
            raise Ended(self.process.pid)
        if time.monotonic() < until:
            return
        state = look(self.process.pid).state
        if state in "Tt":
            why = "it is stopped" if state == "T" else "a debugger has stopped it"
        raise Refusal(f"process {self.process.pid} gives no report: {why}", STATUS_FAILED)

    def _reply(self, request):
        size, status = HEAD.unpack(os.pread(self.descriptor, HEAD.size, 0))[6:8]
        if status == errno.ENOENT:
            raise KeyError(request)
        if status != 0 or size > REPLY_MAX:
            why = os.strerror(status) if status else "the reply is too large"
            raise Refusal(f"process {self.process.pid} gives no report: {why}", STATUS_FAILED)
        pieces, offset = [], 0
        while offset < size:
            piece = os.pread(self.descriptor, min(size - offset, 1 << 20), REPLY_OFFSET + offset)
            if not piece:
                raise Refusal(f"process {self.process.pid} gives no report: its file is too short", STATUS_FAILED)
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)


def candidates(process):
    """Paths that may be the process's file: here, and in its own name space if it has one of its own."""
    directories = ["/dev/shm"]
    if process.inner_pid != process.pid or not shares_root(process.pid):
        directories.insert(0, own_directory(process.pid))
    for directory in directories:
        users = dict.fromkeys([*process.uids, 0])
        yield from (f"{directory}/hakmem.{uid}.{process.inner_pid}" for uid in users)


def own_directory(pid):
    """The directory /dev/shm as the process sees it."""
    return os.path.join("/proc", str(pid), "root", "dev/shm")


def shares_root(pid):
    try:
        return os.stat(own_directory(pid)).st_dev == os.stat("/dev/shm").st_dev
    except OSError:
        return True  # we may not look: only the plain path is left


def remove_stale(path, about):
    """Removes a file that a killed process has left, if it is ours and still the same file."""
    try:
        now = os.lstat(path)
        if (now.st_dev, now.st_ino) == (about.st_dev, about.st_ino) and os.geteuid() in (0, about.st_uid):
            os.unlink(path)
    except OSError:
        pass


def observed():
    """The observed processes that this user may ask, in the order of their numbers. Removes stale files."""
    user = "*" if os.geteuid() == 0 else str(os.geteuid())
    found = {}
    for path in glob.glob(f"/dev/shm/hakmem.{user}.*"):
        number = path.rpartition(".")[2]
        if not number.isdigit():
            continue
        try:
            process = look(int(number))
        except Refusal:
            try:
                remove_stale(path, os.lstat(path))
            except OSError:
                pass
            continue
        try:
            Observer(process).close()
            found[process.pid] = process
        except Refusal:
            pass
    return [found[pid] for pid in sorted(found)]
