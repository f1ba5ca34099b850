# SPDX-License-Identifier: MIT
"""The order of the runs."""

from __future__ import annotations

from collections import Counter

from hakmem.lab.model import Arm
from hakmem.lab.schedule import make_schedule, with_again

CASES = ["one", "two", "three"]
ARMS = ["a", "b", "c", "d"]


def test_each_round_holds_each_cell_once() -> None:
    runs = make_schedule(CASES, ARMS, 5, seed=7)
    assert len(runs) == 5 * 12
    assert [run.order for run in runs] == list(range(60))
    assert set(Counter(run.key for run in runs).values()) == {1}
    assert [run.round for run in runs] == sorted(run.round for run in runs)


def test_the_seed_decides() -> None:
    assert make_schedule(CASES, ARMS, 5, 7) == make_schedule(CASES, ARMS, 5, 7)
    assert make_schedule(CASES, ARMS, 5, 7) != make_schedule(CASES, ARMS, 5, 8)
    # More rounds do not change the earlier ones.
    assert make_schedule(CASES, ARMS, 9, 7)[:60] == make_schedule(CASES, ARMS, 5, 7)


def test_the_first_arm_comes_again() -> None:
    arms = [Arm("hakmem", "/lib/h.so", {"A": "1"}), Arm("glibc")]
    again = with_again(arms)
    assert again[:2] == arms
    assert again[2] == Arm("hakmem (again)", "/lib/h.so", {"A": "1"}, again_of="hakmem")
    assert with_again(again) == again
    assert with_again([]) == []
