# SPDX-License-Identifier: MIT
"""`doctor`: what on this machine makes measurements unreliable, and what to do about it.

Watches the machine for a second, then measures the noise itself: the same loop again and again
should take the same time each time.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from rich.console import Console
from rich.text import Text

from . import machine
from .checks import CHECKS, Busy, Finding, System

WATCH_S = 1.0
NOISE_SAMPLES = 40
NOISE_SAMPLE_S = 0.03  # a few scheduler ticks: what interrupts a run interrupts a sample
NOISE_WARNING, NOISE_BAD = 0.03, 0.10  # coefficient of variation
NOISE_BUFFER = 32 << 20  # beyond most last-level caches
_STYLES = {"bad": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}


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
    findings = [finding for check in CHECKS for finding in check(system)]
    findings += measure_noise()
    order = list(_STYLES)
    findings.sort(key=lambda finding: order.index(finding.level))
    return all(f.level != "bad" for f in findings), [f.to_json() for f in findings]


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
    return System(
        cores=len(os.sched_getaffinity(0)), available_gib=psutil.virtual_memory().available / 2**30,
        load_1min=os.getloadavg()[0], busy=_busy(before_times, elapsed),
        steal=(after["steal"] - before["steal"]) / total if total > 0 else 0.0,
        swapped_pages=int(after["swap"] - before["swap"]),
        throttle_count=int(after["throttle"] - before["throttle"]),
        on_battery=battery is not None and battery.power_plugged is False,
        address_limit=resource.getrlimit(resource.RLIMIT_AS)[0],
    )


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
    pages = dict(line.split(" ", 1) for line in machine.read_text("/proc/vmstat").splitlines() if " " in line)
    throttled = Path("/sys/devices/system/cpu").glob("cpu*/thermal_throttle/*_throttle_count")
    return {
        "cpu": sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0),
        "steal": getattr(times, "steal", 0.0),
        "swap": int(pages.get("pswpin", 0)) + int(pages.get("pswpout", 0)),
        "throttle": sum(int(machine.read_text(file) or 0) for file in throttled),
    }


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
