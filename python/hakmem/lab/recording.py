# SPDX-License-Identifier: MIT
"""Recordings: what equal arms cost on a machine, for simulate.py to draw sessions from.

    python -m hakmem.lab recording FILE [--workload LIST] [--rounds N]

measures hakmem under three names and writes FILE: of each workload a row of values for each round.
On a quiet machine: the doctor must agree, or --force be given. The default is as long as the
longest session of ab and takes about ten minutes; stopped, it goes on where it was.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from scipy import stats

from ..words import Parser
from . import arms, runner, store, workloads
from .ab import check_fitness
from .bench import only_session, prepared
from .common_options import add_force, add_results, add_workload, at_least
from .model import Arm, Session
from .problem import Problem
from .verdict import ROUNDS_MAX
from .wording import percent

ARMS = 3  # a, a again and b
WORKLOADS = "random_mixed_400,replace_400,comprehensive_fifo_64"
"""Short ones, so that many rounds fit into ten minutes, whose time is the processor's: what waits
for memory or the kernel is noisier, and few machines are quiet enough to show 2 % of it."""



@dataclass(frozen=True)
class Recorded:
    """Samples of one case: a row for each round, a column for each arm."""

    case: str
    cost: numpy.ndarray
    memory: numpy.ndarray

    @property
    def noise(self) -> float:
        """Of a typical run: what arms of a round differ by, so without drift and disturbed runs."""
        logarithms = numpy.log(self.cost)
        differences = logarithms[:, 1] - logarithms[:, 0]
        return float(stats.median_abs_deviation(differences, scale="normal") / math.sqrt(2))

    def to_json(self) -> dict[str, Any]:
        """Five digits: noise is a thousand times larger."""
        costs = [[float(f"{value:.5g}") for value in row] for row in self.cost]
        return {"cost_ns": costs, "peak_kib": self.memory.astype(int).tolist()}


def read(file: Path) -> list[Recorded]:
    """The cases of a recording, or of a session (.jsonl)."""
    if file.suffix == ".jsonl":
        return list(recorded_of(store.load(file)))
    try:
        cases = json.loads(file.read_text())["cases"]
        return [
            Recorded(name, numpy.array(one["cost_ns"], float), numpy.array(one["peak_kib"], float))
            for name, one in cases.items()
        ]
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{file} is neither a session nor a recording") from error


def recorded_of(session: Session) -> Iterator[Recorded]:
    """The rounds in which no arm failed."""
    for case in session.cases:
        cells = [{s.round: s for s in session.of(case.name, arm.name)} for arm in session.arms]
        rounds = sorted(set.intersection(*(set(cell) for cell in cells)))
        cost = numpy.array([[cell[r].cost_ns for cell in cells] for r in rounds])
        memory = numpy.array([[float(cell[r].peak_kib) for cell in cells] for r in rounds])
        if rounds:
            yield Recorded(case.name, cost, memory)


def write(session: Session, recorded: Sequence[Recorded], file: Path) -> None:
    """With what one needs to know of its origin; a line has four rounds."""
    head: dict[str, Any] = {
        "created": session.created, "commit": session.commit, "machine": session.machine,
        "findings": session.findings,
    }
    cases = {one.case: one.to_json() for one in recorded}
    text = re.sub(r"((?:\[[^][]*\], ){4}|\}, )", r"\1\n", json.dumps({**head, "cases": cases}))
    try:
        file.write_text(text + "\n")
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}") from error


def equal_arms() -> list[Arm]:
    first = arms.our_arm()
    others = [f"{first.name} ({number})" for number in range(2, ARMS + 1)]
    return [
        first, *(dataclasses.replace(first, name=name, again_of=first.name) for name in others)
    ]


def add_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="where the recording goes")
    add_workload(parser, WORKLOADS)
    parser.add_argument("--rounds", metavar="N", type=at_least(9), default=ROUNDS_MAX,
                        help="runs of each arm; %(default)s when not given")
    add_results(parser, "folder where the session is saved")
    add_force(parser, "measure though the machine is unfit")


def run(file: Path, workload: str, rounds: int, results: Path | None, force: bool) -> None:
    """Measures equal arms and writes a recording of them."""
    chosen = workloads.select(workloads.read_workloads(), patterns=workload)
    with only_session(force):
        findings = check_fitness(force)
        session = runner.run_session(
            [one.case.without_rest for one in prepared(chosen)], equal_arms(), rounds, None,
            ["recording", "--workload", workload], results=results, again=False,
            findings=findings,
        )
    recorded = list(recorded_of(session))
    write(session, recorded, file)
    for one in recorded:
        print(f"{one.case}: {len(one.cost)} rounds, the noise of a run is {percent(one.noise)}")
