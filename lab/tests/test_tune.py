# ctest: slow
"""tune: the space, the search with a planted optimum, kills, the verdict, refusals and files."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from hakmem_lab import ab, arms, cli, runner, store, tune, tune_answer, tune_search, tune_space
from hakmem_lab.measure import MEASURE, Outcome
from hakmem_lab.model import Arm, Case, Session
from hakmem_lab.places import BUILD, ROOT
from hakmem_lab.problem import Problem, Usage
from hakmem_lab.profile_file import read_profile
from hakmem_lab.tune_search import RUNS, Figures, Goal, Journal, Search

SCRIPT = Path(__file__).with_name("tune_to_kill.py")
BOTH = Goal("both", 0.5, 0.02)
BASE = Figures(1000.0, 500.0, 400.0, 0.1)
DEFAULT = tune_space.profiles()["default"]
TRIALS = 60
NEEDS_BUILD = pytest.mark.skipif(
    not ((BUILD / "libhakmem.so").exists() and MEASURE.exists()), reason="hakmem is not built"
)


# ---- The space. ----


def test_every_option_is_searched_or_left_alone_on_purpose():
    """What changes the meaning of a program, or only what it tells, is nothing to search."""
    listed = re.findall(r"X\([A-Z_0-9]+, (\w+),", (ROOT / "src/core/option_list.h").read_text())
    left_alone = {
        "profile", "limit", "limit_hard", "abort_on_foreign", "keep_deepbind", "observe", "stats",
        "stats_file", "sample_bytes", "profile_file", "profile_signal", "stats_pid",
        "stats_signal", "heap_map_file", "announce",
    }  # fmt: skip
    assert set(listed) == set(tune_space.LADDERS) | left_alone
    assert not set(tune_space.LADDERS) & left_alone


@NEEDS_BUILD
def test_the_library_takes_every_value():
    rungs = tune_space.ladders()
    for at in range(max(map(len, rungs.values()))):
        values = {f"HAKMEM_{n.upper()}": of[min(at, len(of) - 1)] for n, of in rungs.items()}
        ab.check_options(Arm("hakmem", str(BUILD / "libhakmem.so"), values))


def test_settings_are_as_few_as_possible():
    for name, point in tune_space.profiles().items():
        assert tune_space.settings_of(point) == ({} if name == "default" else {"profile": name})
    small = {**tune_space.profiles()["small"], "scavenger": 0}
    assert tune_space.settings_of(small) == {"profile": "small", "scavenger": "1"}
    assert tune_space.settings_of({**DEFAULT, "bin_bytes": 0}) == {"bin_bytes": "16k"}


@pytest.mark.parametrize("cpus", [1, 2, 6, 64])
def test_ladders_of_any_machine_hold_the_default(cpus, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cpus)))
    heaps = tune_space.ladders()["heaps"]
    assert heaps[-2:] == [str(2 * cpus), str(4 * cpus)] and len(set(heaps)) == len(heaps)
    assert tune_space.profiles()["default"]["heaps"] == heaps.index("0")


# ---- The goal. ----


def scaled(cost: float, memory: float) -> Figures:
    return Figures(BASE.cost * cost, BASE.peak_kib * memory, BASE.mean_kib * memory, 0.1)


def test_goals():
    faster, leaner = scaled(0.9, 1.0), scaled(1.0, 0.8)
    assert Goal("time", 0.5, 0.02).loss(faster, BASE) < 0 == Goal("memory", 0.5, 0.02).loss(
        faster, BASE
    )
    assert Goal("time", 0.5, 0.02).loss(leaner, BASE) == 0
    assert Goal("memory", 0.5, 0.02).loss(leaner, BASE) == pytest.approx(-0.223, abs=1e-3)
    assert BOTH.loss(leaner, BASE) == pytest.approx(-0.1116, abs=1e-3)
    heavy = Goal("both", 2.0, 0.02)
    assert heavy.loss(leaner, BASE) < heavy.loss(faster, BASE) < 0
    # However heavy: a gain of 0.1 % stays one.
    assert Goal("both", 1000, 0.02).loss(scaled(1.0, 0.999), BASE) > -0.0011


def test_a_loss_beyond_the_guard_outweighs_the_gain():
    trade = scaled(0.8, 1.5)
    assert Goal("time", 0.5, 0.02).loss(trade, BASE) > 0
    assert Goal("time", 0.5, 1.0).loss(trade, BASE) < 0


# ---- The search. ----


class Planted:
    """A program that gains 30 % with the largest bins and 20 % without delay, and else nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, int], float | None]] = []
        self.failing: set[int] = set()  # rungs of heaps

    def __call__(self, point: dict[str, int], limit_s: float | None) -> Figures | str:
        self.calls.append((point, limit_s))
        if point["heaps"] in self.failing:
            return "it was killed by signal 11 (SIGSEGV)"
        bins, delay = len(tune_space.ladders()["bin_bytes"]) - 1, len("0 1 10 30 100 300".split())
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


