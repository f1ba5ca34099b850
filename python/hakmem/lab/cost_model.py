# SPDX-License-Identifier: MIT
"""The beliefs of lab/cost_model.toml, what they predict, and where a measurement contradicts. Pure.

A path is a sum of parts; a cache line that two parts name is touched once. The machine model is
a sum, too (cycles_of).
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from .problem import Problem

QUANTITIES = ("instructions", "lines", "atomics", "syscalls", "faults", "cycles")
"""What is predicted and measured of one operation."""

FLOOR = {"instructions": 6.0, "lines": 2.0}
"""Relative tolerances never go below these: a compiler's whim on a short path is no belief."""


@dataclass(frozen=True)
class Machine:
    """What things cost: believed, or measured where the machine lets itself be measured."""

    instructions_per_cycle: float
    near_cycles: float
    l2_cycles: float
    far_cycles: float
    atomic_cycles: float
    bytes_per_cycle: float
    syscall_ns: float
    map_ns: float
    fault_ns: float


@dataclass(frozen=True)
class Part:
    """A stretch of code that several paths share: the cost of one use."""

    reason: str
    instructions: float = 0.0
    repeated: float = 0.0
    lines: tuple[str, ...] = ()
    lines_each: float = 0.0
    stored_each: float = 0.0
    atomics: float = 0.0
    locked: float = 0.0
    syscalls: float = 0.0
    maps: float = 0.0
    faults: float = 0.0


@dataclass(frozen=True)
class Path:
    """What one operation does, as uses of parts."""

    name: str
    title: str
    parts: Mapping[str, float]
    counters: Mapping[str, float] = field(default_factory=dict)  # the library's, for each operation
    threads: int = 1
    l2: float = 0.0
    far: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Model:
    machine: Machine
    tolerance: Mapping[str, float]
    parts: Mapping[str, Part]
    paths: Mapping[str, Path]


@dataclass(frozen=True)
class Belief:
    """One quantity of one path: what was predicted, and what was found. None: not measured."""

    predicted: float
    measured: float | None = None
    is_wrong: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"predicted": self.predicted, "measured": self.measured, "wrong": self.is_wrong}


@dataclass(frozen=True)
class Verdict:
    """One path: its beliefs by quantity, and how its own counters disagree, if they do."""

    path: Path
    beliefs: dict[str, Belief]
    nanoseconds: float | None = None
    noise_ns: float = 0.0
    functions: dict[str, float] = field(default_factory=dict)  # instructions by function
    stray: dict[str, tuple[float, float]] = field(default_factory=dict)  # counted, believed

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path.name, "title": self.path.title,
            "beliefs": {name: belief.to_json() for name, belief in self.beliefs.items()},
            "nanoseconds": self.nanoseconds, "noise_ns": self.noise_ns, "functions": self.functions,
            "stray_counters": {k: list(v) for k, v in self.stray.items()},
        }


def load(file: FilePath) -> Model:
    """Reads the beliefs; whatever is wrong with the file is one sentence."""
    try:
        data = tomllib.loads(file.read_text())
        parts = {
            name: Part(**{**entry, "lines": tuple(entry.get("lines", ()))})
            for name, entry in data["part"].items()
        }
        paths = {name: Path(name=name, **entry) for name, entry in data["path"].items()}
        model = Model(Machine(**data["machine"]), data["tolerance"], parts, paths)
    except OSError as error:
        raise Problem(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise Problem(f"{file} is not a cost model: {error}") from error
    for path in paths.values():
        for name in path.parts:
            if name not in parts:
                raise Problem(f"{file} is not a cost model: {path.name} uses no part '{name}'")
    return model


def predict(model: Model, machine: Machine, path: Path, cycles_per_ns: float) -> dict[str, float]:
    """One operation of the path on the machine, by quantity."""
    uses = [(model.parts[name], times) for name, times in path.parts.items()]

    def total(quantity: str) -> float:
        if quantity == "atomics":  # the only thread takes locks by plain stores
            return total_of("atomics") + (total_of("locked") if path.threads > 1 else 0.0)
        return total_of(quantity)

    def total_of(quantity: str) -> float:
        return sum(getattr(part, quantity) * times for part, times in uses)

    named = len({line for part, _ in uses for line in part.lines})
    return {
        "instructions": total("instructions") + total("repeated"),
        "lines": named + total("lines_each") + total("stored_each"), "atomics": total("atomics"),
        "syscalls": total("syscalls"), "faults": total("faults"),
        "cycles": cycles_of(machine, path, total, cycles_per_ns),
    }


def cycles_of(machine: Machine, path: Path, total: Callable[[str], float], cycles_per_ns: float) -> float:
    """Instructions at the core's width, then every wait one after the other.

    A near line that has a name costs nothing: its address is known early, so its load overlaps.
    Only the steps of a walk wait for each other, and lines that are not near.
    """
    kernel_ns = (
        total("syscalls") * machine.syscall_ns
        + total("maps") * machine.map_ns
        + total("faults") * machine.fault_ns
    )
    return (
        total("instructions") / machine.instructions_per_cycle
        + max(0.0, total("lines_each") - path.l2) * machine.near_cycles
        + path.l2 * machine.l2_cycles
        + path.far * machine.far_cycles
        + total("atomics") * machine.atomic_cycles
        + path.bytes / machine.bytes_per_cycle
        + kernel_ns * cycles_per_ns
    )


def measured_machine(believed: Machine, measured: Mapping[str, float]) -> Machine:
    """The beliefs with what could be measured in their place; 0 stands for "could not"."""
    known = {f.name for f in dataclasses.fields(Machine)}
    found = {k: v for k, v in measured.items() if k in known and v > 0}
    return dataclasses.replace(believed, **found)


def judge_machine(model: Model, measured: Machine) -> dict[str, Belief]:
    """The constants one by one; those that cannot be measured equal themselves."""
    beliefs = {}
    for constant in dataclasses.fields(Machine):
        believed, found = getattr(model.machine, constant.name), getattr(measured, constant.name)
        if found != believed:
            wrong = is_wrong("cycles", believed, found, model.tolerance["machine"])
            beliefs[constant.name] = Belief(believed, found, wrong)
    return beliefs


def is_wrong(quantity: str, predicted: float, measured: float, tolerance: float) -> bool:
    """Does the measurement contradict the belief? Cycles: by a factor; counts: by a share or,
    where they are small whole numbers, by an amount."""
    if quantity == "cycles":
        return not predicted / tolerance <= measured <= predicted * tolerance
    if quantity in FLOOR:
        tolerance = max(tolerance * predicted, FLOOR[quantity])
    return abs(measured - predicted) > tolerance


def judge(model: Model, predicted: Mapping[str, float], measured: Mapping[str, float | None]) -> dict[str, Belief]:
    beliefs = {}
    for quantity in QUANTITIES:
        belief, found = predicted[quantity], measured.get(quantity)
        wrong = found is not None and is_wrong(quantity, belief, found, model.tolerance[quantity])
        beliefs[quantity] = Belief(belief, found, wrong)
    return beliefs


def stray_counters(believed: Mapping[str, float], counted: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Counters that do not say that every operation took the path, and only that one."""
    names = sorted({*believed, *counted})
    pairs = {name: (counted.get(name, 0.0), float(believed.get(name, 0.0))) for name in names}
    return {name: pair for name, pair in pairs.items() if abs(pair[0] - pair[1]) > 1e-9}
