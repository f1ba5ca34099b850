# SPDX-License-Identifier: MIT
"""Known answers of statistics.py, and how often its intervals and tests are right."""

import math

import numpy
import pytest
from hakmem.lab import statistics
from scipy import stats


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
