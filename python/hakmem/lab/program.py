# SPDX-License-Identifier: MIT
"""The user's own program: finding it, running it once, and asking the loader whether a library can be put under it."""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from .base import Problem, Usage
from .measure import measure, prove_program
from .model import Arm, Case
from .workloads import REST_S

STATUS_CANNOT_RUN, STATUS_NOT_FOUND = 126, 127
NAME_MAX = 48


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


def make_case(command: Sequence[str], load: str, timeout_s: float, rest: bool = True) -> Case:
    """The program as a case."""
    if not command or not command[0]:
        raise Usage("which program?")
    words = [str(find_program(command[0])), *command[1:]]
    return Case(name=short_name(words), command=words, kind="program", title=shlex.join(command),
                load=split_command(load) if load else [], directory=os.getcwd(), timeout_s=timeout_s,
                rest_s=list(REST_S) if load and rest else [])


def rehearse(case: Case, arms: Sequence[Arm]) -> float:
    """Runs it once under the first arm, which also fills the file cache; the seconds it took."""
    served = next((arm for arm in arms if arm.library), None)
    reason = prove_program(case, served)[1] if served else ""
    if reason:
        raise Problem(f"{case.name}: {reason}", STATUS_CANNOT_RUN)
    arm = arms[0]
    outcome = measure(case, arm)
    sentence = outcome.sentence(case)
    if sentence:
        raise Problem(f"{case.name} does not run well under {arm.name} itself: {sentence}")
    return outcome.report["wall_ns"] / 1e9
