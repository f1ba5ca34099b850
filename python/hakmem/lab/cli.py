# SPDX-License-Identifier: MIT
"""The command line: finds the module of a command and hands over.

A module has a typer application `app` (a command with commands of its own) or a function `run`
with typer annotations. Modules are imported only when asked for: scipy and matplotlib take a
second to load.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from typing import Any

import typer
from typer import main as typer_main
from typer.exceptions import TyperException

from .problem import Problem

COMMANDS = {
    "bench": "measures workloads under several allocators: table, pictures, one HTML page",
    "compare": "measures your own program under several allocators",
    "ab": "compares two settings or libraries, with a verdict and a record",
    "tune": "searches the settings that suit your own program",
    "replicate": "tries the experiments of hakmem's predecessor again: tables, pictures, records",
    "score": "says where hakmem stands, from stored results",
    "peers": "installs and lists the other allocators",
    "doctor": "says what makes measurements on this machine unreliable",
    "cost": "holds the predicted cost of each path against the measured one",
}
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
        if name not in COMMANDS:
            return _fail(f"there is no command '{name}'", STATUS_USAGE)
        status = _status(command_of(name)(arguments, f"./hakmem {name}", standalone_mode=False))
        sys.stdout.flush()  # here, where it may fail
        # typer makes a status of an interrupt; nobody has said anything yet.
        return _fail(f"{name}: stopped", status) if status == STATUS_INTERRUPTED else status
    except Problem as problem:
        return _fail(f"{name}: {problem}", problem.status)
    except TyperException as error:
        return _fail(f"{name}: {error.format_message()}", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(f"{name}: stopped", STATUS_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter shall not complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return STATUS_FAILED
    except OSError as error:
        # A full disk, a folder that went away: whatever nobody nearer to it has a sentence for.
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{name}: {error.strerror or error}{where}", STATUS_FAILED)


def command_of(name: str) -> Any:
    """The command's click object."""
    try:
        module = importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        if error.name == f"{__package__}.{name}":
            raise Problem("this command is not part of this checkout") from error
        raise Problem(f"{error.name} is missing; ./hakmem {name} installs it") from error
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(module.run)
    return typer_main.get_command(app)


def overview() -> str:
    lines = [f"  {name:<9} {text}" for name, text in COMMANDS.items()]
    return "\n".join(["Usage: ./hakmem COMMAND [OPTIONS]; each has --help", "", *lines])


def _status(result: Any) -> int:
    return result if isinstance(result, int) else 0


def _fail(sentence: str, status: int) -> int:
    print(f"hakmem: {' '.join(sentence.split())}", file=sys.stderr)
    return status
