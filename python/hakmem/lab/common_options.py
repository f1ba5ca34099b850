# SPDX-License-Identifier: MIT
"""Options that several commands have, so that they mean the same in each, and types of values."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..words import Parser


def at_least(least: int, kind: type = int) -> Callable[[str], float]:
    """A number of this or more."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= least:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"needs {what} of {least} or more, not '{text}'")
        return value

    return read


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"needs a number, not '{text}'") from None


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"needs a whole number, not '{text}'") from None


def add_alloc(parser: Parser) -> None:
    parser.add_argument("--alloc", metavar="LIST", default="",
                        help="allocators, by comma; a path is a library of your own")


def add_workload(parser: Parser, default: str = "") -> None:
    parser.add_argument("--workload", metavar="LIST", default=default,
                        help="workloads by name or pattern, by comma, whatever their suite")


def add_seed(parser: Parser) -> None:
    parser.add_argument("--seed", metavar="N", type=whole, help="seed of the order; drawn when not given")


def add_results(parser: Parser, about: str = "folder where sessions are saved") -> None:
    parser.add_argument("--results", metavar="FOLDER", type=Path, help=about)


def add_output(parser: Parser, about: str = "folder where pictures and page go") -> None:
    parser.add_argument("--output", metavar="FOLDER", type=Path, help=about)


def add_new(parser: Parser, about: str = "begin a new session though one is unfinished") -> None:
    parser.add_argument("--new", action="store_true", help=about)


def add_force(parser: Parser, about: str = "measure though the machine is unfit, or measured by others") -> None:
    parser.add_argument("--force", action="store_true", help=about)


def add_force_beside_others(parser: Parser) -> None:
    add_force(parser, "measure even while another session is being measured")


def add_rest(parser: Parser, about: str) -> None:
    parser.add_argument("--rest", action=argparse.BooleanOptionalAction, default=True, help=about)


def add_json(parser: Parser, about: str) -> None:
    parser.add_argument("--json", dest="as_json", action="store_true", help=about)


def add_program(parser: Parser, name: str = "command") -> None:
    """The first word that is no option, and all behind it."""
    parser.add_argument(name, metavar="PROGRAM", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
