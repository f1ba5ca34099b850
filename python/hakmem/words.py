# SPDX-License-Identifier: MIT
"""The command line of all commands: argparse, with one sentence for what is wrong."""
import argparse
import re
import sys

from .look.output import worded
from .look.processes import STATUS_USAGE, Refusal


class Parser(argparse.ArgumentParser):
    """Of a command NAME: what is wrong is a Refusal; help is written like other output."""

    def __init__(self, name, **more):
        super().__init__(prog=f"./hakmem {name}", allow_abbrev=False, **more)
        self.name = name

    def error(self, message):
        raise Refusal(f"{self.name}: {message} (./hakmem {self.name} --help)", STATUS_USAGE)

    def _print_message(self, message, file=None):  # argparse's own one takes no notice of errors
        (file or sys.stderr).write(worded(message))


class StrictParser(Parser):
    """Of a command that takes options only."""

    def error(self, message):
        about = re.fullmatch(r"argument (\S+): (expected one argument|needs .*)", message)
        if about:
            message = f"{about[1]} {about[2].replace('expected one argument', 'needs a value')}"
        super().error(message)

    def read(self, words):
        found, others = self.parse_known_args(words)
        if others:
            self.error(f"unknown argument '{others[0]}'")
        return found
