# SPDX-License-Identifier: MIT
"""PNG pictures of a session: speed bars, memory over time, time against memory.

Each allocator has one colour everywhere (Okabe and Ito's and Tol's sets, told apart by readers who
see no red or no green), and beside it a name, a place or a marker, so that colour is never needed.
Many cases become small multiples on several pages.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from .model import Arm, Sample, Session
from .summary import Row, Summary, summarise
from .tables import case_name, counted, machine_line, number, shown_arms, star_note

COLOURS = {
    "hakmem": "#D55E00",
    "glibc": "#6E6E6E",
    "mimalloc 3": "#0072B2",
    "mimalloc 2": "#56B4E9",
    "jemalloc": "#009E73",
    "google tcmalloc": "#CC79A7",
    "snmalloc": "#E0A000",
    "gperftools": "#882255",
    "oneTBB": "#999933",
    "scudo": "#332288",
    "rpmalloc": "#44AA99",
    "snmalloc-checks": "#B8860B",
    "hakmem-secure": "#8F3B00",
    "hardened_malloc": "#117733",
    "mimalloc-secure": "#1F4E79",
}
FURTHER_COLOURS = ["#AA4499", "#661100", "#88CCEE", "#DDCC77", "#4B6B2F", "#A0522D"]
MARKERS = "osD^vP<>Xphd"
COLUMNS = 4
PANELS_MAX = 20
"""Cases on one page."""
DPI = 120
LINE = 0.19
"""Height of a line of text, inches."""
LETTERS_PER_INCH = 15.5
BOLD_LETTERS_PER_INCH = 12.5
"""Of names beside bars and in legends."""
NAMES_WIDTH = 1.2
"""Beside bars; more where a name needs it. Inches."""
LEGEND_COLUMN = 1.6
"""At least; inches."""
ARM_NAME_MAX = 44
INK = "#222222"
GRID = "#DDDDDD"

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 9.5,
    "axes.edgecolor": "#888888", "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "figure.facecolor": "white", "savefig.facecolor": "white",
    "text.parse_math": False,  # a program's "$HOME $PATH" is no formula
}  # fmt: skip


def write_plots(session: Session, directory: Path, summary: Summary | None = None) -> list[Path]:
    """Writes speed-N.png, memory-N.png and time-memory.png; returns those there was data for."""
    summary = summary or summarise(session)
    directory.mkdir(parents=True, exist_ok=True)
    arms = shown_arms(summary)
    colours = colours_of(arms)
    written: list[Path] = []

    def save(figure: Figure, name: str) -> None:
        figure.savefig(directory / name, dpi=DPI)
        pyplot.close(figure)
        written.append(directory / name)

    with pyplot.rc_context(_STYLE):
        rows = [row for row in summary.rows if row.fastest_peer]
        for number_of_page, page in enumerate(_pages(rows), 1):
            save(_speed_page(session, summary, page, arms, colours), f"speed-{number_of_page}.png")
        series = {row.case: _series(session, row.case, arms) for row in rows}
        timed = [row for row in rows if series[row.case]]
        for number_of_page, page in enumerate(_pages(timed), 1):
            figure = _memory_page(session, page, arms, colours, series)
            save(figure, f"memory-{number_of_page}.png")
        if rows:
            save(_time_memory(session, summary, arms, colours), "time-memory.png")
    return written


def write_speed(session: Session, path: Path, title: str) -> None:
    """One picture of all cases, which fit on a page; the fastest of each is 1."""
    summary = summarise(session)
    arms = shown_arms(summary)
    with pyplot.rc_context(_STYLE):
        figure = _speed_page(session, summary, summary.rows, arms, colours_of(arms), title)
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


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


def _columns(count: int) -> int:
    """So that the last line of panels is as full as can be."""
    return math.ceil(count / math.ceil(count / COLUMNS))


def _panels(
    count: int, panel_height: float, title: str, subtitle: str, legend: Sequence[Arm] = (),
    margin: float = 0.5,
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """A grid with a title above; measured in inches, so that nothing moves with the counts.

    `margin` is left of the panels.
    """
    columns = _columns(count)
    lines = math.ceil(count / columns)
    width = max(3.2 * columns + max(margin, NAMES_WIDTH), 6.4)
    subtitle = _wrapped(subtitle, width)
    head = 0.5 + LINE * (1 + subtitle.count("\n"))
    figure = pyplot.figure(figsize=(width, 1))
    legend_lines = math.ceil(len(legend) / _legend_columns(width, legend))
    top = head + LINE * 1.25 * legend_lines + 0.45
    height = top + lines * panel_height
    figure.set_size_inches(width, height)
    axes = figure.subplots(lines, columns, squeeze=False)
    gap = 0.65
    figure.subplots_adjust(
        left=margin / width, right=1 - 0.2 / width,
        top=1 - top / height, bottom=(gap - 0.25) / height,
        hspace=gap / (panel_height - gap), wspace=0.2 if legend else 0.12,
    )  # fmt: skip
    figure.text(0.15 / width, 1 - 0.34 / height, title, fontsize=14, weight="bold")
    figure.text(
        0.15 / width, 1 - 0.45 / height, subtitle, fontsize=9, color="#555555", va="top"
    )
    if legend:
        _legend(figure, legend, head)
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.set_visible(False)
    return figure, flat[:count]


def _wrapped(text: str, width: float) -> str:
    letters = int((width - 0.3) * LETTERS_PER_INCH)
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))


def _arm_name(arm: Arm) -> str:
    """Libraries by their whole path are cut off at the beginning."""
    return arm.name if len(arm.name) <= ARM_NAME_MAX else f"...{arm.name[3 - ARM_NAME_MAX :]}"


def _names_width(arms: Sequence[Arm]) -> float:
    """Of the longest, inches."""
    return max((len(_arm_name(arm)) for arm in arms), default=0) / BOLD_LETTERS_PER_INCH


def _legend_column(arms: Sequence[Arm]) -> float:
    return max(_names_width(arms) + 0.4, LEGEND_COLUMN)


def _legend_columns(width: float, arms: Sequence[Arm]) -> int:
    return max(int((width - 0.3) / _legend_column(arms)), 1)


def _legend(figure: Figure, arms: Sequence[Arm], top: float) -> None:
    """Line by line from the left, as one reads; `top` in inches from the figure's top."""
    width, height = figure.get_size_inches()
    columns, column = _legend_columns(width, arms), _legend_column(arms)
    colours = colours_of(arms)
    for index, arm in enumerate(arms):
        x = (0.15 + (index % columns) * column) / width
        y = 1 - (top + LINE * (0.6 + 1.25 * (index // columns))) / height
        line = pyplot.Line2D(
            [x, x + 0.24 / width], [y, y], color=colours[arm.name],
            linewidth=4 if arm.is_ours else 2.5,
        )  # fmt: skip
        figure.add_artist(line)
        figure.text(x + 0.31 / width, y, _arm_name(arm), fontsize=9, va="center",
                    weight="bold" if arm.is_ours else "normal")  # fmt: skip


def _subtitle(session: Session) -> str:
    rounds = counted(session.rounds, "round")
    return f"{machine_line(session.machine)}; {session.created[:10]}; {rounds}"


# ---- Speed. ----


def _speed_page(
    session: Session, summary: Summary, rows: list[Row], arms: list[Arm], colours: dict[str, str],
    title: str = "",
) -> Figure:  # fmt: skip
    whom = "fastest peer" if summary.has_peers else "fastest"
    title = title or f"Speed relative to the {whom} of each case"
    note = f"Higher is better; black lines are 95 % intervals; {star_note(summary)}\n"
    height = 0.19 * len(arms) + 0.75
    margin = max(_names_width(arms) + 0.1, NAMES_WIDTH)
    figure, panels = _panels(len(rows), height, title, note + _subtitle(session), margin=margin)
    for index, (axes, row) in enumerate(zip(panels, rows, strict=True)):
        _speed_panel(axes, row, arms, colours)
        is_first = index % _columns(len(rows)) == 0
        axes.set_yticks(range(len(arms)), [_arm_name(arm) if is_first else "" for arm in arms])
        for label, arm in zip(axes.get_yticklabels(), arms, strict=True):
            label.set_fontweight("bold" if arm.is_ours else "normal")
    return figure


def _speed_panel(axes: Axes, row: Row, arms: list[Arm], colours: dict[str, str]) -> None:
    highest = _highest(row, arms)
    for place, arm in enumerate(arms):
        cell, speed = row.cells[arm.name], row.cells[arm.name].speed
        if speed is None:
            axes.text(0, place, " failed" if cell.failures else " not measured",
                      va="center", fontsize=8, style="italic", color="#777777")  # fmt: skip
            continue
        axes.barh(place, speed.value, 0.74, color=colours[arm.name], zorder=2)
        if speed.low is not None and speed.high is not None:
            # An arrow where the interval goes on: it shall not run into the figures.
            end = min(speed.high, highest)
            axes.plot([speed.low, end], [place, place], color="black", linewidth=1.2)
            if end < speed.high:
                axes.plot(end, place, ">", color="black", markersize=3.5)
        axes.text(
            0.86, place, number(speed.value) + ("*" if cell.is_winner else ""), fontsize=8,
            transform=axes.get_yaxis_transform(), va="center",
            weight="bold" if arm.is_ours else "normal",
        )  # fmt: skip
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2.5)
    axes.set_xlim(0, highest * 1.25)
    axes.set_ylim(len(arms) - 0.4, -0.6)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000, 1e6) if highest / s < 5)
    axes.set_xticks(numpy.arange(0, highest + step / 100, step))
    axes.tick_params(length=0, labelsize=8)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines["bottom"].set_visible(False)
    axes.set_title(_panel_title(row), loc="left", weight="bold")


