# SPDX-License-Identifier: MIT
"""`cost`: holds the predicted cost of each path of the allocator against the measured one.

Predictions: lab/cost_model.toml. Measurements: lab/paths (cost_measure.py). What contradicts a
belief beyond the stated tolerance is marked; docs/design/cost_model.md has the method.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from . import cost_measure, cost_model, machine
from .cost_measure import Counts, Driver
from .cost_model import QUANTITIES, Belief, Machine, Model, Verdict
from .places import BUILD, ROOT
from .problem import Problem, Usage

MODEL = ROOT / "lab" / "cost_model.toml"
DRIVER = BUILD / "lab" / "paths"

ROUNDS_COUNTED = 64  # so that the ticks among slow operations, one in 64, stay below the median
ROUNDS_TRACED = 9
ROUNDS_TIMED = 512
PROCESSES_TIMED = 9
SEED = 4141


@dataclasses.dataclass
class Findings:
    """All that was measured."""

    machine: dict[str, float]  # medians of what the driver says of it
    counts: dict[str, Counts]
    nanoseconds: dict[str, list[float]]  # by path, one of each process


def run(as_json: bool, paths: str) -> int:
    """Predicted against measured: instructions, cache lines, atomics, calls, faults, cycles."""
    model = cost_model.load(MODEL)
    names = [name for name in model.paths if fnmatch.fnmatchcase(name, paths)]
    if not names:
        raise Usage(f"no path is called '{paths}'; there are {', '.join(model.paths)}")
    driver = Driver(DRIVER)
    missing = [name for name in names if name not in driver.environments]
    if missing:
        raise Problem(f"{DRIVER} does not know {', '.join(missing)}; type: ./hakmem build --all")
    console = Console(stderr=True)
    if not cost_measure.has_valgrind():
        say(console, "valgrind is missing (apt-get install valgrind): time only, no instructions")
    findings = measure(driver, names, console)
    rate = cycles_per_ns(findings.machine)
    here = cost_model.measured_machine(model.machine, findings.machine)
    constants = cost_model.judge_machine(model, here)
    verdicts = [verdict_of(model, here, name, findings, rate) for name in names]
    if as_json:
        print(json.dumps(report(verdicts, constants, rate), indent=1))
    else:
        show(verdicts, constants, Console())
    strayed = [verdict.path.name for verdict in verdicts if verdict.stray]
    if strayed:
        raise Problem(f"not measured, since another path was taken: {', '.join(strayed)}")
    return 0


def say(console: Console, sentence: str) -> None:
    console.print(Text(f"hakmem: {sentence}"), soft_wrap=True)


# ---- Measuring. ----


def measure(driver: Driver, names: list[str], console: Console) -> Findings:
    """Counts first, several at once, since nothing disturbs them; then times, one at a time."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory(prefix="hakmem-cost-") as folder,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("counting", total=len(names) * (1 + PROCESSES_TIMED))
        place = Path(folder) if cost_measure.has_valgrind() else None

        def count(name: str) -> Counts:
            found = cost_measure.count(driver, name, ROUNDS_COUNTED, ROUNDS_TRACED, place)
            bar.advance(task)
            return found

        counts = dict(zip(names, pool.map(count, names), strict=True))
        bar.update(task, description="timing")
        constants, nanoseconds = interleaved(driver, names, lambda: bar.advance(task))
    return Findings(constants, counts, nanoseconds)


