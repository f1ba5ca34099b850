# SPDX-License-Identifier: MIT
"""The search of `tune`: optuna proposes settings, short runs judge them. It proves nothing.

For each option there is a ladder of values, and the profiles of hakmem are on these ladders. A point is a rung of each
ladder: {"bin_bytes": 5}. Values rise by factors, because twice as much means the same everywhere; "never", "0" and the
like stand where their effect is.

Every run is in optuna's journal before the next starts, so a killed search goes on. Journals are
JSON lines: a torn last line is cut off, as in store.py, and the writer holds a lock on the file.
"""

import fcntl
import math
import os
import re
import statistics
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from .base import ROOT, Problem

RUNS = 3
"""Of a candidate, unless it is worse than the middle one after fewer. Twice as many halve the
candidates; the verdict does not rest on these runs."""
CANDIDATES_MAX = 300
"""Optuna's own time grows with the candidates, and becomes that of a short program."""
CANDIDATES_FIRST = 10
"""At random, the profiles among them, before the optimiser has something to learn from."""
DEFAULT_EVERY = 4
"""So many candidates later the default runs again: the machine may have become slower."""
DEFAULT_KEPT = 5
"""The median of so many of its last runs is what candidates are compared with."""
DEFAULT_FIRST = 3
OVER_FACTOR = 4
"""How much worse than any gain a loss beyond the guard is: such candidates get no GO."""
TIDY_LOSS = 0.005
"""A setting that gains less than 0.5 % goes back to the default: short lines are easier to live
with. Twice as much would give away what a verdict can show (1 %)."""
LIMIT_FACTOR, LIMIT_S_MIN = 3, 5
"""A candidate may run so many times as long as the default; short ones five seconds, since a busy
machine can delay any program by one."""

optuna.logging.set_verbosity(optuna.logging.WARNING)


# ---- The space. ----

Point = dict[str, int]

PAGE = ROOT / "docs" / "options.md"
"""Generated from the code: the value of each option in each profile."""
STARTS = ("default", "fast", "small")
"""The search begins with these profiles. debug is for finding mistakes."""
NO_LIMIT = str(2**64 - 1)

LADDERS = {  # the values that hold least memory first
    "purge_delay_ms": "0 1 10 30 100 300 1000 3000 10000 never",
    "bin_bytes": "16k 32k 64k 128k 256k 512k 1m 2m",
    "cache_bytes": "512k 1m 2m 4m 8m 16m 32m 64m 128m",
    "cache_bytes_total": f"4m 8m 16m 32m 128m 0 1g {NO_LIMIT}",  # 0: 1/64 of the RAM
    "huge_cache_bytes": "0 1m 4m 16m 64m 256m 1g never",
    "huge_threshold": "never 1g 256m 64m 16m 8m 4m 2m 0",
    "arenas": "1 2 4 8 16 32 64 128",  # of the machine's CPUs: see ladders
    "scavenger": "1 0",
}


def ladders() -> dict[str, list[str]]:
    """Arenas: up to four for each CPU; 0 stands for one for each."""
    cpus = len(os.sched_getaffinity(0))
    rungs = {name: ladder.split() for name, ladder in LADDERS.items()}
    fewer = [count for count in rungs["arenas"] if int(count) < cpus]
    return rungs | {"arenas": [*fewer, "0", str(2 * cpus), str(4 * cpus)]}


def profiles() -> dict[str, Point]:
    """Where the profiles of hakmem are on the ladders."""
    rungs = ladders()
    rows = re.findall(r"^\| `HAKMEM_(\w+)` \|.*\| (.*) \| [a-z ]+ \|$", PAGE.read_text(), re.M)
    points: dict[str, Point] = {name: {} for name in STARTS}
    for option, cells in rows:
        ladder = rungs.get(option.lower(), [])
        default, *others = cells.replace("no limit", NO_LIMIT).split("; ")
        differing = dict(other.split(" ", 1) for other in others)
        for name in STARTS:
            value = differing.get(name, default)
            if value in ladder:
                points[name][option.lower()] = ladder.index(value)
    if any(len(point) < len(rungs) for point in points.values()):
        raise Problem(f"{PAGE} does not hold what the profiles of hakmem are; restore it")
    return points


def effective(point: Point) -> Point:
    """Without a scavenger that has nothing to purge: hakmem then warns, and is no sound arm."""
    rungs = ladders()
    if rungs["purge_delay_ms"][point["purge_delay_ms"]] != "never":
        return point
    return {**point, "scavenger": rungs["scavenger"].index("0")}


