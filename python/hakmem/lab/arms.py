# SPDX-License-Identifier: MIT
"""What can serve a case: our library, the C library's malloc, installed peers, the user's own file.

State: manifest.json in the peers' folder, one entry for each peer, rewritten whole. An entry whose
library is no longer what was proved is not used, and says so.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import base
from .base import Problem, Usage, file_hash
from .model import Arm
from .profile_file import is_file_name, read_profile
from .recipes import RECIPES, check_preloadable, peers_directory

OURS, SYSTEM = "hakmem", "glibc"
OURS_SECURE = "hakmem-secure"
SETTING = re.compile(r":(?=[A-Za-z_][A-Za-z0-9_]*=)")
REPEAT = "type: ./hakmem peers install"


@dataclass(frozen=True)
class Entry:
    """One line of the manifest."""

    key: str  # the short name
    name: str
    library: str
    sha256: str
    version: str = ""
    origin: str = ""  # "crate libmimalloc-sys 0.1.49", "Debian libtbbmalloc2", "the user's"
    checksum: str = ""  # of the source package
    commit: str = ""  # of the repository the source package was made from
    compiler: str = ""
    flags: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    is_default: bool = True
    recipe: str = ""  # its fingerprint; "" is the user's own library
    installed: str = ""
    serving: dict[str, str] = field(default_factory=dict)  # the proof
    per_cpu: bool | None = None

    @property
    def arm(self) -> Arm:
        level = re.findall(r"-O\w\b", self.flags)[:1]
        parts = (self.version, self.origin, self.compiler and " ".join([self.compiler, *level]))
        digest = self.sha256 if self.recipe else file_hash(self.library)
        return Arm(self.name, self.library, dict(self.environment), ", ".join(filter(None, parts)), digest)

    @property
    def fault(self) -> str:
        """Why it cannot be used any more, "" if it can. The user's own may change: it is theirs."""
        if not Path(self.library).is_file():
            return f"{self.name}: {self.library} is gone"
        if self.recipe and file_hash(self.library) != self.sha256:
            return f"{self.name}: {self.library} is another file than the one proved"
        return ""


