# SPDX-License-Identifier: MIT
"""How far a session is and how long it will take: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from .schedule import Run

PLAIN_INTERVAL_S = 15.0
BAR_WIDTH_MIN = 8
REST_WIDTH = 40
"""Columns that counts, the time left and a short bar take: names are cut off before these."""


def say(sentence: str) -> None:
    print(f"hakmem: {sentence}", file=sys.stderr, flush=True)


class Estimate:
    """Time left, from the runs there were: of the same cell, else of the same case, else of all."""

    def __init__(self) -> None:
        self._durations: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def add(self, case: str, arm: str, seconds: float) -> None:
        for key in ((case, arm), (case,), ()):
            self._durations[key].append(seconds)

    def seconds_left(self, runs: Iterable[Run]) -> float | None:
        """None before the first run."""
        if not self._durations:
            return None
        return sum(self._mean(run.case, run.arm) for run in runs)

    def _mean(self, case: str, arm: str) -> float:
        for key in ((case, arm), (case,), ()):
            if key in self._durations:
                return sum(self._durations[key]) / len(self._durations[key])
        return 0.0


def duration_text(seconds: float) -> str:
    """"45 s", "3 min", "1 h 20 min": as exact as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Reporter:
    """Shows the runs of one session on standard error. A context manager."""

    def __init__(self, left: list[Run], done_count: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._left = left
        self._total = done_count + len(left)
        self._estimate = Estimate()
        self._started = 0.0
        self._spoke = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(None, table_column=Column(min_width=BAR_WIDTH_MIN)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}"),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=self._total, completed=done_count, left="")

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def remember(self, case: str, arm: str, seconds: float) -> None:
        """A run of an earlier sitting."""
        self._estimate.add(case, arm, seconds)

    def start(self, run: Run) -> None:
        self._started = time.monotonic()
        self._describe(f"round {run.round + 1}: {run.case}, {run.arm}")

    def note(self, text: str) -> None:
        """What is going on beside the runs."""
        self._describe(text)
        self._bar.update(self._task, left="")
        if not self.console.is_terminal and time.monotonic() - self._spoke >= PLAIN_INTERVAL_S:
            self.say(text)
            self._spoke = time.monotonic()

    def _describe(self, text: str) -> None:
        width = max(self.console.width - REST_WIDTH, 10)
        short = text if len(text) <= width else f"{text[: width - 3]}..."
        self._bar.update(self._task, description=short)

    def skip(self, count: int) -> None:
        """Runs that will not happen."""
        self._bar.advance(self._task, count)

    def end(self, run: Run, left: list[Run]) -> None:
        self._left = left
        now = time.monotonic()
        self._estimate.add(run.case, run.arm, now - self._started)
        seconds = self._estimate.seconds_left(left)
        text = "" if seconds is None else f"about {duration_text(seconds)} left"
        self._bar.update(self._task, advance=1, left=text)
        if not self.console.is_terminal and now - self._spoke >= PLAIN_INTERVAL_S:
            self.say(f"{self._total - len(left)} of {self._total} runs, {text}")
            self._spoke = now

    def say(self, sentence: str) -> None:
        self.console.print(Text(f"hakmem: {sentence}"), soft_wrap=True)
