# SPDX-License-Identifier: MIT
"""./hakmem peers: installs, lists, adds and removes the other allocators.

One peer that cannot be had never keeps the others from being installed; its reason is one sentence.
"""

import dataclasses
import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .arms import OURS, OURS_SECURE, SYSTEM, Entry, glibc_arm, in_order, plain_name, read_manifest, write_manifest
from .base import Problem, Usage, file_hash, now
from .model import Arm
from .progress import Bar, duration_text
from .proof import examine
from .recipes import RECIPES, Built, Crate, Recipe, Workshop, check_preloadable, peers_directory

Outcome = dict[str, str]  # key -> why it is missing


def run(command: str, names: list[str], force: bool, as_json: bool) -> None:
    """One of the four commands."""
    if force and command != "install":
        raise Usage("--force goes with install")
    if as_json and command != "list":
        raise Usage("--json goes with list")
    if command == "install":
        install(names, force)
    elif command == "list" and not names:
        list_command(as_json)
    elif command == "add" and len(names) == 2:
        add(names[0], Path(names[1]))
    elif command == "remove" and names:
        remove(names)
    else:
        needs = {"list": "list takes no name", "add": "add needs NAME LIBRARY", "remove": "remove needs a NAME"}
        raise Usage(needs[command])


def install(names: list[str], force: bool) -> None:
    """Builds or installs the other allocators, and proves that each serves a process."""
    chosen = choose(names)
    screen = Console(stderr=True)
    if not force and all(_is_there(recipe) for recipe in chosen):
        keys = ", ".join(recipe.key for recipe in chosen)
        print(f"Here already: {keys}; --force makes them again, ./hakmem peers list shows all")
        return
    missing = install_peers(chosen, force, screen)
    have = [recipe for recipe in chosen if recipe.key not in missing]
    known = read_manifest()
    print_list(Console(), [known[recipe.key] for recipe in have if recipe.key in known])
    for key, reason in missing.items():
        screen.print(f"hakmem: without {key}: {reason}", markup=False, soft_wrap=True)
    if not have:
        raise Problem("none of the peers could be installed; the reasons are above")


def list_command(as_json: bool) -> None:
    """Shows which allocators are here: exact versions, sources, compilers, flags."""
    entries = list(read_manifest().values())
    if as_json:
        print(json.dumps([dataclasses.asdict(entry) for entry in entries], indent=1))
        return
    print_list(Console(), entries)
    absent = [recipe.key for recipe in RECIPES if recipe.key not in {e.key for e in entries}]
    if absent:
        print(f"Not installed: {', '.join(absent)}; type: ./hakmem peers install")