def settings_of(point: Point) -> dict[str, str]:
    """The fewest options that say it, a profile among them; empty is the default."""
    rungs = ladders()
    ways = []
    for name, start in profiles().items():
        rest = {option: rungs[option][at] for option, at in point.items() if at != start[option]}
        ways.append({**({"profile": name} if name != STARTS[0] else {}), **rest})
    return min(ways, key=len)


def words_of(point: Point) -> str:
    """"profile=small arenas=1"."""
    return " ".join(f"{name}={value}" for name, value in settings_of(point).items()) or "the default"


# ---- The search. ----


@dataclass(frozen=True)
class Figures:
    """Of one run, or the medians of several. Less is better."""

    cost: float  # nanoseconds, or what --metric finds
    peak_kib: float
    mean_kib: float
    seconds: float  # how long it kept us, with the start of a server


@dataclass(frozen=True)
class Goal:
    """What better means: the logarithm of time, of memory, or of both."""

    name: str  # "time", "memory" or "both"
    weight: float  # how much a percent of memory counts beside one of time
    guard: float  # the share that time and peak memory may each lose

    def exponents(self) -> tuple[float, float]:
        """Of time and of memory in what is minimised. None is above 1, else a large weight would
        make a gain out of a change of memory that is too small to count."""
        of_time, of_memory = {"time": (1.0, 0.0), "memory": (0.0, 1.0), "both": (1.0, self.weight)}[self.name]
        most = max(of_time, of_memory)
        return of_time / most, of_memory / most

    def aim(self, figures: Figures) -> float:
        """What is minimised, as a product. Memory is the mean of peak and mean."""
        of_time, of_memory = self.exponents()
        memory = math.sqrt(figures.peak_kib * figures.mean_kib)
        return figures.cost**of_time * memory**of_memory

    def loss(self, figures: Figures, base: Figures) -> float:
        """0 of the default, below 0 of what is better."""
        ratios = (figures.cost / base.cost, figures.peak_kib / base.peak_kib)
        over = sum(max(0.0, math.log(ratio / (1 + self.guard))) for ratio in ratios)
        return math.log(self.aim(figures) / self.aim(base)) + OVER_FACTOR * over


class _Lock:
    """Optuna's lock of each write: the file is locked as a whole for as long as it is open.

    Its own one is a file, which a kill would leave behind.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Journal:
    """One search on disk. `facts` is what must outlive a kill and is not a candidate."""

    def __init__(self, path: Path, seed: int | None = None, new: bool = False) -> None:
        """Opens the file, or makes it; `new` throws away what it holds."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Problem(f"cannot save results in {path.parent}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise Problem(f"{path} is being written by another tune; wait for it") from error
        content = b"" if new else path.read_bytes()
        os.ftruncate(self._file, content.rfind(b"\n") + 1)
        if seed is not None:
            seed += content.count(b"\n")  # what was drawn before a kill is not drawn again
        try:
            self.study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(path), lock_obj=_Lock())),
                sampler=optuna.samplers.TPESampler(n_startup_trials=CANDIDATES_FIRST, seed=seed),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=4), study_name="tune", load_if_exists=True,
            )
        except (ValueError, KeyError) as error:
            self.close()
            raise Problem(f"{path} is damaged; move it away, or use --new") from error

    @property
    def facts(self) -> dict[str, Any]:
        return self.study.user_attrs

    def note(self, name: str, value: Any) -> None:
        self.study.set_user_attr(name, value)

    def finished(self) -> list[FrozenTrial]:
        """The candidates that were judged, or dropped."""
        states = (TrialState.COMPLETE, TrialState.PRUNED)
        return self.study.get_trials(deepcopy=False, states=states)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


Run = Callable[[Point, float | None], Figures | str]
"""One run with these settings, at most so many seconds long, or why it did not end well."""


