# SPDX-License-Identifier: MIT
"""Instructions per operation."""

import shutil
from pathlib import Path

import pytest
from hakmem.lab import instructions, runner, workloads
from hakmem.lab.instructions import Count, Counting, Uncountable, doubled, quotient
from hakmem.lab.model import Arm
from hakmem.lab.base import BUILD


def test_the_start_cancels_out() -> None:
    short, long = Count(5_000 + 40 * 100, 100, {}), Count(5_000 + 40 * 200, 200, {})
    assert quotient(short, long)["per_operation"] == 40.0
    with pytest.raises(Uncountable):
        quotient(long, short)
    with pytest.raises(Uncountable):
        quotient(short, short)


def test_the_argument_that_is_doubled() -> None:
    arguments = {"KIND": "lifo", "SIZE": 16, "ROUNDS": 1000, "SEED": 42}
    words = doubled(["prog", "lifo", "16", "1000", "42"], arguments)
    assert words == ["prog", "lifo", "16", "2000", "42"]
    assert doubled(["prog", "0.15", "8"], {"SLEEP": 0.15, "MIN": 8}) == ["prog", "0.3", "8"]
    with pytest.raises(Uncountable, match="how much it does"):
        doubled(["prog", "5"], {"SEED": 5})
    with pytest.raises(Uncountable, match="how much it does"):
        doubled(["prog"], {"ITER": 5})


def test_every_workload_says_how_much_it_does() -> None:
    """An argument of that name must be in the workload's table."""
    for one in workloads.read_workloads():
        if one.script is None:
            name = Path(one.case.command[0]).name
            source = (workloads.ROOT / "bench" / f"{name}.c").read_text()
            named = [word for word in instructions.COUNT_ARGUMENTS if f"({word}," in source]
            assert named, name


@pytest.mark.skipif(shutil.which("valgrind") is None or not (BUILD / "bench/random_mixed").exists(),
                    reason="valgrind or the benches are missing")
def test_counting_is_the_last_part_of_a_session(tmp_path: Path) -> None:
    (known,) = workloads.select(workloads.read_workloads(), patterns="random_mixed_400")
    small = workloads.Workload(known.case, ["20000", "400", "42"])
    arms = [Arm("hakmem", str(BUILD / "libhakmem.so")), Arm("broken", "/lib/libm.so.6")]
    counting = Counting([small])

    def measured(count: Counting | None) -> runner.Session:
        case = small.smoke_command
        one = workloads.Case("random_mixed_400", case)
        return runner.run_session([one], arms, 1, 1, ["bench"], results=tmp_path, prove=lambda arm: {},
                                  parts=[count] if count else [])

    first = measured(None)
    assert first.instructions == []
    second = measured(counting)
    assert second.id == first.id  # the same runs, and the counts
    lines = {line["arm"]: line for line in second.instructions}
    assert set(lines) == {"hakmem", "broken"}  # nothing again for the A/A arm
    assert 10 < lines["hakmem"]["per_operation"] < 500
    assert lines["broken"]["per_operation"] is None and lines["broken"]["sentence"]
    assert counting.is_done(second)
