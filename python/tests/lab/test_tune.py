# SPDX-License-Identifier: MIT
"""tune: the space, the search with a planted optimum and interruptions, the verdict."""

import dataclasses
import re

import pytest
import synthetic
from hakmem.lab import proof, tune, tune_search
from hakmem.lab.model import Arm
from hakmem.lab.base import BUILD, ROOT, Problem
from hakmem.lab.tune_search import RUNS, Figures, Goal, Journal, Search

BOTH = Goal("both", 0.5, 0.02)
BASE = Figures(1000.0, 500.0, 400.0, 0.1)
DEFAULT = tune_search.profiles()["default"]
TRIALS = 60


# ---- The space. ----


def test_every_option_is_searched_or_left_alone_on_purpose():
    """What changes the meaning of a program, or only what it tells, is nothing to search."""
    listed = re.findall(r"X\([A-Z_0-9]+, (\w+),", (ROOT / "src/core/option_list.h").read_text())
    left_alone = {"profile", "config_file", "limit", "limit_hard", "abort_on_foreign", "abort_on_size", "keep_deepbind",
                  "observe", "stats", "ignore_filter", "stats_file", "sample_bytes", "profile_file", "profile_signal",
                  "profile_dump", "profile_threads", "stats_pid", "stats_signal", "heap_map_file", "announce", "learn",
                  "learn_memory_percent", "guard", "guard_file", "numa"}
    assert set(listed) == set(tune_search.LADDERS) | left_alone
    assert not set(tune_search.LADDERS) & left_alone


@synthetic.NEEDS_BUILD
def test_the_library_takes_every_value():
    rungs = tune_search.ladders()
    for at in range(max(map(len, rungs.values()))):
        values = {f"HAKMEM_{n.upper()}": of[min(at, len(of) - 1)] for n, of in rungs.items()}
        proof.prove(Arm("hakmem", str(BUILD / "libhakmem.so"), values))


def test_settings_are_as_few_as_possible():
    for name, point in tune_search.profiles().items():
        assert tune_search.settings_of(point) == ({} if name == "default" else {"profile": name})
    small = {**tune_search.profiles()["small"], "scavenger": 0}
    assert tune_search.settings_of(small) == {"profile": "small", "scavenger": "1"}
    assert tune_search.settings_of({**DEFAULT, "bin_bytes": 0}) == {"bin_bytes": "16k"}


def test_no_scavenger_without_anything_to_purge(journal):
    """hakmem warns of it, and the laboratory takes no arm that does not do what it says."""
    never = tune_search.ladders()["purge_delay_ms"].index("never")
    point = {**DEFAULT, "purge_delay_ms": never, "scavenger": 0}
    assert tune_search.settings_of(tune_search.effective(point)) == {"purge_delay_ms": "never"}
    assert tune_search.effective({**point, "purge_delay_ms": 0})["scavenger"] == 0
    program = Planted()
    search = search_of(journal, program, [])
    for scavenger in (0, 1):
        journal.study.enqueue_trial({**point, "scavenger": scavenger})
        search._judge(search._ask())
    assert search.best(2) == [{**point, "scavenger": 1}]
    assert not [one for one, _ in program.calls if one == point]


# ---- The search. ----


def scaled(cost: float, memory: float) -> Figures:
    return Figures(BASE.cost * cost, BASE.peak_kib * memory, BASE.mean_kib * memory, 0.1)


