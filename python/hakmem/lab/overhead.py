# SPDX-License-Identifier: MIT
"""What allocators cost over one of them: time and peak memory relative to a reference. Pure.

summary.py makes each ratio, with its interval. 1.00 is the reference; 2.00 is twice its time or
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Case, Session
from .summary import Ratio, geometric_mean, memory_against, speed_against


@dataclass(frozen=True)
class CaseCost:
    """One case; only arms that have samples of it, and nothing if the reference has none."""

    case: str
    kind: str
    title: str
    time: dict[str, Ratio]  # by arm
    memory: dict[str, Ratio]


@dataclass(frozen=True)
class MeanCost:
    """One arm over all cases it has figures of: geometric means, and the worst case."""

    cases: int
    time: float | None
    slowest_case: str
    slowest: float | None
    memory: float | None
    fattest_case: str
    fattest: float | None


@dataclass(frozen=True)
class Costs:
    reference: str
    rows: list[CaseCost]
    means: dict[str, MeanCost]  # by arm


def costs_over(session: Session, reference: str) -> Costs | None:
    """None if the session has no such arm, or no cases."""
    names = [arm.name for arm in session.arms if not arm.again_of]
    if reference not in names or not session.cases:
        return None
    rows = [_row(session, case, names, reference) for case in session.cases]
    return Costs(reference, rows, {name: _mean(rows, name) for name in names})


def _row(session: Session, case: Case, names: list[str], reference: str) -> CaseCost:
    measured = [name for name in names if session.of(case.name, name)]
    if reference not in measured:
        measured = []
    # The speed of the reference against an arm is the time of the arm against the reference.
    times = {name: speed_against(session, case.name, reference, name) for name in measured}
    peaks = {name: memory_against(session, case.name, name, reference) for name in measured}
    return CaseCost(case.name, case.kind, case.title, times, peaks)


def _mean(rows: list[CaseCost], name: str) -> MeanCost:
    times = {row.case: row.time[name].value for row in rows if name in row.time}
    peaks = {row.case: row.memory[name].value for row in rows if name in row.memory}
    slowest, fattest = _largest(times), _largest(peaks)
    return MeanCost(
        cases=len(times),
        time=geometric_mean(times.values()),
        slowest_case=slowest,
        slowest=times.get(slowest),
        memory=geometric_mean(peaks.values()),
        fattest_case=fattest,
        fattest=peaks.get(fattest),
    )


def _largest(values: Mapping[str, float]) -> str:
    return max(values, key=values.__getitem__, default="")
