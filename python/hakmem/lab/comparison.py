# SPDX-License-Identifier: MIT
"""What a session of one program says, in a sentence that needs no statistics to be read. Pure.

Every allocator is held against one of them, the baseline. A difference counts when it is beyond
doubt (Mann-Whitney after Holm, the interval), beyond the noise (the A/A arm), and not negligible.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import statistics
from .model import Arm, Sample, Session
from .statistics import LESS, MORE, UNCLEAR, Ratio
from .summary import SAMPLES_MIN, Cell, Row, Summary, is_peer, rounds_of
from .wording import interval, listed, percent

ALPHA = 0.002
EFFECT_MIN = 0.01
REST_EFFECT_KIB = 1024
"""Idle memory that differs by less is not worth a word."""
SHORT_NS = 20e6
"""Programs shorter than this are mostly the start of a process."""
NAMED_MAX = 3
"""More names than this are counted instead."""

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Change:
    """One quantity relative to the baseline."""

    ratio: Ratio
    p: float | None = None  # after Holm
    floor: float | None = None  # what the baseline differs from itself by
    word: str = UNKNOWN

    @property
    def share(self) -> float:
        """-0.06 is 6 % less."""
        return self.ratio.value - 1

    @property
    def is_unproved(self) -> bool:
        """The interval and the noise say that there is a difference; the runs are too few."""
        return self.word == UNCLEAR and self.ratio.direction(0, ALPHA, max(EFFECT_MIN, self.floor or 0)) != UNCLEAR


@dataclass(frozen=True)
class Result:
    """One allocator."""

    arm: str
    cell: Cell
    time: Change | None  # None of the baseline, and of what has no samples
    memory: Change | None


@dataclass(frozen=True)
class Comparison:
    program: str
    baseline: str
    results: list[Result]
    answer: str
    notes: list[str]
    best: dict[str, list[str]]  # arms that cannot be told from the best in time and peak

    @property
    def is_possible(self) -> bool:
        """Whether there are two things to compare, one of them the baseline."""
        ran = [result.arm for result in self.results if result.cell.runs]
        return self.baseline in ran and len(ran) > 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def baseline_of(arms: Sequence[Arm]) -> Arm:
    """What programs have without us: glibc; else the first peer; else the last arm."""
    plain = [arm for arm in arms if not arm.again_of]
    system = [arm for arm in plain if arm.library is None and not arm.is_ours]
    peers = [arm for arm in plain if is_peer(arm)]
    return [*system, *peers, *reversed(plain)][0]


def compare_arms(session: Session, summary: Summary) -> Comparison:
    """The session has one case."""
    case, row = session.cases[0], summary.rows[0]
    baseline = baseline_of(session.arms).name
    samples = {arm.name: session.of(case.name, arm.name) for arm in session.arms}
    again = next((arm.name for arm in session.arms if arm.again_of == baseline), "")
    ordered = sorted((arm for arm in session.arms if not arm.again_of), key=lambda arm: (not arm.is_ours, arm.name != baseline))
    others = [arm.name for arm in ordered if arm.name != baseline and samples[arm.name]]
    times = _changes(samples, baseline, again, others, lambda sample: sample.cost_ns)
    peaks = _changes(samples, baseline, again, others, lambda sample: sample.peak_kib)
    results = [Result(arm.name, row.cells[arm.name], times.get(arm.name), peaks.get(arm.name)) for arm in ordered]
    ours = next((arm.name for arm in ordered if arm.is_ours and arm.name != baseline), "")
    took = "served its load in" if case.load else "took"
    answer = _answer(_Words(case.name, took, baseline, results), row, ours)
    notes = _notes(session, results, baseline, row, samples)
    return Comparison(case.name, baseline, results, answer, notes, {key: row.views[key].best for key in ("time", "peak")})


# ---- Figures. ----


def _changes(
    samples: dict[str, list[Sample]], baseline: str, again: str, others: Sequence[str], value: Callable[[Sample], float]
) -> dict[str, Change]:
    rounds = {arm: rounds_of(of, value) for arm, of in samples.items()}
    if not rounds[baseline]:
        return {}
    ratios = statistics.paired_ratios(rounds.get(again, {}), rounds[baseline])
    floor = statistics.ratio_interval(ratios).farthest if len(ratios) >= SAMPLES_MIN else None
    p_values = [p_value(list(rounds[arm].values()), list(rounds[baseline].values())) for arm in others]
    return {arm: _change(rounds[arm], rounds[baseline], p, floor)
            for arm, p in zip(others, statistics.holm(p_values), strict=True)}


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Mann-Whitney's; exact also with ties where all of one lie above all of the other.

    Peaks of memory often are equal, and the approximation for ties is far from exact there.
    """
    if max(first) < min(second) or max(second) < min(first):
        return 2 / math.comb(len(first) + len(second), len(first))
    return statistics.mann_whitney(first, second)


