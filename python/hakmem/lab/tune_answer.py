# SPDX-License-Identifier: MIT
"""What came of `tune`: the verdicts over the session, in a sentence, a table and comments."""

import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import profile_file, statistics, verdict
from .model import Case, Sample, Session
from .statistics import CONFIDENCE, Ratio
from .tables import plain_table
from .tune_search import Figures, Goal
from .verdict import GO, LESS, MORE, NO_GO, CaseVerdict, Evidence, Rules, Series
from .wording import counted, interval, one_line, percent, signed_percent


@dataclass(frozen=True)
class Candidate:
    """One arm beside the default. The ratios are relative to the default."""

    name: str
    settings: dict[str, str]
    word: str  # GO, NO-GO or INCONCLUSIVE
    reason: str
    cost: float  # what is minimised, relative to the default; 1 if it is not known
    ratios: dict[str, Ratio]  # by what it is of; empty where runs failed


@dataclass(frozen=True)
class Answer:
    session: Session
    case: Case
    candidates: list[Candidate]  # the best first
    sentence: str
    comments: list[str]

    @property
    def winner(self) -> Candidate | None:
        return next((one for one in self.candidates if one.word == GO), None)


def answer_of(session: Session, case: Case, goal: Goal, settings: Mapping[str, dict[str, str]], work: str) -> Answer:
    """`settings` of each candidate by its words; `work` says what was done."""
    default = session.arms[0]
    # Each candidate is a chance to be lucky: the risk is shared by all. So are the intervals wider,
    # and hold for the best of the candidates as well.
    rules = Rules(memory_tolerance=goal.guard, latency_tolerance=goal.guard, alpha=Rules.alpha / len(settings),
                  confidence=1 - (1 - CONFIDENCE) / len(settings))
    candidates = [_candidate(session, f"{default.name} {words}", chosen, goal, rules)
                  for words, chosen in settings.items()]
    candidates.sort(key=lambda one: (one.word != GO, one.cost))
    best = candidates[0]
    what = " ".join(f"{name}={value}" for name, value in best.settings.items())
    sentence = (f"{best.word}: keep the default; nothing is known to be better for {case.name}. The best candidate, {what}: "
                f"{best.reason}.")
    if best.word == GO:
        figures = ", ".join(f"{name} {signed_percent(ratio.value - 1)}" for name, ratio in best.ratios.items())
        sentence = f"GO: {what} is better than the default for {case.name}: {figures}."
    weight = f", weight {goal.weight:g}" if goal.name == "both" else ""
    facts = session.machine
    comments = [
        f"of {session.created[:10]}, by ./hakmem tune", f"program: {case.title}",
        f"load: {shlex.join(case.load)}" if case.load else "",
        f"metric: {case.metric}{', a rate' if case.is_rate else ''}" if case.metric else "",
        f"machine: {facts['cpu']}, {facts['cores']} CPUs, {facts['memory_kib'] / 2**20:.0f} GiB, Linux {facts['kernel']}",
        f"hakmem: {default.version}", f"goal: {goal.name}{weight}, guard {percent(goal.guard)}; {work} of each", sentence,
        *(f"{name}: {_change(ratio)} ({interval(ratio)})" for name, ratio in best.ratios.items()),
    ]
    comments = [one_line(comment) for comment in comments if comment]
    return Answer(session, case, candidates, sentence, comments)


