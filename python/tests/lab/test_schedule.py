# SPDX-License-Identifier: MIT
"""The order of the runs."""

from __future__ import annotations

from collections import Counter

from hakmem.lab.model import Arm
from hakmem.lab.schedule import PADDING_LIMIT, make_schedule, with_again

CASES = ["one", "two", "three"]
ARMS = ["a", "b", "c", "d"]


def test_each_round_holds_each_cell_once() -> None:
    runs = make_schedule(CASES, ARMS, 5, seed=7)
    assert len(runs) == 5 * 12
    assert [run.order for run in runs] == list(range(60))
    assert set(Counter(run.key for run in runs).values()) == {1}
    assert [run.round for run in runs] == sorted(run.round for run in runs)


def test_the_arms_of_a_case_stand_together() -> None:
    runs = make_schedule(CASES, ARMS, 5, seed=7)
    for start in range(0, 60, 4):
        block = runs[start : start + 4]
        assert len({run.case for run in block}) == 1
        assert {run.arm for run in block} == set(ARMS)


def test_the_seed_decides() -> None:
    assert make_schedule(CASES, ARMS, 5, 7) == make_schedule(CASES, ARMS, 5, 7)
    assert make_schedule(CASES, ARMS, 5, 7) != make_schedule(CASES, ARMS, 5, 8)
    # More rounds do not change the earlier ones.
    assert make_schedule(CASES, ARMS, 9, 7)[:60] == make_schedule(CASES, ARMS, 5, 7)


def test_every_arm_comes_first_as_often() -> None:
    runs = make_schedule(["one"], ARMS, 2000, seed=1)
    first = Counter(run.arm for run in runs if run.order % 4 == 0)
    # 500 expected, standard deviation 19.
    assert all(400 < first[arm] < 600 for arm in ARMS)


def test_padding_covers_a_page() -> None:
    paddings = [run.padding for run in make_schedule(CASES, ARMS, 100, seed=3)]
    assert min(paddings) >= 0 and max(paddings) < PADDING_LIMIT
    assert min(paddings) < 100 and max(paddings) > PADDING_LIMIT - 100


def test_the_first_arm_comes_again() -> None:
    arms = [Arm("hakmem", "/lib/h.so", {"A": "1"}), Arm("glibc")]
    again = with_again(arms)
    assert again[:2] == arms
    assert again[2] == Arm("hakmem (again)", "/lib/h.so", {"A": "1"}, again_of="hakmem")
    assert with_again(again) == again
    assert with_again([]) == []
