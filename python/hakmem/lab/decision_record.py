# SPDX-License-Identifier: MIT
"""Decision records: what was asked, fixed before the run; then what came of it.

The first part is on disk before anything is measured and is not written again: complete() replaces
only what follows it. The sections are those tools/check_docs.py asks of an experiment.
"""

import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import statistics
from .base import ROOT, Problem, Usage, write_whole
from .model import Arm, Case, Session
from .options import ROUNDS, ROUNDS_MAX
from .tables import machine_line
from .verdict import CaseVerdict, Finding, Rules, Verdict
from .wording import interval, percent, signed_percent

DIRECTORY = ROOT / "docs" / "decisions"
_RESULTS = "## Machine and noise floor"
_PENDING = "Not measured yet."
_LATER = (_RESULTS, "## Result", "## Decision", "## What we learned", "## Reopen if")
_LINE_MAX = 120  # as tools/check_docs.py asks
_BARS = str.maketrans({"|": "\\|", "\n": " "})


@dataclass(frozen=True)
class Plan:
    """What is fixed before the run."""

    title: str
    why: str
    words: Sequence[str]  # the command, as one would type it after ./hakmem
    a: Arm
    b: Arm
    cases: Sequence[Case]
    rounds: int | None  # None: as many as the noise asks for
    rules: Rules
    key: str  # tells this experiment from all others

    @property
    def names(self) -> tuple[str, str]:
        return self.a.name, self.b.name


def numbered_path(title: str, directory: Path = DIRECTORY) -> Path:
    """docs/decisions/NNNN-title.md with the next free number."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not words:
        raise Usage("a numbered record needs a --title with letters or digits")
    numbers = [int(p.name[:4]) for p in directory.glob("[0-9][0-9][0-9][0-9]-*.md")]
    return directory / f"{max(numbers, default=0) + 1:04}-{words}.md"


def find_begun(key: str, directory: Path) -> Path | None:
    """The record of the same experiment whose run did not end."""
    return next((path for path in sorted(directory.glob("*.md")) if is_begun(path, key)), None)


def is_begun(path: Path, key: str) -> bool:
    text = read(path)
    return f"Session key: {key}." in text and _PENDING in text


def begin(path: Path, plan: Plan) -> None:
    """Writes the first part, unless an interrupted run of the same experiment has."""
    if path.exists():
        if is_begun(path, plan.key):
            return
        raise Usage(f"{path} exists; a record is never written over")
    later = "\n\n".join(f"{heading}\n\n{_PENDING}" for heading in _LATER)
    write_whole(path, wrapped(f"{_head(plan, path)}\n{later}\n"))


def complete(path: Path, plan: Plan, session: Session, verdict: Verdict) -> None:
    """Puts the results in the place of what was pending."""
    head, _, _ = read(path).partition(_RESULTS)
    bodies = (machine_text(session, verdict), _result(session, verdict), f"{verdict.word}: {verdict.sentence}",
              _learned(verdict), _reopen(verdict))
    later = [f"{heading}\n\n{body}" for heading, body in zip(_LATER, bodies, strict=True)]
    write_whole(path, wrapped("\n\n".join([(head or _head(plan, path)).rstrip(), *later]) + "\n"))


# ---- Before the run. ----


def _head(plan: Plan, path: Path) -> str:
    number = re.match(r"\d{4}(?=-)", path.name)
    title = f"{number.group()} {plan.title}" if number else plan.title
    rules, latency = plan.rules, percent(plan.rules.latency_tolerance)
    return f"""# {title}

## Question

Does {plan.b.name} (b) take less time than {plan.a.name} (a), at no loss of memory?

## Expectation

{plan.why}

## Fixed before the run

- Workloads: {', '.join(case.name for case in plan.cases)}.
- Arms: a is {_arm_text(plan.a)}; b is {_arm_text(plan.b)}; and a again (A/A).
- Samples: {_rounds_text(plan.rounds)}, one in each round, in random order.
- Smallest effect that counts: {percent(rules.effect_min)} of time; p below {rules.alpha} after Holm.
- Guard rails: peak RSS within {percent(rules.memory_tolerance)}, p99 latency (where recorded) within {latency}.
- Session key: {plan.key}.

