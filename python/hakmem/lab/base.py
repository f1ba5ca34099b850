# SPDX-License-Identifier: MIT
"""What all of the laboratory stands on: problems, folders and files, and the facts of the machine and the checkout.

The launcher says where the checkout is and where it builds.
"""

import contextlib
import hashlib
import os
import platform
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil


class Problem(Exception):
    """Ends a command, as one sentence for the user. `status`: 1 it could not be done, 2 it was asked for wrongly."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class Usage(Problem):
    """The user asked for something that does not exist or make sense."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, 2)


# ---- Folders and files. ----

ROOT = Path(os.environ.get("LABORATORY_ROOT") or Path(__file__).resolve().parents[3])
"""The checkout."""
BUILD = Path(os.environ.get("LABORATORY_BUILD") or ROOT / "build") / "release"
"""Where the release form is built: libhakmem.so, bench/NAME, lab/measure."""


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


def cache_directory() -> Path:
    """Peers, downloads, inputs of program workloads: can be made again at any time."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "hakmem"


def results_directory() -> Path:
    """Sessions: cannot be made again."""
    return _xdg("XDG_DATA_HOME", ".local/share") / "hakmem" / "results"


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise Problem(f"cannot write {path}: {error.strerror}") from error


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise Problem(f"{file} is not valid TOML: {error}") from error


def read_text(path: Path | str) -> str:
    """The content of a small file without the line's end; "" if there is none."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file; "" of none."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


# ---- The machine and the checkout. ----

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


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
    facts = f"{read_text('/etc/machine-id') or platform.node()}/{cpu_name()}/{os.cpu_count()}"
    return hashlib.sha256(facts.encode()).hexdigest()[:8]


def describe_machine() -> dict[str, Any]:
    """What is stored at the head of each session."""
    return {"id": machine_id(), "cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)),
            "memory_kib": psutil.virtual_memory().total // 1024, "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver()), "architecture": platform.machine(),
            "page_bytes": os.sysconf("SC_PAGESIZE"), "huge_pages": chosen(HUGE_PAGES / "enabled"),
            "huge_pages_defrag": chosen(HUGE_PAGES / "defrag"),
            "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "load_1min": os.getloadavg()[0]}


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
