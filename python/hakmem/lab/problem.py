# SPDX-License-Identifier: MIT
"""What went wrong, as one sentence for the user and an exit status; the command line prints it."""

from __future__ import annotations


class Problem(Exception):
    """Ends a command. `status`: 1 it could not be done, 2 it was asked for wrongly."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class Usage(Problem):
    """The user asked for something that does not exist or make sense."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, 2)
