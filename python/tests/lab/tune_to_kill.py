# SPDX-License-Identifier: MIT
"""A short tune of a tiny program that kills itself: tune_to_kill.py FOLDER search|verdict|"" """

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from hakmem.lab import cli, store, tune, tune_search

KILLED_AFTER = 5
PROGRAM = ["/bin/sh", "-c", 'x=$(echo "$HAKMEM_BIN_BYTES")']


def killing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which does its work so often."""
    calls = []

    def wrapped(*words: Any, **named: Any) -> Any:
        if len(calls) == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(words)
        return function(*words, **named)

    return wrapped


def main(folder: str, kill: str) -> int:
    """Ends by counts, never by time, so that a busy machine changes nothing."""
    tune.check_fitness = lambda force: []
    tune.ROUNDS_MAX = 9
    tune_search.CANDIDATES_MAX, tune_search.RUNS = 6, 1
    if kill == "search":
        tune.measure = killing(tune.measure)
    if kill == "verdict":
        store.Store.add_sample = killing(store.Store.add_sample)
    words = ["tune", "--minutes", "600", "--seed", "1", "--force", "--results", "results"]
    return cli.main([*words, "--output", "sh.profile", "--", *PROGRAM])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
