# SPDX-License-Identifier: MIT
"""PNG pictures of a session: speed bars, memory over time, time against memory; of a server memory and latencies.

Each allocator has one colour everywhere (Okabe and Ito's and Tol's sets, told apart by readers who
see no red or no green), and beside it a name, a place or a marker, so that colour is never needed.
Many cases become small multiples on several pages.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from .model import Arm, Session
from .servers import merged
from .summary import Row, Summary, summarise
from .tables import case_name, machine_line, shown_arms, star_note
from .wording import counted, number

COLOURS = {
    "hakmem": "#D55E00", "glibc": "#6E6E6E", "mimalloc 3": "#0072B2", "mimalloc 2": "#56B4E9", "jemalloc": "#009E73",
    "google tcmalloc": "#CC79A7", "snmalloc": "#E0A000", "gperftools": "#882255", "oneTBB": "#999933",
    "scudo": "#332288", "rpmalloc": "#44AA99", "snmalloc-checks": "#B8860B", "hakmem-secure": "#8F3B00",
    "hardened_malloc": "#117733", "mimalloc-secure": "#1F4E79",
}
FURTHER_COLOURS = ["#AA4499", "#661100", "#88CCEE", "#DDCC77", "#4B6B2F", "#A0522D"]
MARKERS = "osD^vP<>Xphd"
COLUMNS = 4
PANELS_MAX = 20
"""Cases on one page."""
DPI = 120
ARM_NAME_MAX = 44
INK = "#222222"
GRID = "#DDDDDD"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 9.5,
    "axes.edgecolor": "#888888", "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "figure.facecolor": "white", "savefig.facecolor": "white", "axes.grid": True, "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.6, "figure.titlesize": 12, "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a program's "$HOME $PATH" is no formula
}


def write_plots(session: Session, directory: Path, summary: Summary | None = None) -> list[Path]:
    """Writes speed-N.png, memory-N.png, time-memory.png and server-NAME.png; returns those there was data for."""
    summary = summary or summarise(session)
    directory.mkdir(parents=True, exist_ok=True)
    arms = shown_arms(summary)
    written: list[Path] = []

    def save(figure: Figure, name: str) -> None:
        figure.savefig(directory / name, dpi=DPI)
        pyplot.close(figure)
        written.append(directory / name)

    with pyplot.rc_context(STYLE):
        rows = [row for row in summary.rows if "time" in row.views and row.views["time"].best_peer]
        for number_of_page, page in enumerate(_pages(rows), 1):
            save(_speed_page(session, summary, page, arms), f"speed-{number_of_page}.png")
        series = {row.case: _series(session, row.case, arms) for row in rows}
        timed = [row for row in rows if series[row.case]]
        for number_of_page, page in enumerate(_pages(timed), 1):
            save(_memory_page(session, page, arms, series), f"memory-{number_of_page}.png")
        if rows:
            save(_time_memory(session, summary, arms), "time-memory.png")
        for row in summary.rows:
            if row.kind == "server" and any(cell.runs for cell in row.cells.values()):
                save(_server(session, row, arms), f"server-{row.case}.png")
    return written


def colours_of(arms: Sequence[Arm]) -> dict[str, str]:
    """A known allocator has its colour in every session; others take the next free one."""
    further = iter(FURTHER_COLOURS * (1 + len(arms) // len(FURTHER_COLOURS)))
    return {arm.name: COLOURS.get(arm.name) or next(further) for arm in arms}


def _pages(rows: list[Row]) -> list[list[Row]]:
    """As few pages as there must be, of about the same length."""
    if not rows:
        return []
    count = math.ceil(len(rows) / PANELS_MAX)
    size = math.ceil(math.ceil(len(rows) / count) / COLUMNS) * COLUMNS
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _panels(rows: list[Row], height: float, title: str) -> tuple[Figure, list[Axes]]:
    """A panel for each case, under a title; the last line is as full as can be."""
    lines = math.ceil(len(rows) / COLUMNS)
    columns = math.ceil(len(rows) / lines)
    figure, grid = pyplot.subplots(lines, columns, squeeze=False,
                                   figsize=(max(3.2 * columns + 1.2, 8), height * lines + 0.9))
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    flat = list(grid.flat)
    for spare in flat[len(rows) :]:
        spare.set_visible(False)
    for axes, row in zip(flat, rows, strict=False):
        axes.set_title(case_name(row.case, 36), loc="left", weight="bold")
        axes.tick_params(length=0, labelsize=8)
    return figure, flat[: len(rows)]


def _arm_name(arm: Arm) -> str:
    """Libraries by their whole path are cut off at the beginning."""
    return arm.name if len(arm.name) <= ARM_NAME_MAX else f"...{arm.name[3 - ARM_NAME_MAX :]}"


def _subtitle(session: Session) -> str:
    rounds = counted(session.rounds, "round")
    return f"{machine_line(session.machine)}; {session.created[:10]}; {rounds}"


def _speed_page(session: Session, summary: Summary, rows: list[Row], arms: list[Arm]) -> Figure:
    whom = "fastest peer" if summary.has_peers else "fastest"
    title = (f"Speed relative to the {whom} of each case, higher is better; black lines are 95 % intervals;\n"
             f"{star_note(summary)}\n{_subtitle(session)}")
    figure, panels = _panels(rows, 0.19 * len(arms) + 0.6, title)
    for index, (axes, row) in enumerate(zip(panels, rows, strict=True)):
        _speed_panel(axes, row, arms)
        names = [_arm_name(arm) if axes.get_subplotspec().is_first_col() else "" for arm in arms]
        axes.set_yticks(range(len(arms)), names)
    return figure


def _speed_panel(axes: Axes, row: Row, arms: list[Arm]) -> None:
    colours, view = colours_of(arms), row.views["time"]
    speeds = {name: ratio.inverse for name, ratio in view.ratios.items()}
    # A long interval does not make all bars short.
    highest = max([1.0, *(min(speeds[arm.name].ends[-1], 1.5 * speeds[arm.name].value) for arm in arms if arm.name in speeds)])
    for place, arm in enumerate(arms):
        if arm.name not in speeds:
            text = " failed" if row.cells[arm.name].failures else " not measured"
            axes.text(0, place, text, va="center", fontsize=8)
            continue
        speed = speeds[arm.name]
        axes.barh(place, speed.value, 0.74, color=colours[arm.name])
        axes.plot([speed.ends[0], min(speed.ends[-1], highest)], [place, place], color="black", linewidth=1.2)
        axes.text(0.86, place, number(speed.value) + ("*" if arm.name in view.best else ""), fontsize=8, va="center",
                  transform=axes.get_yaxis_transform(), weight="bold" if arm.is_ours else "normal")
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_xlim(0, highest * 1.25)
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(visible=False, axis="y")


def _series(session: Session, case: str, arms: list[Arm]) -> dict[str, list[list[float]]]:
    """For each arm the curve of its run of median length."""
    chosen = {}
    for arm in arms:
        curves = [s.rss_series for s in session.of(case, arm.name) if len(s.rss_series) > 1]
        if curves:
            curves.sort(key=lambda curve: curve[-1][0])
            chosen[arm.name] = curves[(len(curves) - 1) // 2]
    return chosen


def _memory_page(
    session: Session, rows: list[Row], arms: list[Arm], series: dict[str, dict[str, list[list[float]]]],
) -> Figure:
    colours = colours_of(arms)
    shown = [arm for arm in arms if any(arm.name in series[row.case] for row in rows)]
    title = f"Resident memory over time, MiB; of each allocator the run of median length\n{_subtitle(session)}"
    figure, panels = _panels(rows, 2.3, title)
    for axes, row in zip(panels, rows, strict=True):
        for arm in reversed(shown):  # ours above the others
            points = series[row.case].get(arm.name, [])
            axes.plot([at / 1e3 for at, *_ in points], [kib / 1024 for _, kib, *_ in points], color=colours[arm.name],
                      linewidth=2.2 if arm.is_ours else 1.2, label=_arm_name(arm))
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s" if value else "0"))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside lower left", ncols=6, frameon=False)
    return figure


def _time_memory(session: Session, summary: Summary, arms: list[Arm]) -> Figure:
    colours = colours_of(arms)
    figure, axes = pyplot.subplots(figsize=(8.2, 5.6))
    _make_logarithmic(axes)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 7), numticks=30))
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    for place, arm in enumerate(arms):
        time, peak = (summary.totals[key][arm.name].mean for key in ("time", "peak"))
        if time and peak:
            axes.scatter(time, peak, s=230 if arm.is_ours else 95, color=colours[arm.name],
                         marker="*" if arm.name == "hakmem" else MARKERS[place % len(MARKERS)], zorder=3,
                         label=_arm_name(arm))
    axes.margins(0.12)
    axes.set_xlabel("time, geometric mean, 1 = the fastest peer of each case (left is better)")
    axes.set_ylabel("peak memory, 1 = the leanest peer of each case (down is better)")
    cases = counted(sum("time" in row.views and bool(row.views["time"].best_peer) for row in summary.rows), "case")
    figure.suptitle(f"Time against memory, {cases}; the dashed lines are the best peer of each\n{_subtitle(session)}",
                    x=0.01, ha="left", fontsize=10)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _make_logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _server(session: Session, row: Row, arms: list[Arm]) -> Figure:
    """Memory over time, and the share of answers that took longer."""
    colours = colours_of(arms)
    figure, (memory, latency) = pyplot.subplots(1, 2, figsize=(11, 3.6))
    figure.suptitle(f"{row.case}: {row.title}", x=0.01, ha="left")
    for arm in reversed(arms):  # ours above the others
        samples = [sample for sample in session.of(row.case, arm.name) if sample.serving]
        if samples:
            style = {"color": colours[arm.name], "linewidth": 2.4 if arm.is_ours else 1.2, "label": arm.name}
            series = samples[(len(samples) - 1) // 2].rss_series
            memory.plot([at / 1e3 for at, _ in series], [kib / 1024 for _, kib in series], **style)
            latencies = merged([sample.serving["latencies"] for sample in samples])
            left = numpy.cumsum([count for _, count in latencies][::-1])[::-1]
            share = [(end / 1e6, more / left[0]) for (end, _), more in zip(latencies, left[1:], strict=False)]
            latency.plot(*zip(*share, strict=True), **style)
            phases = samples[0].serving["phases"]
    for name, start, end in phases:
        memory.axvline(start, color=GRID, linewidth=0.8, zorder=0)
        memory.text(start, 1.0, f" {name}", fontsize=7, color="#777777", transform=memory.get_xaxis_transform(),
                    va="bottom", rotation=0 if end - start > 0.5 else 45)
    memory.set(xlabel="seconds", ylabel="memory, MiB", ylim=(0, None))
    latency.set(xlabel="latency, ms", ylabel="share of answers that took longer")
    _make_logarithmic(latency)
    latency.legend(fontsize=8, frameon=False, loc="lower left")
    return figure
