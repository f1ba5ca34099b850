# SPDX-License-Identifier: MIT
"""The suite `servers`: real servers under a planned load; the table is bench/servers.toml.

One run: lab/measure starts the server and lab/load in a fresh folder and ends both, whatever
happens; this process reads /proc of the server's processes meanwhile. First each allocator serves
as fast as it can (closed loop), which also proves who serves malloc; the runs that count then get
60 % of the slowest allocator's rate, at moments that are drawn before (lab/load.c).
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import measure, workloads
from .base import BUILD, ROOT, Problem, read_text, read_toml
from .measure import MEASURE, PADDING_NAME, Outcome, arm_environment, read_end, run_measure
from .model import Arm, Case

SUITE = "servers"
KIND = "server"
FILE = ROOT / "bench" / "servers.toml"
LOAD = BUILD / "lab" / "load"
PEERS = ("jemalloc", "mimalloc3", "tcmalloc")
"""Those of servers that others use; with hakmem and glibc five allocators."""
SHARE = 0.6
"""Of the slowest allocator's highest rate."""
BURST = 10
"""Times that rate."""
PROOF_S = 1.2
READ_S = 0.1
MEMORY_S = 0.5
"""Between two readings of processor time and of memory."""
MAKE_S = 120
TIMEOUT_S = 90.0
"""Beyond the phases: to start, to be behind after a burst, and to stop."""
_KEYS = {"packages", "needs", "threaded", "title", "make", "start", "built", "load"}
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """An entry of the table."""

    name: str
    start: str
    load: list[str]
    title: str = ""
    make: str = ""
    built: str = ""
    threaded: bool = False
    packages: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)

    def case(self, seconds: float) -> Case:
        """What a session stores of it; all that a run depends on is part of its key."""
        return Case(name=self.name, command=["/bin/bash", "-c", f"{_shared()}\n{self.make}\n{self.start}"], kind=KIND,
                    suite=SUITE, threads=2 if self.threaded else 1, title=self.title, load=self.load,
                    timeout_s=seconds + TIMEOUT_S, rest_s=[after_s(seconds)])

    def absent(self) -> str:
        """What it needs and is not here; "" if nothing."""
        return next((need for need in self.needs if not _is_here(need)), "")

    def prepare(self) -> str:
        """Installs what it may; "" or the sentence why this server cannot run here."""
        if self.absent() and os.geteuid() == 0 and os.environ.get("LABORATORY_INSTALL") == "yes":
            # Debian's scripts start no server in runlevel 1.
            subprocess.run([str(ROOT / "tools" / "install_packages.sh"), *self.packages],
                           env={**os.environ, "RUNLEVEL": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
        if self.absent():
            return f"{self.absent()} is not installed; on Debian: apt-get install {' '.join(self.packages)}"
        if self.built:
            return workloads.Workload(self.case(1), script=_script(self.built),
                                      inputs=_built(self.built).parent).prepare()
        return ""


def workloads_of(seconds: float) -> list[workloads.Workload]:
    """As `bench` lists, prepares and runs them."""
    return [workloads.Workload(server.case(seconds), preparing=server.prepare) for server in read_servers()]


def _is_here(need: str) -> bool:
    if "/" in need:
        return bool(glob.glob(need))
    return shutil.which(need, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def _script(built: str) -> Path:
    return ROOT / "bench" / "programs" / f"{built.partition('/')[0]}.sh"


def _built(built: str) -> Path:
    return workloads.inputs_of(_script(built)) / built.partition("/")[2]


def _shared() -> str:
    return FILE.with_suffix(".sh").read_text(encoding="utf-8")


def read_servers(file: Path = FILE) -> list[Server]:
    """All entries in the order of the file."""
    servers = []
    for name, entry in read_toml(file).items():
        unknown = sorted(set(entry) - _KEYS)
        if unknown:
            raise Problem(f"{file}: [{name}] has an unknown key '{unknown[0]}'")
        if not entry.get("start") or not entry.get("load"):
            raise Problem(f"{file}: [{name}] needs start and load")
        servers.append(Server(name=name, **entry))
    return servers


def after_s(seconds: float) -> float:
    """When memory after the burst is read: in a short run sooner."""
    return 3.0 if seconds < 40 else 10.0


def phases(seconds: float, rate: float) -> list[str]:
    """Of lab/load, `seconds` long together: what comes behind after the burst is more."""
    warm, burst, quiet = seconds / 10, min(seconds / 40, 2.0), after_s(seconds) + 0.4
    steady = max((seconds - warm - burst - quiet) / 2, 0.1)
    return [f"warm:open:{warm:g}:{rate:g}", f"steady:open:{steady:g}:{rate:g}", f"burst:open:{burst:g}:{rate * BURST:g}",
            f"quiet:quiet:{quiet:g}", f"end:open:{steady:g}:{rate:g}"]


# ---- Reading the server's processes. ----


@dataclass
class Readings:
    """Of the processes below measure, but the load: at moments of the monotonic clock, ns."""

    cpu: list[tuple[int, int]] = field(default_factory=list)  # ns, children that ended included
    faults: list[tuple[int, int]] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)  # KiB: PSS, or RSS without it

    def at(self, series: list[tuple[int, int]], moment: int) -> float:
        """Between two readings as if it had grown evenly."""
        if not series:
            return 0.0
        for (t0, v0), (t1, v1) in zip(series, series[1:], strict=False):
            if t0 <= moment <= t1:
                return v0 + (v1 - v0) * (moment - t0) / max(t1 - t0, 1)
        return float(series[0][1] if moment < series[0][0] else series[-1][1])

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        inside = [(t, v) for t, v in self.memory if start < t < end]
        first, last = ((t, round(self.at(self.memory, t))) for t in (start, end))
        return [first, *inside, last]


def descendants(root: int, but: str = "") -> list[int]:
    """Of a process, without those that run the file `but`."""
    found: list[int] = []
    todo = [root]
    while todo:
        for path in glob.glob(f"/proc/{todo.pop()}/task/*/children"):
            for pid in map(int, read_text(path).split()):
                try:
                    is_load = bool(but) and os.readlink(f"/proc/{pid}/exe") == but
                except OSError:
                    is_load = False
                if not is_load:
                    found.append(pid)
                    todo.append(pid)
    return found


def _times(pid: int, only_children: bool = False) -> tuple[int, int]:
    """Processor time in ns and page faults, of its ended children too."""
    words = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(words) < 15:
        return 0, 0
    faults, ticks = words[8:11:2] if only_children else words[7:11], words[13:15]
    ticks = ticks if only_children else words[11:15]
    return sum(map(int, ticks)) * _TICK_NS, sum(map(int, faults))


def _memory_kib(pid: int) -> int:
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        for line in read_text(f"/proc/{pid}/{name}").splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    return 0


class _Reader:
    def __init__(self) -> None:
        self._pids: list[int] = []
        self._memory_next = 0.0
        self.readings = Readings()

    def read(self, measure: int) -> None:
        now = time.monotonic()
        is_time = now >= self._memory_next
        if is_time:
            self._pids = descendants(measure, str(LOAD))
            self._memory_next = now + MEMORY_S
        moment = time.monotonic_ns()
        both = [_times(pid) for pid in self._pids] + [_times(measure, only_children=True)]
        for series, column in ((self.readings.cpu, 0), (self.readings.faults, 1)):
            # A process that ends between two looks is for a moment in neither place.
            value = sum(one[column] for one in both)
            series.append((moment, max(value, series[-1][1] if series else 0)))
        if is_time:
            self.readings.memory.append((moment, sum(map(_memory_kib, self._pids))))


# ---- One run. ----


class Runner:
    """Runs servers; `close` removes what it made. What `make` makes is made once."""

    def __init__(self, servers: Sequence[Server], seconds: float, seed: int) -> None:
        self._servers = {server.name: server for server in servers}
        self._seconds = seconds
        self._seed = seed
        self._user = _nobody() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="hakmem-servers-"))
        self._folder.chmod(0o755)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prove(self, case: Case, arm: Arm) -> tuple[dict[str, str], str, float]:
        """Who serves malloc, what is wrong with that, and the highest rate of answers a second."""
        outcome, _, bindings = self._run(case, arm, [f"closed:closed:{PROOF_S:g}"], {"LD_DEBUG": "bindings"})
        sentence = outcome.sentence(case)
        if sentence:
            return {}, sentence, 0.0
        wanted = dataclasses.replace(arm, library=arm.library or _libc())
        files, sentence = measure.judge(bindings, wanted, outcome, case)
        phase = json.loads(outcome.load_output)["phases"][0]
        rate = phase["requests"] * 1e9 / (phase["end_ns"] - phase["start_ns"])
        return files, sentence, rate

    def run(self, case: Case, arm: Arm, rate: float, padding: int, number: int) -> Outcome:
        """Measured; the report is measure's with the figures of the server in it."""
        words = ["--seed", str(self._seed % 10**6 * 1000 + number)]
        outcome, readings, _ = self._run(case, arm, [*words, *phases(self._seconds, rate)], padding=padding)
        if not outcome.sentence(case):
            told = json.loads(outcome.load_output)["phases"]
            outcome.report.update(figures(told, readings, after_s(self._seconds)))
        return outcome

    def _run(
        self, case: Case, arm: Arm, load: list[str], extra: dict[str, str] | None = None, padding: int = 0
    ) -> tuple[Outcome, Readings, list[dict[str, list[str]]]]:
        server = self._servers[case.name]
        with tempfile.TemporaryDirectory(prefix="run-", dir=self._folder) as name:
            folder = Path(name)
            folder.chmod(0o755)
            scratch = folder / "work"
            shutil.copytree(self._made(server), scratch, symlinks=True)
            library = folder / Path(arm.library or _libc()).name
            if arm.library:  # the user of the servers may not read where it is
                shutil.copyfile(arm.library, library)
                library.chmod(0o755)
            else:
                library = Path(_libc())
            self._own(scratch)
            port, port2 = _free_ports()
            variables = arm_environment(dataclasses.replace(arm, library=str(library)))
            variables |= {"port": str(port), "port2": str(port2), PADDING_NAME: "x" * padding}
            if extra:
                variables |= {**extra, "LD_DEBUG_OUTPUT": str(scratch / "bindings")}
            files = {part: folder / part for part in ("output", "errors", "loaded")}
            limit = round(case.timeout_s)
            command = [str(MEASURE), "--timeout-s", str(limit), "--interval-ms", "1000"]
            command += ["--ready-ms", "30000", "--directory", str(scratch)]
            command += ["--stdout", str(files["output"]), "--stderr", str(files["errors"])]
            command += ["--load-stdout", str(files["loaded"])]
            words = [str(LOAD), server.load[0], str(port), *server.load[1:], *load]
            command += [word for part in words for word in ("--load", part)]
            # The allocator begins with the server, not with setpriv and this shell.
            text = f"{_shared()}\n{server.start}"
            exports = [f"{key}={value}" for key, value in variables.items()]
            command += ["--", *self._as_user(), "env", *exports, "/bin/bash", "-c", text]
            reader = _Reader()
            status, said, complaint = run_measure(command, limit, reader.read, READ_S)
            errors = read_end(files["errors"]) or read_end(files["output"])
            report = json.loads(said) if status == 0 else {}
            bindings = measure.all_bindings(scratch)
            if arm.library:
                bindings = [_renamed(one, str(library), arm.library) for one in bindings]
            loaded = read_end(files["loaded"])
            return Outcome(report, "", errors or complaint, loaded), reader.readings, bindings

    def _made(self, server: Server) -> Path:
        """The folder that each start gets a copy of."""
        folder = self._folder / f"made-{server.name}"
        if folder.exists():
            return folder
        making = self._folder / f"making-{server.name}"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        if server.built:
            shutil.copy2(_built(server.built), making)
        self._own(making)
        if server.make:
            said = self._folder / "made.log"
            command = [str(MEASURE), "--timeout-s", f"{MAKE_S}", "--directory", str(making)]
            command += ["--stderr", str(said), "--", *self._as_user()]
            command += ["/bin/bash", "-c", f"{_shared()}\n{server.make}"]
            status, text, complaint = run_measure(command, MAKE_S)
            report = json.loads(text) if status == 0 else {}
            if (report.get("end"), report.get("status")) != ("exit", 0):
                lines = (read_end(said).strip() or complaint.strip()).splitlines() or ["no word"]
                raise Problem(f"cannot make what {server.name} starts with: {lines[-1][:300]}")
        making.rename(folder)
        return folder

    def _own(self, folder: Path) -> None:
        if self._user:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)

    def _as_user(self) -> list[str]:
        if not self._user:
            return []
        return ["setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups",
                "--inh-caps=-all", "--"]


