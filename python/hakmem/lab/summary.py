# SPDX-License-Identifier: MIT
"""What a session says, in figures: per case and arm, and over all cases. Pure.

A figure of an arm is divided by that of the best peer of the row, round by round: 1.00 is that peer, less is better; of
speed the inverse is shown. A peer is an arm that is neither ours nor an A/A arm. Where a row has no peer, the best of all
arms takes its place. The best peers of a row may differ from figure to figure: together they are the envelope.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from . import statistics
from .model import Arm, Case, Sample, Session
from .statistics import Ratio, geometric_mean
from .wording import counted_thousands, duration, mebibytes, three_digits

RESAMPLES = 1999
"""Enough for two digits of an interval; a table has a thousand of them."""
SAMPLES_MIN = 3
"""With fewer there is no interval, and no winner: one or two runs decide nothing."""
WORK, PROGRAM, SERVER = ("bench", "program"), ("program",), ("server",)
"""Kinds of cases."""

Rounds = dict[int, float]
"""The values of one cell by round."""


@dataclass(frozen=True)
class Figure:
    """What is measured of a run; less is better."""

    key: str
    heading: str  # in the table of medians
    show: Callable[[float], str]
    of: Callable[[Sample], float | None]
    kinds: tuple[str, ...] = WORK
    view: str = ""  # the heading of its table of ratios, if it has one
    best: str = "best"  # the word for the reference of a row
    view_kinds: tuple[str, ...] = ()  # if the table has not all kinds
    is_inverse: bool = False  # the table shows how many times as good, not as much

    def is_shown_of(self, case: Case) -> bool:
        return bool(self.view) and case.kind in (self.view_kinds or self.kinds)


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


def _told(name: str) -> Callable[[Sample], float | None]:
    """Of a server."""
    return lambda sample: (sample.serving or {}).get(name)


FIGURES = (
    Figure("time", "time", duration, lambda s: s.cost_ns, view="Speed, higher is better", best="fastest", is_inverse=True),
    Figure("cpu_request", "processor time a request", duration, _told("cpu_ns"), SERVER,
           "Processor time a request, lower is better"),
    Figure("p999", "p99.9", duration, _told("p999_ns"), SERVER, "Latency, p99.9, lower is better"),
    Figure("mean", "mean, MiB", mebibytes, lambda s: s.rss_mean_kib, WORK + SERVER, "Mean memory, lower is better",
           view_kinds=SERVER),
    Figure("after", "after the burst, MiB", mebibytes, lambda s: s.rest[-1][1] if s.rest else None, SERVER,
           "Memory after the burst, lower is better"),
    Figure("peak", "peak, MiB", mebibytes, lambda s: float(s.peak_kib), WORK + SERVER, "Peak memory, lower is better",
           "leanest", WORK),
    Figure("cpu", "CPU", duration, _cpu_ns, WORK, "Processor time of programs, lower is better", "thriftiest", PROGRAM),
    Figure("end", "at the end, MiB", mebibytes, _end_kib, WORK + SERVER),
    Figure("lazyfree", "lazily freed, MiB", mebibytes,
           lambda s: (s.workload or {}).get("lazyfree_end_kib", s.lazyfree_end_kib)),
    Figure("faults", "page faults", counted_thousands, lambda s: s.minor_faults + s.major_faults),
    Figure("p99", "p99", duration, lambda s: s.p99_ns),
    Figure("p50_request", "p50", duration, _told("p50_ns"), SERVER),
    Figure("p99_request", "p99", duration, _told("p99_ns"), SERVER),
    Figure("worst", "worst", duration, _told("worst_ns"), SERVER),
    Figure("burst", "worst in the burst", duration, _told("burst_worst_ns"), SERVER),
    Figure("faults_request", "page faults a request", three_digits, _told("faults"), SERVER),
    Figure("switches", "context switches", counted_thousands,
           lambda s: s.voluntary_switches + s.involuntary_switches, SERVER),
    Figure("requests", "requests", counted_thousands, _told("requests"), SERVER),
)
BY_KEY = {figure.key: figure for figure in FIGURES}


@dataclass(frozen=True)
class Cell:
    """One case under one arm."""

    arm: str
    runs: int
    failures: int
    sentence: str  # of the first failure, or ""
    medians: dict[str, float]  # by keys of figures, and "instructions" per operation
    rest_kib: list[tuple[float, float]]  # after the work: seconds, and the median of what was held then
    live_kib: float | None  # what the program asked for and held then


@dataclass(frozen=True)
class View:
    """One figure of a row as ratios."""

    best_peer: str  # that is 1.00; "" if nothing was measured
    noise: float | None  # the far end of the interval of the A/A ratio
    ratios: dict[str, Ratio]  # by arm
    best: list[str]  # arms that cannot be told from the best


@dataclass(frozen=True)
class Row:
    """One case under every arm."""

    case: str
    kind: str
    title: str
    views: dict[str, View]
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Total:
    """One figure of an arm over all rows that have it."""

    rows: int = 0
    mean: float | None = None
    worst_case: str = ""
    worst: float | None = None


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
    totals: dict[str, dict[str, Total]]  # by keys of figures and arms
    failures: list[FailureGroup]
    noise: float | None  # median of the rows' noises in the first figure
    has_peers: bool
    has_winners: bool = field(default=False)  # there were runs enough to say of any row who is best

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def rows_of(self, figure: Figure) -> list[Row]:
        return [row for row in self.rows if figure.key in row.views]


def is_peer(arm: Arm) -> bool:
    return not arm.is_ours and not arm.again_of


def summarise(session: Session) -> Summary:
    """Everything tables, plots and pages show of a session."""
    rows = [summarise_case(session, case) for case in session.cases]
    firsts = [next(iter(row.views.values())) for row in rows if row.views]
    noises = [view.noise for view in firsts if view.noise is not None]
    failures = Counter((f.case, f.arm, f.sentence) for f in session.failures)
    keys = dict.fromkeys(key for row in rows for key in row.views)
    return Summary(list(session.arms), rows,
                   {key: {arm.name: _total(key, arm.name, rows) for arm in session.arms} for key in keys},
                   [FailureGroup(*key, count) for key, count in failures.items()],
                   float(numpy.median(noises)) if noises else None, any(is_peer(arm) for arm in session.arms),
                   any(view.best for view in firsts))


def summarise_case(session: Session, case: Case) -> Row:
    """One row; the whole of a session is `summarise`."""
    samples = {arm.name: session.of(case.name, arm.name) for arm in session.arms}
    views = {figure.key: _view(session, figure, samples) for figure in FIGURES if figure.is_shown_of(case)}
    cells = {arm: _cell(session, case, arm, of) for arm, of in samples.items()}
    return Row(case.name, case.kind, case.title, views, cells)


def ratio_between(session: Session, case: str, key: str, arm: str, reference: str) -> Ratio:
    """How many times the figure of the reference the arm has; both have samples."""
    ours, theirs = (rounds_of(session.of(case, name), BY_KEY[key].of) for name in (arm, reference))
    return ratio_of(ours, theirs, session.seed)


def rounds_of(samples: Sequence[Sample], of: Callable[[Sample], float | None]) -> Rounds:
    return {s.round: float(value) for s in samples if (value := of(s))}


def _view(session: Session, figure: Figure, samples: dict[str, list[Sample]]) -> View:
    known = {name: rounds_of(of, figure.of) for name, of in samples.items()}
    values = {name: rounds for name, rounds in known.items() if rounds}
    best = _best_peer(session.arms, values)
    ratios = {name: ratio_of(rounds, values[best], session.seed) for name, rounds in values.items()}
    noise = _noise(session.arms, values, session.seed)
    return View(best, noise, ratios, _best(session.arms, values, noise, session.seed))


def _cell(session: Session, case: Case, arm: str, samples: list[Sample]) -> Cell:
    failures = [f.sentence for f in session.failures if (f.case, f.arm) == (case.name, arm)]
    # A bench that sleeps at its end has another mean than one that does not.
    unrested = [sample for sample in samples if not sample.rest] or samples
    medians = {
        figure.key: _median(figure.of(s) for s in (unrested if figure.key == "mean" else samples))
        for figure in FIGURES if case.kind in figure.kinds
    }
    counts = [line for line in session.instructions if (line["case"], line["arm"]) == (case.name, arm)]
    medians["instructions"] = _median(line.get("per_operation") for line in counts)
    held: dict[float, list[float]] = {}
    for second, rss_kib, *_ in (rest for sample in samples for rest in sample.rest):
        held.setdefault(second, []).append(rss_kib)
    return Cell(arm, len(samples), len(failures), failures[0] if failures else "",
                {key: value for key, value in medians.items() if value is not None},
                [(second, float(numpy.median(held[second]))) for second in sorted(held)],
                _median((s.workload or {}).get("live_kib") for s in samples))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(numpy.median(known)) if known else None


def ratio_of(above: Rounds, below: Rounds, seed: int) -> Ratio:
    """How many times `below` goes into `above`, round by round; all equal is exactly 1."""
    if above is below:
        return Ratio(1.0)
    ratios = statistics.paired_ratios(above, below)
    if len(ratios) < SAMPLES_MIN:
        return Ratio(_point(above, below))
    return statistics.ratio_interval(ratios, seed, RESAMPLES)


def _point(above: Rounds, below: Rounds) -> float:
    """The value of `ratio_of` alone."""
    ratios = statistics.paired_ratios(above, below) if above is not below else [1.0]
    return statistics.typical(ratios) if ratios else _typical(above) / _typical(below)


def _typical(values: Rounds) -> float:
    return float(numpy.median(list(values.values())))


def _best_peer(arms: list[Arm], values: dict[str, Rounds]) -> str:
    """Of the peers; without peers of all; "" of an empty row."""
    known = [arm for arm in arms if arm.name in values and not arm.again_of]
    candidates = [arm for arm in known if is_peer(arm)] or known
    return _lowest([arm.name for arm in candidates], values) if candidates else ""


def _lowest(names: list[str], values: dict[str, Rounds]) -> str:
    """By the ratio that is shown: nothing shall stand above the 1.00 of the best.

    It begins with the lowest median, which mostly is that. Equal ones may go in a circle, each
    below the one before; then it ends somewhere.
    """
    best = min(names, key=lambda name: _typical(values[name]))
    for _ in names:
        ratios = {name: _point(values[name], values[best]) for name in names}
        lowest = min(ratios, key=ratios.__getitem__)
        if ratios[lowest] >= 1:
            break
        best = lowest
    return best


def _noise(arms: list[Arm], values: dict[str, Rounds], seed: int) -> float | None:
    """What an arm differs from itself by; of several A/A arms the most."""
    ratios = [ratio_of(values[arm.name], values[arm.again_of], seed) for arm in arms
              if arm.again_of and arm.name in values and arm.again_of in values]
    return max((ratio.farthest for ratio in ratios), default=None)


def _best(arms: list[Arm], values: dict[str, Rounds], noise: float | None, seed: int) -> list[str]:
    """The best arm and all that cannot be told from it: by the interval, or within the noise."""
    names = [arm.name for arm in arms if not arm.again_of and arm.name in values]
    if not names or min(len(values[name]) for name in names) < SAMPLES_MIN:
        return []
    first = _lowest(names, values)

    def is_as_good(name: str) -> bool:
        ratio = ratio_of(values[name], values[first], seed)
        return ratio.low is None or ratio.low <= 1 or ratio.value - 1 <= (noise or 0)

    return [name for name in names if name == first or is_as_good(name)]


def _total(key: str, arm: str, rows: list[Row]) -> Total:
    ratios = {row.case: row.views[key].ratios[arm].value for row in rows if key in row.views and arm in row.views[key].ratios}
    worst = max(ratios, key=ratios.__getitem__, default="")
    return Total(len(ratios), geometric_mean(ratios.values()), worst, ratios.get(worst))
