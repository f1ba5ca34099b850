# SPDX-License-Identifier: MIT
"""Files that a process or a stranger names, opened so that nothing hangs, and files that these tools write."""
import errno
import os
import select
import stat
import sys
import tempfile
import time
from contextlib import contextmanager

from .processes import Refusal, STATUS_USAGE

INPUT_MAX = 256 << 20  # bytes of a report, a profile or a map
READER_SECONDS = 5
INPUT_SECONDS, SILENT_SECONDS = 60, 1  # for a pipe's next bytes; then a line says what is waited for
begun = {}  # {path: descriptor} of pipes that are to be written
STREAMS = ("/dev/std", "/dev/fd/", "/proc/self/fd/")  # the system's links, which name what this process has open


def open_regular(path, users=None):
    """A file for reading; OSError if it is none, is a link, or belongs to none of these users. Devices and pipes are not even
    opened: that may block, or do something."""
    seen = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(seen)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        if users is not None and about.st_uid not in users:
            raise OSError(errno.EPERM, "it belongs to another user", path)
        return os.fdopen(os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    finally:
        os.close(seen)


def read_input(path):
    """The bytes of a file that the user names, which may be a pipe. OSError, or Refusal if it has no end."""
    pieces, size = [], 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        while size <= INPUT_MAX:
            ready = is_file or select.select([descriptor], [], [], SILENT_SECONDS)[0]
            if not ready:
                print(f"hakmem: waiting up to {INPUT_SECONDS} seconds for what somebody writes to '{path}'", file=sys.stderr, flush=True)
                ready = select.select([descriptor], [], [], INPUT_SECONDS)[0]
            if not ready:
                raise Refusal(f"cannot read '{path}': nothing came for {INPUT_SECONDS} seconds")
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(descriptor)
    raise Refusal(f"cannot read '{path}': it has more than {INPUT_MAX >> 20} MiB")


def origin_of(path):
    """What a file that a process has written says of that process, for symbols.Files: whose it was, and when it lived."""
    about = os.stat(path)
    return {"owner": about.st_uid, "alive": (0.0, about.st_mtime)} if stat.S_ISREG(about.st_mode) else {}


def is_stream(path):
    """Whether the name is a pipe or a device. A pipe of another user is refused: who reads it?"""
    try:
        about = os.stat(path) if path.startswith(STREAMS) else os.lstat(path)
    except OSError:
        return False
    if stat.S_ISFIFO(about.st_mode) and about.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "the pipe belongs to another user", path)
    return path.startswith(STREAMS) or stat.S_ISFIFO(about.st_mode) or stat.S_ISCHR(about.st_mode)


def open_stream(path):
    """A descriptor. A pipe's reader may be starting."""
    until = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            os.set_blocking(descriptor, True)
            return descriptor
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise OSError(error.errno, "nobody reads the pipe", path) from None
        time.sleep(0.02)


def open_new(path):
    """A descriptor, and the name under which the file is written before it takes the place of `path`; None: `path` itself,
    which is the user's own in a folder that is not."""
    folder, name = os.path.split(path)
    if not name:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.lexists(path) and not os.path.islink(path) and not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
    try:
        return tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder or ".")
    except PermissionError:
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), None


@contextmanager
def refusing(path):
    try:
        yield
    except OSError as error:
        raise Refusal(f"cannot write '{path}': {error.strerror}") from None


def check_writable(path):
    """Refusal if a file of this name could not be written later. A pipe stays open until then: its reader would take a try for
    the end."""
    with refusing(path):
        if is_stream(path):
            begun[path] = open_stream(path)
            return
        descriptor, new = open_new(path)
        os.close(descriptor)
        if new is not None:
            os.unlink(new)


def keep_inputs(output, *inputs):
    """A result does not take the place of what it is made from, which nobody may be able to make again."""
    for path in filter(None, inputs):
        try:
            is_same = os.path.samefile(output, path) and stat.S_ISREG(os.stat(path).st_mode)
        except (OSError, ValueError):  # one of them does not exist
            continue
        if is_same:
            raise Refusal(f"cannot write '{output}': it is read, too; name another file", STATUS_USAGE)


@contextmanager
def written(path, binary=False):
    """A file to write, with mode 0600. It appears whole, under a name that cannot be guessed until then: a link of its name
    is replaced and not followed. A pipe or a terminal gets the text as it comes."""
    new = None
    text = {} if binary else {"encoding": "utf-8", "errors": "backslashreplace"}
    with refusing(path):
        if is_stream(path):
            descriptor = begun.pop(path, None) or open_stream(path)
        else:
            descriptor, new = open_new(path)
            if new is None:
                os.ftruncate(descriptor, 0)
        try:
            with os.fdopen(descriptor, "wb" if binary else "w", **text) as file:
                yield file
            if new is not None:
                os.replace(new, path)
        except BaseException:
            if new is not None:
                os.unlink(new)
            raise
