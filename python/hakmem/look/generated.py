# SPDX-License-Identifier: MIT
"""Names of code that a runtime generates: Python (-X perf), node, Java, .NET and others write them into /tmp/perf-PID.map,
"start size name" a line, hexadecimal. A container's process writes it in its own /tmp, with its number there."""
import bisect
import math
import os
import re
import time

from .files import open_regular
from .processes import inside, process_folder
from .text import cut, plain

PERF_MAP_MAX = 64 << 20  # bytes
HEXADECIMAL = re.compile("(0x)?[0-9a-fA-F]{1,16}")
# Files that a mapping of shared memory without a name, or of memory under two addresses, has in /proc/PID/maps.
SHARED_MEMORY = ("/memfd:", "/dev/zero", "/dev/shm/", "/SYSV", "/anon_hugepage")
CLOCK_SLACK = 1.0  # seconds by which the clocks of files and processes may differ
ALWAYS = (0.0, math.inf)


def may_be_generated(path):
    """Whether a mapping of this name may hold code that a runtime has generated."""
    return not path.startswith("/") or path.startswith(SHARED_MEMORY)


def parse_entries(data, is_whole=True):
    """(start, size, name) of each line, in their order. Others are skipped, and so is the last line without an end, which
    the runtime is just writing, and the first of what does not begin with the file."""
    entries = []
    for line in data.decode("utf-8", "replace").split("\n")[0 if is_whole else 1:-1]:
        words = line.removesuffix("\r").split(" ", 2)
        if len(words) == 3 and words[2].strip() and all(map(HEXADECIMAL.fullmatch, words[:2])) and int(words[1], 16):
            entries.append((int(words[0], 16), int(words[1], 16), cut(plain(words[2]))))
    return entries


def newest(entries):
    """The entries, sorted, without those of which a later one has taken an address: that code is gone as a whole."""
    bounds = sorted({bound for start, size, _ in entries for bound in (start, start + size)})
    number = {bound: index for index, bound in enumerate(bounds)}
    following = list(range(len(bounds)))  # of each piece between two bounds, a later one or itself; itself: not taken

    def free_from(at):
        while following[at] != at:
            following[at] = at = following[following[at]]
        return at

    kept = []
    for start, size, name in reversed(entries):
        first, end = number[start], number[start + size]
        at, taken = free_from(first), 0
        while at < end:
            following[at] = at + 1
            at, taken = free_from(at), taken + 1
        if taken == end - first:
            kept.append((start, size, name))
    return sorted(kept)


def read_map(path, users, alive):
    """The entries of the file, if it is of one of these users, who alone may say what their code is called, and was last
    written while the process lived: numbers of processes come again, and nobody removes such files."""
    try:
        with open_regular(path, users) as file:
            about = os.fstat(file.fileno())
            if not alive[0] - CLOCK_SLACK <= about.st_mtime <= alive[1] + CLOCK_SLACK:
                return []
            skipped = max(0, about.st_size - PERF_MAP_MAX)  # the last entries count
            file.seek(skipped)
            return parse_entries(file.read(PERF_MAP_MAX), skipped == 0)
    except OSError:
        return []


class GeneratedCode:
    def __init__(self, pid, users, folders=("/tmp",), alive=ALWAYS):
        found = (read_map(f"{folder}/perf-{pid}.map", users, alive) for folder in folders)
        self.ranges = newest(next(filter(None, found), []))

    def name(self, address):
        """"" if it has none."""
        index = bisect.bisect_right(self.ranges, (address, math.inf, "")) - 1
        if index >= 0:
            start, size, name = self.ranges[index]
            if address < start + size:
                return name
        return ""


def started_at(process):
    """The clock when a living process started; 0: not known."""
    if process.start == 0:
        return 0.0
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - process.start / os.sysconf("SC_CLK_TCK"))


def folders_of(process):
    """Where a living process has /tmp: in its own root directory, or in ours, if it has left that one since (chroot)."""
    try:
        yield inside(f"{process_folder(process.pid)}/root", "tmp")
    except OSError:
        pass
    if process.inner_pid == process.pid:
        yield "/tmp"


def generated_by(process):
    """The generated code of a living process."""
    return GeneratedCode(process.inner_pid, {0, *process.uids}, folders_of(process), (started_at(process), math.inf))
