# SPDX-License-Identifier: MIT
"""What a session says about hardened allocators: what comes of each bug, and what they cost over hakmem and glibc."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from .arms import OURS, OURS_SECURE, SYSTEM
from .attacks import SUITE as ATTACKS
from .attacks import figure_lines
from .secure import (
    ENDED, FAILED, HARM, HELD, LATE, MEASURED, NOTHING, REPORT, VERDICTS, WARNING, BugCell, bug_rows, bug_total,
)
from .model import Arm, Session
from .statistics import geometric_mean
from .summary import Summary, ratio_between
from .tables import Blocks, Layout, arms_table, case_name, plain_table, session_table, shown_arms, title_text
from .wording import counted, number

REFERENCES = (OURS, SYSTEM)
STYLES = {REPORT: "green", WARNING: "green", ENDED: "", LATE: "", HELD: "", MEASURED: "", NOTHING: "dim", HARM: "bold red", FAILED: "yellow"}
TOTALS = {"noticed": "always noticed", "stopped": "always stopped", "late": "late in a run", "harmed": "harm in a run"}


def report_of(session: Session) -> dict[str, Any]:
    """Bugs, how many of them each allocator notices, and costs, as data."""
    rows = bug_rows(session)
    names = [arm.name for arm in session.arms if not arm.again_of]
    return {
        "bugs": [dataclasses.asdict(row) for row in rows],
        "totals": {name: dataclasses.asdict(bug_total(rows, name)) for name in names} if rows else {},
        "costs": {reference: costs_over(session, reference) for reference in REFERENCES
                  if reference in names and session.cases},
    }


def costs_over(session: Session, reference: str) -> dict[str, dict[str, Any]]:
    """Of each allocator: means of time and peak memory, and the worst cases, over those that both have run."""
    costs = {}
    for arm in session.arms:
        if arm.again_of:
            continue
        cases = [case.name for case in session.cases
                 if session.of(case.name, arm.name) and session.of(case.name, reference)]
        costs[arm.name] = {"cases": len(cases)}
        for what, key in (("time", "time"), ("memory", "peak")):
            of = {case: ratio_between(session, case, key, arm.name, reference).value for case in cases}
            worst = max(of, key=of.__getitem__, default="")
            costs[arm.name] |= {what: geometric_mean(of.values()), f"most_{what}": of.get(worst), f"{what}_case": worst}
    return costs


def secure_parts(session: Session, summary: Summary, report: dict[str, Any]) -> list[Any]:
    """Everything a reader of the terminal sees."""
    arms = shown_arms(summary)
    parts: list[Any] = [session_table(session, summary) if session.cases else title_text(session, summary)]
    if session.bugs:
        parts += [Text(), *_bug_table(session, report, arms)]
    if report["costs"]:
        parts += [Text(), *_cost_table(session, report["costs"], arms)]
    return [*parts, Text(), Text(sentence(session, report))]


def _bug_table(session: Session, report: dict[str, Any], arms: Sequence[Arm]) -> list[Any]:
    rows, word = bug_rows(session), _word(session)
    count = max((total["bugs"] for total in report["totals"].values()), default=0)

    def make(block: Sequence[Arm], layout: Layout) -> Table:
        table = arms_table(block, layout)
        table.columns[0].header, table.columns[0].vertical = word, "top"
        for row in rows:
            cells = [_bug_text(row.cells.get(arm.name)) for arm in block]
            table.add_row(case_name(row.case, layout.case_max), *cells)
        table.add_section()
        for key, name in TOTALS.items():
            table.add_row(f"{name}, of {count}", *(str(report["totals"][arm.name][key]) for arm in block))
        return table

    used = {verdict for row in rows for cell in row.cells.values() for verdict in cell.counts}
    legend = [Text(f"{verdict}: {text}") for verdict, text in VERDICTS.items() if verdict in used]
    return [Text(f"{word.capitalize()}s, and what comes of them", style="bold"), Blocks(make, arms), *legend]


def _word(session: Session) -> str:
    return "attack" if ATTACKS in session.command else "bug"


def _bug_text(cell: BugCell | None) -> Text:
    if cell is None:
        return Text("-", style="dim")
    lines = []
    for verdict in cell.verdicts if cell.counts.keys() != {MEASURED} else ():
        share = f" {cell.counts[verdict]}/{cell.runs}" if len(cell.counts) > 1 else ""
        lines.append(Text(verdict + share, style=STYLES[verdict]))
    return Text("\n").join([*lines, *map(Text, figure_lines(cell.figures))])


def _cost_table(session: Session, costs: dict[str, dict[str, Any]], arms: Sequence[Arm]) -> list[Any]:
    """Means over each reference; the worst cases over the first one."""
    first, over = next(iter(costs.items()))
    table = plain_table()
    table.add_column("allocator", overflow="fold", vertical="bottom")
    heads = [f"{what}\n{reference} = 1" for what in ("time", "memory") for reference in costs]
    for head in (*heads, "most time", "most memory", "cases"):
        table.add_column(head, justify="right", overflow="fold")
    for arm in arms:
        row = over[arm.name]
        means = [_figure(costs[reference][arm.name][what]) for what in ("time", "memory") for reference in costs]
        most = [f"{_figure(row[f'most_{what}'])} {row[f'{what}_case']}" for what in ("time", "memory")]
        table.add_row(arm.name, *means, *most, f"{row['cases']}/{len(session.cases)}",
                      style="bold" if arm.is_ours else "")
    heading = f"Costs: geometric means of time and peak memory, lower is better; the most is over {first}"
    return [Text(heading, style="bold"), table]


def _figure(value: float | None) -> str:
    return "-" if value is None else number(value)


def sentence(session: Session, report: dict[str, Any]) -> str:
    """The result of the secure form, or else of the first arm."""
    names = [arm.name for arm in session.arms]
    arm = OURS_SECURE if OURS_SECURE in names else names[0]
    parts = []
    total = report["totals"].get(arm)
    if total:
        parts.append(f"Of {counted(total['bugs'], _word(session))}, {arm} notices {total['noticed']} and stops "
                     f"{total['stopped']} in every run; {total['harmed'] or 'none'} did harm.")
    for reference, costs in report["costs"].items():
        cost = costs[arm]
        if reference != arm and cost["time"] is not None:
            parts.append(f"{'It' if parts else arm} takes {number(cost['time'])} times the time and "
                         f"{number(cost['memory'])} times the peak memory of {reference} "
                         f"({counted(cost['cases'], 'case')}).")
    return " ".join(parts) or f"No run of {arm} has ended well."
