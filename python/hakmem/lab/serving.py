# SPDX-License-Identifier: MIT
"""Which library serves a program of the user: rule 1 for programs that cannot tell themselves.

The loader itself is asked: under LD_DEBUG=bindings it writes, for each process, to which file it
bound malloc and its family. A short run before the measured ones; it may be cut off, as programs
allocate when they start.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from .measure import Outcome, measure
from .model import Arm, Case

RUN_TIMEOUT_S = 5.0
_SYMBOLS = {"malloc", "free", "calloc", "realloc", "_Znwm"}
_BINDING = re.compile(r"binding file (.+?) \[\d+\] to (.+?) \[\d+\]: normal symbol `(\w+)'")


def read_bindings(text: str) -> dict[str, list[str]]:
    """Symbol to the files it was bound to, in the order of their first binding.

    A program at a fixed address that takes a function's address stands in for it, as the psABI
    says: libraries bind to a stub in the program, which goes on to what the program itself is bound
    to. So a program that looks a symbol up elsewhere is not what serves it (cc1plus and free), and
    the C library may be, though it looks its own symbol up and finds the program's stub.
    """
    bindings = [found for found in _BINDING.findall(text) if found[2] in _SYMBOLS]
    seekers = {(file, symbol) for file, target, symbol in bindings if target != file and ".so" not in Path(file).name}
    found: dict[str, list[str]] = {}
    for _, target, symbol in bindings:
        name = "operator new" if symbol == "_Znwm" else symbol
        files = found.setdefault(name, [])
        if target not in files and (target, symbol) not in seekers:
            files.append(target)
    return found


def prove_program(case: Case, arm: Arm) -> tuple[dict[str, str], str]:
    """Symbol to file, and "" or the sentence why the arm does not serve the program."""
    with tempfile.TemporaryDirectory(prefix="hakmem-") as scratch:
        prefix = str(Path(scratch, "bindings"))
        extra = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": prefix}
        seconds = min(RUN_TIMEOUT_S, case.timeout_s)
        outcome = measure(case, arm, extra=extra, timeout_s=seconds)
        processes = [
            read_bindings(path.read_text(errors="replace"))
            for path in sorted(Path(scratch).glob("bindings.*"))
        ]
    return judge(processes, arm, outcome, case)


def judge(processes: list[dict[str, list[str]]], arm: Arm, outcome: Outcome, case: Case) -> tuple[dict[str, str], str]:
    """The serving files of the process that bound most, and what is wrong with any of them."""
    if not outcome.report:
        return {}, outcome.sentence(case)
    allocating = [bindings for bindings in processes if "malloc" in bindings]
    if not allocating:
        return {}, (
            "no library can serve it: it is statically linked, has special rights, or never "
            "allocates"
        )
    wrong = [
        file
        for bindings in allocating
        for symbol in ("malloc", "free")
        for file in bindings.get(symbol, [])
        if arm.library and not _same(file, arm.library)
    ]
    serving = {symbol: " and ".join(files) for symbol, files in max(allocating, key=len).items()}
    return serving, f"it is served by {wrong[0]}, not by {arm.library}" if wrong else ""


def _same(file: str, library: str) -> bool:
    return os.path.realpath(file) == os.path.realpath(library)