def _change(values: dict[int, float], base: dict[int, float], p: float, floor: float | None) -> Change:
    ratios = statistics.paired_ratios(values, base)
    if len(ratios) < SAMPLES_MIN:
        means = [statistics.geometric_mean(of.values()) for of in (values, base)]
        return Change(Ratio(statistics.geometric_mean(ratios) or means[0] / means[1]))
    ratio = statistics.ratio_interval(ratios)
    return Change(ratio, p, floor, ratio.direction(p, ALPHA, max(EFFECT_MIN, floor or 0)))


def runs_needed(arms: int) -> int:
    """The fewest runs of each with which the clearest difference can be beyond doubt."""
    runs = SAMPLES_MIN
    while 2 / math.comb(2 * runs, runs) * max(arms - 1, 1) >= ALPHA:
        runs += 1
    return runs


# ---- Words. ----


@dataclass(frozen=True)
class _Words:
    program: str
    took: str
    baseline: str
    results: list[Result]

    def of(self, arm: str) -> Result:
        return next(result for result in self.results if result.arm == arm)


def _answer(words: _Words, row: Row, ours: str) -> str:
    if not words.of(words.baseline).cell.runs:
        return f"{words.program} did not run under {words.baseline}, so there is no answer."
    measured = [result for result in words.results if result.cell.runs]
    if len(measured) < 2:
        return f"{words.program} ran under {words.baseline} only, so there is nothing to compare."
    if max(result.cell.runs for result in measured) < SAMPLES_MIN:
        return f"So few runs decide nothing; --runs {runs_needed(len(measured))} can."
    parts = [_ours_clause(words, ours) if ours else "", _ranking_clause(words, row, ours)]
    sentence = "; ".join(part for part in parts if part)
    return f"{sentence[0].upper() if not ours else sentence[0]}{sentence[1:]}."


def _ours_clause(words: _Words, ours: str) -> str:
    result = words.of(ours)
    if result.time is None or result.memory is None:
        return f"{words.program} did not run under {ours}: {result.cell.sentence}"
    if result.time.ratio.low is None:
        return f"Too few rounds of {words.program} ended well under both {ours} and {words.baseline} to compare them"
    time, memory = _amount(result.time, "time"), _amount(result.memory, "memory at its peak")
    return f"Compared with {words.baseline}, {words.program} under {ours} {words.took} {time} and needed {memory}"


def _amount(change: Change, noun: str) -> str:
    """"6.1 % less time (4.0 to 8.2 %)", or that it cannot be told. There is an interval."""
    near, far = sorted(abs(end - 1) for end in change.ratio.ends)
    ends = f" ({near * 100:.1f} to {percent(far)})" if percent(near) != percent(far) else ""
    if change.word in (LESS, MORE):
        return f"{percent(change.share)} {change.word} {noun}{ends}"
    word = LESS if change.share < 0 else MORE
    if change.is_unproved:
        return f"perhaps {percent(change.share)} {word} {noun}{ends}"
    if far < EFFECT_MIN / 2:
        return f"the same {noun}"
    if change.ratio.ends[0] <= 1 <= change.ratio.ends[1]:
        return f"no measurably different {noun} ({interval(change.ratio)})"
    if statistics.effect_of(change.ratio.value) <= (change.floor or 0):
        return f"no {word} {noun} than the noise explains ({interval(change.ratio)})"
    return f"hardly {word} {noun} ({interval(change.ratio)})"


def _ranking_clause(words: _Words, row: Row, ours: str) -> str:
    measured = [result.arm for result in words.results if result.cell.runs]
    winners = [arm for arm in measured if arm in row.views["time"].best]
    count = len(measured)
    if len(winners) == count:
        return f"none of the {count} allocators can be told from another in time"
    if not winners:
        return ""
    if winners == [ours]:
        return f"{ours} was the fastest of {count} allocators"
    if len(winners) == 1:
        how = words.of(winners[0]).time
        by = f" ({_amount(how, 'time')} than {words.baseline})" if how and how.word == LESS else ""
        return f"the fastest of {count} allocators was {winners[0]}{by}"
    names = listed(winners) if len(winners) <= NAMED_MAX else f"{len(winners)} of them"
    also = f", {ours} among them" if ours in winners and len(winners) > NAMED_MAX else ""
    return f"the fastest of {count} allocators were {names}{also}, which cannot be told apart"


