# SPDX-License-Identifier: MIT
"""Which run comes when: pure, and the same for the same seed.

A round holds every case under every arm once. The arms of a case run one after the other, so
that a slow drift of the machine hits them alike; their order, and the order of the cases, is drawn
anew for each round. The first arm runs twice under two names (the A/A arm): what lies between
the two is noise. Each run gets random padding in its environment, which moves the stack: a fixed
layout favours one arm or the other by accident (Mytkowicz et al., 2009, "Producing wrong data
without doing anything obviously wrong").
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from .model import Arm

PADDING_LIMIT = 4096  # a page: the stack's place within it is what padding changes


@dataclass(frozen=True)
class Run:
    """One process to be measured."""

    case: str
    arm: str
    round: int
    order: int
    padding: int

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.case, self.arm, self.round)


def with_again(arms: Sequence[Arm]) -> list[Arm]:
    """The arms and, last, the first one again; unchanged if there is such an arm already."""
    if not arms or any(arm.again_of for arm in arms):
        return list(arms)
    first = arms[0]
    return [*arms, dataclasses.replace(first, name=f"{first.name} (again)", again_of=first.name)]


def make_schedule(cases: Sequence[str], arms: Sequence[str], rounds: int, seed: int) -> list[Run]:
    """All runs of a session in their order."""
    runs: list[Run] = []
    for number in range(rounds):
        # A generator per round: more rounds do not change the earlier ones.
        draw = random.Random(f"{seed}/{number}")
        for case in draw.sample(list(cases), len(cases)):
            for arm in draw.sample(list(arms), len(arms)):
                padding = draw.randrange(PADDING_LIMIT)
                runs.append(Run(case, arm, number, len(runs), padding))
    return runs
