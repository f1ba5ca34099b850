# SPDX-License-Identifier: MIT
"""Terminal tables of a session: speed and peak memory relative to the best peer of each row.

Marks are symbols first and colours second, so that a pipe or a monochrome terminal loses nothing.
A table wider than the terminal is printed in blocks of columns, each with the case names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from .model import Arm, Session
from .summary import SAMPLES_MIN, Cell, Ratio, Row, Summary, Total, summarise

WINNER = "*"
WORD_MAX = 8
"""Words of a column's name longer than this are broken where columns would not fit else."""
NAME_MAX = 40
NAME_NARROW = 20
"""Case names longer than this are broken where columns would not fit else."""
MEASURE_WIDTH = 10_000
"""Wider than any table, to ask for the width it would like to have."""


def session_table(session: Session, summary: Summary | None = None) -> Group:
    """Title, speed, peak memory, failures: everything a reader of the terminal sees."""
    summary = summary or summarise(session)
    parts: list[Any] = [title_text(session, summary), Text()]
    parts += [_view_table(summary, SPEED), Text(), _view_table(summary, MEMORY)]
    if CPU.rows(summary):
        parts += [Text(), _view_table(summary, CPU)]
    if any(cell.rest_kib for row in summary.rows for cell in row.cells.values()):
        parts += [Text(), rest_table(summary)]
    if summary.failures:
        parts += [Text(), failure_text(summary)]
    return Group(*parts)


def title_text(session: Session, summary: Summary) -> Text:
    """What ran, where and when, and how sure one can be."""
    text = Text(overflow="fold")
    text.append(shlex.join(["hakmem", *session.command]), style="bold")
    text.append(f"\n{machine_line(session.machine)}; {session.created[:16].replace('T', ' ')} UTC")
    text.append(f"; commit {session.commit[:12] or 'unknown'}")
    runs = f"\n{counted(session.rounds, 'round')}, interleaved; seed {session.seed}"
    if not summary.rows:
        runs = ""  # nothing was timed
    elif summary.noise is None:
        runs += "; no A/A arm, so the noise is unknown"
    else:
        runs += f"; noise {percent(summary.noise)} (median difference of an arm from itself)"
    text.append(runs)
    if not session.is_complete:
        text.append("\nThis session is not complete.", style="bold")
    for finding in session.findings:
        sentence = finding_sentence(finding)
        if sentence:
            text.append(f"\n! {sentence}", style="yellow")
    return text


def machine_line(machine: dict[str, Any]) -> str:
    """The facts of the machine that matter to a reader, whichever of them are known."""
    cores = machine.get("cores")
    parts = [
        machine.get("cpu"),
        f"{cores} core{'s' if cores != 1 else ''}" if cores else None,
        f"Linux {machine['kernel']}" if machine.get("kernel") else None,
        f"huge pages {machine['huge_pages']}" if machine.get("huge_pages") else None,
    ]
    return ", ".join(str(part) for part in parts if part) or "unknown machine"


def finding_sentence(finding: dict[str, str]) -> str:
    """A finding of the doctor as one line."""
    return f"{finding.get('sentence', '')} {finding.get('remedy', '')}".strip()


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def counted(count: int, noun: str) -> str:
    """"1 round", "9 rounds"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Layout:
    """How much room names may take."""

    case_max: int
    word_max: int


_LAYOUTS = [Layout(NAME_MAX, NAME_MAX), Layout(NAME_MAX, WORD_MAX), Layout(NAME_NARROW, WORD_MAX)]
"""The widest that fits is taken."""


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether nothing would have to be broken or cut off."""
    measured = table.__rich_measure__(console, options.update_width(MEASURE_WIDTH))
    return measured.maximum <= options.max_width


class Fitting:
    """The first of some tables that fits, else the last."""

    def __init__(self, *makes: Callable[[], Table]) -> None:
        self.makes = makes

    def widest(self) -> Table:
        return self.makes[0]()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for make in self.makes[:-1]:
            table = make()
            if fits(table, console, options):
                yield table
                return
        yield self.makes[-1]()


