# SPDX-License-Identifier: MIT
"""ab.py and decision_record.py: arms, refusals, and records begun before the run."""

import dataclasses
import importlib.util
import json
import re
import signal
from pathlib import Path

import pytest
import synthetic
from hakmem.lab import ab, arms, cli, decision_record, doctor, runner
from hakmem.lab.decision_record import Plan
from hakmem.lab.model import Arm, Case, Session
from hakmem.lab.base import BUILD, ROOT, Problem, Usage
from hakmem.lab.verdict import Rules, decide, evidence_of

BAD = [{"level": "bad", "sentence": "The machine burns.", "remedy": "Put it out."}]


@pytest.fixture(autouse=True)
def _no_build(monkeypatch, tmp_path):
    """An arm without a build; caches and results in the test's own folder; a fit machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", "/build/libhakmem.so", {}, "0.1"))
    monkeypatch.setattr(doctor, "fit", lambda: (True, []))


def measured(cases, both, rounds, seed, command, *, factor=0.95, **_) -> Session:
    """What the runner would give back: b takes `factor` times as long."""
    names = [arm.name for arm in both]
    session = synthetic.session([case.name for case in cases], {names[0]: (1.0, 1.0), names[1]: (factor, 1.0)},
                                rounds=rounds, again=names[0], vary=False)
    return dataclasses.replace(session, id=f"20261121T100000Z-ab-{names[1].split('=')[-1]}")


@pytest.fixture
def fabricated(monkeypatch):
    """ab without running anything; the cases need not be built."""
    case = Case("random_mixed_400", ["/build/bench/random_mixed"])
    monkeypatch.setattr(ab.proof, "prove", lambda arm: {})
    monkeypatch.setattr(ab, "_cases", lambda program, suite, workload: [case])
    monkeypatch.setattr(runner, "run_session", measured)


def run(*words: str) -> int:
    return cli.main(["ab", *words])


def test_arms_of_libraries(tmp_path):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libhakmem.so").write_bytes(folder.encode())
    a, b = ab.parse_arms(f"lib={tmp_path}/old/libhakmem.so", f"lib={tmp_path}/new/libhakmem.so,bin_bytes=1m")
    assert a.name == "hakmem old/libhakmem.so"
    assert b.name == "hakmem new/libhakmem.so bin_bytes=1m"
    assert b.library == f"{tmp_path}/new/libhakmem.so"
    assert a.sha256 != b.sha256


@synthetic.NEEDS_BUILD
@pytest.mark.parametrize("setting", ["PURGE=0", "PURGE_DELAY_MS=soon"])
def test_the_library_itself_judges_options(monkeypatch, capsys, tmp_path, setting):
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", str(BUILD / "libhakmem.so")))
    assert run("--b", setting.lower(), "--", "true") == 1
    assert f"HAKMEM_{setting} ignored" in capsys.readouterr().err and not list(tmp_path.rglob("*.md"))


def test_an_unfit_machine_is_refused(fabricated, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(doctor, "fit", lambda: (False, BAD))
    assert run("--b", "bin_bytes=1m") == 1
    assert "not fit for a verdict now: The machine burns." in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.md"))
    assert run("--b", "bin_bytes=1m", "--force") == 0
    output = capsys.readouterr().out
    assert output.startswith("GO: hakmem bin_bytes=1m takes ") and "less time than hakmem on random_mixed_400" in output
    assert max(map(len, output.splitlines()[1:])) <= 80


@pytest.mark.parametrize(
    "words,sentence",
    [(["--b", "default"], "are the same"), (["--b", "profile"], "neither option=value"),
     (["--b", "=3"], "neither option=value"), (["--b", "lib=/there/is/none.so"], "no library"),
     (["--rounds", "8"], "a verdict needs --rounds 9"), (["--record", "auto"], "a record needs --why"),
     (["--min-effect", "much"], "'much' is not a share")],
)
def test_bad_requests_are_one_sentence(fabricated, capsys, words, sentence):
    assert run("--b", "bin_bytes=1m", *words) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_a_program_and_workloads_exclude_each_other(capsys):
    assert run("--b", "bin_bytes=1m", "--suite", "quick", "--", "true") == 2
    assert "either a program of your own" in capsys.readouterr().err


def test_the_question_is_on_disk_before_the_run(fabricated, monkeypatch, tmp_path):
    def look(*arguments, **options):
        (record,) = (tmp_path / "data/hakmem/results").glob("ab-*.md")
        text = record.read_text()
        assert "Smallest effect that counts: 3.0 % of time" in text
        assert text.count("Not measured yet.") == 5
        return measured(*arguments, **options)

    monkeypatch.setattr(runner, "run_session", look)
    assert run("--b", "bin_bytes=1m", "--min-effect", "3%") == 0
    assert not list((tmp_path / "data/hakmem/results").glob("ab-*.md"))


def test_an_interrupted_run_keeps_what_was_fixed(fabricated, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise Problem("stopped", 130)

    record = tmp_path / "record.md"
    words = ["--b", "bin_bytes=1m", "--why", "It halves the refills.", "--record", str(record)]
    monkeypatch.setattr(runner, "run_session", stop)
    assert run(*words) == 130
    begun = record.read_text().split("## Machine")[0]
    assert run(*words, "--min-effect", "5%") == 2  # other rules are another experiment
    monkeypatch.setattr(runner, "run_session", measured)
    assert run(*words) == 0
    text = record.read_text()
    assert text.startswith(begun) and "Not measured yet." not in text
    assert run(*words) == 2  # what is complete is never written over


@synthetic.NEEDS_BUILD
def test_a_noisy_machine_is_measured_longer(monkeypatch, capsys, tmp_path):
    """Until no more rounds are asked for, unless it was told how many."""
    library = BUILD / "libhakmem.so"
    monkeypatch.setattr(arms, "our_arm", lambda: Arm("hakmem", str(library)))
    monkeypatch.setattr(ab, "ROUNDS", 9)
    asked = []

    def wanted(evidence, rules):
        asked.append(len(evidence[0].cost.a))
        return min(asked[-1] + 3, 12)

    monkeypatch.setattr(ab, "rounds_wanted", wanted)
    words = ["--b", "purge_delay_ms=0", "--json"]
    assert run(*words, "--", "true") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["cases"][0]["cost"]["rounds"] == 12
    assert "asks for 12 rounds instead of 9" in said.err
    assert "12 rounds. Raw file" in Path(json.loads(said.out)["record"]).read_text()
    assert asked == [9, 12]
    assert run(*words, "--rounds", "10", "--", "true") == 0
    assert json.loads(capsys.readouterr().out)["cases"][0]["cost"]["rounds"] == 10
    assert asked == [9, 12]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_kill_is_an_interrupt(fabricated, monkeypatch, number):
    monkeypatch.setattr(runner, "run_session", lambda *_, **__: signal.raise_signal(number))
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert run("--b", "bin_bytes=1m") == 130
        signal.signal(number, signal.SIG_IGN)  # as nohup does
        run("--b", "bin_bytes=1m", "--rounds", "8")
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def plan(**changes) -> Plan:
    values = dict(title="Bins of a megabyte", why="Refills are 3 % of the instructions.",
                  words=["ab", "--b", "bin_bytes=1m"], a=Arm("hakmem"), b=Arm("hakmem bin_bytes=1m"),
                  cases=[Case("one", ["/one"]), Case("a | b", ["/two"])], rounds=25, rules=Rules(), key="0123456789")
    return Plan(**{**values, **changes})


def completed(path: Path, factor: float, **changes) -> str:
    one = plan(**changes)
    decision_record.begin(path, one)
    session = measured(one.cases, [one.a, one.b], 25, 1, [], factor=factor)
    verdict = decide(evidence_of(session, *one.names), Rules(resamples=499), *one.names)
    decision_record.complete(path, one, session, verdict)
    return path.read_text()


@pytest.mark.parametrize("factor,word", [(0.95, "GO"), (1.0, "INCONCLUSIVE"), (1.05, "NO-GO")])
def test_a_record_is_whole(tmp_path, factor, word):
    text = completed(tmp_path / "record.md", factor)
    decision = text.split("## Decision\n\n")[1]
    assert decision.startswith(f"{word}: ")
    assert "| a \\| b | " in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {10}
    assert "25 rounds. Raw file: 20261121T100000Z-ab-1m.jsonl" in text


def test_records_get_the_next_number(tmp_path):
    assert decision_record.numbered_path("First, of all!", tmp_path).name == "0001-first-of-all.md"
    (tmp_path / "0007-other.md").write_text("")
    assert decision_record.numbered_path("Second", tmp_path).name == "0008-second.md"
    with pytest.raises(Usage, match="needs a --title"):
        decision_record.numbered_path("...", tmp_path)


def test_the_check_of_documents_accepts_a_record(tmp_path):
    """The sections and the length of lines that tools/check_docs.py asks of an experiment."""
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / "tools/check_docs.py")
    check_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check_docs)
    folder = tmp_path / "docs/decisions"
    folder.mkdir(parents=True)
    text = completed(folder / "0001-bins.md", 0.95, why="Refills are 3 % of `the work`. " * 20)
    assert check_docs.check_records(tmp_path) == []
    long = [line for line in text.splitlines() if len(line) > check_docs.LINE_MAX]
    assert all(line.startswith("|") for line in long)
    assert not re.search(r"`the\n", text)
