# SPDX-License-Identifier: MIT
"""What makes measurements on this machine unreliable: one small check each.

A check reads files under `System.root` (a copy in tests) or what `observe` saw during a second, and
returns findings. Levels: "bad" makes verdicts untrustworthy, "warning" makes them noisier or less
general, "note" is good to know, "ok" is as it should be.
"""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import machine

BUSY_WARNING, BUSY_BAD = 0.05, 0.25  # cores that others use
STEAL_WARNING, STEAL_BAD = 0.005, 0.03  # share of the time the hypervisor gave to others
MEMORY_WARNING_GIB, MEMORY_BAD_GIB = 4.0, 2.0  # the largest workloads hold one, briefly two
FAST_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}


@dataclass(frozen=True)
class Finding:
    name: str
    level: str
    sentence: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


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
        return machine.read_text(self.root / path)

    def chosen(self, path: str) -> str:
        return machine.chosen(self.root / path)


Check = Callable[[System], Iterator[Finding]]


def check_cores(system: System) -> Iterator[Finding]:
    if system.cores == 1:
        yield Finding(
            "cores", "warning", "This process may use one core only, so threads never meet.",
            "Use a machine with two cores or more for workloads with threads.",
        )
    else:
        yield Finding("cores", "ok", f"{system.cores} cores.")


def check_busy(system: System) -> Iterator[Finding]:
    total = sum(one.cores for one in system.busy)
    if total < BUSY_WARNING:
        yield Finding("others", "ok", "No other process uses the cores.")
        return
    most = sorted(system.busy, key=lambda one: -one.cores)[:4]
    named = ", ".join(f"{b.name} (process {b.pid} of {b.user}) {b.cores:.0%}" for b in most)
    yield Finding(
        "others", "bad" if total >= BUSY_BAD else "warning",
        f"Other processes use {total:.0%} of a core: {named}.", "Wait for them, or stop them.",
    )


def check_load(system: System) -> Iterator[Finding]:
    """The load lags by a minute: what ended just now is in it, so it only warns."""
    if system.load_1min > system.cores * 0.5:
        yield Finding(
            "load", "warning", f"The load of the last minute is {system.load_1min:.1f}.",
            "If nothing is busy any more, give a warm machine a minute.",
        )


def check_steal(system: System) -> Iterator[Finding]:
    is_virtual = "hypervisor" in system.text("proc/cpuinfo").split()
    if system.steal >= STEAL_WARNING:
        yield Finding(
            "steal", "bad" if system.steal >= STEAL_BAD else "warning",
            f"The hypervisor gave {system.steal:.1%} of our time to other machines.",
            "Measure when the host is quieter, or on a dedicated host.",
        )
    elif is_virtual:
        yield Finding(
            "steal", "note",
            "A virtual machine: its host may be shared, though no time was stolen now.",
            "Trust the A/A noise, and repeat what matters on another day.",
        )


