# SPDX-License-Identifier: MIT
"""Sessions: complete, resumed after the worst, honest about failures; instructions per operation."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hakmem.lab import instructions, runner, store, workloads
from hakmem.lab.base import BUILD, Problem
from hakmem.lab.instructions import Count, Counting, Uncountable, doubled, quotient
from hakmem.lab.model import Arm, Case, Session
from hakmem.lab.runner import make_schedule
import pytest

GLIBC = Arm("glibc")
HANG_S = 120  # only against hangs


def fine(arm: Arm) -> dict[str, str]:
    return {"malloc": arm.library or "libc"}


def program(name: str, script: str, *words: str) -> Case:
    return Case(name, ["/bin/sh", "-c", script, name, *words], kind="program")


def run(cases: list[Case], arms: list[Arm], rounds: int, results: Path, **more: object) -> Session:
    return runner.run_session(cases, arms, rounds, 1, ["bench"], results=results, prove=more.pop("prove", fine), **more)


def session_to_kill(results: str, log: str, runs: str) -> int:
    """Each run but the proofs leaves a line in the log. A run waits for ever if the log has that many lines: such a session
    is still there to be killed."""
    script = (
        'sleep 0.05; [ -n "$LD_DEBUG" ] && exit; [ -e "$1" ] || : >"$1"; '
        'until [ "$(wc -l <"$1")" -lt "$(cat "$1.runs")" ]; do sleep 0.1; done; '
        'echo "$0 $ARM" >>"$1"'
    )
    Path(f"{log}.runs").write_text(runs)  # no word of the command: it would be another session
    arms = [Arm(name, environment={"ARM": name}) for name in ("one", "two")]
    try:
        run([program(name, script, log) for name in ("a", "b")], arms, 4, Path(results))
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.status
    return 0


def start_session(results: Path, log: Path, runs: int = 1000) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(results), str(log), str(runs)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def saved(results: Path) -> int:
    return sum(len(store.load(path).samples) for path in results.glob("*.jsonl"))


def wait_for_runs(results: Path, count: int) -> None:
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        try:
            if saved(results) >= count:
                return
        except Problem:
            pass  # the head is just being written
        time.sleep(0.01)
    raise AssertionError("no runs are saved")


def end_by(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """What it said. Python drops an interrupt that comes in a destructor: then another is sent."""
    for _ in range(5):
        process.send_signal(number)
        try:
            return process.communicate(timeout=HANG_S / 4)[1]
        except subprocess.TimeoutExpired:
            assert number == signal.SIGINT
    raise AssertionError(f"it does not end by {number.name}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_kill_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """Killed twice in the middle, the same command goes on; no run twice, none missing."""
    results, log = tmp_path / "results", tmp_path / "log"
    for count in (3, 8):
        process = start_session(results, log, count + 8)
        wait_for_runs(results, count)
        before = saved(results)
        said = end_by(process, number)
        assert process.returncode == (130 if number == signal.SIGINT else -number), said
        assert saved(results) >= before
        if number == signal.SIGINT:
            assert f"{saved(results)} of 24 runs are saved, the same command goes on" in said
    process = start_session(results, log)
    _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert "going on with the session of" in said
    (path,) = results.glob("*.jsonl")
    session = store.load(path)
    assert session.is_complete and not session.failures
    keys = Counter((s.case, s.arm, s.round) for s in session.samples)
    assert len(keys) == 24 and set(keys.values()) == {1}
    # What ended was saved, but for the one run of each kill that was under way.
    assert 24 <= len(log.read_text().splitlines()) <= 26


def test_the_first_arm_runs_again(tmp_path: Path) -> None:
    arms = [dataclasses.replace(GLIBC, name="x"), GLIBC]
    session = run([program("a", "true")], arms, 2, tmp_path)
    assert [arm.name for arm in session.arms] == ["x", "glibc", "x (again)"]
    assert session.is_complete
    assert all(len(session.of("a", arm.name)) == 2 for arm in session.arms)
    assert set(session.proofs) >= {"x", "glibc", "x (again)"}
    alone = run([program("a", "true")], arms, 1, tmp_path, again=False)
    assert len(alone.arms) == 2


def test_a_finished_session_that_was_not_shown_is_given_again(tmp_path: Path) -> None:
    """Killed between the last run and the page: nothing is measured twice."""
    first = run([program("a", "true")], [GLIBC], 1, tmp_path, shows=True)
    again = run([program("a", "true")], [GLIBC], 1, tmp_path, shows=True)
    assert again.id == first.id and again.samples == first.samples
    store.mark_shown(again, tmp_path)
    assert run([program("a", "true")], [GLIBC], 1, tmp_path, shows=True).id != first.id


def test_a_session_that_grew_goes_on_with_all_its_rounds(tmp_path: Path) -> None:
    """Killed before and after it grew: the same command measures what is left."""
    done = tmp_path / "done"
    script = '[ -n "$LD_DEBUG" ] || echo x >>"$1"'
    case = program("a", script, str(done))

    def interrupted(session: Session) -> int:
        raise KeyboardInterrupt

    def sitting(grow: Callable[[Session], int]) -> Session:
        return run([case], [GLIBC], 2, tmp_path / "results", grow=grow)

    with pytest.raises(Problem, match="4 of 4 runs are saved"):
        sitting(interrupted)
    (path,) = (tmp_path / "results").glob("*.jsonl")
    with store.Store.resume(path) as opened:
        opened.add("rounds", {"rounds": 4})
    session = sitting(lambda session: 4)
    assert session.id == path.stem and session.rounds == 4 and session.is_complete
    assert len(done.read_text().splitlines()) == len(session.samples) == 8
    assert sitting(lambda session: 4).id != path.stem


def test_a_session_of_fixed_rounds_never_grows(tmp_path: Path) -> None:
    """Its verdict has been seen: to go on until it is another would find what is not there."""
    fixed = run([program("a", "true")], [GLIBC], 1, tmp_path)
    grown = run([program("a", "true")], [GLIBC], 1, tmp_path, grow=lambda session: 2)
    assert grown.id != fixed.id and len(grown.samples) == 4
    assert store.load(tmp_path / f"{fixed.id}.jsonl").rounds == 1


def test_three_failures_in_a_row_stop_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    script = 'echo x >>"$1"; [ "$ARM" != bad ] || { echo oops >&2; exit 4; }'
    arms = [Arm("good"), Arm("bad", environment={"ARM": "bad"})]
    session = run([program("a", script, str(log))], arms, 6, tmp_path / "results", again=False)
    assert len(session.of("a", "good")) == 6
    sentences = [f.sentence for f in session.failures]
    assert sentences[:3] == ["it ended with status 4: oops"] * 3
    assert sentences[3:] == ["not run after 3 failures in a row"] * 3
    assert session.is_complete
    # Six good and three bad runs, and the proof of each arm.
    assert len(log.read_text().splitlines()) == 11
    assert "a under bad: it ended with status 4: oops" in capsys.readouterr().err


def test_a_build_in_the_middle_ends_the_session(tmp_path: Path) -> None:
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\n[ -n \"$LD_DEBUG\" ] || echo '# changed' >>\"$0\"\n")
    script.chmod(0o755)
    with pytest.raises(Problem, match="program was changed while it was being measured"):
        run([Case("a", [str(script)], kind="program")], [GLIBC], 3, tmp_path / "results")


def bench(name: str, line: str) -> Case:
    return Case(name, ["/bin/sh", "-c", f"echo '{line}'", name], kind="bench")


def test_a_bench_must_say_what_it_did(tmp_path: Path) -> None:
    cases = [bench("silent", "hello"), bench("idle", '{"operations": 0, "nanoseconds": 5}'),
             bench("good", '{"operations": 4, "nanoseconds": 10, "rss_end_kib": 77, "rss_peak_kib": 99}')]
    session = run(cases, [GLIBC], 1, tmp_path, again=False)
    said = {f.case: f.sentence for f in session.failures}
    assert said == {"silent": "it printed no line of JSON", "idle": "it says that it did no operation"}
    (good,) = session.samples
    assert good.case == "good" and good.cost_ns == 2.5
    assert (good.rss_end_kib, good.peak_kib) == (77, 99)


@pytest.mark.skipif(not (BUILD / "bench/random_mixed").exists(), reason="the benches are not built")
def test_a_real_workload_refuses_the_wrong_allocator(tmp_path: Path) -> None:
    case = Case("real", [str(BUILD / "bench/random_mixed"), "--smoke"])
    ours = Arm("hakmem", str(BUILD / "libhakmem.so"))
    other = Arm("other", "/lib/x86_64-linux-gnu/libm.so.6")  # a library without malloc
    session = run([case], [ours, GLIBC, other], 1, tmp_path, again=False)
    assert {s.arm for s in session.samples} == {"hakmem", "glibc"}
    assert session.of("real", "hakmem")[0].workload["serving"]["malloc"] == ours.library
    assert "as --expect says" in session.failures[0].sentence


def test_what_a_sample_holds(tmp_path: Path) -> None:
    for _ in range(10):  # a busy machine may not let measure look at it in time
        session = run([program("a", "sleep 0.2")], [GLIBC], 1, tmp_path, again=False)
        (sample,) = session.samples
        if sample.rss_series:
            break
    assert sample.wall_ns >= 0.2e9 and sample.cost_ns == sample.wall_ns
    assert sample.rss_peak_kib > 0 and sample.rss_series and 0 <= sample.padding < 4096
    assert sample.started.endswith("Z") and sample.status == 0
    assert session.machine["cores"] == len(os.sched_getaffinity(0))
    assert "hostname" not in session.machine


def test_an_interrupt_that_breaks_a_cleanup_is_one(tmp_path: Path, monkeypatch: Any) -> None:
    """Ctrl-C within shutil.rmtree closes a file twice; a disk that is full is no Ctrl-C."""

    def broken(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError(errno.EBADF, "Bad file descriptor")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cases, arms = [program("a", "exit 0")], [Arm("one")]
    monkeypatch.setattr(runner, "measure", broken)
    with pytest.raises(Problem, match="^stopped; 0 of 2 runs are saved, the same") as caught:
        run(cases, arms, 1, tmp_path)
    assert caught.value.status == 130
    monkeypatch.setattr(runner, "measure", full)
    with pytest.raises(OSError, match="No space left"):
        run(cases, arms, 1, tmp_path)


HARNESS = """
rest=$(echo "$*" | grep -o -- '--rest [0-9]*' | sed 's/--rest \\(.*\\)/[\\1,5000,0]/' | paste -sd,)
echo '{"operations": 1, "nanoseconds": 1, "rss_peak_kib": 9000, "harness_kib": 1000,' \
    '"rest": ['$rest']}'