class Blocks:
    """One table; where it is too wide, with broken names, then in blocks of columns."""

    def __init__(self, make: Callable[[Sequence[Arm], Layout], Table], arms: Sequence[Arm]) -> None:
        self.make = make
        self.arms = list(arms)

    def widest(self) -> Table:
        return self.make(self.arms, _LAYOUTS[0])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for layout in _LAYOUTS:
            table = self.make(self.arms, layout)
            if fits(table, console, options):
                yield table
                return
        left = self.arms
        while left:
            size = len(left)
            while size > 1 and not fits(self.make(left[:size], layout), console, options):
                size -= 1
            yield self.make(left[:size], layout)
            left = left[size:]
            if left:
                yield Text()


def shown_arms(summary: Summary) -> list[Arm]:
    """Ours first, then the peers; the A/A arm is the noise column."""
    arms = [arm for arm in summary.arms if not arm.again_of]
    return sorted(arms, key=lambda arm: not arm.is_ours)


@dataclass(frozen=True)
class View:
    """What the tables of speed, memory and processor time do not share."""

    heading: str
    best: str  # the word for the reference of a row
    bad: float  # beyond it a cell is red
    ratio: Callable[[Cell], Ratio | None]
    is_best: Callable[[Cell], bool]
    noise: Callable[[Row], float | None]
    mean: Callable[[Total], float | None]
    worst: Callable[[Total], tuple[str, float | None]]
    kinds: tuple[str, ...] = ()  # of cases; all if empty

    def is_bad(self, value: float) -> bool:
        return value < self.bad if self.bad < 1 else value > self.bad

    def rows(self, summary: Summary) -> list[Row]:
        return [row for row in summary.rows if not self.kinds or row.kind in self.kinds]


SPEED = View(
    "Speed, higher is better", "fastest", 0.8, lambda cell: cell.speed, lambda cell: cell.is_winner,
    lambda row: row.noise, lambda total: total.speed, lambda total: (total.worst_case, total.worst_speed),
)  # fmt: skip
MEMORY = View(
    "Peak memory, lower is better", "leanest", 1.25, lambda cell: cell.peak_ratio, lambda cell: cell.is_leanest,
    lambda row: row.noise_peak, lambda total: total.peak_ratio,
    lambda total: (total.fattest_case, total.fattest_ratio),
)  # fmt: skip
CPU = View(
    "Processor time of programs, lower is better", "thriftiest", 1.25, lambda cell: cell.cpu_ratio,
    lambda cell: cell.is_thriftiest, lambda row: row.noise_cpu, lambda total: total.cpu_ratio,
    lambda total: (total.costliest_case, total.costliest_ratio), kinds=("program",),
)  # fmt: skip


def _view_table(summary: Summary, view: View) -> Group:
    arms, rows = shown_arms(summary), view.rows(summary)
    whom = "peer" if summary.has_peers else "one"
    heading = Text(f"{view.heading}: 1.00 is the {view.best} {whom} of the row; {star_note(summary)}", style="bold")
    worst = [
        Text(f"Worst row of {arm.name}: {case} ({number(value)})")
        for arm in arms
        if arm.is_ours and len(rows) > 1
        for case, value in [view.worst(summary.totals[arm.name])]
        if value is not None
    ]

    def make(block: Sequence[Arm], layout: Layout) -> Table:
        return _block(summary, rows, view, block, layout)

    return Group(heading, Blocks(make, arms), *worst)


@dataclass(frozen=True)
class RestRow:
    """What each arm held some time after the work of a case; no figure where it failed."""

    case: str
    second: float
    held_kib: dict[str, float]
    live_kib: dict[str, float]  # bytes that lived then, of arms that say so

    def per_live(self, arm: str) -> str:
        live = self.live_kib.get(arm)
        return f"{self.held_kib[arm] / live:.2f}" if live else "-"


def rest_rows(summary: Summary) -> list[RestRow]:
    rows = []
    for row in summary.rows:
        rests = {arm.name: dict(row.cells[arm.name].rest_kib) for arm in shown_arms(summary)}
        for second in sorted({second for rest in rests.values() for second in rest}):
            held = {arm: rest[second] for arm, rest in rests.items() if second in rest}
            live = {arm: row.cells[arm].live_kib for arm in held}
            rows.append(RestRow(row.case, second, held, {arm: kib for arm, kib in live.items() if kib}))
    return rows


