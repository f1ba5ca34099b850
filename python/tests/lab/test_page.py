# SPDX-License-Identifier: MIT
"""page.py: one file that needs no other, says everything, and breaks on no name."""

import dataclasses
import html
import re
import sys
from pathlib import Path

import matplotlib.image
import pytest
import synthetic
from hakmem.lab import compare
from hakmem.lab.comparison import compare_arms
from hakmem.lab.model import Session
from hakmem.lab.page import write_page
from hakmem.lab.plots import write_plots
from hakmem.lab.summary import summarise
from hakmem.lab.tables import details_table, session_table

sys.path.insert(0, str(Path(__file__).parents[1] / "look"))
from browser import Balance  # noqa: E402


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
