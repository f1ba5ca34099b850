# SPDX-License-Identifier: MIT
"""The tables of secure_report.py for the terminal and as Markdown, and the result in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .arms import OURS_SECURE
from .bugs import (
    ENDED,
    FAILED,
    HARM,
    NOTHING,
    REPORT,
    VERDICTS,
    WARNING,
    BugCell,
    BugTotal,
)
from .model import Arm, Session
from .overhead import CaseCost, Costs, MeanCost
from .secure_report import Report
from .summary import Ratio, Summary
from .tables import (
    Blocks,
    Layout,
    arms_table,
    case_name,
    counted,
    failure_text,
    number,
    plain_table,
    shown_arms,
    title_text,
)

STYLES = {
    REPORT: "green", WARNING: "green", ENDED: "", NOTHING: "dim", HARM: "bold red",
    FAILED: "yellow",
}  # fmt: skip
TOTALS: list[tuple[str, Callable[[BugTotal], int]]] = [
    ("always noticed", lambda total: total.noticed),
    ("always stopped", lambda total: total.stopped),
    ("harm in a run", lambda total: total.harmed),
]
"""The rows below the bugs."""
HEADING_BUGS = "Bugs, and what comes of them"
HEADING_COSTS = "What it costs: time and peak memory, geometric means, lower is better"


@dataclass(frozen=True)
class View:
    """What the tables of time and of memory do not share."""

    what: str
    ratios: Callable[[CaseCost], dict[str, Ratio]]
    mean: Callable[[MeanCost], float | None]
    worst: Callable[[MeanCost], tuple[float | None, str]]


VIEWS = (
    View("Time", lambda row: row.time, lambda m: m.time, lambda m: (m.slowest, m.slowest_case)),
    View(
        "Peak memory", lambda row: row.memory, lambda m: m.memory,
        lambda m: (m.fattest, m.fattest_case),
    ),
)  # fmt: skip


def secure_table(session: Session, summary: Summary, report: Report) -> Group:
    """Everything a reader of the terminal sees."""
    parts: list[Any] = [title_text(session, summary)]
    if report.bugs:
        parts += [Text(), *_bug_table(report, shown_arms(summary))]
    if report.costs:
        parts += [Text(), *_mean_table(report, shown_arms(summary))]
        parts += [Text(), *_case_tables(report.costs[0], shown_arms(summary))]
    if summary.failures:
        parts += [Text(), failure_text(summary)]
    parts += [Text(), Text(sentence(session, report))]
    return Group(*parts)


# ---- The terminal. ----


def _bug_table(report: Report, arms: Sequence[Arm]) -> list[Any]:
    def make(block: Sequence[Arm], layout: Layout) -> Table:
        table = arms_table(block, layout)
        table.columns[0].header, table.columns[0].vertical = "bug", "top"
        for row in report.bugs:
            cells = [_bug_text(row.cells.get(arm.name)) for arm in block]
            table.add_row(case_name(row.case, layout.case_max), *cells)
        table.add_section()
        for name, count in TOTALS:
            figures = [str(count(report.totals[arm.name])) for arm in block]
            table.add_row(f"{name}, of {len(report.bugs)}", *figures)
        return table

    used = [verdict for verdict in VERDICTS if any(
        verdict in cell.counts for row in report.bugs for cell in row.cells.values()
    )]  # fmt: skip
    legend = [Text(f"{verdict}: {VERDICTS[verdict]}") for verdict in used]
    return [Text(HEADING_BUGS, style="bold"), Blocks(make, arms), *legend]


def _bug_text(cell: BugCell | None) -> Text:
    if cell is None:
        return Text("-", style="dim")
    lines = []
    for verdict in cell.verdicts:
        share = f" {cell.counts[verdict]}/{cell.runs}" if len(cell.counts) > 1 else ""
        lines.append(Text(verdict + share, style=STYLES[verdict]))
    return Text("\n").join(lines)


def _mean_table(report: Report, arms: Sequence[Arm]) -> list[Any]:
    head, rows = mean_rows(report, arms, has_worst=False)
    table = plain_table()
    table.add_column(head[0], overflow="fold", vertical="bottom")
    for name in head[1:]:
        table.add_column(name.replace(", ", "\n"), justify="right", no_wrap=True)
    for arm, row in zip(arms, rows, strict=True):
        table.add_row(*row, style="bold" if arm.is_ours else "")
    return [Text(HEADING_COSTS, style="bold"), table]


def _case_tables(costs: Costs, arms: Sequence[Arm]) -> list[Any]:
    parts: list[Any] = []
    for view in VIEWS:
        heading = f"{view.what} of each case: 1.00 is {costs.reference}, lower is better"
        parts += [Text(), Text(heading, style="bold"), _case_table(costs, arms, view)]
    return parts[1:]


def _case_table(costs: Costs, arms: Sequence[Arm], view: View) -> Blocks:
    def make(block: Sequence[Arm], layout: Layout) -> Table:
        table = arms_table(block, layout)
        for row in costs.rows:
            cells = [figure(view.ratios(row).get(arm.name)) for arm in block]
            table.add_row(case_name(row.case, layout.case_max), *cells)
        if len(costs.rows) > 1:
            table.add_section()
            means = [costs.means[arm.name] for arm in block]
            table.add_row("geometric mean", *(figure(view.mean(m)) for m in means), style="bold")
            table.add_row("worst row", *(figure(view.worst(m)[0]) for m in means))
        return table

    return Blocks(make, [arm for arm in arms if arm.name != costs.reference])


def figure(value: Ratio | float | None) -> str:
    if value is None:
        return "-"
    return number(value.value if isinstance(value, Ratio) else value)


def mean_rows(
    report: Report, arms: Sequence[Arm], has_worst: bool = True
) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of means. The worst cases are against the first
    reference."""
    first = report.costs[0]
    head = ["allocator"]
    for view in VIEWS:
        head += [f"{view.what.lower()}, {costs.reference} = 1" for costs in report.costs]
    if has_worst:
        head += [f"most {view.what.lower()}, {first.reference} = 1" for view in VIEWS]
    head += ["cases"]
    rows = []
    for arm in arms:
        means = [costs.means[arm.name] for costs in report.costs]
        row = [arm.name, *(figure(view.mean(mean)) for view in VIEWS for mean in means)]
        if has_worst:
            worst = [view.worst(first.means[arm.name]) for view in VIEWS]
            row += [f"{figure(value)} {case}".strip() for value, case in worst]
        rows.append([*row, f"{first.means[arm.name].cases}/{len(first.rows)}"])
    return head, rows