def _highest(row: Row, arms: list[Arm]) -> float:
    """Where the axis has to reach; a long interval does not make all bars short."""
    speeds = [cell.speed for cell in (row.cells[arm.name] for arm in arms) if cell.speed]
    ends = [min(speed.high or speed.value, 1.5 * speed.value) for speed in speeds]
    return max([1.0, *(speed.value for speed in speeds), *ends])


def _panel_title(row: Row) -> str:
    return case_name(row.case, 36)


# ---- Memory over time. ----


def _series(session: Session, case: str, arms: list[Arm]) -> dict[str, list[list[float]]]:
    """For each arm the curve of its run of median length."""
    chosen = {}
    for arm in arms:
        curves = [s for s in session.of(case, arm.name) if len(s.rss_series) > 1]
        if curves:
            curves.sort(key=_length_ms)
            chosen[arm.name] = curves[(len(curves) - 1) // 2].rss_series
    return chosen


def _length_ms(sample: Sample) -> float:
    return sample.rss_series[-1][0]


def _memory_page(
    session: Session, rows: list[Row], arms: list[Arm], colours: dict[str, str],
    series: dict[str, dict[str, list[list[float]]]],
) -> Figure:  # fmt: skip
    shown = [arm for arm in arms if any(arm.name in series[row.case] for row in rows)]
    note = "MiB, lower is better; of each allocator the run of median length\n"
    figure, panels = _panels(
        len(rows), 2.3, "Resident memory over time", note + _subtitle(session), shown
    )
    for axes, row in zip(panels, rows, strict=True):
        for arm in sorted(shown, key=lambda arm: arm.is_ours):
            points = series[row.case].get(arm.name)
            if points:
                axes.plot(
                    [point[0] / 1e3 for point in points], [point[1] / 1024 for point in points],
                    color=colours[arm.name], linewidth=2.2 if arm.is_ours else 1.2,
                )  # fmt: skip
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(_seconds))
        axes.tick_params(length=2, labelsize=8)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_title(_panel_title(row), loc="left", weight="bold")
    return figure


