# SPDX-License-Identifier: MIT
"""The suite attacks: what an attacker can do who has more than one bug (tests/secure/attacks.c), and the figures of it.

The program attacks runs each attack in processes of its own and prints an outcome for each, a verdict of secure.py, and
figures. Of addresses the figures are many, and what counts is how well they can be guessed: their entropy.
"""

import json
import math
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .base import BUILD, Problem
from .measure import measure
from .model import Arm, Case

SUITE, KIND = "attacks", "attack"
PROGRAM = BUILD / "tests" / "secure" / "attacks"
TIMEOUT_S = 1800.0  # for all runs of an attack; the program itself ends each run that hangs
ADDRESSES = ("first_", "distance_")
"""How figures begin that are places of blocks."""
UNITS = {"tries": "tries", "pairs_least": "pairs at least", "pairs_median": "pairs, median", "bytes_up": "up",
         "bytes_down": "down"}
"""Other figures that tables show."""


def read_attacks() -> list[Case]:
    """All attacks, in their order."""
    if not PROGRAM.is_file():
        raise Problem(f"{PROGRAM} is not built; ./hakmem bench --list builds it")
    lines = subprocess.run([str(PROGRAM), "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [Case(name, [str(PROGRAM), name], kind=KIND, suite=SUITE, title=title, timeout_s=TIMEOUT_S)
            for name, _, title in (line.split(" ", 2) for line in lines)]


def attempt(attack: Case, arm: Arm, runs: int) -> tuple[dict[str, int], str, dict[str, list[int]]]:
    """Runs by outcome, the first line that the allocator wrote, and the figures of all runs."""
    case = Case.from_json(attack.to_json() | {"command": [*attack.command, str(runs)]})
    outcome = measure(case, arm)
    counts: Counter[str] = Counter()
    figures: dict[str, list[int]] = {}
    said = ""
    for line in outcome.output.splitlines():
        try:
            run = json.loads(line)
        except ValueError:
            continue  # cut off at the timeout
        counts[run["outcome"]] += 1
        said = said or run["said"]
        for name, value in run["figures"].items():
            figures.setdefault(name, []).append(value)
    if not counts:
        return {"failed": 1}, outcome.sentence(case) or outcome.errors.strip()[:300], {}
    return dict(counts), said, figures


@dataclass(frozen=True)
class Entropy:
    """How well one of several addresses can be guessed. Sums over bits take them as independent."""

    values: int
    distinct: int
    varying: int  # bits that are not always the same
    low: int  # bits from the lowest on that are
    bits: float  # sum of the bits' entropies
    least: float  # sum of their min-entropies, -log2 of the likelier value: below `bits` by chance, too
    rank: int  # bits that do not follow from others by exclusive or


def entropy_of(values: Sequence[int]) -> Entropy:
    count = len(values)
    bits = least = 0.0
    varying = []
    for bit in range(64):
        share = sum(value >> bit & 1 for value in values) / count
        if 0 < share < 1:
            varying.append(bit)
            bits -= share * math.log2(share) + (1 - share) * math.log2(1 - share)
            least -= math.log2(max(share, 1 - share))
    basis: list[int] = []
    for value in values:
        rest = value ^ values[0]
        for one in basis:
            rest = min(rest, rest ^ one)
        if rest:
            basis.append(rest)
    return Entropy(count, len(set(values)), len(varying), varying[0] if varying else 64, bits, least, len(basis))


def figure_lines(figures: Mapping[str, Sequence[int]]) -> list[str]:
    """What a table shows of them, a line each."""
    lines = []
    for name, values in figures.items():
        if name.startswith(ADDRESSES):
            lines.append(f"{name.replace('_', ' ')}: {_entropy_text(entropy_of(values))}")
        elif name in UNITS:
            low, high = min(values), max(values)
            both = _number(low) if low == high else f"{_number(low)} to {_number(high)}"
            lines.append(f"{both} {UNITS[name]}")
    return lines


def _entropy_text(entropy: Entropy) -> str:
    if not entropy.varying:
        return "always the same"
    return f"{entropy.bits:.1f} bits, {entropy.rank} independent, {entropy.low} low fixed"


def _number(value: int) -> str:
    return f"{value:,}"
