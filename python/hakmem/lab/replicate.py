# SPDX-License-Identifier: MIT
"""`replicate`: the experiments of hakmem's predecessor, tried again with today's statistics.

bench/replications/replications.toml names the experiments. Variants are arms of a session, and the
first variant is arm a: each other one is judged against it, as `ab` judges its arm b.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ..words import Parser
from . import ab, arms, decision_record, runner, workloads
from .bench import only_session, writing_to
from .common_options import (
    add_force, add_json, add_new, add_output, add_results, add_seed, at_least,
)  # fmt: skip
from .model import Arm, Case, Session
from .places import BUILD, ROOT
from .problem import Problem, Usage
from .progress import say
from .tables import plain_table
from .verdict import ROUNDS, CaseVerdict, Rules, Verdict, decide, evidence_of
from .wording import percent

FILE = ROOT / "bench" / "replications" / "replications.toml"
PROGRAMS = BUILD / "bench" / "replications"
PICTURES = ROOT / "docs" / "pictures" / "replications"
ALL = "all"
BEGIN, END = "<!-- replicate: begin -->", "<!-- replicate: end -->"
"""In a record: what lies between is written by --record."""
MODEL_MEMORY_TOLERANCE = 1.0
"""Variants of a model hold the same objects: its memory says nothing, and is not judged."""
SMOKE_SHARE = 1000
"""Of the steps of a model, one in so many in a run that only shows that all works."""


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    record: str
    is_model: bool
    arms: list[Arm]
    cases: list[Case]
    facts: list[str] = field(default_factory=list)

    @property
    def rules(self) -> Rules:
        """Each further variant is one more question, at the same risk in all."""
        rules = Rules(alpha=Rules.alpha / (len(self.arms) - 1))
        if self.is_model:
            rules = dataclasses.replace(rules, memory_tolerance=MODEL_MEMORY_TOLERANCE)
        return rules


USAGE = "[OPTION...] [NAME]"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default=ALL, help="an experiment, or all: all of them")
    parser.add_argument("--rounds", metavar="N", type=at_least(1), default=ROUNDS,
                        help="runs of each variant and case; %(default)s when not given")
    parser.add_argument("--record", action="store_true", help="write table and picture into the decision records")
    add_output(parser, "a folder for the text of the record and the picture")
    add_seed(parser)
    add_results(parser)
    add_new(parser)
    add_force(parser)
    parser.add_argument("--smoke", action="store_true", help="tiny runs that check the models; no figure counts")
    parser.add_argument("--list", dest="listing", action="store_true", help="name the experiments")
    add_json(parser, "print the verdicts as JSON")


def run(
    name: str, rounds: int, record: bool, output: Path | None, seed: int | None, results: Path | None, new: bool,
    force: bool, smoke: bool, listing: bool, as_json: bool,
) -> None:
    """Tries the experiments of hakmem's predecessor again: tables with intervals, verdicts, pictures.

    Variants run one after the other in random order, the first one twice (A/A).
    """
    entries = _entries(name)
    if listing:
        for key, entry in entries.items():
            print(f"{key:<12} {entry['title']} (docs/decisions/{entry['record']})")
        return
    if record and smoke:
        raise Usage("--smoke gives no figures for a --record")
    if record and rounds < Rules.samples_min:
        raise Usage(f"a record needs --rounds {Rules.samples_min} or more")
    chosen = [_experiment(key, entry, smoke) for key, entry in entries.items()]
    found = []
    with only_session(force or smoke), tempfile.TemporaryDirectory() as scratch:
        findings = [] if smoke else ab.check_fitness(force)
        place = results or (Path(scratch) if smoke else None)
        for one in chosen:
            words = ["replicate", one.name, "--rounds", str(rounds), *(["--smoke"] * smoke)]
            session = runner.run_session(
                one.cases, one.arms, rounds, seed, words, results=place, new=new, findings=findings
            )
            _refuse_failures(session)
            verdicts = verdicts_of(one, session)
            found.append(_to_json(one, session, verdicts))
            if not as_json:
                show(one, session, verdicts)
            if output is not None:
                _write(one, session, verdicts, output / f"{one.name}.md", output, "")
            if record:
                path = decision_record.DIRECTORY / one.record
                _write(one, session, verdicts, path, PICTURES, "../pictures/replications/")
    if as_json:
        print(json.dumps(found, indent=1))


# ---- The experiments. ----


def _entries(name: str) -> dict[str, dict[str, Any]]:
    with FILE.open("rb") as file:
        entries = tomllib.load(file)
    if name == ALL:
        return entries
    if name not in entries:
        raise Usage(f"no experiment is called '{name}'; there are {', '.join(entries)} and {ALL}")
    return {name: entries[name]}


def _experiment(name: str, entry: dict[str, Any], smoke: bool) -> Experiment:
    facts = (name, entry["title"], entry["record"])
    if "workloads" in entry:
        ours = arms.our_arm()
        settings = entry["settings"].items()
        both = [dataclasses.replace(ours, name=key, environment=value) for key, value in settings]
        for arm in both:
            ab.check_options(arm)
        every = workloads.read_workloads()
        found = workloads.select(every, workloads.SUITES[-1], ",".join(entry["workloads"]))
        cases = [
            dataclasses.replace(
                one.case.without_rest,
                command=one.smoke_command if smoke else one.case.command,
            )
            for one in found
        ]
        return Experiment(*facts, False, both, cases)
    program = PROGRAMS / entry["program"]
    if not program.exists():
        raise Problem(f"{program} is not built; type: ./hakmem build --all")
    both = [Arm(key, None, {"REPLICATION_VARIANT": key}) for key in entry["variants"]]
    cases = []
    for case, (steps, *others) in entry["cases"].items():
        count = max(1, steps // SMOKE_SHARE) if smoke else steps
        words = [str(program), *(["--check"] * smoke), str(count), *map(str, others)]
        cases.append(Case(case, words, title=entry["title"]))
    return Experiment(*facts, True, both, cases, entry.get("facts", []))


def _refuse_failures(session: Session) -> None:
    if session.failures:
        first = session.failures[0]
        raise Problem(f"{first.case} under {first.arm} failed: {first.sentence}")


def verdicts_of(one: Experiment, session: Session) -> dict[str, Verdict]:
    """Of each variant against the first."""
    first, *others = (arm.name for arm in one.arms)
    return {
        other: decide(evidence_of(session, first, other), one.rules, first, other)
        for other in others
    }


# ---- The answer. ----


def table_of(
    one: Experiment, session: Session, verdicts: dict[str, Verdict]
) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns and a row for each case and variant."""
    first = one.arms[0].name
    heads = ["case", "variant", "ns per operation", f"time ({first} = 1)", "95 % interval"]
    heads += ["p after Holm", "noise floor", *one.facts, *([] if one.is_model else ["peak memory"])]
    rows = []
    for index, case in enumerate(session.cases):
        for arm in one.arms:
            judged = verdicts[arm.name].cases[index] if arm.name in verdicts else None
            samples = session.of(case.name, arm.name)
            cost = statistics.median(sample.cost_ns for sample in samples)
            facts = [
                f"{statistics.median(sample.workload[fact] for sample in samples):,.0f}"
                for fact in one.facts
            ]
            cells = [case.name, arm.name, f"{cost:.2f}", *_ratio_cells(judged), *facts]
            rows.append([*cells, *([] if one.is_model else [_memory_cell(judged)])])
            rows[-1].append(judged.word if judged else "")
    return [*heads, "verdict"], rows


