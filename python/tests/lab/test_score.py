# SPDX-License-Identifier: MIT
"""score.py: milestones from sessions whose truth is known."""

import dataclasses
import json
from pathlib import Path

import pytest
import synthetic
from hakmem.lab import score
from hakmem.lab.model import Session
from hakmem.lab.base import Problem
from hakmem.lab.score import highest, make_cards
from hakmem.lab.store import Store

PEERS = {"glibc": (2.0, 1.0), "mimalloc 3": (1.0, 1.5), "jemalloc": (0.8, 2.0)}
BUILT = score.Built("", "", "fab0fab0")


def measured(cost: float, memory: float = 1.0, names=("replace_400",), **changes) -> Session:
    session = synthetic.session(names, {"hakmem": (cost, memory), **PEERS}, spread=changes.pop("spread", 0.0),
                                vary=False)
    return dataclasses.replace(session, **changes)


@pytest.mark.parametrize(
    ("cost", "memory", "reached"),
    [
        (2.5, 0.9, ""),  # 40 % of mimalloc 3
        (1.9, 0.9, "M1"),  # 53 %
        (1.2, 0.9, "M2"),  # 83 %
        (0.9, 0.9, "M3"),  # faster than mimalloc 3, slower than jemalloc
        (0.7, 1.1, "M4"),  # fastest of all, not the leanest
        (0.7, 0.9, "M5"),
    ],
)
def test_the_highest_milestone(cost: float, memory: float, reached: str):
    (card,) = make_cards([measured(cost, memory)])
    assert highest(card.scores) == reached
    values = {milestone.name: milestone.reached for milestone in card.milestones}
    assert list(values) == ["M1", "M2", "M3", "M4", "M5"]


def test_milestones_are_geometric_means_and_name_the_worst():
    quick = measured(0.5, names=["replace_400"])
    slow = measured(1.6, names=["replace_20000"], id="other")
    (card,) = make_cards([quick, slow])
    # Against the fastest peer: 1.6 and 0.5, the mean of which is 0.894.
    assert card.milestones[3].value == "89.4 % (89.4 to 89.4)"
    assert card.milestones[3].worst == "worst replace_20000 0.50"
    assert not card.milestones[3].reached and card.milestones[2].reached


def test_the_latest_session_of_each_workload_and_machine_counts():
    old = measured(2.5, names=["replace_400", "larson_1"], created="2026-01-01T00:00:00Z", id="old")
    new = measured(0.7, created="2026-02-01T00:00:00Z", id="new")
    elsewhere = measured(1.9, created="2026-03-01T00:00:00Z", machine={"id": "else"}, id="else")
    cards = {card.machine["id"]: card for card in make_cards([new, elsewhere, old])}
    assert {s.case: s.session for s in cards["fab0fab0"].scores} == {"replace_400": "new", "larson_1": "old"}
    assert [s.session for s in cards["else"].scores] == ["else"]


def test_too_few_runs_or_no_rival_do_not_count():
    few = synthetic.session(["replace_400"], {"hakmem": (1, 1), **PEERS}, rounds=2)
    no_rival = synthetic.session(["replace_400"], {"hakmem": (1, 1), "glibc": (2, 1)})
    assert make_cards([few, no_rival]) == []


def test_results_of_another_build_are_marked():
    (card,) = make_cards([measured(0.7)])
    one = card.scores[0]
    assert score.staleness(one, BUILT).startswith("no library is built")
    assert score.staleness(one, score.Built("x", one.library, "")) == ""
    assert "another build" in score.staleness(one, score.Built(one.commit + "+", "f00", ""))
    assert "commit abc" in score.staleness(one, score.Built("abc", "f00", ""))


def shown(session: Session, width: int) -> str:
    return synthetic.shown(score.card_parts(make_cards([session])[0], BUILT), width)


def store(session: Session, directory: Path) -> Path:
    samples, session.samples = session.samples, []
    with Store.create(directory, "bench", "0123456789", session) as file:
        for sample in samples:
            file.add_sample(sample)
        return file.path


def test_the_command_reads_stored_sessions(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(score, "find_built", lambda: BUILT)
    path = store(measured(0.7, 0.9), tmp_path)
    (tmp_path / "20270101T000000Z-bench-damaged.jsonl").write_text("nonsense\n")
    score.run(results=tmp_path, session=None, as_json=True)
    output = capsys.readouterr()
    (card,) = json.loads(output.out)
    assert card["scores"][0]["milestone"] == "M5" and card["scores"][0]["stale"]
    assert "is not part of a session" in output.err
    score.run(results=None, session=path, as_json=False)
    assert "reached" in capsys.readouterr().out


def test_nothing_stored_is_one_sentence(tmp_path: Path):
    with pytest.raises(Problem, match="type: ./hakmem peers install"):
        score.run(results=tmp_path, session=None, as_json=False)
    with pytest.raises(Problem, match="there is no folder"):
        score.run(results=tmp_path / "none", session=None, as_json=False)


def programs(cost: float, memory: float) -> Session:
    """Two programs and a server, which is none of them."""
    figures = {"hakmem": (cost, memory), "glibc": (1.0, 1.0), "mimalloc 3": (1.1, 2.0)}
    one = synthetic.session(["python", "z3", "redis_idle"], figures, spread=0.0, vary=False, kind="program")
    one.cases[2] = dataclasses.replace(one.cases[2], load=["load"])
    return one


def test_programs_have_a_mean_of_their_own():
    session = programs(0.97, 1.06)
    (card,) = make_cards([session])
    assert [score.case for score in card.scores if score.cpu is None] == ["redis_idle"]
    text = " ".join(shown(session, 80).split())
    assert "Mean of 2 programs: CPU 97.0 %" in text and "peak 106." in text and "redis_idle" in text
    assert "Mean of" not in shown(measured(0.7), 80)
