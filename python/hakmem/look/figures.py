# SPDX-License-Identifier: MIT
"""Figures in words: sizes, counts, times, shares."""
import math

TIMES = ((1000, 1, "ms"), (60_000, 1000, "s"), (3_600_000, 60_000, "min"), (86_400_000, 3_600_000, "h"), (math.inf, 86_400_000, "days"))


def in_steps(number, step, units):
    """The number in the largest of the units that fits, and that unit; a step lies between two."""
    for unit in units[:-1]:
        if abs(number) < step:
            return number, unit
        number /= step
    return number, units[-1]


def size(number, small="B"):
    """1536 as '1.5 KiB'."""
    number, unit = in_steps(number, 1024, (small, "KiB", "MiB", "GiB", "TiB"))
    return f"{number:.0f} {unit}" if unit == small else f"{number:.1f} {unit}"


def in_words(number):
    """The same, where "B" would be too short."""
    return size(number, "bytes")


def change_in_words(change):
    return "–" if change == 0 else ("+" if change > 0 else "−") + in_words(abs(change))


def count(number):
    """1536000 as '1.5M'."""
    number, unit = in_steps(number, 1000, ("", "k", "M", "G"))
    return f"{number:.1f}{unit}" if unit else f"{number:.0f}"


def duration(ms):
    """1500 as '1.5 s'."""
    if ms < 1:
        return "under 1 ms"
    one, unit = next((one, unit) for below, one, unit in TIMES if ms < below)
    return f"{ms:.0f} ms" if one == 1 else f"{ms / one:.1f} {unit}"


def percent_text(part, whole):
    """A share; what is little but not nothing is not called 0 %."""
    share = 100 * part / whole if whole else 0
    if 0 < share < 1:
        return "under 1\N{NO-BREAK SPACE}%"
    if 99 < share < 100:
        return "over 99\N{NO-BREAK SPACE}%"
    return f"{math.floor(share + .5)}\N{NO-BREAK SPACE}%"
