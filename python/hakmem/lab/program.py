# SPDX-License-Identifier: MIT
"""The user's own program: finding it, and saying plainly when no library can be put under it."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from .base import Problem

STATUS_CANNOT_RUN, STATUS_NOT_FOUND = 126, 127
SCRIPT_DEPTH_MAX = 5
"""Interpreters of interpreters; the kernel follows a few as well."""
NAME_MAX = 48

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_PT_INTERP = 3


def find_program(word: str) -> Path:
    """The file that the shell would run for the word."""
    if "/" not in word:
        found = shutil.which(word)
        if found is None:
            raise Problem(f"there is no program '{word}' in PATH", STATUS_NOT_FOUND)
        return Path(found).absolute()
    path = Path(word).absolute()
    if not path.exists():
        raise Problem(f"there is no program '{word}'", STATUS_NOT_FOUND)
    if path.is_dir():
        raise Problem(f"{word} is a directory", STATUS_CANNOT_RUN)
    if not os.access(path, os.X_OK):
        raise Problem(f"{word} is not executable", STATUS_CANNOT_RUN)
    return path


def split_command(text: str) -> list[str]:
    """A command given as one word, as a shell would split it; its program by its whole path."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Problem(f"the command {text!r} cannot be read: {error}", 2) from error
    if not words:
        raise Problem("the load command is empty", 2)
    return [str(find_program(words[0])), *words[1:]]


def short_name(words: Sequence[str]) -> str:
    """What to call the command in tables: without folders, and not too long."""
    text = shlex.join([Path(words[0]).name, *(" ".join(word.split()) for word in words[1:])])
    text = text.encode(errors="replace").decode()  # bytes of arguments that are no text
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 3].rstrip()}..."


def obstacle(path: Path, depth: int = 0) -> str:
    """Why the loader would put no library under this program; "" when it would."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if head.startswith(b"#!"):
                return _script_obstacle(path, depth)
            if not head.startswith(b"\x7fELF"):
                return ""  # the shell runs it
            if not head.startswith(_ELF64_LITTLE):
                return f"{path} is not a 64-bit program"
            offset, size, count = struct.unpack_from("<Q14xHH", head, 32)
            file.seek(offset)
            entries = file.read(size * count)
    except OSError:
        return ""  # whoever may run but not read it will see
    kinds = {struct.unpack_from("<I", entries, at)[0] for at in range(0, len(entries) - 3, size)}
    if _PT_INTERP not in kinds:
        return f"{path} is statically linked, so no other malloc can be put under it"
    return _rights_obstacle(path)


def _rights_obstacle(path: Path) -> str:
    status = path.stat()
    is_foreign = (status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()) or (
        status.st_mode & stat.S_ISGID and status.st_gid not in (os.getegid(), *os.getgroups())
    )
    if is_foreign:
        return (
            f"{path} runs with another user's rights (setuid or setgid), so no other malloc can be "
            "put under it"
        )
    return ""


def _script_obstacle(path: Path, depth: int) -> str:
    """That of the interpreter: of `#!/usr/bin/env NAME` the one env would find."""
    with path.open("rb") as file:
        words = file.readline().decode(errors="replace")[2:].split()
    if not words or depth >= SCRIPT_DEPTH_MAX:
        return ""
    interpreter: str | None = words[0]
    if Path(words[0]).name == "env":
        names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
        interpreter = shutil.which(names[0]) if names else None
    if interpreter is None or not Path(interpreter).exists():
        return f"{path} needs {' '.join(words)}, which is not there"
    return obstacle(Path(interpreter), depth + 1)
