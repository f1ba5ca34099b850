# SPDX-License-Identifier: MIT
"""Inlined functions of code addresses, from debug information of DWARF 5 in an ELF file: for what addr2line leaves out
(inlined.py). The numbers are those of the standard. The file may be anybody's: an IndexError is the end of what is read, and
how much of it is read has limits."""
import time
from bisect import bisect_left

from .elf import Elf

SECTION_MAX, UNITS_MAX, RANGES_MAX, SECONDS_MAX = 256 << 20, 1 << 18, 10000, 60
SUBPROGRAM, INLINED = 0x2E, 0x1D  # tags
NAME, LOW, HIGH, ORIGIN, SPECIFICATION, RANGES, CALL_FILE, CALL_LINE, STATEMENTS, STRINGS, ADDRESSES, LISTS = (
    0x03, 0x11, 0x12, 0x31, 0x47, 0x55, 0x58, 0x59, 0x10, 0x72, 0x73, 0x74)  # attributes
FIXED = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x20: 8, 0x17: 4, 0x0E: 4,
         0x1F: 4, 0x10: 4, 0x25: 1, 0x26: 2, 0x28: 4, 0x29: 1, 0x2A: 2, 0x2C: 4, 0x01: 8, 0x1D: 4, 0x1C: 4}  # forms: bytes
BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4}  # forms: bytes of a length
ADDRESS_FORMS, ULEBS = (0x1B, 0x29, 0x2A, 0x2C), (0x0F, 0x1A, 0x1B, 0x15, 0x22, 0x23)
UNIT_REFERENCES = (0x11, 0x12, 0x13, 0x14, 0x15)
STRING_INDEXES = (0x1A, 0x25, 0x26, 0x28)


def uleb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def whole(data, at, size):
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at:at + size], "little")


def text(data, at):
    end = data.find(b"\0", at)
    return data[at:max(end, at)].decode("utf-8", "replace")


class Unit:
    """A compilation unit: its abbreviations and the attributes of its first entry."""

    def __init__(self, file, start):
        self.file, self.start = file, start
        info = file.info
        self.end = start + 4 + whole(info, start, 4)
        self.version, kind = whole(info, start + 4, 2), info[start + 6]
        self.is_read = self.version == 5 and kind == 1 and info[start + 7] == 8
        self.first = start + 12
        if self.is_read:
            self.forms = file.abbreviations(whole(info, start + 8, 4))
            self.strings, self.addresses, self.lists = 8, 8, 12
            _, head, _ = self.entry(self.first, False)
            self.strings, self.addresses, self.lists = (head.get(name, (0, default))[1] for name, default in
                                                        ((STRINGS, 8), (ADDRESSES, 8), (LISTS, 12)))
            self.head = head

    def entry(self, at, skips=True):
        """((tag, has children) or None, {attribute: (form, value)}, where the next one begins). With `skips`, entries that
        are no functions have no attributes."""
        info = self.file.info
        code, at = uleb(info, at)
        if code == 0:
            return None, {}, at
        tag, has_children, attributes = self.forms[code]
        if skips and tag not in (SUBPROGRAM, INLINED):
            for _, form, _ in attributes:
                size = FIXED.get(form)
                at = at + size if size is not None else self.value(form, None, at)[1]
            return (tag, has_children), {}, at
        found = {}
        for attribute, form, constant in attributes:
            value, at = self.value(form, constant, at)
            found[attribute] = form, value
        return (tag, has_children), found, at

    def value(self, form, constant, at):
        info = self.file.info
        if form in FIXED:
            return whole(info, at, FIXED[form]), at + FIXED[form]
        if form in ULEBS:
            return uleb(info, at)
        if form in (0x19, 0x21):  # a flag that is present, and what the abbreviation has
            return constant, at
        if form == 0x0D:  # signed; nothing here needs its sign
            return uleb(info, at)
        if form == 0x08:
            return at, info.index(b"\0", at) + 1
        if form in BLOCKS:
            return None, at + BLOCKS[form] + whole(info, at, BLOCKS[form])
        if form in (0x09, 0x18):
            size, at = uleb(info, at)
            return None, at + size
        raise IndexError

    def address(self, form, value):
        return whole(self.file.addresses, self.addresses + 8 * value, 8) if form in ADDRESS_FORMS else value

    def string(self, form, value):
        if form in STRING_INDEXES:
            value = whole(self.file.offsets, self.strings + 4 * value, 4)
        return text(self.file.info if form == 0x08 else self.file.line_strings if form == 0x1F else self.file.strings, value)

    def ranges(self, entry):
        """[(start, end)] of the entry's code."""
        if LOW in entry and HIGH in entry:
            low = self.address(*entry[LOW])
            form, high = entry[HIGH]
            return [(low, self.address(form, high) if form in (*ADDRESS_FORMS, 0x01) else low + high)]
        if RANGES not in entry:
            return []
        form, value = entry[RANGES]
        at = self.lists + whole(self.file.lists, self.lists + 4 * value, 4) if form == 0x23 else value
        return list(self.list_at(at, self.address(*self.head[LOW]) if LOW in self.head else 0))

    def list_at(self, at, base):
        data, index = self.file.lists, lambda number: whole(self.file.addresses, self.addresses + 8 * number, 8)
        for _ in range(RANGES_MAX):
            kind, at = data[at], at + 1
            if kind == 0:
                return
            if kind in (1, 2, 3, 4):
                first, at = uleb(data, at)
                second, at = uleb(data, at) if kind != 1 else (0, at)
                if kind == 1:
                    base = index(first)
                else:
                    yield {2: lambda: (index(first), index(second)), 3: lambda: (index(first), index(first) + second),
                           4: lambda: (base + first, base + second)}[kind]()
            elif kind in (5, 6, 7):
                first, at = whole(data, at, 8), at + 8
                if kind == 5:
                    base = first
                else:
                    second, at = (whole(data, at, 8), at + 8) if kind == 6 else uleb(data, at)
                    yield first, second if kind == 6 else first + second
            else:
                raise IndexError

    def name(self, entry, depth=8):
        if NAME in entry:
            return self.string(*entry[NAME])
        form, value = entry.get(ORIGIN) or entry.get(SPECIFICATION) or (0, 0)
        if not value or depth == 0:
            return ""
        place = self.start + value if form in UNIT_REFERENCES else value
        unit = self if self.start <= place < self.end else self.file.unit_of(place)
        return unit.name(unit.entry(place, False)[1], depth - 1) if unit and unit.is_read else ""

    def files(self):
        """Paths of the source files, by the numbers of DW_AT_call_file."""
        data, at = self.file.lines, self.head[STATEMENTS][1]
        if whole(data, at + 4, 2) != 5:
            raise IndexError
        at += 17 + data[at + 17]  # behind the lengths of standard opcodes
        tables = []
        for _ in range(2):  # folders, then files
            kinds, rows, at = [], [], at + 1
            for _ in range(data[at - 1]):
                kind, at = uleb(data, at)
                form, at = uleb(data, at)
                kinds.append((kind, form))
            count, at = uleb(data, at)
            if count > len(data) or not kinds:
                raise IndexError
            for _ in range(count):
                row = {}
                for kind, form in kinds:
                    if form == 0x08:
                        row[kind], at = text(data, at), data.index(b"\0", at) + 1
                    elif form in (0x0E, 0x1F):
                        row[kind], at = text(self.file.line_strings if form == 0x1F else self.file.strings, whole(data, at, 4)), at + 4
                    elif form in (0x0B, 0x05, 0x06, 0x1E):
                        row[kind], at = whole(data, at, FIXED[form]), at + FIXED[form]
                    else:
                        row[kind], at = uleb(data, at)
                rows.append(row)
            tables.append(rows)
        folders = [row[1] for row in tables[0]]
        return [joined(folders[0], joined(folders[row.get(2, 0)], row[1])) for row in tables[1]]


