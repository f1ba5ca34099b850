# SPDX-License-Identifier: MIT
"""What the laboratory calculates: pure functions on sequences of floats. See decision 0005.

Two arms are compared round by round: the machine's mood (clock, neighbours, heat) is much the same within a round and
drifts between rounds, so the ratios of a round hold less noise than the arms. Ratios are averaged as logarithms, so
that twice as slow and twice as fast cancel out. Effects and floors are fractions: 0.02 is 2 %, in either direction.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy
from scipy import special, stats

CONFIDENCE = 0.95

TRIM = 0.2
"""Share of the ratios left out at each end: a run that something disturbed moves nothing, and of
undisturbed runs the estimate is within a tenth as exact as the mean."""

RESAMPLES = 9999
LESS, MORE, UNCLEAR = "less", "more", "unclear"

EXACT_MAX = 60
"""Values of each arm up to which Mann-Whitney is exact. With 200 the table of all outcomes takes a second; the normal
approximation errs to the safe side: with 60, where the exact p is 0.001, by an eighth, and less with more."""


@dataclass(frozen=True)
class Ratio:
    """How many times the denominator; and, of runs enough, the interval that holds it with this confidence."""

    value: float
    low: float | None = None
    high: float | None = None
    confidence: float = CONFIDENCE

    @property
    def ends(self) -> list[float]:
        """Of the interval, or the value alone."""
        return [self.value] if self.low is None or self.high is None else [self.low, self.high]

    @property
    def inverse(self) -> Ratio:
        low, high = (end and 1 / end for end in (self.high, self.low))
        return Ratio(1 / self.value, low, high, self.confidence)

    @property
    def farthest(self) -> float:
        """The largest of the effects at the ends, as a fraction. Of an A/A ratio it is the noise floor."""
        return max(map(effect_of, self.ends))

    @property
    def standard_error(self) -> float:
        """Of the logarithm, as the interval implies it."""
        width = math.log(self.ends[-1]) - math.log(self.ends[0])
        return width / (2 * float(special.ndtri((1 + self.confidence) / 2)))

    def direction(self, p: float, alpha: float, threshold: float) -> str:
        """LESS or MORE if that is beyond doubt (the test, the interval) and more than the threshold."""
        is_clear = p < alpha and not self.ends[0] <= 1 <= self.ends[-1]
        if not is_clear or effect_of(self.value) <= threshold:
            return UNCLEAR
        return LESS if self.value < 1 else MORE


def effect_of(ratio: float) -> float:
    """0.02 of a ratio of 1.02, and of its inverse."""
    return math.expm1(abs(math.log(ratio)))


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    known = list(values)
    return float(numpy.exp(numpy.mean(numpy.log(known)))) if known else None


def paired_ratios(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> list[float]:
    """Of each round that has both (round -> value), in the order of the rounds."""
    return [numerator[r] / denominator[r] for r in sorted(numerator.keys() & denominator.keys())]


def _centre(logarithms: numpy.ndarray, axis: int = -1) -> numpy.ndarray:
    return stats.trim_mean(logarithms, TRIM, axis=axis)


def _resampling_confidence(count: int, confidence: float) -> float:
    """The level at which a percentile interval of `count` values covers `confidence`.

    Resampling spreads less than sampling; Hesterberg's correction (What Teachers Should Know About
    the Bootstrap, 2015, section 5.3) asks for the wider quantiles a t interval would use.
    """
    student = special.stdtrit(count - 1, (1 + confidence) / 2)
    return float(1 - 2 * special.ndtr(-student * math.sqrt(count / (count - 1))))


def ratio_interval(
    ratios: Sequence[float], seed: int = 1, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Ratio:
    """The typical ratio of the rounds with its bootstrap interval.

    Percentile, not BCa: that covers no better for a trimmed mean, and has no answer for equal
    values, which peak RSS often gives.
    """
    logarithms = numpy.log(numpy.asarray(ratios, dtype=float))
    value = math.exp(_centre(logarithms))
    if len(logarithms) < 2:
        return Ratio(value)
    interval = stats.bootstrap(
        (logarithms,), _centre, n_resamples=resamples, vectorized=True, method="percentile",
        confidence_level=_resampling_confidence(len(logarithms), confidence), rng=numpy.random.default_rng(seed),
    ).confidence_interval
    return Ratio(value, math.exp(interval.low), math.exp(interval.high), confidence)


def typical(ratios: Sequence[float]) -> float:
    """The value of `ratio_interval` alone, without thousands of resamples."""
    return math.exp(_centre(numpy.log(numpy.asarray(ratios, dtype=float))))


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p, exact unless there are ties or many values."""
    has_ties = len(set(first) | set(second)) < len(first) + len(second)
    method = "asymptotic" if has_ties or max(len(first), len(second)) > EXACT_MAX else "exact"
    return float(stats.mannwhitneyu(first, second, alternative="two-sided", method=method).pvalue)


def signed_rank(ratios: Sequence[float]) -> float:
    """Wilcoxon's two-sided p that the ratios lie around 1; equal rounds count for nothing."""
    logarithms = numpy.log(numpy.asarray(ratios, dtype=float))
    logarithms = logarithms[logarithms != 0]
    if len(logarithms) == 0:
        return 1.0
    has_ties = len(set(numpy.abs(logarithms))) < len(logarithms)
    method = "asymptotic" if has_ties else "exact"
    return float(stats.wilcoxon(logarithms, method=method).pvalue)


def either_test(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """The better p of Mann-Whitney and Wilcoxon, doubled, since two questions are asked.

    Each finds what the other misses: Mann-Whitney needs fewer rounds, Wilcoxon sees through drift.
    """
    unpaired = mann_whitney(list(first.values()), list(second.values()))
    paired = signed_rank(paired_ratios(first, second))
    return min(1.0, 2 * min(unpaired, paired))


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p multiplied so that any number of questions is asked at one risk (Holm 1979)."""
    count = len(p_values)
    adjusted = [0.0] * count
    highest = 0.0
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def detectable_effect(standard_error: float, count: int, alpha: float, power: float, threshold: float = 0.0) -> float:
    """The smallest true effect that `count` rounds would find with the given power.

    `standard_error` is that of the log ratio; an effect is found when its test is below alpha and
    its estimate above `threshold`. Student's approximation; rank tests need a few rounds before
    any outcome is below alpha, and find nothing with fewer.
    """
    if count < 2 or 2 / math.comb(2 * count, count) > alpha:
        return math.inf
    tested = special.stdtrit(count - 1, 1 - alpha / 2) * standard_error
    needed = max(tested, math.log1p(threshold))
    return float(math.expm1(needed + special.stdtrit(count - 1, power) * standard_error))


def rounds_for(effect: float, standard_error: float, count: int, alpha: float, power: float, most: int) -> int:
    """The fewest rounds, not below `count`, that would find the effect; at most `most`.

    `standard_error` is what `count` rounds had; it falls with the square root of the rounds.
    """

    def would_find(rounds: int) -> bool:
        error = standard_error * math.sqrt(count / rounds)
        return detectable_effect(error, rounds, alpha, power) <= effect

    most = max(count, most)
    return count + bisect.bisect_left(range(count, most), True, key=would_find)
