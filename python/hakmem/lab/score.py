# SPDX-License-Identifier: MIT
"""`score`: where hakmem stands against every peer and milestone, from stored results only.

Of each workload on each machine the latest session counts that has enough samples of hakmem and of
mimalloc 3, which the milestones are about. Milestones, each harder than the one before:

M1, M2, M3   50 %, 55 %, 100 % of mimalloc 3's speed (geometric mean of the workloads)
M4           the fastest peer of each workload, in the geometric mean
M5           that, and the leanest peer of each workload in peak memory

Programs that nobody here wrote come first: their processor time against the best peer of each, and
their peak memory against the leanest, glibc included.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import base, store
from .base import Problem
from .model import Case, Session
from .progress import say
from .statistics import Ratio, geometric_mean
from .summary import SAMPLES_MIN, is_peer, ratio_between, summarise_case
from .tables import NAME_MAX, Fitting, case_name, column_name, machine_line, plain_table
from .wording import counted, number

OURS, RIVAL = "hakmem", "mimalloc 3"
COMMAND = "bench"
"""Only sessions of workloads count, not those of somebody's own program or of two settings."""
CASE_NARROW, PEER_NARROW = 17, 10
"""Longer names are broken on a narrow terminal: "comprehensive_", "interleaved_128"."""
WHOLE = ("program", "workload", "peer")
"""Columns that are not broken."""


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
    memory: Ratio  # peak against the leanest peer, lower is better
    leanest_peer: str
    cpu: Ratio | None  # of a program: processor time against the thriftiest peer
    thriftiest_peer: str


@dataclass(frozen=True)
class Milestone:
    name: str
    meaning: str
    value: str
    worst: str  # the worst workload
    reached: bool
    certain: bool  # whether the whole interval says the same


@dataclass
class Card:
    """All of one machine."""

    machine: dict[str, Any]
    scores: list[Score]
    milestones: list[Milestone]


@dataclass(frozen=True)
class Built:
    """What would be measured now."""

    commit: str
    library: str  # SHA-256, "" when nothing is built
    machine: str


def run(results: Path | None, session: Path | None, as_json: bool) -> None:
    """Says where hakmem stands: real programs first, then milestones. Measures nothing."""
    cards = make_cards(read_sessions(results, session))
    if not cards:
        raise Problem("no stored result has three runs of hakmem and of mimalloc 3; type: "
                      "./hakmem peers install && ./hakmem bench --suite core")
    built = find_built()
    cards.sort(key=lambda card: card.machine.get("id") != built.machine)
    if as_json:
        print(json.dumps([_card_json(card, built) for card in cards], indent=1))
        return
    console = Console()
    for card in cards:
        for part in card_parts(card, built):
            console.print(part)


def read_sessions(results: Path | None, file: Path | None) -> list[Session]:
    """One file, or all of the folder that can be read; says which cannot."""
    if file is not None:
        return [store.load(file)]
    directory = results or base.results_directory()
    if results is not None and not directory.is_dir():
        raise Problem(f"there is no folder {directory}")
    sessions = []
    for path in sorted(directory.glob(f"*-{COMMAND}-*.jsonl")):
        try:
            sessions.append(store.load(path))
        except Problem as problem:
            say(str(problem))
    return sessions


def find_built() -> Built:
    return Built(base.commit(), base.file_hash(base.BUILD / "libhakmem.so"), base.machine_id())


# ---- Figures. ----


def make_cards(sessions: Sequence[Session]) -> list[Card]:
    """One card for each machine; `sessions` in any order."""
    chosen: dict[str, dict[str, tuple[Session, Case]]] = {}
    for session in sorted(sessions, key=lambda session: session.created, reverse=True):
        for case in session.cases:
            if all(len(session.of(case.name, arm)) >= SAMPLES_MIN for arm in (OURS, RIVAL)):
                chosen.setdefault(str(session.machine.get("id", "")), {}).setdefault(case.name, (session, case))
    return [_card(list(cells.values())) for cells in chosen.values()]


def _card(cells: Sequence[tuple[Session, Case]]) -> Card:
    # larson_2 before larson_16
    scores = sorted((_score(session, case) for session, case in cells), key=lambda score: [
        (0, int(part)) if part.isdigit() else (1, part) for part in score.case.split("_")])
    return Card(cells[0][0].machine, scores, milestones(scores))


