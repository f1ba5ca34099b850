# SPDX-License-Identifier: MIT
"""What each command of the laboratory can be told: its help and its options, and the defaults that the help names.

Only standard modules, for any Python from 3.9 on: a help, and the refusal of a wrong option, need no packages.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..words import Parser

DEFAULT = "default"
"""What `ab` calls hakmem with its own settings."""
AUTO = "auto"
"""The record of `ab` with the next number."""
ROUNDS, ROUNDS_MAX = 25, 201
"""A session of `ab` begins with the first and grows with the machine's noise; decision 0005 says why."""
RUNS = 9
TIMEOUT_S = 3600.0
SERVER_S = 6.0
SCALE_WORKLOADS = ("larson", "pairs", "many", "server", "own", "large", "swap")
OWN_PROGRAM = ["[OPTION...] -- PROGRAM [ARGUMENT...]"]


# ---- Types of values. ----


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


# ---- Options that several commands have, so that they mean the same in each. ----


SHARED = {
    "--alloc": {"metavar": "LIST", "default": "",
                "help": "allocators with commas between: names of ./hakmem peers list, or paths of libraries; all that are "
                        "installed when not given"},
    "--workload": {"metavar": "LIST", "default": "",
                   "help": "workloads of any suite by name or pattern, with commas between"},
    "--seed": {"metavar": "N", "type": whole, "help": "seed of the order; drawn when not given"},
    "--results": {"metavar": "FOLDER", "type": Path, "help": "folder where sessions are saved"},
    "--output": {"metavar": "FOLDER", "type": Path, "help": "folder where pictures and page go"},
    "--new": {"action": "store_true", "help": "begin a new session though one is unfinished"},
    "--force": {"action": "store_true", "help": "measure even while another session is being measured"},
    "--rest": {"action": argparse.BooleanOptionalAction, "default": True},
    "--json": {"dest": "as_json", "action": "store_true"},
}


def share(parser: Parser, name: str, about: str = "") -> None:
    """Adds one of them; `about` is its help if that is another."""
    option = parser.add_argument(name, **SHARED[name])
    option.help = about or option.help  # some versions of argparse add words of their own


