# SPDX-License-Identifier: MIT
"""The folders of the laboratory. The launcher says where the checkout is and where it builds."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .problem import Problem

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