class Planted:
    """A program that gains 30 % with the largest bins and 20 % without delay, and else nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, int], float | None]] = []
        self.failing: set[int] = set()  # rungs of arenas

    def __call__(self, point: dict[str, int], limit_s: float | None) -> Figures | str:
        self.calls.append((point, limit_s))
        if point["arenas"] in self.failing:
            return "it was killed by signal 11 (SIGSEGV)"
        bins, delay = len(tune_search.ladders()["bin_bytes"]) - 1, len("0 1 10 30 100 300".split())
        gain = 0.3 * max(0, point["bin_bytes"] - DEFAULT["bin_bytes"]) / (
            bins - DEFAULT["bin_bytes"]
        ) + 0.2 * (delay - min(delay, point["purge_delay_ms"])) / delay
        noise = 0.001 * (len(self.calls) % 3)
        return dataclasses.replace(scaled(1 - gain + noise, 1.0), seconds=0.1)


@pytest.fixture
def journal(tmp_path):
    one = Journal(tmp_path / "tune.journal", seed=1)
    yield one
    one.close()


def search_of(journal: Journal, program: Planted, said: list[str], left=lambda: 1e9) -> Search:
    search = Search(journal, BOTH, program, left, said.append)
    for _ in range(tune_search.DEFAULT_FIRST):
        search.measure_default()
    return search


def test_the_planted_optimum_is_found_and_nothing_else_kept(journal, monkeypatch):
    monkeypatch.setattr(tune_search, "CANDIDATES_MAX", TRIALS)
    program = Planted()
    search = search_of(journal, program, [])
    search.go_on(0)
    (best,) = search.best(1)
    assert BOTH.loss(program(best, None), BASE) < -0.3  # of -0.69
    tidied = search.tidy(best)
    changed = {name for name, rung in tidied.items() if rung != DEFAULT[name]}
    assert changed <= {"bin_bytes", "purge_delay_ms"} and changed
    assert BOTH.loss(program(tidied, None), BASE) < -0.3


def test_a_candidate_that_fails_is_said_and_never_chosen(journal, monkeypatch):
    monkeypatch.setattr(tune_search, "CANDIDATES_MAX", 20)
    program, said = Planted(), []
    program.failing = set(range(len(tune_search.ladders()["arenas"]))) - {DEFAULT["arenas"]}
    search = search_of(journal, program, said)
    search.go_on(0)
    assert any("arenas=" in one and "signal 11" in one for one in said)
    assert {point["arenas"] for point in search.best(9)} == {DEFAULT["arenas"]}


def test_the_search_ends_with_its_time(journal):
    seconds = [3.0]
    program = Planted()

    def left() -> float:
        seconds[0] -= 0.1
        return seconds[0]

    search_of(journal, program, [], left).go_on(1.0)
    assert 3 < len(program.calls) <= 30


def test_a_program_whose_default_fails_is_refused(journal):
    program = Planted()
    search = search_of(journal, program, [])
    program.failing = {DEFAULT["arenas"]}
    with pytest.raises(Problem, match=r"after 3 runs that ended well\).*sh -c 'PROGRAM \|\| true'"):
        search.measure_default()


def test_a_search_goes_on_after_a_kill(tmp_path, monkeypatch):
    """Also after one in the middle of a candidate and in the middle of a write."""
    monkeypatch.setattr(tune_search, "CANDIDATES_MAX", 3)
    path, program = tmp_path / "tune.journal", Planted()

    def killed(point, limit_s):
        if limit_s is not None and len(program.calls) > tune_search.DEFAULT_FIRST:
            raise SystemError
        return program(point, limit_s)

    first = Journal(path, seed=1)
    search = Search(first, BOTH, killed, lambda: 1e9, print)
    for _ in range(3):
        search.measure_default()
    with pytest.raises(SystemError):
        search.go_on(0)
    with pytest.raises(Problem, match="is being written by another tune"):
        Journal(path)
    first.close()
    with path.open("a") as file:
        file.write('{"op_code":8,"wor')
    second = Journal(path, seed=1)
    assert len(second.facts["defaults"]) == 3
    program.calls.clear()
    Search(second, BOTH, program, lambda: 1e9, print).go_on(0)
    points = [point for point, _ in program.calls]
    assert points.count(tune_search.profiles()["fast"]) == RUNS - 1  # the first run is kept
    assert len(second.finished()) == 3
    second.close()
    path.write_text("nonsense\n{}\n")
    with pytest.raises(Problem, match="is damaged; move it away, or use --new"):
        Journal(path)


def test_what_was_drawn_before_a_kill_is_not_drawn_again(tmp_path, monkeypatch):
    """With a seed, too; and a new search throws away what was found."""
    program, path = Planted(), tmp_path / "tune.journal"

    def tried(count: int, new: bool = False) -> list[dict[str, int]]:
        monkeypatch.setattr(tune_search, "CANDIDATES_MAX", count)
        one = Journal(path, seed=1, new=new)
        search = Search(one, BOTH, program, lambda: 1e9, print)
        if not one.facts:
            search.measure_default()
        search.go_on(0)
        points = [dict(trial.params) for trial in one.finished()]
        one.close()
        return points

    first = tried(5)
    both = tried(8)
    assert both[:5] == first
    assert not [point for point in both[5:] if point in first]
    assert tried(2, new=True) == first[:2]


# ---- The verdict. ----


def tuned(
    arm_figures: dict[str, tuple[float, float]], goal: Goal = BOTH, rounds: int = 15, **changes
) -> tune.Answer:
    """What comes of a session in which the arms have these times and memories."""
    figures = {"hakmem": (1.0, 1.0)}
    figures |= {f"hakmem {name}": pair for name, pair in arm_figures.items()}
    failing = [("server", f"hakmem {name}") for name in changes.pop("failing", ())]
    session = synthetic.session(["server"], figures, rounds=rounds, kind="program", vary=False, failing=failing)
    case = dataclasses.replace(session.cases[0], title="./server 1", **changes)
    session = dataclasses.replace(session, cases=[case])
    settings = {name: dict(word.split("=") for word in name.split()) for name in arm_figures}
    return tune.answer_of(session, case, goal, settings, "9 candidates, then 15 rounds")


def test_a_clear_gain_is_a_winner_with_intervals():
    answer = tuned({"bin_bytes=1m": (0.99, 1.0), "profile=small arenas=1": (0.9, 0.8)})
    assert answer.winner and answer.winner.settings == {"profile": "small", "arenas": "1"}
    time_, peak = answer.winner.ratios["time"], answer.winner.ratios["peak memory"]
    assert time_.low < time_.value < time_.high < 0.92 and time_.value > 0.88
    assert peak.value == pytest.approx(0.8, abs=0.001)
    assert answer.winner.ratios["mean memory"].value == pytest.approx(0.8, abs=0.001)
    assert answer.sentence.startswith("GO: profile=small arenas=1 is better than the default")
    assert any(line.startswith("time: -") and " to " in line for line in answer.comments)


@pytest.mark.parametrize(
    "goal,figures,word,reason,guard",
    [
        ("both", (1.0, 1.0), "INCONCLUSIVE", "is not shown; these runs would have found one of", 0.02),
        ("time", (0.9, 1.5), "NO-GO", r"\+50.0 % peak memory", 0.02),
        ("memory", (1.2, 0.5), "NO-GO", r"\+20\.\d % time", 0.02),
        ("memory", (1.035, 0.5), "NO-GO", r"\+3\.\d % time", 0.02),
        ("memory", (1.0, 0.9), "GO", "", 0.02),
        ("time", (1.0, 0.9), "INCONCLUSIVE", "is not shown", 0.02),
        ("time", (0.9, 1.0), "GO", "", 0.02),
        ("both", (1.015, 1.0), "NO-GO", "it is worse by", 0.02),
        ("time", (0.9, 1.15), "NO-GO", r"\+15\.0 % peak memory", 0.02),
        ("time", (0.9, 1.15), "GO", "", 0.2),
    ],
)
def test_goals_and_guards_of_the_verdict(goal, figures, word, reason, guard):
    (one,) = tuned({"arenas=1": figures}, Goal(goal, 0.5, guard)).candidates
    assert one.word == word
    assert re.search(reason, one.reason)


def test_noise_and_failures_win_nothing():
    answer = tuned({"arenas=1": (0.5, 0.5)}, failing=["arenas=1"])
    assert answer.winner is None
    assert "it failed 15 times, and the default 0 times" in answer.sentence
    assert answer.candidates[0].word == "NO-GO" and not answer.candidates[0].ratios
    assert tuned({"arenas=1": (0.9, 0.9)}, rounds=8).winner is None