def add_program(parser: Parser, name: str = "command") -> None:
    """The first word that is no option, and all behind it."""
    parser.add_argument(name, metavar="PROGRAM", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


# ---- The commands. ----


def bench(parser: Parser) -> None:
    parser.description = "Measures workloads under several allocators and shows who is best at what."
    add = parser.add_argument
    add("--suite", metavar="NAME", default="",
        help="quick, core, full, programs, idle, aging, servers, secure, secure-quick, bugs or attacks; quick when not"
        " given")
    share(parser, "--alloc")
    share(parser, "--workload")
    add("--trace", metavar="FILE", type=Path, action="append",
        help="replay a trace of ./hakmem record; may be repeated")
    add("--runs", metavar="N", type=at_least(1),
        help="runs of each workload under each allocator; when not given, 5 of quick and bugs, 20 of attacks, 3 of "
        "secure, secure-quick, idle and aging, 2 of servers, 9 of others")
    share(parser, "--seed")
    add("--seconds", metavar="N", type=at_least(5, float), default=SERVER_S,
        help="with --suite servers: how long each run is loaded, 5 or more; %(default)g when not given, 600 shows more")
    share(parser, "--rest", "read the memory again after the work, or not; --rest when not given")
    add("--instructions", action="store_true", help="also count instructions with callgrind")
    share(parser, "--results")
    share(parser, "--output")
    share(parser, "--json", "print the summary as JSON")
    share(parser, "--new")
    add("--list", dest="listing", action="store_true", help="list workloads, run nothing")
    share(parser, "--force")


def compare(parser: Parser) -> None:
    parser.forms = OWN_PROGRAM
    parser.description = (
        "Measures your own program under several allocators: time, CPU, memory, faults.\n\n"
        "The program runs where you are, without input, and must end with status 0. A server is loaded by the command "
        "of --load and then stopped.")
    share(parser, "--alloc")
    parser.add_argument("--runs", metavar="N", type=at_least(1), default=RUNS,
                        help="runs under each allocator; %(default)s when not given")
    parser.add_argument("--load", metavar="COMMAND",
                        help="the program is a server, and this command loads it; the time of the load counts")
    share(parser, "--rest", "of a server: read its memory again after the load, or not; --rest when not given")
    parser.add_argument("--timeout", metavar="SECONDS", type=at_least(1, float), default=TIMEOUT_S,
                        help="time that one run may take; %(default)g when not given")
    share(parser, "--results")
    share(parser, "--output")
    share(parser, "--json", "print the answer as JSON")
    share(parser, "--new")
    share(parser, "--force")
    add_program(parser)
    parser.epilog = "Exit status: 0, or 1 when no two allocators could be compared."


def ab(parser: Parser) -> None:
    parser.forms = ["[OPTION...] [-- PROGRAM [ARGUMENT...]]"]
    parser.description = (
        "Compares two settings or libraries: is b better than a? GO, NO-GO or INCONCLUSIVE.\n\n"
        "Runs the workloads, or your own program, on a, on b and on a again, interleaved.")
    add = parser.add_argument
    add("--a", metavar="WHAT", default=DEFAULT,
        help=f"what there is: option=value, with commas between; lib=FILE; {DEFAULT}, which it is when not given")
    add("--b", metavar="WHAT", default=DEFAULT, help="what may be better, in the same form")
    add("--suite", metavar="NAME", default="", help="quick, core or full; quick when nothing else is given")
    share(parser, "--workload")
    add("--min-effect", metavar="PERCENT", default="1%",
        help="the smallest change of time that counts; 1%% when not given")
    add("--rounds", metavar="N", type=whole,
        help=f"samples of each arm; {ROUNDS} to {ROUNDS_MAX}, by the noise, when not given")
    add("--title", metavar="TEXT", default="", help="title of the record")
    add("--why", metavar="TEXT", default="", help="why b should be better, with a figure")
    add("--record", metavar="FILE", default="",
        help=f"a file for the record, or {AUTO}: the next number in docs/decisions")
    share(parser, "--seed")
    share(parser, "--results")
    share(parser, "--new")
    share(parser, "--force", "measure though the machine is unfit, or measured by others")
    share(parser, "--json", "print the verdict as JSON")
    add_program(parser, "program")


def tune(parser: Parser) -> None:
    parser.forms = OWN_PROGRAM
    parser.description = (
        "Searches the settings of hakmem for your program, and proves a gain before it names any.\n\n"
        "The program runs in this directory, without input, and must end with status 0. If the search is stopped or "
        "killed, the same command continues it. docs/learning.md explains the answer.")
    add = parser.add_argument
    add("--minutes", metavar="N", type=number, default=10.0,
        help="time for the search and the verdict together; %(default)g when not given")
    add("--goal", metavar="GOAL", default="both", help="what to reduce: time, memory or both; both when not given")
    add("--weight", metavar="N", type=number, default=0.5,
        help="with --goal both: 1 %% of memory is worth so many %% of time; %(default)g when not given")
    # The change of time that `ab` calls a loss: twice as much would let a winner be a NO-GO there; half as much leaves
    # few winners on a noisy machine.
    add("--guard", metavar="PERCENT", default="1%",
        help="time and peak memory may each grow by this at most, whatever the goal; 1%% when not given")
    add("--load", metavar="COMMAND",
        help="the program is a server, and this command loads it; the time of the load counts")
    add("--metric", metavar="REGEX", default="",
        help="the last number that this matches in the output of the load, or else of the program, counts instead of "
        "the time; less is better")
    add("--rate", action="store_true", help="more is better for the number of --metric")
    add("--output", metavar="FILE", type=Path,
        help="the profile file; without it, a winner is written to PROGRAM.profile in this directory")
    share(parser, "--seed")
    share(parser, "--results", "folder where all runs are saved")
    share(parser, "--new", "start again although a search is unfinished")
    share(parser, "--force", "measure although the machine is busy")
    share(parser, "--json", "print the answer as JSON")
    add_program(parser)
    parser.epilog = "Example: ./hakmem tune --minutes 30 --goal memory -- python3 script.py"


def score(parser: Parser) -> None:
    parser.description = "Says where hakmem stands: real programs first, then milestones. Measures nothing."
    share(parser, "--results")
    parser.add_argument("--session", metavar="FILE", type=Path, help="only this session's file")
    share(parser, "--json", "print everything as JSON")


def peers(parser: Parser) -> None:
    parser.forms = ["install [OPTION...] [NAME...]", "list [OPTION...]", "add NAME LIBRARY", "remove NAME..."]
    parser.description = "Installs, lists, adds and removes the other allocators."
    parser.add_argument("command", metavar="COMMAND", choices={
        "install": ("install [NAME...]", "build or install the allocators of these names, all when none is given, and "
                    "prove that each serves a process"),
        "list": ("list", "show which allocators are here: versions, sources, compilers, flags"),
        "add": ("add NAME LIBRARY", "record a library of your own under a name, after proving that it takes over malloc "
                "and operator new"),
        "remove": ("remove NAME...", "forget allocators and delete what was built of them; your own files and packages "
                   "stay"),
    })
    parser.add_argument("names", metavar="NAME", nargs="*", help=argparse.SUPPRESS)
    share(parser, "--force", "with install: make again what is there already")
    share(parser, "--json", "with list: print the list as JSON")


def doctor(parser: Parser) -> None:
    parser.description = "Says what on this machine makes measurements unreliable."
    share(parser, "--json", "print the findings as JSON")
    parser.epilog = "Exit status: 0, or 1 when the machine is not fit for measuring now."


def cost(parser: Parser) -> None:
    parser.description = (
        "Compares the predicted cost of each path of hakmem with the measured one: instructions, cache lines, atomics, "
        "calls, faults, cycles.")
    share(parser, "--json", "print everything measured as JSON")
    parser.add_argument("--paths", metavar="GLOB", default="*", help="only the paths of that name: 'span_*'")


def scale(parser: Parser) -> None:
    parser.forms = ["[OPTION...] [WORKLOAD...]"]
    parser.description = "Counts cache lines, atomic operations and locks of an operation on N processors."
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD",
        help=f"{', '.join(SCALE_WORKLOADS)}; larson and server when not given")
    share(parser, "--json", "print all counts as JSON")
    add("--threads", default="2,8,32", metavar="N,...", help="numbers of processors; %(default)s when not given")
    add("--turns", metavar="N", type=int, default=100, help="turns of a thread that count; %(default)s when not given")
    add("--warm-up", metavar="N", type=int, help="turns before these; as many when not given")
    add("--turn-ns", metavar="NS", type=int, default=1000,
        help="what the clock says that a turn takes; %(default)s when not given")
    add("--library", action="append", metavar="FILE", help="an allocator; hakmem's when not given; may be repeated")
    add("--time", action="store_true",
        help="run here, untraced: the least nanoseconds an operation of 5 runs by turns")
    add("--picture", type=Path, metavar="FILE", help="a PNG: cost of an operation against processors")


COMMANDS = {one.__name__: one for one in (bench, compare, ab, tune, score, peers, doctor, cost)}
INNER = {"scale": scale}
"""python -m hakmem.lab NAME, for who works on hakmem itself."""


def parser_of(name: str) -> Parser:
    parser = Parser(name)
    {**COMMANDS, **INNER}[name](parser)
    return parser