def test_bad_candidates_are_cut_short_and_the_default_is_run_again(journal, monkeypatch):
    monkeypatch.setattr(tune_search, "CANDIDATES_MAX", TRIALS)
    program = Planted()
    search_of(journal, program, []).go_on(0)
    candidates = [point for point, limit_s in program.calls if limit_s is not None]
    assert TRIALS <= len(candidates) < RUNS * TRIALS
    defaults = len(program.calls) - len(candidates)
    assert defaults == tune_search.DEFAULT_FIRST + (TRIALS - 1) // tune_search.DEFAULT_EVERY


def test_the_profiles_are_tried_first_and_limits_follow_the_default(journal, monkeypatch):
    monkeypatch.setattr(tune_search, "CANDIDATES_MAX", 2)
    program = Planted()
    search = search_of(journal, program, [])
    assert search.limit_s == tune_search.LIMIT_S_MIN
    search.go_on(0)
    points = [point for point, limit_s in program.calls if limit_s is not None]
    assert points[0] == tune_space.profiles()["fast"]
    assert points[RUNS] == tune_space.profiles()["small"]
    journal.note("defaults", [[1000.0, 500.0, 400.0, 20.0]] * 3)
    assert search.limit_s == tune_search.LIMIT_FACTOR * 20


def test_a_candidate_that_fails_is_said_and_never_chosen(journal, monkeypatch):
    monkeypatch.setattr(tune_search, "CANDIDATES_MAX", 20)
    program, said = Planted(), []
    program.failing = set(range(len(tune_space.ladders()["heaps"]))) - {DEFAULT["heaps"]}
    search = search_of(journal, program, said)
    search.go_on(0)
    assert any("heaps=" in one and "signal 11" in one for one in said)
    assert {point["heaps"] for point in search.best(9)} == {DEFAULT["heaps"]}


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
    program.failing = {DEFAULT["heaps"]}
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
    assert points.count(tune_space.profiles()["fast"]) == RUNS - 1  # the first run is kept
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


def test_what_is_tidy_is_not_measured_again(journal):
    program = Planted()
    search = search_of(journal, program, [])
    point = {**DEFAULT, "bin_bytes": DEFAULT["bin_bytes"] + 2, "heaps": 0}
    tidied = search.tidy(point)
    assert tidied == {**point, "heaps": DEFAULT["heaps"]}
    program.calls.clear()
    assert search.tidy(point) == tidied and not program.calls


# ---- The verdict. ----


def tuned(
    arm_figures: dict[str, tuple[float, float]], goal: Goal = BOTH, rounds: int = 15, **changes
) -> tune_answer.Answer:
    """What comes of a session in which the arms have these times and memories."""
    figures = {"hakmem": (1.0, 1.0)}
    figures |= {f"hakmem {name}": pair for name, pair in arm_figures.items()}
    failing = [("server", f"hakmem {name}") for name in changes.pop("failing", ())]
    session = synthetic.session(
        ["server"], figures, rounds=rounds, kind="program", vary=False, failing=failing
    )
    case = dataclasses.replace(session.cases[0], title="./server 1", **changes)
    session = dataclasses.replace(session, cases=[case])
    settings = {name: dict(word.split("=") for word in name.split()) for name in arm_figures}
    return tune_answer.answer_of(session, case, goal, settings, "9 candidates, then 15 rounds")