class Search:
    """`left` says how many seconds of the search are left; `tell` shows a sentence."""

    def __init__(
        self, journal: Journal, goal: Goal, run: Run, left: Callable[[], float], tell: Callable[[str], None]
    ) -> None:
        self._journal, self._study = journal, journal.study
        self._goal, self._run, self._left, self._tell = goal, run, left, tell
        self._default = profiles()["default"]
        self._ladders = ladders()

    def measure_default(self) -> Figures:
        """Runs the default without a limit; raises Problem if it does not end well."""
        found = self._run(self._default, None)
        runs = [list(run) for run in self._journal.facts.get("defaults", [])]
        if isinstance(found, str):
            ended = f" (after {len(runs)} runs that ended well)" if runs else ""
            raise Problem(f"under hakmem's default settings, the program failed{ended}: {found}. tune needs a program whose "
                          "every run ends well: wrap it, as in -- sh -c 'PROGRAM || true'")
        self._journal.note("defaults", [*runs, astuple(found)])
        return found

    @property
    def base(self) -> Figures:
        """The medians of the default's last runs."""
        runs = self._journal.facts["defaults"][-DEFAULT_KEPT:]
        return Figures(*(statistics.median(column) for column in zip(*runs, strict=True)))

    @property
    def limit_s(self) -> float:
        """The longest that a candidate may run."""
        return max(LIMIT_S_MIN, LIMIT_FACTOR * self.base.seconds)

    def go_on(self, reserve_s: float) -> None:
        """Tries candidates for as long as a run fits into the time left without the reserve."""
        self._begin()
        while len(self._journal.finished()) < CANDIDATES_MAX and self._fits(reserve_s):
            self._judge(self._ask())

    def _fits(self, reserve_s: float = 0.0) -> bool:
        return self._left() - reserve_s >= self.base.seconds

    def _begin(self) -> None:
        """A new search begins with the profiles."""
        if not self._study.get_trials(deepcopy=False):
            for name, point in profiles().items():
                if name != STARTS[0]:
                    self._study.enqueue_trial(point)

    def _is_default_due(self) -> bool:
        runs = len(self._journal.facts["defaults"]) - DEFAULT_FIRST
        return len(self._journal.finished()) >= (runs + 1) * DEFAULT_EVERY

    def _ask(self) -> Trial:
        """The candidate that a kill interrupted, else the next one."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        trial = Trial(self._study, running[0]._trial_id) if running else self._study.ask()
        for name, ladder in self._ladders.items():
            trial.suggest_int(name, 0, len(ladder) - 1)
        return trial

    def _judge(self, trial: Trial) -> float | None:
        """Its mean loss; None if it was dropped."""
        if self._is_default_due():
            self.measure_default()
        point = effective(dict(trial.params))
        losses = list(trial.user_attrs.get("losses", []))  # of the runs before a kill
        for step in range(len(losses), RUNS):
            if step and not self._fits():
                break
            found = self._run(point, self.limit_s)
            if isinstance(found, str):
                self._tell(f"with {words_of(point)}, a run did not end well: {found}")
                self._study.tell(trial, state=TrialState.PRUNED)
                return None
            losses.append(self._goal.loss(found, self.base))
            trial.set_user_attr("losses", losses)
            trial.report(statistics.mean(losses), step)
            if step < RUNS - 1 and trial.should_prune():
                self._study.tell(trial, state=TrialState.PRUNED)
                return None
        self._study.tell(trial, statistics.mean(losses))
        return statistics.mean(losses)

    def best(self, count: int) -> list[Point]:
        """The best candidates, by all runs of each; the default is none."""
        losses: dict[tuple[int, ...], list[float]] = {}
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            point = effective(trial.params)
            key = tuple(point[name] for name in self._ladders)
            losses.setdefault(key, []).append(float(trial.values[0]))
        losses.pop(tuple(self._default[name] for name in self._ladders), None)
        ranked = sorted(losses, key=lambda key: statistics.mean(losses[key]))
        return [dict(zip(self._ladders, key, strict=True)) for key in ranked[:count]]

    def tidy(self, point: Point) -> Point:
        """Sets back to the default what does not show.

        The candidate is judged again first: it is the best by luck, too.
        """
        loss = self._try(point)
        if loss is None:
            return point
        changed = [name for name, rung in point.items() if rung != self._default[name]]
        return self._reset(point, changed, loss + TIDY_LOSS)

    def _reset(self, point: Point, names: list[str], allowed: float) -> Point:
        """All of them at once, else in halves: most settings of a candidate do not matter."""
        simpler = {**point, **{name: self._default[name] for name in names}}
        is_shorter = len(settings_of(simpler)) < len(settings_of(point))
        if is_shorter and simpler != self._default:
            loss = self._try(simpler)
            if loss is not None and loss <= allowed:
                return simpler
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]) if middle else ():
            point = self._reset(point, half, allowed)
        return point

    def _try(self, point: Point) -> float | None:
        """Its loss, also from before a kill; None if it was dropped, or the time is over."""
        for trial in self._journal.finished():
            if trial.user_attrs.get("tidy") == point:
                return trial.values[0] if trial.state == TrialState.COMPLETE else None
        if not self._fits():
            return None
        states = (TrialState.WAITING, TrialState.RUNNING)
        waiting = self._study.get_trials(deepcopy=False, states=states)
        if not any(trial.user_attrs.get("tidy") == point for trial in waiting):
            self._study.enqueue_trial(point, user_attrs={"tidy": point})
        while True:
            trial = self._ask()
            loss = self._judge(trial)
            if trial.params == point:
                return loss

