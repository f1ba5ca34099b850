"""How often verdicts are wrong: sessions drawn from recorded samples, with known answers.

    python -m hakmem_lab.simulate FILE [--rounds N] [--sessions N] [--case GLOB]

FILE is a session (.jsonl) or a recording (--save makes one: the samples without all else). A drawn
session is a stretch of recorded rounds, so that it drifts as the machine did; within each round
the values are dealt to a, a again and b at random. All come from equal arms (or from arms made
equal, each divided by its own median), so whatever b differs by was planted:

    A/A        nothing was: any GO or NO-GO is false
    slower     b takes 2 % more time: a NO-GO
    faster     b takes 5 % less: a GO
    fatter     b takes 5 % less, and 5 % more memory: never a GO
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy
import typer

from . import store, verdict
from .model import Session
from .problem import Problem, Usage
from .verdict import Evidence, Rules, Series
from .wording import parse_percent, percent

SESSIONS = 200
ARMS_NEEDED = 3
RESAMPLES = 499
"""The figures of a table need no third digit; a simulation has ten thousand intervals."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True)
class Recorded:
    """Samples of one case: a row for each round, a column for each arm."""

    case: str
    cost: numpy.ndarray
    memory: numpy.ndarray

    def to_json(self) -> dict[str, Any]:
        costs = [[float(f"{value:.5g}") for value in row] for row in self.cost]
        return {"cost_ns": costs, "peak_kib": self.memory.astype(int).tolist()}


@dataclass(frozen=True)
class Plant:
    """What is added to b."""

    name: str
    time: float = 0.0
    memory: float = 0.0


def plants(slowdown: float, fat: float) -> list[Plant]:
    return [
        Plant("A/A"),
        Plant(f"slower by {percent(slowdown)}", time=slowdown),
        Plant("faster by 5.0 %", time=-0.05),
        Plant(f"the same, {percent(fat)} fatter", time=-0.05, memory=fat),
    ]


def read(file: Path) -> list[Recorded]:
    """The cases of a session or of a recording."""
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
    except (ValueError, KeyError, TypeError) as error:
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


def draw(
    recorded: Sequence[Recorded], rounds: int, plant: Plant, generator: numpy.random.Generator
) -> list[Evidence]:
    """One session of all cases, over the same stretch of time."""
    start = int(generator.integers(0, 1 << 31))
    found = []
    for one in recorded:
        count = len(one.cost)
        if count < rounds or one.cost.shape[1] < ARMS_NEEDED:
            raise Problem(
                f"{one.case} has {count} rounds of {one.cost.shape[1]} arms;"
                f" simulating needs {rounds} of {ARMS_NEEDED}"
            )
        rows = (start % count + numpy.arange(rounds)) % count
        columns = generator.permuted(
            numpy.tile(numpy.arange(one.cost.shape[1]), (rounds, 1)), axis=1
        )[:, :ARMS_NEEDED]
        cost = _dealt(one.cost, rows, columns, 1 + plant.time)
        memory = _dealt(one.memory, rows, columns, 1 + plant.memory)
        found.append(Evidence(one.case, cost, memory))
    return found


def _dealt(
    values: numpy.ndarray, rows: numpy.ndarray, columns: numpy.ndarray, factor: float
) -> Series:
    equal = values / numpy.median(values, axis=0)
    dealt = equal[rows[:, None], columns] * [1.0, 1.0, factor]
    return Series(*({r: float(v) for r, v in enumerate(column)} for column in dealt.T))


def simulate(
    recorded: Sequence[Recorded], rounds: int, sessions: int, plant: Plant, rules: Rules,
    seed: int = 1,
) -> Counter[str]:
    """How often each word was the verdict over all these cases."""
    generator = numpy.random.default_rng(seed)
    rules = dataclasses.replace(rules, resamples=RESAMPLES)
    return Counter(
        verdict.decide(draw(recorded, rounds, plant, generator), rules).word
        for _ in range(sessions)
    )


@app.command()
def main(
    file: Annotated[Path, typer.Argument(help="A session or a recording.")],
    rounds: Annotated[int, typer.Option(help="Rounds of each.", min=2)] = verdict.ROUNDS,
    sessions: Annotated[int, typer.Option(help="Sessions to draw.", min=1)] = SESSIONS,
    case: Annotated[str, typer.Option(help="Only cases of this name or pattern.")] = "*",
    slowdown: Annotated[str, typer.Option(help="Planted, in time.")] = "2%",
    fat: Annotated[str, typer.Option(help="Planted, in peak memory.")] = "5%",
    save: Annotated[Path | None, typer.Option(help="Writes the samples alone, and ends.")] = None,
) -> None:
    """Draws sessions from recorded samples and counts the verdicts."""
    recorded = [one for one in read(file) if fnmatch.fnmatchcase(one.case, case)]
    if not recorded:
        raise Usage(f"{file} has no case '{case}'")
    if save is not None:
        _save(file, recorded, save)
        return
    rows: list[tuple[str, list[Recorded]]] = [(one.case, [one]) for one in recorded]
    if len(recorded) > 1:
        rows.append((f"one session of all {len(recorded)}", recorded))
    print(f"{sessions} sessions of {rounds} rounds each: how many were GO / NO-GO, in per cent")
    chosen = plants(parse_percent(slowdown), parse_percent(fat))
    print("".join([f"{'':32}", *(f"{plant.name:>24}" for plant in chosen)]))
    for name, cases in rows:
        line = f"{name:32}"
        for plant in chosen:
            words = simulate(cases, rounds, sessions, plant, Rules())
            go, no_go = (100 * words[word] / sessions for word in (verdict.GO, verdict.NO_GO))
            line += f"{f'{go:.1f} / {no_go:.1f}':>24}"
        print(line, flush=True)


def _save(file: Path, recorded: Sequence[Recorded], target: Path) -> None:
    head: dict[str, Any] = {}
    if file.suffix == ".jsonl":
        session = store.load(file)
        head = {"created": session.created, "commit": session.commit, "machine": session.machine}
        head["arms"] = [arm.name for arm in session.arms]
    text = json.dumps({**head, "cases": {one.case: one.to_json() for one in recorded}})
    target.write_text(text.replace("]], ", "]],\n").replace("}, ", "},\n") + "\n")


if __name__ == "__main__":
    try:
        app()
    except Problem as problem:
        print(f"simulate: {problem}", file=sys.stderr)
        sys.exit(problem.status)
