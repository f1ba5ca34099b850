# SPDX-License-Identifier: MIT
"""How a session of servers is shown: tables of the terminal, a page, a picture for each server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullFormatter
from rich.table import Table
from rich.text import Text

from . import page, plots
from .bench import describe, write_results
from .model import Arm, Session
from .servers import BURST, SHARE
from .servers_report import FIGURES, Report, View, headline, latencies_of, report_of
from .summary import Ratio, summarise
from .tables import failure_text, number, percent, plain_table, title_text
from .wording import three_digits

METHOD = f"""Each server is loaded with {SHARE:.0%} of the rate that the slowest allocator reaches, at moments that are
drawn before; a latency counts from the drawn moment. The phases are warm, steady, a burst of {BURST} times the rate on
more connections, quiet, and steady again; latencies are those of the steady phases. Memory is the proportional set size
of all processes of the server, processor time theirs and their ended children's, both over all phases."""


def show(session: Session, output: Path | None, as_json: bool) -> None:
    """Tables or JSON on standard output; the page, pictures and JSON in `output`."""
    summary, report = summarise(session), report_of(session)
    data = {**describe(session, summary.to_json()), "servers": report.to_json()}
    parts: list[Any] = [title_text(session, summary)]
    for view in report.views:
        parts += [Text(), _table(view, report)]
    parts += [Text(), failure_text(summary)] if summary.failures else []
    parts += [Text(), Text(headline(report))]
    write_results(session, data, parts, output, as_json, lambda directory: page.write_page(
        session, directory, write_pictures(session, report, directory), [*parts, _details(report), Text(METHOD)],
    ))


def _table(view: View, report: Report) -> Table:
    table = Table(
        title=f"{view.heading}: 1.00 is the best peer of the row; lower is better",
        title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column("server", no_wrap=True)
    for arm in report.arms:
        table.add_column(arm.name, justify="right")
    table.add_column("noise", justify="right")
    for line in view.lines:
        cells = [_text(line.ratios.get(arm.name)) for arm in report.arms]
        table.add_row(line.case, *cells, "" if line.noise is None else percent(line.noise))
    for name, cells in _totals(view, report):
        table.add_row(name, *cells, "", style="bold")
    return table


def _text(ratio: Ratio | None) -> str:
    return "-" if ratio is None else number(ratio.value)


def _totals(view: View, report: Report) -> list[tuple[str, list[str]]]:
    means = view.means(report.arms)
    worst = [view.worst(arm.name) for arm in report.arms]
    return [
        ("geometric mean", ["-" if m is None else number(m) for m in means.values()]),
        ("worst server", ["-" if w is None else number(w[0]) for w in worst]),
    ]


def _details(report: Report) -> Table:
    """Medians in units."""
    table = plain_table()
    table.title = "All medians"
    for name in ("server", "allocator"):
        table.add_column(name)
    for one in FIGURES:
        table.add_column(f"{one.heading}, {one.unit}" if one.unit else one.heading, justify="right")
    for case, arms in report.medians.items():
        for arm in report.arms:
            if arm.name in arms:
                table.add_row(case, arm.name, *(three_digits(arms[arm.name][figure.key]) for figure in FIGURES))
    return table


# ---- Pictures. ----


def write_pictures(session: Session, report: Report, directory: Path) -> list[Path]:
    """server-NAME.png: memory over time, and the share of answers that took longer."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    with pyplot.rc_context(plots.STYLE):
        for case in report.medians:
            figure = _picture(session, case, report.arms)
            written.append(directory / f"server-{case}.png")
            figure.savefig(written[-1], dpi=plots.DPI)
            pyplot.close(figure)
    return written


def _picture(session: Session, case: str, arms: Sequence[Arm]) -> Any:
    colours = plots.colours_of(arms)
    title = next(one.title for one in session.cases if one.name == case)
    figure, (memory, latency) = pyplot.subplots(1, 2, figsize=(11, 3.6))
    figure.suptitle(f"{case}: {title}", x=0.01, ha="left")
    for arm in sorted(arms, key=lambda arm: arm.is_ours):
        samples = session.of(case, arm.name)
        if not samples:
            continue
        style: dict[str, Any] = {
            "color": colours[arm.name], "linewidth": 2.4 if arm.is_ours else 1.2,
            "label": arm.name,
        }  # fmt: skip
        series = samples[(len(samples) - 1) // 2].rss_series
        memory.plot([at / 1e3 for at, _ in series], [kib / 1024 for _, kib in series], **style)
        latency.plot(*_tail(latencies_of(session, case, arm.name)), **style)
    first = next(s for s in session.samples if s.case == case and s.serving)
    for name, start, end in (first.serving or {})["phases"]:
        memory.axvline(start, color=plots.GRID, linewidth=0.8, zorder=0)
        memory.text(start, 1.0, f" {name}", fontsize=7, color="#777777",
                    transform=memory.get_xaxis_transform(), va="bottom",
                    rotation=0 if end - start > 0.5 else 45)  # fmt: skip
    memory.set_ylim(bottom=0)
    memory.set_xlabel("seconds")
    memory.set_ylabel("memory, MiB")
    latency.set_xscale("log")
    latency.set_yscale("log")
    latency.set_xlabel("latency, ms")
    latency.set_ylabel("share of answers that took longer")
    for axis in (latency.xaxis, latency.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    latency.legend(fontsize=8, frameon=False, loc="lower left")
    return figure


def _tail(latencies: list[list[int]]) -> tuple[list[float], list[float]]:
    total = left = sum(count for _, count in latencies)
    xs, ys = [], []
    for end, count in latencies:
        left -= count
        if left > 0:
            xs.append(end / 1e6)
            ys.append(left / total)
    return xs, ys