def _score(session: Session, case: Case) -> Score:
    row = summarise_case(session, case)
    time, peak = row.views["time"], row.views["peak"]
    cpu = None if case.load else row.views.get("cpu")
    return Score(case.name, session.id, session.created[:10], session.commit,
                 library=next(arm.sha256 for arm in session.arms if arm.name == OURS),
                 peers=sum(is_peer(arm) and row.cells[arm.name].runs > 0 for arm in session.arms),
                 versus_rival=ratio_between(session, case.name, "time", OURS, RIVAL).inverse,
                 speed=time.ratios[OURS].inverse, fastest_peer=time.best_peer, memory=peak.ratios[OURS],
                 leanest_peer=peak.best_peer, cpu=cpu and cpu.ratios[OURS],
                 thriftiest_peer=cpu.best_peer if cpu else "")


def mean_ratio(ratios: Sequence[Ratio]) -> Ratio:
    """The geometric mean, with the interval that those of independent workloads imply."""
    mean = geometric_mean(ratio.value for ratio in ratios)
    assert mean is not None  # callers have at least one
    if any(ratio.low is None for ratio in ratios):
        return Ratio(mean)
    spread = sum((math.log(ratio.ends[1] / ratio.ends[0]) / 2) ** 2 for ratio in ratios)
    factor = math.exp(math.sqrt(spread) / len(ratios))
    return Ratio(mean, mean / factor, mean * factor)


def milestones(scores: Sequence[Score]) -> list[Milestone]:
    """All five over these scores; none is reached by nothing."""
    if not scores:
        return []
    rival, speed, memory = (mean_ratio([getattr(score, name) for score in scores])
                            for name in ("versus_rival", "speed", "memory"))
    slowest = min(scores, key=lambda score: score.speed.value)
    fattest = max(scores, key=lambda score: score.memory.value)
    of_rival = [
        Milestone(name, f"{limit * 100:.0f} % of {RIVAL}'s speed", percent_text(rival), "", rival.value >= limit,
                  is_certain(rival, limit))
        for name, limit in (("M1", 0.5), ("M2", 0.55), ("M3", 1.0))
    ]
    # To reach the last one both must be certain; one that certainly misses is enough to miss it.
    misses = (speed.value < 1 and is_certain(speed, 1)) or (memory.value > 1 and is_certain(memory, 1))
    return [
        *of_rival,
        Milestone("M4", "the fastest peer of each", percent_text(speed), f"worst {slowest.case} {slowest.speed.value:.2f}",
                  speed.value >= 1, is_certain(speed, 1)),
        Milestone("M5", "M4, and the leanest peer of each", percent_text(memory),
                  f"worst {fattest.case} {fattest.memory.value:.2f}", speed.value >= 1 and memory.value <= 1,
                  misses or (is_certain(speed, 1) and is_certain(memory, 1))),
    ]


def is_certain(ratio: Ratio, limit: float) -> bool:
    """Whether the whole interval lies on one side of the limit."""
    return not ratio.ends[0] < limit < ratio.ends[-1]


def percent_text(ratio: Ratio) -> str:
    """"107.2 % (103.1 to 111.5)"."""
    ends = "" if ratio.low is None else f" ({' to '.join(f'{end * 100:.1f}' for end in ratio.ends)})"
    return f"{ratio.value * 100:.1f} %{ends}"


def highest(scores: Sequence[Score]) -> str:
    """The last milestone that is reached with all before it; "" if none is."""
    name = ""
    for milestone in milestones(scores):
        if not milestone.reached:
            break
        name = milestone.name
    return name


def staleness(score: Score, built: Built) -> str:
    """"" when the result is of the library that is built now, else what is different."""
    if not built.library:
        return "no library is built here now to compare it with"
    if score.library == built.library:
        return ""
    if score.commit.rstrip("+") == built.commit.rstrip("+"):
        return "this commit, but another build of the library than the one here now"
    return f"another library than the one built now (commit {built.commit[:12] or 'unknown'})"


def _card_json(card: Card, built: Built) -> dict[str, Any]:
    data = dataclasses.asdict(card)
    for entry, score in zip(data["scores"], card.scores, strict=True):
        entry |= {"milestone": highest([score]), "stale": staleness(score, built)}
    return data


# ---- What is shown. ----

Column = tuple[str, Callable[[Score], float | str]]
"""Its heading, and a figure or a name."""


def card_parts(card: Card, built: Built) -> list[Any]:
    here = " (this machine)" if card.machine.get("id") == built.machine else ""
    head = Text(f"Machine {card.machine.get('id', 'unknown')}{here}: ", style="bold")
    head.append(machine_line(card.machine), style="not bold")
    programs = [score for score in card.scores if score.cpu is not None]
    others = [score for score in card.scores if score.cpu is None]
    sessions = list(dict.fromkeys(score.session for score in card.scores))
    origin: Column = ("from", lambda score: str(sessions.index(score.session) + 1))
    return [head, Text(), *_program_table(programs, origin), *_milestone_table(card.milestones, len(card.scores)), Text(),
            *_workload_table(others, origin), Text(), _session_text(card.scores, built), Text()]


