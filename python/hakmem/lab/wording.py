# SPDX-License-Identifier: MIT
"""Figures and names as tables, sentences and pages show them. Pure."""

from collections.abc import Sequence

from .base import Usage
from .statistics import Ratio


def percent(share: float) -> str:
    """A share without a sign; two digits where one would say 0.0 %."""
    value = abs(share) * 100
    return f"{value:.2f} %" if 0 < value < 0.095 else f"{value:.1f} %"


def parse_percent(text: str) -> float:
    """0.01 of "1%", "1 %" and "0.01"."""
    number, sign, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if sign else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share < 1:
        raise Usage(f"'{text}' is not a share from 0 to 100 %, such as 1%")
    return share


def signed_percent(share: float) -> str:
    return f"{share * 100:+.1f} %"


def interval(ratio: Ratio) -> str:
    """"-0.3 % to +0.8 %": of changes."""
    return " to ".join(signed_percent(end - 1) for end in ratio.ends)


def p_text(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".lstrip("0")


def number(value: float) -> str:
    """A ratio in four characters or about."""
    return f"{value:.2f}" if value < 99.995 else f"{value:.0f}"


def three_digits(value: float) -> str:
    """Of 1.234 "1.23", of 12.34 "12.3"; of more than three digits all before the point."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def counted_thousands(value: float) -> str:
    return f"{value:,.0f}"


def duration(value_ns: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value_ns >= size:
            return f"{three_digits(value_ns / size)} {unit}"
    return f"{three_digits(value_ns)} ns"


def mebibytes(value_kib: float) -> str:
    return three_digits(value_kib / 1024)


def counted(count: int, noun: str) -> str:
    """"1 round", "9 rounds"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def one_line(text: str) -> str:
    return " ".join(text.split())
