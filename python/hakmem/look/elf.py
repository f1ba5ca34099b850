# SPDX-License-Identifier: MIT
"""What an ELF file says of itself: build id, segments, sections. The file may be anybody's, so all numbers are checked."""
import os
import struct
import zlib

ELF_LOAD, ELF_NOTE = 1, 4  # p_type of segments
ELF_EXECUTE = 1  # in p_flags
NOTES, NOBITS = 7, 8  # sh_type of sections
COMPRESSED = 0x800  # in their sh_flags
SEGMENT_SIZE, SECTION_SIZE, ENTRIES_MAX = 56, 64, 4096  # bytes of a header; headers of a file
BYTES_MAX = 1 << 20  # of notes, names of sections and the like
SYMBOLS_MAX = 256 << 20  # bytes of a table of symbols, or of all symbols that a file holds compressed
STRINGS_OF = {".symtab": ".strtab", ".dynsym": ".dynstr"}  # where a table's names are
SYMBOL = struct.Struct("<IBBHQQ")
FUNCTIONS = (0, 2, 10)  # types of symbols: none, as some assembly code has; STT_FUNC; STT_GNU_IFUNC
RESERVED, EXTENDED = 0xFF00, 0xFFFF  # st_shndx: no section from the first on, but the last one says that it is elsewhere
NAME_BYTES_MAX = 64 << 10  # of a symbol: mangled names of C++ have some thousands
BUILD_ID = (3, b"GNU\0")  # type and name of the note


def notes_of(data, align):
    """(type, name, bytes) of each note."""
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        name = at + 12
        said = name + -(-name_size // align) * align
        if said + size <= len(data):
            yield kind, data[name:name + name_size], data[said:said + size]
        at = said + -(-size // align) * align


class Elf:
    """A 64-bit ELF file by its descriptor; without headers if it is none."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.segments = []  # (type, file offset, size in the file, address, alignment)
        self.code = []  # (file offset, size in the file, address) of the segments with code
        self.sections = {}  # name: (type, file offset, size)
        self.compressed = set()  # names of sections
        try:
            self.read_headers()
        except (OSError, struct.error, ValueError, OverflowError):
            pass

    def bytes_at(self, offset, size, most=BYTES_MAX):
        return os.pread(self.descriptor, min(size, most), offset)

    def read_headers(self):
        head = self.bytes_at(0, 64)
        if len(head) < 64 or head[:5] != b"\x7fELF\x02":
            return
        segments, sections = struct.unpack_from("<QQ", head, 32)
        segment_size, segment_count, section_size, section_count, names = struct.unpack_from("<5H", head, 54)
        if segment_size == SEGMENT_SIZE and segment_count <= ENTRIES_MAX:
            data = self.bytes_at(segments, SEGMENT_SIZE * segment_count)
            for kind, flags, offset, address, _, size, _, align in struct.iter_unpack("<IIQQQQQQ", data[:len(data) // SEGMENT_SIZE * SEGMENT_SIZE]):
                self.segments.append((kind, offset, size, address, align))
                if kind == ELF_LOAD and flags & ELF_EXECUTE:
                    self.code.append((offset, size, address))
        if section_size == SECTION_SIZE and names < section_count <= ENTRIES_MAX:
            data = self.bytes_at(sections, SECTION_SIZE * section_count)
            rows = list(struct.iter_unpack("<IIQQQQIIQQ", data[:len(data) // SECTION_SIZE * SECTION_SIZE]))
            texts = self.bytes_at(rows[names][4], rows[names][5]) if names < len(rows) else b""
            for name, kind, flags, _, offset, size, *_ in rows:
                text = texts[name:name + 200].split(b"\0")[0].decode("latin-1")
                self.sections.setdefault(text, (kind, offset, size))
                if flags & COMPRESSED:
                    self.compressed.add(text)

    def section(self, name, most=BYTES_MAX):
        """Its bytes; b"" if there is no such section, or it is elsewhere."""
        kind, offset, size = self.sections.get(name, (NOBITS, 0, 0))
        try:
            return self.bytes_at(offset, size, most) if kind != NOBITS else b""
        except (OSError, OverflowError):
            return b""

    def unpacked(self, name):
        """The bytes of a section that may be compressed; b"" if they cannot be had."""
        data = self.section(name)
        if name not in self.compressed:
            return data
        try:
            return zlib.decompressobj().decompress(data[24:], BYTES_MAX)
        except zlib.error:
            return b""

    def functions(self, table):
        """(start, size, place of its name in the file) of each function that a table of symbols has."""
        data, strings = self.section(table, SYMBOLS_MAX), self.sections.get(STRINGS_OF[table], (NOBITS, 0, 0))[1]
        whole = memoryview(data)[:len(data) // SYMBOL.size * SYMBOL.size]
        return [(start, size, strings + name) for name, info, _, section, start, size in SYMBOL.iter_unpack(whole)
                if size and info & 15 in FUNCTIONS and (0 < section < RESERVED or section == EXTENDED)]

    def name_at(self, place):
        """The text at a place of the file; "" if it is not there."""
        try:
            return self.bytes_at(place, NAME_BYTES_MAX).split(b"\0")[0].decode("utf-8", "replace")
        except (OSError, OverflowError):
            return ""

    def has(self, *names):
        return any(self.sections.get(name, (NOBITS,))[0] != NOBITS for name in names)

    def has_lines(self):
        return self.has(".debug_info", ".zdebug_info")

    def build_id(self):
        """In hexadecimal digits; "" if it has none."""
        places = [(offset, size, 4) for kind, offset, size in self.sections.values() if kind == NOTES]
        places += [(offset, size, align) for kind, offset, size, _, align in self.segments if kind == ELF_NOTE]
        for offset, size, align in places:
            try:
                for kind, name, said in notes_of(self.bytes_at(offset, size), 8 if align == 8 else 4):
                    if (kind, name) == BUILD_ID:
                        return said.hex()
            except (OSError, OverflowError, struct.error):
                pass
        return ""

    def has_code(self, file_offset):
        return any(offset <= file_offset < offset + size for offset, size, _ in self.code)

    def address_of(self, file_offset):
        for offset, size, address in self.code:
            if offset <= file_offset < offset + size:
                return file_offset - offset + address
        for kind, offset, size, address, _ in self.segments:
            if kind == ELF_LOAD and offset <= file_offset < offset + size:
                return file_offset - offset + address
        return file_offset

    def debug_link(self):
        """Name and checksum of the file with the debug information; None: it names none."""
        data = self.section(".gnu_debuglink")
        name = data.split(b"\0")[0]
        if not name or b"/" in name or len(data) < 4:
            return None
        return name.decode("utf-8", "surrogateescape"), struct.unpack("<I", data[-4:])[0]

    def mini(self):
        """The small ELF file with symbols that Fedora packs into programs (.gnu_debugdata); b"" if there is none."""
        packed = self.section(".gnu_debugdata", SYMBOLS_MAX)
        if not packed:
            return b""
        try:
            import lzma
        except ImportError:  # some builds of Python have none
            return b""
        try:
            return lzma.LZMADecompressor(memlimit=SYMBOLS_MAX).decompress(packed, SYMBOLS_MAX)
        except (lzma.LZMAError, EOFError):
            return b""
