# SPDX-License-Identifier: MIT
"""`doctor`: what on this machine makes measurements unreliable, and what to do about it.

Reads files of the machine, watches it for a second, then measures the noise itself: the same loop again and again
should take the same time each time. Levels of what is found: "bad" makes verdicts untrustworthy, "warning" makes them
noisier or less general, "note" is good to know, "ok" is as it should be.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.text import Text

from . import base

WATCH_S = 1.0
NOISE_SAMPLES = 40
NOISE_SAMPLE_S = 0.03  # a few scheduler ticks: what interrupts a run interrupts a sample
NOISE_WARNING, NOISE_BAD = 0.03, 0.10  # coefficient of variation
NOISE_BUFFER = 32 << 20  # beyond most last-level caches
BUSY_WARNING, BUSY_BAD = 0.05, 0.25  # cores that others use
STEAL_WARNING, STEAL_BAD = 0.005, 0.03  # share of the time the hypervisor gave to others
MEMORY_WARNING_GIB, MEMORY_BAD_GIB = 4.0, 2.0  # the largest workloads hold one, briefly two
FAST_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}
_STYLES = {"bad": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}


@dataclass(frozen=True)
class Finding:
    name: str
    level: str
    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class Busy:
    """A process that used a core while we watched."""

    name: str
    pid: int
    user: str
    cores: float


@dataclass(frozen=True)
class System:
    """The files of the machine, and what was seen of it during a second."""

    root: Path = Path("/")
    cores: int = 1
    available_gib: float = 64.0
    load_1min: float = 0.0
    busy: list[Busy] = field(default_factory=list)
    steal: float = 0.0
    swapped_pages: int = 0
    throttle_count: int = 0
    on_battery: bool = False
    address_limit: int = resource.RLIM_INFINITY

    def text(self, path: str) -> str:
        return base.read_text(self.root / path)

    def cpu(self, path: str) -> str:
        return self.text(f"sys/devices/system/cpu/{path}")


# ---- The checks. ----


def check(system: System) -> Iterator[Finding]:
    yield from _check_others(system)
    yield from _check_clock(system)
    yield from _check_memory(system)
    yield from _check_tools(system)


def _check_others(system: System) -> Iterator[Finding]:
    """Who else takes time."""
    if system.cores == 1:
        yield Finding("cores", "warning", "This process may use one core only, so threads never meet.",
                      "Use a machine with two cores or more for workloads with threads.")
    else:
        yield Finding("cores", "ok", f"{system.cores} cores.")
    total = sum(one.cores for one in system.busy)
    if total < BUSY_WARNING:
        yield Finding("others", "ok", "No other process uses the cores.")
    else:
        most = sorted(system.busy, key=lambda one: -one.cores)[:4]
        named = ", ".join(f"{b.name} (process {b.pid} of {b.user}) {b.cores:.0%}" for b in most)
        yield Finding("others", "bad" if total >= BUSY_BAD else "warning",
                      f"Other processes use {total:.0%} of a core: {named}.", "Wait for them, or stop them.")
    # The load lags by a minute: what ended just now is in it, so it only warns.
    if system.load_1min > system.cores * 0.5:
        yield Finding("load", "warning", f"The load of the last minute is {system.load_1min:.1f}.",
                      "If nothing is busy any more, give a warm machine a minute.")
    if system.steal >= STEAL_WARNING:
        yield Finding("steal", "bad" if system.steal >= STEAL_BAD else "warning",
                      f"The hypervisor gave {system.steal:.1%} of our time to other machines.",
                      "Measure when the host is quieter, or on a dedicated host.")
    elif "hypervisor" in system.text("proc/cpuinfo").split():
        yield Finding("steal", "note", "A virtual machine: its host may be shared, though no time was stolen now.",
                      "Trust the A/A noise, and repeat what matters on another day.")
    quota = _quota(system)
    if quota is not None:
        # Also a quota of all cores throttles: it is counted in periods of 100 ms.
        yield Finding("quota", "bad" if quota < system.cores else "warning",
                      f"The container may use {quota:g} cores and is stopped for a while beyond that.",
                      "Start it without a CPU limit; pin it to cores instead (--cpuset-cpus).")


def _quota(system: System) -> float | None:
    """Cores that our control group, or the nearest one above it with a limit, may use."""
    match = re.search(r"^0::/(.*)$", system.text("proc/self/cgroup"), re.MULTILINE)
    path = Path(match.group(1) if match else "")
    for part in (path, *path.parents):
        quota, _, period = system.text(f"sys/fs/cgroup/{part}/cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            return int(quota) / int(period)
    return None


def _check_clock(system: System) -> Iterator[Finding]:
    """How fast the processor runs, and how it tells the time."""
    governor = system.cpu("cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        yield Finding("governor", "warning", f"The clock governor is {governor}: the clock follows the load.",
                      "Type: sudo cpupower frequency-set -g performance")
    for file, on, off in (("intel_pstate/no_turbo", "0", 1), ("cpufreq/boost", "1", 0)):
        if system.cpu(file) == on:
            yield Finding("turbo", "warning", "Turbo is on: the clock depends on heat and on the other cores.",
                          f"Type: echo {off} | sudo tee /sys/devices/system/cpu/{file}")
    if system.throttle_count > 0:
        yield Finding("heat", "bad", f"The processor throttled {system.throttle_count} times just now.",
                      "Let it cool; see to its fan.")
    if system.on_battery:
        yield Finding("power", "bad", "The machine runs on its battery.", "Plug it in.")
    source = system.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source and source not in FAST_CLOCKS:
        yield Finding("clock", "warning", f"The clock source is {source}: reading it is slow.",
                      "Latencies of single calls are not to be trusted here; times of whole runs are.")


def _check_memory(system: System) -> Iterator[Finding]:
    if system.available_gib < MEMORY_WARNING_GIB:
        yield Finding("memory", "bad" if system.available_gib < MEMORY_BAD_GIB else "warning",
                      f"{system.available_gib:.1f} GiB of memory are free.",
                      "The largest workloads need two gigabytes: free some memory, or leave them out.")
    if system.swapped_pages > 0:
        yield Finding("swap", "bad", f"The machine swaps ({system.swapped_pages} pages just now).",
                      "Free memory, or type: sudo swapoff -a")
    mode, defrag = (base.chosen(system.root / "sys/kernel/mm/transparent_hugepage" / name) for name in ("enabled", "defrag"))
    if mode == "always":
        yield Finding("huge pages", "note", f"Huge pages are always tried (defrag {defrag}): memory figures are coarser, and "
                      "differ from machines where they are not.",
                      "Compare only sessions of the same mode; it is stored with each.")
    elif mode:
        yield Finding("huge pages", "ok", f"Huge pages: {mode} (defrag {defrag}).")
    randomized = system.text("proc/sys/kernel/randomize_va_space")
    if randomized and randomized != "2":
        yield Finding("ASLR", "warning", "Addresses are not fully randomised: one layout favours one arm by accident.",
                      "Type: sudo sysctl kernel.randomize_va_space=2")
    if system.address_limit != resource.RLIM_INFINITY:
        yield Finding("limits", "bad", f"The address space is limited to {system.address_limit >> 20} MiB (ulimit -v): "
                      "allocators that reserve much and use little fail.", "Type: ulimit -v unlimited")
    if system.text("proc/sys/vm/overcommit_memory") == "2":
        yield Finding("limits", "warning", "The kernel does not overcommit memory: reservations may fail.",
                      "Type: sudo sysctl vm.overcommit_memory=0")


def _check_tools(system: System) -> Iterator[Finding]:
    if system.text("etc/hakmem.conf"):
        yield Finding("options", "warning", "/etc/hakmem.conf sets options of hakmem, in measurements, too.",
                      "Set HAKMEM_CONFIG_FILE=/dev/null for hakmem: --alloc hakmem:config_file=/dev/null.")
    if shutil.which("valgrind") is None:
        yield Finding("valgrind", "note", "valgrind is not installed; --instructions needs it.",
                      "Type: sudo apt-get install -y valgrind")


# ---- The command. ----


def run(as_json: bool) -> int:
    """Says what on this machine makes measurements unreliable; status 1 when it is unfit."""
    is_fit, findings = fit()
    if as_json:
        print(json.dumps({"fit": is_fit, "findings": findings}, indent=1))
    else:
        console = Console()
        for finding in findings:
            console.print(_line(finding), soft_wrap=True)
        verdict = "fit for measuring" if is_fit else "not fit for measuring"
        console.print(f"This machine is {verdict} now.", highlight=False)
    return 0 if is_fit else 1


def fit() -> tuple[bool, list[dict[str, str]]]:
    """Whether verdicts measured now can be trusted, and all findings, the worst first."""
    system = observe()
    findings = [*check(system), *measure_noise()]
    findings.sort(key=lambda finding: list(_STYLES).index(finding.level))
    return all(f.level != "bad" for f in findings), [asdict(finding) for finding in findings]


def warn() -> list[dict[str, str]]:
    """Shows what is bad or to be warned of, and returns that."""
    _, findings = fit()
    serious = [finding for finding in findings if finding["level"] in ("bad", "warning")]
    for finding in serious:
        Console(stderr=True).print(_line(finding), soft_wrap=True)
    return serious


def observe(seconds: float = WATCH_S) -> System:
    """Watches the machine for so long."""
    before, before_times = _counters(), _process_times()
    start = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    after = _counters()
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    total = after["cpu"] - before["cpu"]
    return System(cores=len(os.sched_getaffinity(0)), available_gib=psutil.virtual_memory().available / 2**30,
                  load_1min=os.getloadavg()[0], busy=_busy(before_times, elapsed),
                  steal=(after["steal"] - before["steal"]) / total if total > 0 else 0.0,
                  swapped_pages=int(after["swap"] - before["swap"]),
                  throttle_count=int(after["throttle"] - before["throttle"]),
                  on_battery=battery is not None and battery.power_plugged is False,
                  address_limit=resource.getrlimit(resource.RLIMIT_AS)[0])


def measure_noise() -> list[Finding]:
    """How much the time of the same work varies: computing, and copying memory."""
    source, target = bytearray(NOISE_BUFFER), bytearray(NOISE_BUFFER)

    def copy(count: int) -> None:
        for _ in range(count):
            target[:] = source

    return [judge_noise("computing", repeat(_spin)), judge_noise("memory", repeat(copy))]


def repeat(work: Callable[[int], None]) -> list[float]:
    """Seconds of many runs of the same work, each about NOISE_SAMPLE_S long."""
    count = 1
    while (seconds := _time(work, count)) < NOISE_SAMPLE_S / 2:
        count *= 2
    count = max(1, round(count * NOISE_SAMPLE_S / seconds))
    return [_time(work, count) for _ in range(NOISE_SAMPLES)]


def judge_noise(name: str, seconds: Sequence[float]) -> Finding:
    variation = statistics.stdev(seconds) / statistics.mean(seconds)
    sentence = f"The time of the same work varies by {variation:.1%} ({name})."
    if variation < NOISE_WARNING:
        return Finding(f"noise of {name}", "ok", sentence)
    level = "bad" if variation >= NOISE_BAD else "warning"
    remedy = "See the other findings; if there are none, another machine on the same host is busy."
    return Finding(f"noise of {name}", level, sentence, remedy)


def _spin(count: int) -> None:
    for _ in range(count * 1000):
        pass


def _time(work: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    work(count)
    return time.perf_counter() - start


def _counters() -> dict[str, float]:
    """Counters of the kernel since its start."""
    times = psutil.cpu_times()
    pages = dict(line.split(" ", 1) for line in base.read_text("/proc/vmstat").splitlines() if " " in line)
    throttled = Path("/sys/devices/system/cpu").glob("cpu*/thermal_throttle/*_throttle_count")
    return {"cpu": sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0),
            "steal": getattr(times, "steal", 0.0), "swap": int(pages.get("pswpin", 0)) + int(pages.get("pswpout", 0)),
            "throttle": sum(int(base.read_text(file) or 0) for file in throttled)}


def _process_times() -> dict[tuple[int, float], float]:
    """CPU seconds of each process; a pid with its start is unique."""
    times = {}
    for process in psutil.process_iter(["pid", "create_time", "cpu_times"]):
        used = process.info["cpu_times"]
        if used is not None:
            times[process.pid, process.info["create_time"]] = used.user + used.system
    return times


def _busy(before: dict[tuple[int, float], float], elapsed: float) -> list[Busy]:
    """Processes other than this one that used more than a hundredth of a core since."""
    busy = []
    for (pid, created), used in _process_times().items():
        cores = (used - before.get((pid, created), 0.0)) / elapsed
        if pid == os.getpid() or cores < 0.01:
            continue
        with contextlib.suppress(psutil.Error):  # it may have ended
            process = psutil.Process(pid)
            busy.append(Busy(process.name(), pid, process.username(), cores))
    return busy


def _line(finding: dict[str, str]) -> Text:
    level = finding["level"]
    text = Text(f"{level:<8}", style=_STYLES[level])
    text.append(f"{finding['sentence']} {finding['remedy']}".rstrip(), style="not bold default")
    return text
