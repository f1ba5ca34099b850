# SPDX-License-Identifier: MIT
"""Terminal tables of a session: each figure relative to the best peer of each row.

Marks are symbols first and colours second, so that a pipe or a monochrome terminal loses nothing.
A table wider than the terminal is printed in blocks of columns, each with the case names.
"""

import functools
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
from .statistics import Ratio
from .summary import BY_KEY, SAMPLES_MIN, Figure, Row, Summary, Total, summarise
from .wording import counted, number, percent

WINNER = "*"
SERVER_KEYS = ("cpu_request", "p999", "mean", "after")
BAD = 1.25
"""A cell beyond it is red."""
WORD_MAX = 8
"""Words of a column's name longer than this are broken where columns would not fit else."""
NAME_MAX = 40
NAME_NARROW = 20
"""Case names longer than this are broken where columns would not fit else."""
MEASURE_WIDTH = 10_000
"""Wider than any table, to ask for the width it would like to have."""


def session_table(session: Session, summary: Summary | None = None) -> Group:
    """Title, a table of each figure, failures: everything a reader of the terminal sees."""
    summary = summary or summarise(session)
    parts: list[Any] = [title_text(session, summary)]
    for key in summary.totals:
        parts += [Text(), _view_table(summary, BY_KEY[key])]
    if any(row.kind != "server" and cell.rest_kib for row in summary.rows for cell in row.cells.values()):
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
    if summary.rows:  # else nothing was timed
        text.append(f"\n{counted(session.rounds, 'round')}, interleaved; seed {session.seed}; ")
        text.append("no A/A arm, so the noise is unknown" if summary.noise is None else
                    f"noise {percent(summary.noise)} (median difference of an arm from itself)")
    if not session.is_complete:
        text.append("\nThis session is not complete.", style="bold")
    for finding in session.findings:
        text.append(f"\n! {finding.get('sentence', '')} {finding.get('remedy', '')}".rstrip(), style="yellow")
    return text


def machine_line(machine: dict[str, Any]) -> str:
    """The facts of the machine that matter to a reader, whichever of them are known."""
    parts = [machine.get("cpu"), counted(machine["cores"], "core") if machine.get("cores") else None,
             f"Linux {machine['kernel']}" if machine.get("kernel") else None,
             f"huge pages {machine['huge_pages']}" if machine.get("huge_pages") else None]
    return ", ".join(str(part) for part in parts if part) or "unknown machine"


