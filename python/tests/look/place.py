# SPDX-License-Identifier: MIT
"""A test with a folder of its own, and with what is replaced until its end."""
import tempfile
import unittest
from pathlib import Path
from unittest import mock


class PlaceTest(unittest.TestCase):
    def setUp(self):
        self.place = Path(self.enter(tempfile.TemporaryDirectory()))
        self.place.chmod(0o755)

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def replace(self, where, name, value):
        self.enter(mock.patch.object(where, name, value))
