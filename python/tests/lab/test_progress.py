# SPDX-License-Identifier: MIT
"""Time left."""

from __future__ import annotations

import io

from rich.console import Console

from hakmem.lab.progress import Estimate, Reporter, duration_text
from hakmem.lab.schedule import make_schedule


def test_the_nearest_knowledge_is_used() -> None:
    runs = make_schedule(["a", "b"], ["x", "y"], 1, 1)
    estimate = Estimate()
    assert estimate.seconds_left(runs) is None
    estimate.add("a", "x", 2.0)
    assert estimate.seconds_left(runs) == 8.0  # all we know is 2 s
    estimate.add("b", "x", 6.0)
    # a/x 2, a/y as case a 2, b/x 6, b/y as case b 6
    assert estimate.seconds_left(runs) == 16.0
    estimate.add("a", "y", 4.0)
    assert estimate.seconds_left(runs) == 18.0
    assert estimate.seconds_left([]) == 0.0


def test_durations_are_rough() -> None:
    assert duration_text(0.2) == "0 s"
    assert duration_text(89) == "89 s"
    assert duration_text(100) == "2 min"
    assert duration_text(4800) == "1 h 20 min"


def test_names_are_cut_off_before_counts_and_time() -> None:
    screen = io.StringIO()
    runs = make_schedule(["producer_consumer_many_to_one_8"], ["google tcmalloc"], 20, 1)
    console = Console(file=screen, width=60, force_terminal=True, color_system=None)
    with Reporter(runs, 300, console) as reporter:
        reporter.start(runs[0])
        reporter.end(runs[0], runs[1:])
        reporter._bar.refresh()
    assert "301/320" in screen.getvalue() and "about 0 s left" in screen.getvalue()
    assert "round 1: produ" in screen.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    screen = io.StringIO()
    runs = make_schedule(["a"], ["x", "y"], 1, 1)
    with Reporter(runs, 3, Console(file=screen)) as reporter:
        reporter._spoke = float("-inf")
        reporter.start(runs[0])
        reporter.end(runs[0], runs[1:])
        reporter.say("a [sentence] with brackets")
    lines = screen.getvalue().splitlines()
    assert lines[0].startswith("hakmem: 4 of 5 runs, about ")
    assert lines[1] == "hakmem: a [sentence] with brackets"
