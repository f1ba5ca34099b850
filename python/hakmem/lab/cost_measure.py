# SPDX-License-Identifier: MIT
"""What a path really costs: lab/paths run by itself, under callgrind and under lackey.

By itself: the library's reports before and after each batch say that the path was taken, getrusage counts page faults,
the time stamp counter times. callgrind counts instructions and locked instructions of each batch
alone, exactly, whatever else the machine does; the median batch stands for all, since every 64th
slow operation ticks, which is a path of its own. lackey prints every load and store, so that the
cache lines of one operation can be counted; the driver's own data and the stack are left out.
"""

import dataclasses
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import Problem
from .cost_model import Path as ModelPath

MEASURED = "paths_measured"
"""The driver's function that runs a batch (lab/paths/paths.c)."""
OPTIONS = {"HAKMEM_PURGE_DELAY_MS": "never", "HAKMEM_HUGE_THRESHOLD": "never"}
"""Nothing is purged or trimmed between rounds, and no huge page makes faults rarer here than there."""
OUTLIER_FACTOR = 4

LINE_BYTES = 64
STACK_BYTES = 8 << 20
LIMIT_S = 600.0


@dataclass(frozen=True)
class Counts:
    """Of one operation; None where valgrind is missing or cannot tell."""

    counters: dict[str, float]
    syscalls: float
    faults: float
    instructions: float | None = None
    atomics: float | None = None
    lines: float | None = None
    functions: dict[str, float] = field(default_factory=dict)


