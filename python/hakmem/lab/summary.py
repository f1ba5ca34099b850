# SPDX-License-Identifier: MIT
"""What a session says, in figures: per case and arm, and over all cases. Pure.

Words: speed is relative to the fastest peer of the row (1.00 is that peer, higher is better);
memory ratios are relative to the leanest peer of the row (1.00 is that peer, lower is better). A
peer is an arm that is neither ours nor an A/A arm. Where a row has no peer, the best of all arms
takes its place. The two references of a row may be different peers: together they are the envelope.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy

from . import statistics
from .model import Arm, Case, Sample, Session

RESAMPLES = 1999
"""Enough for two digits of an interval; a table has a thousand of them."""

SAMPLES_MIN = 3
"""With fewer there is no interval, and no winner: one or two runs decide nothing."""

Rounds = dict[int, float]
"""The values of one cell by round."""


@dataclass(frozen=True)
class Ratio:
    """A ratio with its 95 % interval, where there are samples enough for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Cell:
    """One case under one arm: medians of its samples."""

    arm: str
    runs: int
    failures: int
    sentence: str  # of the first failure, or ""
    cost_ns: float | None = None
    cpu_ns: float | None = None  # user and system time in the unit of the cost
    speed: Ratio | None = None
    peak_kib: float | None = None
    peak_ratio: Ratio | None = None
    cpu_ratio: Ratio | None = None  # of a program; lower is better
    rest_kib: list[tuple[float, float]] = field(default_factory=list)
    """After the work: seconds, and the median of what was held then."""
    live_kib: float | None = None  # what the program asked for and held then
    mean_kib: float | None = None
    end_kib: float | None = None
    lazyfree_end_kib: float | None = None
    faults: float | None = None
    p99_ns: float | None = None
    instructions: float | None = None  # per operation
    is_winner: bool = False
    is_leanest: bool = False
    is_thriftiest: bool = False


@dataclass(frozen=True)
class Row:
    """One case under every arm."""

    case: str
    kind: str
    title: str
    fastest_peer: str
    leanest_peer: str
    noise: float | None  # of the cost: the far end of the interval of the A/A ratio
    noise_peak: float | None
    thriftiest_peer: str  # of a program, in processor time; else ""
    noise_cpu: float | None
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Total:
    """One arm over all rows in which it has figures."""

    arm: str
    rows: int
    speed: float | None  # geometric means
    peak_ratio: float | None
    wins: int
    worst_case: str
    worst_speed: float | None
    fattest_case: str
    fattest_ratio: float | None
    cpu_ratio: float | None  # of programs
    costliest_case: str
    costliest_ratio: float | None


@dataclass(frozen=True)
class FailureGroup:
    """Equal failures of one cell."""

    case: str
    arm: str
    sentence: str
    count: int


@dataclass(frozen=True)
class Summary:
    arms: list[Arm]
    rows: list[Row]
    totals: dict[str, Total]
    failures: list[FailureGroup]
    noise: float | None  # median of the rows' noises
    has_peers: bool

    @property
    def has_winners(self) -> bool:
        """Whether there were runs enough to say of any row who is best."""
        return any(total.wins for total in self.totals.values())

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def is_peer(arm: Arm) -> bool:
    return not arm.is_ours and not arm.again_of


def summarise(session: Session) -> Summary:
    """Everything tables, plots and pages show of a session."""
    rows = [summarise_case(session, case) for case in session.cases]
    noises = [row.noise for row in rows if row.noise is not None]
    failures = Counter((f.case, f.arm, f.sentence) for f in session.failures)
    return Summary(
        arms=list(session.arms), rows=rows, totals={arm.name: _total(arm.name, rows) for arm in session.arms},
        failures=[FailureGroup(*key, count) for key, count in failures.items()],
        noise=float(numpy.median(noises)) if noises else None,
        has_peers=any(is_peer(arm) for arm in session.arms),
    )


def speed_against(session: Session, case: str, arm: str, reference: str) -> Ratio:
    """How many times as fast the arm is as the reference; both have samples."""
    ours, theirs = ({s.round: s.cost_ns for s in session.of(case, name)} for name in (arm, reference))
    return ratio_of(theirs, ours, session.seed)


def memory_against(session: Session, case: str, arm: str, reference: str) -> Ratio:
    """How many times the peak memory of the reference the arm has; both have samples."""
    ours, theirs = ({s.round: float(s.peak_kib) for s in session.of(case, name)} for name in (arm, reference))
    return ratio_of(ours, theirs, session.seed)


