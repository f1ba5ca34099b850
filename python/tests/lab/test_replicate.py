# SPDX-License-Identifier: MIT
"""replicate.py: the experiments exist, the models work, records are filled, mistakes are told."""

from __future__ import annotations

import json

import pytest
import synthetic
from hakmem.lab import cli, decision_record, replicate
from hakmem.lab.model import Arm
from hakmem.lab.places import BUILD

NEEDS_BUILD = pytest.mark.skipif(
    not ((BUILD / "libhakmem.so").exists() and replicate.PROGRAMS.exists()),
    reason="hakmem is not built",
)
NAMES = ["registry", "refill", "inline", "lists", "small-cache", "capacity"]


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def fabricated(rounds: int = 25, factor: float = 1.3):
    """An experiment of two variants, and a session in which the second takes `factor` the time."""
    session = synthetic.session(
        ["one", "two"], {"list": (1.0, 1.0), "registry": (factor, 1.0)}, rounds=rounds,
        again="list", vary=False,
    )  # fmt: skip
    both = [Arm("list"), Arm("registry")]
    one = replicate.Experiment("model", "A title", "0001-a.md", True, both, session.cases)
    return one, session, replicate.verdicts_of(one, session)


def test_each_experiment_has_a_record_with_marks(capsys):
    assert cli.main(["replicate", "--list"]) == 0
    said = capsys.readouterr().out
    for name, entry in replicate._entries("all").items():
        assert name in said
        text = (decision_record.DIRECTORY / entry["record"]).read_text()
        assert 0 <= text.find(replicate.BEGIN) < text.find(replicate.END)
    assert list(replicate._entries("all")) == NAMES


def test_a_slower_variant_is_no_go():
    one, session, verdicts = fabricated()
    assert verdicts["registry"].word == "NO-GO"
    heads, rows = replicate.table_of(one, session, verdicts)
    cells = [["one", "list"], ["one", "registry"], ["two", "list"], ["two", "registry"]]
    assert [row[:2] for row in rows] == cells
    ratio = float(rows[1][heads.index("time (list = 1)")])
    low, high = map(float, rows[1][heads.index("95 % interval")].split(" to "))
    assert 1.25 < ratio < 1.35 and low < ratio < high
    assert [row[-1] for row in rows] == ["", "NO-GO", "", "NO-GO"]


def test_a_faster_variant_is_go_whatever_its_memory():
    one, session, verdicts = fabricated(factor=0.8)
    assert verdicts["registry"].word == "GO"
    assert "registry against list: GO." in replicate.record_text(one, session, verdicts, "p.png")


def test_a_record_keeps_what_people_wrote(tmp_path):
    one, session, verdicts = fabricated()
    path = tmp_path / "0001-a.md"
    path.write_text(f"# Head\n\n{replicate.BEGIN}\nold\n{replicate.END}\n\n## Decision\n\nMine.\n")
    for _ in range(2):  # the second time replaces the first
        replicate._write(one, session, verdicts, path, tmp_path / "pictures", "../pictures/")
    text = path.read_text()
    assert text.startswith("# Head\n") and text.endswith("\n\n## Decision\n\nMine.\n")
    assert "old" not in text and text.count("## Result") == 1
    assert "(../pictures/model.png)" in text and (tmp_path / "pictures/model.png").exists()
    path.write_text("no marks")
    with pytest.raises(replicate.Problem, match="has no lines"):
        replicate._write(one, session, verdicts, path, tmp_path, "x")


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["nonsense"], 2, "no experiment is called 'nonsense'; there are registry"),
        (["registry", "--rounds", "0"], 2, "--rounds needs a whole number of 1 or more, not '0'"),
        (["registry", "--rounds", "many"], 2, "--rounds needs a whole number of 1 or more, not 'many'"),
        (["registry", "--record", "--rounds", "5"], 2, "a record needs --rounds 9 or more"),
        (["registry", "--record", "--smoke"], 2, "--smoke gives no figures"),
        (["registry", "lists"], 2, "unknown argument 'lists'"),
    ],
)
def test_mistakes_are_one_sentence(words, status, sentence, capsys):
    assert cli.main(["replicate", *words]) == status
    said = capsys.readouterr()
    assert sentence in said.err and said.err.count("\n") == 1 and not said.out


def test_a_model_that_is_not_built_is_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(replicate, "PROGRAMS", tmp_path)
    assert cli.main(["replicate", "lists", "--smoke"]) == 1
    assert "is not built; type: ./hakmem build --all" in capsys.readouterr().err


@NEEDS_BUILD
@pytest.mark.parametrize("name", NAMES)
def test_tiny_rounds_of_each_experiment(name, tmp_path, capsys):
    words = ["replicate", name, "--smoke", "--rounds", "2", "--json", "--output", str(tmp_path)]
    assert cli.main(words) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["experiment"] == name and found["rounds"] == 2
    assert all(float(row["ns per operation"]) > 0 for row in found["table"])
    assert (tmp_path / f"{name}.png").stat().st_size > 1000
    assert "## Result" in (tmp_path / f"{name}.md").read_text()
