# SPDX-License-Identifier: MIT
# ctest: slow
"""The command tune: answers, refusals, kills of real processes, and profile files."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from hakmem.lab import ab, arms, cli, runner, store, tune, tune_search
from hakmem.lab.measure import Outcome
from hakmem.lab.model import Arm, Case, Session
from hakmem.lab.base import BUILD, Problem, Usage
from hakmem.lab.profile_file import read_profile
from hakmem.lab.tune_search import Figures, Goal, Journal

BOTH = Goal("both", 0.5, 0.02)
DEFAULT = tune_search.profiles()["default"]


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
    """tune without running anything: the candidate is arenas=1; set `figures` of it."""
    figures = {"pair": (0.9, 0.9)}
    point = {**DEFAULT, "arenas": 0}

    def find(tuning):
        tuning.journal.note("defaults", [[1e9, 500.0, 400.0, 1.0]] * 3)
        plan = {"candidates": [point], "limit_s": 5, "rounds": 15}
        tuning.journal.note("plan", plan)

    def measured(cases, every, rounds, *_, **__):
        one = synthetic.session([case.name for case in cases], {"hakmem": (1.0, 1.0), every[1].name: figures["pair"]},
                                rounds=rounds, kind="program", vary=False)
        return dataclasses.replace(one, id="20261121T100000Z-tune-0", cases=list(cases))

    monkeypatch.setattr(tune.Tuning, "_find", find)
    monkeypatch.setattr(runner, "run_session", measured)
    monkeypatch.setattr(store, "mark_shown", lambda *_: None)
    return figures


def test_the_answer_the_line_and_the_file(fabricated, capsys, tmp_path):
    assert cli.main(["tune", "--", "sh", "-c", "echo 'a b'"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("GO: arenas=1 is better than the default for sh -c")
    assert "HAKMEM_ARENAS=1 ./hakmem run -- sh -c 'echo '\"'\"'a b'\"'\"''" in text
    assert "./hakmem run --profile sh.profile -- sh -c" in text
    assert re.search(r"^time +-\d+\.\d % +-\d+\.\d % to -\d+\.\d %$", text, re.M)
    lines = Path("sh.profile").read_text().splitlines()
    assert lines[-1] == "HAKMEM_ARENAS=1" and all(line.startswith("# ") for line in lines[:-1])
    assert lines[0] == "# Profile for hakmem"
    for words in ("program: sh -c", "machine: Imaginary 9000, 2 CPUs", "goal: both, weight 0.5",
                  "GO: arenas=1", "peak memory: -10.0 %"):
        assert any(line.startswith(f"# {words}") for line in lines), words
    assert read_profile("sh.profile") == {"HAKMEM_ARENAS": "1"}
    assert [path.name for path in (tmp_path / "data/hakmem/results").iterdir()] == ["20261121T100000Z-tune-0.journal"]
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


@pytest.mark.parametrize(
    "words,status,sentence",
    [(["--", "no-such-program"], 127, "no program 'no-such-program' in PATH"),
     (["--goal", "luck", "--", "sh"], 2, "--goal is time, memory or both, not 'luck'"),
     (["--minutes", "0", "--", "sh"], 2, "--minutes is a number above 0"),
     (["--minutes", "nan", "--", "sh"], 2, "--minutes is a number above 0"),
     (["--weight", "-1", "--", "sh"], 2, "--weight is a number from 0"),
     (["--guard", "much", "--", "sh"], 2, "'much' is not a share"),
     (["--load", "", "--", "sh"], 2, "the load command is empty"),
     (["--load", "no-such-load", "--", "sh"], 127, "no program 'no-such-load'"),
     (["--metric", "(", "--", "sh"], 2, "--metric (: "), (["--metric", "(a)(b)", "--", "sh"], 2, "at most one group"),
     (["--rate", "--", "sh"], 2, "--rate needs --metric"),
     (["--output", "none/x.profile", "--", "sh"], 2, "cannot write to none/x.profile"),
     (["--output", "taken.txt", "--", "sh"], 2, "taken.txt is there and is not from tune"),
     (["--output", ".", "--", "sh"], 2, "cannot write to ."),
     (["--output", "/proc/x.profile", "--", "sh"], 2, "cannot write to /proc/x.profile"),
     (["--results", "/proc/none", "--", "sh"], 1, "cannot save results in /proc/none"), ([], 2, "which program?")],
)
def test_bad_requests_are_one_sentence(alone, capsys, words, status, sentence):
    Path("taken.txt").write_text("my diary\n")
    assert cli.main(["tune", *words]) == status
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert Path("taken.txt").read_text() == "my diary\n"


def test_too_short_a_budget_says_what_is_needed(alone, capsys, monkeypatch):
    monkeypatch.setattr(tune, "prove_program", lambda *_: ({}, ""))
    monkeypatch.setattr(tune.Tuning, "_run_once", lambda *_: Figures(1e9, 500.0, 400.0, seconds=20.0))
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

    monkeypatch.setattr(tune, "prove_program", lambda *_: ({}, ""))
    monkeypatch.setattr(tune, "measure", measured)
    assert cli.main(["tune", "--minutes", "10", "--", "sh"]) == 1
    error = capsys.readouterr().err
    assert "a run takes longer than 22 s, and 10 minutes allow 7.4 s: give more" in error
    assert "a server needs --load" in error
    assert len(limits) == 1 and 22 < limits[0] < 23


def test_an_interrupt_says_that_nothing_is_lost(alone, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "prove_program", stop)
    assert cli.main(["tune", "--", "sh"]) == 130
    assert "tune: stopped; saved candidates: 0; the same command goes on" in capsys.readouterr().err


def test_candidates_that_the_verdict_would_refuse_are_left_out(alone, capsys, monkeypatch):
    """Else the session ends with an error after all the search, and again with each new call."""
    def prove(arm):
        if "HAKMEM_ARENAS" in arm.environment:
            raise Problem(f"{arm.name}: warning: HAKMEM_ARENAS does nothing")
        return {}

    profiles = tune_search.profiles()
    points = [{**DEFAULT, "arenas": 0}, profiles["fast"], profiles["small"]]
    monkeypatch.setattr(tune.proof, "prove", prove)
    monkeypatch.setattr(tune, "prove_program", lambda *_: ({}, ""))
    monkeypatch.setattr(tune.Search, "go_on", lambda *_: None)
    monkeypatch.setattr(tune.Search, "best", lambda *_: points)
    monkeypatch.setattr(tune.Search, "tidy", lambda *_: points[0])
    case = Case("sh", ["/bin/sh"], kind="program")
    tuning = tune.Tuning(case, arms.our_arm(), BOTH, 600, Path("results"))
    tuning.journal.note("defaults", [[1e9, 500.0, 400.0, 0.1]] * 3)
    tuning._find()
    assert tuning.journal.facts["plan"]["candidates"] == points[1:]
    assert "HAKMEM_ARENAS does nothing; this candidate is left out" in capsys.readouterr().err
    tuning.journal.close()


# ---- Real processes. ----


@pytest.fixture
def real(alone, monkeypatch):
    library = BUILD / "libhakmem.so"
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", str(library)))


@synthetic.NEEDS_BUILD
@pytest.mark.parametrize("words,sentence", [
    (["exit 3"], "the program failed: it ended with status 3"),
    (['echo >>runs; test "$(wc -l <runs)" -lt 3'],
     r"the program failed \(after \d+ runs? that ended well\): it ended with status 1"),
])
def test_programs_that_fail_are_refused(real, capsys, words, sentence):
    assert cli.main(["tune", "--minutes", "600", "--", "sh", "-c", *words]) == 1
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


@synthetic.NEEDS_BUILD
def test_a_server_is_measured_by_what_its_load_prints(real, tmp_path):
    server = tmp_path / "server"
    server.write_text(f"#!{sys.executable} -S\nimport os\n{SERVER}".replace(
        "s.bind", "os.path.exists(sys.argv[1]) and os.unlink(sys.argv[1]); s.bind"))
    server.chmod(0o755)
    case = tune._case([str(server), "socket"], f'{sys.executable} -S -c "{LOAD.format("socket")}"', r"rate (\S+)", True,
                      60)
    tuning = tune.Tuning(case, arms.our_arm(), BOTH, 600, tmp_path / "results")
    found = tuning._run_once(DEFAULT, None)
    assert isinstance(found, Figures), found
    assert found.cost == pytest.approx(1 / 250.5) and found.peak_kib > 1000
    other = dataclasses.replace(case, metric="none")
    tuning._case = other
    assert "its load printed no number above 0" in str(tuning._run_once(DEFAULT, None))
    tuning.journal.close()


def killing(function):
    """The function, which does its work five times."""
    calls = []

    def wrapped(*words, **named):
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(words)
        return function(*words, **named)

    return wrapped


def tune_to_kill(kill: str) -> int:
    """Of a tiny program. Ends by counts, never by time, so that a busy machine changes nothing."""
    tune.check_fitness = lambda force: []
    tune.ROUNDS_MAX = 9
    tune_search.CANDIDATES_MAX, tune_search.RUNS = 6, 1
    if kill == "search":
        tune.measure = killing(tune.measure)
    if kill == "verdict":
        store.Store.add_sample = killing(store.Store.add_sample)
    words = ["tune", "--minutes", "600", "--seed", "1", "--force", "--results", "results", "--output", "sh.profile"]
    return cli.main([*words, "--", "/bin/sh", "-c", 'x=$(echo "$HAKMEM_BIN_BYTES")'])


def sitting(folder: Path, kill: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, __file__, kill]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)


@synthetic.NEEDS_BUILD
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
    Path("my.profile").write_text("# mine\nHAKMEM_PROFILE=small\r\narenas=1\n")
    (arm,) = arms.find_arms("hakmem:profile=my.profile")
    assert arm.name == "hakmem profile=my.profile"
    assert arm.environment == {"HAKMEM_PROFILE": "small", "HAKMEM_ARENAS": "1"}
    a, b = ab.parse_arms("default", "profile=./my.profile,bin_bytes=1m")
    assert b.environment["HAKMEM_ARENAS"] == "1" and b.environment["HAKMEM_BIN_BYTES"] == "1m"


@pytest.mark.parametrize(
    "content,sentence",
    [("", "holds no setting"), ("# nothing\n\n", "holds no setting"),
     ("arenas=1\narenas\n", "line 2: 'arenas' is not NAME=VALUE"),
     ("arenas= \n", "line 1: 'arenas= ' is not NAME=VALUE"), ("\x7fELF\x01", r"line 1: '\?ELF\?' is not NAME=VALUE")],
)
def test_bad_profile_files(alone, content, sentence):
    Path("bad.profile").write_text(content)
    with pytest.raises(Usage, match=sentence):
        arms.find_arms("hakmem:profile=bad.profile")
    for word in ("none.profile", "./"):
        with pytest.raises(Usage, match="does not exist|is not a file"):
            read_profile(word)


if __name__ == "__main__":
    sys.exit(tune_to_kill(*sys.argv[1:]))