# ---- A sentence. ----


def sentence(session: Session, report: Report) -> str:
    """The result of the secure form, or else of the first arm."""
    names = [arm.name for arm in session.arms]
    arm = OURS_SECURE if OURS_SECURE in names else names[0]
    parts = []
    total = report.totals.get(arm)
    if total:
        harm = f"{total.harmed} do" if total.harmed != 1 else "one does"
        harm = "none does" if not total.harmed else harm
        parts.append(
            f"Of {counted(total.bugs, 'bug')}, {arm} notices {total.noticed} and stops "
            f"{total.stopped} in every run; {harm} harm."
        )
    for costs in report.costs:
        mean = costs.means[arm]
        if costs.reference != arm and mean.time is not None and mean.memory is not None:
            parts.append(
                f"{'It' if parts else arm} takes {number(mean.time)} times the time and "
                f"{number(mean.memory)} times the peak memory of {costs.reference} "
                f"({_means_of(mean)})."
            )
    return " ".join(parts) or f"No run of {arm} has ended well."


def _means_of(mean: MeanCost) -> str:
    return "one case" if mean.cases == 1 else f"geometric means of {mean.cases} cases"


# ---- Markdown. ----


def markdown(summary: Summary, report: Report) -> str:
    """The tables, as documents have them."""
    arms = shown_arms(summary)
    parts = []
    if report.bugs:
        parts.append(_markdown_bugs(report, arms))
    if report.costs:
        parts.append(_markdown_rows(*mean_rows(report, arms)))
        parts.append(_markdown_cases(report.costs[0], arms))
    return "\n".join(parts)


def _markdown_bugs(report: Report, arms: Sequence[Arm]) -> str:
    rows = [
        [f"`{row.case}`: {row.title}", *(_markdown_cell(row.cells.get(arm.name)) for arm in arms)]
        for row in report.bugs
    ]
    for name, count in TOTALS:
        figures = [str(count(report.totals[arm.name])) for arm in arms]
        rows.append([f"**{name}, of {len(report.bugs)}**", *figures])
    return _markdown_rows(["bug", *(arm.name for arm in arms)], rows)


def _markdown_cell(cell: BugCell | None) -> str:
    if cell is None:
        return "-"
    words = []
    for verdict in cell.verdicts:
        share = f" {cell.counts[verdict]} of {cell.runs}" if len(cell.counts) > 1 else ""
        words.append(f"**{verdict}**{share}" if verdict == HARM else verdict + share)
    return ", ".join(words)


def _markdown_cases(costs: Costs, arms: Sequence[Arm]) -> str:
    """Time and memory of a case in one cell."""
    shown = [arm.name for arm in arms if arm.name != costs.reference]
    head = f"time / memory, {costs.reference} = 1"
    rows = [
        [f"`{row.case}`",
         *(f"{figure(row.time.get(arm))} / {figure(row.memory.get(arm))}" for arm in shown)]
        for row in costs.rows
    ]  # fmt: skip
    return _markdown_rows([head, *shown], rows)


def _markdown_rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---:" if at and _is_figure(rows, at) else "---" for at in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *rows])


def _is_figure(rows: Sequence[Sequence[str]], column: int) -> bool:
    return all(re.fullmatch(r"-|[\d./ ]+", row[column]) for row in rows)
