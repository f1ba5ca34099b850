# SPDX-License-Identifier: MIT
"""The command line of all commands: argparse, with one sentence for what is wrong."""
import argparse
import re
import sys

from .look.output import worded
from .look.processes import STATUS_USAGE, Refusal


class Formatter(argparse.HelpFormatter):
    """Keeps paragraphs apart; options stand in one column."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=26)

    def add_usage(self, usage, actions, groups, prefix="Usage: "):
        super().add_usage(usage, actions, groups, prefix)

    def _fill_text(self, text, width, indent):
        return "\n\n".join(super(Formatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))


class Parser(argparse.ArgumentParser):
    """Of a command NAME: what is wrong is a Refusal; help is written like other output."""

    def __init__(self, name, **more):
        super().__init__(prog=f"./hakmem {name}", allow_abbrev=False, formatter_class=Formatter, **more)
        self.name = name

    def error(self, message):
        message = re.sub(r"unrecognized arguments: (\S+).*", r"unknown argument '\1'", message)
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
        program = next((action.dest for action in self._actions if action.nargs == argparse.REMAINDER), None)
        found, others = (self.parse_known_args if program else self.parse_known_intermixed_args)(words)
        if program and getattr(found, program)[:1] == ["--"]:
            del getattr(found, program)[0]
        if others:
            self.error(f"unknown argument '{others[0]}'")
        return found
