# SPDX-License-Identifier: MIT
"""A session of short runs, for test_runner.py to kill: session_to_kill.py RESULTS LOG RUNS

A run waits for ever if the log has that many lines: such a session is still there to be killed.
"""

import sys
from pathlib import Path

from hakmem.lab.model import Arm, Case
from hakmem.lab.base import Problem
from hakmem.lab.runner import run_session

ROUNDS = 4
ARMS = [Arm("one", environment={"ARM": "one"}), Arm("two", environment={"ARM": "two"})]


def cases(log: str) -> list[Case]:
    """Each run but the proofs leaves a line in the log."""
    script = (
        'sleep 0.05; [ -n "$LD_DEBUG" ] && exit; [ -e "$1" ] || : >"$1"; '
        'until [ "$(wc -l <"$1")" -lt "$(cat "$1.runs")" ]; do sleep 0.1; done; '
        'echo "$0 $ARM" >>"$1"'
    )
    return [Case(n, ["/bin/sh", "-c", script, n, log], kind="program") for n in ("a", "b")]


def main(results: str, log: str, runs: str) -> int:
    Path(f"{log}.runs").write_text(runs)  # no word of the command: it would be another session
    try:
        run_session(cases(log), ARMS, ROUNDS, 1, ["bench"], results=Path(results),
                    prove=lambda arm: {"malloc": "the C library"})
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.status
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
