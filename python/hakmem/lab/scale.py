# SPDX-License-Identifier: MIT
"""What an operation costs on many processors: cache lines and locks, counted on any machine.

    python -m hakmem.lab scale [WORKLOAD...] [--threads 2,8,64] [--library FILE...] [--picture FILE] [--time]

lab/scale allocates with N threads that take turns; valgrind's lackey prints what they touch;
lab/scale_model plays the caches of N processors (lab/README.md). Nothing is timed, but with --time, which
runs the same calls on this machine's processors.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .options import SCALE_WORKLOADS
from .base import BUILD, Problem, Usage

THREADS_MAX = 512
TIME_RUNS = 5
TIME_FACTOR = 200  # turns when timed, for one when traced
PRICES = {"instructions": 0.25, "atomics": 8, "within": 100, "between": 300}
"""Cycles; those of lab/README.md, and a line from the other socket three times one from this one."""


def run(as_json: bool, workloads: list[str], threads: str, turns: int, warm_up: int | None, turn_ns: int,
        library: list[str] | None, time: bool, picture: Path | None) -> int:
    """Counts cache lines, atomic operations and locks of an operation on N processors."""
    for name in workloads:
        if name not in SCALE_WORKLOADS:
            raise Usage(f"there is no workload '{name}'; there are {', '.join(SCALE_WORKLOADS)}")
    try:
        numbers = [int(word) for word in threads.split(",")]
    except ValueError:
        raise Usage(f"--threads wants whole numbers, not '{threads}'") from None
    if time and picture is not None:
        raise Usage("--picture shows the model, so it does not go with --time")
    warm_up = turns if warm_up is None else warm_up
    if min(numbers) < 1 or max(numbers) > THREADS_MAX or min(turns, warm_up) < 1 or turn_ns < 0:
        raise Usage(f"--threads goes from 1 to {THREADS_MAX}, --turns and --warm-up from 1 on, --turn-ns from 0 on")
    found = []
    libraries = [Path(file) for file in library or [str(BUILD / "libhakmem.so")]]
    for workload in workloads or ["larson", "server"]:
        for number in numbers:
            if time:
                found += timed(libraries, workload, number, turns * TIME_FACTOR, warm_up * TIME_FACTOR)
            for file in [] if time else libraries:
                found.append(counted(file, workload, number, turns, turn_ns, warm_up))
                if not as_json:
                    print(line_of(found[-1]), flush=True)
    if time and not as_json:
        print("\n".join(f"{one['library']} {one['workload']}, {one['threads']} threads: {one['ns']} ns" for one in found))
    if as_json:
        print(json.dumps(found, indent=1))
    if picture is not None:
        draw(found, picture)
    return 0


def driver_command(library: Path, *words: str | int) -> tuple[list[str], dict[str, str]]:
    """How lab/scale runs with the library, and its environment."""
    driver = BUILD / "lab" / "scale"
    for file in (driver, BUILD / "lab" / "scale_model", library):
        if not file.exists():
            raise Problem(f"{file} is not there; type: ./hakmem build --all")
    threads = int(words[1])
    # hakmem and jemalloc go by the number of processors, hakmem by the RAM as well: 2 GiB for each
    return [str(driver), *map(str, words)], {
        "HAKMEM_ARENAS": str(threads), "HAKMEM_CACHE_BYTES_TOTAL": f"{32 * threads}m", "MALLOC_CONF": f"narenas:{4 * threads}", "PATH": "/usr/bin:/bin",
        "LC_ALL": "C", "LD_BIND_NOW": "1", "LD_PRELOAD": str(library.resolve())}


def timed(libraries: list[Path], workload: str, threads: int, turns: int, warm_up: int) -> list[dict[str, Any]]:
    """The least nanoseconds of an operation that a thread needs with each library, by turns."""
    if workload in ("many", "swap"):
        raise Usage(f"--time cannot run {workload}: its threads share more than a queue with one sender")
    least = {library: float("inf") for library in libraries}
    for _ in range(TIME_RUNS):
        for library in libraries:
            command, environment = driver_command(library, workload, threads, warm_up, turns, "time")
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Problem(f"{workload} under {library.name} failed: {done.stderr.strip() or done.returncode}")
            least[library] = min(least[library], float(re.findall(r"^ns ([\d.]+)$", done.stdout, re.M)[0]))
    return [{"library": library.name, "workload": workload, "threads": threads, "ns": least[library]}
            for library in libraries]


def counted(
    library: Path, workload: str, threads: int, turns: int, turn_ns: int = 1000, warm_up: int | None = None
) -> dict[str, Any]:
    """What the model says of one run."""
    command, environment = driver_command(library, workload, threads, warm_up or turns, turns, turn_ns)
    if shutil.which("valgrind") is None:
        raise Problem("scale needs valgrind; type: sudo apt-get install -y valgrind")
    locks = [f"{name}={offset}" for name, offset in locks_of(library).items()]
    tracer = subprocess.Popen(
        ["valgrind", "-q", "--tool=lackey", "--trace-mem=yes", "--log-fd=1", "--max-threads=600", *command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    done = subprocess.run([str(BUILD / "lab" / "scale_model"), str(threads), *locks, library.resolve().name],
                          stdin=tracer.stdout, capture_output=True, text=True, check=False)
    said = (tracer.communicate()[1].decode(errors="replace") + done.stderr).strip()
    if done.returncode != 0 or tracer.returncode != 0:
        raise Problem(f"{workload} with {threads} threads failed: {(said.splitlines() or ['it said nothing'])[-1]}")
    return {"library": library.resolve().name, "workload": workload, "threads": threads, **json.loads(done.stdout)}


def locks_of(library: Path) -> dict[str, str]:
    """The process's locks among the symbols of hakmem, and where they are. Others have none that is known."""
    done = subprocess.run(["nm", str(library)], capture_output=True, text=True, check=False)
    words = [line.split() for line in done.stdout.splitlines() if library.name.startswith("libhakmem")]
    found = {one[2].removeprefix("hak__").removesuffix("_lock"): one[0] for one in words
             if len(one) == 3 and one[1] in "bd" and one[2].endswith("_lock")}
    # REGION of part 0, which begins with it; those of other parts are in memory that comes later
    return found | {"region": one[0] for one in words if one[2:] == ["hak__superslab_first"]}


