# SPDX-License-Identifier: MIT
"""./hakmem stat, top, metrics, observe, profile, heap, learn: python3 -m hakmem.look COMMAND. Only standard modules."""
import importlib
import sys

from ..words import Parser
from .output import status_of
from .processes import Refusal, STATUS_USAGE

COMMANDS = ("stat", "top", "metrics", "observe", "profile", "heap", "learn", "timeline")


def parser_of(name):
    """A command's module, and what reads its words."""
    module = importlib.import_module(f".{name}", __package__)
    parser = Parser(name, description=module.__doc__.partition(": ")[2])
    module.add_arguments(parser)
    return module, parser


def run(words):
    if not words or words[0] not in COMMANDS:
        raise Refusal(f"there is no command '{words[0] if words else ''}'; ./hakmem help lists them", STATUS_USAGE)
    module, parser = parser_of(words[0])
    words, program = words[1:], []
    if getattr(module, "RUNS_PROGRAMS", False) and "--" in words:
        end = words.index("--")
        words, program = words[:end], words[end + 1:]
    arguments = parser.read(words)
    arguments.program = program
    return module.run(arguments) or 0


def main():
    sys.exit(status_of(lambda: run(sys.argv[1:])))


if __name__ == "__main__":
    main()
