# SPDX-License-Identifier: MIT
"""One HTML page of a session that needs nothing else: pictures inside, a few lines of script.

The layout is page.html.j2; this file makes the words and figures it shows.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from .bugs import HARM, REPORT, VERDICTS, BugCell
from .model import Arm, Session
from .overhead import Costs
from .secure_report import Report
from .secure_tables import TOTALS, VIEWS, figure, mean_rows, sentence
from .summary import Cell, Ratio, Row, Summary, summarise
from .tables import (
    CPU,
    MEMORY,
    SPEED,
    View,
    counted,
    finding_sentence,
    machine_line,
    number,
    percent,
    rest_rows,
    shown_arms,
    star_note,
)

NAME = "index.html"
OURS = "hakmem"
TEMPLATE = Path(__file__).with_name("page.html.j2")

METHOD = [
    "Before any timing, each arm proved which file owns malloc, free and operator new.",
    "Runs of all allocators are interleaved, in an order drawn anew in each round, with a random "
    "amount of padding in the environment, so that drift and layout favour nobody.",
    "Ratios are taken within each round, averaged as logarithms without the outer fifths; "
    "intervals are bootstrapped, 95 %.",
    "A star marks the best of a row and all that cannot be told from it: their interval reaches "
    "the best, or the difference is within the noise.",
    "Speed is relative to the fastest peer of each case, memory to the leanest; peers are all but "
    "hakmem. Over cases, geometric means.",
    "A small process of its own starts each program and measures it, so that the memory of the "
    "measuring program is not counted.",
]
METHOD_BUGS = (
    "Each bug is a program of tests/secure. It ran several times under each allocator, and its "
    "status, its signal and its standard error tell what came of the bug."
)


def write_page(
    session: Session, directory: Path, pictures: Sequence[Path], summary: Summary | None = None,
    lead: str = "", secure: Report | None = None, views: Sequence[dict[str, Any]] = (),
    details: dict[str, Any] | None = None, method: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Writes index.html into the directory; `pictures` as write_plots returns them, `lead` the
    result in words when the command has better ones than the headline, `secure` the report of a
    suite of hardened allocators; `views` and `details` instead of the tables of ratios and of all
    figures, with their `method`."""
    summary = summary or summarise(session)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    path = directory / NAME
    facts = _facts(session, summary, pictures)
    facts |= _secure_facts(secure, shown_arms(summary))
    if views:
        empty = {**facts["speed"], "rows": []}
        facts |= {"costs": views, "speed": empty, "memory": empty, "cpu": empty}
        facts |= {"details": details, "method": [METHOD[0], METHOD[1], *method, METHOD[2]]}
        facts["method"].append(_noise_sentence(summary))
    if secure:
        lead = sentence(session, secure)
    if secure and secure.bugs:
        facts["method"].append(METHOD_BUGS)
    if secure and not summary.rows:
        arms = counted(len(shown_arms(summary)), "allocator")
        facts["title"] = f"hakmem {session.command[0]}: {counted(len(secure.bugs), 'bug')}, {arms}"
        facts |= {"counts": "nothing was timed", "method": [METHOD[0], METHOD_BUGS]}
    facts["headline"] = lead or facts["headline"]
    path.write_text(template.render(facts), encoding="utf-8", errors="replace")
    return path