def summarise_case(session: Session, case: Case) -> Row:
    """One row; the whole of a session is `summarise`."""
    arms, seed = session.arms, session.seed
    samples = {arm.name: session.of(case.name, arm.name) for arm in arms}
    costs = {name: {s.round: s.cost_ns for s in of} for name, of in samples.items() if of}
    peaks = {name: {s.round: float(s.peak_kib) for s in of} for name, of in samples.items() if of}
    noise, noise_peak = noise_of(arms, costs, seed), noise_of(arms, peaks, seed)
    fastest, leanest = best_peer(arms, costs), best_peer(arms, peaks)
    is_program = case.kind == "program"
    cpus = {name: {s.round: _cpu_ns(s) for s in of} for name, of in samples.items() if of and is_program}
    thriftiest, noise_cpu = best_peer(arms, cpus), noise_of(arms, cpus, seed)
    winners, lean = _best(arms, costs, noise, seed), _best(arms, peaks, noise_peak, seed)
    thrifty = _best(arms, cpus, noise_cpu, seed)
    cells = {}
    for arm in arms:
        cell = _cell(session, case, arm, samples[arm.name])
        if arm.name in costs:
            cell = dataclasses.replace(
                cell, speed=ratio_of(costs[fastest], costs[arm.name], seed),
                peak_ratio=ratio_of(peaks[arm.name], peaks[leanest], seed),
                cpu_ratio=ratio_of(cpus[arm.name], cpus[thriftiest], seed) if cpus else None,
                is_winner=arm.name in winners, is_leanest=arm.name in lean, is_thriftiest=arm.name in thrifty,
            )
        cells[arm.name] = cell
    return Row(case.name, case.kind, case.title, fastest, leanest, noise, noise_peak, thriftiest, noise_cpu, cells)


def _cell(session: Session, case: Case, arm: Arm, samples: list[Sample]) -> Cell:
    failures = [f for f in session.failures if f.case == case.name and f.arm == arm.name]
    sentence = failures[0].sentence if failures else ""
    return Cell(
        arm=arm.name, runs=len(samples), failures=len(failures), sentence=sentence,
        cost_ns=_median(s.cost_ns for s in samples), cpu_ns=_median(_cpu_ns(s) for s in samples),
        peak_kib=_median(s.peak_kib for s in samples), rest_kib=_rests(samples),
        live_kib=_median((s.workload or {}).get("live_kib") for s in samples),
        mean_kib=_median(s.rss_mean_kib for s in _unrested(samples)),
        end_kib=_median(_end_kib(s) for s in samples),
        lazyfree_end_kib=_median(_lazyfree_kib(s) for s in samples),
        faults=_median(s.minor_faults + s.major_faults for s in samples),
        p99_ns=_median(s.p99_ns for s in samples), instructions=_instructions(session, case.name, arm.name),
    )


def _cpu_ns(sample: Sample) -> float:
    """In the unit of the cost: per operation of a workload, of the whole of a program."""
    work = sample.workload
    if work is not None and "user_ns" in work:
        return (work["user_ns"] + work["system_ns"]) / work["operations"]
    return float(sample.user_ns + sample.system_ns)


def _end_kib(sample: Sample) -> float | None:
    """After the workload freed everything, without its own tables; of a program: its last RSS."""
    work = sample.workload
    if work is not None and "rss_end_kib" in work:
        return work["rss_end_kib"] - work.get("harness_kib", 0)
    return sample.rss_end_kib


def _rests(samples: list[Sample]) -> list[tuple[float, float]]:
    held: dict[float, list[float]] = {}
    for sample in samples:
        for second, rss_kib, *_ in sample.rest:
            held.setdefault(second, []).append(rss_kib)
    return [(second, float(numpy.median(held[second]))) for second in sorted(held)]


def _unrested(samples: list[Sample]) -> list[Sample]:
    """A bench that sleeps at its end has another mean than one that does not."""
    return [sample for sample in samples if not sample.rest] or samples


def _lazyfree_kib(sample: Sample) -> float | None:
    work = sample.workload
    if work is not None and "lazyfree_end_kib" in work:
        return work["lazyfree_end_kib"]
    return sample.lazyfree_end_kib


