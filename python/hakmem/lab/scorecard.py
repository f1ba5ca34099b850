# SPDX-License-Identifier: MIT
"""Where hakmem stands, from stored sessions only. Pure.

Of each workload on each machine the latest session counts that has enough samples of hakmem and of
mimalloc 3, which the milestones are about. Milestones, each harder than the one before:

M1, M2, M3   50 %, 55 %, 100 % of mimalloc 3's speed (geometric mean of the workloads)
M4           the fastest peer of each workload, in the geometric mean
M5           that, and the leanest peer of each workload in peak memory

Programs that nobody here wrote come first: their processor time against the best peer of each, and
their peak memory against the leanest, glibc included.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .model import Case, Session
from .summary import (SAMPLES_MIN, Ratio, geometric_mean, is_peer, memory_against, speed_against, summarise_case)

OURS = "hakmem"
RIVAL = "mimalloc 3"


@dataclass(frozen=True)
class Score:
    """One workload on one machine."""

    case: str
    session: str
    date: str
    commit: str
    library: str  # SHA-256 of the hakmem measured
    peers: int
    versus_rival: Ratio  # speed, higher is better
    speed: Ratio  # against the fastest peer
    fastest_peer: str
    memory_versus_rival: Ratio  # peak, lower is better
    memory: Ratio  # against the leanest peer
    leanest_peer: str
    noise: float | None
    cpu: Ratio | None = None  # of a program: processor time against the thriftiest peer
    thriftiest_peer: str = ""

    @property
    def milestone(self) -> str:
        return highest([self])


@dataclass(frozen=True)
class Milestone:
    name: str
    meaning: str
    value: str
    worst: str  # the worst workload
    reached: bool
    certain: bool  # whether the whole interval says the same


@dataclass(frozen=True)
class Programs:
    """Programs of other authors: geometric means, and the worst of each."""

    count: int
    cpu: Ratio
    memory: Ratio
    costliest: str
    fattest: str


@dataclass
class Card:
    """All of one machine."""

    machine: dict[str, Any]
    scores: list[Score]
    milestones: list[Milestone]
    programs: Programs | None  # None: none was measured

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        for score, known in zip(data["scores"], self.scores, strict=True):
            score["milestone"] = known.milestone
        return data


def make_cards(sessions: Sequence[Session]) -> list[Card]:
    """One card for each machine; `sessions` in any order."""
    latest = sorted(sessions, key=lambda session: session.created, reverse=True)
    chosen: dict[str, dict[str, tuple[Session, Case]]] = {}
    machines: dict[str, dict[str, Any]] = {}
    for session in latest:
        key = str(session.machine.get("id", ""))
        for case in session.cases:
            if _counts(session, case.name):
                machines.setdefault(key, session.machine)
                chosen.setdefault(key, {}).setdefault(case.name, (session, case))
    return [_card(machines[key], cells) for key, cells in chosen.items()]


def _counts(session: Session, case: str) -> bool:
    return all(len(session.of(case, arm)) >= SAMPLES_MIN for arm in (OURS, RIVAL))


def _card(machine: dict[str, Any], cells: dict[str, tuple[Session, Case]]) -> Card:
    scores = [_score(session, case) for session, case in cells.values()]
    scores.sort(key=lambda score: _natural(score.case))
    return Card(machine, scores, milestones(scores), programs_of(scores))


def _natural(name: str) -> list[tuple[int, int | str]]:
    """larson_2 before larson_16."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in name.split("_")]


def _score(session: Session, case: Case) -> Score:
    row = summarise_case(session, case)
    ours = row.cells[OURS]
    assert ours.speed is not None and ours.peak_ratio is not None  # _counts saw to it
    library = next(arm.sha256 for arm in session.arms if arm.name == OURS)
    peers = [arm for arm in session.arms if is_peer(arm) and row.cells[arm.name].runs > 0]
    return Score(
        case=case.name, session=session.id, date=session.created[:10], commit=session.commit,
        library=library, peers=len(peers), versus_rival=speed_against(session, case.name, OURS, RIVAL),
        speed=ours.speed, fastest_peer=row.fastest_peer,
        memory_versus_rival=memory_against(session, case.name, OURS, RIVAL),
        memory=ours.peak_ratio, leanest_peer=row.leanest_peer, noise=row.noise,
        cpu=None if case.load else ours.cpu_ratio, thriftiest_peer=row.thriftiest_peer,
    )  # fmt: skip


