# SPDX-License-Identifier: MIT
"""The suites of hardened allocators: which bugs each notices, and what it costs.

secure        all bugs; costs on the workloads of suite core and some programs (workloads.SECURE)
secure-quick  all bugs; costs on a few of them
bugs          all bugs, no costs: nothing is timed
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from . import workloads
from .arms import OURS, OURS_SECURE, SYSTEM, read_manifest
from .bugs import read_bugs
from .model import Case
from .problem import Usage
from .workloads import Workload

BUGS = "bugs"
SUITES = (*workloads.SECURE, BUGS)
PEERS = ("hardened_malloc", "scudo", "snmalloc-checks", "mimalloc-secure")


def select(known: Sequence[Workload], suite: str, patterns: str = "") -> tuple[list[Case], list[Workload]]:
    """The bugs and the workloads of a suite; patterns choose among the names of both."""
    bugs = read_bugs()
    words = [word.strip() for word in patterns.split(",") if word.strip()]
    if not words:
        return bugs, [one.for_hardened for one in workloads.select(known, suite)]
    chosen = [bug for bug in bugs if any(fnmatch.fnmatchcase(bug.name, word) for word in words)]
    costly = [] if suite == BUGS else [one.case.name for one in known]
    wanted = [word for word in words if fnmatch.filter(costly, word)]
    for word in words:
        if not fnmatch.filter([*costly, *(bug.name for bug in bugs)], word):
            raise Usage(f"nothing in suite {suite} matches '{word}'; --list shows its names")
    costs = workloads.select(known, suite, ",".join(wanted)) if wanted else []
    return chosen, [one.for_hardened for one in costs]


def default_allocators() -> tuple[str, list[str]]:
    """Both forms of hakmem, glibc and the hardened peers that are installed, as --alloc names them;
    and the peers that are not. The first one is that which runs twice, so it is a fast one."""
    entries = read_manifest()
    here = [key for key in PEERS if key in entries and not entries[key].fault]
    names = [OURS, OURS_SECURE, SYSTEM, *here]
    return ",".join(names), [key for key in PEERS if key not in here]
