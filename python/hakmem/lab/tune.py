# SPDX-License-Identifier: MIT
"""`tune`: searches profiles and options for one program; the laboratory's verdict chooses.

A share of the time is the search's (tune_search.py), the rest that of the verdict: the best
candidates and the default in interleaved runs, which are new, so that luck in the search counts for
nothing. State: the journal of the search and the session, both in the folder of results.
"""

import dataclasses
import itertools
import json
import math
import os
import random
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import arms, base, profile_file, proof, runner, statistics, store, verdict
from .ab import check_fitness
from .base import Problem, Usage, results_directory
from .bench import only_session
from .compare import SHORT_NS
from .measure import measure, prove_program
from .model import Arm, Case, Sample, Session
from .options import ROUNDS, ROUNDS_MAX
from .program import make_case
from .progress import Bar, duration_text, say
from .runner import PADDING_LIMIT, Run
from .statistics import CONFIDENCE, Ratio
from .tables import plain_table
from .tune_search import (
    CANDIDATES_MAX, DEFAULT_FIRST, LIMIT_FACTOR, LIMIT_S_MIN, STARTS, Figures, Goal, Journal, Point, Search, ladders,
    settings_of, words_of,
)
from .verdict import GO, LESS, MORE, NO_GO, CaseVerdict, Evidence, Rules, Series
from .wording import counted, interval, one_line, parse_percent, percent, signed_percent


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


MINUTES_MAX, WEIGHT_MAX = 10_000, 1_000
GOALS = ("time", "memory", "both")
VERDICT_SHARE = 0.4
"""Of all the time. Twice as much leaves too little to find anything; half as much needs programs of
half the length for the rounds of a verdict."""
TIDY_SHARE = 0.25
"""Of the search's time, for leaving out settings that do not show."""
ARMS_MIN = 3  # the default twice and one candidate
OVERHEAD = 1.2
"""Runs take longer on some days than on others, and starting them takes its time."""


def run(
    command: list[str], minutes: float, goal: str, weight: float, guard: str, load: str | None, metric: str, rate: bool,
    output: Path | None, seed: int | None, results: Path | None, new: bool, force: bool, as_json: bool,
) -> None:
    """Searches, proves, and prints the answer."""
    aim = Goal(goal, weight, parse_percent(guard))
    if not 0 < minutes <= MINUTES_MAX:
        raise Usage(f"--minutes is a number above 0 and at most {MINUTES_MAX}, not {minutes:g}")
    if not 0 <= weight <= WEIGHT_MAX:
        raise Usage(f"--weight is a number from 0 to {WEIGHT_MAX}, not {weight:g}")
    if goal not in GOALS:
        raise Usage(f"--goal is {', '.join(GOALS[:-1])} or {GOALS[-1]}, not '{goal}'")
    case = _case(command, load, metric, rate, minutes * 60)
    path = output or Path(f"{Path(command[0]).name}.profile")
    profile_file.check_writable(path)
    folder = results or results_directory()
    with only_session(force):
        findings = check_fitness(force)
        tuning = Tuning(case, arms.our_arm(), aim, minutes * 60, folder, seed, new)
        try:
            answer = tuning.run(findings)
        finally:
            tuning.journal.close()
    written = path if answer.winner or output else None
    if written:
        chosen = answer.winner.settings if answer.winner else {"profile": STARTS[0]}
        profile_file.write_profile(written, chosen, answer.comments)
    elif path.exists():
        say(f"{path} is of an earlier tune and stays as it is")
    show(answer, written, as_json)
    tuning.finish(answer.session)


def _case(command: Sequence[str], load: str | None, metric: str, rate: bool, seconds: float) -> Case:
    if load == "":
        raise Usage("the load command is empty")
    if rate and not metric:
        raise Usage("--rate needs --metric, the pattern of the number")
    try:
        groups = re.compile(metric).groups
    except re.error as error:
        raise Usage(f"--metric {metric}: {error}") from error
    if groups > 1:
        raise Usage(f"--metric {metric}: at most one group, the number")
    case = make_case(command, load or "", max(seconds, 1), rest=False)
    return dataclasses.replace(case, metric=metric, is_rate=rate)