class Driver:
    """lab/paths, with the options that each path needs."""

    def __init__(self, program: Path) -> None:
        if not program.exists():
            raise Problem(f"{program} is not there; type: ./hakmem build --all")
        self.program = program
        self.paths = self._run([str(program), "--list"], {}).split()

    def check(self, path: ModelPath, rounds: int) -> dict[str, Any]:
        """Operations, page faults, and what the library's counters and calls have grown by in the batches."""
        *reports, said = map(json.loads, self._mode([], "check", path, rounds).splitlines())
        for section in ("counters", "os_calls"):
            sums: dict[str, int] = {}
            for before, after in zip(reports[::2], reports[1::2], strict=True):
                for name, value in after[section].items():
                    sums[name] = sums.get(name, 0) + value - before[section][name]
            said[section] = {name: value for name, value in sums.items() if value}
        return said

    def time(self, path: ModelPath, rounds: int) -> float:
        """Nanoseconds of an operation, without what reading the clock takes."""
        said = json.loads(self._mode([], "time", path, rounds))
        ticks = max(0.0, typical_ticks(said["batches"]) - typical_ticks(said["readings"]))
        return ticks * rounds / said["operations"] / said["ticks_per_ns"]

    def machine(self) -> dict[str, float]:
        """The constants of the machine model, as far as they can be measured here."""
        return json.loads(self._run([str(self.program), "machine"], OPTIONS))

    def callgrind(self, path: ModelPath, rounds: int, folder: Path) -> dict[str, dict[str, float]]:
        """Instructions (Ir) and locked instructions (Ge) of an operation of the median batch, by function."""
        out = folder / f"{path.name}.callgrind"
        said = json.loads(self._mode(
            ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}",
             f"--toggle-collect={MEASURED}", f"--dump-after={MEASURED}", "--combine-dumps=yes",
             "--collect-bus=yes", "--compress-strings=no", "--compress-pos=no"], "run", path, rounds))
        with out.open() as lines:
            batches = self_costs(lines)
        operations = said["operations"] / len(batches)
        return {name: {event: cost / operations for event, cost in costs.items()}
                for name, costs in median_batch(batches).items()}

    def lackey(self, path: ModelPath, rounds: int, folder: Path) -> list[int]:
        """How many cache lines each operation touched."""
        out = folder / f"{path.name}.lackey"
        prefix = ["valgrind", "-q", "--tool=lackey", "--trace-mem=yes", f"--log-file={out}"]
        said = json.loads(self._mode(prefix, "run", path, rounds))
        try:
            with out.open("rb") as lines:
                return touched_lines(lines, said)
        finally:
            out.unlink()

    def _mode(self, prefix: Sequence[str], mode: str, path: ModelPath, rounds: int) -> str:
        name, _, value = path.option.partition("=")
        own = {f"HAKMEM_{name.upper()}": value} if path.option else {}
        return self._run([*prefix, str(self.program), mode, path.name, str(rounds)], OPTIONS | own)

    def _run(self, words: Sequence[str], extra: dict[str, str]) -> str:
        """A bare environment: neither the caller's options nor its size shall matter. A file takes what it prints:
        it never waits for us, since a wait brings ticks."""
        environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "LC_ALL": "C", "LD_BIND_NOW": "1"}
        name = Path(words[0]).name
        with tempfile.TemporaryFile("w+") as output:
            try:
                done = subprocess.run(words, env=environment | extra, stdin=subprocess.DEVNULL, stdout=output,
                                      stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
            except OSError as error:
                raise Problem(f"{name} cannot be run: {error.strerror}") from error
            except subprocess.TimeoutExpired as error:
                raise Problem(f"{name} did not end within {LIMIT_S:.0f} s") from error
            if done.returncode != 0:
                said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise Problem(f"{name} failed with status {done.returncode}: {said}")
            output.seek(0)
            return output.read()


def typical_ticks(samples: Sequence[int]) -> float:
    """The mean, since counters step by tens of cycles on some machines and a median would be a step;
    without those that an interrupt hit, which are many times the median."""
    longest = OUTLIER_FACTOR * statistics.median_high(samples)
    return statistics.mean(sample for sample in samples if sample <= longest)


def has_valgrind() -> bool:
    return shutil.which("valgrind") is not None


def count(driver: Driver, path: ModelPath, rounds: int, rounds_traced: int, folder: Path | None) -> Counts:
    """All but time. Without a folder for valgrind's files: what the driver can say alone."""
    checked = driver.check(path, rounds)
    operations = checked["operations"]
    counts = Counts(counters={name: value / operations for name, value in checked["counters"].items()},
                    syscalls=sum(checked["os_calls"].values()) / operations, faults=checked["faults"] / operations)
    if folder is None:
        return counts
    functions = driver.callgrind(path, rounds, folder)
    return dataclasses.replace(counts, instructions=sum(costs.get("Ir", 0.0) for costs in functions.values()),
                               atomics=sum(costs.get("Ge", 0.0) for costs in functions.values()),
                               lines=lines_traced(driver, path, rounds_traced, folder),
                               functions={name: costs["Ir"] for name, costs in functions.items() if costs.get("Ir")})


def lines_traced(driver: Driver, path: ModelPath, rounds: int, folder: Path) -> float | None:
    """None: lackey writes a gigabyte for `tick`, and where that is slow the clock brings the tick at
    another operation, so the driver gives up."""
    try:
        return statistics.median(driver.lackey(path, rounds, folder))
    except Problem:
        return None


def self_costs(lines: Iterable[str]) -> list[dict[str, dict[str, int]]]:
    """Of a callgrind file, by batch: what each function itself cost, but for the driver's own.

    A cost line is a position and numbers in the order of `events`; the one behind `calls=` says
    what the called function cost and would count it twice. Each batch is a part of the file; the
    last part, of the program's end, is empty.
    """
    batches: list[dict[str, dict[str, int]]] = []
    events: list[str] = []
    function = ""
    is_call = False
    for line in lines:
        key, equals, value = line.strip().partition("=")
        if line.startswith("part:"):
            batches.append({})
        elif line.startswith("events:"):
            events = line.split()[1:]
        elif equals:
            function = value if key == "fn" else function
            is_call = key == "calls"
        elif line[:1].isdigit():
            if not is_call and function != MEASURED:
                entry = batches[-1].setdefault(function, dict.fromkeys(events, 0))
                # trailing zeros may be left out
                for event, number in zip(events, line.split()[1:], strict=False):
                    entry[event] += int(number)
            is_call = False
    batches = [batch for batch in batches if batch]
    if not batches:
        raise Problem("valgrind wrote no costs")
    return batches


def median_batch(batches: Sequence[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """By instructions; of two in the middle the lower one."""

    def instructions(batch: dict[str, dict[str, int]]) -> int:
        return sum(costs["Ir"] for costs in batch.values())

    return sorted(batches, key=instructions)[(len(batches) - 1) // 2]


def touched_lines(trace: Iterable[bytes], said: dict[str, Any]) -> list[int]:
    """Distinct cache lines of each operation in a trace of lackey, without driver and stack.

    A data access is " L 1ffe,8" (S: store, M: both), an instruction starts with I. The driver
    stores to the first mark before each operation and to the second after the last of a batch.
    """
    image_low, image_high = said["image"]
    stack_low, stack_high = said["stack"] - STACK_BYTES, said["stack"] + STACK_BYTES
    touched: list[set[int]] = []
    current: set[int] | None = None
    for line in trace:
        if not line.startswith(b" "):
            continue
        place, _, size = line[3:].partition(b",")
        address = int(place, 16)
        if address == said["mark_operation"]:
            current = set()
            touched.append(current)
        elif address == said["mark_end"]:
            current = None
        elif current is not None and not (image_low <= address < image_high or stack_low <= address < stack_high):
            last = address + int(size) - 1
            current.update(range(address // LINE_BYTES, last // LINE_BYTES + 1))
    if not touched:
        raise Problem("valgrind's trace shows no operation")
    return [len(lines) for lines in touched]
