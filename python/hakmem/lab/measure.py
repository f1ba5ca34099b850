# SPDX-License-Identifier: MIT
"""One process, run and measured by the small program lab/measure.c."""

from __future__ import annotations

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

from .model import Arm, Case
from .places import BUILD
from .problem import Problem
from .store import file_hash

MEASURE = BUILD / "lab" / "measure"
PADDING_NAME = "LAB_PADDING"
OUTPUT_BYTES_MAX = 1 << 20
GRACE_S = 60  # beyond the case's own timeout: a loaded server may take its time to stop

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
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN_NAMES and not name.startswith(_FOREIGN_PREFIXES)
    }


def arm_environment(arm: Arm) -> dict[str, str]:
    """What makes a process run on the arm; for the measured process only."""
    preload = {"LD_PRELOAD": arm.library} if arm.library else {}
    return {**preload, **arm.environment}


def measure(
    case: Case, arm: Arm, padding: int = 0, extra: Mapping[str, str] | None = None,
    timeout_s: float | None = None, rest_s: Sequence[float] = (),
) -> Outcome:
    """Runs the case once under the arm and waits for its end.

    `rest_s`: when to read the memory of a server after its load.
    """
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
    process = subprocess.Popen(
        command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace",
    )
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