class Tuning:
    """One program, from the first run to the verdict; goes on with what is in the journal."""

    def __init__(
        self, case: Case, arm: Arm, goal: Goal, whole_s: float, folder: Path, seed: int | None = None, new: bool = False
    ) -> None:
        self._case, self._arm, self._goal = case, arm, goal
        self._whole_s, self._folder, self._seed = whole_s, folder, seed
        self._run_s_max = whole_s * VERDICT_SHARE / (Rules().samples_min * ARMS_MIN * OVERHEAD)
        # Tells the question: what must be equal for a search to go on.
        key = store.key_of([dataclasses.replace(case, timeout_s=0).to_json(), base.file_hash(case.command[0]),
                            dataclasses.astuple(goal), arm.sha256, base.machine_id(), ladders()])
        self.journal = Journal(folder / f"tune-{key}.journal", seed, new)
        self._padding = random.Random(seed)
        self._spent_s = float(self.journal.facts.get("spent_s", 0))
        self._started = time.monotonic()
        self._progress = Bar(whole_s)
        self._search = Search(self.journal, goal, self._run_once, lambda: (1 - VERDICT_SHARE) * whole_s - self._spent(),
                              self._progress.say)

    def run(self, findings: list[dict[str, str]]) -> Answer:
        """The whole of it."""
        if "plan" not in self.journal.facts:
            with self._progress:
                try:
                    self._find()
                except (KeyboardInterrupt, OSError) as error:
                    if not runner.is_interrupt(error):
                        raise
                    raise Problem(f"stopped; saved candidates: {self._count()}; the same command goes on",
                                  runner.STATUS_INTERRUPTED) from error
        plan = self.journal.facts["plan"]
        candidates = [dict(point) for point in plan["candidates"]]
        session = self._measure(candidates, plan["rounds"], plan["limit_s"], findings)
        words = f"{self._count()} candidates, then {session.rounds} rounds"
        settings = {words_of(point): settings_of(point) for point in candidates}
        return answer_of(session, self._case, self._goal, settings, words)

    def finish(self, session: Session) -> None:
        """The same command begins anew from now on."""
        store.mark_shown(session, self._folder)
        self.journal.path.rename(self._folder / f"{session.id}.journal")

    # ---- The search. ----

    def _find(self) -> None:
        """Fills the plan of the verdict."""
        done = len(self.journal.facts.get("defaults", []))
        if done:
            self._progress.say(f"going on with an unfinished search: {self._count()} candidates in "
                               f"{duration_text(self._spent_s)}; --new begins anew")
        else:
            self._progress.say(f"{self._case.name} under the default settings first")
            _, sentence = prove_program(self._case, self._arm)
            if sentence:
                raise Problem(f"{self._case.name}: {sentence}", 126)
        for _ in range(done, DEFAULT_FIRST):
            self._check_budget(self._search.measure_default())
        search_s = (1 - VERDICT_SHARE) * self._whole_s
        self._search.go_on(TIDY_SHARE * search_s)
        ranked = self._search.best(CANDIDATES_MAX)
        best = list(itertools.islice(filter(self._is_sound, ranked), 2))
        if not best:
            raise Problem("no candidate ended well: keep the default; --new searches again")
        tidied = self._search.tidy(best[0])
        if tidied != best[0] and self._is_sound(tidied):
            best = [tidied, *(point for point in best if point != tidied)]
        self.journal.note("plan", self._plan(best))

    def _is_sound(self, point: Point) -> bool:
        """Whether the verdict will accept it: a warning of hakmem would end the session."""
        try:
            proof.prove(self._arm_of(point))
        except Problem as problem:
            self._progress.say(f"{problem}; this candidate is left out")
            return False
        return True

    def _check_budget(self, default: Figures) -> None:
        needed_s = self._whole_s * default.seconds / self._run_s_max
        if needed_s > self._whole_s:
            raise Problem(f"{self._whole_s / 60:g} minutes are too short: a run takes {default.seconds:.1f} s, and search and "
                          f"verdict need {math.ceil(needed_s / default.seconds)} of them; type --minutes "
                          f"{math.ceil(needed_s / 60)}, or take a shorter run of the program")

    def _plan(self, best: Sequence[Point]) -> dict[str, Any]:
        """Two candidates if both get enough rounds in the time left, else one."""
        left_s, run_s = max(self._whole_s - self._spent(), 0.0), self._search.base.seconds

        def rounds(candidates: int) -> int:
            return int(left_s / (run_s * OVERHEAD * (ARMS_MIN - 1 + candidates)))

        count = 2 if rounds(2) >= ROUNDS else 1
        return {"candidates": list(best[:count]), "limit_s": self._search.limit_s,
                "rounds": min(max(rounds(count), Rules().samples_min), ROUNDS_MAX)}

    def _run_once(self, point: Point, limit_s: float | None) -> Figures | str:
        longest_s = limit_s or max(LIMIT_FACTOR * self._run_s_max, LIMIT_S_MIN)
        case = dataclasses.replace(self._case, timeout_s=longest_s)
        start, padding = time.monotonic(), self._padding.randrange(PADDING_LIMIT)
        outcome = measure(case, self._arm_of(point), padding)
        seconds = time.monotonic() - start
        sentence = outcome.sentence(case)
        self.journal.note("spent_s", self._spent())
        left = duration_text(max(self._whole_s - self._spent(), 0))
        text = f"{self._count()} candidates tried, about {left} left with the verdict"
        self._progress.show(text, done=self._spent())
        self._progress.mention(text)
        if limit_s is None and outcome.report.get("end") == "timeout":
            raise Problem(f"a run takes longer than {longest_s:.0f} s, and {self._whole_s / 60:g} minutes allow "
                          f"{self._run_s_max:.1f} s: give more --minutes, or take a shorter run of the program; a server needs "
                          "--load")
        if sentence:
            return sentence
        run = Run(case.name, self._arm.name, 0, 0, padding)
        sample = runner.make_sample(run, outcome, base.now(), os.getloadavg()[0], case)
        return Figures(sample.cost_ns, sample.peak_kib, sample.rss_mean_kib, seconds)

    def _arm_of(self, point: Point) -> Arm:
        settings = settings_of(point)
        variables = {f"HAKMEM_{name.upper()}": value for name, value in settings.items()}
        name = f"{self._arm.name} {words_of(point)}" if settings else self._arm.name
        return dataclasses.replace(self._arm, name=name, environment={**self._arm.environment, **variables})

    def _count(self) -> int:
        return len(self.journal.finished())

    def _spent(self) -> float:
        """Seconds, those of earlier sittings included."""
        return self._spent_s + time.monotonic() - self._started

    # ---- The verdict. ----

    def _measure(
        self, candidates: Sequence[Point], rounds: int, limit_s: float, findings: list[dict[str, str]]
    ) -> Session:
        default = self._search.base
        if not self._case.metric and default.cost < SHORT_NS:
            self._progress.say(f"a run takes {default.cost / 1e6:.1f} ms: mostly the start of a process, not its work")
        every = [self._arm, *(self._arm_of(point) for point in candidates)]
        left = duration_text(rounds * (len(every) + 1) * default.seconds)
        self._progress.say(f"the best of {self._count()} candidates against the default: {rounds} rounds, about {left}")
        case = dataclasses.replace(self._case, timeout_s=limit_s)
        return runner.run_session([case], every, rounds, self._seed,
                                  ["tune", "--goal", self._goal.name, "--", *case.command], results=self._folder,
                                  findings=findings, shows=True)
