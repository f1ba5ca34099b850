# SPDX-License-Identifier: MIT
"""Verdicts in words: one sentence that needs no statistics to be understood. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import statistics
from .problem import Usage

if TYPE_CHECKING:
    from .verdict import CaseVerdict, Finding, Verdict

LESS, MORE = "less", "more"


def percent(share: float) -> str:
    """A share without a sign; two digits where one would say 0.0 %."""
    value = abs(share) * 100
    return f"{value:.2f} %" if 0 < value < 0.095 else f"{value:.1f} %"


def parse_percent(text: str) -> float:
    """0.01 of "1%", "1 %" and "0.01"."""
    number, sign, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if sign else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share < 1:
        raise Usage(f"'{text}' is not a share from 0 to 100 %, such as 1%")
    return share


def signed_percent(share: float) -> str:
    return f"{share * 100:+.1f} %"


def interval(finding: Finding) -> str:
    """"-0.3 % to +0.8 %"."""
    low, high = finding.ratio.low - 1, finding.ratio.high - 1
    return f"{signed_percent(low)} to {signed_percent(high)}"


def duration(value_ns: float | None) -> str:
    """Three digits and a unit; "-" of nothing."""
    if value_ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value_ns >= size:
            return f"{three_digits(value_ns / size)} {unit}"
    return f"{three_digits(value_ns)} ns"


def three_digits(value: float) -> str:
    """Of 1.234 "1.23", of 12.34 "12.3"; of more than three digits all before the point."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def mebibytes(value_kib: float | None) -> str:
    return "-" if value_kib is None else three_digits(value_kib / 1024)


def sentence(verdict: Verdict, a: str, b: str) -> str:
    """Why the verdict is what it is."""
    if verdict.word == "GO":
        return _go(verdict, a, b)
    if verdict.word == "NO-GO":
        return _no_go(verdict, a, b)
    return _inconclusive(verdict, a, b)


def _go(verdict: Verdict, a: str, b: str) -> str:
    memory = _memory_clause(verdict)
    if len(verdict.cases) == 1:
        case = verdict.cases[0]
        return f"{b} {_time(case.cost)} than {a} on {case.case} ({interval(case.cost)}){memory}."
    count, gains = len(verdict.cases), _ranked(verdict.cases, "cost", LESS)
    over_all = f"over all {count} workloads {b} {_time(verdict.overall)} than {a}"
    if not gains:
        return f"{over_all} ({interval(verdict.overall)}), on none more{memory}."
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
    failed = [case for case in verdict.cases if case.reason and case.word == "NO-GO"]
    if failed:
        reasons.append(f"fails on {_names(failed)}")
    slower = _ranked(verdict.cases, "cost", MORE)
    if slower:
        worst = slower[0].cost
        reasons.append(f"{_time(worst)} on {_names(slower)} ({interval(worst)})")
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
        f" {signed_percent(finding.change)} ({interval(finding)})"
    )


def _no_difference(verdict: Verdict, a: str, b: str) -> str:
    from .verdict import PLANNED, ROUNDS_SENSIBLE

    rules = verdict.rules
    finding = verdict.overall or verdict.cases[0].cost
    where = "over all workloads" if verdict.overall else f"on {verdict.cases[0].case}"
    counts = f"a difference of {percent(rules.effect_min)} or more"
    text = f"{b} {_time(finding)} than {a} {where} ({interval(finding)})"
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
    return sorted(found, key=lambda c: -statistics.effect_of(getattr(c, quantity).ratio.estimate))


def _names(cases: Sequence[CaseVerdict]) -> str:
    rest = len(cases) - 1
    others = f" and {rest} other workload{'s' if rest > 1 else ''}" if rest else ""
    return cases[0].case + others
