# SPDX-License-Identifier: MIT
"""summary.py and tables.py: right figures from sessions whose truth is known; tables fit their width and lose nothing
without colour."""

import dataclasses
import html
import math
import re
import sys
from pathlib import Path

from hakmem.lab import compare
from hakmem.lab.compare import compare_arms
from hakmem.lab.model import Session
from hakmem.lab.page import write_page
from hakmem.lab.plots import write_plots
from hakmem.lab.summary import summarise
from hakmem.lab.tables import details_table, session_table
import matplotlib.image
import pytest
import synthetic

sys.path.insert(0, str(Path(__file__).parents[1] / "look"))
from browser import Balance  # noqa: E402

EXACT = {"hakmem": (0.8, 1.2), "glibc": (2.0, 1.0), "mimalloc 3": (1.0, 1.5)}


def exact(**options) -> Session:
    options = {"spread": 0.0, "vary": False, "allocators": EXACT, **options}
    return synthetic.session(["one", "two"], **options)


def test_figures_are_relative_to_the_best_peer_of_each_row():
    views = summarise(exact()).rows[0].views
    assert (views["time"].best_peer, views["peak"].best_peer) == ("mimalloc 3", "glibc")
    for key, expected in (("time", {"mimalloc 3": 1.0, "hakmem": 0.8, "glibc": 2.0}),
                          ("peak", {"glibc": 1.0, "hakmem": 1.2, "mimalloc 3": 1.5})):
        values = {name: views[key].ratios[name].value for name in expected}
        assert values == pytest.approx(expected, rel=1e-3) and values[views[key].best_peer] == 1.0


def test_nothing_stands_above_the_best_peer():
    """The lowest median and the best ratio of rounds may be of two peers; the ratio is shown.

    All but circles of equal ones: a is below b, b below c, c below a. By medians it is near half.
    """
    above = 0
    for seed in range(8):
        level = {"hakmem": (1.0, 1.0), **{name: (1.0, 1.0) for name in "abcde"}}
        for row in summarise(exact(allocators=level, spread=0.3, rounds=5, seed=seed)).rows:
            above += min(row.views["time"].ratios[name].value for name in "abcde") < 1.0
            assert min(row.views["peak"].ratios[name].value for name in "abcde") == 1.0
    assert above <= 3


def test_geometric_means_and_worst_rows():
    summary = summarise(synthetic.session(synthetic.CASE_NAMES[:8], spread=0.0))
    total = summary.totals["time"]["hakmem"]
    ratios = [row.views["time"].ratios["hakmem"].value for row in summary.rows]
    assert total.mean == pytest.approx(math.prod(ratios) ** (1 / 8))
    assert (total.worst, total.worst_case) == (max(ratios), summary.rows[ratios.index(max(ratios))].case)
    assert total.rows == 8


def test_failures_are_counted_and_leave_the_means():
    summary = summarise(exact(failing=[("one", "glibc")]))
    row = summary.rows[0]
    assert "glibc" not in row.views["time"].ratios and row.views["peak"].best_peer == "mimalloc 3"
    assert row.cells["glibc"].failures == 9 and "SIGSEGV" in row.cells["glibc"].sentence
    assert summary.totals["time"]["glibc"].rows == 1
    assert [(f.case, f.arm, f.count) for f in summary.failures] == [("one", "glibc", 9)]


# ---- Tables. ----


def shown(session: Session, width: int) -> str:
    return synthetic.shown([session_table(session)], width)


