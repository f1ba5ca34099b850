# SPDX-License-Identifier: MIT
"""Runs a session: proves each arm, then one process at a time, each saved before the next starts.

A round holds every case under every arm once. The arms of a case run one after the other, so that a slow drift of the
machine hits them alike; their order, and the order of the cases, is drawn anew for each round, and is the same for the
same seed. The first arm runs twice under two names (the A/A arm): what lies between the two is noise. Each run gets
random padding in its environment, which moves the stack: a fixed layout favours one arm or the other by accident
(Mytkowicz et al., 2009, "Producing wrong data without doing anything obviously wrong").

Processes are not pinned to cores. The kernel's own placement is what users have; a pinned process
shares its core with whatever interrupt is served there, while an unpinned one is moved away.
"""

import dataclasses
import os
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from . import base, proof, servers, store
from .base import Problem, results_directory
from .measure import Outcome, last_json, measure, prove_program
from .model import Arm, Case, Failure, Sample, Session
from .progress import Reporter

FAILURES_IN_A_ROW = 3  # then the cell is given up
PADDING_LIMIT = 4096  # a page: the stack's place within it is what padding changes
REST_ROUNDS = 3
"""Only the first rounds wait for it: it varies little, and ten seconds a run are long."""
STATUS_INTERRUPTED = 130

Prove = Callable[[Arm], dict[str, str]]


# ---- What comes when. ----


@dataclass(frozen=True)
class Run:
    """One process to be measured."""

    case: str
    arm: str
    round: int
    order: int
    padding: int

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.case, self.arm, self.round)


def with_again(arms: Sequence[Arm]) -> list[Arm]:
    """The arms and, last, the first one again; unchanged if there is such an arm already."""
    if not arms or any(arm.again_of for arm in arms):
        return list(arms)
    first = arms[0]
    return [*arms, dataclasses.replace(first, name=f"{first.name} (again)", again_of=first.name)]


def make_schedule(cases: Sequence[str], arms: Sequence[str], rounds: int, seed: int) -> list[Run]:
    """All runs of a session in their order."""
    runs: list[Run] = []
    for number in range(rounds):
        draw = random.Random(f"{seed}/{number}")  # one for each round: more rounds do not change the earlier ones
        for case in draw.sample(list(cases), len(cases)):
            for arm in draw.sample(list(arms), len(arms)):
                runs.append(Run(case, arm, number, len(runs), draw.randrange(PADDING_LIMIT)))
    return runs


# ---- Sessions. ----


class Part(Protocol):
    """What a session does beside its measured runs, after them; it goes on where it was stopped."""

    def is_done(self, session: Session) -> bool: ...

    def run(self, store: store.Store, reporter: Reporter) -> None: ...


def run_session(
    cases: Sequence[Case], arms: Sequence[Arm], rounds: int, seed: int | None, command: Sequence[str], *,
    results: Path | None = None, new: bool = False, again: bool = True, findings: Iterable[dict[str, str]] = (),
    prove: Prove = proof.prove, parts: Sequence[Part] = (), grow: Callable[[Session], int] | None = None,
    shows: bool = False, server_runner: servers.Runner | None = None,
) -> Session:
    """Measures all cases under all arms, or goes on with what an earlier call began.

    `command` is what the user typed, `command[0]` the command's name. `again` adds the A/A arm. Without a seed one is
    drawn. `parts` follow at the end; with one of them there may be no cases. `grow` is asked when all rounds are done,
    and says how many there shall be. Who `shows` a session marks it when that is done (store.mark_shown), else the same
    command is given it again. `server_runner` runs the cases that are servers. Raises Problem when an arm does not
    serve, and when interrupted.
    """
    every_arm = with_again(arms) if again else list(arms)

    def wanted(session: Session) -> int:
        return max(session.rounds, grow(session)) if grow else session.rounds

    def is_finished(session: Session) -> bool:
        done = all(part.is_done(session) for part in parts)
        is_measured = session.is_complete and done and wanted(session) == session.rounds
        return is_measured and (session.is_shown or not shows)

    _check(cases, every_arm, rounds, bool(parts))
    folder, machine, name = results or results_directory(), base.describe_machine(), command[0]
    # What was fixed at some rounds and looked at must not grow later.
    key_rounds = store.ROUNDS_GROW if grow else rounds
    key = store.session_key(name, cases, every_arm, key_rounds, seed, machine["id"])
    opened = None if new else store.open_unfinished(folder, name, key, is_finished)
    if opened is None:
        opened = store.Store.create(folder, name, key, Session(
            id="", command=list(command), created=base.now(), machine=machine, commit=base.commit(), arms=every_arm,
            cases=list(cases), rounds=rounds, seed=secrets.randbelow(2**31) if seed is None else seed,
            findings=list(findings),
        ))
    with opened:
        session = opened.session
        try:
            sitting = _Sitting(opened, prove, server_runner)
            sitting.run(parts, _greeting(session))
            while (count := wanted(session)) > session.rounds:
                news = f"the noise here asks for {count} rounds instead of {session.rounds}"
                opened.add("rounds", {"rounds": count})
                sitting.run(parts, news)
        except (KeyboardInterrupt, OSError) as error:
            if not is_interrupt(error):
                raise
            session = store.load(opened.path)  # the last run may be saved but not yet in memory
            runs = f"{session.done} of {session.total} runs are saved, the same command goes on with them"
            news = runs if session.total else "the same command goes on"
            raise Problem(f"stopped; {news}", STATUS_INTERRUPTED) from error
    return session


