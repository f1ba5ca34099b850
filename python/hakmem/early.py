# SPDX-License-Identifier: MIT
"""What the launcher asks for before it runs hakmem-run: checks of names, a build, a link."""
import json
import os
import re
import shutil
from pathlib import Path

from .build import build_for_run, need_for_run
from .ground import CALLERS_PATH, LAUNCHER, ROOT, place
from .look.processes import STATUS_NO_PROCESS, STATUS_USAGE, Refusal
from .places import own_cache

WITH_VALUES = ("--profile", "--set", "--stats-file", "--heap-map", "--output", "-o", "--alloc", "--runs")


def options_of(command):
    return re.findall(r"(?<=[ ,] )--?[a-z-]+", (ROOT / f"python/hakmem/help/{command}.txt").read_text())


def read(command, words):
    """The names of --set, those of --alloc, and the program, as hakmem-run reads them."""
    words, names, allocators = list(words), [], []
    known = [*options_of(command), "--install", "--no-install", "--"]
    while words:
        whole = words.pop(0)
        word, _, value = whole.partition("=")
        if word.startswith("-") and word not in known:
            raise Refusal(f"{command}: unknown option '{whole}' (./hakmem {command} --help)", STATUS_USAGE)
        if word == "--":
            return names, allocators, words[0] if words else ""
        if word in WITH_VALUES and not value and words:
            value = words.pop(0)
        if word == "--set" and value:
            names.append(value.partition("=")[0])
        elif word == "--alloc":
            allocators = value.split(",")
        elif not word.startswith("-") and command != "replay":
            return names, allocators, word if not value else f"{word}={value}"
    return names, allocators, ""


def peers():
    """Other allocators, as the laboratory has installed them."""
    manifest = place("cache") / "peers/manifest.json"
    return json.loads(manifest.read_text())["peers"] if manifest.exists() else {}


def check(words):
    """A mistyped name is worth neither an installation of what builds hakmem nor a build."""
    names, allocators, program = read(words[0], words[1:])
    options = (ROOT / "src/core/option_list.h").read_text()
    for name in names:
        if not re.search(rf"^    X\([A-Z_0-9]+, {re.escape(name.lower().removeprefix('hakmem_'))},", options, re.MULTILINE):
            raise Refusal(f"run: there is no option '{name}' (./hakmem run --help lists them)", STATUS_USAGE)
    for name in allocators:
        if name not in ("hakmem", "libc", "glibc", "system") and "/" not in name and name not in peers():
            raise Refusal(f"{words[0]}: there is no allocator '{name}' (./hakmem peers list shows which are installed)", STATUS_USAGE)
    require_program(program)


def require_program(program):
    """Refusal if there is none of this name; an empty one is somebody else's to refuse."""
    if "/" in program and not os.path.exists(program):
        raise Refusal(f"there is no program '{program}'", STATUS_NO_PROCESS)
    if program and "/" not in program and not shutil.which(program, path=CALLERS_PATH):
        raise Refusal(f"there is no program '{program}' in PATH", STATUS_NO_PROCESS)


def link(library):
    """Of an installed library whose path LD_PRELOAD cannot hold."""
    path = own_cache("installed", Path(LAUNCHER).parent) / os.path.basename(library)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.symlink_to(library)
    new.replace(path)
    return path


def run(words):
    question, words = words[0], words[1:]
    if question == "--need":
        check(words[1:])
        need_for_run(words[0])
    elif question == "--build":
        print(build_for_run(*words))
    elif question == "--link":
        print(link(words[0]))
    else:
        peer = peers()[words[0]]
        print(peer["library"], *(f"{name}={value}" for name, value in peer["environment"].items()), sep="\n")
