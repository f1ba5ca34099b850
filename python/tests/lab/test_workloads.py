# SPDX-License-Identifier: MIT
"""Reading and choosing workloads."""

import os
import subprocess
from pathlib import Path

import pytest
from hakmem.lab import workloads
from hakmem.lab.base import Problem, Usage

TOML = """
[alpha_1]
program = "alpha"
arguments = ["10", "x"]
smoke = ["1", "x"]
suite = "quick"
title = "imitates alpha"

[alpha_2]
program = "alpha"
suite = "core"
threads = 2

[beta]
program = "beta"
timeout_s = 7

[real]
script = "real.sh"
suite = "core"

[served]
script = "real.sh"
arguments = ["idle"]
server = true
rest = true

[alone]
program = "alpha"
rest = "itself"

[rested]
program = "alpha"
rest = true

[old]
program = "alpha"
rest = "aging"
"""

SCRIPT = """#!/bin/bash
if [[ $1 == prepare ]]; then
    [[ -e $REAL_MISSING ]] && { echo "real: not installed; install it" >&2; exit 77; }
    [[ -e $REAL_BROKEN ]] && { echo "real: no disk" >&2; exit 1; }
    echo made >"$2/input"
fi
"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[workloads.Workload]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("REAL_MISSING", str(tmp_path / "missing"))
    monkeypatch.setenv("REAL_BROKEN", str(tmp_path / "broken"))
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "real.sh").write_text(SCRIPT)
    file = tmp_path / "workloads.toml"
    file.write_text(TOML)
    return workloads.read_workloads(file, tmp_path / "bench")


def names(chosen: list[workloads.Workload]) -> list[str]:
    return [one.case.name for one in chosen]


def test_an_entry_becomes_a_case(known: list[workloads.Workload], tmp_path: Path) -> None:
    case = known[0].case
    assert case.command == [str(tmp_path / "bench" / "alpha"), "10", "x"]
    assert (case.kind, case.suite, case.threads, case.title) == ("bench", "quick", 1, "imitates alpha")
    assert known[0].smoke_command == [case.command[0], "1", "x"]
    assert (known[2].case.suite, known[2].case.timeout_s) == ("full", 7.0)


def test_suites_hold_the_smaller_ones(known: list[workloads.Workload]) -> None:
    assert names(workloads.select(known, "quick")) == ["alpha_1"]
    assert names(workloads.select(known, "core")) == ["alpha_1", "alpha_2", "real"]
    assert len(workloads.select(known, "full")) == 8


def test_patterns_choose_whatever_the_suite(known: list[workloads.Workload]) -> None:
    chosen = workloads.select(known, "quick", "beta, alpha_*")
    assert names(chosen) == ["alpha_1", "alpha_2", "beta"]
    with pytest.raises(Usage, match="no workload matches 'gamma'"):
        workloads.select(known, "quick", "beta,gamma")
    with pytest.raises(Usage, match="no suite 'huge'"):
        workloads.select(known, "huge")


def test_a_script_prepares_its_inputs(known: list[workloads.Workload], tmp_path: Path) -> None:
    real = known[3]
    assert real.inputs is not None
    assert real.case.kind == "program"
    assert real.case.command[2:] == ["run", str(real.inputs)]
    assert real.prepare() == ""
    assert (real.inputs / "input").read_text() == "made\n"
    (tmp_path / "missing").touch()
    assert real.prepare() == "real: not installed; install it"
    (tmp_path / "missing").unlink()
    (tmp_path / "broken").touch()
    assert real.prepare() == "preparing its inputs failed: real: no disk"


@pytest.mark.parametrize(("text", "sentence"), [
    ("[a]\nprogram = 'a'\nsuit = 'core'", "unknown key 'suit'"), ("[a]\nsuite = 'core'", "needs either program or script"),
    ("[a]\nprogram = 'a'\nscript = 'b'", "needs either program or script"),
    ("[a]\nprogram = 'a'\nsuite = 'big'", "no known suite"), ("[a]\nprogram = 'a'\narguments = 1", "has a wrong arguments"),
    ("[a]\nscript = 'a'\nrest = true", "no server has ended"),
    ("[a]\nprogram = 'a'\nserver = true", "can be a server only as a script"), ("a = 5", "is not a table"),
    ("[a", "not valid TOML"),
])
def test_mistakes_are_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "workloads.toml"
    file.write_text(text)
    with pytest.raises(Problem, match=sentence):
        workloads.read_workloads(file)


def test_the_entries_of_this_checkout() -> None:
    known = workloads.read_workloads()
    assert len(set(names(known))) == len(known) > 10
    assert workloads.select(known, "quick")
    for one in known:
        if one.script is not None:
            assert one.script.is_file(), one.case.name
        else:
            source = workloads.ROOT / "bench" / f"{os.path.basename(one.case.command[0])}.c"
            assert source.is_file() and one.smoke, one.case.name
    programs = workloads.select(known, "programs")
    assert len({one.script for one in programs}) >= 20
    assert all(one.case.kind == "program" and one.case.title for one in programs)


def test_programs_and_idle_workloads_are_suites(known: list[workloads.Workload]) -> None:
    assert names(workloads.select(known, "programs")) == ["real"]
    assert names(workloads.select(known, "idle")) == ["served", "alone", "rested"]
    assert names(workloads.select(known, "aging")) == ["old"]
    by_name = {one.case.name: one for one in known}
    served = by_name["served"].case
    assert served.load[2:] == ["load", str(by_name["served"].inputs), "idle"]
    assert served.rest_s == by_name["rested"].case.rest_s == list(workloads.REST_S)
    assert by_name["alone"].case.rest_s == [] == served.without_rest.rest_s


def test_scripts_are_sound_and_name_their_packages() -> None:
    for script in sorted((workloads.ROOT / "bench" / "programs").glob("*.sh")):
        subprocess.run(["bash", "-n", str(script)], check=True, timeout=60)
        if script.name != "common.sh":
            lines = script.read_text().splitlines()
            assert any(line.startswith("# packages: ") for line in lines), script
            assert lines[-1] == 'main "$@"', script


TRACER = """#!/bin/bash
[[ $1 == image ]] || exit 3
[[ $(<"$2") == good ]] || { echo "hakmem: $2: is no trace" >&2; exit 125; }
echo image >"$3"
echo '{"program":"server","threads":3,"calls":1234567}'
"""


def test_a_trace_becomes_a_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tracer = tmp_path / "tracer"
    tracer.write_text(TRACER)
    tracer.chmod(0o755)
    trace = tmp_path / "mine.trace"
    trace.write_text("good")
    case = workloads.of_trace(trace, tracer).case
    assert (case.name, case.kind, case.threads) == ("trace_mine", "bench", 3)
    assert case.title == "1,234,567 calls of server, replayed"
    assert case.command[:2] == [str(tracer), "replay-bench"]
    assert Path(case.command[2]).read_text() == "image\n"
    trace.write_text("bad")
    with pytest.raises(Usage, match=r"mine\.trace: is no trace"):
        workloads.of_trace(trace, tracer)
    with pytest.raises(Usage, match="there is no trace"):
        workloads.of_trace(tmp_path / "none", tracer)
