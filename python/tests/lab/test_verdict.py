# SPDX-License-Identifier: MIT
"""Verdicts over fabricated samples with known answers."""

import dataclasses
import math

from hakmem.lab import options, statistics, verdict
from hakmem.lab.verdict import GO, INCONCLUSIVE, NO_GO, Evidence, Rules, Series
import numpy
import pytest
from scipy import stats
import synthetic

RULES = Rules(resamples=499)


def series(factor=1.0, rounds=25, noise=0.004, seed=1, drift=0.0, again=1.0):
    """100 on average under a; b takes `factor` times as much, the A/A arm `again` times."""
    generator = numpy.random.default_rng(seed)
    trend = numpy.linspace(0, drift, rounds)
    parts = [100 * part * numpy.exp(generator.normal(0, noise, rounds) + trend) for part in (1.0, again, factor)]
    return Series(*(dict(enumerate(map(float, part))) for part in parts))


def evidence(name="one", cost=1.0, memory=1.0, latency=None, seed=1, failures=(0, 0), **facts):
    memory = series(memory, noise=0.002, seed=seed + 100)
    timing = None if latency is None else series(latency, noise=0.01, seed=seed + 200)
    one = Evidence(name, series(cost, seed=seed, **facts), memory, timing)
    return dataclasses.replace(one, failures_a=failures[0], failures_b=failures[1])


def word(*cases, rules=RULES):
    return verdict.decide(cases, rules).word


GOOD = {"name": "good", "cost": 0.9}


@pytest.mark.parametrize(
    "cases,word,parts",
    [
        ([{"cost": 0.95}], GO, ("new takes 5.", "less time than plain on one (", "and needs no more memory.")),
        ([{"cost": 1.02}], NO_GO, ("more time on one",)),
        ([{"noise": 0.02}], INCONCLUSIVE, ("a true one of", "95 times in 100")),
        ([{"cost": 1.004, "noise": 0.002}], INCONCLUSIVE, ("all but excluded",)),
        ([{"cost": 1.03, "again": 1.04}], INCONCLUSIVE, ()),  # below the noise floor
        ([{"cost": 0.9, "memory": 1.05}], NO_GO, ("more memory at its peak on one", "though it takes")),
        ([{"cost": 0.9, "latency": 1.0}], GO, ()),
        ([{"cost": 0.9, "latency": 1.15}], NO_GO, ("p99 latency on one",)),
        ([{"cost": 0.9, "failures": (0, 2)}], NO_GO, ("fails on one",)),
        ([{"failures": (1, 1)}], INCONCLUSIVE, ()),
        ([{"cost": 0.5, "rounds": 8}], INCONCLUSIVE, ("8 samples of each arm; a verdict needs 9",)),
        # What is gained here does not pay for a loss there.
        ([GOOD, {"name": "bad", "cost": 1.03, "seed": 7}], NO_GO, ("on bad", "on good")),
        ([GOOD, {"name": "same", "seed": 7}], GO, ("on 1 of 2 workloads",)),
        ([GOOD, {"name": "odd", "failures": (1, 0)}], INCONCLUSIVE, ("odd",)),
    ],
)
def test_words_and_sentences(cases, word, parts):
    result = verdict.decide([evidence(**facts) for facts in cases], RULES, "plain", "new")
    assert result.word == word
    assert all(part in result.sentence for part in parts), result.sentence


@pytest.mark.parametrize("facts,word,least", [({}, INCONCLUSIVE, 29), ({"cost": 1.02}, NO_GO, 29),
                                              ({"cost": 0.95, "memory": 1.05}, NO_GO, 30)])
def test_verdicts_are_seldom_wrong(facts, word, least):
    """Of thirty comparisons with known answers, drawn anew, as long as their noise asks for."""
    words = [verdict.decide([evidence(seed=n, noise=0.01, rounds=50, **facts)], RULES).word for n in range(30)]
    assert words.count(word) >= least, words


def test_an_effect_below_the_smallest_does_not_count():
    assert word(evidence(cost=0.98)) == GO
    assert word(evidence(cost=0.98), rules=dataclasses.replace(RULES, effect_min=0.03)) != GO


def test_drift_of_the_machine_hides_nothing():
    """15 % over the session: the rounds see through it, where Mann-Whitney alone does not."""
    one = evidence(cost=1.02, drift=0.15).cost
    assert statistics.mann_whitney(list(one.a.values()), list(one.b.values())) > 0.1
    assert word(evidence(cost=1.02, drift=0.15)) == NO_GO
    assert word(evidence(cost=1.0, drift=0.15)) == INCONCLUSIVE


def test_memory_in_doubt_blocks_a_go():
    doubtful = Evidence("one", series(0.9), series(1.012, noise=0.05))
    result = verdict.decide([doubtful], RULES)
    assert result.word == INCONCLUSIVE
    assert "peak memory on one is not known to stay within 2.0 %" in result.sentence


def test_without_the_second_arm_nothing_is_decided():
    one = evidence(cost=0.5)
    blind = dataclasses.replace(one, cost=dataclasses.replace(one.cost, again={}))
    assert word(blind) == INCONCLUSIVE


def test_a_quiet_machine_needs_no_more_rounds():
    assert verdict.rounds_wanted([evidence(noise=0.004)], RULES) == options.ROUNDS


def test_noise_asks_for_more_rounds():
    """Of each arm 2 %: (3.3 + 1.7) x 1.07 x sqrt(2 / rounds) x 2 % is 1.5 % with 102 rounds."""
    wanted = [verdict.rounds_wanted([evidence(noise=n, seed=3)], RULES) for n in (0.01, 0.02, 0.1)]
    assert wanted[0] < wanted[1] < wanted[2] == options.ROUNDS_MAX
    assert wanted[1] == pytest.approx(102, rel=0.4)


