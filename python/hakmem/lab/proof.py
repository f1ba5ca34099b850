# SPDX-License-Identifier: MIT
"""Rule 1: no timing before it is shown which library serves a process, and that it works.

The proof program (lab/proof.cc) is compiled on the spot, once, and run exactly as the arm will be.
"""

import hashlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .base import ROOT, Problem
from .measure import clean_environment
from .model import Arm
from .recipes import Workshop, check_preloadable, need, peers_directory

SOURCE = ROOT / "lab" / "proof.cc"
FLAGS = ("-std=c++17", "-O1", "-fsized-deallocation", "-pthread")
LIMIT_S = 90


@dataclass(frozen=True)
class Proof:
    """What the proof program saw."""

    serving: dict[str, str]  # "malloc", "operator new", ... -> file that owns it, "" if nobody
    per_cpu: bool | None  # google tcmalloc: whether its per-CPU mode is on


def prove(arm: Arm) -> dict[str, str]:
    """Which file serves each function under this arm; a Problem unless it is the arm's own."""
    return examine(arm).serving


def examine(arm: Arm) -> Proof:
    if arm.library is not None:
        check_preloadable(arm.library)
        if not Path(arm.library).is_file():
            raise Problem(f"{arm.name}: there is no file {arm.library}")
    output, errors = _run_program(arm)
    serving = dict(line.split("\t", 1) for line in output.splitlines() if "\t" in line)
    per_cpu = serving.pop("per_cpu", None)
    if not serving:
        raise Problem(f"{arm.name}: the proof program said nothing that makes sense")
    proof = Proof(serving, per_cpu and per_cpu == "true")
    _check_owners(arm, proof.serving, errors)
    _check_promises(arm, proof, errors)
    return proof


def _check_owners(arm: Arm, serving: dict[str, str], errors: str) -> None:
    if arm.library is None:
        wrong = {n: f for n, f in serving.items() if not _is_system(n, f)}
        expected = "the C library"
    else:
        expected = os.path.realpath(arm.library)
        wrong = {n: f for n, f in serving.items() if f != expected}
    if not wrong:
        return
    name, file = next(iter(wrong.items()))
    reason = next((line for line in errors.splitlines() if "ld.so" in line), "")
    more = f", and so are {len(wrong) - 1} more functions" if len(wrong) > 1 else ""
    raise Problem(f"{arm.name}: {name} is served by {file or 'nobody'}, not by {expected}{more}"
                  + (f" ({reason.strip()})" if reason else ""))


def _is_system(name: str, file: str) -> bool:
    return Path(file).name.startswith("libstdc++" if "operator" in name else "libc.so")


def _check_promises(arm: Arm, proof: Proof, errors: str) -> None:
    """What the arm's environment is there for must have come true, or the arm is another one."""
    if "rseq=0" in arm.environment.get("GLIBC_TUNABLES", "") and proof.per_cpu is False:
        raise Problem(f"{arm.name}: its per-CPU caches are off, because the kernel (or a sandbox) refuses it restartable "
                      "sequences")
    ignored = [line for line in errors.splitlines() if line.startswith("hakmem: ")]
    if ignored:  # a misspelt option would make an A/A of an A/B
        raise Problem(f"{arm.name}: {ignored[0].removeprefix('hakmem: ')}")


def _run_program(arm: Arm) -> tuple[str, str]:
    environment = clean_environment() | arm.environment
    program = proof_program()
    if arm.library is not None:
        environment["LD_PRELOAD"] = arm.library
    try:
        done = subprocess.run([str(program)], env=environment, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Problem(f"{arm.name} hangs in the proof program") from error
    if done.returncode != 0:
        raise Problem(f"{arm.name} {_failure(done.returncode, done.stderr)}")
    return done.stdout, done.stderr


def _failure(status: int, errors: str) -> str:
    last = (errors.strip().splitlines() or [""])[-1].removeprefix("proof: ")
    because = f": {last}" if last else ""
    if status == -signal.SIGALRM:
        return "hangs in the proof program"
    if status < 0:
        return f"crashes in the proof program ({signal.Signals(-status).name}){because}"
    return f"fails in the proof program with status {status}{because}"


def proof_program() -> Path:
    """Compiled once for each content of its source; several processes may do it at once."""
    folder = peers_directory()
    key = hashlib.sha256(SOURCE.read_bytes() + repr(FLAGS).encode()).hexdigest()[:12]
    program = folder / f"proof-{key}"
    if program.exists():
        return program
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".proof-", dir=folder) as scratch:
            workshop = Workshop(folder / "proof.log", Path(scratch))
            fresh = Path(scratch) / "proof"
            workshop.run([need(workshop, "c++"), *FLAGS, SOURCE, "-o", fresh, "-ldl"])
            fresh.rename(program)
    except OSError as error:
        raise Problem(f"cannot write to {folder}: {error.strerror}") from error
    return program