# ---- Milestones. ----


def mean_ratio(ratios: Sequence[Ratio]) -> Ratio:
    """The geometric mean, with the interval that those of independent workloads imply."""
    mean = geometric_mean(ratio.value for ratio in ratios)
    assert mean is not None  # callers have at least one
    spread = 0.0
    for ratio in ratios:
        if ratio.low is None or ratio.high is None:
            return Ratio(mean)
        spread += (math.log(ratio.high / ratio.low) / 2) ** 2
    factor = math.exp(math.sqrt(spread) / len(ratios))
    return Ratio(mean, mean / factor, mean * factor)


def milestones(scores: Sequence[Score]) -> list[Milestone]:
    """All five over these scores; none is reached by nothing."""
    if not scores:
        return []
    rival = mean_ratio([score.versus_rival for score in scores])
    speed = mean_ratio([score.speed for score in scores])
    memory = mean_ratio([score.memory for score in scores])
    slowest = min(scores, key=lambda score: score.speed.value)
    fattest = max(scores, key=lambda score: score.memory.value)
    worst = f"worst {slowest.case} {slowest.speed.value:.2f}"
    worst_memory = f"worst {fattest.case} {fattest.memory.value:.2f}"
    return [
        *(
            Milestone(
                name, f"{limit * 100:.0f} % of {RIVAL}'s speed", percent_text(rival), "",
                rival.value >= limit, is_certain(rival, limit),
            )
            for name, limit in (("M1", 0.5), ("M2", 0.55), ("M3", 1.0))
        ),
        Milestone("M4", "the fastest peer of each", percent_text(speed), worst, speed.value >= 1, is_certain(speed, 1)),
        Milestone(
            "M5", "M4, and the leanest peer of each", percent_text(memory), worst_memory,
            speed.value >= 1 and memory.value <= 1, _is_envelope_certain(speed, memory),
        ),
    ]  # fmt: skip


def _is_envelope_certain(speed: Ratio, memory: Ratio) -> bool:
    """To reach it both must be certain; one that certainly misses is enough to miss it."""
    misses = (speed.value < 1 and is_certain(speed, 1), memory.value > 1 and is_certain(memory, 1))
    return any(misses) or (is_certain(speed, 1) and is_certain(memory, 1))


def is_certain(ratio: Ratio, limit: float) -> bool:
    """Whether the whole interval lies on one side of the limit."""
    if ratio.low is None or ratio.high is None:
        return True
    return not ratio.low < limit < ratio.high


def percent_text(ratio: Ratio) -> str:
    """"107.2 % (103.1 to 111.5)"."""
    text = f"{ratio.value * 100:.1f} %"
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} ({ratio.low * 100:.1f} to {ratio.high * 100:.1f})"


def highest(scores: Sequence[Score]) -> str:
    """The last milestone that is reached with all before it; "" if none is."""
    name = ""
    for milestone in milestones(scores):
        if not milestone.reached:
            break
        name = milestone.name
    return name


# ---- Programs. ----


def programs_of(scores: Sequence[Score]) -> Programs | None:
    cpus = {score.case: score.cpu for score in scores if score.cpu is not None}
    peaks = {score.case: score.memory for score in scores if score.case in cpus}
    if not cpus:
        return None
    return Programs(
        len(cpus), mean_ratio(list(cpus.values())), mean_ratio(list(peaks.values())),
        max(cpus, key=lambda case: cpus[case].value), max(peaks, key=lambda case: peaks[case].value),
    )  # fmt: skip