def test_rounds_are_asked_for_without_a_look_at_b():
    """Neither its effect nor its noise: a verdict must not decide when to stop."""
    one = evidence(noise=0.015)
    wild = {r: 100.0 + 50 * (r % 7) for r in one.cost.b}
    other = dataclasses.replace(one, cost=dataclasses.replace(one.cost, b=wild))
    wanted = verdict.rounds_wanted([one], RULES)
    assert options.ROUNDS < wanted == verdict.rounds_wanted([other], RULES)


def test_what_cannot_be_judged_asks_for_no_rounds():
    assert verdict.rounds_wanted([], RULES) == 0
    assert verdict.rounds_wanted([evidence(noise=0.05, rounds=8)], RULES) == 0
    assert verdict.rounds_wanted([evidence(noise=0.05, failures=(0, 1))], RULES) == 0


def test_the_sentence_names_the_rounds_that_would_do():
    result = verdict.decide([evidence(cost=1.0, noise=0.02)], RULES)
    assert 0.02 < result.cases[0].cost.detectable < 0.06
    needed = result.cases[0].cost.rounds_needed
    assert f"one of 1.5 % with about {needed} rounds." in result.sentence
    assert needed == pytest.approx(102, rel=0.4)
    result = verdict.decide([evidence(cost=1.0, noise=0.2)], RULES)
    assert result.sentence.endswith("A quieter machine is needed.")


def test_samples_of_a_session():
    session = synthetic.session(["first", "second"], {**synthetic.OURS, "glibc": (1.2, 1.0)}, rounds=12, vary=False,
                                failing=[("second", "glibc")])
    first, second = verdict.evidence_of(session, "hakmem", "glibc")
    assert sorted(first.cost.a) == sorted(first.cost.again) == list(range(12))
    assert first.latency is None
    assert (second.failures_a, second.failures_b) == (0, 12)
    result = verdict.decide([first, second], RULES, "hakmem", "glibc")
    assert result.word == NO_GO
    assert result.cases[0].cost.change == pytest.approx(1.2 / 0.9 - 1, rel=0.02)


# ---- Known answers of statistics.py, and how often its intervals and tests are right. ----


def _undisturbed(generator, count):
    return generator.lognormal(0, 0.01, count)


def _heavy_tailed(generator, count):
    return numpy.exp(0.01 * generator.standard_t(3, count))


def _disturbed(generator, count):
    """A tenth of the runs of both arms is slower by 8 % on average."""

    def arm():
        slow = (generator.random(count) < 0.1) * generator.exponential(0.08, count)
        return numpy.exp(generator.normal(0, 0.01, count) + slow)

    return arm() / arm()


@pytest.mark.parametrize("noise", [_undisturbed, _heavy_tailed, _disturbed])
@pytest.mark.parametrize("count", [9, 21])
def test_interval_covers_the_truth(noise, count):
    generator = numpy.random.default_rng(11)
    intervals = [statistics.ratio_interval(list(noise(generator, count)), seed, resamples=399) for seed in range(150)]
    covered = sum(interval.low <= 1 <= interval.high for interval in intervals) / 150
    assert 0.93 <= covered <= 0.99


def test_rank_tests_by_hand():
    """Three against three, U = 1: 4 of 20 orders are as extreme; ties; all five rounds slower: 2 of 32 signs."""
    assert statistics.mann_whitney([1, 2, 4], [3, 5, 6]) == pytest.approx(4 / 20)
    assert statistics.mann_whitney([5.0] * 9, [5.0] * 9) == 1.0
    assert statistics.mann_whitney([5.0] * 9, [6.0] * 9) < 1e-4
    assert statistics.signed_rank([1.01, 1.02, 1.03, 1.04, 1.05]) == pytest.approx(2 / 32)


@pytest.mark.parametrize("shift,p", [(0.2, 0.11), (0.4, 0.008), (0.5, 0.0015)])
def test_mann_whitney_of_many_values_is_close_and_not_bolder(shift, p):
    first, second = numpy.random.default_rng(4).normal(0, 1, (2, statistics.EXACT_MAX + 1))
    second = second + shift
    exact = stats.mannwhitneyu(first, second, method="exact").pvalue
    found = statistics.mann_whitney(list(first), list(second))
    assert exact == pytest.approx(p, rel=0.1)
    assert 0.998 * exact <= found <= 1.13 * exact


def test_holm_by_hand():
    """0.01 x 3; 0.03 x 2; then 0.04, not less than the one before."""
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.5, 0.9]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_detectable_effect_is_detected_that_often():
    generator = numpy.random.default_rng(3)
    count, noise, found = 15, 0.01, 0
    standard_error = noise * math.sqrt(2 / count)
    effect = statistics.detectable_effect(standard_error, count, 0.002, 0.8)
    for _ in range(400):
        first, second = generator.lognormal(0, noise, (2, count))
        found += statistics.mann_whitney(list(first), list(second * (1 + effect))) < 0.002
    assert 0.72 <= found / 400 <= 0.88


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.02])
def test_rounds_for_an_effect_are_the_fewest(noise):
    count = 25

    def found(rounds):
        error = noise * math.sqrt(2 / rounds)
        return statistics.detectable_effect(error, rounds, 0.001, 0.95)

    rounds = statistics.rounds_for(0.015, noise * math.sqrt(2 / count), count, 0.001, 0.95, 1000)
    assert found(rounds) <= 0.015
    assert rounds == count or found(rounds - 1) > 0.015
