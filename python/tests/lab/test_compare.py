# SPDX-License-Identifier: MIT
"""compare.py and program.py: honest answers, clear sentences."""

import dataclasses
import os
import re
from pathlib import Path

import pytest
import synthetic
from hakmem.lab import cli, compare, program
from hakmem.lab.compare import Change, Comparison, _amount, baseline_of, compare_arms
from hakmem.lab.model import Session
from hakmem.lab.base import Problem
from hakmem.lab.program import find_program, short_name, split_command
from hakmem.lab.statistics import Ratio
from hakmem.lab.summary import summarise


def session(allocators, again: str = "glibc", **options) -> Session:
    options = {"spread": 0.005, "vary": False, **options}
    return synthetic.session(["g++ big.cc"], allocators, again=again, kind="program", **options)


def answer(allocators, **options) -> str:
    one = session(allocators, **options)
    return compare_arms(one, summarise(one)).answer


@pytest.mark.parametrize(
    ("ours", "other", "spread", "words"),
    [
        ((0.9, 0.8), (1.1, 1.1), 0.005, r"^Compared with glibc, g\+\+ big.cc under hakmem took 9\.9 % less time \(.*needed 20\.0 % "
         r"less memory at its peak; hakmem was the fastest of 3 allocators\.$"),
        ((1.2, 1.5), (0.8, 1.0), 0.005, r"% more time \(.*50\.0 % more memory at its peak.*the fastest of 3 allocators was "
         r"jemalloc \(.*% less time \("),
        ((1.001, 1.0), (1.0, 1.0), 0.02, r"took no measurably different time \(.*needed the same memory at its peak.*"
         "none of the 3 allocators can be told from another in time"),
    ],
)
def test_a_gain_a_loss_and_what_cannot_be_told(ours, other, spread, words):
    assert re.search(words, answer({"glibc": (1.0, 1.0), "hakmem": ours, "jemalloc": other}, spread=spread))


def test_equal_allocators_are_hardly_ever_told_apart():
    false = 0
    for seed in range(15):
        one = session({"glibc": (1, 1), "hakmem": (1, 1)}, spread=0.03, seed=seed)
        (result,) = (r for r in compare_arms(one, summarise(one)).results if r.arm == "hakmem")
        false += result.time.word in ("less", "more")
    assert false == 0


def test_a_difference_below_the_noise_does_not_count():
    one = session({"glibc": (1.0, 1.0), "hakmem": (0.97, 1.0)}, spread=0.0001)
    again = [s for s in one.samples if s.arm == "glibc (again)"]
    one.samples = [s for s in one.samples if s not in again]
    one.samples += [dataclasses.replace(s, wall_ns=int(s.wall_ns * 1.05)) for s in again]
    (result,) = (r for r in compare_arms(one, summarise(one)).results if r.arm == "hakmem")
    assert result.time.p < 0.002 and result.time.floor > 0.04
    assert result.time.word == "unclear"


def test_what_few_runs_show_is_perhaps_so():
    """An interval that excludes 0 is not called no difference, nor is it a proof."""
    (result,) = (r for r in compared(rounds=5).results if r.arm == "hakmem")
    assert result.memory.word == "unclear" and result.memory.is_unproved
    assert "needed perhaps 20.0 % more memory at its peak" in compared(rounds=5).answer
    assert "needed 20.0 % more memory at its peak" in compared(rounds=9).answer


def compared(**options) -> Comparison:
    one = session({"glibc": (1.0, 1.0), "hakmem": (0.9, 1.2)}, **options)
    return compare_arms(one, summarise(one))


def test_too_few_good_rounds_are_not_compared():
    one = session({"glibc": (1.0, 1.0), "hakmem": (0.9, 1.2)})
    one.samples = [s for s in one.samples if s.arm != "hakmem" or s.round < 2]
    comparison = compare_arms(one, summarise(one))
    assert comparison.answer.startswith("Too few rounds of g++ big.cc ended well under both hakmem")
    assert comparison.is_possible
    one.samples = [s for s in one.samples if s.arm != "hakmem"]
    assert not compare_arms(one, summarise(one)).is_possible


@pytest.mark.parametrize(
    ("change", "text"),
    [(Change(Ratio(0.95, 0.93, 0.97), 0.0001, 0.01, "less"), "5.0 % less time (3.0 to 7.0 %)"),
     (Change(Ratio(0.95, 0.93, 0.97), 0.01, 0.01, "unclear"), "perhaps 5.0 % less time (3.0 to "),
     (Change(Ratio(1.01, 0.98, 1.04), 0.5, 0.01, "unclear"), "no measurably different time (-2.0"),
     (Change(Ratio(1.001, 0.998, 1.004), 0.5, 0.01, "unclear"), "the same time"),
     (Change(Ratio(1.013, 1.008, 1.019), 0.0001, 0.014, "unclear"), "no more time than the noise expl"),
     (Change(Ratio(1.006, 1.004, 1.008), 0.0001, 0.002, "unclear"), "hardly more time (+0.4 % to +0.8")],
)
def test_no_sentence_contradicts_its_interval(change: Change, text: str):
    assert _amount(change, "time").startswith(text)