def _facts(session: Session, summary: Summary, pictures: Sequence[Path]) -> dict[str, Any]:
    arms = shown_arms(summary)
    return {
        "title": f"hakmem {session.command[0]}: {_names(summary)}",
        "machine": machine_line(session.machine),
        "created": f"{session.created[:16].replace('T', ' ')} UTC",
        "commit": session.commit[:12] or "unknown",
        "counts": f"{counted(len(session.samples), 'run')}, {counted(session.rounds, 'round')}, "
        f"seed {session.seed}",
        "headline": headline(summary),
        "complete": session.is_complete,
        "arms": [{"name": arm.name, "ours": arm.is_ours} for arm in arms],
        **{view.anchor: _ratio_view(summary, view, arms) for view in (SPEED, MEMORY, CPU)},
        "rest": _rest_view(summary, arms),
        "pictures": {
            "speed": _pictures(pictures, "speed-", "Bars of the speed of each case"),
            "both": _pictures(pictures, "time-memory", "Time against memory of each allocator"),
            "memory": _pictures(pictures, "memory-", "Curves of the memory of each case over time")
            + _pictures(pictures, "server-", "Memory over time and latencies of a server"),
        },
        "failures": summary.failures,
        "details": _details(summary, arms),
        "allocators": [_allocator(session, arm) for arm in summary.arms if not arm.again_of],
        "machine_facts": [_fact(name, value) for name, value in session.machine.items() if value],
        "findings": [finding_sentence(finding) for finding in session.findings],
        "method": [*METHOD, _noise_sentence(summary)],
        "command": shlex.join(["./hakmem", *session.command]),
        "raw_file": f"{session.id}.jsonl",
    }


def _secure_facts(report: Report | None, arms: list[Arm]) -> dict[str, Any]:
    """Empty without a report."""
    facts: dict[str, Any] = {"bugs": [], "bug_totals": [], "verdicts": {}, "means": None}
    if report is None:
        return {**facts, "costs": []}
    if report.bugs:
        facts["bugs"] = [
            {
                "case": row.case,
                "title": row.title,
                "cells": [_bug_cell(row.cells.get(arm.name), arm) for arm in arms],
            }
            for row in report.bugs
        ]
        facts["bug_totals"] = [
            (f"{name}, of {len(report.bugs)}", [count(report.totals[arm.name]) for arm in arms])
            for name, count in TOTALS
        ]
        facts["verdicts"] = VERDICTS
    if report.costs:
        head, rows = mean_rows(report, arms)
        facts["means"] = {"head": head, "rows": rows}
    return {**facts, "costs": _cost_views(report.costs[0], arms) if report.costs else []}


def _bug_cell(cell: BugCell | None, arm: Arm) -> dict[str, str]:
    styles = ["ours"] if arm.is_ours else []
    if cell is None:
        return {"text": "-", "report": "", "style": " ".join(styles)}
    styles += ["best"] if cell.is_always(REPORT) else ["bad"] if HARM in cell.counts else []
    shares = [
        verdict + (f" {cell.counts[verdict]}/{cell.runs}" if len(cell.counts) > 1 else "")
        for verdict in cell.verdicts
    ]
    return {"text": ", ".join(shares), "report": cell.report, "style": " ".join(styles)}


def _cost_views(costs: Costs, arms: list[Arm]) -> list[dict[str, Any]]:
    """Time and memory of each case over the reference, in the form of the tables of ratios."""

    means = [costs.means[arm.name] for arm in arms]
    return [
        {
            "anchor": f"cost-{view.what.split()[-1].lower()}",
            "heading": f"{view.what} over {costs.reference}: lower is better",
            "note": f"1.00 is {costs.reference}.",
            "rows": [
                ratio_row(row, [ratio_cell(view.ratios(row).get(arm.name), arm) for arm in arms])
                for row in costs.rows
            ],
            "totals": [
                ("geometric mean", [figure(view.mean(mean)) for mean in means]),
                ("worst row", [figure(view.worst(mean)[0]) for mean in means]),
            ],
        }
        for view in VIEWS
    ]


def ratio_row(row: Any, cells: list[dict[str, str]], noise: float | None = None) -> dict[str, Any]:
    """Of a table of ratios; `row` has a case and a title."""
    return {
        "case": row.case, "title": row.title, "cells": cells,
        "noise": "" if noise is None else percent(noise),
        "noise_value": "" if noise is None else f"{noise:.6f}",
    }  # fmt: skip