def _seconds(value: float, _place: Any) -> str:
    return f"{value:g} s" if value else "0"


# ---- Time against memory. ----


def _time_memory(
    session: Session, summary: Summary, arms: list[Arm], colours: dict[str, str]
) -> Figure:
    points = {}
    for arm in arms:
        total = summary.totals[arm.name]
        if total.speed and total.peak_ratio:
            points[arm.name] = (1 / total.speed, total.peak_ratio)
    figure, axes = pyplot.subplots(figsize=(8.2, 6.6))
    figure.subplots_adjust(left=0.1, right=0.97, top=0.85, bottom=0.1)
    _log_axis(axes.set_xscale, axes.set_xlim, axes.xaxis, [x for x, _ in points.values()])
    _log_axis(axes.set_yscale, axes.set_ylim, axes.yaxis, [y for _, y in points.values()])
    axes.grid(color=GRID, linewidth=0.7)
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    for arm in arms:
        if arm.name in points:
            axes.scatter(
                *points[arm.name], s=230 if arm.is_ours else 95, color=colours[arm.name],
                marker="*" if arm.name == "hakmem" else _marker(arm.name),
                edgecolor="white", linewidth=0.8, zorder=4 if arm.is_ours else 3,
            )  # fmt: skip
    axes.set_xlabel("time, geometric mean, 1 = the fastest peer of each case (left is better)")
    axes.set_ylabel("peak memory, 1 = the leanest peer of each case (down is better)")
    cases = len([row for row in summary.rows if row.fastest_peer])
    word = "case" if cases == 1 else "cases"
    note = f"{cases} {word}; the dashed lines are the envelope of the peers\n"
    note = _wrapped(note + _subtitle(session), figure.get_figwidth())
    figure.text(0.02, 0.95, "Time against memory", fontsize=14, weight="bold")
    figure.text(0.02, 0.935, note, fontsize=9, color="#555555", va="top")
    _label_points(axes, points, {arm.name for arm in arms if arm.is_ours})
    return figure


