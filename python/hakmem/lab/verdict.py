# SPDX-License-Identifier: MIT
"""GO, NO-GO or INCONCLUSIVE: is arm b better than arm a? Pure; the reasons are in decision 0005.

A case is a GO when b takes less time, beyond doubt (a rank test after Holm, the interval), noise
(the A/A arm) and indifference (the smallest effect stated beforehand), and is known not to
lose on the guard rails: peak memory, and the p99 latency where it was recorded. It is a NO-GO when
b loses as clearly, in time or on a guard rail, or fails. Everything else is INCONCLUSIVE. The same
is asked of the geometric mean over all cases, whose noise is less than any one's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import statistics
from .model import Session
from .options import ROUNDS_MAX
from .statistics import Ratio

GO, NO_GO, INCONCLUSIVE = "GO", "NO-GO", "INCONCLUSIVE"
LESS, MORE, UNCLEAR = "less", "more", "unclear"
POWER = 0.95
PLANNED = 1.5
"""An effect at the threshold itself has an even chance at best; so many times that is planned for,
which leaves room for the noise floor: twice the threshold is then found."""
ROUNDS_STEP = 10
"""Fewer are not worth asking again whether they are enough."""
ROUNDS_SENSIBLE = 1000
"""Nobody waits for more; then a quieter machine is the advice."""

Rounds = dict[int, float]
"""The values of one cell by round."""


@dataclass(frozen=True)
class Rules:
    """What is fixed before the run."""

    effect_min: float = 0.01  # in time, either way: less does not count
    memory_tolerance: float = 0.02  # of peak memory
    latency_tolerance: float = 0.05  # of p99, which is recorded in steps of 3 %
    alpha: float = 0.002
    confidence: float = statistics.CONFIDENCE  # of the intervals
    samples_min: int = 9
    resamples: int = statistics.RESAMPLES


@dataclass(frozen=True)
class Series:
    """One quantity of one case: under a, under a again, under b."""

    a: Rounds
    again: Rounds
    b: Rounds


@dataclass(frozen=True)
class Evidence:
    """What was measured of one case."""

    case: str
    cost: Series
    memory: Series
    latency: Series | None = None
    failures_a: int = 0
    failures_b: int = 0


@dataclass(frozen=True)
class Finding:
    """What one quantity says: b relative to a."""

    ratio: Ratio
    again: Ratio  # a relative to itself
    rounds: int
    p: float  # of either_test
    p_adjusted: float  # after Holm, over all cases
    floor: float  # what a differs from itself by
    detectable: float  # the true difference found in 95 of 100 such sessions
    rounds_needed: int  # that would find PLANNED times the threshold
    word: str  # LESS, MORE or UNCLEAR

    @property
    def change(self) -> float:
        """-0.03: b takes 3 % less."""
        return self.ratio.estimate - 1


@dataclass(frozen=True)
class CaseVerdict:
    case: str
    word: str
    cost: Finding | None = None
    memory: Finding | None = None
    latency: Finding | None = None
    reason: str = ""  # why it is none, where the figures do not tell


@dataclass(frozen=True)
class Verdict:
    word: str
    sentence: str
    rules: Rules
    cases: list[CaseVerdict] = field(default_factory=list)
    overall: Finding | None = None  # the geometric mean of the costs, of more than one case

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def evidence_of(session: Session, a: str, b: str) -> list[Evidence]:
    """The samples of two arms, and of the A/A arm of the first, case by case."""
    again = next((arm.name for arm in session.arms if arm.again_of == a), "")
    cells: dict[tuple[str, str], list[Any]] = {}
    for sample in session.samples:
        cells.setdefault((sample.case, sample.arm), []).append(sample)

    def series(case: str, quantity: str) -> Series:
        parts = [{s.round: getattr(s, quantity) for s in cells.get((case, arm), [])} for arm in (a, again, b)]
        return Series(*({r: float(v) for r, v in part.items() if v} for part in parts))

    found = []
    for case in (case.name for case in session.cases):
        latency = series(case, "p99_ns")
        failures = [(f.arm in (a, again), f.arm == b) for f in session.failures if f.case == case]
        found.append(
            Evidence(
                case, cost=series(case, "cost_ns"), memory=series(case, "peak_kib"),
                latency=latency if latency.a and latency.b else None,
                failures_a=sum(of_a for of_a, _ in failures), failures_b=sum(of_b for _, of_b in failures),
            )
        )
    return found


def decide(evidence: Sequence[Evidence], rules: Rules = Rules(), a: str = "a", b: str = "b") -> Verdict:
    """The verdict over all cases; `a` and `b` are the names used in its sentence."""
    from . import wording

    faults = {one.case: _fault(one, rules) for one in evidence}
    sound = [one for one in evidence if not faults[one.case]]
    cost_findings = _judge(_with_joint([one.cost for one in sound]), rules, rules.effect_min)
    memory_findings = _judge([one.memory for one in sound], rules, rules.memory_tolerance)
    timed = [one for one in sound if one.latency is not None]
    latency_findings = dict(
        zip(
            (one.case for one in timed),
            _judge([one.latency for one in timed if one.latency], rules, rules.latency_tolerance),
            strict=True,
        )
    )
    cases = {
        one.case: _case_verdict(one.case, cost, memory, latency_findings.get(one.case), rules)
        for one, cost, memory in zip(sound, cost_findings, memory_findings, strict=False)
    }
    for one in evidence:
        if faults[one.case]:
            word = NO_GO if one.failures_b and not one.failures_a else INCONCLUSIVE
            cases[one.case] = CaseVerdict(one.case, word, reason=faults[one.case])
    verdict = Verdict(
        word="", sentence="", rules=rules, cases=[cases[one.case] for one in evidence],
        overall=cost_findings[-1] if len(sound) > 1 else None,
    )
    verdict = dataclasses.replace(verdict, word=_word(verdict))
    return dataclasses.replace(verdict, sentence=wording.sentence(verdict, a, b))


def is_safe(finding: Finding | None, tolerance: float) -> bool:
    """The whole interval of a guard rail is within the tolerance; true of one that is not there."""
    return finding is None or finding.ratio.high <= 1 + tolerance


def _fault(one: Evidence, rules: Rules) -> str:
    """Why a case cannot be judged by its figures, "" if it can."""
    if one.failures_a or one.failures_b:
        return f"failed {one.failures_b} times under b and {one.failures_a} times under a"
    if not one.cost.again:
        return "there is no A/A arm, so the noise is not known"
    rounds = len(one.cost.a.keys() & one.cost.again.keys() & one.cost.b.keys())
    if rounds < rules.samples_min:
        return f"{rounds} samples of each arm; a verdict needs {rules.samples_min}"
    return ""


def _with_joint(series: list[Series]) -> list[Series]:
    """And, of more than one case, their geometric mean as the last."""
    return [*series, _geometric_mean(series)] if len(series) > 1 else series


def _geometric_mean(series: Sequence[Series]) -> Series:
    """Round by round, of the rounds in which all cases have a value."""

    def mean(parts: list[Rounds]) -> Rounds:
        common = set.intersection(*(set(part) for part in parts))
        return {r: statistics.geometric_mean([part[r] for part in parts]) for r in common}

    return Series(*(mean([getattr(s, arm) for s in series]) for arm in ("a", "again", "b")))


def _judge(series: Sequence[Series], rules: Rules, threshold: float) -> list[Finding]:
    """The findings of one quantity; asking of many cases is paid for with Holm's adjustment."""
    findings = [_measure(one, rules, threshold, len(series)) for one in series]
    adjusted = statistics.holm([finding.p for finding in findings])
    findings = [dataclasses.replace(finding, p_adjusted=p) for finding, p in zip(findings, adjusted, strict=True)]
    return [dataclasses.replace(f, word=_direction(f, rules, threshold)) for f in findings]