def ratio_cell(ratio: Ratio | None, arm: Arm, style: str = "", mark: str = "", without: str = "-") -> dict[str, str]:
    """`without` is the text where there is no ratio."""
    style = f"{'ours ' if arm.is_ours else ''}{style}".strip()
    if ratio is None:
        return {"text": without, "value": "", "interval": "", "style": style}
    text = number(ratio.value) + mark
    return {"text": text, "value": f"{ratio.value:.6f}", "interval": interval_text(ratio), "style": style}


def _names(summary: Summary) -> str:
    arms, rows = len(shown_arms(summary)), len(summary.rows)
    what = summary.rows[0].case if rows == 1 else f"{rows} cases"
    return f"{what}, {arms} allocators"


def headline(summary: Summary) -> str:
    """The result of our first arm in two sentences."""
    ours = [arm for arm in summary.arms if arm.is_ours and not arm.again_of]
    total = summary.totals[ours[0].name] if ours else None
    if total is None or total.speed is None or total.peak_ratio is None:
        return f"No run of {OURS} has ended well." if ours else f"{OURS} was not measured here."
    whom = "peer" if summary.has_peers else "one"
    mean = "geometric mean over {0} cases" if total.rows > 1 else "one case"
    text = (
        f"{total.arm} has {number(total.speed)} times the speed of the fastest {whom} of each case "
        f"and {number(total.peak_ratio)} times the peak memory of the leanest "
        f"({mean.format(total.rows)}). "
    )
    if total.rows > 1:
        wins = f"is the fastest, or cannot be told from the fastest, in {total.wins} of them"
        text += (
            f"It {wins if summary.has_winners else 'ran too seldom to say where it is the fastest'}"
            f"; its worst is {total.worst_case} with {number(total.worst_speed or 0)}."
        )
    return text


def _fact(name: str, value: Any) -> tuple[str, Any]:
    """Of the machine, as one would write it."""
    if name.endswith("_kib"):
        return name.removesuffix("_kib"), f"{value / 2**20:.1f} GiB"
    return name.replace("_", " "), f"{value:.2f}" if isinstance(value, float) else value


def _noise_sentence(summary: Summary) -> str:
    again = [arm.again_of for arm in summary.arms if arm.again_of]
    if not again:
        return "No allocator ran twice, so the noise is not known."
    return (
        f"{again[0]} ran twice under two names. What lies between the two is noise: a smaller "
        "difference between others is no difference."
    )


def _ratio_view(summary: Summary, view: View, arms: list[Arm]) -> dict[str, Any]:
    """Without rows where there is no case of its kind."""
    whom = "peer" if summary.has_peers else "allocator"
    rows = view.rows(summary)
    return {
        "anchor": view.anchor,
        "heading": view.heading.replace(", ", ": "),
        "note": f"1.00 is the {view.best} {whom} of the row; {star_note(summary)}.",
        "rows": [
            ratio_row(row, [_cell(row.cells[arm.name], view, arm) for arm in arms], view.noise(row))
            for row in rows
        ],
        "totals": _totals(summary, rows, view, arms),
    }


def _cell(cell: Cell, view: View, arm: Arm) -> dict[str, str]:
    ratio, best = view.ratio(cell), view.is_best(cell)
    if ratio is None:
        style = "failed" if cell.failures else ""
        return ratio_cell(None, arm, style, without=style or "-")
    style = "best" if best else "bad" if view.is_bad(ratio.value) else ""
    return ratio_cell(ratio, arm, style, "*" * best + "!" * bool(cell.failures))


def _rest_view(summary: Summary, arms: list[Arm]) -> list[dict[str, Any]]:
    """MiB after the work; nothing when no case rested."""
    return [
        {
            "case": row.case,
            "second": f"{row.second:g}",
            "cells": [
                {
                    "text": mebibytes(row.held_kib.get(arm.name))
                    + (f" ({row.per_live(arm.name)})" if row.live_kib else ""),
                    "value": row.held_kib.get(arm.name, ""),
                    "style": "ours" if arm.is_ours else "",
                }
                for arm in arms
            ],
        }
        for row in rest_rows(summary)
    ]


