#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""write_attacks.py: the table of attacks in docs/security.md, from a saved session.

    ./hakmem bench --suite attacks
    tools/write_attacks.py SESSION.jsonl

A row for each kind of attack. Of those that a program can notice: how many were stopped in every
run before the program ended; then how many did harm in a run. Of the others: the worst figure.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "python"))

from hakmem.lab.attacks import entropy_of  # noqa: E402
from hakmem.lab.secure import bug_rows, bug_total  # noqa: E402
from hakmem.lab.store import load  # noqa: E402

PAGE = ROOT / "docs/security.md"
BEGIN, END = "<!-- attacks: written by tools/write_attacks.py from a session -->", "<!-- end -->"
STOPPED = {
    "canary_": "a canary that leaked tells another one",
    "fork_": "a canary is guessed byte by byte in children",
    "behind_": "8 or 16 bytes behind a block",
    "jump_": "32 bytes behind a block, not its canary",
    "before_": "a byte 17 or 32 before a block of 256 KiB",
    "late_write_": "8 bytes somewhere in a freed block",
    "free_": "free of no block",
    "delete_": "delete[] with another size or form",
}
FIGURES = {  # attack, figure, whether the least or the most is the worst
    "reuse_64": ("pairs until a freed block of 64 is back, median", "pairs_median", min),
    "reuse_16000": ("the same of 16,000", "pairs_median", min),
    "readable_64": ("bytes readable above a block of 64", "bytes_up", max),
}


def stopped(rows, arm):
    total = bug_total([row for row in rows if arm in row.cells], arm)
    return f"{total.stopped}" + (f", harm {total.harmed}" if total.harmed else "") if total.bugs else "-"


def worst(rows, arm, name, choose):
    values = [value for row in rows if arm in row.cells for value in row.cells[arm].figures.get(name, [])]
    return f"{choose(values):,}" if values else "-"


def bits(rows, arm):
    """Of the place of a first block that is guessed best."""
    found = [entropy_of(values).bits for row in rows if arm in row.cells
             for name, values in row.cells[arm].figures.items() if name.startswith("first_")]
    return f"{min(found):.1f}" if found else "-"


def table(session):
    arms = [arm.name for arm in session.arms if not arm.again_of]
    rows = bug_rows(session)

    def of(prefix):
        return [row for row in rows if row.case.startswith(prefix)]

    lines = [["attacks, number of kinds", *arms], ["---"] * (len(arms) + 1)]
    lines += [[f"{title}: {len(of(prefix))}", *(stopped(of(prefix), arm) for arm in arms)]
              for prefix, title in STOPPED.items() if of(prefix)]
    lines += [[title, *(worst(of(prefix), arm, name, choose) for arm in arms)]
              for prefix, (title, name, choose) in FIGURES.items() if of(prefix)]
    lines += [["bits of a first block's address", *(bits(of("addresses"), arm) for arm in arms)]]
    return "\n".join("| " + " | ".join(line) + " |" if line[0] != "---" else "|" + "|".join(line) + "|" for line in lines)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tools/write_attacks.py SESSION.jsonl")
    head, _, rest = PAGE.read_text().partition(BEGIN)
    if not rest:
        sys.exit(f"write_attacks: {PAGE} has no line '{BEGIN}'")
    PAGE.write_text(f"{head}{BEGIN}\n{table(load(Path(sys.argv[1])))}\n{END}{rest.partition(END)[2]}")


main()
