# SPDX-License-Identifier: MIT
"""GO, NO-GO or INCONCLUSIVE: is arm b better than arm a? Pure; the reasons are in decision 0005.

A case is a GO when b takes less time, beyond doubt (a rank test after Holm, the interval), noise
(the A/A arm) and indifference (the smallest effect stated beforehand), and is known not to
lose on the guard rails: peak memory, and the p99 latency where it was recorded. It is a NO-GO when
b loses as clearly, in time or on a guard rail, or fails. Everything else is INCONCLUSIVE. The same
is asked of the geometric mean over all cases, whose noise is less than any one's.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import statistics
from .model import Session
from .options import ROUNDS_MAX
from .statistics import LESS, MORE, UNCLEAR, Ratio
from .wording import interval, percent, signed_percent

GO, NO_GO, INCONCLUSIVE = "GO", "NO-GO", "INCONCLUSIVE"
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
        return self.ratio.value - 1


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
            Evidence(case, cost=series(case, "cost_ns"), memory=series(case, "peak_kib"),
                     latency=latency if latency.a and latency.b else None, failures_a=sum(of_a for of_a, _ in failures),
                     failures_b=sum(of_b for _, of_b in failures))
        )
    return found


def decide(evidence: Sequence[Evidence], rules: Rules = Rules(), a: str = "a", b: str = "b") -> Verdict:
    """The verdict over all cases; `a` and `b` are the names used in its sentence."""
    faults = {one.case: _fault(one, rules) for one in evidence}
    sound = [one for one in evidence if not faults[one.case]]
    timed = [one for one in sound if one.latency is not None]
    costs = _judge(_with_joint([one.cost for one in sound]), rules, rules.effect_min)
    memories = _judge([one.memory for one in sound], rules, rules.memory_tolerance)
    latencies = _judge([one.latency for one in timed if one.latency], rules, rules.latency_tolerance)
    latency_of = dict(zip((one.case for one in timed), latencies, strict=True))
    cases = {one.case: _case_verdict(one.case, cost, memory, latency_of.get(one.case), rules) for one, cost,
             memory in zip(sound, costs, memories, strict=False)}
    for one in evidence:
        if faults[one.case]:
            word = NO_GO if one.failures_b and not one.failures_a else INCONCLUSIVE
            cases[one.case] = CaseVerdict(one.case, word, reason=faults[one.case])
    verdict = Verdict("", "", rules, [cases[one.case] for one in evidence], costs[-1] if len(sound) > 1 else None)
    verdict = dataclasses.replace(verdict, word=_word(verdict))
    return dataclasses.replace(verdict, sentence=_sentence(verdict, a, b))


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
    return [dataclasses.replace(f, p_adjusted=p, word=f.ratio.direction(p, rules.alpha, max(threshold, f.floor))) for f,
            p in zip(findings, adjusted, strict=True)]


def _measure(series: Series, rules: Rules, threshold: float, questions: int) -> Finding:
    ratios = statistics.paired_ratios(series.b, series.a)
    ratio, again = (
        statistics.ratio_interval(of, resamples=rules.resamples, confidence=rules.confidence)
        for of in (ratios, statistics.paired_ratios(series.again, series.a))
    )
    floor, p = again.farthest, statistics.either_test(series.b, series.a)
    count, alpha = len(ratios), rules.alpha / (2 * questions)  # either_test asks each twice
    detectable = statistics.detectable_effect(ratio.standard_error, count, alpha, POWER, max(threshold, floor))
    needed = _rounds_for(threshold, ratio, count, rules, questions, ROUNDS_SENSIBLE)
    return Finding(ratio, again, count, p, p, floor, detectable, needed, UNCLEAR)


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
    safe = all(not one.reason and is_safe(one.memory, rules.memory_tolerance)
               and is_safe(one.latency, rules.latency_tolerance) for one in cases)
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


# ---- In words that need no statistics. ----


def _sentence(verdict: Verdict, a: str, b: str) -> str:
    """Why the verdict is what it is."""
    return {GO: _go, NO_GO: _no_go, INCONCLUSIVE: _inconclusive}[verdict.word](verdict, a, b)


def _go(verdict: Verdict, a: str, b: str) -> str:
    memory = _memory_clause(verdict)
    if len(verdict.cases) == 1:
        case = verdict.cases[0]
        return f"{b} {_time(case.cost)} than {a} on {case.case} ({interval(case.cost.ratio)}){memory}."
    count, gains = len(verdict.cases), _ranked(verdict.cases, "cost", LESS)
    over_all = f"over all {count} workloads {b} {_time(verdict.overall)} than {a}"
    if not gains:
        return f"{over_all} ({interval(verdict.overall.ratio)}), on none more{memory}."
    best = gains[0]
    return (
        f"{b} takes less time than {a} on {len(gains)} of {count} workloads, on {best.case}"
        f" {percent(best.cost.change)} less, and on none more{memory}; {over_all}."
    )


def _memory_clause(verdict: Verdict) -> str:
    changes = [case.memory for case in verdict.cases]
    if len(changes) == 1 and changes[0].word == LESS:
        return f", and needs {percent(changes[0].change)} less memory"
    return ", and needs no more memory"


def _no_go(verdict: Verdict, a: str, b: str) -> str:
    reasons = []
    failed = [case for case in verdict.cases if case.reason and case.word == NO_GO]
    if failed:
        reasons.append(f"fails on {_names(failed)}")
    slower = _ranked(verdict.cases, "cost", MORE)
    if slower:
        worst = slower[0].cost
        reasons.append(f"{_time(worst)} on {_names(slower)} ({interval(worst.ratio)})")
    elif verdict.overall is not None and verdict.overall.word == MORE:
        reasons.append(f"{_time(verdict.overall)} over all workloads")
    for quantity, noun in (("memory", "memory at its peak"), ("latency", "p99 latency")):
        losers = _ranked(verdict.cases, quantity, MORE)
        if losers:
            more = percent(getattr(losers[0], quantity).change)
            reasons.append(f"has {more} more {noun} on {_names(losers)}")
    gains = _ranked(verdict.cases, "cost", LESS)
    but = f", though it {_time(gains[0].cost)} on {_names(gains)}" if gains else ""
    return f"compared with {a}, {b} {', and '.join(reasons)}{but}."


def _inconclusive(verdict: Verdict, a: str, b: str) -> str:
    faulty = [case for case in verdict.cases if case.reason]
    if faulty:
        more = f" (and {len(faulty) - 1} more)" if len(faulty) > 1 else ""
        return f"there is no verdict on {faulty[0].case}{more}: {faulty[0].reason}."
    gains = _ranked(verdict.cases, "cost", LESS)
    if gains or (verdict.overall is not None and verdict.overall.word == LESS):
        where = f"on {_names(gains)}" if gains else "over all workloads"
        gain = _time(gains[0].cost if gains else verdict.overall)
        return f"{b} {gain} than {a} {where}, but {_doubt(verdict)}."
    return _no_difference(verdict, a, b)


def _doubt(verdict: Verdict) -> str:
    """The guard rail that forbids a GO though nothing is known to be lost."""
    rules = verdict.rules
    rails = (("memory", "peak memory", rules.memory_tolerance), ("latency", "p99 latency", rules.latency_tolerance))
    worst = max(
        (
            (finding.ratio.high - 1 - tolerance, finding, noun, tolerance, case.case)
            for case in verdict.cases
            for quantity, noun, tolerance in rails
            if (finding := getattr(case, quantity)) is not None
        ),
        key=lambda doubt: doubt[0],
    )
    _, finding, noun, tolerance, case = worst
    return (
        f"its {noun} on {case} is not known to stay within {percent(tolerance)}:"
        f" {signed_percent(finding.change)} ({interval(finding.ratio)})"
    )


def _no_difference(verdict: Verdict, a: str, b: str) -> str:
    rules = verdict.rules
    finding = verdict.overall or verdict.cases[0].cost
    where = "over all workloads" if verdict.overall else f"on {verdict.cases[0].case}"
    counts = f"a difference of {percent(rules.effect_min)} or more"
    text = f"{b} {_time(finding)} than {a} {where} ({interval(finding.ratio)})"
    if finding.ratio.farthest <= rules.effect_min:
        return f"{text}: {counts} is all but excluded."
    if not math.isfinite(finding.detectable):
        return f"{text}; so few runs cannot show {counts}."
    found = percent(finding.detectable)
    text += f", which does not prove {counts}; a true one of {found} is found 95 times in 100"
    target = PLANNED * rules.effect_min
    if finding.detectable <= target:
        return f"{text}."
    if finding.rounds_needed >= ROUNDS_SENSIBLE:
        return f"{text}. A quieter machine is needed."
    return f"{text}, one of {percent(target)} with about {finding.rounds_needed} rounds."


def _time(finding: Finding) -> str:
    """"takes 3.2 % less time"."""
    return f"takes {percent(finding.change)} {LESS if finding.change < 0 else MORE} time"


def _ranked(cases: Sequence[CaseVerdict], quantity: str, word: str) -> list[CaseVerdict]:
    """The cases whose finding is `word`, the largest effect first."""
    found = [c for c in cases if (f := getattr(c, quantity)) is not None and f.word == word]
    return sorted(found, key=lambda c: -statistics.effect_of(getattr(c, quantity).ratio.value))


def _names(cases: Sequence[CaseVerdict]) -> str:
    rest = len(cases) - 1
    others = f" and {rest} other workload{'s' if rest > 1 else ''}" if rest else ""
    return cases[0].case + others
