# SPDX-License-Identifier: MIT
"""Profile files: a line is NAME=VALUE, empty, or a comment that starts with #.

NAME is an option of hakmem, with or without HAKMEM_ before it and in any case. The launcher reads
the same files for `run --profile`; systemd and Docker read them as files of variables.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .base import Usage, write_whole

HEAD = "# Profile for hakmem"
"""What the first line of a file starts with that `tune` wrote."""
PREFIX = "HAKMEM_"
_LINE = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)=(\S(?:.*\S)?)\s*")


def is_file_name(value: str) -> bool:
    """Profiles of hakmem itself have names without dots and slashes."""
    return "." in value or "/" in value


def read_profile(word: str) -> dict[str, str]:
    """The variables of a file: {"HAKMEM_BIN_BYTES": "64k"}."""
    path = Path(word).expanduser()
    if not path.is_file():
        state = "is not a file" if path.exists() else "does not exist"
        raise Usage(f"the profile {word} {state}")
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise Usage(f"the profile {word} cannot be read: {error.strerror}") from error
    variables = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            shown = "".join(c if c.isprintable() else "?" for c in line[:60])
            raise Usage(f"the profile {word}, line {number}: '{shown}' is not NAME=VALUE")
        variables[PREFIX + found[1].upper().removeprefix(PREFIX)] = found[2]
    if not variables:
        raise Usage(f"the profile {word} holds no setting")
    return variables


def check_writable(path: Path) -> None:
    """Before long work: the file can be written, and nothing but an earlier profile is lost."""
    try:
        with path.open(errors="replace") as file:
            if not file.readline().startswith(HEAD):
                raise Usage(f"{path} is there and is not from tune; --output names another file")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Usage(f"cannot write to {path}: {error.strerror}") from error
    try:
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            pass
    except OSError as error:
        raise Usage(f"cannot write to {path}: {error.strerror}") from error


def write_profile(path: Path, settings: Mapping[str, str], comments: Sequence[str]) -> None:
    """Whole or not at all. `settings` by the names of options."""
    lines = [HEAD, *(f"# {comment}".rstrip() for comment in comments)]
    lines += [f"{PREFIX}{name.upper()}={value}" for name, value in settings.items()]
    write_whole(path, "".join(f"{line}\n" for line in lines))