def test_a_clear_gain_is_a_winner_with_intervals():
    answer = tuned({"bin_bytes=1m": (0.99, 1.0), "profile=small heaps=1": (0.9, 0.8)})
    assert answer.winner and answer.winner.settings == {"profile": "small", "heaps": "1"}
    time_, peak = answer.winner.ratios["time"], answer.winner.ratios["peak memory"]
    assert time_.low < time_.estimate < time_.high < 0.92 and time_.estimate > 0.88
    assert peak.estimate == pytest.approx(0.8, abs=0.001)
    assert answer.winner.ratios["mean memory"].estimate == pytest.approx(0.8, abs=0.001)
    assert answer.sentence.startswith("GO: profile=small heaps=1 is better than the default")
    assert any(line.startswith("time: -") and " to " in line for line in answer.comments)


@pytest.mark.parametrize(
    "goal,figures,word,reason",
    [
        ("both", (1.0, 1.0), "INCONCLUSIVE", "is not shown; these runs would have found one of"),
        ("time", (0.9, 1.5), "NO-GO", r"\+50.0 % peak memory"),
        ("memory", (1.2, 0.5), "NO-GO", r"\+20\.\d % time"),
        ("memory", (1.035, 0.5), "NO-GO", r"\+3\.\d % time"),
        ("memory", (1.0, 0.9), "GO", ""),
        ("time", (1.0, 0.9), "INCONCLUSIVE", "is not shown"),
        ("time", (0.9, 1.0), "GO", ""),
        ("both", (1.015, 1.0), "NO-GO", "it is worse by"),
    ],
)
def test_goals_and_guards_of_the_verdict(goal, figures, word, reason):
    (one,) = tuned({"heaps=1": figures}, Goal(goal, 0.5, 0.02)).candidates
    assert one.word == word
    assert re.search(reason, one.reason)


def test_the_guard_is_what_the_user_says():
    assert tuned({"heaps=1": (0.9, 1.15)}, Goal("time", 0.5, 0.02)).winner is None
    assert tuned({"heaps=1": (0.9, 1.15)}, Goal("time", 0.5, 0.2)).winner


def test_noise_and_failures_win_nothing():
    answer = tuned({"heaps=1": (0.5, 0.5)}, failing=["heaps=1"])
    assert answer.winner is None and "it failed 15 times, and the default 0 times" in answer.sentence
    assert answer.candidates[0].word == "NO-GO" and not answer.candidates[0].ratios
    assert tuned({"heaps=1": (0.9, 0.9)}, rounds=8).winner is None


def test_intervals_hold_for_the_best_of_two():
    """Which of two candidates is shown is chosen by the same runs: the intervals are wider."""
    figures = {"heaps=1": (0.9, 0.9), "heaps=4": (0.95, 0.95)}
    alone = tuned({"heaps=1": figures["heaps=1"]}, rounds=25)
    both = tuned(figures, rounds=25)
    for one in (alone, both):
        assert one.winner and one.winner.settings == {"heaps": "1"}
    ratios = [one.winner.ratios["time"] for one in (alone, both)]
    assert [ratio.confidence for ratio in ratios] == [0.95, 0.975]
    assert ratios[0].estimate == ratios[1].estimate
    assert ratios[1].low < ratios[0].low < ratios[0].high < ratios[1].high


def test_comments_are_lines():
    answer = tuned({"heaps=1": (0.9, 0.9)}, metric="a\nheaps=7")
    assert not [comment for comment in answer.comments if "\n" in comment]


def test_equal_arms_rarely_win():
    """Two candidates that are the default: with alpha shared, a winner is an accident."""
    winners = 0
    for seed in range(40):
        session = synthetic.session(
            ["x"], {"hakmem": (1.0, 1.0), "hakmem heaps=1": (1.0, 1.0), "hakmem heaps=4": (1, 1)},
            kind="program", vary=False, spread=0.03, seed=seed,
        )  # fmt: skip
        settings = {name: {"heaps": name[-1]} for name in ("heaps=1", "heaps=4")}
        winners += tune_answer.answer_of(
            session, session.cases[0], BOTH, settings, ""
        ).winner is not None
    assert winners == 0


def test_a_rate_is_shown_as_a_rate():
    answer = tuned({"heaps=1": (0.8, 1.0)}, metric="x", is_rate=True)
    assert answer.winner
    ratio = answer.winner.ratios["number of --metric"]
    assert ratio.low < ratio.estimate < ratio.high
    assert ratio.estimate == pytest.approx(1.25, abs=0.02)


# ---- The command. ----


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No machine to be fit, no build, folders of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", "/build/libhakmem.so", {}, "0.1"))
    monkeypatch.setattr(tune, "check_fitness", lambda force: [])


