# SPDX-License-Identifier: MIT
"""Instructions per operation, counted by valgrind's callgrind: exact where time is noisy, and there
where the machine has no hardware counters.

Each workload runs twice, with its short arguments and with twice as many operations; the difference of the counts over
the difference of the operations leaves out the start and the end of the process. Both runs are the same for the same
seed, so no A/A arm is needed; threads run one at a time under valgrind, so what they wait for each other is not in it.
"""

import dataclasses
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .base import Problem
from .measure import last_json, measure
from .model import Arm, Case, Session
from .progress import Reporter
from .store import Store
from .workloads import Workload

TIMEOUT_S = 300.0
# What says how much a workload does, by the names of its arguments; the first that it has.
COUNT_ARGUMENTS = ("SLEEP", "ITER", "ROUNDS", "STEPS", "COUNT", "PHASES", "DOCUMENTS", "MESSAGES", "TOKENS", "BYTES",
                   "BLOCKS")


@dataclass(frozen=True)
class Count:
    """What one run under callgrind executed."""

    instructions: int
    operations: int
    arguments: dict[str, Any]  # the harness's, in the order of the command line


class Uncountable(Exception):
    """Why there is no figure for a cell."""


@dataclass(frozen=True)
class Counting:
    """The instructions of the given workloads, as the last part of a session."""

    workloads: Sequence[Workload]

    def is_done(self, session: Session) -> bool:
        return not self._missing(session)

    def run(self, store: Store, reporter: Reporter) -> None:
        """Counts what is not counted yet; a cell that cannot be counted is on record as well."""
        missing = self._missing(store.session)
        if missing and shutil.which("valgrind") is None:
            raise Problem("--instructions needs valgrind; type: sudo apt-get install -y valgrind")
        for number, (workload, arm) in enumerate(missing, 1):
            name = workload.case.name
            reporter.note(f"instructions of {name}, {arm.name} ({number} of {len(missing)})")
            line: dict[str, Any] = {"case": name, "arm": arm.name}
            try:
                line |= per_operation(workload, arm)
            except Uncountable as reason:
                reporter.say(f"instructions of {name} under {arm.name}: {reason}")
                line |= {"per_operation": None, "sentence": str(reason)}
            store.add("instructions", line)

    def _missing(self, session: Session) -> list[tuple[Workload, Arm]]:
        counted = {(line["case"], line["arm"]) for line in session.instructions}
        return [(workload, arm) for workload in self.workloads for arm in session.arms
                if workload.case.kind == "bench" and not arm.again_of and (workload.case.name, arm.name) not in counted]


def per_operation(workload: Workload, arm: Arm) -> dict[str, Any]:
    """The difference quotient of two runs."""
    short = _count(workload.case, workload.smoke_command, arm)
    words = doubled(workload.smoke_command, short.arguments)
    return quotient(short, _count(workload.case, words, arm))


def quotient(short: Count, long: Count) -> dict[str, Any]:
    operations = long.operations - short.operations
    instructions = long.instructions - short.instructions
    if operations <= 0 or instructions <= 0:
        raise Uncountable("twice the work did not take more operations")
    return {"instructions": instructions, "operations": operations, "per_operation": instructions / operations}


def doubled(command: Sequence[str], arguments: dict[str, Any]) -> list[str]:
    """The command with twice the work; `arguments` are named in the order of its words."""
    names = list(arguments)
    for name in COUNT_ARGUMENTS:
        if name in names and names.index(name) + 1 < len(command):
            words = list(command)
            place = names.index(name) + 1  # the program comes first
            value = float(words[place]) * 2
            words[place] = f"{value:g}" if value != int(value) else str(int(value))
            return words
    raise Uncountable("none of its arguments says how much it does")


def read_totals(text: str) -> int:
    """The instructions in a file that callgrind wrote."""
    match = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _count(case: Case, words: Sequence[str], arm: Arm) -> Count:
    with tempfile.TemporaryDirectory(prefix="hakmem-") as scratch:
        command = ["valgrind", "--tool=callgrind", "--quiet", "--trace-children=yes"]
        command += [f"--callgrind-out-file={scratch}/counts.%p", *words]
        command += ["--expect", arm.library or "libc.so"]
        outcome = measure(dataclasses.replace(case, command=command, timeout_s=TIMEOUT_S), arm)
        sentence = outcome.sentence(case)
        if sentence:
            raise Uncountable(sentence)
        files = Path(scratch).glob("counts.*")
        instructions = sum(read_totals(file.read_text(errors="replace")) for file in files)
    workload = last_json(outcome.output) or {}
    operations = workload.get("operations", 0)
    if instructions == 0 or not operations:
        raise Uncountable("callgrind counted nothing")
    return Count(instructions, operations, workload["arguments"])
