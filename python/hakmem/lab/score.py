# SPDX-License-Identifier: MIT
"""`score`: where hakmem stands against every peer and milestone, from stored results only."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..words import Parser
from . import arms, machine, places, store
from .common_options import add_json, add_results
from .model import Session
from .problem import Problem
from .progress import say
from .scorecard import STARTUP, Bar, Card, Milestone, Score, make_cards
from .tables import (
    NAME_MAX,
    Fitting,
    case_name,
    column_name,
    machine_line,
    number,
    plain_table,
)

COMMAND = "bench"
"""Only sessions of workloads count, not those of somebody's own program or of two settings."""

CASE_NARROW, PEER_NARROW = 17, 10
"""Longer names are broken on a narrow terminal: "comprehensive_", "interleaved_128"."""


@dataclass(frozen=True)
class Built:
    """What would be measured now."""

    commit: str
    library: str  # SHA-256, "" when nothing is built
    machine: str


def add_arguments(parser: Parser) -> None:
    add_results(parser)
    parser.add_argument("--session", metavar="FILE", type=Path, help="only this session's file")
    add_json(parser, "print everything as JSON")


def run(results: Path | None, session: Path | None, as_json: bool) -> None:
    """Says where hakmem stands: real programs first, then milestones and bars. Measures nothing."""
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
    first = [Text(), *_program_table(programs, sessions), *_program_bars(card.program_bars)]
    return [
        head, *(first if programs else []), Text(),
        *_milestone_table(card.milestones, len(card.scores)), Text(),
        *(_workload_table(others, sessions) if others else []), Text(),
        _session_text(card.scores, built), Text(), *_bar_table(card.bars), Text(),
    ]  # fmt: skip


def _table(
    *names: str, figures: Sequence[str] = (), whole: Sequence[str] = (),
    vertical: Literal["top", "bottom"] = "bottom", gap: int = 1,
) -> Table:  # fmt: skip
    """`whole` are columns that are not broken; `gap` is between columns, beside one space."""
    table = plain_table(gap)
    for name in names:
        table.add_column(
            name.strip(), justify="right" if name in figures else "left", overflow="fold",
            vertical=vertical, no_wrap=name in whole,
        )  # fmt: skip
    return table


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _milestone_table(milestones: Sequence[Milestone], count: int) -> list[Any]:
    table = _table("", "at least as good as", "measured", "verdict", "but", vertical="top")
    for milestone in milestones:
        mark = "" if milestone.certain else "?"
        word, style = ("reached", "green") if milestone.reached else ("not reached", "red")
        verdict = Text(word + mark, style=style)
        worst = milestone.worst if count > 1 else ""
        table.add_row(milestone.name, milestone.meaning, milestone.value, verdict, worst)
    words = "one workload" if count == 1 else f"geometric means of {count} workloads"
    heading = f"Milestones, {words}; '?' where the 95 % interval holds both outcomes"
    return [_heading(heading), table]


def _program_table(scores: Sequence[Score], sessions: Sequence[str]) -> list[Any]:
    """Everything lower is better here, as in the bars below it."""
    figures = ("CPU", "time", "peak")

    def make(case_max: int, peer_max: int, gap: int) -> Table:
        table = _table(
            "program", "CPU", "peer", "time", "peer ", "peak", "peer  ", "from", figures=figures,
            whole=("program", "peer", "peer ", "peer  "), gap=gap,
        )  # fmt: skip
        for score in scores:
            cpu = score.cpu.value if score.cpu else 0.0
            table.add_row(
                case_name(score.case, case_max), number(cpu),
                case_name(score.thriftiest_peer, peer_max), number(1 / score.speed.value),
                case_name(score.fastest_peer, peer_max), number(score.memory.value),
                case_name(score.leanest_peer, peer_max), str(sessions.index(score.session) + 1),
            )  # fmt: skip
        return table

    heading = _heading(
        "Programs that nobody here wrote: processor time, wall time and peak memory, each against "
        "the best peer of the row, glibc included; lower is better"
    )
    return [heading, _broken_where_needed(make)]


