# SPDX-License-Identifier: MIT
"""The suites of hardened allocators: which bugs each notices, and what it costs.

secure        all bugs; costs on the workloads of suite core and some programs (workloads.SECURE)
secure-quick  all bugs; costs on a few of them
bugs          all bugs, no costs: nothing is timed
attacks       what an attacker with more than a bug can do, in the place of bugs (attacks.py)

A bug is a program (tests/secure) that has it. Such a program ends with status 0 if nothing happened, and with 3 if it was harmed, as it noticed
itself (tests/secure/bugs.cc). If it ends in another way, the allocator did that. Chance may decide
whether an allocator notices a bug, so each program runs several times.
"""

import contextlib
import fnmatch
import re
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import attacks, workloads
from .arms import OURS, OURS_SECURE
from .base import BUILD, ROOT, Problem, Usage, file_hash
from .measure import Outcome, measure
from .model import Arm, Case, Session
from .progress import Reporter
from .store import Store
from .workloads import Workload

BUGS = "bugs"
SUITES = (*workloads.SECURE, BUGS, attacks.SUITE)
FORMS = (OURS, OURS_SECURE)
"""Of hakmem. The first one is that which runs twice, so it is a fast one."""
PEERS = ("hardened_malloc", "scudo", "snmalloc-checks", "mimalloc-secure")

SOURCE = ROOT / "tests" / "secure" / "bugs.cc"
PROGRAM = BUILD / "tests" / "secure" / "bugs"
TRIES, ATTACK_TRIES = 5, 20
TIMEOUT_S = 20.0
STATUS_HARMED, STATUS_NO_MEMORY = 3, 4

REPORT, WARNING, ENDED = "report", "warning", "ended"
NOTHING, HARM, FAILED = "nothing", "harm", "failed"
LATE, HELD, MEASURED = "late", "held", "measured"
VERDICTS = {REPORT: "the allocator wrote a message, and the program ended",
            WARNING: "the allocator wrote a message, and the program went on unharmed",
            ENDED: "a signal or another status ended the program without a word",
            LATE: "a report or a signal, but only when the program ended",
            HELD: "the attacker gave up",
            NOTHING: "the program went on and nothing happened",
            HARM: "the program went on and was harmed, such as by a block with two owners",
            MEASURED: "there are only figures",
            FAILED: "the run says nothing: it hung, could not start or had no memory"}


@dataclass(frozen=True)
class BugCell:
    """One bug under one allocator."""

    counts: dict[str, int]  # verdict -> runs
    report: str = ""  # the first line that the allocator wrote, or why the run failed
    figures: dict[str, list[int]] = field(default_factory=dict)  # of attacks: those of each run

    @property
    def runs(self) -> int:
        return sum(self.counts.values())

    @property
    def verdicts(self) -> list[str]:
        """Those that occurred, the most frequent one first."""
        return sorted(self.counts, key=lambda verdict: -self.counts[verdict])

    def is_always(self, *verdicts: str) -> bool:
        return set(self.counts) <= set(verdicts)


@dataclass(frozen=True)
class BugRow:
    """One bug under every allocator."""

    case: str
    title: str
    cells: dict[str, BugCell]  # by arm


@dataclass(frozen=True)
class BugTotal:
    """One allocator over all bugs it was tried with. A mixed bug counts as its worst run."""

    bugs: int = 0
    noticed: int = 0  # in every run: a report or a warning, before the program ended
    stopped: int = 0  # in every run, with or without a report, before the program ended
    late: int = 0  # in any run: when the program ended
    harmed: int = 0  # in any run


def read_bugs() -> list[Case]:
    """All bugs, by name; the title is the first sentence of the comment before one."""
    bugs = []
    text = SOURCE.read_text(encoding="utf-8", errors="replace")
    for comment, name in re.findall(r"/\*((?:(?!\*/).)*)\*/\nBUG\((\w+),", text, re.S):
        if not name.startswith("tags_"):
            title = re.split(r"\.(?: |$)", " ".join(re.sub(r"^ \*", "", comment, flags=re.M).split()))[0]
            command = [str(PROGRAM), "--bug", name]
            bugs.append(Case(name, command, kind="bug", suite="bugs", title=title, timeout_s=TIMEOUT_S))
    return sorted(bugs, key=lambda bug: bug.name)


def check_built(bugs: Sequence[Case]) -> None:
    for bug in bugs:
        if not Path(bug.command[0]).is_file():
            raise Problem(f"{bug.command[0]} is not built; ./hakmem bench --list builds it")