def _marker(name: str) -> str:
    known = list(COLOURS)
    index = known.index(name) if name in known else len(known) + len(name)
    return MARKERS[index % len(MARKERS)]


def _log_axis(
    set_scale: Callable[[str], Any], set_limits: Callable[[float, float], Any], axis: Any,
    values: list[float],
) -> None:  # fmt: skip
    """Logarithmic, with room around the values and 1, and with round ticks."""
    low, high = min([1.0, *values]), max([1.0, *values])
    margin = max((high / low) ** 0.12, 1.04)
    low, high = low / margin, high * margin
    set_scale("log")
    set_limits(low, high)
    step = next((s for s in (0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / s < 8), None)
    if step is not None:
        ticks = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    else:
        ticks = [m * 10.0**e for e in range(-3, 7) for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _label_points(
    axes: Axes, points: dict[str, tuple[float, float]], ours: set[str]
) -> None:
    """Names beside the points, each on the first side where it covers neither point nor name."""
    canvas: Any = axes.figure.canvas  # Agg's
    renderer = canvas.get_renderer()
    centres = {name: axes.transData.transform(point) for name, point in points.items()}
    taken: list[tuple[float, float, float, float]] = [
        (x - 8, y - 8, x + 8, y + 8) for x, y in centres.values()
    ]
    frame = axes.get_window_extent(renderer)
    for name in sorted(points, key=lambda name: name not in ours):
        best = None
        for distance in (9, 16, 26, 38):
            for angle in (0, 180, 90, 270, 40, 140, 220, 320):
                label = _label(axes, name, points[name], distance, angle, name in ours)
                box = label.get_window_extent(renderer).padded(1)
                rectangle = (box.x0, box.y0, box.x1, box.y1)
                inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
                inside = inside and frame.y0 <= box.y0 and box.y1 <= frame.y1
                if inside and not any(_overlap(rectangle, other) for other in taken):
                    best = rectangle
                    break
                label.remove()
            if best:
                break
        if best is None:
            label = _label(axes, name, points[name], 9, 0, name in ours)
            box = label.get_window_extent(renderer)
            best = (box.x0, box.y0, box.x1, box.y1)
        taken.append(best)


def _label(
    axes: Axes, name: str, point: tuple[float, float], distance: float, angle: float, bold: bool
) -> Any:
    dx, dy = numpy.cos(numpy.radians(angle)), numpy.sin(numpy.radians(angle))
    return axes.annotate(
        name, point, xytext=(distance * dx, distance * dy), textcoords="offset points",
        ha="left" if dx > 0.1 else "right" if dx < -0.1 else "center",
        va="bottom" if dy > 0.1 else "top" if dy < -0.1 else "center",
        fontsize=11 if bold else 9, weight="bold" if bold else "normal", zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6},
    )  # fmt: skip


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