def _nobody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError as error:
        raise Problem("servers run as the user nobody, which this machine does not have") from error


def _renamed(bindings: dict[str, list[str]], old: str, new: str) -> dict[str, list[str]]:
    """The copy of a library is the library."""
    return {symbol: [new if os.path.realpath(file) == os.path.realpath(old) else file for file in files] for symbol,
            files in bindings.items()}


def _libc() -> str:
    """Preloaded it serves also a server that is linked with another malloc."""
    maps = read_text("/proc/self/maps").split()
    return next((word for word in maps if word.endswith("/libc.so.6")), "libc.so.6")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


# ---- Figures. ----


def quantile(latencies: Sequence[Sequence[int]], share: float) -> int:
    """Of pairs (upper end of a step, answers in it)."""
    left = share * sum(count for _, count in latencies)
    for end, count in latencies:
        left -= count
        if left <= 0:
            return end
    return latencies[-1][0] if latencies else 0


def merged(several: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    sums: dict[int, int] = {}
    for one in several:
        for end, count in one:
            sums[end] = sums.get(end, 0) + count
    return [[end, sums[end]] for end in sorted(sums)]


def figures(told: list[dict[str, Any]], readings: Readings, after: float) -> dict[str, Any]:
    """Of a run, from what the load told of its phases and what was read meanwhile. Latencies are
    those of the steady phases; processor time, faults and memory those of all phases."""
    by_name = {phase["name"]: phase for phase in told}
    start, end = told[0]["start_ns"], told[-1]["end_ns"]
    requests = sum(phase["requests"] for phase in told)
    cpu_ns = readings.at(readings.cpu, end) - readings.at(readings.cpu, start)
    faults = readings.at(readings.faults, end) - readings.at(readings.faults, start)
    memory = readings.between(start, end)
    area = sum((v0 + v1) / 2 * (t1 - t0) for (t0, v0), (t1, v1) in zip(memory, memory[1:], strict=False))
    steady = [by_name[name] for name in ("steady", "end")]
    latencies = merged([phase["latencies"] for phase in steady])
    rest = readings.at(readings.memory, round(by_name["quiet"]["start_ns"] + after * 1e9))
    return {
        "rss_peak_kib": max(value for _, value in memory),
        "rss_mean_kib": area / max(end - start, 1),
        "rss_end_kib": memory[-1][1],
        "rss_series": [[(moment - start) / 1e6, value] for moment, value in memory],
        "rest": [[after, round(rest), 0]],
        "serving": {
            "requests": requests, "errors": sum(phase["errors"] for phase in told),
            "cpu_ns": cpu_ns / max(requests, 1), "faults": faults / max(requests, 1),
            "p50_ns": quantile(latencies, 0.5), "p99_ns": quantile(latencies, 0.99), "p999_ns": quantile(latencies, 0.999),
            "worst_ns": max(phase["worst_ns"] for phase in steady), "burst_worst_ns": by_name["burst"]["worst_ns"],
            "latencies": latencies,
            "phases": [[phase["name"], (phase["start_ns"] - start) / 1e9, (phase["end_ns"] - start) / 1e9] for phase in told],
        },
    }
