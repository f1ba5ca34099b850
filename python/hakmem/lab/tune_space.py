# SPDX-License-Identifier: MIT
"""What `tune` may change: for each option a ladder of values, and the profiles on these ladders.

A point is a rung of each ladder: {"bin_bytes": 5}. Values rise by factors, because twice as much
means the same everywhere; "never", "0" and the like stand where their effect is. Pure, but for the
page of the options and the number of CPUs.
"""

from __future__ import annotations

import os
import re

from .places import ROOT
from .problem import Problem

Point = dict[str, int]

PAGE = ROOT / "docs" / "options.md"
"""Generated from the code: the value of each option in each profile."""
STARTS = ("default", "fast", "small")
"""The search begins with these profiles. debug is for finding mistakes."""
NO_LIMIT = str(2**64 - 1)

LADDERS = {  # the values that hold least memory first
    "purge_delay_ms": "0 1 10 30 100 300 1000 3000 10000 never",
    "bin_bytes": "16k 32k 64k 128k 256k 512k 1m 2m",
    "cache_bytes": "512k 1m 2m 4m 8m 16m 32m 64m 128m",
    "cache_bytes_total": f"4m 8m 16m 32m 128m 0 1g {NO_LIMIT}",  # 0: 1/64 of the RAM
    "huge_cache_bytes": "0 1m 4m 16m 64m 256m 1g never",
    "huge_threshold": "never 1g 256m 64m 16m 8m 4m 2m 0",
    "arenas": "1 2 4 8 16 32 64 128",  # of the machine's CPUs: see ladders
    "scavenger": "1 0",
}


def ladders() -> dict[str, list[str]]:
    """Heaps: up to four for each CPU; 0 stands for one for each."""
    cpus = len(os.sched_getaffinity(0))
    rungs = {name: ladder.split() for name, ladder in LADDERS.items()}
    fewer = [count for count in rungs["arenas"] if int(count) < cpus]
    rungs["arenas"] = [*fewer, "0", str(2 * cpus), str(4 * cpus)]
    return rungs


def profiles() -> dict[str, Point]:
    """Where the profiles of hakmem are on the ladders."""
    rungs = ladders()
    rows = re.findall(r"^\| `HAKMEM_(\w+)` \|.*\| (.*) \| [a-z ]+ \|$", PAGE.read_text(), re.M)
    points: dict[str, Point] = {name: {} for name in STARTS}
    for option, cells in rows:
        ladder = rungs.get(option.lower(), [])
        default, *others = cells.replace("no limit", NO_LIMIT).split("; ")
        differing = dict(other.split(" ", 1) for other in others)
        for name in STARTS:
            value = differing.get(name, default)
            if value in ladder:
                points[name][option.lower()] = ladder.index(value)
    if any(len(point) < len(rungs) for point in points.values()):
        raise Problem(f"{PAGE} does not hold what the profiles of hakmem are; restore it")
    return points


def effective(point: Point) -> Point:
    """Without a scavenger that has nothing to purge: hakmem then warns, and is no sound arm."""
    rungs = ladders()
    if rungs["purge_delay_ms"][point["purge_delay_ms"]] != "never":
        return point
    return {**point, "scavenger": rungs["scavenger"].index("0")}


def settings_of(point: Point) -> dict[str, str]:
    """The fewest options that say it, a profile among them; empty is the default."""
    rungs = ladders()
    ways = []
    for name, start in profiles().items():
        rest = {option: rungs[option][at] for option, at in point.items() if at != start[option]}
        ways.append({**({"profile": name} if name != STARTS[0] else {}), **rest})
    return min(ways, key=len)