def joined(folder, name):
    return name if name.startswith("/") else f"{folder}/{name}"


class DebugFile:
    def __init__(self, path):
        with open(path, "rb") as file:
            elf = Elf(file.fileno())
            self.info, self.abbreviation_bytes, self.strings, self.line_strings, self.offsets, self.addresses, self.lists, self.lines = (
                elf.unpacked(f".debug_{name}", SECTION_MAX) for name in
                ("info", "abbrev", "str", "line_str", "str_offsets", "addr", "rnglists", "line"))
        self.tables, self.units = {}, []
        at = 0
        try:
            while at + 12 < len(self.info) and len(self.units) < UNITS_MAX:
                self.units.append(Unit(self, at))
                at = self.units[-1].end
        except (IndexError, KeyError, ValueError):
            pass

    def unit_of(self, place):
        return next((unit for unit in self.units if unit.start <= place < unit.end), None)

    def abbreviations(self, start):
        """{code: (tag, has children, [(attribute, form, constant)])}."""
        if start not in self.tables:
            data, at, table = self.abbreviation_bytes, start, {}
            code, at = uleb(data, at)
            while code:
                tag, at = uleb(data, at)
                has_children, at, attributes = data[at], at + 1, []
                while True:
                    attribute, at = uleb(data, at)
                    form, at = uleb(data, at)
                    constant, at = uleb(data, at) if form == 0x21 else (1, at)
                    if not attribute and not form:
                        break
                    attributes.append((attribute, form, constant))
                table[code] = tag, has_children, attributes
                code, at = uleb(data, at)
            self.tables[start] = table
        return self.tables[start]


def stacks_in(unit, addresses):
    """{address: [entry, ...]} of the sorted addresses, of a function and what is inlined in it, outermost first."""
    found, at, until = {}, unit.entry(unit.first, False)[2], time.monotonic() + SECONDS_MAX
    while at < unit.end and time.monotonic() < until:
        kind, entry, at = unit.entry(at)
        for start, end in unit.ranges(entry) if entry else ():
            for address in addresses[bisect_left(addresses, start):bisect_left(addresses, end)]:
                if kind[0] == SUBPROGRAM:
                    found[address] = []
                if address in found:
                    found[address].append(entry)
    return found


def inlined_functions(path, addresses):
    """{address: [(function, file and line of its call in the next one), ...], innermost first; the outermost has None}."""
    result, addresses, until = {}, sorted(addresses), time.monotonic() + SECONDS_MAX
    try:
        units = DebugFile(path).units
    except OSError:
        return result
    for unit in units:
        try:
            if unit.is_read and time.monotonic() < until and any(bisect_left(addresses, start) < bisect_left(addresses, end) for start, end in unit.ranges(unit.head)):
                files = unit.files()
                for address, entries in stacks_in(unit, addresses).items():
                    result[address] = [(unit.name(entry), (files[entry[CALL_FILE][1]], entry[CALL_LINE][1]) if CALL_FILE in entry else None)
                                       for entry in reversed(entries)]
        except (IndexError, ValueError, KeyError):
            pass
    return result
