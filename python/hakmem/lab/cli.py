# SPDX-License-Identifier: MIT
"""The command line: finds the module of a command and hands over.

options.py reads the words; a command's module has `run`. Modules are imported only when asked for: scipy and
matplotlib take a second to load.
"""

import importlib
import io
import signal
import sys
from collections.abc import Callable

from ..look.output import leave_output
from ..look.processes import Refusal
from .options import COMMANDS, INNER, parser_of
from .base import Problem

STATUS_FAILED, STATUS_USAGE, STATUS_INTERRUPTED = 1, 2, 130


def main(words: list[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    words = sys.argv[1:] if words is None else words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the name of a program may be no ASCII
    name = words[0] if words else ""
    # A closed terminal and a polite kill end a command as Ctrl-C does, cleaned up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores the terminal's end
            signal.signal(number, signal.default_int_handler)
    try:
        if name not in (*COMMANDS, *INNER):
            return _fail(f"there is no command '{name}'; there are {', '.join(COMMANDS)}", STATUS_USAGE)
        arguments = parser_of(name).read(words[1:])
        status = command_of(name)(**vars(arguments)) or 0
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


def command_of(name: str) -> Callable[..., int | None]:
    """What runs a command, by its arguments."""
    try:
        module = importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        if error.name == f"{__package__}.{name}":
            raise Problem("this command is not part of this checkout") from error
        raise Problem(f"{error.name} is missing; ./hakmem {name} installs it") from error
    return module.run


def _fail(sentence: str, status: int) -> int:
    print(f"hakmem: {' '.join(sentence.split())}", file=sys.stderr)
    try:
        sys.stdout.flush()  # what was printed before
    except OSError:  # one sentence is enough
        leave_output()
    return status
