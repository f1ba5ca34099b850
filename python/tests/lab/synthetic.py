# SPDX-License-Identifier: MIT
"""Fabricated sessions for tests of what reads sessions. Nothing here was measured.

`session()` draws samples around known true costs, so that a test knows the right answer.
"""

import hashlib
import io
import random
from collections.abc import Mapping, Sequence

import pytest
from hakmem.lab.measure import MEASURE
from hakmem.lab.model import Arm, Case, Failure, Sample, Session
from hakmem.lab.base import BUILD
from rich.console import Console

NEEDS_BUILD = pytest.mark.skipif(not ((BUILD / "libhakmem.so").exists() and MEASURE.exists()),
                                 reason="hakmem is not built")
PEERS = {"glibc": (1.55, 0.92), "mimalloc 3": (1.00, 1.00), "mimalloc 2": (1.03, 1.05), "jemalloc": (1.22, 0.97),
         "google tcmalloc": (1.10, 1.40), "snmalloc": (0.98, 1.13), "gperftools": (1.18, 1.10), "oneTBB": (1.30, 1.60)}
"""Allocator -> (relative cost, relative memory)."""

OURS = {"hakmem": (0.90, 0.90)}

CASE_NAMES = ["random_mixed_400", "replace_400", "replace_20000", "replace_1000000", "larson_1", "larson_2", "larson_4",
              "larson_16"]


def arm(name: str) -> Arm:
    again_of = name.removesuffix(" (again)") if name.endswith(" (again)") else ""
    return Arm(name=name, library=None if name == "glibc" else f"/cache/{name.split(' (')[0].replace(' ', '_')}.so",
               version="1.2.3, crate fabricated 0.1, gcc 12.2 -O3",
               sha256="" if name == "glibc" else hashlib.sha256(name.encode()).hexdigest(), again_of=again_of)


def case(name: str, kind: str = "bench") -> Case:
    return Case(name=name, command=[f"/build/bench/{name}", "1"], kind=kind, title="fabricated")


def rss_series(wall_ms: float, peak_kib: float) -> list[list[float]]:
    """Grows, stays, comes down."""
    shape = [0.1, 0.4, 0.7, 0.9, 1.0, 0.98, 1.0, 0.97, 0.9, 0.5, 0.35]
    return [[wall_ms * i / (len(shape) - 1), peak_kib * part] for i, part in enumerate(shape)]


def sample(case: Case, arm: str, round: int, cost_ns: float, peak_kib: float, operations: int = 1_000_000) -> Sample:
    wall_ns = int(cost_ns * operations)
    workload = None
    if case.kind == "bench":
        workload = {"workload": case.name, "operations": operations, "nanoseconds": wall_ns,
                    "rss_peak_kib": int(peak_kib) + 28, "harness_kib": 28, "user_ns": int(wall_ns * 0.9),
                    "system_ns": int(wall_ns * 0.08)}
    return Sample(case=case.name, arm=arm, round=round, order=round, padding=0,
                  started=f"2026-11-21T10:00:{round % 60:02}Z", status=0, wall_ns=wall_ns, user_ns=int(wall_ns * 0.9),
                  system_ns=int(wall_ns * 0.08), rss_peak_kib=int(peak_kib), rss_mean_kib=peak_kib * 0.8,
                  rss_end_kib=int(peak_kib * 0.35), lazyfree_end_kib=0, minor_faults=int(peak_kib / 4), major_faults=0,
                  voluntary_switches=3, involuntary_switches=5, rss_series=rss_series(wall_ns / 1e6, peak_kib),
                  load_1min=0.1, workload=workload)


def session(
    case_names: Sequence[str] = CASE_NAMES[:6], allocators: Mapping[str, tuple[float, float]] | None = None,
    rounds: int = 9, spread: float = 0.004, again: str = "hakmem", kind: str = "bench", vary: bool = True,
    failing: Sequence[tuple[str, str]] = (), seed: int = 1,
) -> Session:
    """`vary` lets the relative cost differ from case to case; without it they are exact."""
    allocators = {**OURS, **PEERS} if allocators is None else dict(allocators)
    if again in allocators:
        allocators[f"{again} (again)"] = allocators[again]
    random_numbers = random.Random(seed)
    cases = [case(name, kind) for name in case_names]
    result = Session(
        id="20261121T100000Z-bench-fabricated", command=["bench", "--suite", "quick"],
        created="2026-11-21T10:00:00Z",
        machine={"id": "fab0fab0", "cpu": "Imaginary 9000", "cores": 2, "kernel": "6.1.0",
                 "libc": "glibc 2.36", "memory_kib": 25_000_000, "huge_pages": "madvise"},
        commit="0123456789abcdef0123456789abcdef01234567",
        arms=[arm(name) for name in allocators], cases=cases, rounds=rounds, seed=seed,
        findings=[{"level": "warning", "sentence": "The clock governor is powersave."}],
    )
    for one in cases:
        base_cost, base_peak = random_numbers.uniform(2, 400), random_numbers.uniform(3e3, 2e5)
        shifts: dict[str, tuple[float, float]] = {}
        for name, (cost, memory) in allocators.items():
            root = name.removesuffix(" (again)")
            if root not in shifts:
                sigma = 0.12 if vary else 0.0
                shifts[root] = (random_numbers.lognormvariate(0, sigma), random_numbers.lognormvariate(0, sigma))
            for number in range(rounds):
                if (one.name, name) in failing:
                    result.failures.append(Failure(one.name, name, number, -11, "ended by signal 11 (SIGSEGV)", ""))
                    continue
                noise = random_numbers.lognormvariate(0, spread)
                result.samples.append(
                    sample(one, name, number, base_cost * cost * shifts[root][0] * noise,
                           base_peak * memory * shifts[root][1])
                )
    for name in allocators:
        result.proofs[name] = {"malloc": f"/cache/{name}.so"}
    return result


def shown(parts: Sequence[object], width: int) -> str:
    """What a terminal of that width shows of them."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()
