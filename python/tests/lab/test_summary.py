# SPDX-License-Identifier: MIT
"""summary.py: right figures from sessions whose truth is known."""


import pytest
import synthetic
from hakmem.lab.model import Session
from hakmem.lab.summary import summarise

EXACT = {"hakmem": (0.8, 1.2), "glibc": (2.0, 1.0), "mimalloc 3": (1.0, 1.5)}


def exact(**options) -> Session:
    options = {"spread": 0.0, "vary": False, "allocators": EXACT, **options}
    return synthetic.session(["one", "two"], **options)


def test_speed_and_memory_are_relative_to_the_best_peer_of_each_row():
    row = summarise(exact()).rows[0]
    assert (row.fastest_peer, row.leanest_peer) == ("mimalloc 3", "glibc")
    speeds = {name: cell.speed.value for name, cell in row.cells.items()}
    assert speeds["mimalloc 3"] == 1.0
    assert speeds["hakmem"] == pytest.approx(1.25, rel=1e-6)
    assert speeds["glibc"] == pytest.approx(0.5, rel=1e-6)
    memory = {name: cell.peak_ratio.value for name, cell in row.cells.items()}
    assert memory["glibc"] == 1.0
    assert memory["hakmem"] == pytest.approx(1.2, rel=1e-3)
    assert memory["mimalloc 3"] == pytest.approx(1.5, rel=1e-3)


def test_nothing_stands_above_the_best_peer():
    """The lowest median and the best ratio of rounds may be of two peers; the ratio is shown.

    All but circles of equal ones: a is below b, b below c, c below a. By medians it is near half.
    """
    above = 0
    for seed in range(8):
        level = {"hakmem": (1.0, 1.0), **{name: (1.0, 1.0) for name in "abcde"}}
        session = exact(allocators=level, spread=0.3, rounds=5, seed=seed)
        for row in summarise(session).rows:
            above += max(row.cells[name].speed.value for name in "abcde") > 1.0
            assert min(row.cells[name].peak_ratio.value for name in "abcde") == 1.0
    assert above <= 3


def test_geometric_means_and_worst_rows():
    summary = summarise(synthetic.session(synthetic.CASE_NAMES[:8], spread=0.0))
    total = summary.totals["hakmem"]
    speeds = [row.cells["hakmem"].speed.value for row in summary.rows]
    product = 1.0
    for speed in speeds:
        product *= speed
    assert total.speed == pytest.approx(product ** (1 / 8))
    assert total.worst_speed == min(speeds)
    assert total.worst_case == summary.rows[speeds.index(min(speeds))].case
    assert total.rows == 8


def test_failures_are_counted_and_leave_the_means():
    summary = summarise(exact(failing=[("one", "glibc")]))
    cell = summary.rows[0].cells["glibc"]
    assert cell.speed is None and cell.failures == 9 and "SIGSEGV" in cell.sentence
    assert summary.rows[0].leanest_peer == "mimalloc 3"
    assert summary.totals["glibc"].rows == 1
    assert [(f.case, f.arm, f.count) for f in summary.failures] == [("one", "glibc", 9)]
