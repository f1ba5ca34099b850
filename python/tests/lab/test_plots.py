# SPDX-License-Identifier: MIT
"""plots.py: the right pictures, of a sensible size, none without data."""

import itertools
from pathlib import Path

import matplotlib.image
import matplotlib.pyplot
import matplotlib.text
import synthetic
from hakmem.lab import plots
from hakmem.lab.plots import PANELS_MAX, _pages, colours_of, write_plots
from hakmem.lab.summary import summarise


def test_writes_a_picture_of_each_kind(tmp_path: Path):
    session = synthetic.session(synthetic.CASE_NAMES[:5], failing=[("replace_400", "glibc")])
    paths = write_plots(session, tmp_path / "new")
    assert [path.name for path in paths] == ["speed-1.png", "memory-1.png", "time-memory.png"]
    for path in paths:
        height, width, _ = matplotlib.image.imread(path).shape
        assert 500 < width < 2500 and 300 < height < 2500


def test_long_names_have_room(tmp_path: Path):
    """None is cut off at the left, none runs into the next of the legend."""
    long = {"hakmem profile=small": (1, 1), "jemalloc MALLOC_CONF=narenas:1": (1, 1)}
    session = synthetic.session(["one", "two"], {"hakmem": (1, 1), **long, "x" * 60: (1, 1)})
    arms = [arm for arm in session.arms if not arm.again_of]
    summary = summarise(session)
    colours = colours_of(arms)
    series = {row.case: plots._series(session, row.case, arms) for row in summary.rows}
    bars = plots._speed_page(session, summary, summary.rows, arms, colours)
    curves = plots._memory_page(session, summary.rows, arms, colours, series)
    for figure in (bars, curves):
        boxes = [text.get_window_extent() for text in drawn_names(figure, arms)]
        assert len(boxes) == len(arms)
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        matplotlib.pyplot.close(figure)


def drawn_names(figure, arms):
    figure.canvas.draw()
    names = [plots._arm_name(arm) for arm in arms]
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text() in names]
    return [text for text in texts if text.get_window_extent().width > 1]  # the others are hidden


def test_a_long_interval_does_not_run_into_the_figures(tmp_path: Path):
    session = synthetic.session(["one"], {"hakmem": (1, 1), "a": (1, 1)}, spread=1.5, rounds=4)
    row = summarise(session).rows[0]
    arms = [arm for arm in session.arms if not arm.again_of]
    assert row.cells["hakmem"].speed.high > plots._highest(row, arms)
    figure, axes = matplotlib.pyplot.subplots()
    plots._speed_panel(axes, row, arms, colours_of(arms))
    figure.canvas.draw()
    ends = [max(line.get_xdata()) for line in axes.lines]
    assert max(ends) <= plots._highest(row, arms) < 0.86 * axes.get_xlim()[1]
    matplotlib.pyplot.close(figure)


def test_dollars_in_a_command_are_no_formula(tmp_path: Path):
    name = r"sh -c 'echo $HOME \frac $PATH'"
    assert len(write_plots(synthetic.session([name], kind="program"), tmp_path)) == 3


def test_pages_hold_every_case_once():
    rows = summarise(synthetic.session(synthetic.CASE_NAMES[:45], {"glibc": (1, 1)}, 1)).rows
    pages = _pages(rows)
    assert [row.case for page in pages for row in page] == [row.case for row in rows]
    assert len(pages) == 3 and max(map(len, pages)) <= PANELS_MAX


def test_without_samples_there_is_no_picture(tmp_path: Path):
    session = synthetic.session(["one"])
    session.samples = []
    assert write_plots(session, tmp_path) == []


def test_without_curves_there_is_no_memory_page(tmp_path: Path):
    session = synthetic.session(["one"], rounds=1)
    for sample in session.samples:
        sample.rss_series.clear()
    names = [path.name for path in write_plots(session, tmp_path)]
    assert names == ["speed-1.png", "time-memory.png"]


def test_colours_are_fixed_and_differ():
    names = ["hakmem", "mimalloc 3", "my own", "hakmem small", "other"]
    colours = colours_of([synthetic.arm(name) for name in names])
    assert len(set(colours.values())) == len(names)
    alone = colours_of([synthetic.arm("mimalloc 3")])
    assert alone["mimalloc 3"] == colours["mimalloc 3"]
