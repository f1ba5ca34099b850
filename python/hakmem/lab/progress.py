# SPDX-License-Identifier: MIT
"""How far a command is and how long it will take: a bar on a terminal, else a line now and then."""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

PLAIN_INTERVAL_S = 15.0
BAR_WIDTH_MIN = 8
REST_WIDTH = 40
"""Columns that counts, the time left and a short bar take: names are cut off before these."""

Cell = tuple[str, str]
"""A case and an arm."""


def say(sentence: str) -> None:
    print(f"hakmem: {sentence}", file=sys.stderr, flush=True)


def duration_text(seconds: float) -> str:
    """"45 s", "3 min", "1 h 20 min": as exact as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Bar:
    """A context manager: what is being done, a bar, and what is left, on standard error."""

    def __init__(self, total: float, done: float = 0, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._spoke = time.monotonic()
        self._bar = Progress(TextColumn("{task.description}", markup=False),
                             BarColumn(None, table_column=Column(min_width=BAR_WIDTH_MIN)),
                             TextColumn("{task.fields[left]}", markup=False), console=self.console, transient=True,
                             disable=not self.console.is_terminal)
        self._task = self._bar.add_task("", total=total, completed=done, left="")

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @property
    def done(self) -> float:
        return self._bar.tasks[0].completed

    def show(self, doing: str | None = None, left: str | None = None, done: float | None = None) -> None:
        if doing is not None:
            width = max(self.console.width - REST_WIDTH, 10)
            doing = doing if len(doing) <= width else f"{doing[: width - 3]}..."
        self._bar.update(self._task, description=doing, completed=done, **({} if left is None else {"left": left}))

    def advance(self, part: float = 1) -> None:
        self._bar.advance(self._task, part)

    def mention(self, sentence: str) -> None:
        """Where there is no bar, now and then."""
        if not self.console.is_terminal and time.monotonic() - self._spoke >= PLAIN_INTERVAL_S:
            self.say(sentence)

    def say(self, sentence: str) -> None:
        self.console.print(Text(f"hakmem: {sentence}"), soft_wrap=True)
        self._spoke = time.monotonic()


class Reporter(Bar):
    """Of the runs of one session; the time left is told from the runs there were: of the same cell, else of the same
    case, else of all."""

    def __init__(self, total: int, done: int, console: Console | None = None) -> None:
        super().__init__(total, done, console)
        self._total = total
        self._started = 0.0
        self._seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def remember(self, case: str, arm: str, seconds: float) -> None:
        """How long a run took."""
        for key in ((case, arm), (case,), ()):
            self._seconds[key].append(seconds)

    def _mean(self, case: str, arm: str) -> float:
        known = next(key for key in ((case, arm), (case,), ()) if key in self._seconds)
        return sum(self._seconds[known]) / len(self._seconds[known])

    def start(self, round: int, case: str, arm: str) -> None:
        self._started = time.monotonic()
        self.show(f"round {round + 1}: {case}, {arm}")

    def note(self, text: str) -> None:
        """What is going on beside the runs."""
        self.show(text, "")
        self.mention(text)

    def end(self, case: str, arm: str, left: Iterable[Cell]) -> None:
        """Of a run; what is left to run."""
        self.remember(case, arm, time.monotonic() - self._started)
        cells = list(left)
        counts = f"{self._total - len(cells)} of {self._total} runs"
        text = f"about {duration_text(sum(self._mean(*cell) for cell in cells))} left"
        self.show(left=f"{counts}, {text}", done=self._total - len(cells))
        self.mention(f"{counts}, {text}")