def interleaved(
    driver: Driver, names: list[str], advance: Callable[[], None]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Each path in a process of its own, in an order of its own each time, the machine's constants
    in between: what disturbs for a while shall not meet one path only."""
    order = random.Random(SEED)
    constants: list[dict[str, float]] = []
    nanoseconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(PROCESSES_TIMED):
        constants.append(driver.machine())
        for name in order.sample(names, len(names)):
            nanoseconds[name].append(driver.time(name, ROUNDS_TIMED)["nanoseconds"])
            advance()
    medians = {key: statistics.median(entry[key] for entry in constants) for key in constants[0]}
    return medians, nanoseconds


def verdict_of(model: Model, here: Machine, name: str, findings: Findings, rate: float) -> Verdict:
    path, counts, nanoseconds = model.paths[name], findings.counts[name], findings.nanoseconds[name]
    typical = statistics.median(nanoseconds)
    quarters = statistics.quantiles(nanoseconds, n=4)
    measured = {
        "instructions": counts.instructions, "lines": counts.lines, "atomics": counts.atomics,
        "syscalls": counts.syscalls, "faults": counts.faults, "cycles": typical * rate,
    }
    return Verdict(
        path,
        cost_model.judge(model, cost_model.predict(model, here, path, rate), measured),
        typical,
        (quarters[2] - quarters[0]) / 2,
        counts.functions or {},
        cost_model.stray_counters(path.counters, counts.counters),
    )


def cycles_per_ns(constants: dict[str, float]) -> float:
    """Of the time stamp counter; where the driver has none, what the system says of the clock."""
    if constants["cycles_per_ns"] > 0:
        return constants["cycles_per_ns"]
    frequency = psutil.cpu_freq()
    if frequency is None or not frequency.max:
        raise Problem("the frequency of this processor is not known, so cycles cannot be told")
    return frequency.max / 1000


# ---- Showing. ----


def report(verdicts: list[Verdict], constants: dict[str, Belief], rate: float) -> dict[str, Any]:
    return {
        "machine": machine.describe(), "commit": machine.commit(), "created": machine.now(),
        "cycles_per_ns": rate, "constants": {name: belief.to_json() for name, belief in constants.items()},
        "paths": [verdict.to_json() for verdict in verdicts],
    }


def number(value: float | None) -> str:
    """Short: whole when large, at most two decimals, nothing behind the point that is zero."""
    if value is None:
        return "?"
    return f"{value:.0f}" if value >= 10 else f"{round(value, 2):g}"


def cell(belief: Belief) -> Text:
    """"believed measured", the measured one marked where it contradicts."""
    if belief.predicted == 0 and not belief.is_wrong and (belief.measured or 0) < 0.05:
        return Text("-", style="dim")
    text = Text(f"{number(belief.predicted)} ")
    style = "bold red" if belief.is_wrong else ""
    return text.append(number(belief.measured) + ("!" if belief.is_wrong else ""), style=style)


def row_of(verdict: Verdict) -> dict[str, Text]:
    """The cells by their headings."""
    beliefs = {quantity: cell(verdict.beliefs[quantity]) for quantity in QUANTITIES}
    time = Text(f"{number(verdict.nanoseconds)} ±{number(verdict.noise_ns)}")
    return {"path": Text(verdict.path.name, style="red" if verdict.stray else ""), **beliefs, "ns": time}


def tables_of(verdicts: list[Verdict], width: int) -> list[Table]:
    """One, or as many below each other as it takes not to cut anything off."""
    rows = [row_of(verdict) for verdict in verdicts]
    widths = {heading: 2 + max(len(heading), *(len(row[heading].plain) for row in rows)) for heading in rows[0]}
    groups: list[list[str]] = [["path"]]
    for heading in [*QUANTITIES, "ns"]:
        if sum(widths[one] for one in [*groups[-1], heading]) > width and len(groups[-1]) > 1:
            groups.append(["path"])
        groups[-1].append(heading)
    tables = []
    for group in groups:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in group:
            table.add_column(heading, justify="left" if heading == "path" else "right",
                             no_wrap=True)  # fmt: skip
        for row in rows:
            table.add_row(*(row[heading] for heading in group))
        tables.append(table)
    return tables


def show(verdicts: list[Verdict], constants: dict[str, Belief], console: Console) -> None:
    console.print("Each path: believed, then measured; ! where the belief is wrong")
    for table in tables_of(verdicts, console.width):
        console.print()
        console.print(table)
    console.print()
    text = Text("The machine: ")
    for name, belief in constants.items():
        text.append(f"{name} ").append_text(cell(belief)).append("; ")
    console.print(text)
    for verdict in verdicts:
        for name, (counted, believed) in verdict.stray.items():
            console.print(
                f"{verdict.path.name}: {name} counted {counted:g} times an operation, "
                f"not {believed:g}", soft_wrap=True,
            )
    beliefs = [b for v in verdicts for b in v.beliefs.values() if b.measured is not None]
    wrong = sum(belief.is_wrong for belief in [*beliefs, *constants.values()])
    console.print(f"{wrong} of {len(beliefs) + len(constants)} beliefs are wrong.")
