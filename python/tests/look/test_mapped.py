# SPDX-License-Identifier: MIT
"""What the memory is that is not hakmem's, by kind of mapping: rows of the summary and fields of JSON, which add up."""
import json
import mmap
import os
import re

from hakmem.look import mapped
from place import PlaceTest

WHOLE = 1 << 34  # bytes, more than this process has: the rest is anonymous
SUMMARY = f"""resident memory (RSS)        {WHOLE / 2**20:.2f} MiB 100.0 %
  not hakmem's               {WHOLE / 2**20:.2f} MiB 100.0 %  code, stacks, the program's own mappings
    anonymous                    1.66 MiB   0.0 %  the program's own mappings, stacks of threads
could go back to the OS now: 0.00 MiB
"""
FIGURE = re.compile(r" +(\d+\.\d\d) MiB +\d+\.\d %")


class Mapped(PlaceTest):
    def setUp(self):
        super().setUp()
        path = self.place / "data.bin"
        path.write_bytes(b"x" * (10 << 20))
        with path.open("rb") as file:
            self.data = self.enter(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ))
        self.assertEqual(self.data[::4096], b"x" * 2560)
        self.shared = self.enter(mmap.mmap(-1, 20 << 20))
        self.shared[::4096] = b"x" * 5120

    def test_rows(self):
        text = mapped.with_rows(SUMMARY, os.getpid())
        first, whole, *lines, last = text.rstrip("\n").split("\n")
        rows = {line[:FIGURE.search(line).start()].strip(): round(100 * float(FIGURE.search(line)[1])) for line in lines}
        self.assertEqual((sum(rows.values()), last), (round(100 * WHOLE / 2**20), "could go back to the OS now: 0.00 MiB"))
        self.assertTrue(rows["other files"] >= 1000 and rows["shared memory"] >= 2000 and rows["program and libraries"] > 0, rows)
        self.assertIn("data.bin 10.00", text)

    def test_fields(self):
        figures = {"summary": {"not_hakmem_bytes": WHOLE}}
        found = json.loads(mapped.with_fields(json.dumps(figures), figures, os.getpid()))["mapped"]
        self.assertEqual(sum(found.values()), WHOLE)
        self.assertTrue(10 << 20 <= found["other_files_bytes"] < 12 << 20 and found["shared_memory_bytes"] >= 20 << 20, found)
