# SPDX-License-Identifier: MIT
"""Tests of what observer.py makes of /proc while a process ends, or becomes another program. tests/launcher/observe.sh tries
it on processes; moments that only a busy machine makes long are made up here."""
import contextlib
import io
import os
import time
import unittest
from pathlib import Path
from unittest import mock

from hakmem.look import attach, processes
from hakmem.look.observer import TRACED_SECONDS, NotObserved, Observer, Replaced, candidates
from hakmem.look.processes import Ended, Refusal
from place import PlaceTest

PID = os.getpid()
STATUS = Path(f"/proc/{PID}/status").read_text()
STAT = Path(f"/proc/{PID}/stat").read_text()
WITHOUT_MEMORY = "".join(f"{line}\n" for line in STATUS.splitlines() if not line.startswith("Vm"))
STOPPED, TRACED = (STATUS.replace("\nState:\t", f"\nState:\t{state} was ", 1) for state in "Tt")
STACK = 1 << 40


def look(status, stack):
    """A process with this status, and this start of the stack, field 28 of stat."""
    fields = STAT.rpartition(")")[2].split()
    fields[25] = str(stack)
    texts = {f"/proc/{PID}/status": status, f"/proc/{PID}/stat": f"{PID} (made (up)) " + " ".join(fields)}
    with mock.patch.object(processes, "read_text", texts.__getitem__):
        return processes.look(PID)


class Checks(PlaceTest):
    def setUp(self):
        super().setUp()
        self.observer = Observer.__new__(Observer)
        self.replace(os, "fstat", lambda _: mock.Mock(st_nlink=1))
        self.observer.descriptor, self.observer.process = 0, look(STATUS, STACK)
        self.observer.traced_since, self.observer.is_interrupted = None, lambda: False
        self.observer.may_note, self.observer.note_at = False, 0.0
        self.observer.allow()

    def check(self, status=STATUS, stack=STACK, seconds=1000):
        with mock.patch("hakmem.look.observer.look", return_value=look(status, stack)):
            self.observer._check(time.monotonic() + seconds, "it is asked")

    def test_it_goes_on(self):
        self.check()
        self.check(stack=0)  # in the middle of an exec
        self.observer.process.stack = 0  # the kernel does not tell us
        self.check()

    def test_attached_then_exec(self):
        """The observer is gone with the program that was attached to: nothing is waited for."""
        looks = [look(STATUS, STACK), look(STATUS, STACK), look(STATUS, STACK + 1)]
        for name, value in (("look", lambda _: looks.pop(0)), ("attach", lambda *_: None), ("remove_stale_files", lambda: None),
                            ("Observer", mock.Mock(side_effect=NotObserved("it is not observed")))):
            self.replace(attach, name, value)
        with self.assertRaisesRegex(Replaced, "has become another program"):
            attach.connect(PID)

    def test_refusals(self):
        for status, stack, seconds, kind, words in ((STATUS, STACK + 1, 1000, Refusal, "has become another program"),
                                                    (WITHOUT_MEMORY, 0, 1000, Ended, "has ended"),
                                                    (WITHOUT_MEMORY, STACK, 1000, Ended, "has ended"),
                                                    (STOPPED, STACK, 1000, Refusal, "is stopped; let it go on first"),
                                                    (STATUS, STACK, -1, Refusal, "gives no report: it is asked")):
            with self.assertRaisesRegex(kind, words):
                self.check(status, stack, seconds)
        self.observer.is_interrupted = lambda: True
        with self.assertRaisesRegex(Refusal, "gives no report: it is asked"):
            self.check()

    def test_held_by_a_debugger(self):
        self.check(TRACED)  # it may be let go in a moment
        self.observer.traced_since -= TRACED_SECONDS + 0.1
        with self.assertRaisesRegex(Refusal, "is stopped by a debugger"):
            self.check(TRACED)
        self.check()
        self.check(TRACED)

    def test_a_note_on_a_terminal(self):
        self.observer.may_note, self.observer.note_at = True, time.monotonic() + 1000
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.check()
            self.assertEqual(said.getvalue(), "")
            self.observer.note_at = 0.0
            self.check()
            self.check()
        self.assertRegex(said.getvalue(), rf"^hakmem: process {PID} gives no report yet: it is asked; waiting \d+ s more\n$")


class Places(unittest.TestCase):
    def test_also_where_the_file_was_before_chroot(self):
        folders = [os.path.dirname(path) for path in candidates(processes.look(PID))]
        self.assertEqual(folders[-1], "/dev/shm")
        self.assertTrue(folders[0].startswith(f"/proc/{PID}/root"), folders)
