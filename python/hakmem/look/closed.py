# SPDX-License-Identifier: MIT
"""Modules that were closed, or came where another one had been (src/observe/loaded.h): their frames are not in the mappings
that a profile tells."""
import os

from .files import open_regular

SHIFT = 48  # of the number in a frame
ADDRESS = (1 << SHIFT) - 1
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

    def is_file(self):
        """Whether the file at the path is still the one that was loaded."""
        return head_hash(self.path) == self.head


class ClosedModules:
    """Which of them frames lie in."""

    def __init__(self, records):
        self.modules = [ClosedModule(record) for record in records]

    def find(self, frame):
        address = address_of(frame) - 1  # in the call
        for module in self.modules:
            if module.number == frame >> SHIFT and module.start <= address < module.end:
                return module
        return None
