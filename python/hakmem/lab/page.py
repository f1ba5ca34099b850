# SPDX-License-Identifier: MIT
"""One HTML page of a session that needs nothing else: the tables of the terminal, all figures, the pictures.

It has the look of the tools' pages (look/page.py). What the terminal shows is made of rich's texts and tables; this turns
them into paragraphs, headings and tables.
"""

import base64
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from ..look.page import escape, fill
from .model import Session
from .servers import BURST, KIND, SHARE
from .tables import Fitting, plain_table
from .wording import counted

NAME = "index.html"
METHOD = """Before any timing, each arm proved which file owns malloc, free and operator new.
Runs of all allocators are interleaved, in an order drawn anew in each round, with padding in the environment.
Ratios are taken within each round, averaged as logarithms without the outer fifths; intervals are bootstrapped.
A small process of its own starts each program and measures it."""
METHOD_OF_SERVERS = f"""
Each server is loaded with {SHARE:.0%} of the rate that the slowest allocator reaches, at moments that are drawn before; a
latency counts from the drawn moment. The phases are warm, steady, a burst of {BURST} times the rate on more connections,
quiet, and steady again; latencies are those of the steady phases. Memory is the proportional set size of all processes of
the server, processor time theirs and their ended children's, both over all phases."""
CLASSES = {"red": "more", "green": "less", "dim": "dim", "yellow": "warning", "bold": "strong"}
"""Of the page, by words of rich's styles."""
WIDE = 60
"""Cells with more signs are broken."""


def write_page(session: Session, directory: Path, pictures: Sequence[Path], parts: Sequence[Any]) -> Path:
    """Writes index.html into the directory; `parts` are what the terminal shows."""
    again = next((f"{arm.again_of} ran twice; what lies between the two is noise." for arm in session.arms
                  if arm.again_of), "No allocator ran twice, so the noise is not known.")
    facts = Text(f"{counted(len(session.samples), 'run')}; seed {session.seed}; raw file: {session.id}.jsonl")
    method = METHOD + METHOD_OF_SERVERS * any(case.kind == KIND for case in session.cases)
    shown = [*_figures(pictures), _heading("How it was measured"),
             *map(_markup, flat([Text(f"{method}\n{again}"), _arms_table(session), facts]))]
    answers = [_markup(part, index == 0) for index, part in enumerate(flat(parts))]
    path = directory / NAME
    text = fill("session", Path(__file__).parent, title=escape(shlex.join(["hakmem", *session.command])),
                parts="\n".join([*answers, *shown]))
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def flat(parts: Sequence[Any]) -> Iterator[Text | Table]:
    """The texts and tables in groups; of tables for several widths the widest."""
    for part in parts:
        if isinstance(part, Group):
            yield from flat(part.renderables)
        elif isinstance(part, Fitting):
            yield part.widest()
        elif isinstance(part, Table) or part.plain.strip():
            yield part


def _markup(part: Text | Table, is_first: bool = False) -> str:
    if isinstance(part, Table):
        return _table(part)
    if is_first and part.style == "bold":  # the answer
        return f'<p class="headline">{_spans(part)}</p>'
    if part.style == "bold" and "\n" not in part.plain:
        return _heading(part.plain)
    return f'<p class="{_classes(part.style)}">{_spans(part)}</p>'


def _heading(text: str) -> str:
    heading, _, rest = text.partition(": ")
    return f"<h2>{escape(heading)}</h2>" + (f'<p class="dim">{escape(rest)}</p>' if rest else "")


def _classes(style: Any) -> str:
    return " ".join(CLASSES[word] for word in str(style).split() if word in CLASSES)


def _spans(text: Text) -> str:
    """The text with its lines and styles."""
    edges = sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))})
    made = []
    for start, end in zip(edges, edges[1:]):
        styles = [word for span in text.spans if span.start <= start < span.end for word in _classes(span.style).split()]
        piece = "<br>".join(escape(line) for line in text.plain[start:end].split("\n"))
        piece = f"<strong>{piece}</strong>" if "strong" in styles else piece
        colour = " ".join(word for word in styles if word != "strong")
        made.append(f'<span class="{colour}">{piece}</span>' if colour else piece)
    return "".join(made)


def _figures(pictures: Sequence[Path]) -> Iterator[str]:
    for path in pictures:
        data = base64.b64encode(path.read_bytes()).decode()
        yield f'<figure><img alt="{escape(path.stem)}" src="data:image/png;base64,{data}"></figure>'


def _table(table: Table) -> str:
    head = "".join(f'<th class="{_side(column)}">{escape(_plain(column.header))}</th>' for column in table.columns)
    cells = zip(*(column.cells for column in table.columns))
    rows, sections = [""], [row.end_section for row in table.rows]
    for row, values, is_last in zip(table.rows, cells, sections):
        line = "".join(map(_cell, table.columns, values))
        rows[-1] += f'<tr class="{_classes(row.style)}">{line}</tr>\n'
        rows += [""] if is_last else []
    title = _heading(_plain(table.title)) if table.title else ""
    feet = "".join(rows[1:])
    return (f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows[0]}</tbody>'
            f"{f'<tfoot>{feet}</tfoot>' if feet else ''}</table></div>")


def _side(column: Column) -> str:
    return "" if column.justify == "right" else "left"


def _cell(column: Column, value: Any) -> str:
    text = value if isinstance(value, Text) else Text(str(value))
    classes = f"{_side(column)} {'wide' if len(text) > WIDE else ''} {_classes(column.style)} {_classes(text.style)}"
    return f'<td class="{" ".join(classes.split())}">{_spans(Text(_plain(text))) if not text.spans else _spans(text)}</td>'


def _plain(text: Any) -> str:
    """Without the breaks that narrow columns need: those of cells continue a word, those of heads part words."""
    return re.sub("\n  ", "", str(text)).replace("\n", " ")


def _arms_table(session: Session) -> Table:
    table = plain_table()
    for name in ("allocator", "version", "settings", "malloc is in", "SHA-256"):
        table.add_column(name, overflow="fold")
    for arm in session.arms:
        if not arm.again_of:
            settings = " ".join(f"{name}={value}" for name, value in arm.environment.items())
            serving = Path(session.proofs.get(arm.name, {}).get("malloc") or "not proved").name
            table.add_row(*map(Text, (arm.name, arm.version or "-", settings, serving, arm.sha256[:16])))
    return table
