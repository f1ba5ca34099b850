# SPDX-License-Identifier: MIT
"""tables.py: fits its width, loses nothing without colour, shows failures."""

import dataclasses

import pytest
import synthetic
from hakmem.lab.model import Session
from hakmem.lab.tables import session_table


def shown(session: Session, width: int) -> str:
    return synthetic.shown([session_table(session)], width)


@pytest.mark.parametrize("width", [50, 60, 80, 100, 160])
def test_fits_and_holds_every_row_and_arm(width):
    session = synthetic.session(["replace_400", "comprehensive_interleaved_128"])
    text = shown(session, width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = text.replace("\n", " ")
    assert "replace_400" in words and "interleaved_128" in words
    assert words.count("oneTBB") >= 2 and words.count("glibc") >= 2
    assert "(again)" not in text


def test_winners_are_marked_by_a_symbol():
    allocators = {"hakmem": (0.5, 2.0), "glibc": (1.0, 1.0)}
    text = shown(synthetic.session(["one"], allocators, spread=0.0, vary=False), 100)
    line = next(line for line in text.splitlines() if line.startswith("one "))
    assert line.split()[1:3] == ["2.00*", "1.00"]


def test_failures_are_shown():
    text = shown(synthetic.session(["one", "two"], failing=[("one", "jemalloc")]), 100)
    assert "failed" in text
    assert "one, jemalloc: ended by signal 11 (SIGSEGV) (9 times)" in text
    assert "rows, of 2" in text


def test_title_tells_machine_date_meaning_and_findings():
    text = shown(synthetic.session(["one", "two"]), 160)
    for part in ("Imaginary 9000, 2 cores", "2026-11-21", "higher is better", "lower is better",
                 "noise", "powersave", "Worst row of hakmem: "):  # fmt: skip
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
        if s.case == "redis_idle" and s.round < 3 else s
        for s in one.samples
    ]  # fmt: skip
    text = shown(one, 100)
    assert "Memory after the work" in text and "growth, 1 s" not in text
    line = next(line for line in text.splitlines() if line.startswith("redis_idle, 10 s"))
    assert line.split()[-2:] == ["15.0", "81.0"]