# ---- Tables of any width. ----


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
        tables = (make() for make in self.makes)
        table = next((table for table in tables if fits(table, console, options)), None)
        yield from self.without_fit(console, options) if table is None else [table]

    def without_fit(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.makes[-1]()


class Blocks(Fitting):
    """One table; where it is too wide, with broken names, then in blocks of columns."""

    def __init__(self, make: Callable[[Sequence[Any], Layout], Table], columns: Sequence[Any]) -> None:
        super().__init__(*(functools.partial(make, columns, layout) for layout in _LAYOUTS))
        self.make, self.columns = make, list(columns)

    def without_fit(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = self.columns
        while left:
            size = len(left)
            while size > 1 and not fits(self.make(left[:size], _LAYOUTS[-1]), console, options):
                size -= 1
            yield self.make(left[:size], _LAYOUTS[-1])
            left = left[size:]
            if left:
                yield Text()


def plain_table(gap: int = 1, title: str = "") -> Table:
    """With a line below its head, and no other."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), header_style="", title=title)


def arms_table(arms: Sequence[Arm], layout: Layout) -> Table:
    table = plain_table()
    table.add_column("case", overflow="fold", vertical="bottom")
    for arm in arms:
        style = "bold" if arm.is_ours else ""
        name = column_name(arm.name, layout.word_max)
        table.add_column(name, justify="right", style=style, header_style=style, no_wrap=True)
    return table


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


# ---- Those of a session. ----


def shown_arms(summary: Summary) -> list[Arm]:
    """Ours first, then the peers; the A/A arm is the noise column."""
    arms = [arm for arm in summary.arms if not arm.again_of]
    return sorted(arms, key=lambda arm: not arm.is_ours)


def star_note(summary: Summary) -> str:
    """What the stars mean, or why there are none."""
    if summary.has_winners:
        return f"{WINNER} cannot be told from the row's best"
    return f"fewer than {SAMPLES_MIN} runs tell no best from another"


def ratio_text(figure: Figure, value: float | None) -> str:
    return "-" if value is None else number(1 / value if figure.is_inverse else value)


def _view_table(summary: Summary, figure: Figure) -> Group:
    arms, rows, totals = shown_arms(summary), summary.rows_of(figure), summary.totals[figure.key]
    whom = "peer" if summary.has_peers else "one"
    heading = Text(f"{figure.view}: 1.00 is the {figure.best} {whom} of the row; {star_note(summary)}", style="bold")
    worst = [Text(f"Worst row of {arm.name}: {totals[arm.name].worst_case} ({ratio_text(figure, totals[arm.name].worst)})")
             for arm in arms if arm.is_ours and len(rows) > 1 and totals[arm.name].rows]

    def make(block: Sequence[Arm], layout: Layout) -> Table:
        table = arms_table(block, layout)
        table.add_column("noise", justify="right", no_wrap=True, style="dim")
        for row in rows:
            noise = row.views[figure.key].noise
            cells = [_cell_text(row, arm.name, figure) for arm in block]
            table.add_row(case_name(row.case, layout.case_max), *cells, "-" if noise is None else f"{noise * 100:.1f}%")
        if len(rows) > 1:
            _add_totals(table, figure, [totals[arm.name] for arm in block], len(rows))
        return table

    return Group(heading, Blocks(make, arms), *worst)


def _add_totals(table: Table, figure: Figure, totals: Sequence[Total], row_count: int) -> None:
    table.add_section()
    table.add_row("geometric mean", *(f"{ratio_text(figure, total.mean)} " for total in totals), style="bold")
    table.add_row("worst row", *(f"{ratio_text(figure, total.worst)} " for total in totals))
    if min((total.rows for total in totals), default=0) < row_count:
        table.add_row(f"rows, of {row_count}", *(f"{total.rows} " for total in totals), style="dim")


def _cell_text(row: Row, arm: str, figure: Figure) -> Text:
    view, cell = row.views[figure.key], row.cells[arm]
    ratio: Ratio | None = view.ratios.get(arm)
    if ratio is None:
        return Text("failed ", style="bold red") if cell.failures else Text("- ", style="dim")
    is_best = arm in view.best
    mark = "!" if cell.failures else WINNER if is_best else " "
    return Text(ratio_text(figure, ratio.value) + mark, style="green" if is_best else "red" if ratio.value > BAD else "")


def rest_table(summary: Summary) -> Group:
    """Not as ratios to a peer: what matters of idle memory is how many MiB of it there are, and
    how many for each that lives."""

    def make(arms: Sequence[Arm], layout: Layout) -> Table:
        table = arms_table(arms, layout)
        for row in summary.rows:
            cells = {arm.name: row.cells[arm.name] for arm in arms}
            held = {name: dict(cell.rest_kib) for name, cell in cells.items()}
            for second in sorted({second for cell in row.cells.values() for second, _ in cell.rest_kib}):
                name = case_name(f"{row.case}, {second:g} s", layout.case_max)
                table.add_row(name, *(f"{rest[second] / 1024:.1f}" if second in rest else "-" for rest in held.values()))
                if any(cell.live_kib for cell in row.cells.values()):
                    table.add_row("  for each live byte", *(
                        f"{held[name][second] / cell.live_kib:.2f}" if cell.live_kib and second in held[name] else "-"
                        for name, cell in cells.items()))
        return table

    heading = Text("Memory after the work, MiB resident, lower is better", style="bold")
    return Group(heading, Blocks(make, shown_arms(summary)))


def failure_text(summary: Summary) -> Text:
    text = Text("Failed runs", style="bold")
    for failure in summary.failures:
        times = f" ({failure.count} times)" if failure.count > 1 else ""
        text.append(f"\n! {failure.case}, {failure.arm}: {failure.sentence}{times}", style="red")
    return text


def details_table(summary: Summary) -> Table:
    """All medians, of each case and allocator."""
    arms = shown_arms(summary)
    known = {key for row in summary.rows for arm in arms for key in row.cells[arm.name].medians}
    columns = [(figure.key, figure.heading, figure.show) for figure in BY_KEY.values() if figure.key in known]
    columns += [("instructions", "instructions", lambda value: f"{value:,.1f}")] if "instructions" in known else []
    table = plain_table(title="All medians")
    for name in ("case", "allocator"):
        table.add_column(name)
    for name in ("runs", *(heading for _, heading, _ in columns)):
        table.add_column(name, justify="right")
    for row in summary.rows:
        for arm in arms:
            cell = row.cells[arm.name]
            values = (show(cell.medians[key]) if key in cell.medians else "-" for key, _, show in columns)
            table.add_row(Text(row.case), Text(arm.name), str(cell.runs), *values)
    return table


def headline(summary: Summary) -> list[Text]:
    """Of servers: a sentence of geometric means."""
    ours = next((arm.name for arm in shown_arms(summary) if arm.is_ours), "")
    means = {key: totals[ours].mean for key, totals in summary.totals.items() if ours and key in SERVER_KEYS}
    if len(means) < 4 or None in means.values():
        return []
    return [Text(), Text(
        f"Beside the best other allocator of each server, {ours} needs {means['cpu_request']:.2f} times the processor time "
        f"a request, has {means['p999']:.2f} times the p99.9 latency, {means['mean']:.2f} times the mean memory and "
        f"{means['after']:.2f} times the memory after a burst (geometric means of {len(summary.rows)} servers).")]
