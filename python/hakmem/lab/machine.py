# SPDX-License-Identifier: MIT
"""The facts of the machine and the checkout that samples depend on."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from .places import ROOT

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


def read_text(path: Path | str) -> str:
    """The content of a small file without the line's end; "" if there is none."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def chosen(path: Path | str) -> str:
    """The word in brackets of files like "always [madvise] never", or all of a plain one."""
    text = read_text(path)
    return text.split("[")[1].split("]")[0] if "[" in text and "]" in text else text


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cpu_name() -> str:
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def machine_id() -> str:
    """Tells machines apart without naming them."""
    identity = read_text("/etc/machine-id") or platform.node()
    facts = f"{identity}/{cpu_name()}/{os.cpu_count()}"
    return hashlib.sha256(facts.encode()).hexdigest()[:8]


def describe() -> dict[str, Any]:
    """What is stored at the head of each session."""
    return {
        "id": machine_id(), "cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)),
        "memory_kib": psutil.virtual_memory().total // 1024, "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()), "architecture": platform.machine(),
        "page_bytes": os.sysconf("SC_PAGESIZE"), "huge_pages": chosen(HUGE_PAGES / "enabled"),
        "huge_pages_defrag": chosen(HUGE_PAGES / "defrag"),
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_1min": os.getloadavg()[0],
    }


def commit() -> str:
    """The checkout's commit, with a plus sign when files differ from it; "" without git."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+" if head and _git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