"""


def test_only_the_first_rounds_rest(tmp_path: Path) -> None:
    """They are asked for the memory after the work, without the bench's own tables."""
    case = Case("bench", ["/bin/sh", "-c", HARNESS, "bench"], kind="bench", rest_s=[1.0, 10.0])
    done = run([case], [GLIBC], runner.REST_ROUNDS + 1, tmp_path, again=False)
    rests = [sample.rest for sample in done.of("bench", "glibc")]
    assert rests == [[[1, 4000, 0], [10, 4000, 0]]] * runner.REST_ROUNDS + [[]]


def test_a_bench_that_rests_by_itself(tmp_path: Path) -> None:
    line = (
        '{"operations": 1, "nanoseconds": 1, "rss_peak_kib": 9000, "harness_kib": 1000,'
        ' "arguments": {"IDLE": 2}, "rss_idle_kib": 5000, "lazyfree_idle_kib": 7}'
    )
    case = Case("bench", ["/bin/sh", "-c", f"echo '{line}'", "bench"], kind="bench")
    (sample,) = run([case], [GLIBC], 1, tmp_path, again=False).of("bench", "glibc")
    assert sample.rest == [[2, 4000, 7]]


@pytest.mark.skipif(not (BUILD / "bench/startup").exists(), reason="the benches are not built")
def test_a_real_workload_rests() -> None:
    words = [str(BUILD / "bench/replace"), "--smoke", "--rest", "0.01", "--rest", "0.02"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    rest = json.loads(done.stdout)["rest"]
    assert [second for second, _, _ in rest] == [0.01, 0.02] and rest[0][1] > 0
    for wrong in (["--rest", "2", "--rest", "1"], ["--rest", "x"]):
        assert subprocess.run([words[0], *wrong], capture_output=True, timeout=60).returncode == 2


def test_the_seed_decides_the_order() -> None:
    """More rounds do not change the earlier ones."""
    cells = (["one", "two", "three"], ["a", "b", "c", "d"])
    runs = make_schedule(*cells, 5, 7)
    assert [run.order for run in runs] == list(range(60)) and len({run.key for run in runs}) == 60
    assert make_schedule(*cells, 9, 7)[:60] == runs != make_schedule(*cells, 5, 8)


# ---- Instructions per operation. ----


def test_the_start_cancels_out() -> None:
    short, long = Count(5_000 + 40 * 100, 100, {}), Count(5_000 + 40 * 200, 200, {})
    assert quotient(short, long)["per_operation"] == 40.0
    with pytest.raises(Uncountable):
        quotient(long, short)
    with pytest.raises(Uncountable):
        quotient(short, short)


def test_the_argument_that_is_doubled() -> None:
    arguments = {"KIND": "lifo", "SIZE": 16, "ROUNDS": 1000, "SEED": 42}
    words = doubled(["prog", "lifo", "16", "1000", "42"], arguments)
    assert words == ["prog", "lifo", "16", "2000", "42"]
    assert doubled(["prog", "0.15", "8"], {"SLEEP": 0.15, "MIN": 8}) == ["prog", "0.3", "8"]
    with pytest.raises(Uncountable, match="how much it does"):
        doubled(["prog", "5"], {"SEED": 5})
    with pytest.raises(Uncountable, match="how much it does"):
        doubled(["prog"], {"ITER": 5})


def test_every_workload_says_how_much_it_does() -> None:
    """An argument of that name must be in the workload's table."""
    for one in workloads.read_workloads():
        if one.script is None:
            name = Path(one.case.command[0]).name
            source = (workloads.ROOT / "bench" / f"{name}.c").read_text()
            named = [word for word in instructions.COUNT_ARGUMENTS if f"({word}," in source]
            assert named, name


@pytest.mark.skipif(shutil.which("valgrind") is None or not (BUILD / "bench/random_mixed").exists(),
                    reason="valgrind or the benches are missing")
def test_counting_is_the_last_part_of_a_session(tmp_path: Path) -> None:
    (known,) = workloads.select(workloads.read_workloads(), patterns="random_mixed_400")
    small = workloads.Workload(known.case, ["20000", "400", "42"])
    arms = [Arm("hakmem", str(BUILD / "libhakmem.so")), Arm("broken", "/lib/libm.so.6")]
    counting = Counting([small])

    def measured(count: Counting | None) -> runner.Session:
        case = small.smoke_command
        one = workloads.Case("random_mixed_400", case)
        return runner.run_session([one], arms, 1, 1, ["bench"], results=tmp_path, prove=lambda arm: {},
                                  parts=[count] if count else [])

    first = measured(None)
    assert first.instructions == []
    second = measured(counting)
    assert second.id == first.id  # the same runs, and the counts
    lines = {line["arm"]: line for line in second.instructions}
    assert set(lines) == {"hakmem", "broken"}  # nothing again for the A/A arm
    assert 10 < lines["hakmem"]["per_operation"] < 500
    assert lines["broken"]["per_operation"] is None and lines["broken"]["sentence"]
    assert counting.is_done(second)


if __name__ == "__main__":
    sys.exit(session_to_kill(*sys.argv[1:]))
