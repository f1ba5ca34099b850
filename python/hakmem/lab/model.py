# SPDX-License-Identifier: MIT
"""What the laboratory stores and passes around: see lab/README.md.

Plain data without behaviour beyond reading and writing itself. All sizes are KiB where a name
ends in _kib, all durations nanoseconds where it ends in _ns.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


class _Record:
    """to_json and from_json of a dataclass; fields a newer version added are ignored."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]):
        names = {f.name for f in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in names})


@dataclass(frozen=True)
class Arm(_Record):
    """What serves a case: a preloaded library, or none (the C library), and variables."""

    name: str  # unique in a session, as shown in tables: "hakmem", "mimalloc 3", "hakmem (again)"
    library: str | None = None  # absolute path for LD_PRELOAD
    environment: dict[str, str] = field(default_factory=dict)
    version: str = ""  # "3.3.2, crate libmimalloc-sys 0.1.49, gcc 12.2 -O3"
    sha256: str = ""  # of the library file
    again_of: str = ""  # the A/A arm: the name of the arm it repeats

    @property
    def is_ours(self) -> bool:
        return self.name.split(" ")[0] in ("hakmem", "hakmem-secure")


@dataclass(frozen=True)
class Case(_Record):
    """One workload with fixed arguments."""

    name: str
    command: list[str]  # absolute program path and arguments
    kind: str = "bench"
    """"bench": prints the harness's JSON line; "program": wall time counts; "bug": see secure.py;
    "attack": see attacks.py; "server": see servers.py."""
    suite: str = "full"  # the smallest suite it belongs to: quick, core, full
    threads: int = 1
    load: list[str] = field(default_factory=list)  # command that loads a server, and ends
    title: str = ""  # what it imitates, a few words
    directory: str = ""  # where it runs; "" is a fresh temporary folder
    timeout_s: float = 120.0
    rest_s: list[float] = field(default_factory=list)  # when to read memory after the work
    metric: str = ""  # pattern of the number that a program or its load prints, and that counts
    is_rate: bool = False  # of the metric, more is better

    @property
    def without_rest(self) -> Case:
        """The same, but its memory is not read again after the work."""
        return dataclasses.replace(self, rest_s=[])


@dataclass(frozen=True)
class Sample(_Record):
    """One process and what was measured of it."""

    case: str
    arm: str
    round: int
    order: int  # position in the whole schedule
    padding: int  # bytes added to the environment
    started: str  # ISO 8601, UTC
    status: int
    wall_ns: int
    user_ns: int
    system_ns: int
    rss_peak_kib: int
    rss_mean_kib: float
    rss_end_kib: int | None
    lazyfree_end_kib: int | None
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    rss_series: list[list[float]] = field(default_factory=list)  # [[ms, rss_kib], ...]
    load_1min: float = 0.0
    workload: dict[str, Any] | None = None  # the harness's line
    output_sha256: str = ""  # of what a program printed; "" of a bench
    rest: list[list[float]] = field(default_factory=list)
    """After the work: [[seconds, rss_kib, lazyfree_kib], ...]; empty where nothing rests."""
    metric: float | None = None  # by Case.metric; the inverse of a rate, so that less is better
    serving: dict[str, Any] | None = None  # of a server: latencies and costs of its answers

    @property
    def cost_ns(self) -> float:
        """What is compared, lower is better: ns per operation, or a program's metric or time."""
        if self.metric is not None:
            return self.metric
        if self.serving is not None:
            return self.serving["cpu_ns"]
        if self.workload is not None:
            return self.workload["nanoseconds"] / self.workload["operations"]
        return float(self.wall_ns)

    @property
    def peak_kib(self) -> int:
        """Peak RSS; a workload's own tables (harness_kib) do not count as the allocator's."""
        if self.workload is not None:
            return self.workload["rss_peak_kib"] - self.workload.get("harness_kib", 0)
        return self.rss_peak_kib

    @property
    def p99_ns(self) -> float | None:
        """The slower of the p99 latencies of allocating and freeing, where they were recorded."""
        latency = (self.workload or {}).get("latency")
        if not latency:
            return None
        return max(part["p99"] for part in latency.values() if isinstance(part, dict))


@dataclass(frozen=True)
class Failure(_Record):
    """A run that did not end well."""

    case: str
    arm: str
    round: int
    status: int
    sentence: str
    started: str


@dataclass
class Session(_Record):
    """The head of a session file and, after reading, all that follows it."""

    id: str
    command: list[str]
    created: str
    machine: dict[str, Any]
    commit: str
    arms: list[Arm]
    cases: list[Case]
    rounds: int
    seed: int
    findings: list[dict[str, str]] = field(default_factory=list)  # the doctor's
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    proofs: dict[str, dict[str, str]] = field(default_factory=dict)  # arm -> symbol -> file
    instructions: list[dict[str, Any]] = field(default_factory=list)
    bugs: list[dict[str, Any]] = field(default_factory=list)  # one bug under one arm (bugs.py)
    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of servers: answers a second by case and arm when each asks as fast as it is answered."""
    is_shown: bool = False  # the user has seen its tables and its page

    def of(self, case: str, arm: str) -> list[Sample]:
        """The samples of one cell in the order of their rounds."""
        cell = [s for s in self.samples if s.case == case and s.arm == arm]
        return sorted(cell, key=lambda s: s.round)

    @property
    def done(self) -> int:
        """Runs, and those that failed or were given up."""
        return len(self.samples) + len(self.failures)

    @property
    def total(self) -> int:
        return self.rounds * len(self.arms) * len(self.cases)

    @property
    def is_complete(self) -> bool:
        return self.done >= self.total
