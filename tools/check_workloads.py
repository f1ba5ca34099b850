#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the instructions that hakmem executes in whole workloads against the golden file: what
check_fast_path.sh cannot see, because a slow path has become longer or is taken more often.

Usage: check_workloads.py BENCH_FOLDER LIBRARY COMPILER GOLDEN
Golden lines are "COMPILER COUNT WORKLOAD ARGUMENT...": the count is of the instructions in the library
alone, under callgrind, so that the C library's version does not matter. Fails more than 5 % above
the count (the clock makes runs differ by up to 3 %); a compiler without lines of its own may have
a quarter more than gcc-12. Status 77: no valgrind.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
TOLERANCE, OTHER_COMPILER = 1.05, 1.25
RUNS = 5  # the least counts


def instructions_of(profile: str, library: str) -> int:
    """The sum of the lines of a callgrind file that are the library's own: not what it calls."""
    names: dict[str, str] = {}
    total, ours, after_call = 0, False, False
    for line in profile.splitlines():
        if found := re.match(r"c?ob=(\(\d+\))(?: (.*))?", line):
            names.setdefault(found[1], found[2])
            ours = names[found[1]] == library if line[0] == "o" else ours
        elif line.startswith("calls="):
            after_call = True  # the next line has the callee's cost
        elif found := re.match(r"[+*-]?\d* (\d+)$", line):
            total += int(found[1]) if ours and not after_call else 0
            after_call = False
    return total


def count(folder: str, workload: str, library: Path) -> int:
    """One run of the workload; it ends this program if it fails or does not run on the library."""
    with tempfile.TemporaryDirectory(prefix="hakmem-") as scratch:
        profile = Path(scratch, "profile")
        command = ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={profile}"]
        command += [f"{folder}/{workload.split()[0]}", *workload.split()[1:], "--expect", library.name]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM")}
        environment["LD_PRELOAD"] = str(library)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"FAILED: {workload}: status {done.returncode}\n{done.stderr}")
        return instructions_of(profile.read_text(), str(library.resolve()))


def main(folder: str, library: str, compiler: str, golden: str) -> int:
    if shutil.which("valgrind") is None:
        print("skipped: no valgrind")
        return SKIPPED
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # arenas and locks are as many as processors
    lines = re.findall(r"^([a-z]+-\d+) (\d+) (.+)$", Path(golden).read_text(), re.M)
    own = {workload: int(number) for who, number, workload in lines if who == compiler}
    limits = own or {workload: int(int(number) * OTHER_COMPILER) for who, number, workload in lines if who == "gcc-12"}
    status = 0 if limits else 1
    for workload, golden_count in limits.items():
        limit, least = int(golden_count * TOLERANCE), 0
        for _ in range(RUNS):
            counted = count(folder, workload, Path(library))
            least = min(least or counted, counted)
            if 0 < least <= limit:
                break
        failed = not 0 < least <= limit
        status |= failed
        print(compiler, least, workload, f"FAILED: the limit is {limit}" if failed else "")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
