# SPDX-License-Identifier: MIT
"""Names of generated code: of perf maps that runtimes write again and again, in containers, while they are read."""
import dataclasses
import os
import subprocess
import sys
import time
import unittest
from unittest import mock

from hakmem.look import files, generated, processes, sites, symbols
from place import PlaceTest

PID = 1 << 30  # nobody's
USERS = {os.geteuid()}
as_root = unittest.skipUnless(os.geteuid() == 0, "only root may leave its root directory")


class Entries(unittest.TestCase):
    def test_later_entries_win(self):
        for entries, wanted in (([(16, 16, "old"), (16, 8, "new")], [(16, 8, "new")]),
                                ([(20, 2, "inside"), (16, 16, "new")], [(16, 16, "new")]),
                                ([(16, 16, "a"), (16, 16, "b"), (16, 16, "c")], [(16, 16, "c")]),
                                ([(32, 8, "b"), (16, 16, "a")], [(16, 16, "a"), (32, 8, "b")]),
                                # Overwritten code does not come back.
                                ([(40, 8, "first"), (16, 30, "second"), (16, 8, "third")], [(16, 8, "third")])):
            self.assertEqual(generated.newest(entries), wanted)

    def test_lines(self):
        data = b"10 8 a\ngarbage\n20 0 empty\n\n30 zz b\n40 8\n50 8  \n60 8 name with  words\n0x70 0x8 c\n80 8 cu"
        self.assertEqual(generated.parse_entries(data), [(0x10, 8, "a"), (0x60, 8, "name with  words"), (0x70, 8, "c")])
        self.assertEqual(generated.parse_entries(b"0 8 cut\n20 8 a\n", is_whole=False), [(0x20, 8, "a")])

    def test_odd_lines(self):
        """Ends of lines as on Windows, what is not UTF-8, and names without end."""
        self.assertEqual(generated.parse_entries(b"10 8 a b\r\n20 8 caf\xe9\r\n30 8 \r\n"), [(0x10, 8, "a b"), (0x20, 8, "caf\ufffd")])
        name = generated.parse_entries(b"10 8 begin" + b"x" * 20000 + b"end\n")[0][2]
        self.assertEqual((len(name), name[:6], name[-4:], name.count("\u2026")), (4000, "beginx", "xend", 1))


class Maps(PlaceTest):
    def write(self, text, number=PID, folder=None):
        path = (folder or self.place) / f"perf-{number}.map"
        path.write_text(text)
        return path

    def names(self, **how):
        return generated.GeneratedCode(PID, USERS, [str(self.place)], **how)

    def test_the_end_of_a_large_file(self):
        self.write("10 8 old\n" * 100 + "10 8 new\n")
        with mock.patch.object(generated, "PERF_MAP_MAX", 30):
            self.assertEqual(self.names().ranges, [(0x10, 8, "new")])

    def test_files_of_earlier_processes(self):
        path = self.write("10 8 name\n")
        now = time.time()
        self.assertEqual(self.names(alive=(now - 5, now + 5)).name(0x12), "name")
        os.utime(path, (now, now - 60))
        self.assertEqual(self.names(alive=(now - 5, now + 5)).name(0x12), "")
        os.utime(path, (now, now + 60))
        self.assertEqual(self.names(alive=(0, now + 5)).name(0x12), "")

    def test_what_a_file_says_of_its_process(self):
        path = self.write("10 8 name\n")
        origin = files.origin_of(str(path))
        with mock.patch.object(symbols, "GeneratedCode") as made:
            symbols.Files(PID, **origin).generated()
        about = path.stat()
        self.assertIn(about.st_uid, made.call_args.args[1])
        self.assertEqual(made.call_args.kwargs, {"alive": (0.0, about.st_mtime)})
        self.assertEqual(files.origin_of("/dev/null"), {})

    def test_kinds_of_memory(self):
        self.write("1000 3000 name\n")
        lines = ["1000-2000 r-xp 00000000 00:00 0 ", "2000-3000 r-xs 00000000 00:01 7 /memfd:doublemapper (deleted)",
                 "3000-4000 r-xs 00001000 08:01 7 /usr/lib/none.so"]
        files = symbols.Files(0)
        files.generated = self.names
        found = symbols.Symbols(lines, files)
        found.resolve([0x1801, 0x2801, 0x3801])
        self.assertEqual([found.frames[at][0].label() for at in (0x1801, 0x2801, 0x3801)], ["name", "name", "none.so+0x1800"])
        (self.place / f"perf-{PID}.map").unlink()
        found = symbols.Symbols(lines, files)
        found.resolve([0x2801])
        self.assertEqual(found.frames[0x2801][0].offset, 0x800)

    def test_sites(self):
        self.write("1000 3000 name\n")
        record = dict.fromkeys(sites.NUMBERS, 1) | {"kind": "address", "name": "", "offset": "0x801"}
        with mock.patch.object(symbols.Files, "generated", lambda _: self.names()):
            for module in ("", "/memfd:doublemapper (deleted)", "/dev/zero (deleted)"):
                made = sites.named_sites([record | {"module": module, "address": "0x2801"}], sites.SiteNames(PID))
                self.assertEqual(made[0].label(), "name")

    @as_root
    def test_containers(self):
        """Another root directory, in which the process has another number."""
        inner = self.place / "tmp"
        inner.mkdir()
        script = f"import os, time; os.chroot({str(self.place)!r}); os.chdir('/'); print('there', flush=True); time.sleep(600)"
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
            try:
                child.stdout.readline()
                process = dataclasses.replace(processes.look(child.pid), inner_pid=7)
                self.write("10 8 inner\n", 7, inner)
                self.assertEqual(generated.generated_by(process).name(0x12), "inner")
                os.chown(inner / "perf-7.map", 64126, 64126)
                self.assertEqual(generated.generated_by(process).name(0x12), "")
                (inner / "perf-7.map").unlink()
                inner.rmdir()
                inner.symlink_to("/other")  # of its own root directory
                (self.place / "other").mkdir()
                self.write("10 8 other\n", 7, self.place / "other")
                self.assertEqual(generated.generated_by(process).name(0x12), "other")
            finally:
                child.kill()
