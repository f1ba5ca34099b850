# SPDX-License-Identifier: MIT
"""The beliefs of lab/cost_model.toml, what they predict, and where a measurement contradicts. Pure.

A path is a sum of parts; a cache line that two parts name is touched once. The machine model is a sum, too (cycles_of).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from .base import Problem, read_toml

QUANTITIES = ("instructions", "lines", "atomics", "syscalls", "faults", "cycles")
"""What is predicted and measured of one operation."""
FLOOR = {"instructions": 6.0, "lines": 2.0}
"""Relative tolerances never go below these: a compiler's whim on a short path is no belief."""
MACHINE = ("instructions_per_cycle", "near_cycles", "l2_cycles", "far_cycles", "atomic_cycles", "bytes_per_cycle",
           "syscall_ns", "map_ns", "fault_ns")
"""What things cost: believed, or measured where the machine lets itself be measured."""

Machine = Mapping[str, float]


@dataclass(frozen=True)
class Part:
    """A stretch of code that several paths share: the cost of one use."""

    reason: str
    instructions: float = 0.0
    repeated: float = 0.0
    lines: str = ""  # names
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
    option: str = ""  # NAME=VALUE
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
    wrong: bool = False


def times_of(text: str) -> dict[str, float]:
    """Of "enter carve_object*63" how often each is there."""
    words = (word.partition("*") for word in text.split())
    return {name: float(times or 1) for name, _, times in words}


def load(file: FilePath) -> Model:
    """Reads the beliefs; whatever is wrong with the file is one sentence."""
    data = read_toml(file)
    try:
        parts = {name: Part(reason, **cost) for name, (cost, reason) in data["part"].items()}
        paths = {
            name: Path(name, title, times_of(uses), **{**facts, "counters": times_of(facts.get("counters", ""))})
            for name, (title, facts, uses) in data["path"].items()
        }
        model = Model({name: data["machine"][name] for name in MACHINE}, data["tolerance"], parts, paths)
    except (KeyError, TypeError, ValueError) as error:
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
        found = sum(getattr(part, quantity) * times for part, times in uses)
        # The only thread takes locks by plain stores.
        return found + (total("locked") if quantity == "atomics" and path.threads > 1 else 0.0)

    named = len({line for part, _ in uses for line in part.lines.split()})
    return {"instructions": total("instructions") + total("repeated"),
            "lines": named + total("lines_each") + total("stored_each"), "atomics": total("atomics"),
            "syscalls": total("syscalls"), "faults": total("faults"),
            "cycles": cycles_of(machine, path, total, cycles_per_ns)}


def cycles_of(machine: Machine, path: Path, total: Callable[[str], float], cycles_per_ns: float) -> float:
    """Instructions at the core's width, then every wait one after the other.

    A near line that has a name costs nothing: its address is known early, so its load overlaps.
    Only the steps of a walk wait for each other, and lines that are not near.
    """
    kernel_ns = (total("syscalls") * machine["syscall_ns"] + total("maps") * machine["map_ns"]
                 + total("faults") * machine["fault_ns"])
    return (
        total("instructions") / machine["instructions_per_cycle"]
        + max(0.0, total("lines_each") - path.l2) * machine["near_cycles"]
        + path.l2 * machine["l2_cycles"] + path.far * machine["far_cycles"]
        + total("atomics") * machine["atomic_cycles"]
        + path.bytes / machine["bytes_per_cycle"] + kernel_ns * cycles_per_ns
    )


def measured_machine(believed: Machine, measured: Machine) -> dict[str, float]:
    """The beliefs with what could be measured in their place; 0 stands for "could not"."""
    return {name: measured.get(name, 0) or belief for name, belief in believed.items()}


def judge_machine(model: Model, measured: Machine) -> dict[str, Belief]:
    """The constants one by one; those that cannot be measured equal themselves."""
    tolerance = model.tolerance["machine"]
    return {name: Belief(believed, measured[name], is_wrong("cycles", believed, measured[name], tolerance))
            for name, believed in model.machine.items() if measured[name] != believed}


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
    """Counters that do not say that every operation took the path, and only that one: counted, believed."""
    pairs = {name: (counted.get(name, 0.0), believed.get(name, 0.0)) for name in sorted({*believed, *counted})}
    return {name: pair for name, pair in pairs.items() if abs(pair[0] - pair[1]) > 1e-9}