def _measure(series: Series, rules: Rules, threshold: float, questions: int) -> Finding:
    ratios = statistics.paired_ratios(series.b, series.a)
    ratio, again = (
        statistics.ratio_interval(of, resamples=rules.resamples, confidence=rules.confidence)
        for of in (ratios, statistics.paired_ratios(series.again, series.a))
    )
    floor = statistics.noise_floor(again)
    p = statistics.either_test(series.b, series.a)
    count, alpha = len(ratios), rules.alpha / (2 * questions)  # either_test asks each twice
    detectable = statistics.detectable_effect(ratio.standard_error, count, alpha, POWER, max(threshold, floor))
    needed = _rounds_for(threshold, ratio, count, rules, questions, ROUNDS_SENSIBLE)
    return Finding(ratio, again, count, p, p, floor, detectable, needed, UNCLEAR)


def _direction(finding: Finding, rules: Rules, threshold: float) -> str:
    """LESS or MORE when every condition holds."""
    ratio = finding.ratio
    is_clear = finding.p_adjusted < rules.alpha and not ratio.low <= 1 <= ratio.high
    if not is_clear or statistics.effect_of(ratio.estimate) <= max(threshold, finding.floor):
        return UNCLEAR
    return LESS if ratio.estimate < 1 else MORE


def _case_verdict(case: str, cost: Finding, memory: Finding, latency: Finding | None, rules: Rules) -> CaseVerdict:
    loses = MORE in [finding.word for finding in (cost, memory, latency) if finding]
    safe = is_safe(memory, rules.memory_tolerance) and is_safe(latency, rules.latency_tolerance)
    gains = cost.word == LESS and safe
    word = NO_GO if loses else GO if gains else INCONCLUSIVE
    return CaseVerdict(case, word, cost, memory, latency)


def _word(verdict: Verdict) -> str:
    """A loss anywhere outweighs gains elsewhere; a guard rail in doubt anywhere forbids a GO."""
    rules, cases, overall = verdict.rules, verdict.cases, verdict.overall
    words = [one.word for one in cases]
    if NO_GO in words or (overall is not None and overall.word == MORE):
        return NO_GO
    safe = all(
        not one.reason
        and is_safe(one.memory, rules.memory_tolerance)
        and is_safe(one.latency, rules.latency_tolerance)
        for one in cases
    )
    gains = GO in words or (overall is not None and overall.word == LESS)
    return GO if gains and safe else INCONCLUSIVE


def rounds_wanted(evidence: Sequence[Evidence], rules: Rules) -> int:
    """How many rounds the noise asks for, at most ROUNDS_MAX; 0 when that cannot be said.

    Looks at a and a again only, not at what b costs: when to stop must not depend on what is found.
    """
    if not evidence or any(_fault(one, rules) for one in evidence):
        return 0
    series = _with_joint([one.cost for one in evidence])
    ratios = statistics.paired_ratios(series[-1].again, series[-1].a)
    again = statistics.ratio_interval(ratios, resamples=rules.resamples)
    wanted = _rounds_for(rules.effect_min, again, len(ratios), rules, len(series), ROUNDS_MAX)
    if wanted == len(ratios):
        return wanted
    return min(max(wanted, len(ratios) + ROUNDS_STEP), ROUNDS_MAX)


def _rounds_for(threshold: float, noise: Ratio, count: int, rules: Rules, questions: int, most: int) -> int:
    """The rounds that would surely find PLANNED times the threshold."""
    alpha = rules.alpha / (2 * questions)  # either_test asks each twice
    return statistics.rounds_for(PLANNED * threshold, noise.standard_error, count, alpha, POWER, most)