def cycles(counts: dict[str, int]) -> float:
    return sum(price * counts[name] for name, price in PRICES.items())


def lock_cycles(lock: dict[str, Any]) -> float:
    """From one owner to the next: what is done under the lock, and the lock's line, which moves."""
    return cycles(lock["held"]) / lock["taken"] + PRICES["between"]


def saturation(found: dict[str, Any], name: str) -> float:
    """Processors at which a lock is always held, if programs do nothing but allocate and free."""
    lock = found["locks"][name]
    return cycles(found["all"]) / (lock["taken"] * lock_cycles(lock)) if lock["taken"] else float("inf")


def cost(found: dict[str, Any]) -> float:
    """Cycles of an operation: its own, or what the busiest line or lock leaves to each processor."""
    busy = [PRICES["within"] * line["within"] + PRICES["between"] * line["between"] for line in found["lines"]]
    busy += [lock["taken"] * lock_cycles(lock) for lock in found["locks"].values() if lock["taken"]]
    return max([cycles(found["all"]), *(found["threads"] * one for one in busy)]) / found["operations"]


def line_of(found: dict[str, Any]) -> str:
    each = {name: value / found["operations"] for name, value in found["all"].items()}
    text = (
        f"{found['library']} {found['workload']}, {found['threads']} processors: "
        f"{each['instructions']:.1f} instructions, lines {each['within']:.3f} within a socket, {each['between']:.3f} "
        f"between, {each['invalidated']:.3f} copies invalidated, {each['atomics']:.3f} atomics, "
        f"{each['atomics_shared']:.3f} on shared lines; {cycles(found['all']) / found['operations']:.0f} cycles, "
        f"{cost(found):.0f} with queues"
    )
    for name, lock in found["locks"].items():
        if lock["taken"]:
            text += (f"\n  {name}: {1000 * lock['taken'] / found['operations']:.3f} times in 1,000 operations, "
                     f"{lock['held']['instructions'] / lock['taken']:.0f} instructions, "
                     f"{lock_cycles(lock):.0f} cycles: saturated by {saturation(found, name):,.0f} processors")
    return text


def draw(results: Sequence[dict[str, Any]], file: Path) -> None:
    from .plots import DPI, Figure  # takes a second to load

    names = list(dict.fromkeys(one["workload"] for one in results))
    figure = Figure(figsize=(4.5 * len(names), 3.5), dpi=DPI, layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for library in dict.fromkeys(one["library"] for one in results):
            chosen = [one for one in results if (one["workload"], one["library"]) == (name, library)]
            points = [(one["threads"], cost(one)) for one in chosen]
            axes.plot(*zip(*points, strict=True), marker="o", label=library)
        numbers = sorted({one["threads"] for one in results})
        axes.set(title=name, xlabel="processors", ylabel="cycles an operation, model", xscale="log", ylim=(0, None))
        axes.set_xticks(numbers, map(str, numbers))
        axes.minorticks_off()
        axes.legend()
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise Problem(f"{file} cannot be written: {error}") from error
