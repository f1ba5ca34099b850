# SPDX-License-Identifier: MIT
"""Suites secure and bugs: verdicts of programs with a bug, costs, tables. Programs are fakes."""

import functools
import json
import resource
from pathlib import Path

import pytest
import synthetic
from hakmem.lab import bench, cli, runner, secure, secure_tables, store, workloads
from hakmem.lab.secure import BugCell, Trying, bug_rows, bug_total, read_bugs
from hakmem.lab.measure import MEASURE
from hakmem.lab.model import Arm, Case, Session
from hakmem.lab.base import Problem, Usage
from hakmem.lab.summary import summarise

FAKE = """#!/bin/sh
# What the allocator does of the bug is in the arm's environment.
echo "$2" >>"$0.$2.runs"
[ "$(ulimit -c)" = 0 ] || { echo "core files are possible" >&2; exit 0; }
case $FAKE in
report) echo "fake: double free of 0x1" >&2; kill -ABRT $$ ;;
report_and_on) echo "fake: something is odd" >&2 ;;
ended) kill -SEGV $$ ;;
status) exit 7 ;;
late) echo returned; echo "fake: late" >&2; kill -ABRT $$ ;;
harm) exit 3 ;;
harm_and_report) echo "fake: odd" >&2; exit 3 ;;
no_memory) exit 4 ;;
hangs) sleep 60 ;;
by_turns) [ $(($(wc -l <"$0.$2.runs") % 2)) = 0 ] || { echo "fake: seen" >&2; kill -ABRT $$; } ;;
esac
"""
needs_measure = pytest.mark.skipif(not MEASURE.exists(), reason="lab/measure is not built")