def is_interrupt(error: BaseException | None) -> bool:
    """Also where a clean-up that Ctrl-C cut short failed (shutil.rmtree, closing twice)."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def make_sample(run: Run, outcome: Outcome, started: str, load: float, case: Case) -> Sample:
    """From measure's line and, of a bench, the harness's, which is exact about its memory."""
    report: dict[str, Any] = dict(outcome.report)
    workload = last_json(outcome.output) if case.kind == "bench" else None
    if workload is not None:
        for name in ("rss_end_kib", "lazyfree_end_kib"):
            report[name] = workload.get(name, report.get(name))
        report["rest"] = _rest_of(workload)
    return Sample.from_json({**report, **dataclasses.asdict(run), "started": started, "status": 0, "load_1min": load,
                             "workload": workload, "metric": outcome.metric(case)})


def _rest_of(workload: dict[str, Any]) -> list[list[float]]:
    """What a bench still held after its work, without its own tables. Some benches idle by
    themselves, for as long as their argument IDLE says."""
    rest = list(workload.get("rest") or [])
    seconds = workload.get("arguments", {}).get("IDLE")
    if "rss_idle_kib" in workload and seconds is not None:
        rest = [[seconds, workload["rss_idle_kib"], workload.get("lazyfree_idle_kib", 0)]]
    own_kib = workload.get("harness_kib", 0)
    return [[second, rss_kib - own_kib, lazy_kib] for second, rss_kib, lazy_kib in rest]


class _Sitting:
    """One call's part of a session."""

    def __init__(self, opened: store.Store, prove: Prove, server_runner: servers.Runner | None = None) -> None:
        self._store = opened
        self._server_runner = server_runner
        self._session = opened.session
        self._prove = prove
        self._cases = {case.name: case for case in self._session.cases}
        self._arms = {arm.name: arm for arm in self._session.arms}
        self._left: list[Run] = []
        files = [arm.library or "" for arm in self._arms.values()]
        files += [case.command[0] for case in self._cases.values()]
        self._identities = {file: _identity(file) for file in files}

    def run(self, parts: Sequence[Part], news: str) -> None:
        """All that is left of the session's rounds; `news` is said first."""
        session = self._session
        done = {(s.case, s.arm, s.round) for s in session.samples}
        done |= {(f.case, f.arm, f.round) for f in session.failures}
        schedule = make_schedule(list(self._cases), list(self._arms), session.rounds, session.seed)
        self._left = [run for run in schedule if run.key not in done]
        with Reporter(len(schedule), len(done)) as self._reporter:
            if news:
                self._reporter.say(news)
            for sample in session.samples:
                self._reporter.remember(sample.case, sample.arm, sample.wall_ns / 1e9)
            self._prove_arms()
            self._prove_programs()
            while self._left:
                run = self._left[0]
                self._reporter.start(run.round, run.case, run.arm)
                self._run_one(run)
                self._left = [one for one in self._left if one.key != run.key]
                self._reporter.end(run.case, run.arm, [(one.case, one.arm) for one in self._left])
            for part in parts:
                part.run(self._store, self._reporter)

    def _run_one(self, run: Run) -> None:
        case, arm = self._cases[run.case], self._arms[run.arm]
        self._check_unchanged(arm.library or "", case.command[0])
        started, load = base.now(), os.getloadavg()[0]
        rest_s = case.rest_s if run.round < REST_ROUNDS else []
        expected = case
        if case.kind == "bench":  # it refuses to run on anything but the arm's library, and rests by itself
            words = ["--expect", arm.library or "libc.so"]
            words += [word for second in rest_s for word in ("--rest", f"{second:g}")]
            expected, rest_s = dataclasses.replace(case, command=[*case.command, *words]), []
        if self._server_runner and case.kind == servers.KIND:
            rate = servers.SHARE * min(self._session.rates[case.name].values())
            outcome = self._server_runner.run(case, arm, rate, run.padding, run.round)
        else:
            outcome = measure(expected, arm, run.padding, rest_s=rest_s)
        sentence = outcome.sentence(case) or _nothing_measured(case, outcome)
        if sentence:
            self._fail(run, sentence, started, outcome.report.get("status", 127))
        else:
            self._store.add_sample(make_sample(run, outcome, started, load, case))

    def _check_unchanged(self, *files: str) -> None:
        """A build in the middle of a session would mix two libraries under one name."""
        for file in files:
            if _identity(file) != self._identities[file]:
                raise Problem(f"{file} was changed while it was being measured; measure again")

    def _fail(self, run: Run, sentence: str, started: str, status: int) -> None:
        self._reporter.say(f"{run.case} under {run.arm}: {sentence}")
        self._store.add_failure(Failure(run.case, run.arm, run.round, status, sentence, started))
        if self._is_hopeless(run):
            self._give_up(run.case, run.arm, f"not run after {FAILURES_IN_A_ROW} failures in a row")

    def _is_hopeless(self, run: Run) -> bool:
        """Whether the last runs of this cell all failed."""
        last_good = max((s.round for s in self._session.of(run.case, run.arm)), default=-1)
        bad = [f for f in self._session.failures if (f.case, f.arm) == (run.case, run.arm) and f.round > last_good]
        return len(bad) >= FAILURES_IN_A_ROW

    def _give_up(self, case: str, arm: str, sentence: str) -> None:
        """Each run that will not happen is on record, so that none is missed in silence."""
        known = {f.round for f in self._session.failures if (f.case, f.arm) == (case, arm)}
        rest = [run for run in self._left if (run.case, run.arm) == (case, arm)]
        for run in rest:
            if run.round not in known:
                self._store.add_failure(Failure(case, arm, run.round, 0, sentence, base.now()))
        self._reporter.advance(len(rest))
        self._left = [run for run in self._left if run not in rest]

    def _prove_arms(self) -> None:
        for arm in self._session.arms:
            proofs = self._session.proofs
            if arm.name not in proofs:
                self._store.add("proof", {"arm": arm.name, "serving": proofs.get(arm.again_of) or self._prove(arm)})

    def _prove_programs(self) -> None:
        """Each program under each arm; a cell whose arm does not serve is not measured."""
        cells = dict.fromkeys((run.case, run.arm) for run in self._left)
        for case_name, arm_name in cells:
            case, name = self._cases[case_name], f"{arm_name}: {case_name}"
            arm = self._arms[arm_name]
            if case.kind == "bench" or arm.again_of or name in self._session.proofs:
                continue
            self._reporter.note(f"asking the loader who serves {name}")
            if self._server_runner and case.kind == servers.KIND:
                files, sentence, rate = self._server_runner.prove(case, arm)
                if not sentence:
                    self._store.add("rate", {"case": case_name, "arm": arm_name, "rate": rate})
            else:
                files, sentence = prove_program(case, arm)
            if sentence:
                self._reporter.say(f"{case_name} under {arm_name}: {sentence}")
                for same in (a for a in self._arms.values() if arm_name in (a.name, a.again_of)):
                    self._give_up(case_name, same.name, sentence)
            else:
                self._store.add("proof", {"arm": name, "serving": files})


def _check(cases: Sequence[Case], arms: Sequence[Arm], rounds: int, has_parts: bool) -> None:
    for what, names in (("case", [c.name for c in cases]), ("arm", [a.name for a in arms])):
        twice = {name for name in names if names.count(name) > 1}
        if not names and not (what == "case" and has_parts):
            raise Problem(f"there is no {what} to measure")
        if twice:
            raise Problem(f"two {what}s are called '{min(twice)}'")
    if rounds < 1:
        raise Problem("at least one run is needed")


def _greeting(session: Session) -> str:
    when = session.created[:16].replace("T", " ")
    said = f"going on with the session of {when} UTC; {session.done} of {session.total} runs are done"
    return said if session.done else ""


def _nothing_measured(case: Case, outcome: Outcome) -> str:
    if case.kind != "bench":
        return ""
    workload = last_json(outcome.output)
    if workload is None:
        return "it printed no line of JSON"
    if not (workload.get("operations") or 0) > 0 or not (workload.get("nanoseconds") or 0) > 0:
        return "it says that it did no operation"
    return ""


def _identity(file: str) -> tuple[int, ...]:
    """Changes when the file is built again."""
    try:
        facts = os.stat(file)
    except OSError:
        return ()
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