def test_a_program_that_fails_under_ours():
    level = {"glibc": (1, 1), "hakmem": (1, 1), "a": (1, 1)}
    one = session(level, failing=[("g++ big.cc", "hakmem")])
    comparison = compare_arms(one, summarise(one))
    assert "g++ big.cc did not run under hakmem: ended by signal 11" in comparison.answer
    assert any(note.startswith("Under hakmem, 9 of 9 runs failed") for note in comparison.notes)


def with_outputs(one: Session, outputs: dict[str, list[str]]) -> list[str]:
    def printed(arm: str, number: int) -> str:
        known = outputs.get(arm, ["x"])
        return known[number % len(known)]

    one.samples = [dataclasses.replace(s, output_sha256=printed(s.arm, s.round)) for s in one.samples]
    return compare_arms(one, summarise(one)).notes


def test_another_output_under_one_allocator_is_a_warning():
    allocators = {"glibc": (1, 1), "hakmem": (1, 1), "a": (1, 1)}
    notes = with_outputs(session(allocators), {"a": ["y"]})
    assert [n for n in notes if "printed something else" in n][0].startswith("Under a the program")
    assert with_outputs(session(allocators), {}) == []
    changing = {arm: ["x", "y"] for arm in allocators}
    assert with_outputs(session(allocators), changing) == []


def test_the_baseline():
    names = ["hakmem", "jemalloc", "glibc"]
    assert baseline_of([synthetic.arm(name) for name in names]).name == "glibc"
    assert baseline_of([synthetic.arm(name) for name in names[:2]]).name == "jemalloc"
    ours = [synthetic.arm("hakmem"), synthetic.arm("hakmem profile=small")]
    assert [arm.name for arm in compare.ordered(ours)] == ["hakmem profile=small", "hakmem"]
    with pytest.raises(Problem, match="at least two allocators"):
        compare.ordered(ours[:1])


# ---- The program itself. ----


def test_programs_are_found_or_the_reason_said(tmp_path: Path):
    assert find_program("sh").is_absolute()
    with pytest.raises(Problem, match="no program 'no-such-thing' in PATH") as caught:
        find_program("no-such-thing")
    assert caught.value.status == 127
    with pytest.raises(Problem, match="is a directory"):
        find_program(str(tmp_path))
    (tmp_path / "data").write_text("x")
    with pytest.raises(Problem, match="is not executable"):
        find_program(str(tmp_path / "data"))


def test_a_program_that_no_library_can_serve_is_refused(monkeypatch):
    said = "no library can serve it: it is statically linked, has special rights, or never allocates"
    monkeypatch.setattr(program, "prove_program", lambda case, arm: ({}, said))
    with pytest.raises(Problem, match="sh: no library can serve it") as caught:
        program.rehearse(program.make_case(["sh"], "", 9), [synthetic.arm("glibc"), synthetic.arm("hakmem")])
    assert caught.value.status == 126


def test_names_and_load_commands():
    assert short_name(["/usr/bin/g++", "-c", "big.cc"]) == "g++ -c big.cc"
    assert len(short_name(["/bin/x", "y" * 100])) == 48
    assert short_name(["/bin/x", os.fsdecode(b"a\xff")]) == "x 'a?'"
    words = split_command("sh -c 'exit 0'")
    assert words[0].endswith("/sh") and words[1:] == ["-c", "exit 0"]
    for text, sentence in (("", "is empty"), ("'", "cannot be read"), ("no-such-x", "no program")):
        with pytest.raises(Problem, match=sentence):
            split_command(text)


def test_an_empty_load_is_a_mistake_not_a_program_that_never_ends(capsys):
    assert cli.main(["compare", "--load", "", "--", "sh"]) == 2
    assert capsys.readouterr().err == "hakmem: compare: the load command is empty\n"


def test_options_of_the_program_are_its_own(monkeypatch, capsys):
    seen = []

    def remember(command, *_):
        seen.append(command)
        raise Problem("enough")

    monkeypatch.setattr(compare, "make_case", remember)
    assert cli.main(["compare", "--runs", "3", "sh", "-c", "--json"]) == 1
    assert cli.main(["compare", "--", "sh", "--load", "x"]) == 1
    assert seen == [["sh", "-c", "--json"], ["sh", "--load", "x"]]
    assert "hakmem: compare: enough" in capsys.readouterr().err


def idle_server(held: dict[str, float]) -> Session:
    """`held`: MiB after ten seconds."""
    one = session({arm: (1.0, 1.0) for arm in held})
    case = dataclasses.replace(one.cases[0], load=["load"], rest_s=[1.0, 10.0])
    samples = []
    for sample in one.samples:
        kib = held[sample.arm.removesuffix(" (again)")] * 1024 + sample.round
        rest = [[1.0, 90.0 * 1024, 0], [10.0, kib, 0]] if sample.round < 3 else []
        samples.append(dataclasses.replace(sample, rest=rest))
    return dataclasses.replace(one, cases=[case], samples=samples)


def test_what_an_idle_server_holds_is_said_when_it_differs():
    one = idle_server({"glibc": 81.0, "hakmem": 15.0, "jemalloc": 14.5})
    (note,) = [n for n in compare_arms(one, summarise(one)).notes if "idle" in n]
    assert note == (
        "Held by the idle server 10 s after its load: hakmem 15.0 MiB, jemalloc 14.5 MiB and glibc "
        "81.0 MiB."
    )
    same = idle_server({"glibc": 81.0, "hakmem": 80.5})
    assert not [n for n in compare_arms(same, summarise(same)).notes if "idle" in n]
