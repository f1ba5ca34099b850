# SPDX-License-Identifier: MIT
"""plot_large_heap.py: draws what one step costs against the size of the heap.

    plot_large_heap.py PICTURE.png NAME=LIBRARY.so...    with matplotlib, as ./hakmem has it

Runs bench/large_heap of the release build under each library at 1 to 256 GiB, twice, and draws
the least. A run that needs more than MEMORY_MAX is stopped: that allocator has no point there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

BENCH = Path(__file__).parent.parent / "build/release/bench/large_heap"
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
TRIES = 2
MEMORY_MAX = 4 << 30
STEPS = {
    "span_ns": ("one block that fits into no hole", "ns", 1),
    "trim_mib_ns": ("giving back one MiB", "microseconds", 1e3),
    "report_ns": ("a report", "microseconds", 1e3),
    "fork_ns": ("a fork", "ms", 1e6),
}
COLOURS = {"hakmem": "#D55E00", "jemalloc": "#009E73", "mimalloc 3": "#0072B2", "gperftools": "#882255"}


def resident_bytes(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def run(library: str, gib: int) -> dict[str, int] | None:
    environment = dict(os.environ, LD_PRELOAD=library)
    command = [str(BENCH), str(gib), "256", "20"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            if resident_bytes(process.pid) > MEMORY_MAX:
                process.kill()
            time.sleep(0.02)
        assert process.stdout is not None
        line = process.stdout.read()
    return json.loads(line) if process.returncode == 0 else None


def measure(library: str) -> dict[str, dict[int, int]]:
    least: dict[str, dict[int, int]] = {step: {} for step in STEPS}
    for gib in SIZES:
        for _ in range(TRIES):
            result = run(library, gib)
            if result is None:
                return least
            notes = result.get("notes", result)
            for step, points in least.items():
                if notes[step] != 0:
                    points[gib] = min(notes[step], points.get(gib, notes[step]))
    return least


def main() -> None:
    picture, *arms = sys.argv[1:]
    figure, axes = pyplot.subplots(1, len(STEPS), figsize=(15, 3.6), layout="constrained")
    for arm in arms:
        name, library = arm.split("=", 1)
        least = measure(library)
        print(name, json.dumps(least))
        for panel, (step, (title, unit, divisor)) in zip(axes, STEPS.items(), strict=True):
            points = least[step]
            panel.plot(
                list(points),
                [value / divisor for value in points.values()],
                marker="o",
                label=name,
                color=COLOURS.get(name),
            )
            panel.set_title(f"{title}, {unit}", fontsize=10)
    for panel in axes:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(SIZES, [str(size) for size in SIZES])
        panel.set_xlabel("heap, GiB, untouched")
        panel.grid(alpha=0.3)
    axes[0].legend(fontsize=9)
    figure.savefig(picture, dpi=110)


main()
