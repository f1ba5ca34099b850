# SPDX-License-Identifier: MIT
"""What can be measured by name: bench/workloads.toml and the scripts of bench/programs.

An entry names a `program` of bench/ (one line of JSON, time per operation) or a `script` of bench/programs/ (wall
time), its `arguments`, those of a run under a second (`smoke`), the smallest `suite` it belongs to, its number of
`threads`, and a `title` of a few words. With `rest = true` the memory is read again some seconds after the work has
ended. `secure` are shorter arguments for the suites of hardened allocators.

A script has two verbs: `prepare DIRECTORY` makes its inputs, once; `run DIRECTORY` becomes the program. Status 77 of
the first means that the program is not on this machine; its last line says what to do. With `server = true` the program
is a server, and a third verb, `load DIRECTORY`, is the command that loads it.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import BUILD, ROOT, Problem, Usage, cache_directory, file_hash, read_toml
from .model import Case

SUITES = ("quick", "core", "full")  # each holds those before it
KINDS = ("programs", "idle", "aging", "secure", "secure-quick", "bugs", "attacks")
"""Suites across these: real programs; what is left when the work has ended, and for how many live
bytes; what a hardened allocator costs (secure.py), bugs and attacks alone have no costs."""
SECURE = {"secure": ("core", ("lua", "sqlite")), "secure-quick": ("quick", ("gxx", "lua"))}
"""A suite, and programs besides."""
FILE = ROOT / "bench" / "workloads.toml"
STATUS_MISSING = 77
REST_S = (1.0, 5.0, 10.0)
"""When the memory after the work is read."""
PREPARE_TIMEOUT_S = 900
_KEYS = {"program": str, "script": str, "arguments": list, "smoke": list, "secure": list, "suite": str, "threads": int,
         "title": str, "timeout_s": (int, float), "rest": (bool, str), "server": bool}


@dataclass(frozen=True)
class Workload:
    """A case and what the laboratory must know of it beyond the run itself."""

    case: Case
    smoke: list[str] = field(default_factory=list)  # arguments of the short run; bench only
    secure: list[str] = field(default_factory=list)  # those in the suites of hardened allocators
    script: Path | None = None
    inputs: Path | None = None  # where a script prepares what it needs
    idles: bool = False  # its memory after the work is read
    ages: bool = False  # beside the bytes that live then
    preparing: Callable[[], str] | None = None  # in the place of what is below

    @property
    def smoke_command(self) -> list[str]:
        return [self.case.command[0], *self.smoke]

    @property
    def for_hardened(self) -> Workload:
        """With its shorter arguments, if it has some."""
        if not self.secure:
            return self
        command = [self.case.command[0], *self.secure]
        return dataclasses.replace(self, case=dataclasses.replace(self.case, command=command))

    def prepare(self) -> str:
        """Makes the inputs if need be; "" or the sentence why this workload cannot run here."""
        if self.preparing is not None:
            return self.preparing()
        if self.script is None or self.inputs is None:
            missing = not Path(self.case.command[0]).exists()
            return f"{self.case.command[0]} is not built" if missing else ""
        self.inputs.mkdir(parents=True, exist_ok=True)
        try:
            done = _run(["bash", str(self.script), "prepare", str(self.inputs)], PREPARE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"preparing its inputs took longer than {PREPARE_TIMEOUT_S} s"
        if done.returncode == 0:
            return ""
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"status {done.returncode}"]
        return said[-1] if done.returncode == STATUS_MISSING else f"preparing its inputs failed: {said[-1]}"


def _run(command: Sequence[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          timeout=timeout_s, check=False)


def read_workloads(file: Path = FILE, programs: Path = BUILD / "bench") -> list[Workload]:
    """All entries in the order of the file."""
    return [_workload(name, entry, file, programs) for name, entry in read_toml(file).items()]


def of_trace(file: Path, tracer: Path = BUILD / "hakmem-trace") -> Workload:
    """The replay of a trace that ./hakmem record has made. Its image is made here, so that no run
    has to, under a name that tells traces apart."""
    if not file.is_file():
        raise Usage(f"there is no trace {file}")
    image = cache_directory() / "traces" / f"{file.stem}-{file_hash(file)[:8]}.image"
    image.parent.mkdir(parents=True, exist_ok=True)
    done = _run([str(tracer), "image", str(file), str(image)])
    if done.returncode != 0:
        raise Usage(done.stderr.strip().removeprefix("hakmem: ") or f"{file} cannot be replayed")
    facts = json.loads(done.stdout)
    return Workload(Case(f"trace_{file.stem}", [str(tracer), "replay-bench", str(image)], threads=facts["threads"],
                         title=f"{facts['calls']:,} calls of {facts['program']}, replayed"))


def select(workloads: Sequence[Workload], suite: str = "full", patterns: str = "") -> list[Workload]:
    """Those of a suite, or those that match one of the patterns whatever their suite."""
    if suite not in (*SUITES, *KINDS):
        raise Usage(f"there is no suite '{suite}' (./hakmem bench --help)")
    chosen = [w for w in workloads if _belongs(w, suite)]
    return choose(workloads, patterns, chosen)


def choose(
    workloads: Sequence[Workload], patterns: str = "", else_chosen: Sequence[Workload] | None = None
) -> list[Workload]:
    """Those that match one of the patterns, else the default, or all."""
    chosen = list(workloads if else_chosen is None else else_chosen)
    words = [word.strip() for word in patterns.split(",") if word.strip()]
    if words:
        for word in words:
            if not any(fnmatch.fnmatchcase(w.case.name, word) for w in workloads):
                raise Usage(f"no workload matches '{word}'; --list shows them")
        chosen = [w for w in workloads if any(fnmatch.fnmatchcase(w.case.name, word) for word in words)]
    return chosen


def _belongs(workload: Workload, suite: str) -> bool:
    if suite == "programs":
        return workload.script is not None and not workload.case.load
    if suite == "idle":
        return workload.idles
    if suite == "aging":
        return workload.ages
    if suite in SECURE:
        suite, programs = SECURE[suite]
        if workload.case.name in programs:
            return True
    return suite in SUITES and SUITES.index(workload.case.suite) <= SUITES.index(suite)


def _workload(name: str, entry: Any, file: Path, programs: Path) -> Workload:
    problem = _problem_of(entry)
    if problem:
        raise Problem(f"{file}: [{name}] {problem}")
    arguments = list(entry.get("arguments", []))
    facts: dict[str, Any] = {"name": name, "suite": entry.get("suite", "full"), "threads": entry.get("threads", 1),
                             "title": entry.get("title", ""), "timeout_s": float(entry.get("timeout_s", 120))}
    rests = entry.get("rest", False)
    if rests is True:
        facts["rest_s"] = list(REST_S)
    if "program" in entry:
        command = [str(programs / entry["program"]), *arguments]
        return Workload(Case(command=command, **facts), list(entry.get("smoke", [])), list(entry.get("secure", [])),
                        idles=rests in (True, "itself"), ages=rests == "aging")
    script = file.parent / "programs" / entry["script"]
    inputs = inputs_of(script)
    command = ["/bin/bash", str(script), "run", str(inputs), *arguments]
    if entry.get("server", False):
        facts["load"] = ["/bin/bash", str(script), "load", str(inputs), *arguments]
    case = Case(command=command, kind="program", **facts)
    return Workload(case, script=script, inputs=inputs, idles=bool(rests))


def inputs_of(script: Path) -> Path:
    """A folder of its own for each version of the script, so that none runs on another's inputs
    and no session goes on with another's runs."""
    sources = [script, script.parent / "common.sh"]
    content = b"".join(source.read_bytes() for source in sources if source.is_file())
    name = f"{script.stem}-{hashlib.sha256(content).hexdigest()[:8]}"
    return cache_directory() / "programs" / name


def _problem_of(entry: Any) -> str:
    if not isinstance(entry, dict):
        return "is not a table"
    for key, value in entry.items():
        if key not in _KEYS:
            return f"has an unknown key '{key}'"
        if not isinstance(value, _KEYS[key]):
            return f"has a wrong {key}"
    if ("program" in entry) == ("script" in entry):
        return "needs either program or script"
    if entry.get("suite", "full") not in SUITES:
        return f"is of no known suite: '{entry['suite']}'"
    if "script" not in entry and entry.get("server", False):
        return "can be a server only as a script"
    if entry.get("rest") is True and "script" in entry and not entry.get("server", False):
        return "rests, but a program that is no server has ended when its work has"
    return ""