def rest_table(summary: Summary) -> Group:
    """Not as ratios to a peer: what matters of idle memory is how many MiB of it there are, and
    how many for each that lives."""
    rows = rest_rows(summary)

    def make(arms: Sequence[Arm], layout: Layout) -> Table:
        table = arms_table(arms, layout)
        for row in rows:
            held = [row.held_kib.get(arm.name) for arm in arms]
            name = case_name(f"{row.case}, {row.second:g} s", layout.case_max)
            table.add_row(name, *("-" if kib is None else f"{kib / 1024:.1f}" for kib in held))
            if row.live_kib:
                table.add_row("  for each live byte", *(row.per_live(arm.name) for arm in arms))
        return table

    heading = Text("Memory after the work, MiB resident, lower is better", style="bold")
    return Group(heading, Blocks(make, shown_arms(summary)))


def plain_table(gap: int = 1) -> Table:
    """With a line below its head, and no other."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), header_style="")


def arms_table(arms: Sequence[Arm], layout: Layout) -> Table:
    table = plain_table()
    table.add_column("case", overflow="fold", vertical="bottom")
    for arm in arms:
        style = "bold" if arm.is_ours else ""
        name = column_name(arm.name, layout.word_max)
        table.add_column(name, justify="right", style=style, header_style=style, no_wrap=True)
    return table


def star_note(summary: Summary) -> str:
    """What the stars mean, or why there are none."""
    if summary.has_winners:
        return f"{WINNER} cannot be told from the row's best"
    return f"fewer than {SAMPLES_MIN} runs tell no best from another"


def _block(summary: Summary, rows: list[Row], view: View, arms: Sequence[Arm], layout: Layout) -> Table:
    table = arms_table(arms, layout)
    table.add_column("noise", justify="right", no_wrap=True, style="dim")
    for row in rows:
        cells = [_cell_text(row.cells[arm.name], view) for arm in arms]
        table.add_row(case_name(row.case, layout.case_max), *cells, _noise_text(view.noise(row)))
    if len(rows) == 1:
        return table
    totals = [summary.totals[arm.name] for arm in arms]
    table.add_section()
    table.add_row("geometric mean", *(_total_text(view.mean(t)) for t in totals), style="bold")
    table.add_row("worst row", *(_total_text(view.worst(t)[1]) for t in totals))
    counts = [sum(view.ratio(row.cells[arm.name]) is not None for row in rows) for arm in arms]
    if min(counts, default=0) < len(rows):
        shown = (f"{count} " for count in counts)
        table.add_row(f"rows, of {len(rows)}", *shown, style="dim")
    return table


def failure_text(summary: Summary) -> Text:
    text = Text("Failed runs", style="bold")
    for failure in summary.failures:
        times = f" ({failure.count} times)" if failure.count > 1 else ""
        text.append(f"\n! {failure.case}, {failure.arm}: {failure.sentence}{times}", style="red")
    return text


def case_name(name: str, length_max: int) -> str:
    """The name in lines of that length or about, broken after underscores and spaces."""
    lines = [""]
    for part in re.split(r"(?<=[_ ])", name):
        if lines[-1] and len(lines[-1]) + len(part) > length_max:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(lines)


def column_name(name: str, word_max: int = WORD_MAX) -> str:
    """One short word a line: 'google tcmalloc' is google, tc, malloc."""
    lines: list[str] = []
    for word in name.split(" "):
        parts = [word]
        if len(word) >= word_max:
            parts = [p for p in re.split(r"(?=malloc|tools|[=:])|(?<=[-_])", word) if p]
        for part in parts:
            lines += [part[at : at + word_max] for at in range(0, len(part), word_max)]
    return "\n".join(lines)


def _noise_text(noise: float | None) -> str:
    return "-" if noise is None else percent(noise).replace(" ", "")


def _cell_text(cell: Cell, view: View) -> Text:
    ratio = view.ratio(cell)
    if ratio is None:
        return Text("failed ", style="bold red") if cell.failures else Text("- ", style="dim")
    mark = "!" if cell.failures else WINNER if view.is_best(cell) else " "
    text = Text(number(ratio.value) + mark)
    if view.is_best(cell):
        text.stylize("green")
    elif view.is_bad(ratio.value):
        text.stylize("red")
    return text


def number(value: float) -> str:
    """A ratio in four characters or about."""
    return f"{value:.2f}" if value < 99.995 else f"{value:.0f}"


def _total_text(value: float | None) -> str:
    return "- " if value is None else f"{number(value)} "