def interval_text(ratio: Ratio) -> str:
    """"" where there is none, or it is too narrow to show."""
    if ratio.low is None or ratio.high is None:
        return ""
    low, high = number(ratio.low), number(ratio.high)
    return f"{low} to {high}" if low != high else ""


def _totals(summary: Summary, rows: list[Row], view: View, arms: list[Arm]) -> list[tuple[str, list[str]]]:
    totals = [summary.totals[arm.name] for arm in arms]
    if len(rows) == 1:
        return []

    def texts(values: Iterable[float | None]) -> list[str]:
        return ["-" if value is None else number(value) for value in values]

    worst = [view.worst(total)[1] for total in totals]
    lines = [("geometric mean", texts(map(view.mean, totals))), ("worst row", texts(worst))]
    if any(total.rows < len(rows) for total in totals):
        lines.append((f"rows, of {len(rows)}", [str(total.rows) for total in totals]))
    return lines


def _details(summary: Summary, arms: list[Arm]) -> dict[str, Any]:
    columns: list[tuple[str, Callable[[Cell], float | None], Callable[[float], str]]] = [
        ("runs", lambda c: c.runs, lambda v: f"{v:.0f}"),
        ("time", lambda c: c.cost_ns, duration),
        ("CPU", lambda c: c.cpu_ns, duration),
        ("peak, MiB", lambda c: c.peak_kib, mebibytes),
        ("mean, MiB", lambda c: c.mean_kib, mebibytes),
        ("at the end, MiB", lambda c: c.end_kib, mebibytes),
        ("lazily freed, MiB", lambda c: c.lazyfree_end_kib, mebibytes),
        ("page faults", lambda c: c.faults, lambda v: f"{v:,.0f}"),
        ("p99", lambda c: c.p99_ns, duration),
        ("instructions", lambda c: c.instructions, lambda v: f"{v:,.1f}"),
    ]
    cells = [row.cells[arm.name] for row in summary.rows for arm in arms]
    columns = [column for column in columns if any(column[1](cell) is not None for cell in cells)]
    rows = []
    for row in summary.rows:
        for arm in arms:
            cell = row.cells[arm.name]
            values = [(column[1](cell), column[2]) for column in columns]
            rows.append({"ours": arm.is_ours, "cells": [
                {"text": row.case, "value": row.case},
                {"text": arm.name, "value": arm.name},
                *({"text": "-" if v is None else show(v), "value": "" if v is None else v}
                  for v, show in values),
            ]})  # fmt: skip
    return {"names": ["case", "allocator", *(column[0] for column in columns)], "rows": rows}


def duration(value_ns: float | None) -> str:
    """Three digits and a unit; "-" of nothing."""
    if value_ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value_ns >= size:
            return f"{three_digits(value_ns / size)} {unit}"
    return f"{three_digits(value_ns)} ns"


def three_digits(value: float) -> str:
    """Of 1.234 "1.23", of 12.34 "12.3"; of more than three digits all before the point."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def mebibytes(value_kib: float | None) -> str:
    return "-" if value_kib is None else three_digits(value_kib / 1024)


def _allocator(session: Session, arm: Arm) -> dict[str, str]:
    return {
        "name": arm.name,
        "version": arm.version or "-",
        "environment": " ".join(f"{name}={value}" for name, value in arm.environment.items()),
        "serving": Path(session.proofs.get(arm.name, {}).get("malloc") or "not proved").name,
        "sha256": arm.sha256,
    }


def _pictures(paths: Sequence[Path], prefix: str, alt: str) -> list[dict[str, str]]:
    return [
        {"alt": alt, "uri": "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()}
        for path in paths
        if path.name.startswith(prefix)
    ]
