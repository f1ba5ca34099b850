# SPDX-License-Identifier: MIT
"""liar.py KIND: a process that says what it likes to tools which look into it, until its standard input ends. It says its
number when it is ready. liars.sh starts it as another user.

mappings    on hakmem: 15 mappings of 8 TiB of code, of which no byte can be read
silent      is observed, and never answers
huge        answers everything with 200 MiB
many        answers everything with a report of 300,000 empty lists
locked      has hakmem mapped, but no tool gets the lock under which tools attach
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys
import tempfile
import threading
import time

HEAD = struct.Struct("=8sIIQIIQI")
TEXTS = {"huge": b"hakmem: all is well\n" * (10 << 20), "many": b'{"hakmem": {}, "totals": [' + b"[]," * 300_000 + b"0]}"}


def be_observed(text):
    """The file of an observer, as src/observe/observer.h has it. None: no answer."""
    path = f"/dev/shm/hakmem.{os.geteuid()}.{os.getpid()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(file, 4096)
    page = mmap.mmap(file, 4096)
    if text is not None:
        os.pwrite(file, text, 4096)
    page[:HEAD.size] = HEAD.pack(b"hakmem\0O", 1, os.getpid(), 0, 0, 0, len(text or b""), 0)
    while True:
        if text is not None:
            page[28:32] = page[24:28]
        time.sleep(0.01)


def map_code():
    """Behind the end of a file is nothing, so no read succeeds."""
    file = tempfile.TemporaryFile()
    file.truncate(1)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    for number in range(15):
        # Each has other pages of the file, so that the kernel does not make one mapping of them.
        at = libc.mmap(None, 8 << 40, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file.fileno(), (2 + number % 2) << 20)
        if at == ctypes.c_void_p(-1).value:
            sys.exit(f"mmap: {os.strerror(ctypes.get_errno())}")


kind = sys.argv[1]
with open("/proc/self/comm", "w") as comm:
    comm.write("hakmem-nap")
if kind == "mappings":
    map_code()
elif kind == "locked":
    library = open(sys.argv[2], "rb")
    mapped = mmap.mmap(library.fileno(), 4096, prot=mmap.PROT_READ)
    environ = open("/proc/self/environ", "rb")
    fcntl.flock(environ, fcntl.LOCK_EX)
else:
    threading.Thread(target=be_observed, args=[TEXTS.get(kind)], daemon=True).start()
    while not os.path.exists(f"/dev/shm/hakmem.{os.geteuid()}.{os.getpid()}"):
        time.sleep(0.01)
    time.sleep(0.2)
print(os.getpid(), flush=True)
sys.stdin.read()