@pytest.mark.parametrize("width", [50, 60, 80, 100, 160])
def test_fits_and_holds_every_row_and_arm(width):
    text = shown(synthetic.session(["replace_400", "comprehensive_interleaved_128"]), width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = text.replace("\n", " ")
    assert "replace_400" in words and "interleaved_128" in words
    assert words.count("oneTBB") >= 2 and words.count("glibc") >= 2
    assert "(again)" not in text


def test_winners_are_marked_by_a_symbol():
    text = shown(synthetic.session(["one"], {"hakmem": (0.5, 2.0), "glibc": (1.0, 1.0)}, spread=0.0, vary=False), 100)
    line = next(line for line in text.splitlines() if line.startswith("one "))
    assert line.split()[1:3] == ["2.00*", "1.00"]


def test_failures_are_shown():
    text = shown(synthetic.session(["one", "two"], failing=[("one", "jemalloc")]), 100)
    assert "failed" in text
    assert "one, jemalloc: ended by signal 11 (SIGSEGV) (9 times)" in text
    assert "rows, of 2" in text


def test_title_tells_machine_date_meaning_and_findings():
    text = shown(synthetic.session(["one", "two"]), 160)
    for part in ("Imaginary 9000, 2 cores", "2026-11-21", "higher is better", "lower is better", "noise", "powersave",
                 "Worst row of hakmem: "):
        assert part in text


def test_too_few_runs_say_so():
    text = " ".join(shown(synthetic.session(["one", "two"], rounds=2), 160).split())
    assert "fewer than 3 runs tell no best from another" in text and "2 rounds," in text
    assert "1 round," in shown(synthetic.session(["one"], rounds=1), 160)


def test_memory_after_the_work_is_shown_in_mib():
    one = synthetic.session(["redis_idle", "growth"], {"hakmem": (1, 1), "glibc": (1, 1)})
    assert "Memory after the work" not in shown(one, 100)
    held = {"hakmem": 15.0, "hakmem (again)": 15.0, "glibc": 81.0}
    one.samples = [
        dataclasses.replace(s, rest=[[1, 90 * 1024, 0], [10, held[s.arm] * 1024, 0]])
        if s.case == "redis_idle" and s.round < 3 else s for s in one.samples
    ]
    text = shown(one, 100)
    assert "Memory after the work" in text and "growth, 1 s" not in text
    line = next(line for line in text.splitlines() if line.startswith("redis_idle, 10 s"))
    assert line.split()[-2:] == ["15.0", "81.0"]


# ---- The page: one file that needs no other, says everything, and breaks on no name. ----


def read(session: Session, directory: Path, pictures=()) -> tuple[str, str]:
    """The text of the page, and its source."""
    summary = summarise(session)
    parts = [session_table(session, summary), details_table(summary)]
    source = write_page(session, directory, list(pictures), parts).read_text(encoding="utf-8")
    assert "<pre" not in source
    assert Balance(source).open == []
    return html.unescape(re.sub("<[^>]*>", "", source)), source


def test_the_page_is_complete_and_needs_no_other_file(tmp_path: Path):
    session = synthetic.session(["one", "two"], failing=[("one", "jemalloc")])
    pictures = write_plots(session, tmp_path / "new")
    assert [path.name for path in pictures] == ["speed-1.png", "memory-1.png", "time-memory.png"]
    for path in pictures:
        height, width, _ = matplotlib.image.imread(path).shape
        assert 500 < width < 2500 and 300 < height < 2500
    text, source = read(session, tmp_path, pictures)
    references = re.findall(r'(?:src|href)="([^"]*)"', source)
    assert len(references) == 3
    assert all(ref.startswith("data:image/png;base64,") for ref in references)
    assert not re.search(r"https?://", source)
    for part in ("Imaginary 9000", "1.2.3, crate fabricated 0.1", session.id + ".jsonl", "powersave",
                 "hakmem bench --suite quick", "ended by signal 11", "geometric mean", "seed 1", "google",
                 "How it was measured", "peak, MiB"):
        assert part in text, part
    assert "(again)" not in text


def test_the_answer_of_compare_comes_first_and_nothing_is_cut_off(tmp_path: Path):
    name = "python3 " + "a_long_argument " * 20
    session = synthetic.session([name.strip()], kind="program")
    summary = summarise(session)
    parts = compare.report_parts(session, compare_arms(session, summary))
    source = write_page(session, tmp_path, [], [*parts, session_table(session, summary)]).read_text(encoding="utf-8")
    assert Balance(source).open == [] and "@@" not in source
    assert re.search(r'</header>\s*<p class="headline">Compared with glibc, ', source)
    heads = [re.findall(r"<th(?: [^>]*)?>(.*?)</th>", table) for table in re.findall(r"<table>.*?</table>", source, re.DOTALL)]
    assert heads[0][:3] == ["allocator", "time", "against glibc"] and "mean MiB" in heads[0]
    rows = re.findall(r"<tr[^>]*><td[^>]*>(.*?)</td>", source)
    assert name.strip() in rows and "google tcmalloc" in rows


def test_names_of_users_are_escaped(tmp_path: Path):
    session = synthetic.session(["<script>alert(1)</script>"], {"hakmem": (1, 1), "<b>": (1, 1)})
    _, source = read(session, tmp_path)
    assert "<script>alert" not in source and "<b>" not in source


def test_dollars_in_a_command_are_no_formula(tmp_path: Path):
    name = r"sh -c 'echo $HOME \frac $PATH'"
    assert len(write_plots(synthetic.session([name], kind="program"), tmp_path)) == 3


@pytest.mark.parametrize("empty", ["samples", "cases"])
def test_a_session_with_nothing_in_it_still_makes_a_page(tmp_path: Path, empty: str):
    session = dataclasses.replace(synthetic.session(["one"]), **{empty: []})
    text, _ = read(session, tmp_path)
    assert write_plots(session, tmp_path) == []
    assert "Imaginary 9000" in text