def read_manifest() -> dict[str, Entry]:
    """By key; empty if nothing was installed yet. Fields of a newer version are ignored."""
    known = {f.name for f in dataclasses.fields(Entry)}
    try:
        stored: dict[str, dict[str, Any]] = json.loads(_manifest().read_text())["peers"]
        return {key: Entry(**{name: value for name, value in entry.items() if name in known})
                for key, entry in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{_manifest()} cannot be read; remove it and {REPEAT}") from error


def write_manifest(entries: dict[str, Entry]) -> None:
    """Whole or not at all."""
    text = json.dumps({"peers": {k: dataclasses.asdict(e) for k, e in entries.items()}}, indent=1)
    base.write_whole(_manifest(), text + "\n")


def _manifest() -> Path:
    return peers_directory() / "manifest.json"


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Recipes in their order, then the user's own."""
    order = {recipe.key: number for number, recipe in enumerate(RECIPES)}
    return sorted(entries, key=lambda entry: (order.get(entry.key, len(order)), entry.key))


def usable_entries() -> list[Entry]:
    """All peers that are here and unchanged."""
    return [entry for entry in in_order(read_manifest().values()) if not entry.fault]


def installed_of(keys: Iterable[str]) -> list[str]:
    """Those of the keys whose peers can be used."""
    here = {entry.key for entry in usable_entries()}
    return [key for key in keys if key in here]


def our_arm(name: str = OURS) -> Arm:
    """hakmem as this checkout built it: the ordinary form, or the secure one."""
    library = base.BUILD / f"lib{name}.so"
    if not library.is_file():
        raise Problem(f"{name} is not built yet; type: ./hakmem build")
    check_preloadable(library)
    header = base.read_text(base.ROOT / "include" / "hakmem" / "hakmem.h")
    version = ".".join(re.findall(r"^#define HAK_VERSION_\w+ +(\d+)", header, re.M))
    if commit := base.commit():
        version += f", commit {commit[:12]}{' with changes' if commit.endswith('+') else ''}"
    return Arm(name, str(library), {}, version, file_hash(library))


def glibc_arm() -> Arm:
    """No library at all: the malloc of the C library every process has."""
    try:
        version = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    except ValueError as error:
        raise Problem("this system's C library is not glibc") from error
    maps = base.read_text("/proc/self/maps")
    files = re.findall(r"(/\S+/libc\.so\.6|/\S+/libc-\d\S*\.so)$", maps, re.M)
    return Arm(SYSTEM, None, {}, version, file_hash(files[0]) if files else "")


def find_arms(spec: str | None) -> list[Arm]:
    """The arms of a list such as "hakmem,mimalloc3,/path/lib.so,hakmem:purge_delay_ms=0".

    A word is a short or full name, a path of a library (it has a slash), "default" (also without a spec: ours, the
    usual peers, the user's own, glibc) or "all". Settings follow a colon: key=value is one of hakmem's options,
    profile=FILE those of a file, VARIABLE=value any variable. A comma inside a value is written as backslash comma.
    """
    words = [w.strip().replace("\\,", ",") for w in re.split(r"(?<!\\),", spec or "default")]
    arms = [arm for word in words if word for arm in _arms_of(word)]
    if not arms:
        raise Usage(f"'{spec}' names no allocator")
    arms = [_by_whole_path(arm) if _has_namesake(arm, arms) else arm for arm in arms]
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise Usage(f"{twice} is named twice; the second run of an arm is added by itself")
    return arms


def _has_namesake(arm: Arm, arms: list[Arm]) -> bool:
    return any(other.name == arm.name and other.library != arm.library for other in arms)


def _by_whole_path(arm: Arm) -> Arm:
    path = Path(arm.library or "")
    return dataclasses.replace(arm, name=arm.name.replace(_short_name(path), str(path)))


def _arms_of(word: str) -> list[Arm]:
    if word in ("default", "all"):
        chosen = [e.arm for e in usable_entries() if e.is_default or word == "all"]
        return [our_arm(), *chosen, glibc_arm()]
    name, *settings = SETTING.split(word)
    arm = _arm_of_file(name) if "/" in name else _arm_of_name(name)
    environment = dict(arm.environment)
    for setting in settings:
        key, _, value = setting.partition("=")
        if key.lower() == "profile" and arm.is_ours and is_file_name(value):
            environment.update(read_profile(value))
            continue
        environment[_variable(arm, key)] = value
    label = " ".join([arm.name, *settings])
    return [dataclasses.replace(arm, name=label, environment=environment)]


def _variable(arm: Arm, key: str) -> str:
    if key == key.upper():
        return key
    if not arm.is_ours:
        raise Usage(f"{arm.name}:{key}: settings in small letters are options of hakmem; give others as a variable in "
                    "capitals, such as jemalloc:MALLOC_CONF=...")
    return f"HAKMEM_{key.upper()}"


def _arm_of_file(word: str) -> Arm:
    """A library by its path; another build of ours is called so, and takes its options."""
    path = Path(os.path.abspath(os.path.expanduser(word)))
    if not path.is_file():
        raise Usage(f"there is no library {word}")
    check_preloadable(path)
    ours = f"{OURS} " if path.name.startswith("libhakmem") else ""
    return Arm(ours + _short_name(path), str(path), {}, str(path), file_hash(path))


def _short_name(path: Path) -> str:
    return "/".join(path.parts[-2:])


def _arm_of_name(word: str) -> Arm:
    plain = plain_name(word)
    if plain in (OURS, OURS_SECURE):
        return our_arm() if plain == OURS else our_arm(plain)
    if plain == SYSTEM:
        return glibc_arm()
    entries = read_manifest()
    same = (e for e in entries.values() if plain in (plain_name(e.key), plain_name(e.name)))
    entry = next(same, None)
    if entry is None:
        for recipe in RECIPES:
            if plain in (recipe.key, plain_name(recipe.name)):
                raise Problem(f"{recipe.name} is not installed; {REPEAT} {recipe.key}")
        if ":" in word:
            raise Usage(f"'{word}': after the colon comes NAME=VALUE, such as hakmem:profile=small")
        own = sorted(key for key, entry in entries.items() if not entry.recipe)
        known = ", ".join([OURS, OURS_SECURE, *(recipe.key for recipe in RECIPES), *own, SYSTEM])
        raise Usage(f"there is no allocator '{word}'; there are {known}, or a path of a library")
    if entry.fault:
        raise Problem(f"{entry.fault}; {REPEAT} {entry.key}")
    return entry.arm


def plain_name(name: str) -> str:
    return name.lower().replace(" ", "")