def _instructions(session: Session, case: str, arm: str) -> float | None:
    found = [i for i in session.instructions if i["case"] == case and i["arm"] == arm]
    return _median(i.get("per_operation") for i in found)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(numpy.median(known)) if known else None


def ratio_of(above: Rounds, below: Rounds, seed: int) -> Ratio:
    """How many times `below` goes into `above`, round by round; all equal is exactly 1."""
    if above is below:
        return Ratio(1.0)
    ratios = statistics.paired_ratios(above, below)
    if not ratios:
        return Ratio(_typical(above) / _typical(below))
    ratio = statistics.ratio_interval(ratios, seed, RESAMPLES)
    if len(ratios) < SAMPLES_MIN:
        return Ratio(ratio.estimate)
    return Ratio(ratio.estimate, ratio.low, ratio.high)


def _point(above: Rounds, below: Rounds) -> float:
    """The value of `ratio_of` alone, without the thousands of resamples of its interval."""
    ratios = statistics.paired_ratios(above, below) if above is not below else [1.0]
    if not ratios:
        return _typical(above) / _typical(below)
    return statistics.ratio_interval(ratios, resamples=2).estimate


def _typical(values: Rounds) -> float:
    return float(numpy.median(list(values.values())))


def best_peer(arms: list[Arm], values: dict[str, Rounds]) -> str:
    """Of the peers; without peers of all; "" of an empty row."""
    known = [arm for arm in arms if arm.name in values and not arm.again_of]
    candidates = [arm for arm in known if is_peer(arm)] or known
    return _lowest([arm.name for arm in candidates], values) if candidates else ""


def _lowest(names: list[str], values: dict[str, Rounds]) -> str:
    """By the ratio that is shown: nothing shall stand above the 1.00 of the best.

    It begins with the lowest median, which mostly is that. Equal ones may go in a circle, each
    below the one before; then it ends somewhere.
    """
    best = statistics.envelope({name: _typical(values[name]) for name in names})[0]
    for _ in names:
        ratios = {name: _point(values[name], values[best]) for name in names}
        lowest = min(ratios, key=ratios.__getitem__)
        if ratios[lowest] >= 1:
            break
        best = lowest
    return best


def noise_of(arms: list[Arm], values: dict[str, Rounds], seed: int) -> float | None:
    """What an arm differs from itself by; of several A/A arms the most."""
    floors = []
    for arm in arms:
        if arm.again_of and arm.name in values and arm.again_of in values:
            ratio = ratio_of(values[arm.name], values[arm.again_of], seed)
            ends = [ratio.value, ratio.low, ratio.high]
            floors.append(max(statistics.effect_of(end) for end in ends if end is not None))
    return max(floors, default=None)


def _best(arms: list[Arm], values: dict[str, Rounds], noise: float | None, seed: int) -> set[str]:
    """The best arm and all that cannot be told from it: by the interval, or within the noise."""
    names = [arm.name for arm in arms if not arm.again_of and arm.name in values]
    if not names or min(len(values[name]) for name in names) < SAMPLES_MIN:
        return set()
    first = _lowest(names, values)
    best = {first}
    for name in names:
        ratio = ratio_of(values[name], values[first], seed)
        if ratio.low is None or ratio.low <= 1 or ratio.value - 1 <= (noise or 0):
            best.add(name)
    return best


def _total(arm: str, rows: list[Row]) -> Total:
    cells = {row.case: row.cells[arm] for row in rows}
    speeds = {case: cell.speed.value for case, cell in cells.items() if cell.speed}
    peaks = {case: cell.peak_ratio.value for case, cell in cells.items() if cell.peak_ratio}
    cpus = {case: cell.cpu_ratio.value for case, cell in cells.items() if cell.cpu_ratio}
    costliest = max(cpus, key=cpus.__getitem__, default="")
    slowest = min(speeds, key=speeds.__getitem__, default="")
    fattest = max(peaks, key=peaks.__getitem__, default="")
    return Total(
        arm=arm, rows=len(speeds), speed=geometric_mean(speeds.values()),
        peak_ratio=geometric_mean(peaks.values()), wins=sum(cell.is_winner for cell in cells.values()),
        worst_case=slowest, worst_speed=speeds.get(slowest), fattest_case=fattest,
        fattest_ratio=peaks.get(fattest), cpu_ratio=geometric_mean(cpus.values()), costliest_case=costliest,
        costliest_ratio=cpus.get(costliest),
    )


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(statistics.geometric_mean(known)) if known else None