def _ratio_cells(judged: CaseVerdict | None) -> list[str]:
    if judged is None or judged.cost is None:
        return ["" if judged else "1", "", "", ""]
    ratio = judged.cost.ratio
    return [
        f"{ratio.estimate:.3f}",
        f"{ratio.low:.3f} to {ratio.high:.3f}",
        f"{judged.cost.p_adjusted:.2g}",
        percent(judged.cost.floor),
    ]


def _memory_cell(judged: CaseVerdict | None) -> str:
    return f"{judged.memory.ratio.estimate:.3f}" if judged and judged.memory else ""


def _sentences(one: Experiment, verdicts: dict[str, Verdict]) -> list[str]:
    """The verdict of each variant over all cases; why there is none, where a case has none."""
    first = one.arms[0].name
    lines = []
    for name, verdict in verdicts.items():
        reasons = {case.reason for case in verdict.cases if case.reason}
        why = f" ({'; '.join(sorted(reasons))})" if reasons else ""
        lines.append(f"{name} against {first}: {verdict.word}{why}")
    return lines


def show(one: Experiment, session: Session, verdicts: dict[str, Verdict]) -> None:
    console = Console()
    _, rows = table_of(one, session, verdicts)
    table = plain_table()
    table.add_column("case", overflow="fold", min_width=12)
    table.add_column("variant", no_wrap=True)
    for head in ("ns", "time", "95 % interval", "verdict"):
        table.add_column(head, justify="right", no_wrap=True)
    shown = ""
    for row in rows:
        case = "" if row[0] == shown else row[0]
        table.add_row(*map(Text, [case, *row[1:5], ab.SHORT_WORDS.get(row[-1], row[-1])]))
        shown = row[0]
    console.print(Text(f"{one.name}: {one.title}", style="bold"))
    console.print(table)
    for sentence in _sentences(one, verdicts):
        console.print(Text(sentence), soft_wrap=True)
    console.print()


