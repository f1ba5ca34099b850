# SPDX-License-Identifier: MIT
"""The command line: finds the module of a command and hands over.

A module has `add_arguments` and `run`, or PARTS: commands of its own by name. Modules are imported
only when asked for: scipy and matplotlib take a second to load.
"""

from __future__ import annotations

import importlib
import inspect
import io
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..look.output import leave_output
from ..look.processes import Refusal
from ..words import StrictParser
from .problem import Problem, Usage

COMMANDS = {
    "bench": "measures workloads under several allocators: table, pictures, one HTML page",
    "compare": "measures your own program under several allocators",
    "ab": "compares two settings or libraries, with a verdict and a record",
    "tune": "searches the settings that suit your own program",
    "score": "says where hakmem stands, from stored results",
    "peers": "installs and lists the other allocators",
    "doctor": "says what makes measurements on this machine unreliable",
    "cost": "holds the predicted cost of each path against the measured one",
}
INNER = ("scale",)  # python -m hakmem.lab NAME, for who works on hakmem itself
STATUS_FAILED, STATUS_USAGE, STATUS_INTERRUPTED = 1, 2, 130


def main(words: list[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    words = sys.argv[1:] if words is None else words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the name of a program may be no ASCII
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0 if words else STATUS_USAGE
    name, arguments = words[0], words[1:]
    # A closed terminal and a polite kill end a command as Ctrl-C does, cleaned up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores the terminal's end
            signal.signal(number, signal.default_int_handler)
    try:
        if name not in (*COMMANDS, *INNER):
            return _fail(f"there is no command '{name}'", STATUS_USAGE)
        status = command_of(name)(arguments) or 0
        sys.stdout.flush()  # here, where it may fail
        return status
    except Problem as problem:
        return _fail(f"{name}: {problem}", problem.status)
    except Refusal as refusal:  # names the command
        return _fail(str(refusal), refusal.status)
    except SystemExit as ended:  # argparse has printed a help
        sys.stdout.flush()
        return int(ended.code or 0)
    except KeyboardInterrupt:
        return _fail(f"{name}: stopped", STATUS_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter shall not complain at its end.
        leave_output()
        return STATUS_FAILED
    except OSError as error:
        # A full disk, a folder that went away: whatever nobody nearer to it has a sentence for.
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{name}: {error.strerror or error}{where}", STATUS_FAILED)


def command_of(name: str) -> Callable[[Sequence[str]], int | None]:
    """What runs a command with its words."""
    try:
        module = importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        if error.name == f"{__package__}.{name}":
            raise Problem("this command is not part of this checkout") from error
        raise Problem(f"{error.name} is missing; ./hakmem {name} installs it") from error
    return lambda words: _run(module, name, words)


def _run(module: Any, name: str, words: Sequence[str]) -> int | None:
    """Reads the words of a command, or of one of its own commands, and runs it."""
    parts = getattr(module, "PARTS", {})
    part = words[0] if parts and words else ""
    if part in parts:
        parser = _parser(f"{name} {part}", inspect.getdoc(parts[part]))
        module.add_arguments_of(part, parser)
        return parts[part](**vars(parser.read(words[1:])))
    if parts:
        abouts = [f"{key}: {(inspect.getdoc(one) or '').partition('.')[0]}." for key, one in parts.items()]
        parser = _parser(name, module.ABOUT, "COMMAND [ARGUMENT...]")
        parser.epilog = "\n\n".join([*abouts, "Each of these commands has --help."])
        if not part.startswith("-"):
            raise Usage(f"there is no command '{part}'; there are {', '.join(parts)}" if part else "which command?")
        return parser.read(words)
    parser = _parser(name, inspect.getdoc(module.run), getattr(module, "USAGE", "[OPTION...]"))
    module.add_arguments(parser)
    return module.run(**vars(parser.read(words)))


def _parser(name: str, about: str | None, usage: str | None = None) -> StrictParser:
    return StrictParser(name, description=about, usage=usage and f"./hakmem {name} {usage}")


def overview() -> str:
    lines = [f"  {name:<9} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["Usage: ./hakmem COMMAND [OPTIONS]; each has --help", "", *lines])


def _fail(sentence: str, status: int) -> int:
    print(f"hakmem: {' '.join(sentence.split())}", file=sys.stderr)
    try:
        sys.stdout.flush()  # what was printed before
    except OSError:  # one sentence is enough
        leave_output()
    return status
