# SPDX-License-Identifier: MIT
"""Sessions on disk: one file of JSON lines each, written so that a kill loses nothing.

A line is one write and one fsync. A torn last line (power loss in the middle of the write) is
ignored by readers and cut off by the next writer. The writer holds a lock on the file, which the
kernel drops with the process. The format: lab/README.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .base import Problem, file_hash, results_directory
from .model import Arm, Case, Failure, Sample, Session

ROUNDS_GROW = 0
"""In the key of a session whose number of rounds is not fixed beforehand."""

_LATER = ("samples", "failures", "proofs", "instructions", "bugs", "rates", "is_shown")
"""What follows the head."""


def session_key(
    command: str, cases: Sequence[Case], arms: Sequence[Arm], rounds: int, seed: int | None, machine: str
) -> str:
    """A hash of all that must be equal for runs to belong to one session."""
    facts = {"command": command, "cases": [[case.to_json(), file_hash(case.command[0])] for case in cases],
             "arms": [[arm.name, arm.library, arm.sha256, arm.environment] for arm in arms], "rounds": rounds,
             "seed": seed, "machine": machine}
    return key_of(facts)


def key_of(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]


class Damaged(Problem):
    """A file that is not what was written."""


class Store:
    """The one writer of one session. `session` always holds what is in the file."""

    def __init__(self, path: Path, file: int, session: Session) -> None:
        self.path = path
        self.session = session
        self._file = file

    @classmethod
    def create(cls, directory: Path, name: str, key: str, session: Session) -> Store:
        """Begins a file; sets the session's id, which is the file's name."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path, file = _create_file(directory, name, key)
        except OSError as error:
            raise Problem(f"cannot save results in {directory}: {error.strerror}") from error
        session.id = path.stem
        store = cls(path, file, session)
        try:
            store._append("session", {name: part for name, part in session.to_json().items() if name not in _LATER})
        except Problem:
            store.close()
            path.unlink(missing_ok=True)  # there is nothing in it
            raise
        _sync_directory(directory)
        return store

    @classmethod
    def resume(cls, path: Path) -> Store:
        """Opens a session to go on with it; another process may not be writing it."""
        try:
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise Problem(f"cannot go on with {path}: {error.strerror}") from error
        try:
            _lock(file, path)
            content = path.read_bytes()
            os.ftruncate(file, content.rfind(b"\n") + 1)
            return cls(path, file, load(path))
        except BaseException:
            os.close(file)
            raise

    def add_sample(self, sample: Sample) -> None:
        self.add("run", sample.to_json())

    def add_failure(self, failure: Failure) -> None:
        self.add("failure", failure.to_json())

    def add(self, kind: str, data: dict[str, Any]) -> None:
        """A line of one of the kinds that _add_line knows."""
        self._append(kind, data)
        _add_line(self.session, kind, data)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, kind: str, data: dict[str, Any]) -> None:
        line = json.dumps({"kind": kind, **data}, separators=(",", ":"), allow_nan=False) + "\n"
        content = line.encode()
        try:
            if os.write(self._file, content) != len(content):
                raise OSError(None, "the disk is full")
            os.fsync(self._file)
        except OSError as error:
            raise Problem(f"cannot write {self.path}: {error.strerror}") from error


def open_unfinished(directory: Path, name: str, key: str, is_finished: Callable[[Session], bool]) -> Store | None:
    """The newest session of this key with runs left to do, to go on with it."""
    for path in sorted(directory.glob(f"*-{name}-{key}*.jsonl"), reverse=True):
        if _is_empty(path):
            continue
        try:
            store = Store.resume(path)
        except Damaged as damage:
            raise Problem(f"{damage}; move it away, or use --new") from damage
        if not is_finished(store.session):
            return store
        store.close()
    return None


def _is_empty(path: Path) -> bool:
    """Whoever began it was killed before the head was written: nothing was measured."""
    try:
        with path.open("rb") as file:
            return not file.readline().endswith(b"\n")
    except OSError:
        return False  # whoever opens it will say why it cannot


def mark_shown(session: Session, directory: Path | None = None) -> None:
    """The same command measures anew from now on."""
    with Store.resume((directory or results_directory()) / f"{session.id}.jsonl") as opened:
        opened.add("shown", {})


def load(path: Path) -> Session:
    """Reads a session file."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}") from error
    lines = content.split("\n")
    lines.pop()  # nothing, or the torn end
    session: Session | None = None
    for number, text in enumerate(lines, 1):
        try:
            data = json.loads(text)
            kind = data.pop("kind")
            if kind == "session":
                data |= {"arms": [Arm.from_json(arm) for arm in data["arms"]],
                         "cases": [Case.from_json(case) for case in data["cases"]]}
                session = Session.from_json(data)
            elif session is not None:
                _add_line(session, kind, data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{path}, line {number}, is not part of a session") from error
    if session is None:
        raise Damaged(f"{path} holds no session")
    return session


def _add_line(session: Session, kind: str, data: dict[str, Any]) -> None:
    """Kinds a newer version added are passed over."""
    if kind == "run":
        session.samples.append(Sample.from_json(data))
    elif kind == "failure":
        session.failures.append(Failure.from_json(data))
    elif kind == "proof":
        session.proofs[data["arm"]] = data["serving"]
    elif kind == "rate":
        session.rates.setdefault(data["case"], {})[data["arm"]] = data["rate"]
    elif kind == "rounds":  # more than it was begun with
        session.rounds = data["rounds"]
    elif kind == "shown":  # there is nothing left to do for it
        session.is_shown = True
    elif kind in ("instructions", "bug"):
        (session.bugs if kind == "bug" else session.instructions).append(data)


def _create_file(directory: Path, name: str, key: str) -> tuple[Path, int]:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for attempt in range(100):
        path = directory / f"{stamp}-{name}-{key}{f'_{attempt}' if attempt else ''}.jsonl"
        try:
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        _lock(file, path)
        return path, file
    raise Problem(f"cannot find a free name for a session in {directory}")


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Problem(f"{path} is being measured by another process; wait for it, or use --new") from error


def _sync_directory(directory: Path) -> None:
    """A new file's name is only safe when its directory is."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
