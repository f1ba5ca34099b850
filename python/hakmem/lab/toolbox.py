# SPDX-License-Identifier: MIT
"""What recipes are made with: commands with a log and a limit, Debian packages, sources of crates.

Everything that is built lands in one folder of the cache, and only ever whole: under a name of its
own first, then renamed. So a killed installation leaves nothing that could be taken for finished.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .measure import clean_environment
from .places import ROOT, cache_directory
from .problem import Problem

UNPRELOADABLE = re.compile(r"[\s:$]")
"""What LD_PRELOAD cannot hold: it separates by spaces and colons and expands dollars."""

BUILD_SETTINGS = {"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "CARGO_MAKEFLAGS"}
"""Variables of the caller that would change a build without being recorded."""

PACKAGES = {"cc": "gcc", "c++": "g++"}
"""The Debian package of a command, where it has another name."""

COMMAND_LIMIT_S = 900


def peers_directory() -> Path:
    return cache_directory() / "peers"


def check_preloadable(path: Path | str) -> None:
    found = UNPRELOADABLE.search(str(path))
    if found:
        what = {":": "a colon", "$": "a dollar sign"}.get(found.group(), "a space")
        raise Problem(
            f"LD_PRELOAD cannot hold the path '{path}', because there is {what} in it;"
            " use a folder without spaces, colons and dollar signs"
        )


def build_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without what steers allocators and compilers; messages in C.

    mimalloc prints when it was built: with a fixed date the same source gives the same library.
    """
    kept = {k: v for k, v in clean_environment().items() if k not in BUILD_SETTINGS}
    return kept | {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"} | dict(extra or {})


@dataclass
class Workshop:
    """Where one peer is made: its log, its folder, and whom to tell how far it is."""

    log: Path
    folder: Path
    jobs: int = 1
    tell: Callable[[str], None] = field(default=lambda step: None)
    advance: Callable[[float], None] = field(default=lambda part: None)

    def run(
        self, command: Sequence[str | Path], directory: Path | None = None,
        environment: Mapping[str, str] | None = None, limit_s: float = COMMAND_LIMIT_S,
    ) -> str:
        """Runs a command to its end, returns and logs its output; a failure is a Problem."""
        words = [str(word) for word in command]
        output, status = _run_in_group(words, directory, build_environment(environment), limit_s)
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n{output}[{status}]\n")
        if status is None:
            raise Problem(f"{words[0]} did not end within {limit_s:.0f} s (log: {self.log})")
        if status != 0:
            raise Problem(f"{Path(words[0]).name} failed: {reason_in(output)} (log: {self.log})")
        return output


def _run_in_group(
    words: list[str], directory: Path | None, environment: dict[str, str], limit_s: float
) -> tuple[str, int | None]:
    """A group of its own, so that what make or cargo started ends with them."""
    try:
        process = subprocess.Popen(
            words, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Problem(f"{words[0]} cannot be run: {error.strerror}") from error
    try:
        output, _ = process.communicate(timeout=limit_s)
        return output, process.returncode
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return output, None
        raise


def reason_in(output: str) -> str:
    """The line of a failed command's output that says most: the last that speaks of an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\berror\b|cannot|could not|^E:", line, re.I)]
    return (telling or lines or ["it said nothing"])[-1][:200]


def need(workshop: Workshop, command: str) -> str:
    """The path of a command; installs its Debian package when it is missing."""
    if shutil.which(command) is None:
        install_packages(workshop, PACKAGES.get(command, command))
    return shutil.which(command) or command


def install_packages(workshop: Workshop, *packages: str) -> None:
    """As root on Debian and Ubuntu with --install; else a Problem that says what to type."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Problem(f"{names} is missing; install it with the system's package manager")
    if os.geteuid() != 0:
        raise Problem(f"{names} is missing; type: sudo apt-get install -y {names}")
    if os.environ.get("LABORATORY_INSTALL") != "yes":
        raise Problem(f"{names} is missing; type: apt-get install -y {names}")
    workshop.tell(f"apt-get install {names}")
    # It goes on after its caller has been ended: a dpkg must not stop halfway.
    workshop.run([ROOT / "tools" / "install_packages.sh", *packages])


def find_cargo(workshop: Workshop) -> str:
    """cargo from PATH or rustup's folder, else Debian's: cargo-web is the current one there."""
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    found = shutil.which("cargo") or shutil.which("cargo", path=f"{home}/bin")
    if found is None:
        try:
            install_packages(workshop, "cargo-web")
        except Problem:
            install_packages(workshop, "cargo")
        found = shutil.which("cargo")
    if found is None:
        raise Problem("cargo is missing")
    return found


@dataclass(frozen=True)
class Crate:
    """A package of crates.io that carries an allocator's source."""

    name: str
    version: str
    checksum: str  # SHA-256 of the .crate file, as in Cargo.lock

    def __str__(self) -> str:
        return f"crate {self.name} {self.version}"


def crate_sources(workshop: Workshop, crate: Crate) -> Path:
    """The unpacked crate, fetched by cargo (so by the machine's own settings) unless it is here."""
    sources = peers_directory() / "sources"
    target = sources / f"{crate.name}-{crate.version}"
    if target.is_dir():
        return target
    cargo = find_cargo(workshop)
    workshop.tell(f"cargo vendor {crate.name}")
    project = workshop.folder / "fetch"
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").touch()
    (project / "Cargo.toml").write_text(
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2018"\n[workspace]\n'
        f'[dependencies]\n{crate.name} = {{ version = "={crate.version}" }}\n'
    )
    # By itself, vendor would pass by the mirror that the machine's settings may name.
    options = ["--versioned-dirs", "--respect-source-config"]
    workshop.run([cargo, "vendor", *options, "vendor"], project, limit_s=300)
    found = [*(project / "vendor").glob(f"{crate.name}-{crate.version}*")]
    if len(found) != 1:
        raise Problem(f"cargo did not deliver {crate}")
    said = json.loads((found[0] / ".cargo-checksum.json").read_text())["package"]
    if said != crate.checksum:
        raise Problem(f"{crate} is not the one this was written for: its checksum is {said}")
    sources.mkdir(parents=True, exist_ok=True)
    found[0].rename(target)
    return target


def crate_commit(sources: Path) -> str:
    """The commit of the crate's own repository, as its packer recorded it; "" if not."""
    try:
        return json.loads((sources / ".cargo_vcs_info.json").read_text())["git"]["sha1"]
    except (OSError, ValueError, KeyError):
        return ""
