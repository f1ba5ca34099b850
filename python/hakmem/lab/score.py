# SPDX-License-Identifier: MIT
"""`score`: where hakmem stands against every peer and milestone, from stored results only."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import arms, machine, places, store
from .model import Session
from .problem import Problem
from .progress import say
from .scorecard import Card, Milestone, Score, make_cards, percent_text
from .tables import (NAME_MAX, Fitting, case_name, column_name, machine_line, number, plain_table)

COMMAND = "bench"
"""Only sessions of workloads count, not those of somebody's own program or of two settings."""

CASE_NARROW, PEER_NARROW = 17, 10
"""Longer names are broken on a narrow terminal: "comprehensive_", "interleaved_128"."""
Column = tuple[str, Callable[[Score], float | str]]
"""Its heading, and a figure or a name."""
WHOLE = ("program", "workload", "peer")
"""Columns that are not broken."""


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
        raise Problem(
            "no stored result has three runs of hakmem and of mimalloc 3; type: "
            "./hakmem peers install && ./hakmem bench --suite core"
        )
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
    directory = results or places.results_directory()
    if results is not None and not directory.is_dir():
        raise Problem(f"there is no folder {directory}")
    sessions = []
    for path in store.list_sessions(directory, COMMAND):
        try:
            sessions.append(store.load(path))
        except Problem as problem:
            say(str(problem))
    return sessions


def find_built() -> Built:
    library = places.BUILD / "libhakmem.so"
    digest = arms.file_sha256(library) if library.is_file() else ""
    return Built(machine.commit(), digest, machine.machine_id())


# ---- What is shown. ----


def card_parts(card: Card, built: Built) -> list[Any]:
    here = " (this machine)" if card.machine.get("id") == built.machine else ""
    head = Text(f"Machine {card.machine.get('id', 'unknown')}{here}: ", style="bold")
    head.append(machine_line(card.machine), style="not bold")
    programs = [score for score in card.scores if score.cpu is not None]
    others = [score for score in card.scores if score.cpu is None]
    sessions = list(dict.fromkeys(score.session for score in card.scores))
    origin: Column = ("from", lambda score: str(sessions.index(score.session) + 1))
    return [
        head, Text(), *_program_table(card, programs, origin),
        *_milestone_table(card.milestones, len(card.scores)), Text(),
        *_workload_table(others, origin), Text(), _session_text(card.scores, built), Text(),
    ]  # fmt: skip


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _milestone_table(milestones: Sequence[Milestone], count: int) -> list[Any]:
    table = plain_table()
    for name in ("", "at least as good as", "measured", "verdict", "but"):
        table.add_column(name, overflow="fold")
    for milestone in milestones:
        mark = "" if milestone.certain else "?"
        word, style = ("reached", "green") if milestone.reached else ("not reached", "red")
        verdict = Text(word + mark, style=style)
        worst = milestone.worst if count > 1 else ""
        table.add_row(milestone.name, milestone.meaning, milestone.value, verdict, worst)
    words = "one workload" if count == 1 else f"geometric means of {count} workloads"
    heading = f"Milestones, {words}; '?' where the 95 % interval holds both outcomes"
    return [_heading(heading), table]


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

    return [_heading(heading), Fitting(lambda: make(NAME_MAX, NAME_MAX, 1), lambda: make(CASE_NARROW, PEER_NARROW, 0))]


def _program_table(card: Card, scores: Sequence[Score], origin: Column) -> list[Any]:
    """Everything lower is better here, as in the line below it."""
    if card.programs is None:
        return []
    means = card.programs
    return [*_score_table(
        scores,
        "Programs that nobody here wrote: processor time, wall time and peak memory, each against "
        "the best peer of the row, glibc included; lower is better",
        [
            ("program", lambda s: s.case), ("CPU", lambda s: s.cpu.value if s.cpu else 0.0),
            ("peer", lambda s: s.thriftiest_peer), ("time", lambda s: 1 / s.speed.value),
            ("peer", lambda s: s.fastest_peer), ("peak", lambda s: s.memory.value),
            ("peer", lambda s: s.leanest_peer), origin,
        ],
    ), Text(
        f"Mean of {means.count} programs: CPU {percent_text(means.cpu)}, peak {percent_text(means.memory)}; "
        f"most CPU {means.costliest}, most memory {means.fattest}"
    ), Text()]  # fmt: skip


def _workload_table(scores: Sequence[Score], origin: Column) -> list[Any]:
    return _score_table(
        scores,
        "Each workload: speed against mimalloc 3 and the fastest peer, higher is better; peak "
        "memory against the leanest peer, lower is better; the highest milestone it reaches",
        [
            ("workload", lambda s: s.case), (column_name("mimalloc 3"), lambda s: s.versus_rival.value),
            ("fastest", lambda s: s.speed.value), ("peer", lambda s: s.fastest_peer),
            ("leanest", lambda s: s.memory.value), ("peer", lambda s: s.leanest_peer),
            ("reached", lambda s: s.milestone or "-"), origin,
        ],
    ) if scores else []  # fmt: skip


def _session_text(scores: Sequence[Score], built: Built) -> Text:
    """Where the figures come from, and whether they are of what is built now."""
    text = Text()
    for index, session in enumerate(dict.fromkeys(score.session for score in scores), 1):
        own = [score for score in scores if score.session == session]
        count = f"{len(own)} workload{'s' if len(own) > 1 else ''}"
        peers = min(score.peers for score in own)
        text.append(f"{'' if index == 1 else chr(10)}{index}: {session}.jsonl, {own[0].date}, ")
        text.append(f"{count}, {peers} peers, commit {own[0].commit[:12] or 'unknown'}")
        remark = staleness(own[0], built)
        if remark:
            text.append(f"; {remark}", style="yellow")
    return text


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
    data = card.to_json()
    for entry, score in zip(data["scores"], card.scores, strict=True):
        entry["stale"] = staleness(score, built)
    return data
