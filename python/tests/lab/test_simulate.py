# SPDX-License-Identifier: MIT
"""How often verdicts are wrong, of sessions drawn from recorded samples of equal arms.

A new recording, on a quiet machine, in ten minutes:
    PYTHONPATH=python python -m hakmem.lab recording python/tests/lab/data/equal_arms.json
"""

import json
from collections import Counter
from pathlib import Path

import numpy
import pytest
from hakmem.lab import cli, recording, simulate, verdict
from hakmem.lab.problem import Problem
from hakmem.lab.recording import Recorded
from hakmem.lab.simulate import Plant
from hakmem.lab.verdict import GO, INCONCLUSIVE, NO_GO, Rules

RECORDING = Path(__file__).with_name("data") / "equal_arms.json"
SESSIONS = 30
SAME, SLOWER, FASTER, FATTER = simulate.plants(slowdown=0.02, fat=0.05)
RULES = Rules(resamples=499)


# ---- Wrong verdicts. ----


def verdicts(plant: Plant) -> Counter[str]:
    """Of sessions of the default size, in turn of each case alone and of all in one session."""
    recorded = recording.read(RECORDING)
    kinds = [[one] for one in recorded] + [recorded]
    words: Counter[str] = Counter()
    for number in range(SESSIONS):
        words += simulate.simulate(kinds[number % len(kinds)], 1, plant, seed=number).words
    assert words.total() == SESSIONS
    return words


def test_the_recording_is_of_a_machine_that_was_fit():
    findings = json.loads(RECORDING.read_text())["findings"]
    assert not [finding["sentence"] for finding in findings if finding["level"] == "bad"]


def test_equal_arms_are_found_different_once_at_most():
    words = verdicts(SAME)
    assert words[GO] + words[NO_GO] <= 1


def test_two_per_cent_more_time_are_found():
    words = verdicts(SLOWER)
    assert words[NO_GO] >= 0.95 * SESSIONS and words[GO] == 0


def test_five_per_cent_more_memory_block_a_go():
    """Though b takes 5 % less time; and it is the memory that blocks."""
    words = verdicts(FATTER)
    assert words[GO] == 0 and words[NO_GO] >= 0.95 * SESSIONS


# ---- How sessions are drawn. ----


def test_a_session_is_dealt_from_its_rounds():
    """Each round's three values are those of one recorded round, in the order of time."""
    one = simulate.made_up(0.01, rounds=40)
    equal = numpy.sort(one.cost / numpy.median(one.cost, axis=0), axis=1)
    generator = numpy.random.default_rng(1)
    starts = set()
    for _ in range(20):
        (drawn,) = simulate.draw([one], Plant("slow", time=0.5, memory=0.25), generator)
        cost = numpy.array([drawn.cost.a[0], drawn.cost.again[0], drawn.cost.b[0] / 1.5])
        start = int(numpy.argmin(abs(equal - numpy.sort(cost)).sum(axis=1)))
        starts.add(start)
        for number in range(40):
            parts = (drawn.cost.a[number], drawn.cost.again[number], drawn.cost.b[number] / 1.5)
            assert sorted(parts) == pytest.approx(list(equal[(start + number) % 40]))
        assert set(drawn.memory.b.values()) == {1.25}
    assert len(starts) > 5


def test_cases_of_a_session_share_its_time():
    calm = simulate.made_up(0.001, rounds=40)
    both = [Recorded("a", calm.cost, calm.memory), Recorded("b", calm.cost * 3, calm.memory)]
    first, second = simulate.draw(both, SAME, numpy.random.default_rng(2))
    for number in range(40):
        values = [{s.a[number], s.again[number], s.b[number]} for s in (first.cost, second.cost)]
        assert sorted(values[0]) == pytest.approx(sorted(values[1]))


def test_sessions_grow_with_the_noise():
    def rounds(noise: float, length: int = 2000) -> int:
        one = simulate.made_up(noise, length)
        evidence = simulate.draw([one], SAME, numpy.random.default_rng(3))
        return len(simulate.grown(evidence, RULES)[0].cost.a)

    assert rounds(0.003) == verdict.ROUNDS
    assert verdict.ROUNDS < rounds(0.02) < verdict.ROUNDS_MAX
    assert rounds(0.2) == verdict.ROUNDS_MAX
    assert rounds(0.2, length=60) == 60  # there are no more


@pytest.mark.parametrize(
    "plant,word", [(SAME, INCONCLUSIVE), (SLOWER, NO_GO), (FASTER, GO), (FATTER, NO_GO)]
)
def test_what_was_planted_is_found_on_a_quiet_machine(plant, word):
    tally = simulate.simulate([simulate.made_up(0.004)], 20, plant, RULES)
    assert tally.words == {word: 20}
    assert tally.percent_of(word) == 100


def test_rounds_can_be_fixed():
    assert simulate.simulate([simulate.made_up(0.05)], 3, SAME, RULES, rounds=11).rounds == [11] * 3


def test_too_little_to_draw_from_is_one_sentence():
    short, narrow = simulate.made_up(0.01, rounds=8), simulate.made_up(0.01)
    narrow = Recorded("two", narrow.cost[:, :2], narrow.memory[:, :2])
    for one in (short, narrow):
        with pytest.raises(Problem, match="simulating needs 3 arms and 9 rounds"):
            simulate.draw([one], SAME, numpy.random.default_rng(1))


def test_the_table(capsys):
    words = [str(RECORDING), "--sessions", "2", "--rounds", "25", "--case", "random_*"]
    assert cli.main(["simulate", *words]) == 0
    head, names, row = capsys.readouterr().out.splitlines()
    assert head.startswith("2 sessions each") and "slower by 2.0 %" in names
    assert row.startswith("random_mixed_400, noise ") and row.count("(25)") == 4


@pytest.mark.parametrize("words", [[], [str(RECORDING), "--noise", "2%"]])
def test_samples_are_either_recorded_or_made_up(words, capsys):
    assert cli.main(["simulate", *words]) == 2
    assert capsys.readouterr().err == "hakmem: simulate: either FILE or --noise\n"
    assert cli.main(["simulate", "--noise", "0.5%", "--sessions", "2"]) == 0
    assert "made up, noise 0.5 %" in capsys.readouterr().out


def test_the_noise_of_a_recording_is_that_of_a_run():
    """Neither drift nor the disturbed runs count."""
    calm = simulate.made_up(0.02)
    drift = numpy.linspace(1, 2, len(calm.cost))[:, None]
    for one in (calm, Recorded("drifting", calm.cost * drift, calm.memory)):
        assert one.noise == pytest.approx(0.02, rel=0.12)
