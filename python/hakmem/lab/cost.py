# SPDX-License-Identifier: MIT
"""`cost`: holds the predicted cost of each path of the allocator against the measured one.

Predictions: lab/cost_model.toml. Measurements: lab/paths (cost_measure.py). What contradicts a
belief beyond the stated tolerance is marked; lab/README.md has the method.
"""

import dataclasses
import fnmatch
import json
import os
import random
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import base, cost_measure, cost_model
from .base import BUILD, ROOT, Problem, Usage
from .cost_measure import Counts, Driver
from .cost_model import QUANTITIES, Belief, Machine, Model
from .progress import Bar
from .tables import Blocks, Layout, plain_table

MODEL = ROOT / "lab" / "cost_model.toml"
DRIVER = BUILD / "lab" / "paths"

ROUNDS_COUNTED = 64  # so that the ticks among slow operations, one in 64, stay below the median
ROUNDS_TRACED = 9
ROUNDS_TIMED = 512
PROCESSES_TIMED = 9
SEED = 4141


@dataclass(frozen=True)
class Verdict:
    """One path: its beliefs by quantity, and how its own counters disagree, if they do."""

    path: str
    title: str
    beliefs: dict[str, Belief]
    nanoseconds: float
    noise_ns: float
    functions: dict[str, float]  # instructions by function
    stray_counters: dict[str, tuple[float, float]]  # counted, believed


def run(as_json: bool, paths: str) -> int:
    """Predicted against measured: instructions, cache lines, atomics, calls, faults, cycles."""
    model = cost_model.load(MODEL)
    names = [name for name in model.paths if fnmatch.fnmatchcase(name, paths)]
    if not names:
        raise Usage(f"no path is called '{paths}'; there are {', '.join(model.paths)}")
    driver = Driver(DRIVER)
    missing = [name for name in names if name not in driver.paths]
    if missing:
        raise Problem(f"{DRIVER} does not know {', '.join(missing)}; type: ./hakmem build --all")
    with Bar(len(names) * (1 + PROCESSES_TIMED)) as bar:
        if not cost_measure.has_valgrind():
            bar.say("valgrind is missing (apt-get install valgrind): time only, no instructions")
        counts = count_all(driver, model, names, bar)
        found, nanoseconds = interleaved(driver, model, names, bar)
    rate = cycles_per_ns(found)
    here = cost_model.measured_machine(model.machine, found)
    constants = cost_model.judge_machine(model, here)
    verdicts = [verdict_of(model, here, name, counts[name], nanoseconds[name], rate) for name in names]
    if as_json:
        print(json.dumps({"machine": base.describe_machine(), "commit": base.commit(), "created": base.now(),
                          "cycles_per_ns": rate,
                          "constants": {name: dataclasses.asdict(belief) for name, belief in constants.items()},
                          "paths": [dataclasses.asdict(verdict) for verdict in verdicts]}, indent=1))
    else:
        show(verdicts, constants, Console())
    strayed = [verdict.path for verdict in verdicts if verdict.stray_counters]
    if strayed:
        raise Problem(f"not measured, since another path was taken: {', '.join(strayed)}")
    return 0


# ---- Measuring: counts first, several at once, since nothing disturbs them; then times, one at a time. ----


def count_all(driver: Driver, model: Model, names: list[str], bar: Bar) -> dict[str, Counts]:
    bar.show("counting")
    with tempfile.TemporaryDirectory(prefix="hakmem-cost-") as folder, ThreadPoolExecutor(
        len(os.sched_getaffinity(0))
    ) as pool:
        place = Path(folder) if cost_measure.has_valgrind() else None

        def count(name: str) -> Counts:
            found = cost_measure.count(driver, model.paths[name], ROUNDS_COUNTED, ROUNDS_TRACED, place)
            bar.advance()
            return found

        return dict(zip(names, pool.map(count, names), strict=True))


def interleaved(
    driver: Driver, model: Model, names: list[str], bar: Bar
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Each path in a process of its own, in an order of its own each time, the machine's constants
    in between: what disturbs for a while shall not meet one path only."""
    bar.show("timing")
    order = random.Random(SEED)
    constants: list[dict[str, float]] = []
    nanoseconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(PROCESSES_TIMED):
        constants.append(driver.machine())
        for name in order.sample(names, len(names)):
            nanoseconds[name].append(driver.time(model.paths[name], ROUNDS_TIMED))
            bar.advance()
    return {key: statistics.median(entry[key] for entry in constants) for key in constants[0]}, nanoseconds


def verdict_of(
    model: Model, here: Machine, name: str, counts: Counts, nanoseconds: Sequence[float], rate: float
) -> Verdict:
    path, typical = model.paths[name], statistics.median(nanoseconds)
    quarters = statistics.quantiles(nanoseconds, n=4)
    measured = {**dataclasses.asdict(counts), "cycles": typical * rate}
    return Verdict(name, path.title, cost_model.judge(model, cost_model.predict(model, here, path, rate), measured),
                   typical, (quarters[2] - quarters[0]) / 2, counts.functions,
                   cost_model.stray_counters(path.counters, counts.counters))


def cycles_per_ns(constants: dict[str, float]) -> float:
    """Of the time stamp counter; where the driver has none, what the system says of the clock."""
    if constants["cycles_per_ns"] > 0:
        return constants["cycles_per_ns"]
    frequency = psutil.cpu_freq()
    if frequency is None or not frequency.max:
        raise Problem("the frequency of this processor is not known, so cycles cannot be told")
    return frequency.max / 1000


# ---- Showing. ----


def number(value: float | None) -> str:
    """Short: whole when large, at most two decimals, nothing behind the point that is zero."""
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 10 else f"{round(value, 2):g}"


def cell(belief: Belief) -> Text:
    """"believed measured", the measured one marked where it contradicts."""
    if belief.predicted == 0 and not belief.wrong and (belief.measured or 0) < 0.05:
        return Text("-", style="dim")
    text = Text(f"{number(belief.predicted)} ")
    return text.append(number(belief.measured) + "!" * belief.wrong, style="bold red" if belief.wrong else "")


def beliefs_table(verdicts: Sequence[Verdict]) -> Blocks:
    def make(quantities: Sequence[str], _: Layout) -> Table:
        table = plain_table(2)
        table.add_column("path", no_wrap=True)
        for quantity in quantities:
            table.add_column(quantity, justify="right", no_wrap=True)
        for one in verdicts:
            time = Text(f"{number(one.nanoseconds)} ±{number(one.noise_ns)}")
            cells = (time if quantity == "ns" else cell(one.beliefs[quantity]) for quantity in quantities)
            table.add_row(Text(one.path, style="red" if one.stray_counters else ""), *cells)
        return table

    return Blocks(make, [*QUANTITIES, "ns"])


def show(verdicts: list[Verdict], constants: dict[str, Belief], console: Console) -> None:
    console.print("Each path: believed, then measured; ! where the belief is wrong\n")
    console.print(beliefs_table(verdicts))
    text = Text("\nThe machine: ")
    for name, belief in constants.items():
        text.append(f"{name} ").append_text(cell(belief)).append("; ")
    console.print(text)
    for verdict in verdicts:
        for name, (counted, believed) in verdict.stray_counters.items():
            console.print(f"{verdict.path}: {name} counted {counted:g} times an operation, not {believed:g}", soft_wrap=True)
    beliefs = [b for v in verdicts for b in v.beliefs.values() if b.measured is not None]
    wrong = sum(belief.wrong for belief in [*beliefs, *constants.values()])
    console.print(f"{wrong} of {len(beliefs) + len(constants)} beliefs are wrong.")
