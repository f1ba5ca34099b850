# SPDX-License-Identifier: MIT
"""Tests of what observer.py makes of /proc while a process ends, or becomes another program. tests/launcher/observe.sh tries
it on processes; moments that only a busy machine makes long are made up here."""
import contextlib
import io
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))
from hakmem.look import processes  # noqa: E402
from hakmem.look.observer import TRACED_SECONDS, Observer, candidates  # noqa: E402
from hakmem.look.processes import Ended, Refusal  # noqa: E402

PID = os.getpid()
STATUS = Path(f"/proc/{PID}/status").read_text()
STAT = Path(f"/proc/{PID}/stat").read_text()


def with_stack(stack):
    """The text of stat with this start of the stack, field 28."""
    fields = STAT.rpartition(")")[2].split()
    fields[25] = str(stack)
    return f"{PID} (made (up)) " + " ".join(fields)


def without_memory():
    return "".join(f"{line}\n" for line in STATUS.splitlines() if not line.startswith("Vm"))


class Checks(unittest.TestCase):
    def setUp(self):
        self.observer = Observer.__new__(Observer)
        self.file = tempfile.TemporaryFile()
        self.addCleanup(self.file.close)
        self.observer.descriptor = self.file.fileno()
        link = mock.patch("os.fstat", return_value=mock.Mock(st_nlink=1))
        link.start()
        self.addCleanup(link.stop)
        self.observer.traced_since = None
        self.observer.is_interrupted = lambda: False
        self.observer.may_note, self.observer.note_at = False, 0.0
        self.observer.process = self.look(STATUS, with_stack(1 << 40))

    def look(self, status, stat):
        texts = {f"/proc/{PID}/status": status, f"/proc/{PID}/stat": stat}
        with mock.patch.object(processes, "read_text", texts.__getitem__):
            return processes.look(PID)

    def check(self, status, stat, until=None):
        found = self.look(status, stat)
        with mock.patch("hakmem.look.observer.look", return_value=found):
            self.observer._check(until or time.monotonic() + 1000, "it is asked")

    def test_it_goes_on(self):
        self.check(STATUS, with_stack(1 << 40))

    def test_another_program(self):
        with self.assertRaisesRegex(Refusal, "has become another program"):
            self.check(STATUS, with_stack(1 << 41))

    def test_no_stack_says_nothing(self):
        self.check(STATUS, with_stack(0))  # in the middle of an exec
        self.observer.process.stack = 0  # the kernel does not tell us
        self.check(STATUS, with_stack(1 << 40))

    def test_memory_is_gone(self):
        with self.assertRaises(Ended):
            self.check(without_memory(), with_stack(0))
        with self.assertRaises(Ended):
            self.check(without_memory(), with_stack(1 << 40))

    def test_stopped(self):
        status = STATUS.replace("\nState:\t", "\nState:\tT was ", 1)
        with self.assertRaisesRegex(Refusal, "is stopped; let it go on first"):
            self.check(status, with_stack(1 << 40))  # at the first look

    def test_held_by_a_debugger(self):
        status = STATUS.replace("\nState:\t", "\nState:\tt was ", 1)
        self.check(status, with_stack(1 << 40))  # it may be let go in a moment
        self.observer.traced_since -= TRACED_SECONDS + 0.1
        with self.assertRaisesRegex(Refusal, "is stopped by a debugger"):
            self.check(status, with_stack(1 << 40))
        self.check(STATUS, with_stack(1 << 40))
        self.check(status, with_stack(1 << 40))

    def test_time_is_over(self):
        with self.assertRaisesRegex(Refusal, "gives no report: it is asked"):
            self.check(STATUS, with_stack(1 << 40), time.monotonic() - 1)
        self.observer.is_interrupted = lambda: True
        with self.assertRaisesRegex(Refusal, "gives no report: it is asked"):
            self.check(STATUS, with_stack(1 << 40))


    def test_a_note_on_a_terminal(self):
        self.observer.may_note, self.observer.note_at = True, time.monotonic() + 1000
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.check(STATUS, with_stack(1 << 40))
            self.assertEqual(said.getvalue(), "")
            self.observer.note_at = 0.0
            self.check(STATUS, with_stack(1 << 40))
            self.check(STATUS, with_stack(1 << 40))
        self.assertRegex(said.getvalue(), rf"^hakmem: process {PID} gives no report yet: it is asked; waiting \d+ s more\n$")


class Places(unittest.TestCase):
    """Where the file of a process may be."""

    def test_also_where_it_was_before_chroot(self):
        process = processes.look(PID)
        folders = [os.path.dirname(path) for path in candidates(process)]
        self.assertEqual(folders[-1], "/dev/shm")
        self.assertTrue(folders[0].startswith(f"/proc/{PID}/root"), folders)


if __name__ == "__main__":
    unittest.main()