def add(name: str, library: Path) -> None:
    """Records a library of your own, after proving that it takes over malloc and operator new."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise Usage(f"'{name}' cannot be a name: a name has letters, digits, dots and dashes only")
    if plain_name(name) in {OURS, OURS_SECURE, SYSTEM, "default", "all"} | _recipe_names():
        raise Usage(f"'{name}' already means another allocator")
    path = Path(os.path.abspath(library))
    if not path.is_file():
        raise Usage(f"there is no file {library}")
    proof = examine(Arm(name, str(path)))
    entry = Entry(key=name, name=name, library=str(path), sha256=file_hash(path), origin="your own", installed=now(),
                  serving=proof.serving, per_cpu=proof.per_cpu)
    with _alone(Console(stderr=True)):
        write_manifest(read_manifest() | {name: entry})
    print(f"{name}: {path} serves malloc, free and operator new; --alloc {name} uses it")


def remove(names: list[str]) -> None:
    """Forgets peers and deletes what was built of them; your own files and packages stay."""
    with _alone(Console(stderr=True)):
        entries = read_manifest()
        unknown = next((name for name in names if name not in entries), None)
        if unknown is not None:
            raise Usage(f"'{unknown}' is not installed; ./hakmem peers list shows what is")
        kept = {key: entry for key, entry in entries.items() if key not in names}
        write_manifest(kept)
        for name in names:
            shutil.rmtree(_home(name), ignore_errors=True)
            print(f"{name}: forgotten")


def choose(names: list[str]) -> list[Recipe]:
    """The recipes of these names, all of them when there is none."""
    if not names:
        return list(RECIPES)
    words = [plain_name(name) for name in names]
    unknown = next((word for word in words if word not in _recipe_names()), None)
    if unknown is not None:
        known = ", ".join(recipe.key for recipe in RECIPES)
        raise Usage(f"there is no recipe '{unknown}'; there are {known}")
    return [r for r in RECIPES if r.key in words or plain_name(r.name) in words]


def _recipe_names() -> set[str]:
    return {name for recipe in RECIPES for name in (recipe.key, plain_name(recipe.name))}


def install_peers(recipes: list[Recipe], force: bool, screen: Console) -> Outcome:
    """Installs what is not there yet; returns the missing ones with their reasons."""
    missing: Outcome = {}
    check_preloadable(peers_directory())
    total = sum(recipe.seconds for recipe in recipes)
    with _alone(screen), Bar(total, console=screen) as bar:
        _sweep()
        for number, recipe in enumerate(recipes):
            begun, before = time.monotonic(), sum(one.seconds for one in recipes[:number])
            bar.show(recipe.name, f"about {duration_text(total - before)} left", before)
            if force or not _is_there(recipe):
                try:
                    _install_one(recipe, bar)
                    said = f"ready after {time.monotonic() - begun:.0f} s"
                except (Problem, OSError) as reason:
                    missing[recipe.key] = str(reason)
                    said = "skipped"
                bar.console.print(f"{recipe.name}: {said}", markup=False)
    return missing


def _is_there(recipe: Recipe) -> bool:
    entry = read_manifest().get(recipe.key)
    return entry is not None and entry.recipe == recipe.fingerprint and not entry.fault


def _install_one(recipe: Recipe, bar: Bar) -> None:
    folder = peers_directory()
    log = folder / "logs" / f"{recipe.key}.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{recipe.key}-", dir=folder / "build") as scratch:
        workshop = Workshop(log, Path(scratch), len(os.sched_getaffinity(0)),
                            tell=lambda step: bar.show(f"{recipe.name}: {step}"),
                            advance=lambda part: bar.advance(part * recipe.seconds))
        built, commit = recipe.make(workshop)
        built = dataclasses.replace(built, library=_settle(recipe, built, workshop.folder))
    entry = _entry_of(recipe, built, commit)
    workshop.tell("proving")
    proof = examine(entry.arm)
    if "rseq=0" in str(recipe.environment) and not proof.per_cpu:
        raise Problem("it does not say that its per-CPU caches are active")
    entry = dataclasses.replace(entry, serving=proof.serving, per_cpu=proof.per_cpu)
    write_manifest(read_manifest() | {recipe.key: entry})


def _settle(recipe: Recipe, built: Built, scratch: Path) -> Path:
    """Moves a library that was built to its place; one of the system stays where it is."""
    if not built.library.is_relative_to(scratch):
        return built.library
    home = _home(recipe.key)
    home.mkdir(parents=True, exist_ok=True)
    return built.library.rename(home / built.library.name)


def _entry_of(recipe: Recipe, built: Built, commit: str) -> Entry:
    origin = recipe.origin
    return Entry(key=recipe.key, name=recipe.name, library=str(built.library), sha256=file_hash(built.library),
                 version=recipe.version or built.version, origin=str(origin),
                 checksum=origin.checksum if isinstance(origin, Crate) else "", commit=commit, compiler=built.compiler,
                 flags=built.flags, environment=dict(recipe.environment), is_default=recipe.is_default,
                 recipe=recipe.fingerprint, installed=now())


def _home(key: str) -> Path:
    return peers_directory() / "libraries" / key


def _sweep() -> None:
    """What killed installations left; nobody else is at work, for the lock is ours."""
    build = peers_directory() / "build"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(exist_ok=True)
    (peers_directory() / "logs").mkdir(exist_ok=True)


@contextmanager
def _alone(screen: Console) -> Iterator[None]:
    """One writer of the folder at a time; the kernel drops the lock with the process."""
    folder = peers_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise Problem(f"cannot write to {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            screen.print("hakmem: waiting for another installation to end", markup=False)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def print_list(screen: Console, entries: list[Entry]) -> None:
    table = Table(title=f"Allocators in {peers_directory()}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("--alloc", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for entry in in_order(entries):
        table.add_row(Text(entry.key), Text("\n".join(_describe(entry))))
    table.add_row(SYSTEM, f"the C library's own malloc, {glibc_arm().version}")
    screen.print(table)


def _describe(entry: Entry) -> Iterator[str]:
    if entry.fault:
        yield f"CANNOT BE USED: {entry.fault}"
    commit = f", packed from commit {entry.commit[:12]}" if entry.commit else ""
    yield f"{entry.name} {entry.version}".strip() + f", {entry.origin}{commit}"
    yield f"{entry.compiler}: {entry.flags}" if entry.compiler else entry.library
    for variable, value in entry.environment.items():
        yield f"runs with {variable}={value}" + (": per-CPU mode proved" * bool(entry.per_cpu))
    yield f"library {entry.sha256[:16]}, proved {entry.installed[:10]}"
