"""plots.py: the right pictures, of a sensible size, none without data."""

from pathlib import Path

import matplotlib.image
import synthetic
from hakmem_lab.plots import PANELS_MAX, _pages, colours_of, write_plots
from hakmem_lab.summary import summarise


def test_writes_a_picture_of_each_kind(tmp_path: Path):
    session = synthetic.session(synthetic.CASE_NAMES[:5], failing=[("replace_400", "glibc")])
    paths = write_plots(session, tmp_path / "new")
    assert [path.name for path in paths] == ["speed-1.png", "memory-1.png", "time-memory.png"]
    for path in paths:
        height, width, _ = matplotlib.image.imread(path).shape
        assert 500 < width < 2500 and 300 < height < 2500


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
