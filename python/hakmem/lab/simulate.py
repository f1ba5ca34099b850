# SPDX-License-Identifier: MIT
"""How often verdicts are wrong: sessions drawn from recorded samples, with known answers.

    python -m hakmem.lab.simulate FILE [--rounds N] [--sessions N] [--case GLOB]
    python -m hakmem.lab.simulate --noise 2% ...

FILE is a recording (see recording.py) or a session (.jsonl); --noise makes samples up instead. A
drawn session begins at a random recorded round and goes on in the order of time, so that it drifts
as the machine did, and grows with its noise as ab would let it; within each round the values are
dealt to a, a again and b at random. All come from equal arms (or from arms made equal, each divided
by its own median), so whatever b differs by was planted:

    A/A        nothing was: any GO or NO-GO is false
    slower     b takes 2 % more time: a NO-GO
    faster     b takes 5 % less: a GO
    fatter     b takes 5 % less and 5 % more memory: never a GO
"""

from __future__ import annotations

import dataclasses
import fnmatch
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy
import typer

from . import verdict
from .problem import Problem, Usage
from .recording import ARMS, Recorded, read
from .verdict import Evidence, Rules, Series
from .wording import parse_percent, percent

SESSIONS = 200
RESAMPLES = 299
"""The figures of a table need no third digit; a simulation has ten thousand intervals."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


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


def made_up(noise: float, rounds: int = 2000) -> Recorded:
    """Of a machine with this noise of a run, that also disturbs one run in twenty by a tenth."""
    generator = numpy.random.default_rng(1)
    shape = (rounds, ARMS)
    disturbed = (generator.random(shape) < 0.05) * generator.exponential(0.1, shape)
    cost = numpy.exp(generator.normal(0, noise, shape) + disturbed)
    return Recorded("made up", cost, numpy.ones(shape))


def draw(
    recorded: Sequence[Recorded], plant: Plant, generator: numpy.random.Generator
) -> list[Evidence]:
    """A session of all cases, over the same time, as long as the shortest recording."""
    count = min(len(one.cost) for one in recorded)
    if count < Rules.samples_min or any(one.cost.shape[1] < ARMS for one in recorded):
        raise Problem(f"simulating needs {ARMS} arms and {Rules.samples_min} rounds")
    start = int(generator.integers(0, count))
    found = []
    for one in recorded:
        rows = (start + numpy.arange(count)) % count
        columns = numpy.tile(numpy.arange(one.cost.shape[1]), (count, 1))
        columns = generator.permuted(columns, axis=1)[:, :ARMS]
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


def first_rounds(evidence: Sequence[Evidence], rounds: int) -> list[Evidence]:
    """What had been measured after so many rounds."""

    def cut(series: Series) -> Series:
        parts = (series.a, series.again, series.b)
        return Series(*({r: v for r, v in part.items() if r < rounds} for part in parts))

    return [
        dataclasses.replace(one, cost=cut(one.cost), memory=cut(one.memory)) for one in evidence
    ]


def grown(evidence: Sequence[Evidence], rules: Rules) -> list[Evidence]:
    """As much of the session as ab would have measured."""
    rounds, measured = 0, first_rounds(evidence, verdict.ROUNDS)
    while (wanted := verdict.rounds_wanted(measured, rules)) > rounds:
        rounds = wanted
        measured = first_rounds(evidence, rounds)
    return measured


@dataclass
class Tally:
    """The verdicts of many sessions."""

    words: Counter[str] = dataclasses.field(default_factory=Counter)
    rounds: list[int] = dataclasses.field(default_factory=list)

    def percent_of(self, word: str) -> float:
        return 100 * self.words[word] / len(self.rounds)


def simulate(
    recorded: Sequence[Recorded], sessions: int, plant: Plant, rules: Rules = Rules(),
    rounds: int | None = None, seed: int = 1,
) -> Tally:
    """How often each word was the verdict over all these cases."""
    generator = numpy.random.default_rng(seed)
    rules = dataclasses.replace(rules, resamples=RESAMPLES)
    tally = Tally()
    for _ in range(sessions):
        evidence = draw(recorded, plant, generator)
        evidence = first_rounds(evidence, rounds) if rounds else grown(evidence, rules)
        tally.words[verdict.decide(evidence, rules).word] += 1
        tally.rounds.append(len(evidence[0].cost.a))
    return tally


@app.command()
def main(
    file: Annotated[Path | None, typer.Argument(help="A recording or a session.")] = None,
    noise: Annotated[str, typer.Option(help="Of made-up samples instead of FILE's.")] = "",
    rounds: Annotated[
        int | None, typer.Option(help="Of each session; by the noise when not given.", min=9)
    ] = None,
    sessions: Annotated[int, typer.Option(help="Sessions to draw.", min=1)] = SESSIONS,
    case: Annotated[str, typer.Option(help="Only cases of this name or pattern.")] = "*",
    slowdown: Annotated[str, typer.Option(help="Planted, in time.")] = "2%",
    fat: Annotated[str, typer.Option(help="Planted, in peak memory.")] = "5%",
) -> None:
    """Draws sessions from recorded samples and counts the verdicts."""
    if (file is None) != bool(noise):
        raise Usage("either FILE or --noise")
    known = [made_up(parse_percent(noise))] if file is None else read(file)
    recorded = [one for one in known if fnmatch.fnmatchcase(one.case, case)]
    if not recorded:
        raise Usage(f"{file} has no case '{case}'")
    rows = [(f"{one.case}, noise {percent(one.noise)}", [one]) for one in recorded]
    if len(recorded) > 1:
        rows.append((f"all {len(recorded)} in one session", recorded))
    chosen = plants(parse_percent(slowdown), parse_percent(fat))
    print(f"{sessions} sessions each: GO / NO-GO in per cent (median of the rounds)")
    print("".join([f"{'':36}", *(f"{plant.name:>25}" for plant in chosen)]))
    for name, cases in rows:
        line = f"{name:36}"
        for plant in chosen:
            tally = simulate(cases, sessions, plant, rounds=rounds)
            go, no_go = (tally.percent_of(word) for word in (verdict.GO, verdict.NO_GO))
            median = f"({numpy.median(tally.rounds):.0f})"
            line += f"{f'{go:.1f} / {no_go:.1f} {median}':>25}"
        print(line, flush=True)


if __name__ == "__main__":
    try:
        app()
    except Problem as problem:
        print(f"simulate: {problem}", file=sys.stderr)
        sys.exit(problem.status)
