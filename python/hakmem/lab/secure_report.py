# SPDX-License-Identifier: MIT
"""What a session says about hardened allocators: bugs and costs, as data. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .arms import OURS, SYSTEM
from .bugs import BugRow, BugTotal, bug_rows, bug_total
from .model import Session
from .overhead import Costs, costs_over

REFERENCES = (OURS, SYSTEM)
"""What costs are relative to; the figures of each case only to the first one that was measured."""


@dataclass(frozen=True)
class Report:
    bugs: list[BugRow]
    totals: dict[str, BugTotal]  # by arm; empty without bugs
    costs: list[Costs]  # over each reference that was measured

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def report_of(session: Session) -> Report:
    rows = bug_rows(session)
    arms = [arm.name for arm in session.arms if not arm.again_of]
    costs = [costs_over(session, reference) for reference in REFERENCES]
    return Report(
        bugs=rows,
        totals={arm: bug_total(rows, arm) for arm in arms} if rows else {},
        costs=[one for one in costs if one is not None],
    )