def check_quota(system: System) -> Iterator[Finding]:
    for directory in _cgroups(system):
        quota, _, period = system.text(f"{directory}/cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            cores = int(quota) / int(period)
            # Also a quota of all cores throttles: it is counted in periods of 100 ms.
            yield Finding(
                "quota", "bad" if cores < system.cores else "warning",
                f"The container may use {cores:g} cores and is stopped for a while beyond that.",
                "Start it without a CPU limit; pin it to cores instead (--cpuset-cpus).",
            )
            return


def check_governor(system: System) -> Iterator[Finding]:
    governor = system.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        yield Finding(
            "governor", "warning", f"The clock governor is {governor}: the clock follows the load.",
            "Type: sudo cpupower frequency-set -g performance",
        )


def check_turbo(system: System) -> Iterator[Finding]:
    intel_off = system.text("sys/devices/system/cpu/intel_pstate/no_turbo")
    boost = system.text("sys/devices/system/cpu/cpufreq/boost")
    if intel_off == "0" or boost == "1":
        file = "intel_pstate/no_turbo" if intel_off == "0" else "cpufreq/boost"
        value = 1 if intel_off == "0" else 0
        yield Finding(
            "turbo", "warning", "Turbo is on: the clock depends on heat and on the other cores.",
            f"Type: echo {value} | sudo tee /sys/devices/system/cpu/{file}",
        )


def check_throttling(system: System) -> Iterator[Finding]:
    if system.throttle_count > 0:
        yield Finding(
            "heat", "bad", f"The processor throttled {system.throttle_count} times just now.",
            "Let it cool; see to its fan.",
        )


def check_power(system: System) -> Iterator[Finding]:
    if system.on_battery:
        yield Finding("power", "bad", "The machine runs on its battery.", "Plug it in.")


def check_clock(system: System) -> Iterator[Finding]:
    source = system.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source and source not in FAST_CLOCKS:
        yield Finding(
            "clock", "warning", f"The clock source is {source}: reading it is slow.",
            "Latencies of single calls are not to be trusted here; times of whole runs are.",
        )


def check_memory(system: System) -> Iterator[Finding]:
    if system.available_gib < MEMORY_WARNING_GIB:
        yield Finding(
            "memory", "bad" if system.available_gib < MEMORY_BAD_GIB else "warning",
            f"{system.available_gib:.1f} GiB of memory are free.",
            "The largest workloads need two gigabytes: free some memory, or leave them out.",
        )


def check_swap(system: System) -> Iterator[Finding]:
    if system.swapped_pages > 0:
        yield Finding(
            "swap", "bad", f"The machine swaps ({system.swapped_pages} pages just now).",
            "Free memory, or type: sudo swapoff -a",
        )


def check_huge_pages(system: System) -> Iterator[Finding]:
    mode = system.chosen("sys/kernel/mm/transparent_hugepage/enabled")
    defrag = system.chosen("sys/kernel/mm/transparent_hugepage/defrag")
    if mode == "always":
        yield Finding(
            "huge pages", "note",
            f"Huge pages are always tried (defrag {defrag}): memory figures are coarser, and "
            "differ from machines where they are not.",
            "Compare only sessions of the same mode; it is stored with each.",
        )
    elif mode:
        yield Finding("huge pages", "ok", f"Huge pages: {mode} (defrag {defrag}).")


def check_aslr(system: System) -> Iterator[Finding]:
    mode = system.text("proc/sys/kernel/randomize_va_space")
    if mode and mode != "2":
        yield Finding(
            "ASLR", "warning",
            "Addresses are not fully randomised: one layout favours one arm by accident.",
            "Type: sudo sysctl kernel.randomize_va_space=2",
        )


def check_limits(system: System) -> Iterator[Finding]:
    if system.address_limit != resource.RLIM_INFINITY:
        yield Finding(
            "limits", "bad",
            f"The address space is limited to {system.address_limit >> 20} MiB (ulimit -v): "
            "allocators that reserve much and use little fail.",
            "Type: ulimit -v unlimited",
        )
    if system.text("proc/sys/vm/overcommit_memory") == "2":
        yield Finding(
            "limits", "warning", "The kernel does not overcommit memory: reservations may fail.",
            "Type: sudo sysctl vm.overcommit_memory=0",
        )


def check_counters(system: System) -> Iterator[Finding]:
    paranoid = system.text("proc/sys/kernel/perf_event_paranoid")
    has_device = any((system.root / "sys/bus/event_source/devices").glob("cpu*"))
    if not has_device:
        yield Finding(
            "counters", "note", "No hardware counters here (usual in virtual machines).",
            "Instructions are counted with callgrind: --instructions.",
        )
    elif paranoid and int(paranoid) > 2:
        yield Finding(
            "counters", "note", "Hardware counters are closed to users.",
            "Type: sudo sysctl kernel.perf_event_paranoid=2",
        )


def check_options_file(system: System) -> Iterator[Finding]:
    if system.text("etc/hakmem.conf"):
        yield Finding(
            "options", "warning", "/etc/hakmem.conf sets options of hakmem, in measurements, too.",
            "Set HAKMEM_CONFIG_FILE=/dev/null for hakmem: --alloc hakmem:config_file=/dev/null.",
        )


def check_valgrind(system: System) -> Iterator[Finding]:
    if shutil.which("valgrind") is None:
        yield Finding(
            "valgrind", "note", "valgrind is not installed; --instructions needs it.",
            "Type: sudo apt-get install -y valgrind",
        )


CHECKS: tuple[Check, ...] = (
    check_cores, check_busy, check_load, check_steal, check_quota, check_governor, check_turbo,
    check_throttling, check_power, check_clock, check_memory, check_swap, check_huge_pages,
    check_aslr, check_limits, check_counters, check_options_file, check_valgrind,
)


def _cgroups(system: System) -> Iterator[str]:
    """The directories of our control group and those above it, as paths under the root."""
    match = re.search(r"^0::/(.*)$", system.text("proc/self/cgroup"), re.MULTILINE)
    path = Path(match.group(1) if match else "")
    for part in (path, *path.parents):
        yield f"sys/fs/cgroup/{part}"