```
./hakmem {shlex.join(plan.words)}
```
"""


def _rounds_text(rounds: int | None) -> str:
    if rounds is not None:
        return f"{rounds} of each arm and workload"
    return (f"{ROUNDS} of each arm and workload, up to {ROUNDS_MAX} if a and a again differ by more noise than that allows "
            "for (b is not looked at)")


def _arm_text(arm: Arm) -> str:
    """Its name, what it was built from, the start of its hash, its settings; no paths."""
    settings = [f"{name}={value}" for name, value in sorted(arm.environment.items())]
    version = "" if "/" in arm.version else arm.version
    digest = f"sha256 {arm.sha256[:12]}" if arm.sha256 else ""
    facts = [fact for fact in (version, digest, *settings) if fact]
    return f"{arm.name} ({', '.join(facts)})" if facts else arm.name


# ---- After it. ----


def machine_text(session: Session, verdict: Verdict) -> str:
    libc = session.machine.get("libc", "")
    text = f"{machine_line(session.machine)}{libc and f', {libc}'}; {session.created[:10]}; "
    text += f"commit {session.commit[:12] or 'unknown'}."
    floors = [finding.floor for finding in _costs(verdict)]
    if floors:
        text += (f" The A/A arm differs from a by up to {percent(min(floors))} (quietest workload) and "
                 f"{percent(max(floors))} (noisiest), each the far end of a 95 % interval.")
    said = " ".join(finding.get("sentence", "") for finding in session.findings)
    return f"{text} The doctor said: {said}" if said else text


def _costs(verdict: Verdict) -> list[Finding]:
    return [case.cost for case in verdict.cases if case.cost is not None]


def _result(session: Session, verdict: Verdict) -> str:
    lines = [
        "| workload | time, b / a | 95 % interval | p after Holm | noise floor (A/A)"
        " | found 95 in 100 | peak RSS, b / a | p99, b / a | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(case) for case in verdict.cases]
    if verdict.overall is not None:
        lines.append(table_row("geometric mean", *_cost_cells(verdict.overall), "", "", ""))
    failures = sorted({f"{f.case}, {f.arm}: {f.sentence}" for f in session.failures})
    lines += [f"\nFailed: {failure.translate(_BARS)}." for failure in failures]
    lines.append(f"\n{session.rounds} rounds. Raw file: {session.id}.jsonl in the results folder of the laboratory.")
    return "\n".join(lines)


def _row(case: CaseVerdict) -> str:
    cost = _cost_cells(case.cost) if case.cost else ["", "", "", "", ""]
    rails = [f"{f.ratio.value:.3f} ({f.ratio.low:.3f} to {f.ratio.high:.3f})" if f else ""
             for f in (case.memory, case.latency)]
    return table_row(case.case, *cost, *rails, f"{case.word}; {case.reason}".removesuffix("; "))


def _cost_cells(finding: Finding) -> list[str]:
    ratio = finding.ratio
    return [f"{ratio.value:.4f}", f"{ratio.low:.4f} to {ratio.high:.4f}", f"{finding.p_adjusted:.2g}",
            percent(finding.floor), percent(finding.detectable)]


def table_row(*cells: str) -> str:
    return f"| {' | '.join(cell.translate(_BARS) for cell in cells)} |"


def _learned(verdict: Verdict) -> str:
    costs = _costs(verdict)
    if not costs:
        return "Nothing about time: no workload had samples enough."
    finding = verdict.overall or costs[0]
    where = "over all workloads" if verdict.overall else f"on {verdict.cases[0].case}"
    text = f"Time changes by {signed_percent(finding.change)} {where} ({interval(finding.ratio)})"
    memories = [case.memory.ratio.value for case in verdict.cases if case.memory]
    memory = statistics.geometric_mean(memories) - 1
    return f"{text}; peak memory by {signed_percent(memory)}."


def _reopen(verdict: Verdict) -> str:
    if verdict.word == "GO":
        return "A workload that is not in the table loses, or the code that it rests on changes."
    if verdict.word == "NO-GO":
        return "What causes the loss is found and can be had without."
    found = [finding.detectable for finding in _costs(verdict)]
    if not found:
        return "The same can be measured with samples enough."
    return (f"There is reason to expect more than {percent(max(found))}, which this session would have found, or a quieter "
            "machine.")


def wrapped(text: str) -> str:
    """Long lines of text broken; headings, tables, code and shorter lines as they are."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        if fenced or line.startswith(("#", "|")) or len(line) <= _LINE_MAX:
            lines.append(line)
            continue
        whole = re.sub(r"`[^`]+`", lambda span: span.group().replace(" ", "\0"), line)
        indent = "  " if line.startswith("- ") else ""
        broken = textwrap.wrap(whole, _LINE_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += [part.replace("\0", " ") for part in broken]
    return "\n".join(lines)


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"cannot read {path}: {error}") from error
