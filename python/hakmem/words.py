# SPDX-License-Identifier: MIT
"""The command line of all commands: argparse, with one form of help and one sentence for what is wrong."""
import argparse
import re
import sys
import textwrap

from .look.output import worded
from .look.processes import STATUS_USAGE, Refusal

WIDTH = 80
MESSAGES = (  # argparse's, and what is said instead
    (r"unrecognized arguments: (-\S*).*", r"unknown option '\1'"),
    (r"unrecognized arguments: (\S+).*", r"unknown argument '\1'"),
    (r"the following arguments are required: ([^,]*).*", r"\1 is missing"),
    (r"argument (?:\S+/)?(\S+): expected one argument", r"\1 needs a value"),
    (r"argument (?:\S+/)?(\S+): ignored explicit argument .*", r"\1 takes no value"),
    (r"argument (?:\S+/)?(\S+): invalid \w+ value: (.*)", r"\1 needs a number, not \2"),
    (r"argument (?:\S+/)?(\S+): (needs .*)", r"\1 \2"),
    (r"argument \S+: invalid choice: (.*) \(choose from (.*)\)", r"\1 is none of \2"),
)


USAGES = {"*": "[{}...]", "+": "{}...", "?": "[{}]"}  # of an argument that may come so often


def filled(text):
    """Paragraphs of the help's width."""
    return "\n\n".join(textwrap.fill(part, WIDTH, break_on_hyphens=False) for part in text.split("\n\n"))


def term_of(action):
    """What the help's left column has: "-o, --output FILE"."""
    value = action.metavar or action.dest.upper().replace("_", "-")
    return ", ".join(action.option_strings) + f" {value}" * (action.nargs != 0) if action.option_strings else value


class Parser(argparse.ArgumentParser):
    """Of a command NAME. What is wrong is a Refusal. The help has the form of help/*.txt under any version of Python: what
    the command does is said in the third person, what an option does in the imperative."""

    def __init__(self, name, **more):
        super().__init__(prog=f"./hakmem {name}", allow_abbrev=False, add_help=False, **more)
        self.name = name
        self.forms = []  # of the arguments; empty: one with all of them
        self.add_argument("-h", "--help", action="help", help="print this help")

    def rows(self):
        """Of the help's table: a term and what it means; arguments first, the help itself last."""
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        shown.sort(key=lambda action: (bool(action.option_strings), action.dest == "help"))
        for action in shown:
            if isinstance(action.choices, dict):  # words, which say themselves what they mean
                yield from action.choices.values()
            else:
                yield term_of(action), action.help % {"default": action.default}

    def all_forms(self):
        arguments = [USAGES.get(one.nargs, "{}").format(term_of(one)) for one in self._actions if not one.option_strings]
        return self.forms or [" ".join(["[OPTION...]", *arguments])]

    def format_help(self):
        usages = [f"{self.prog} {form}" for form in self.all_forms()]
        rows = list(self.rows())
        column = max(len(term) for term, _ in rows) + 4
        lines = []
        for term, text in rows:
            first, *more = textwrap.wrap(text, WIDTH - column, break_on_hyphens=False)
            lines += [f"  {term}".ljust(column) + first, *(" " * column + line for line in more)]
        parts = ["Usage: " + "\n       ".join(usages), filled(self.description), "\n".join(lines)]
        return "\n\n".join(parts + ([filled(self.epilog)] if self.epilog else [])) + "\n"

    def error(self, message):
        for pattern, said in MESSAGES:
            message = re.sub(f"^{pattern}$", said, message)
        raise Refusal(f"{self.name}: {message} (./hakmem {self.name} --help)", STATUS_USAGE)

    def read(self, words):
        """What the words mean. Of a command that runs a program, that begins at the first word that is no option."""
        program = next((action.dest for action in self._actions if action.nargs == argparse.REMAINDER), None)
        for word in [] if program else words:  # argparse says first what is missing
            if word.startswith("--") and word.partition("=")[0] not in self._option_string_actions:
                self.error(f"unrecognized arguments: {word}")
        self.forms = self.all_forms()  # argparse forgets meanwhile how often an argument may come
        found, others = (self.parse_known_args if program else self.parse_known_intermixed_args)(words)
        if program and getattr(found, program)[:1] == ["--"]:
            del getattr(found, program)[0]
        if others:
            self.error(f"unrecognized arguments: {others[0]}")
        return found

    def _print_message(self, message, file=None):  # argparse's own one takes no notice of errors
        (file or sys.stderr).write(worded(message))
