"""Names of code addresses: the functions, files and lines of a process's mappings. Uses addr2line and nm of binutils,
and /tmp/perf-PID.map, in which runtimes such as Python (-X perf) and node name the code that they generate."""
import bisect
import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass

MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ *(.*)")
ELF_LOAD = 1  # p_type of a segment that is mapped


@dataclass(frozen=True)
class Frame:
    function: str  # "" if unknown
    file: str  # "" if unknown
    line: int
    module: str  # path of the program or library; "" for code that belongs to no file
    offset: int  # address in the module

    def label(self):
        return self.function or f"{os.path.basename(self.module) or 'unknown'}+{self.offset:#x}"

    def place(self):
        return f"{self.file}:{self.line}" if self.file and self.line else os.path.basename(self.module)


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    offset: int  # in the file, bytes
    path: str


def parse_mappings(lines):
    found = []
    for line in lines:
        match = MAPPING.match(line)
        if match:
            start, end, _, offset, path = match.groups()
            found.append(Mapping(int(start, 16), int(end, 16), int(offset, 16), path.removesuffix(" (deleted)")))
    return sorted(found, key=lambda mapping: mapping.start)


def load_segments(path):
    """(file offset, size in the file, address) of the segments that the loader maps; [] if it is no 64-bit ELF file."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if len(head) < 64 or head[:5] != b"\x7fELF\x02":
                return []
            table, = struct.unpack_from("<Q", head, 32)
            entry_size, count = struct.unpack_from("<HH", head, 54)
            file.seek(table)
            data = file.read(entry_size * count)
    except OSError:
        return []
    segments = []
    for at in range(0, len(data) - 55, entry_size):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", data, at)
        if kind == ELF_LOAD:
            segments.append((offset, size, address))
    return segments


def module_address(segments, file_offset):
    for offset, size, address in segments:
        if offset <= file_offset < offset + size:
            return file_offset - offset + address
    return file_offset


def run_tool(words, text=""):
    """The tool's output; "" if it is not installed or fails."""
    if shutil.which(words[0]) is None:
        return ""
    done = subprocess.run(words, input=text, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout


class FunctionTable:
    """The functions that a module's symbol tables name, with their sizes. A stripped library has those it exports."""

    def __init__(self, path):
        found = {}
        for table in ([], ["-D"]):
            for line in run_tool(["nm", "-CS", "--defined-only", *table, path]).splitlines():
                words = line.split(maxsplit=3)
                if len(words) == 4 and words[2] in "TtWwiVv":
                    found[int(words[0], 16)] = (int(words[1], 16), words[3].partition("@")[0])
        self.starts = sorted(found)
        self.functions = [found[start] for start in self.starts]

    def name(self, address):
        """The function that holds the address; "" if none does: the nearest name before it would be a guess."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0:
            size, name = self.functions[index]
            if address < self.starts[index] + size:
                return name
        return ""


def parse_inlined(block):
    """Functions and places of one address as addr2line -fi prints them, innermost first."""
    places = []
    for function, place in zip(block[0::2], block[1::2]):
        place = re.sub(r" \(discriminator \d+\)$", "", place)
        file, _, line = place.rpartition(":")
        known = function if function != "??" else ""
        places.append((known, "" if file == "??" else file, int(line) if line.isdigit() else 0))
    return places


def lines_of_module(path, addresses):
    """{address: [(function, file, line)], innermost first} by addr2line."""
    if not addresses:
        return {}
    marks = "".join(f"{address:#x}\n" for address in addresses)
    output = run_tool(["addr2line", "-afiCe", path], marks).splitlines()
    found, block, at = {}, [], None
    for line in output + ["0x0"]:
        if re.fullmatch(r"0x[0-9a-f]+", line):
            if at is not None:
                found[at] = parse_inlined(block)
            at, block = int(line, 16), []
        else:
            block.append(line)
    return found


class GeneratedCode:
    """/tmp/perf-PID.map: "start size name" a line, hexadecimal."""

    def __init__(self, pid):
        self.ranges = []
        try:
            with open(f"/tmp/perf-{pid}.map", encoding="utf-8", errors="replace") as file:
                for line in file:
                    words = line.rstrip("\n").split(" ", 2)
                    if len(words) == 3:
                        self.ranges.append((int(words[0], 16), int(words[1], 16), words[2]))
        except (OSError, ValueError):
            pass
        self.ranges.sort()

    def name(self, address):
        index = bisect.bisect_right(self.ranges, (address, float("inf"), "")) - 1
        if index >= 0:
            start, size, name = self.ranges[index]
            if address < start + size:
                return name
        return ""


def frames_in_module(path, file_offsets):
    """{key: [Frame, ...], innermost first} of {key: offset in the file}."""
    segments = load_segments(path)
    where = {key: module_address(segments, offset) for key, offset in file_offsets.items()}
    lines = lines_of_module(path, sorted(set(where.values())))
    table, found = None, {}
    for key, offset in where.items():
        places = lines.get(offset) or [("", "", 0)]
        if not places[-1][1]:  # without debug information addr2line takes the nearest name before the address
            table = table or FunctionTable(path)
            places = [(table.name(offset), "", 0)]
        found[key] = [Frame(function, file, line, path, offset) for function, file, line in places]
    return found


class Symbols:
    """Frames of the return addresses of one process."""

    def __init__(self, mapping_lines, pid):
        self.mappings = parse_mappings(mapping_lines)
        self.starts = [mapping.start for mapping in self.mappings]
        self.generated = GeneratedCode(pid)
        self.frames = {}

    def mapping_of(self, address):
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.mappings[index].end:
            return self.mappings[index]
        return None

    def resolve(self, addresses):
        """Fills self.frames for all these return addresses: {address: [Frame, ...]}, innermost first."""
        modules = {}
        for address in set(addresses):
            mapping = self.mapping_of(address - 1)  # the call ends where the return address begins
            if mapping is None or not mapping.path.startswith("/"):
                name = self.generated.name(address - 1)
                path = mapping.path if mapping else ""
                self.frames[address] = [Frame(name, "", 0, path, address - 1)]
            else:
                modules.setdefault(mapping.path, []).append((address, mapping))
        for path, pairs in modules.items():
            self.resolve_module(path, pairs)

    def resolve_module(self, path, pairs):
        offsets = {address: address - 1 - mapping.start + mapping.offset for address, mapping in pairs}
        self.frames.update(frames_in_module(path, offsets))