@pytest.fixture
def fabricated(alone, monkeypatch):
    """tune without running anything: the candidate is heaps=1; set `figures` of it."""
    figures = {"pair": (0.9, 0.9)}
    point = {**DEFAULT, "heaps": 0}

    def find(tuning):
        tuning.journal.note("defaults", [[1e9, 500.0, 400.0, 1.0]] * 3)
        plan = {"candidates": [point], "limit_s": 5, "rounds": 15}
        tuning.journal.note("plan", plan)

    def measured(cases, every, rounds, *_, **__):
        one = synthetic.session(
            [case.name for case in cases], {"hakmem": (1.0, 1.0), every[1].name: figures["pair"]},
            rounds=rounds, kind="program", vary=False,
        )  # fmt: skip
        return dataclasses.replace(one, id="20261121T100000Z-tune-0", cases=list(cases))

    monkeypatch.setattr(tune.Tuning, "_find", find)
    monkeypatch.setattr(runner, "run_session", measured)
    monkeypatch.setattr(store, "mark_shown", lambda *_: None)
    return figures


def test_the_answer_the_line_and_the_file(fabricated, capsys, tmp_path):
    assert cli.main(["tune", "--", "sh", "-c", "echo 'a b'"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("GO: heaps=1 is better than the default for sh -c")
    assert "HAKMEM_HEAPS=1 ./hakmem run -- sh -c 'echo '\"'\"'a b'\"'\"''" in text
    assert "./hakmem run --profile sh.profile -- sh -c" in text
    assert re.search(r"^time +-\d+\.\d % +-\d+\.\d % to -\d+\.\d %$", text, re.M)
    lines = Path("sh.profile").read_text().splitlines()
    assert lines[-1] == "HAKMEM_HEAPS=1" and all(line.startswith("# ") for line in lines[:-1])
    assert lines[0] == "# Profile for hakmem"
    for words in ("program: sh -c", "machine: Imaginary 9000, 2 CPUs", "goal: both, weight 0.5",
                  "GO: heaps=1", "peak memory: -10.0 %"):  # fmt: skip
        assert any(line.startswith(f"# {words}") for line in lines), words
    assert read_profile("sh.profile") == {"HAKMEM_HEAPS": "1"}
    assert [path.name for path in (tmp_path / "data/hakmem/results").iterdir()] == [
        "20261121T100000Z-tune-0.journal"
    ]
    assert cli.main(["tune", "--", "sh", "-c", "echo 'a b'"]) == 0  # its own file may be replaced


def test_no_winner_no_file_unless_asked(fabricated, capsys):
    fabricated["pair"] = (1.0, 1.0)
    assert cli.main(["tune", "--", "sh"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("INCONCLUSIVE: keep the default; nothing is known to be better for sh.")
    assert "  ./hakmem run -- sh\n" in text and not list(Path().glob("*.profile"))
    assert cli.main(["tune", "--output", "asked", "--json", "--", "sh"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["winner"] is None and data["candidates"][0]["word"] == "INCONCLUSIVE"
    assert data["use"][-1] == "./hakmem run --profile ./asked -- sh"
    assert read_profile("asked") == {"HAKMEM_PROFILE": "default"}


def test_an_earlier_profile_without_a_winner_is_said(fabricated, capsys):
    assert cli.main(["tune", "--", "sh"]) == 0
    assert "earlier tune" not in capsys.readouterr().err
    fabricated["pair"] = (1.0, 1.0)
    assert cli.main(["tune", "--", "sh"]) == 0
    assert "sh.profile is of an earlier tune and stays as it is" in capsys.readouterr().err
    assert read_profile("sh.profile") == {"HAKMEM_HEAPS": "1"}


@pytest.mark.parametrize(
    "words,status,sentence",
    [
        (["--", "no-such-program"], 127, "no program 'no-such-program' in PATH"),
        (["--goal", "luck", "--", "sh"], 2, "--goal is time, memory or both, not 'luck'"),
        (["--minutes", "0", "--", "sh"], 2, "--minutes is a number above 0"),
        (["--minutes", "nan", "--", "sh"], 2, "--minutes is a number above 0"),
        (["--weight", "-1", "--", "sh"], 2, "--weight is a number from 0"),
        (["--guard", "much", "--", "sh"], 2, "'much' is not a share"),
        (["--load", "", "--", "sh"], 2, "the load command is empty"),
        (["--load", "no-such-load", "--", "sh"], 127, "no program 'no-such-load'"),
        (["--metric", "(", "--", "sh"], 2, "--metric (: "),
        (["--metric", "(a)(b)", "--", "sh"], 2, "at most one group"),
        (["--rate", "--", "sh"], 2, "--rate needs --metric"),
        (["--output", "none/x.profile", "--", "sh"], 2, "cannot write to none/x.profile"),
        (["--output", "taken.txt", "--", "sh"], 2, "taken.txt is there and is not from tune"),
        (["--output", ".", "--", "sh"], 2, "cannot write to ."),
        (["--output", "/proc/x.profile", "--", "sh"], 2, "cannot write to /proc/x.profile"),
        (["--results", "/proc/none", "--", "sh"], 1, "cannot save results in /proc/none"),
        ([], 2, "PROGRAM"),
    ],
)
def test_bad_requests_are_one_sentence(alone, capsys, words, status, sentence):
    Path("taken.txt").write_text("my diary\n")
    assert cli.main(["tune", *words]) == status
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert Path("taken.txt").read_text() == "my diary\n"


def test_too_short_a_budget_says_what_is_needed(alone, capsys, monkeypatch):
    monkeypatch.setattr(tune.serving, "prove_program", lambda *_: ({}, ""))
    monkeypatch.setattr(
        tune.Tuning, "_run_once", lambda *_: Figures(1e9, 500.0, 400.0, seconds=20.0)
    )
    assert cli.main(["tune", "--minutes", "10", "--", "sh"]) == 1
    error = capsys.readouterr().err
    assert "10 minutes are too short: a run takes 20.0 s" in error
    assert "type --minutes 27" in error  # 9 rounds, 3 arms, 40 % of the time, a fifth to spare


def test_a_program_that_never_ends_is_not_waited_for(alone, capsys, monkeypatch):
    """As a server without --load: the time that its runs may take is known."""
    limits = []

    def measured(case, *_):
        limits.append(case.timeout_s)
        return Outcome({"end": "timeout", "status": 0}, "", "")

    monkeypatch.setattr(tune.serving, "prove_program", lambda *_: ({}, ""))
    monkeypatch.setattr(tune, "measure", measured)
    assert cli.main(["tune", "--minutes", "10", "--", "sh"]) == 1
    error = capsys.readouterr().err
    assert "a run takes longer than 22 s, and 10 minutes allow 7.4 s: give more" in error
    assert "a server needs --load" in error
    assert len(limits) == 1 and 22 < limits[0] < 23


def test_an_interrupt_says_that_nothing_is_lost(alone, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    def stop_in_the_cleanup(*_):
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError("the folder is not empty")

    said = "tune: stopped; 0 candidates are saved, the same command goes on"
    for way in (stop, stop_in_the_cleanup):
        monkeypatch.setattr(tune.serving, "prove_program", way)
        assert cli.main(["tune", "--", "sh"]) == 130
        assert said in capsys.readouterr().err


def test_two_candidates_if_the_rounds_are_enough(alone):
    case, folder = Case("sh", ["/bin/sh"], kind="program"), Path("results")
    tuning = tune.Tuning(case, arms.our_arm(), BOTH, 600, folder)
    best = [{**DEFAULT, "heaps": 0}, tune_space.profiles()["fast"]]

    def plan(seconds: float) -> tuple[int, int]:
        tuning.journal.note("defaults", [[1e9, 500.0, 400.0, seconds]] * 3)
        made = tuning._plan(best)
        return len(made["candidates"]), made["rounds"]

    assert plan(0.001) == (2, tune.ROUNDS_MAX)
    assert plan(4.0)[0] == 2 and plan(4.0)[1] >= tune.ROUNDS
    assert plan(6.0)[0] == 1 and 9 <= plan(6.0)[1] <= 27
    assert plan(60.0) == (1, 9)
    tuning.journal.close()


# ---- Real processes. ----


@pytest.fixture
def real(alone, monkeypatch):
    library = BUILD / "libhakmem.so"
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", str(library)))


@NEEDS_BUILD
@pytest.mark.parametrize(
    "words,sentence",
    [
        (["sh", "-c", "exit 3"], "the program failed: it ended with status 3"),
        (["sh", "-c", 'echo >>runs; test "$(wc -l <runs)" -lt 3'],
         r"the program failed \(after \d+ runs? that ended well\): it ended with status 1"),
    ],
)  # fmt: skip
def test_programs_that_fail_are_refused(real, capsys, words, sentence):
    assert cli.main(["tune", "--minutes", "600", "--", *words]) == 1
    assert re.search(sentence, capsys.readouterr().err)


SERVER = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
while True:
    s.accept()
"""
LOAD = "import socket; socket.socket(socket.AF_UNIX).connect('{}'); print('rate 1', 'rate 250.5')"


@NEEDS_BUILD
def test_a_server_is_measured_by_what_its_load_prints(real, tmp_path):
    server = tmp_path / "server"
    server.write_text(f"#!{sys.executable} -S\nimport os\n{SERVER}".replace(
        "s.bind", "os.path.exists(sys.argv[1]) and os.unlink(sys.argv[1]); s.bind"))  # fmt: skip
    server.chmod(0o755)
    case = tune._case(
        [str(server), "socket"], f'{sys.executable} -S -c "{LOAD.format("socket")}"',
        r"rate (\S+)", True, 60,
    )  # fmt: skip
    tuning = tune.Tuning(case, arms.our_arm(), BOTH, 600, tmp_path / "results")
    found = tuning._run_once(DEFAULT, None)
    assert isinstance(found, Figures), found
    assert found.cost == pytest.approx(1 / 250.5) and found.peak_kib > 1000
    other = dataclasses.replace(case, metric="none")
    tuning._case = other
    assert "its load printed no number above 0" in str(tuning._run_once(DEFAULT, None))
    tuning.journal.close()


def sitting(folder: Path, kill: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), kill]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)


@NEEDS_BUILD
def test_a_kill_loses_nothing(tmp_path):
    """Killed in the search and in the verdict, the same command goes on and ends."""
    assert sitting(tmp_path, "search").returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("results/*.journal"))) == 1
    killed = sitting(tmp_path, "verdict")
    assert killed.returncode == -signal.SIGKILL
    assert "going on with an unfinished search: " in killed.stderr
    last = sitting(tmp_path, "")
    assert last.returncode == 0, last.stderr
    assert "going on with the session of" in last.stderr
    assert "unfinished search" not in last.stderr
    assert "the default" in last.stdout and read_profile(str(tmp_path / "sh.profile"))
    (path,) = tmp_path.glob("results/*.jsonl")
    session: Session = store.load(path)
    assert session.is_complete and session.rounds == 9 and session.is_shown
    assert len({(s.arm, s.round) for s in session.samples}) == len(session.samples)
    (journal_path,) = tmp_path.glob("results/*.journal")
    assert journal_path.name == f"{session.id}.journal"
    done = Journal(journal_path)
    assert len(done.facts["defaults"]) >= 3 and len(done.finished()) >= 6
    done.close()


def test_an_arm_may_be_a_profile_file(alone):
    Path("my.profile").write_text("# mine\nHAKMEM_PROFILE=small\r\nheaps=1\n")
    (arm,) = arms.find_arms("hakmem:profile=my.profile")
    assert arm.name == "hakmem profile=my.profile"
    assert arm.environment == {"HAKMEM_PROFILE": "small", "HAKMEM_HEAPS": "1"}
    a, b = ab.parse_arms("default", "profile=./my.profile,bin_bytes=1m")
    assert b.environment["HAKMEM_HEAPS"] == "1" and b.environment["HAKMEM_BIN_BYTES"] == "1m"


@pytest.mark.parametrize(
    "content,sentence",
    [
        ("", "holds no setting"),
        ("# nothing\n\n", "holds no setting"),
        ("heaps=1\nheaps\n", "line 2: 'heaps' is not NAME=VALUE"),
        ("heaps= \n", "line 1: 'heaps= ' is not NAME=VALUE"),
        ("\x7fELF\x01", r"line 1: '\?ELF\?' is not NAME=VALUE"),
    ],
)
def test_bad_profile_files(alone, content, sentence):
    Path("bad.profile").write_text(content)
    with pytest.raises(Usage, match=sentence):
        arms.find_arms("hakmem:profile=bad.profile")
    for word in ("none.profile", "./"):
        with pytest.raises(Usage, match="does not exist|is no file"):
            read_profile(word)