def _candidate(session: Session, arm: str, settings: dict[str, str], goal: Goal, rules: Rules) -> Candidate:
    """Time stands where other sessions have the latency: it is the second guard rail."""
    default = session.arms[0].name
    again = next(one.name for one in session.arms if one.again_of == default)
    case = session.cases[0]

    def series(value: Callable[[Sample], float]) -> Series:
        return Series(*({s.round: value(s) for s in session.of(case.name, name)} for name in (default, again, arm)))

    def aim(sample: Sample) -> float:
        return goal.aim(Figures(sample.cost_ns, sample.peak_kib, sample.rss_mean_kib, 0))

    time, mean = series(lambda s: s.cost_ns), series(lambda s: s.rss_mean_kib)
    evidence = Evidence(case.name, cost=series(aim), memory=series(lambda s: float(s.peak_kib)), latency=time,
                        failures_a=sum(f.arm in (default, again) for f in session.failures),
                        failures_b=sum(f.arm == arm for f in session.failures))
    found = verdict.decide([evidence], rules)
    one = found.cases[0]
    if one.cost is None or one.memory is None or one.latency is None:
        reason = one.reason
        if evidence.failures_a or evidence.failures_b:
            reason = (f"it failed {counted(evidence.failures_b, 'time')}, and the default "
                      f"{counted(evidence.failures_a, 'time')}")
        return Candidate(arm, settings, found.word, reason, 1.0, {})
    ratio = one.latency.ratio
    if case.is_rate:
        ratio = ratio.inverse
    ratios = {
        "number of --metric" if case.metric else "time of the load" if case.load else "time": ratio,
        "peak memory": one.memory.ratio,
        "mean memory": statistics.ratio_interval(statistics.paired_ratios(mean.b, mean.a), confidence=rules.confidence),
    }
    return Candidate(arm, settings, found.word, _reason(one, goal, rules), one.cost.ratio.value, ratios)


def _reason(one: CaseVerdict, goal: Goal, rules: Rules) -> str:
    """Why it is no GO."""
    assert one.cost and one.memory and one.latency
    rails = {"time": one.latency, "peak memory": one.memory}
    lost = [f"{signed_percent(f.change)} {name}" for name, f in rails.items() if f.word == MORE]
    if lost:
        return " and ".join(lost)
    if one.word == NO_GO:
        return f"it is worse by {percent(one.cost.change)} (goal {goal.name})"
    if one.cost.word == LESS:
        doubtful = " and ".join(name for name, f in rails.items() if not verdict.is_safe(f, goal.guard))
        return (f"{doubtful} may be worse by more than the guard, {percent(goal.guard)}; more --minutes may show that it is "
                "not, and a larger --guard allows it")
    return (f"a gain of {percent(rules.effect_min)} (goal {goal.name}) is not shown; these runs would have found one of "
            f"{percent(one.cost.detectable)}")


def _change(ratio: Ratio) -> str:
    return signed_percent(ratio.value - 1)


# ---- The user's view. ----


def show(answer: Answer, written: Path | None, as_json: bool) -> None:
    """The sentence first, then the figures, then what to type."""
    lines = _lines(answer, written)
    if as_json:
        text = {"session": answer.session.id, "sentence": answer.sentence, "use": lines,
                "winner": dataclasses.asdict(answer.winner) if answer.winner else None,
                "candidates": [dataclasses.asdict(one) for one in answer.candidates],
                "profile": str(written) if written else None}
        print(json.dumps(text, indent=1))
        return
    console = Console()
    console.print(Text(answer.sentence), soft_wrap=True)
    if answer.candidates[0].ratios:
        console.print()
        console.print(_table(answer.candidates[0]))
    console.print(Text("\nTo use it:" if answer.winner else "\nThe default needs no setting:"))
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _lines(answer: Answer, written: Path | None) -> list[str]:
    """The lines to type: with variables, and with the profile file."""
    program = answer.case.title
    settings = answer.winner.settings if answer.winner else {}
    words = [f"HAKMEM_{name.upper()}={shlex.quote(value)}" for name, value in settings.items()]
    lines = [" ".join([*words, "./hakmem run --", program])]
    if written:
        name = str(written) if profile_file.is_file_name(str(written)) else f"./{written}"
        lines.append(f"./hakmem run --profile {shlex.quote(name)} -- {program}")
    return lines


def _table(one: Candidate) -> Table:
    table = plain_table()
    table.add_column("against the default")
    for name in ("change", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, ratio in one.ratios.items():
        table.add_row(name, _change(ratio), interval(ratio))
    return table
