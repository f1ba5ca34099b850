# SPDX-License-Identifier: MIT
"""Where addr2line alone (binutils to 2.40 at least) names inlined functions wrongly, or not at all, and what helps.

If an inlined function's code is the first of the function around it, and its debug information has no linkage name,
as in C, addr2line gives it the name that the symbol table has for that address: the outer function's. Without symbol
tables it does not. It does not read the lists of ranges by index that clang writes, and leaves the innermost functions
out; nor does it read files of split debug information. Both is said."""
import os
import shutil
import struct
import tempfile

from .elf import Elf, SECTION_SIZE
from .owners import bare_name

SYMBOL_TABLE, DYNAMIC_TABLE = 2, 11  # sh_type
PLAIN_DATA = 1  # sh_type of a section that no tool looks into
SYMBOL_SIZE, FILE_SYMBOL, ABSOLUTE = 24, 4, 0xFFF1  # of a symbol: bytes, st_info, st_shndx
COPIED_MAX = 1 << 30  # bytes of a file that is copied
INLINED, RANGES, DWO_NAME, GNU_DWO_NAME, RNGLISTX, IMPLICIT = 0x1D, 0x55, 0x76, 0x2130, 0x23, 0x21  # of DWARF 5, 7.5
LLVM_HELPS = "install llvm, whose llvm-symbolizer reads it"


def last_name(function):
    return bare_name(function).split("(")[0].split("<")[0].rpartition("::")[2]


def suspects(places):
    """The indexes of inlined functions, of (function, file, line) innermost first, that have the outer one's name."""
    outer = last_name(places[-1][0])
    return [index for index, (function, _, _) in enumerate(places[:-1]) if last_name(function) == outer]


def hide_symbols(descriptor):
    """Leaves one symbol in the table: without any, addr2line cannot read compressed sections."""
    head = os.pread(descriptor, 64, 0)
    start, = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<2H", head, 58)
    for at in range(start, start + size * count, SECTION_SIZE) if size == SECTION_SIZE else ():
        kind, = struct.unpack("<I", os.pread(descriptor, 4, at + 4))
        if kind == SYMBOL_TABLE:
            offset, = struct.unpack("<Q", os.pread(descriptor, 8, at + 24))
            os.pwrite(descriptor, struct.pack("<IBBHQQ", 0, FILE_SYMBOL, 0, ABSOLUTE, 0, 0), offset + SYMBOL_SIZE)
            os.pwrite(descriptor, struct.pack("<Q", 2 * SYMBOL_SIZE), at + 32)
            os.pwrite(descriptor, struct.pack("<I", 2), at + 44)  # both are local
        elif kind == DYNAMIC_TABLE:
            os.pwrite(descriptor, struct.pack("<I", PLAIN_DATA), at + 4)


def without_symbols(path):
    """A copy of an ELF file without tables of symbols, as an open file; None if there can be none."""
    try:
        with open(path, "rb") as source:
            if os.fstat(source.fileno()).st_size > COPIED_MAX:
                return None
            file = tempfile.TemporaryFile()
            shutil.copyfileobj(source, file)
        file.flush()
        hide_symbols(file.fileno())
        os.fchmod(file.fileno(), 0o444)  # the tool may have other rights
        return file
    except (OSError, struct.error):
        return None


def named_again(places, again):
    """The places with the names that the second answer, without tables of symbols, has for suspects; "" if it has none."""
    doubted = suspects(places)
    fits = again and len(again) == len(places)
    return [((again[index][0] if fits else ""), file, line) if index in doubted else (function, file, line)
            for index, (function, file, line) in enumerate(places)]


def ask_again(found, path, ask):
    """The answers of addr2line, with suspects asked for a second time."""
    doubted = [address for address, places in found.items() if places and suspects(places)]
    copy = without_symbols(path) if doubted else None
    again = ask(f"/proc/self/fd/{copy.fileno()}", doubted) if copy else {}
    if copy:
        copy.close()
    return found | {address: named_again(found[address], again.get(address)) for address in doubted}


def number(data, at):
    """An unsigned LEB128 and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def abbreviations(data):
    """(tag, attribute, form) of each attribute of a .debug_abbrev section, as far as it is well-formed."""
    at = 0
    try:
        while True:
            code, at = number(data, at)
            if code == 0:  # the end of a unit's table
                continue
            tag, at = number(data, at)
            attribute, form, at = 1, 1, at + 1
            while attribute or form:
                attribute, at = number(data, at)
                form, at = number(data, at)
                at = number(data, at)[1] if form == IMPLICIT else at
                yield tag, attribute, form
    except IndexError:
        pass


def abbreviations_of(path):
    try:
        with open(path, "rb") as file:
            data = Elf(file.fileno()).unpacked(".debug_abbrev")
    except OSError:
        data = b""
    return abbreviations(data)


def missing_in(path):
    """What is not read in this file, in words; "" if nothing is known."""
    found = set(abbreviations_of(path))
    if any(attribute in (DWO_NAME, GNU_DWO_NAME) for _, attribute, _ in found):
        return f"lines and inlined functions are missing: addr2line does not read split debug information ({LLVM_HELPS})"
    if (INLINED, RANGES, RNGLISTX) in found:
        return f"some inlined functions are missing: addr2line does not read their lists of ranges ({LLVM_HELPS})"
    return ""
