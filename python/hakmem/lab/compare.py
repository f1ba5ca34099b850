# SPDX-License-Identifier: MIT
"""`compare`: the user's own program under several allocators, and an answer that needs no statistics to be read.

Every allocator is held against one of them, the baseline. A difference counts when it is beyond doubt (Mann-Whitney
after Holm, the interval), beyond the noise (the A/A arm), and not negligible.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from . import doctor, runner, statistics, store
from .arms import find_arms
from .base import Usage
from .bench import advise_peers, check_output, only_session, write_results
from .model import Arm, Sample, Session
from .options import RUNS
from .program import make_case, rehearse
from .progress import duration_text, say
from .statistics import LESS, MORE, UNCLEAR, Ratio
from .summary import SAMPLES_MIN, Cell, Row, Summary, is_peer, rounds_of, summarise
from .tables import Fitting, details_table, machine_line, plain_table, session_table
from .wording import counted, duration, interval, listed, mebibytes, p_text, percent, signed_percent

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


def run(
    command: list[str], alloc: str, runs: int, load: str | None, rest: bool, timeout: float, results: Path | None,
    output: Path | None, as_json: bool, new: bool, force: bool,
) -> int:
    """Measures the program and prints the answer."""
    if load == "":
        raise Usage("the load command is empty")  # else a server would run until --timeout
    case = make_case(command, load or "", timeout, rest)
    arms = ordered(find_arms(alloc or None))
    words = ["compare"]
    for name, value in (("--alloc", alloc), ("--load", load), ("--runs", "" if runs == RUNS else str(runs))):
        words += [name, value] if value else []
    words += [] if rest else ["--no-rest"]
    check_output(output)
    advise_peers(arms, alloc)
    with only_session(force):
        findings = doctor.warn()
        say(f"one run under {arms[0].name} first, which does not count")
        seconds = rehearse(case, arms)
        rested = min(runs, runner.REST_ROUNDS) * max(case.rest_s, default=0)
        left = duration_text((seconds * runs + rested) * (len(arms) + 1))
        again = f"under each of {len(arms)} allocators and {arms[0].name} again"
        say(f"{counted(runs, 'run')} {again}: about {left}")
        session = runner.run_session([case], arms, runs, None, [*words, "--", *command], results=results, new=new,
                                     findings=findings, shows=True)
    comparison = show(session, output, as_json)
    store.mark_shown(session, results)
    return 0 if comparison.is_possible else 1


def ordered(arms: Sequence[Arm]) -> list[Arm]:
    """The baseline first: it is the one that runs twice."""
    if len(arms) < 2:
        raise Usage("compare needs at least two allocators; ./hakmem peers install gets some")
    baseline = baseline_of(arms)
    return [baseline, *(arm for arm in arms if arm is not baseline)]


def show(session: Session, output: Path | None, as_json: bool) -> Comparison:
    """The answer and the table, or JSON, on standard output; files in `output`."""
    from . import page, plots  # matplotlib takes its time

    summary = summarise(session)
    comparison = compare_arms(session, summary)
    data = {"session": session.id, **comparison.to_json()}
    parts = report_parts(session, comparison)
    write_results(session, data, parts, output, as_json, lambda directory: page.write_page(
        session, directory, plots.write_plots(session, directory, summary),
        [*parts, session_table(session, summary), details_table(summary)],
    ))
    return comparison


def report_parts(session: Session, comparison: Comparison) -> list[Any]:
    """The answer first; then what it rests on."""
    parts: list[Any] = [Text(comparison.answer, style="bold")]
    parts += [Text(note, style="yellow") for note in comparison.notes]
    return [Text(), *parts, Text(), result_table(comparison), Text(), footnote(session, comparison)]


def result_table(comparison: Comparison) -> Fitting:
    """Whole, with intervals below their ratios, or without what can be found on the page."""
    left_out = ("mean", "p", "faults", "CPU")
    narrower = [(lambda count=count: _table(comparison, "\n", left_out[:count])) for count in range(1, 5)]
    return Fitting(lambda: _table(comparison, " ", ()), *narrower, lambda: _table(comparison, "", left_out))


def _table(comparison: Comparison, gap: str, without: Sequence[str]) -> Table:
    table = plain_table()
    seconds = sorted({second for r in comparison.results for second, _ in r.cell.rest_kib})
    rests = {f"after {second:g}": f"MiB after {second:g} s" for second in seconds}
    names = {"time": "time", "change": f"against {comparison.baseline}", "p": "p", "CPU": "CPU", "peak": "peak MiB",
             "memory": "against", **rests, "faults": "page faults", "mean": "mean MiB"}
    shown = {key: name for key, name in names.items() if key not in without}
    table.add_column("allocator", min_width=10, overflow="fold")
    for name in shown.values():
        table.add_column(name if gap == " " else name.replace(" ", "\n"), justify="right", no_wrap=True)
    for result in comparison.results:
        style = "bold" if result.arm.split(" ")[0] == "hakmem" else ""
        cell, median = result.cell, result.cell.medians
        if not cell.runs:
            table.add_row(result.arm, Text("failed", style="red"), style=style)
            continue
        stars = {key: "*" if result.arm in comparison.best[key] else " " for key in ("time", "peak")}
        values: dict[str, str | Text] = {
            "time": duration(median["time"]) + stars["time"], "change": change_text(result.time, gap),
            "p": p_text(result.time.p) if result.time and result.time.p is not None else "-", "CPU": duration(median["cpu"]),
            "peak": mebibytes(median["peak"]) + stars["peak"], "memory": change_text(result.memory),
            "faults": f"{median['faults']:,.0f}", "mean": mebibytes(median["mean"]),
            **{f"after {second:g}": mebibytes(kib) for second, kib in cell.rest_kib},
        }
        table.add_row(result.arm, *[values.get(key, "-") for key in shown], style=style)
    return table


def change_text(change: Change | None, gap: str = "") -> Text:
    """Green or red only where the difference is beyond doubt; after the gap the interval."""
    if change is None:
        return Text("-", style="dim")
    text, ratio = signed_percent(change.share), change.ratio
    if gap and ratio.low is not None:
        text += f"{gap}({' to '.join(f'{(end - 1) * 100:+.1f}' for end in ratio.ends)})"
    return Text(text, style={"less": "green", "more": "red"}.get(change.word, ""))


def footnote(session: Session, comparison: Comparison) -> Text:
    floors = [r.time.floor for r in comparison.results if r.time and r.time.floor is not None]
    noise = f"noise {floors[0] * 100:.1f} %, " if floors else ""
    return Text(
        f"* cannot be told from the best; {noise}medians of {session.rounds} interleaved runs, "
        f"95 % intervals, p of Mann-Whitney after Holm. {_rest_sentence(session)}"
        f"{machine_line(session.machine)}.",
        style="dim",
    )


def _rest_sentence(session: Session) -> str:
    """Where the memory after the work comes from, or why there is none."""
    case = session.cases[0]
    if not case.load:
        return "Memory after the work is known of servers only (--load): this program then ends. "
    if not case.rest_s:
        return ""
    return f"MiB after the load are medians of {counted(runner.REST_ROUNDS, 'round')}. "
