# SPDX-License-Identifier: MIT
"""The suite attacks: outcomes and figures of a program, entropy of addresses, the table. The program is a fake."""

import random
from pathlib import Path

import pytest
import synthetic
from hakmem.lab import attacks, secure, secure_tables, workloads
from hakmem.lab.base import Problem
from hakmem.lab.measure import MEASURE
from hakmem.lab.model import Arm
from hakmem.lab.secure import BugCell
from hakmem.lab.summary import summarise

FAKE = """#!/bin/sh
case $1 in
--list) echo "reuse 2 Pairs until it is back"; echo "forge 20 A forged one"; exit ;;
forge) [ $FAKE = silent ] && exit 2
    for i in $(seq $2); do
        echo '{"attack": "forge", "outcome": "report", "signal": 6, "figures": {"free_passed": 1}, "said": "fake: odd"}'
    done
    printf '{"attack": "forge", "outc' ;;
reuse) for i in 3 5; do
        echo '{"attack": "reuse", "outcome": "measured", "signal": 0, "figures": {"pairs_least": '$i'}, "said": ""}'
    done ;;
esac
"""
needs_measure = pytest.mark.skipif(not MEASURE.exists(), reason="lab/measure is not built")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "attacks"
    monkeypatch.setattr(attacks, "PROGRAM", file)
    file.write_text(FAKE)
    file.chmod(0o755)
    return file


def test_the_program_lists_its_attacks(program: Path) -> None:
    assert [(one.name, one.title) for one in attacks.read_attacks()] == [
        ("reuse", "Pairs until it is back"), ("forge", "A forged one")]
    bugs, costs = secure.select([workloads.Workload(one) for one in attacks.read_attacks()], "attacks", "fo*")
    assert [bug.name for bug in bugs] == ["forge"] and not costs
    assert (secure.tries_of("attacks"), secure.tries_of("bugs")) == (20, 5)
    program.unlink()
    with pytest.raises(Problem, match="is not built"):
        attacks.read_attacks()


@needs_measure
def test_outcomes_and_figures_of_all_runs(program: Path) -> None:
    reuse, forge = attacks.read_attacks()
    arm = Arm("fake", None, {"FAKE": "talks"})
    assert secure.try_bug(forge, arm, 3) == BugCell({"report": 3}, "fake: odd", {"free_passed": [1, 1, 1]})
    assert secure.try_bug(reuse, arm, 3) == BugCell({"measured": 2}, "", {"pairs_least": [3, 5]})
    failed = secure.try_bug(forge, Arm("silent", None, {"FAKE": "silent"}), 3)
    assert failed.counts == {secure.FAILED: 1} and "status 2" in failed.report


def test_entropy_counts_bits_that_nobody_can_tell() -> None:
    draw = random.Random(1)
    drawn = [draw.getrandbits(12) << 21 | 1 << 45 for _ in range(1000)]
    entropy = attacks.entropy_of(drawn)
    assert (entropy.values, entropy.varying, entropy.low, entropy.rank) == (1000, 12, 21, 12)
    assert 11.9 < entropy.bits <= 12 and 11 < entropy.least < entropy.bits
    copied = attacks.entropy_of([value | value << 13 for value in drawn])  # each bit twice
    assert copied.bits > 20 and copied.rank == 12
    same = attacks.entropy_of([7, 7, 7])
    assert (same.bits, same.rank, same.distinct, same.varying) == (0, 0, 1, 0)


def test_figures_are_lines() -> None:
    assert attacks.figure_lines({
        "first_64": [0x1000, 0x2000, 0x3000, 0x4000], "distance_4M": [8, 8], "tries": [4000, 900], "bytes_up": [5],
        "free_passed": [1],
    }) == ["first 64: 2.8 bits, 3 independent, 12 low fixed", "distance 4M: always the same", "900 to 4,000 tries", "5 up"]


def test_the_table_has_attacks() -> None:
    session = synthetic.session(["alpha"], {"hakmem-secure": (1.0, 1.0), "glibc": (1.0, 1.0)})
    session.command = ["bench", "--suite", "attacks"]
    cells = {"forge": ({"late": 2}, {}), "fork": ({"held": 1, "harm": 1}, {"tries": [4000, 900]}),
             "reach": ({"measured": 2}, {"bytes_up": [4096, 4096]})}
    session.bugs = [{"case": name, "title": "", "arm": arm, "sha256": "", "counts": counts, "report": "",
                     "figures": figures}
                    for name, (counts, figures) in cells.items() for arm in ("hakmem-secure", "glibc")]
    report = secure_tables.report_of(session)
    assert report["totals"]["glibc"] == {"bugs": 2, "noticed": 0, "stopped": 0, "late": 1, "harmed": 1}
    text = synthetic.shown(secure_tables.secure_parts(session, summarise(session), report), 100)
    for part in ("Attacks, and what comes of them", "held 1/2", "900 to 4,000 tries", "4,096 up", "late",
                 "late in a run, of 2", "Of 2 attacks, hakmem-secure notices 0 and stops 0"):
        assert part in text, part