def _milestone_table(milestones: Sequence[Milestone], count: int) -> list[Any]:
    table = plain_table()
    for name in ("", "at least as good as", "measured", "verdict", "but"):
        table.add_column(name, overflow="fold")
    for milestone in milestones:
        word, style = ("reached", "green") if milestone.reached else ("not reached", "red")
        verdict = Text(word + ("" if milestone.certain else "?"), style=style)
        worst = milestone.worst if count > 1 else ""
        table.add_row(milestone.name, milestone.meaning, milestone.value, verdict, worst)
    words = "one workload" if count == 1 else f"geometric means of {count} workloads"
    return [Text(f"Milestones, {words}; '?' where the 95 % interval holds both outcomes", style="bold"), table]


def _score_table(scores: Sequence[Score], heading: str, columns: Sequence[Column]) -> list[Any]:
    """With whole names of workloads and peers, and room between columns, where they fit."""

    def make(case_max: int, peer_max: int, gap: int) -> Table:
        table = plain_table(gap)
        for name, of in columns:
            justify = "right" if isinstance(of(scores[0]), float) else "left"
            table.add_column(name, justify=justify, overflow="fold", vertical="bottom", no_wrap=name in WHOLE)
        for score in scores:
            first, *rest = (of(score) for _, of in columns)
            cells = (number(cell) if isinstance(cell, float) else case_name(cell, peer_max) for cell in rest)
            table.add_row(case_name(str(first), case_max), *cells)
        return table

    return [Text(heading, style="bold"),
            Fitting(lambda: make(NAME_MAX, NAME_MAX, 1), lambda: make(CASE_NARROW, PEER_NARROW, 0))]


def _program_table(scores: Sequence[Score], origin: Column) -> list[Any]:
    """Everything lower is better here, as in the line below it."""
    if not scores:
        return []
    cpu, memory = (mean_ratio([getattr(score, name) for score in scores]) for name in ("cpu", "memory"))
    costliest, fattest = (max(scores, key=lambda score: getattr(score, name).value).case for name in ("cpu", "memory"))
    heading = ("Programs that nobody here wrote: processor time, wall time and peak memory, each against the best peer of "
               "the row, glibc included; lower is better")
    return [*_score_table(scores, heading, [
        ("program", lambda s: s.case), ("CPU", lambda s: s.cpu.value if s.cpu else 0.0),
        ("peer", lambda s: s.thriftiest_peer), ("time", lambda s: 1 / s.speed.value), ("peer", lambda s: s.fastest_peer),
        ("peak", lambda s: s.memory.value), ("peer", lambda s: s.leanest_peer), origin,
    ]), Text(f"Mean of {len(scores)} programs: CPU {percent_text(cpu)}, peak {percent_text(memory)}; most CPU {costliest}, "
             f"most memory {fattest}"), Text()]


def _workload_table(scores: Sequence[Score], origin: Column) -> list[Any]:
    if not scores:
        return []
    heading = ("Each workload: speed against mimalloc 3 and the fastest peer, higher is better; peak memory against the "
               "leanest peer, lower is better; the highest milestone it reaches")
    return _score_table(scores, heading, [
        ("workload", lambda s: s.case), (column_name(RIVAL), lambda s: s.versus_rival.value),
        ("fastest", lambda s: s.speed.value), ("peer", lambda s: s.fastest_peer), ("leanest", lambda s: s.memory.value),
        ("peer", lambda s: s.leanest_peer), ("reached", lambda s: highest([s]) or "-"), origin,
    ])


def _session_text(scores: Sequence[Score], built: Built) -> Text:
    """Where the figures come from, and whether they are of what is built now."""
    text = Text()
    for index, session in enumerate(dict.fromkeys(score.session for score in scores), 1):
        own = [score for score in scores if score.session == session]
        text.append(f"{'' if index == 1 else chr(10)}{index}: {session}.jsonl, {own[0].date}, ")
        text.append(f"{counted(len(own), 'workload')}, {min(score.peers for score in own)} peers, ")
        text.append(f"commit {own[0].commit[:12] or 'unknown'}")
        remark = staleness(own[0], built)
        if remark:
            text.append(f"; {remark}", style="yellow")
    return text
