# SPDX-License-Identifier: MIT
"""One HTML page of a session that needs nothing else: the tables of the terminal, all figures, the pictures."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .model import Session
from .summary import Cell, Summary
from .tables import counted, plain_table, shown_arms
from .wording import duration, mebibytes

NAME = "index.html"
WIDTH = 180
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ margin: 1.5rem; background: #fff; color: #1d1d1f; }}
pre {{ font: 13px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; overflow-x: auto; }}
img {{ display: block; max-width: 100%; margin: 1rem 0; border: 1px solid #d9dce1; }}
</style>
<pre>{text}</pre>
{pictures}
</html>
"""
METHOD = """How it was measured
Before any timing, each arm proved which file owns malloc, free and operator new.
Runs of all allocators are interleaved, in an order drawn anew in each round, with padding in the environment.
Ratios are taken within each round, averaged as logarithms without the outer fifths; intervals are bootstrapped.
A small process of its own starts each program and measures it."""


def write_page(session: Session, directory: Path, pictures: Sequence[Path], parts: Sequence[Any]) -> Path:
    """Writes index.html into the directory; `parts` are what the terminal shows."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    again = next((f"{arm.again_of} ran twice; what lies between the two is noise." for arm in session.arms
                  if arm.again_of), "No allocator ran twice, so the noise is not known.")
    facts = [Text(f"{METHOD}\n{again}"), arms_table(session), Text(
        f"{counted(len(session.samples), 'run')}; seed {session.seed}; raw file: {session.id}.jsonl")]
    for part in [*parts, *facts]:
        console.print(part)
        console.print()
    images = [
        f'<img alt="{html.escape(path.stem)}" src="data:image/png;base64,'
        f'{base64.b64encode(path.read_bytes()).decode()}">'
        for path in pictures
    ]
    path = directory / NAME
    text = console.export_html(inline_styles=True, code_format="{code}")
    title = html.escape(f"hakmem {session.command[0]}")
    page = PAGE.format(title=title, text=text, pictures="\n".join(images))
    path.write_text(page, encoding="utf-8", errors="replace")
    return path


def details_table(summary: Summary) -> Table:
    """All medians, of each case and allocator."""
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
    arms = shown_arms(summary)
    cells = [row.cells[arm.name] for row in summary.rows for arm in arms]
    columns = [column for column in columns if any(column[1](cell) is not None for cell in cells)]
    table = plain_table()
    for name in ("case", "allocator", *(column[0] for column in columns)):
        table.add_column(name, justify="left" if name in ("case", "allocator") else "right")
    for row in summary.rows:
        for arm in arms:
            values = [(of(row.cells[arm.name]), show) for _, of, show in columns]
            table.add_row(Text(row.case), Text(arm.name), *("-" if v is None else show(v) for v, show in values))
    return table


def arms_table(session: Session) -> Table:
    table = plain_table()
    for name in ("allocator", "version", "settings", "malloc is in", "SHA-256"):
        table.add_column(name, overflow="fold")
    for arm in session.arms:
        if not arm.again_of:
            settings = " ".join(f"{name}={value}" for name, value in arm.environment.items())
            serving = Path(session.proofs.get(arm.name, {}).get("malloc") or "not proved").name
            table.add_row(*map(Text, (arm.name, arm.version or "-", settings, serving, arm.sha256[:16])))
    return table
