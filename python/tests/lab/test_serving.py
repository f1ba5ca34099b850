# SPDX-License-Identifier: MIT
"""Who serves a program that cannot tell itself."""

import os
import sys
from pathlib import Path

import pytest
from hakmem.lab.model import Arm, Case
from hakmem.lab.base import BUILD
from hakmem.lab.measure import Outcome, judge, prove_program, read_bindings

BINDINGS = """\
     12:\tbinding file prog [0] to /lib/libc.so.6 [0]: normal symbol `printf' [GLIBC_2.2.5]
     12:\tbinding file prog [0] to /a/libmine.so [0]: normal symbol `malloc' [GLIBC_2.2.5]
     12:\tbinding file /lib/libstdc++.so.6 [0] to /a/libmine.so [0]: normal symbol `_Znwm' [X]
     12:\tbinding file prog [0] to /lib/libother.so [0]: normal symbol `free' [GLIBC_2.2.5]
     12:\tbinding file prog [0] to /a/libmine.so [0]: normal symbol `free' [GLIBC_2.2.5]
"""
MINE = Arm("mine", "/a/libmine.so")
CASE = Case("c", ["/bin/prog"], kind="program")
FINE = Outcome({"end": "exit", "status": 0}, "", "")


def test_a_stub_in_the_program_is_not_what_serves() -> None:
    text = (
        "1: binding file /lib/libz.so [0] to /bin/prog [0]: normal symbol `free' [X]\n"
        "1: binding file /bin/prog [0] to /a/libmine.so [0]: normal symbol `free' [X]\n"
    )
    assert read_bindings(text) == {"free": ["/a/libmine.so"]}
    c = text.replace("/lib/libz.so", "/lib/libc.so.6").replace("/a/libmine.so", "/lib/libc.so.6")
    assert read_bindings(c) == {"free": ["/lib/libc.so.6"]}
    own = text.replace("to /a/libmine.so", "to /bin/prog")
    assert read_bindings(own) == {"free": ["/bin/prog"]}


def test_a_foreign_free_is_found() -> None:
    serving, sentence = judge([read_bindings(BINDINGS)], MINE, FINE, CASE)
    assert serving["free"] == "/lib/libother.so and /a/libmine.so"
    assert sentence == "it is served by /lib/libother.so, not by /a/libmine.so"


def test_one_process_of_a_tree_that_is_not_served() -> None:
    good = {"malloc": ["/a/libmine.so"], "free": ["/a/libmine.so"]}
    bad = {"malloc": ["/lib/libc.so.6"]}
    assert judge([good, {}], MINE, FINE, CASE) == ({k: v[0] for k, v in good.items()}, "")
    assert "by /lib/libc.so.6" in judge([good, bad], MINE, FINE, CASE)[1]
    # Without a library the program's own choice is on record.
    assert judge([bad], Arm("glibc"), FINE, CASE) == ({"malloc": "/lib/libc.so.6"}, "")


def test_nothing_bound_and_nothing_started() -> None:
    assert "no library can serve it" in judge([{}], MINE, FINE, CASE)[1]
    lost = Outcome({}, "", "measure: cannot start x: No such file.")
    assert judge([], MINE, lost, CASE)[1] == "cannot start x: No such file."


@pytest.mark.skipif(not (BUILD / "libhakmem.so").exists(), reason="hakmem is not built")
def test_real_programs(tmp_path: Path) -> None:
    ours = Arm("hakmem", str(BUILD / "libhakmem.so"))
    script = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', '0'])"
    case = Case("c", [sys.executable, "-S", "-c", script], kind="program")
    serving, sentence = prove_program(case, ours)
    assert sentence == ""
    assert os.path.samefile(serving["malloc"], ours.library or "")
    serving, sentence = prove_program(case, Arm("glibc"))
    assert sentence == "" and "libc" in serving["malloc"]


