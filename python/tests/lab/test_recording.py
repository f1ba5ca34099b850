# SPDX-License-Identifier: MIT
"""Recordings of equal arms: what is measured, written and read."""

import json

import pytest
import synthetic
from hakmem.lab import arms, bench, cli, doctor, recording, runner, workloads
from hakmem.lab.model import Arm
from hakmem.lab.problem import Problem

OURS = {"hakmem": (1.0, 1.0), "hakmem (2)": (1.0, 1.0), "hakmem (3)": (1.0, 1.0)}
BAD = [{"level": "bad", "sentence": "The machine burns.", "remedy": ""}]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A fit machine that runs nothing; what was asked of the runner."""
    calls = []

    def run_session(cases, every, rounds, seed, command, **more):
        calls.append((cases, every, rounds, more))
        return synthetic.session([c.name for c in cases], OURS, rounds, again="none", vary=False)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", "/build/libhakmem.so", {}, "0.1"))
    monkeypatch.setattr(doctor, "fit", lambda: (True, []))
    monkeypatch.setattr(recording, "prepared", lambda chosen: list(chosen))
    monkeypatch.setattr(runner, "run_session", run_session)
    return calls


def test_one_command_makes_a_recording(asked, tmp_path, capsys):
    file = tmp_path / "arms.json"
    assert cli.main(["recording", str(file), "--rounds", "12"]) == 0
    ((cases, every, rounds, more),) = asked
    assert [case.name for case in cases] == [
        "random_mixed_400", "replace_400", "comprehensive_fifo_64"
    ]  # fmt: skip
    assert len({arm.name for arm in every}) == len(every) == 3
    assert {(arm.library, tuple(arm.environment)) for arm in every} == {("/build/libhakmem.so", ())}
    assert rounds == 12 and more["again"] is False
    found = recording.read(file)
    assert [one.case for one in found] == [case.name for case in cases]
    assert all(one.cost.shape == one.memory.shape == (12, 3) for one in found)
    head = json.loads(file.read_text())
    assert head["machine"]["cpu"] == "Imaginary 9000" and head["created"].startswith("2026")
    assert head["findings"][0]["sentence"] == "The clock governor is powersave."
    assert "replace_400: 12 rounds, the noise of a run is 0." in capsys.readouterr().out


def test_an_unfit_machine_is_not_recorded(asked, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(doctor, "fit", lambda: (False, BAD))
    file = tmp_path / "arms.json"
    assert cli.main(["recording", str(file)]) == 1
    assert "The machine burns." in capsys.readouterr().err
    assert not file.exists() and not asked
    assert cli.main(["recording", str(file), "--force"]) == 0


def test_the_default_workloads_exist():
    names = [one.case.name for one in workloads.read_workloads()]
    assert set(recording.WORKLOADS.split(",")) <= set(names)
    assert bench.prepared is recording.prepared


@pytest.mark.parametrize("text", ["", "[1]", '{"cases": 1}', '{"cases": {"a": {"cost_ns": "x"}}}'])
def test_another_file_is_one_sentence(tmp_path, text):
    file = tmp_path / "arms.json"
    file.write_text(text)
    with pytest.raises(Problem, match="neither a session nor a recording"):
        recording.read(file)
    with pytest.raises(Problem, match="cannot read"):
        recording.read(tmp_path / "absent.json")
    with pytest.raises(Problem, match="cannot write"):
        recording.write(synthetic.session(["a"]), [], tmp_path / "no" / "arms.json")