@dataclass(frozen=True)
class Trying:
    """The bugs under all arms, as a part of a session."""

    bugs: Sequence[Case]
    tries: int = TRIES

    def is_done(self, session: Session) -> bool:
        return not self._missing(session)

    def run(self, store: Store, reporter: Reporter) -> None:
        missing = self._missing(store.session)
        with _without_core_files():
            for number, (bug, arm) in enumerate(missing, 1):
                reporter.note(f"{bug.kind} {number} of {len(missing)}: {bug.name}, {arm.name}")
                cell = try_bug(bug, arm, self.tries)
                store.add("bug", {"case": bug.name, "title": bug.title, "arm": arm.name,
                                  "sha256": file_hash(bug.command[0]), "counts": cell.counts, "report": cell.report,
                                  "figures": cell.figures})

    def _missing(self, session: Session) -> list[tuple[Case, Arm]]:
        done = {(line["case"], line["arm"], line["sha256"]) for line in session.bugs}
        hashes = {bug.name: file_hash(Path(bug.command[0])) for bug in self.bugs}
        return [(bug, arm) for bug in self.bugs for arm in session.arms
                if not arm.again_of and (bug.name, arm.name, hashes[bug.name]) not in done]


def tries_of(suite: str) -> int:
    return ATTACK_TRIES if suite == attacks.SUITE else TRIES


def try_bug(bug: Case, arm: Arm, tries: int) -> BugCell:
    if bug.kind == attacks.KIND:
        return BugCell(*attacks.attempt(bug, arm, tries))
    judged = [judge(measure(bug, arm), bug) for _ in range(tries)]
    said = [text for verdict, text in judged if text and verdict != HARM]
    return BugCell(dict(Counter(verdict for verdict, _ in judged)), said[0] if said else "")


def judge(outcome: Outcome, bug: Case) -> tuple[str, str]:
    """The verdict of one run, and the first line that the allocator wrote or why the run failed."""
    end, status = outcome.report.get("end"), outcome.report.get("status", 0)
    lines = [line.strip()[:300] for line in outcome.errors.splitlines() if line.strip()]
    said = lines[0] if lines else ""
    refused = next((line for line in lines if line.startswith("ERROR: ld.so")), "")
    if end is None or end == "timeout" or refused:
        return FAILED, refused or outcome.sentence(bug)
    if (end, status) == ("exit", STATUS_HARMED):
        return HARM, said
    late = "returned" in outcome.output.splitlines()  # the bug was over
    if said:
        return (WARNING if (end, status) == ("exit", 0) else LATE if late else REPORT), said
    if (end, status) == ("exit", STATUS_NO_MEMORY):
        return FAILED, "malloc had no memory for it"
    return (NOTHING, "") if (end, status) == ("exit", 0) else (LATE if late else ENDED, "")


@contextlib.contextmanager
def _without_core_files() -> Iterator[None]:
    """The limit is inherited by all that is started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def bug_rows(session: Session) -> list[BugRow]:
    """What a session says of bugs; of a cell that was tried twice the last result."""
    rows: dict[str, BugRow] = {}
    for line in session.bugs:
        row = rows.setdefault(line["case"], BugRow(line["case"], line["title"], {}))
        row.cells[line["arm"]] = BugCell(line["counts"], line["report"], line.get("figures", {}))
    return list(rows.values())


def bug_total(rows: Sequence[BugRow], arm: str) -> BugTotal:
    cells = [row.cells[arm] for row in rows if arm in row.cells and MEASURED not in row.cells[arm].counts]
    return BugTotal(bugs=len(cells), noticed=sum(cell.is_always(REPORT, WARNING) for cell in cells),
                    stopped=sum(cell.is_always(REPORT, ENDED, HELD) for cell in cells),
                    late=sum(LATE in cell.counts for cell in cells),
                    harmed=sum(HARM in cell.counts for cell in cells))


# ---- The suites. ----


def select(known: Sequence[Workload], suite: str, patterns: str = "") -> tuple[list[Case], list[Workload]]:
    """The bugs and the workloads of a suite; patterns choose among the names of both."""
    bugs = attacks.read_attacks() if suite == attacks.SUITE else read_bugs()
    words = [word.strip() for word in patterns.split(",") if word.strip()]
    if not words:
        return bugs, [one.for_hardened for one in workloads.select(known, suite)]
    chosen = [bug for bug in bugs if any(fnmatch.fnmatchcase(bug.name, word) for word in words)]
    costly = [] if suite in (BUGS, attacks.SUITE) else [one.case.name for one in known]
    wanted = [word for word in words if fnmatch.filter(costly, word)]
    for word in words:
        if not fnmatch.filter([*costly, *(bug.name for bug in bugs)], word):
            raise Usage(f"nothing in suite {suite} matches '{word}'; --list shows its names")
    costs = workloads.select(known, suite, ",".join(wanted)) if wanted else []
    return chosen, [one.for_hardened for one in costs]