def _program_bars(bars: Sequence[Bar]) -> list[Any]:
    return [
        Text.assemble(
            f"{bar.meaning}, {bar.case}: {_measured(bar, True)}, at most {bar.limit:.2f}: ",
            _verdict(bar),
        )
        for bar in bars
    ]


def _workload_table(scores: Sequence[Score], sessions: Sequence[str]) -> list[Any]:
    figures = (column_name("mimalloc 3"), "fastest", "leanest")

    def make(case_max: int, peer_max: int, gap: int) -> Table:
        table = _table(
            "workload", figures[0], "fastest", "peer", "leanest", "peer ", "reached", "from",
            figures=figures, whole=("workload", "peer", "peer "), gap=gap,
        )  # fmt: skip
        for score in scores:
            table.add_row(
                case_name(score.case, case_max), number(score.versus_rival.value),
                number(score.speed.value), case_name(score.fastest_peer, peer_max),
                number(score.memory.value), case_name(score.leanest_peer, peer_max),
                score.milestone or "-", str(sessions.index(score.session) + 1),
            )  # fmt: skip
        return table

    heading = _heading(
        "Each workload: speed against mimalloc 3 and the fastest peer, higher is better; peak "
        "memory against the leanest peer, lower is better; the highest milestone it reaches"
    )
    return [heading, _broken_where_needed(make)]


def _broken_where_needed(make: Callable[[int, int, int], Table]) -> Fitting:
    """With whole names of workloads and peers, and room between columns, where they fit."""
    return Fitting(lambda: make(NAME_MAX, NAME_MAX, 1), lambda: make(CASE_NARROW, PEER_NARROW, 0))


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


def _bar_table(bars: Sequence[Bar]) -> list[Any]:
    """Speed and memory of a workload in one row."""
    names = ("bar", "workload", "speed", "measured", "verdict", "memory", "verdict ")
    speeds = [bar for bar in bars if bar.letter != "f"]
    memory = {bar.case: bar for bar in bars if bar.letter == "f"}
    peaks = {bar.case: memory.pop(bar.case) for bar in speeds}

    def make(case_max: int, _: int, gap: int) -> Table:
        table = _table(*names, figures=("speed", "memory"), whole=("workload",), gap=gap)
        for bar in speeds:
            peak = peaks[bar.case]
            table.add_row(
                bar.letter, case_name(bar.case, case_max), f"{bar.limit:.2f}", _measured(bar),
                _verdict(bar), _measured(peak), _verdict(peak),
            )  # fmt: skip
        return table

    heading = _heading(
        "Milestones of the benchmarks (c to f): speed at least so many times the best of mimalloc 3 and 2, "
        "jemalloc, gperftools and glibc (random_mixed_400: mimalloc 3); peak memory at most 1.00 "
        "times mimalloc 3's; '?' where the 95 % interval holds both outcomes"
    )
    rest = [
        Text.assemble(f"f    {bar.case}: {bar.meaning}: {_measured(bar)}, ", _verdict(bar))
        for bar in memory.values()
    ]
    partly = [f"{bar.case}: {bar.meaning}" for bar in bars if bar.is_partial]
    notes = [Text(f"Not all peers: {'; '.join(partly)}", style="yellow")] if partly else []
    return [heading, _broken_where_needed(make), *rest, *notes]


def _measured(bar: Bar, whole: bool = False) -> str:
    if bar.value is None:
        return "-"
    if bar.case == STARTUP:
        return f"{bar.value:.0f} kB"
    if (bar.letter == "f" and not whole) or bar.low is None or bar.high is None:
        return f"{bar.value:.3f}"
    return f"{bar.value:.3f} ({bar.low:.3f} to {bar.high:.3f})"


def _verdict(bar: Bar) -> Text:
    if bar.met is None:
        return Text("no result", style="dim")
    mark = "?" if bar.certain is False else ""
    return Text(f"met{mark}", style="green") if bar.met else Text(f"missed{mark}", style="red")


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
