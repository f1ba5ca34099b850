# SPDX-License-Identifier: MIT
"""Tests of the files that give names: which one is taken, and what is said where there is none.

tests/launcher/build_ids.sh tries them on programs."""
import os
import struct
from unittest import mock

from hakmem.look import binaries, processes, symbols
from hakmem.look.elf import Elf
from place import PlaceTest

ID = "00112233445566778899aabbccddeeff00112233"


def elf_file(build_id=ID, name=b"GNU\0", filler=b""):
    """A file with a note in a segment, and one segment of code at 0x401000."""
    said = bytes.fromhex(build_id)
    notes = struct.pack("<III", 4, len(filler), 1) + b"XYZ\0" + filler if filler else b""
    notes += struct.pack("<III", len(name), len(said), 3) + name + said
    head = struct.pack("<5sBB9xHHIQQQIHHHHHH", b"\x7fELF\x02", 1, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    table = struct.pack("<IIQQQQQQ", 4, 4, 256, 256, 0, len(notes), len(notes), 4)
    table += struct.pack("<IIQQQQQQ", 1, 5, 0x1000, 0x401000, 0, 0x500, 0x500, 0x1000)
    return (head + table).ljust(256, b"\0") + notes


class Base(PlaceTest):
    def setUp(self):
        super().setUp()
        self.path = self.place / "prog"

    def files(self, **origin):
        return symbols.Files(1, **origin)

    def why(self, module, files):
        self.assertIsNone(binaries.find(module, files))
        return files.missing[module.path]


class Headers(Base):
    def read(self, data):
        self.path.write_bytes(data)
        with open(self.path, "rb") as file:
            elf = Elf(file.fileno())
            return elf, elf.build_id()

    def test_build_ids(self):
        elf, found = self.read(elf_file())
        self.assertEqual(found, ID)
        self.assertEqual((elf.address_of(0x1234), elf.address_of(0x9000)), (0x401234, 0x9000))
        self.assertEqual(self.read(elf_file(filler=b"12345678"))[1], ID)
        self.assertEqual(self.read(elf_file(name=b"Go\0\0"))[1], "")

    def test_damaged(self):
        """Whatever the numbers are, there is an answer."""
        whole = elf_file()
        for data in (b"", whole[:40], whole[:70], whole[:-1], b"\x7fELF\x01" + whole[5:]):
            self.assertEqual(self.read(data)[1], "")
        for at in range(16, len(whole)):
            elf, _ = self.read(whole[:at] + b"\xff" * 8 + whole[at + 8:])
            self.assertEqual((elf.section(".gnu_debugdata"), elf.debug_link(), elf.mini()), (b"", None, b""))


class Search(Base):
    def module(self, **known):
        return binaries.Module(str(self.path), **known)

    def test_by_build_id(self):
        files, module = self.files(), self.module(build_id=ID, bias=0x1000)
        self.assertEqual(self.why(module, files), "its file is gone")
        self.path.write_bytes(elf_file("aabb"))
        self.assertEqual(self.why(module, self.files()), "its file is another one now")
        self.path.write_bytes(elf_file())
        found = binaries.find(module, self.files())
        self.assertEqual((found.own.path, module.address(found, (None, 0x2234))), (str(self.path), 0x1234))
        self.assertEqual(module.address(found, (0x1234, 0x2234)), 0x401234)  # the file itself, against an older version's bias

    def test_without_build_id(self):
        """The same inode, untouched since the profile was written."""
        self.path.write_bytes(elf_file())
        about = os.stat(self.path)
        known = {"device": about.st_dev, "inode": about.st_ino}
        now = int(about.st_ctime)
        self.assertIsNotNone(binaries.find(self.module(**known), self.files(recorded=now + 1)))
        same_second = {"recorded": now, "alive": (0.0, about.st_ctime)}
        self.assertIsNotNone(binaries.find(self.module(**known), self.files(**same_second)))
        unknown = "its build id is not known, so its file may be another one now"
        later = about.st_ctime
        while later == about.st_ctime:  # the clock of files ticks every few milliseconds
            os.utime(self.path, ns=(0, 0))
            later = os.stat(self.path).st_ctime
        self.assertEqual(self.why(self.module(**known), self.files(**same_second)), unknown)
        self.assertEqual(self.why(self.module(**known), self.files(recorded=now - 10)), unknown)
        now = int(later) + 1
        self.assertEqual(self.why(self.module(**known), self.files()), unknown)
        self.assertEqual(self.why(self.module(**known | {"inode": about.st_ino + 1}), self.files(recorded=now)), unknown)
        self.assertEqual(self.why(self.module(), self.files(recorded=now)), unknown)

    def test_a_file_that_was_let_go(self):
        """A living process does not map it any more: only the build id tells that it is the right one."""
        self.path.write_bytes(elf_file())
        me = processes.look(os.getpid())
        self.assertIsNotNone(binaries.find(self.module(build_id=ID, bias=0), self.files(process=me)))
        about = os.stat(self.path)
        self.assertIn("does not map it", self.why(self.module(device=about.st_dev, inode=about.st_ino), self.files(process=me)))

    def test_no_client(self):
        """No network unless the user says so, and a sentence where the client is missing."""
        module = self.module(build_id=ID, bias=0)
        with mock.patch.dict(os.environ, {"PATH": str(self.place), "DEBUGINFOD_URLS": "http://nowhere.invalid"}):
            files = self.files()
            self.why(module, files)
            self.assertEqual([text.partition(",")[0] for text in list(binaries.sentences(files))[1:]], ["DEBUGINFOD_URLS is set"])
            os.environ["DEBUGINFOD_URLS"] = " "
            files = self.files()
            self.why(module, files)
            self.assertEqual(files.remarks, set())

    def test_many_are_missing(self):
        files = self.files()
        for number in range(5):
            binaries.find(binaries.Module(f"/nonexistent/{number}", build_id=ID), files)
        self.assertEqual(len(list(binaries.sentences(files))), 4)
        self.assertIn("2 more", list(binaries.sentences(files))[3])