def fake_arm(name: str, what: str = "") -> Arm:
    return Arm(name, None, {"FAKE": what or name})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with bugs; its source is where the laboratory looks."""
    source, program = tmp_path / "bugs.cc", tmp_path / "bugs"
    monkeypatch.setattr(secure, "SOURCE", source)
    monkeypatch.setattr(secure, "PROGRAM", program)
    source.write_text(
        "/* A sentence. */\nint i;\n\n/* A block is freed twice in\n * a row. That is bad. */\n"
        'BUG(double_free, "double free")\n{\n}\n'
        '/* An array is deleted. */\nBUG(delete, "delete")\n{\n}\n'
        '/* Only tags notice it. */\nBUG(tags_read, "memory tag")\n{\n}\n'
    )
    program.write_text(FAKE)
    program.chmod(0o755)
    return program


def test_bugs_are_the_sources_with_a_bug(programs: Path) -> None:
    found = read_bugs()
    assert [(bug.name, bug.title) for bug in found] == [("delete", "An array is deleted"),
                                                        ("double_free", "A block is freed twice in a row")]
    assert found[0].command == [str(programs), "--bug", "delete"] and found[0].kind == "bug"
    secure.check_built(found)
    programs.unlink()
    with pytest.raises(Problem, match="bugs is not built"):
        secure.check_built(found)


def test_the_bugs_of_this_checkout_have_titles_and_are_looked_for_where_they_are_built() -> None:
    found = read_bugs()
    assert len(found) > 30 and all(bug.title for bug in found)
    assert {"double_free", "secrets", "free_of_new"} <= {bug.name for bug in found}
    assert not {"main", "corruption"} & {bug.name for bug in found}


@needs_measure
@pytest.mark.parametrize(
    ("what", "verdict", "said"),
    [("report", secure.REPORT, "fake: double free of 0x1"), ("report_and_on", secure.WARNING, "fake: something is odd"),
     ("ended", secure.ENDED, ""), ("status", secure.ENDED, ""), ("nothing", secure.NOTHING, ""),
     ("late", secure.LATE, "fake: late"), ("harm", secure.HARM, ""), ("harm_and_report", secure.HARM, ""),
     ("no_memory", secure.FAILED, "malloc had no memory for it"), ("hangs", secure.FAILED, "it took longer than 1 s")],
)
def test_verdicts(programs: Path, what: str, verdict: str, said: str) -> None:
    (bug,) = [bug for bug in read_bugs() if bug.name == "double_free"]
    if what == "hangs":
        bug = Case(bug.name, bug.command, kind="bug", timeout_s=1)
    with secure._without_core_files():
        cell = secure.try_bug(bug, fake_arm(what), 1)
    assert cell == BugCell({verdict: 1}, said)


@needs_measure
def test_trying_is_a_part_of_a_session_and_goes_on(programs: Path, tmp_path: Path) -> None:
    found, some = read_bugs(), [fake_arm("report"), fake_arm("by_turns")]
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    trying = Trying(found, 4)

    def go_on(parts: list[Trying]) -> Session:
        return runner.run_session([], some, 4, 1, ["bench"], results=tmp_path, prove=lambda arm: {}, again=False,
                                  parts=parts, shows=True)

    assert len(go_on([Trying(found[:1], 4)]).bugs) == 2
    session = go_on([trying])
    assert [line["case"] for line in session.bugs] == ["delete"] * 2 + ["double_free"] * 2
    assert len(list(tmp_path.glob("*.jsonl"))) == 1 and trying.is_done(session)
    assert store.load(next(tmp_path.glob("*.jsonl"))).bugs == session.bugs
    assert resource.getrlimit(resource.RLIMIT_CORE) == limit
    rows = bug_rows(session)
    assert rows[1].title == "A block is freed twice in a row"
    assert rows[0].cells["report"].counts == {secure.REPORT: 4}
    mixed = rows[0].cells["by_turns"]
    assert mixed.counts == {secure.REPORT: 2, secure.NOTHING: 2} and mixed.report == "fake: seen"
    totals = [bug_total(rows, arm.name) for arm in some]
    assert totals == [secure.BugTotal(2, 2, 2, 0), secure.BugTotal(2, 0, 0, 0)]
    programs.write_text(FAKE + "true\n")
    assert not trying.is_done(session)  # the program is another one
    with pytest.raises(Problem, match="there is no case to measure"):
        go_on([])


def session_with_bugs() -> Session:
    session = synthetic.session(
        ["alpha", "beta"],
        {"hakmem-secure": (1.5, 1.2), "hakmem": (1.0, 1.0), "glibc": (2.0, 0.5), "scudo": (3.0, 2.0)},
        again="hakmem-secure", spread=0.0, vary=False, failing=[("beta", "scudo")],
    )
    session.command = ["bench", "--suite", "secure"]
    cells = {"hakmem-secure": ({secure.REPORT: 5}, "hakmem: double free of 0x1"),
             "hakmem": ({secure.NOTHING: 3, secure.REPORT: 2}, "hakmem: double free"), "glibc": ({secure.HARM: 5}, ""),
             "scudo": ({secure.ENDED: 5}, "")}
    for name in ("double_free", "underflow"):
        session.bugs += [
            {"case": name, "title": "A block <b>", "arm": arm, "sha256": "", "counts": counts, "report": said}
            for arm, (counts, said) in cells.items()
        ]
    return session


def shown(session: Session, width: int) -> str:
    report = secure_tables.report_of(session)
    return synthetic.shown(secure_tables.secure_parts(session, summarise(session), report), width)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_terminal_shows_bugs_costs_and_a_sentence(width: int) -> None:
    text = shown(session_with_bugs(), width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for part in ("nothing 3/5", "report 2/5", "harm", "ended", "double_free", "always stopped", "2.00", "1/2",
                 "beta, scudo: ended"):
        assert part in text, part
    said = " ".join(text.split())
    assert (
        "Of 2 bugs, hakmem-secure notices 2 and stops 2 in every run; none did harm. It takes 1.50 times the time and"
        " 1.20 times the peak memory of hakmem (2 cases). It takes 0.75 times the time" in said
    )


# ---- The suite. ----


def test_patterns_choose_bugs_and_workloads(programs: Path) -> None:
    known = [workloads.Workload(Case("alpha", ["alpha", "500"], suite="core"), secure=["5"]),
             workloads.Workload(Case("lua", ["lua"])), workloads.Workload(Case("beta", ["beta"]))]

    def names(suite: str, patterns: str = "") -> tuple[list[str], list[str]]:
        found, costs = secure.select(known, suite, patterns)
        return [bug.name for bug in found], [one.case.name for one in costs]

    every = ["delete", "double_free"]
    assert names("secure") == (every, ["alpha", "lua"])
    assert names("secure-quick") == (every, ["lua"])
    assert names("bugs") == (every, [])
    assert names("secure", "d*, beta") == (every, ["beta"])
    assert names("secure", "al*") == ([], ["alpha"])
    assert names("bugs", "double*") == (["double_free"], [])
    assert secure.select(known, "secure")[1][0].case.command == ["alpha", "5"]  # shorter
    for suite, pattern in (("bugs", "alpha"), ("secure", "double_free,gamma")):
        with pytest.raises(Usage, match="nothing in suite"):
            names(suite, pattern)


@needs_measure
def test_the_command(programs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bench, "find_arms", lambda spec: [fake_arm("report"), fake_arm("harm")])
    unproved = functools.partial(runner.run_session, prove=lambda arm: {})
    monkeypatch.setattr(runner, "run_session", unproved)
    where = ["--results", str(tmp_path / "results"), "--output", str(tmp_path / "out"), "--force"]
    command = ["bench", "--suite", "bugs", "--runs", "2", *where]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert "Of 2 bugs, report notices 2 and stops 2 in every run" in said.out
    assert "hakmem: not installed and left out: hardened_malloc" in said.err
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"index.html", "results.json"}
    assert cli.main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["secure"]["totals"]["harm"]["harmed"] == 2 and len(data["session"]["bugs"]) == 4
    assert cli.main(["bench", "--suite", "bugs", "--list"]) == 0
    assert "A block is freed twice" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["bench", "--suite", "bugs", "--instructions"]) == 2
    assert "neither --trace nor --instructions" in capsys.readouterr().err
