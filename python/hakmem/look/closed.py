# SPDX-License-Identifier: MIT
"""Modules that were closed, or came where another one had been (src/observe/loaded.h): their frames are not in the mappings
that a profile tells."""
import bisect
import os

from .files import open_regular

SHIFT = 48  # of the number in a frame
ADDRESS = (1 << SHIFT) - 1
UNKNOWN = 0xFFFF  # number of the frames in modules beyond those that hakmem tells apart
HEAD_SIZE = 1024  # bytes by which a module is known
SHAPE = {"number": int, "start": str, "end": str, "base": str, "head": str, "path": str}


def address_of(frame):
    return frame & ADDRESS


def head_hash(path):
    """FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo) of the file's first bytes; None if it cannot be read."""
    try:
        with open_regular(path) as file:
            data = file.read(HEAD_SIZE)
    except (OSError, ValueError):
        return None
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value if len(data) == HEAD_SIZE else None


class ClosedModule:
    def __init__(self, record):
        self.number, self.path = record["number"], record["path"] and os.path.realpath(record["path"])
        self.start, self.end, self.base, self.head = (int(record[key], 16) for key in ("start", "end", "base", "head"))

    @property
    def file(self):
        """The same for each place where the same file was loaded."""
        return self.path, self.head


class ClosedModules:
    """Which of them frames lie in. A file may have been loaded thousands of times."""

    def __init__(self, records):
        self.by_number = {}  # modules of one number do not overlap
        for module in sorted(map(ClosedModule, records), key=lambda module: module.start):
            self.by_number.setdefault(module.number, []).append(module)
        self.starts = {number: [module.start for module in modules] for number, modules in self.by_number.items()}

    def find(self, frame):
        number, address = frame >> SHIFT, address_of(frame) - 1  # in the call
        index = bisect.bisect_right(self.starts.get(number, []), address) - 1
        module = self.by_number[number][index] if index >= 0 else None
        return module if module and address < module.end else None