# ---- What a reader must know besides. ----


def _notes(
    session: Session, results: Sequence[Result], baseline: str, row: Row, samples: dict[str, list[Sample]]
) -> list[str]:
    notes = _lean_note(results, baseline, row) + _rest_note(samples, results, baseline)
    if any(finding.get("level") == "bad" for finding in session.findings):
        notes.append("The machine was not fit for measuring (./hakmem doctor says why): repeat it.")
    notes += output_notes(samples, baseline)
    for result in results:
        if result.cell.failures:
            times = f"{result.cell.failures} of {session.rounds} runs"
            notes.append(f"Under {result.arm}, {times} failed: {result.cell.sentence}.")
    measured = [result for result in results if result.cell.runs]
    runs, needed = max((r.cell.runs for r in measured), default=0), runs_needed(len(measured))
    if SAMPLES_MIN <= runs < needed:
        notes.append(f"With {runs} runs no difference can be proved; --runs {needed} can.")
    cost = row.cells[baseline].medians.get("time")
    if cost is not None and cost < SHORT_NS:
        notes.append(f"One run takes {cost / 1e6:.1f} ms: mostly the start of a process, not its work.")
    return notes + _server_note(session, baseline)


def _lean_note(results: Sequence[Result], baseline: str, row: Row) -> list[str]:
    changes = {r.arm: r.memory for r in results if r.memory is not None and r.memory.word == LESS}
    best = min(changes, key=lambda arm: changes[arm].share, default="")
    if best not in row.views["peak"].best:
        return []
    return [f"{best} needed the least memory: {percent(changes[best].share)} less than {baseline}."]


def _rest_note(samples: dict[str, list[Sample]], results: Sequence[Result], baseline: str) -> list[str]:
    """What the idle server held at the last reading, when it differs.

    That is by more than a MiB, with ranges that do not even touch: these few readings vary little,
    and no test of them could be beyond doubt.
    """
    rests = {result.arm: result.cell.rest_kib[-1] for result in results if result.cell.rest_kib}
    if baseline not in rests:
        return []
    seconds = rests[baseline][0]
    middle = {arm: kib for arm, (second, kib) in rests.items() if second == seconds}
    held = {arm: [kib for s in samples[arm] for second, kib, *_ in s.rest if second == seconds] for arm in middle}
    leanest = min(middle, key=middle.__getitem__)
    ours = [result.arm for result in results if result.arm.split(" ")[0] == "hakmem"]
    named = [arm for arm in dict.fromkeys([*ours[:1], leanest]) if arm in held]
    different = [arm for arm in named if _is_apart(held[arm], held[baseline])]
    if not different:
        return []
    names = dict.fromkeys([*different, baseline])
    parts = [f"{arm} {middle[arm] / 1024:.1f} MiB" for arm in names]
    return [f"Held by the idle server {seconds:g} s after its load: {listed(parts)}."]


def _is_apart(first: Sequence[float], second: Sequence[float]) -> bool:
    gap = max(min(first) - max(second), min(second) - max(first))
    return gap > REST_EFFECT_KIB


def output_notes(samples: dict[str, list[Sample]], baseline: str) -> list[str]:
    """A program whose output is always the same, but another under one allocator, is suspicious."""
    outputs = {arm: {s.output_sha256 for s in of} for arm, of in samples.items() if of}
    usual = outputs.get(baseline, set())
    if len(usual) != 1 or any("" in of for of in outputs.values()):
        return []
    different = [arm for arm, of in outputs.items() if of != usual]
    return [
        f"Under {arm} the program printed something else than under {baseline}: check its results "
        "before anything else."
        for arm in different
    ]


def _server_note(session: Session, baseline: str) -> list[str]:
    """Without a library a program may still bring its own allocator."""
    serving = session.proofs.get(f"{baseline}: {session.cases[0].name}", {}).get("malloc", "")
    arm = next(arm for arm in session.arms if arm.name == baseline)
    file = Path(serving.split(" and ")[0]).name
    if arm.library is not None or not file or file.startswith("libc.so"):
        return []
    return [f"The program brings its own malloc ({file}); under the name {baseline} that one ran."]
