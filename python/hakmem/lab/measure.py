# SPDX-License-Identifier: MIT
"""One process, run and measured by the small program lab/measure.c; and which library serves a program of the user.

A program cannot tell who serves it, so the loader is asked: under LD_DEBUG=bindings it writes, for each process, to which
file it bound malloc and its family. That is a short run before the measured ones; it may be cut off, as programs allocate
when they start.
"""

import json
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .base import BUILD, Problem, file_hash
from .model import Arm, Case

MEASURE = BUILD / "lab" / "measure"
PADDING_NAME = "LAB_PADDING"
OUTPUT_BYTES_MAX = 1 << 20
GRACE_S = 60  # beyond the case's own timeout: a loaded server may take its time to stop

PROOF_S = 5.0

# Settings of allocators that the user's shell happens to hold must not reach the arms.
_FOREIGN_PREFIXES = ("HAKMEM_", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "JEMALLOC_", "SCUDO_", "TBB_")
_FOREIGN_NAMES = {"LD_PRELOAD", "GLIBC_TUNABLES", "LD_DEBUG", "LD_DEBUG_OUTPUT", PADDING_NAME}


@dataclass(frozen=True)
class Outcome:
    """What came of one process."""

    report: dict[str, Any]  # measure's line; empty when the program could not be started
    output: str
    errors: str
    load_output: str = ""

    def metric(self, case: Case) -> float | None:
        """The last number that matches the case's pattern; of a rate the inverse."""
        text = self.load_output if case.load else self.output
        found = list(re.finditer(case.metric, text, re.M)) if case.metric else []
        try:
            number = float(found[-1][1 if found[-1].re.groups else 0])
        except (IndexError, TypeError, ValueError):
            return None
        if not (math.isfinite(number) and number > 0):
            return None
        return 1 / number if case.is_rate else number

    def sentence(self, case: Case) -> str:
        """Why the run did not end well; "" if it did."""
        text = self._end_sentence(case)
        if not text and case.metric and self.metric(case) is None:
            who = "its load" if case.load else "it"
            text = f"{who} printed no number above 0 that matches {case.metric!r}"
        return text

    def _end_sentence(self, case: Case) -> str:
        end, status = self.report.get("end"), self.report.get("status", 0)
        if end is None:
            return self.errors.strip().removeprefix("measure: ") or "it could not be started"
        if end == "stopped" or (end == "exit" and status == 0 and not case.load):
            return ""
        if end == "timeout":
            return f"it took longer than {case.timeout_s:g} s"
        if end == "signal":
            text = f"it was killed by signal {_signal_name(status)}"
        elif end == "load":
            text = f"its load command failed with status {status}"
        elif case.load:
            text = f"it ended with status {status} before it was stopped"
        else:
            text = f"it ended with status {status}"
        said = self.errors.strip().splitlines()
        return f"{text}: {said[-1][:300]}" if said else text


def clean_environment() -> dict[str, str]:
    """The user's environment without settings of allocators and of the laboratory."""
    return {name: value for name, value in os.environ.items()
            if name not in _FOREIGN_NAMES and not name.startswith(_FOREIGN_PREFIXES)}


def arm_environment(arm: Arm) -> dict[str, str]:
    """What makes a process run on the arm; for the measured process only."""
    preload = {"LD_PRELOAD": arm.library} if arm.library else {}
    return {**preload, **arm.environment}


def measure(
    case: Case, arm: Arm, padding: int = 0, extra: Mapping[str, str] | None = None,
    timeout_s: float | None = None, rest_s: Sequence[float] = (),
) -> Outcome:
    """Runs the case once under the arm and waits for its end. `rest_s`: when to read a server's memory after its load."""
    if not MEASURE.exists():
        raise Problem(f"{MEASURE} is not built; ./hakmem bench --list builds it")
    with tempfile.TemporaryDirectory(prefix="hakmem-") as scratch:
        output, errors, loaded = (Path(scratch, name) for name in ("output", "errors", "loaded"))
        directory = Path(case.directory) if case.directory else Path(scratch, "work")
        directory.mkdir(exist_ok=True)
        seconds = max(1, round(timeout_s or case.timeout_s))
        variables = {**arm_environment(arm), **(extra or {}), PADDING_NAME: "x" * padding}
        command = [str(MEASURE), "--timeout-s", str(seconds), "--directory", str(directory)]
        command += ["--stdout", str(output), "--stderr", str(errors)]
        command += [word for name in variables for word in ("--env", f"{name}={variables[name]}")]
        command += [word for part in case.load for word in ("--load", part)]
        command += ["--load-stdout", str(loaded)] if case.metric else []
        command += [word for second in rest_s for word in ("--rest-s", f"{second:g}")]
        limit_s = seconds + max(rest_s, default=0)
        status, said, complaint = run_measure([*command, "--", *case.command], limit_s)
        report = json.loads(said) if status == 0 else {}
        if report and case.kind == "program":
            report["output_sha256"] = file_hash(output)
        if status not in (0, 126, 127):
            raise Problem(complaint.strip() or f"measure ended with status {status}")
        complaint = read_end(errors) if report else complaint
        return Outcome(report, read_end(output), complaint, read_end(loaded))


def last_json(text: str) -> dict[str, Any] | None:
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            return data
    return None


def run_measure(
    command: list[str], timeout_s: float, look: Callable[[int], None] | None = None, every_s: float = 0
) -> tuple[int, str, str]:
    """Calls `look` with the process's number again and again. Never leaves the process behind, whatever interrupts us."""
    process = subprocess.Popen(command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace")
    deadline = time.monotonic() + timeout_s + GRACE_S
    try:
        while True:
            left_s = deadline - time.monotonic()
            try:
                said, complaint = process.communicate(timeout=min(left_s, every_s) if look else left_s)
                return process.returncode, said, complaint
            except subprocess.TimeoutExpired as error:
                if look is None or time.monotonic() > deadline:
                    raise Problem(f"measure does not end {GRACE_S} s after its time") from error
                look(process.pid)
    finally:
        if process.poll() is None:
            process.terminate()  # it kills all it started
            process.wait()


def read_end(path: Path) -> str:
    """The end of what a program printed; the result and the complaint are its last lines."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - OUTPUT_BYTES_MAX))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


# ---- Who serves a program. ----

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
        extra = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(Path(scratch, "bindings"))}
        outcome = measure(case, arm, extra=extra, timeout_s=min(PROOF_S, case.timeout_s))
        return judge(all_bindings(Path(scratch)), arm, outcome, case)


def all_bindings(folder: Path) -> list[dict[str, list[str]]]:
    """Of each process, where LD_DEBUG_OUTPUT is `bindings` in that folder."""
    return [read_bindings(path.read_text(errors="replace")) for path in sorted(folder.glob("bindings.*"))]


def judge(processes: list[dict[str, list[str]]], arm: Arm, outcome: Outcome, case: Case) -> tuple[dict[str, str], str]:
    """The serving files of the process that bound most, and what is wrong with any of them."""
    if not outcome.report:
        return {}, outcome.sentence(case)
    allocating = [bindings for bindings in processes if "malloc" in bindings]
    if not allocating:
        return {}, "no library can serve it: it is statically linked, has special rights, or never allocates"
    wrong = [file for bindings in allocating for symbol in ("malloc", "free") for file in bindings.get(symbol, [])
             if arm.library and os.path.realpath(file) != os.path.realpath(arm.library)]
    serving = {symbol: " and ".join(files) for symbol, files in max(allocating, key=len).items()}
    return serving, f"it is served by {wrong[0]}, not by {arm.library}" if wrong else ""
