# SPDX-License-Identifier: MIT
"""What a session says about servers: ratios to the best other allocator of each server. Pure.

A figure of an allocator is divided by that of the best peer of the row, round by round. Peers are
all but hakmem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from .model import Arm, Sample, Session
from .servers import merged
from .statistics import geometric_mean
from .summary import Ratio, best_peer, noise_of, ratio_of


@dataclass(frozen=True)
class Figure:
    """What is measured of a run; lower is better in all of them."""

    key: str
    heading: str
    unit: str
    of: Callable[[Sample], float]
    is_ratio: bool = False  # it has a table of ratios


def _told(name: str, scale: float = 1.0) -> Callable[[Sample], float]:
    return lambda sample: (sample.serving or {}).get(name, 0) / scale


def _after_mib(sample: Sample) -> float:
    return sample.rest[-1][1] / 1024 if sample.rest else 0.0


FIGURES = (
    Figure("cpu", "Processor time a request", "us", _told("cpu_ns", 1e3), True),
    Figure("p999", "Latency, p99.9", "us", _told("p999_ns", 1e3), True),
    Figure("mean", "Mean memory", "MiB", lambda s: s.rss_mean_kib / 1024, True),
    Figure("after", "Memory after the burst", "MiB", _after_mib, True),
    Figure("peak", "Peak memory", "MiB", lambda s: s.rss_peak_kib / 1024),
    Figure("end", "Memory at the end", "MiB", lambda s: (s.rss_end_kib or 0) / 1024),
    Figure("p50", "p50", "us", _told("p50_ns", 1e3)),
    Figure("p99", "p99", "us", _told("p99_ns", 1e3)),
    Figure("worst", "worst", "us", _told("worst_ns", 1e3)),
    Figure("burst", "worst in the burst", "us", _told("burst_worst_ns", 1e3)),
    Figure("faults", "page faults a request", "", _told("faults")),
    Figure("switches", "context switches a run", "", lambda s: float(s.voluntary_switches + s.involuntary_switches)),
    Figure("requests", "requests a run", "", _told("requests")),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A server in a table of ratios."""

    case: str
    title: str
    best: str  # the peer that is 1.00
    ratios: dict[str, Ratio]  # by arm
    noise: float | None


@dataclass(frozen=True)
class View:
    """A table of ratios."""

    key: str
    heading: str
    lines: list[Line]

    def means(self, arms: Sequence[Arm]) -> dict[str, float | None]:
        """Over the servers that all these allocators have run."""
        names = [arm.name for arm in arms]
        common = [line for line in self.lines if all(name in line.ratios for name in names)]
        return {
            name: geometric_mean([line.ratios[name].value for line in common]) if common else None
            for name in names
        }

    def worst(self, arm: str) -> tuple[float, str] | None:
        known = [(line.ratios[arm].value, line.case) for line in self.lines if arm in line.ratios]
        return max(known, default=None)


@dataclass(frozen=True)
class Report:
    arms: list[Arm]  # ours first, none twice
    views: list[View]
    medians: dict[str, dict[str, dict[str, float]]]  # case, arm, key of the figure
    rates: dict[str, dict[str, float]]

    def to_json(self) -> dict[str, Any]:
        means = {view.key: view.means(self.arms) for view in self.views}
        return {**dataclasses.asdict(self), "geometric_means": means}


def report_of(session: Session) -> Report:
    arms = [arm for arm in session.arms if not arm.again_of]
    arms.sort(key=lambda arm: not arm.is_ours)
    views = [View(figure.key, figure.heading, _lines(session, figure)) for figure in FIGURES if figure.is_ratio]
    medians: dict[str, dict[str, dict[str, float]]] = {}
    for case in session.cases:
        for arm in arms:
            samples = session.of(case.name, arm.name)
            if samples:
                medians.setdefault(case.name, {})[arm.name] = {
                    figure.key: float(numpy.median([figure.of(sample) for sample in samples]))
                    for figure in FIGURES
                }
    return Report(arms, views, medians, session.rates)


def _lines(session: Session, figure: Figure) -> list[Line]:
    lines = []
    for case in session.cases:
        values = {}
        for arm in session.arms:
            samples = session.of(case.name, arm.name)
            rounds = {sample.round: figure.of(sample) for sample in samples}
            if rounds and all(value > 0 for value in rounds.values()):
                values[arm.name] = rounds
        best = best_peer(session.arms, values)
        if best:
            ratios = {
                arm.name: ratio_of(values[arm.name], values[best], session.seed)
                for arm in session.arms
                if arm.name in values and not arm.again_of
            }
            noise = noise_of(session.arms, values, session.seed)
            lines.append(Line(case.name, case.title, best, ratios, noise))
    return lines


def latencies_of(session: Session, case: str, arm: str) -> list[list[int]]:
    """Of all runs together."""
    samples = session.of(case, arm)
    return merged([sample.serving["latencies"] for sample in samples if sample.serving])


def headline(report: Report) -> str:
    ours = next((arm for arm in report.arms if arm.is_ours), None)
    if ours is None:
        return "hakmem was not measured here."
    means = {view.key: view.means(report.arms)[ours.name] for view in report.views}
    if any(value is None for value in means.values()):
        return "No server has run under every allocator."
    return (
        f"Beside the best other allocator of each server, {ours.name} needs "
        f"{means['cpu']:.2f} times the processor time a request, has {means['p999']:.2f} times the "
        f"p99.9 latency, {means['mean']:.2f} times the mean memory and {means['after']:.2f} times "
        f"the memory after a burst (geometric means of {len(report.medians)} servers)."
    )