def record_text(
    one: Experiment, session: Session, verdicts: dict[str, Verdict], picture: str
) -> str:
    """What --record puts between the marks of a record."""
    heads, rows = table_of(one, session, verdicts)
    row = decision_record.table_row
    lines = [
        "## Machine and noise floor",
        decision_record.machine_text(session, next(iter(verdicts.values()))),
        "## Result",
        "\n".join([row(*heads), row(*["---"] * len(heads)), *(row(*cells) for cells in rows)]),
        f"{session.rounds} rounds. The command is `./hakmem replicate {one.name} --record`; it"
        f" rewrites this section. Raw file: {session.id}.jsonl.",
        f"![{one.title}]({picture})",
        "## Verdict",
        "\n".join(f"- {sentence}." for sentence in _sentences(one, verdicts)),
    ]
    return decision_record.wrapped("\n\n".join(lines))


def _write(
    one: Experiment, session: Session, verdicts: dict[str, Verdict], path: Path, pictures: Path,
    link: str,
) -> None:
    """The picture, and the text: all of a file, or what is between the marks of a record."""
    from . import plots  # here, as it takes a second to load

    picture = f"{one.name}.png"
    text = record_text(one, session, verdicts, link + picture) + "\n"
    if link:
        head, begin, rest = decision_record.read(path).partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not begin or not end:
            raise Problem(f"{path} has no lines '{BEGIN}' and '{END}'")
        text = f"{head}{BEGIN}\n\n{text}\n{END}{tail}"
    with writing_to(pictures):
        plots.write_speed(
            session, pictures / picture, f"{one.title}: speed, the fastest is 1"
        )
    decision_record.write_whole(path, text)
    say(f"written: {path}, {pictures / picture}")


def _to_json(
    one: Experiment, session: Session, verdicts: dict[str, Verdict]
) -> dict[str, Any]:
    heads, rows = table_of(one, session, verdicts)
    return {
        "experiment": one.name,
        "session": session.id,
        "rounds": session.rounds,
        "table": [dict(zip(heads, row, strict=True)) for row in rows],
        "verdicts": {name: verdict.to_json() for name, verdict in verdicts.items()},
    }
