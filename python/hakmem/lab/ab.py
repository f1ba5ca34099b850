# SPDX-License-Identifier: MIT
"""`ab`: two settings or libraries, one verdict, and a record begun before the run."""

import dataclasses
import json
import re
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import arms as arm_list
from . import base, decision_record, doctor, proof, runner, store, workloads
from .base import Problem, Usage, results_directory
from .bench import only_session, prepared
from .decision_record import Plan
from .model import Arm, Case, Session
from .options import AUTO, DEFAULT, ROUNDS, ROUNDS_MAX, TIMEOUT_S
from .program import make_case, rehearse
from .progress import say
from .runner import with_again
from .tables import plain_table
from .verdict import Finding, Rules, Verdict, decide, evidence_of, rounds_wanted
from .wording import interval, p_text, parse_percent, percent, signed_percent

SHORT_WORDS = {"INCONCLUSIVE": "unclear"}
_COLOURS = {"GO": "bold green", "NO-GO": "bold red", "INCONCLUSIVE": "bold yellow"}


def run(
    a: str, b: str, program: list[str], suite: str, workload: str, min_effect: str, rounds: int | None, title: str,
    why: str, record: str, seed: int | None, results: Path | None, new: bool, force: bool, as_json: bool,
) -> None:
    """Measures a and b, prints the verdict and writes the record."""
    if record and not why:
        raise Usage("a record needs --why: the reason, with a figure, why b should be better")
    rules = Rules(effect_min=parse_percent(min_effect))
    if rounds is not None and rounds < rules.samples_min:
        raise Usage(f"a verdict needs --rounds {rules.samples_min} or more")
    both = parse_arms(a, b)
    cases = _cases(program, suite, workload)
    for arm in both:
        proof.prove(arm)  # before the record begins: hakmem refuses options that it does not know
    words = ["ab", "--a", a, "--b", b]
    options = {"--suite": suite, "--workload": workload, "--min-effect": min_effect}
    words += [word for name, value in options.items() if value for word in (name, value)]
    words += ["--rounds", str(rounds)] if rounds else []
    words += ["--", *program] if program else []
    session_key = store.session_key("ab", cases, with_again(both), rounds or store.ROUNDS_GROW, seed, base.machine_id())
    plan = Plan(title or f"{both[1].name} against {both[0].name}", why or "Nothing was stated beforehand.", words,
                *both, cases, rounds, rules, store.key_of([session_key, dataclasses.asdict(rules)]))
    path = _record_path(record, plan, results or results_directory())
    with only_session(force):
        findings = check_fitness(force)
        session = _measure(plan, path, seed, results, new, findings)
    verdict = decide(evidence_of(session, plan.a.name, plan.b.name), rules, *plan.names)
    decision_record.complete(path, plan, session, verdict)
    if not record:
        path = path.rename(path.with_name(f"{session.id}.md"))
    show(session, verdict, path, as_json)


def _measure(
    plan: Plan, path: Path, seed: int | None, results: Path | None, new: bool, findings: list[dict[str, str]]
) -> Session:
    """The record's first part goes to disk before anything is measured."""
    if plan.cases[0].kind == "program":
        rehearse(plan.cases[0], [plan.a])
    decision_record.begin(path, plan)
    what = f"{len(plan.cases)} workloads" if len(plan.cases) > 1 else plan.cases[0].name
    rounds = f"{plan.rounds}" if plan.rounds else f"{ROUNDS} to {ROUNDS_MAX}"
    say(f"is {plan.b.name} better than {plan.a.name}? {rounds} rounds of {what}, three runs each")

    def grow(session: Session) -> int:
        return rounds_wanted(evidence_of(session, *plan.names), plan.rules)

    return runner.run_session(plan.cases, [plan.a, plan.b], plan.rounds or ROUNDS, seed, plan.words, results=results,
                              new=new, findings=findings, grow=None if plan.rounds else grow)


def parse_arms(a: str, b: str) -> tuple[Arm, Arm]:
    """The arms of --a and --b."""
    words = [_arm_word(spec, option) for spec, option in ((a, "--a"), (b, "--b"))]
    if words[0] == words[1]:
        raise Usage("--a and --b are the same; say what differs, such as --b purge_delay_ms=0")
    first, second = arm_list.find_arms(",".join(words))
    return first, second


def _arm_word(spec: str, option: str) -> str:
    """The allocator and its settings in the form of arms.find_arms."""
    library, settings = arm_list.OURS, []
    for part in re.split(r"(?<!\\),", spec.strip()):
        name, sign, value = part.strip().partition("=")
        if part.strip() == DEFAULT:
            continue
        if not (sign and name and value):
            raise Usage(f"{option} {spec}: '{part}' is neither option=value nor lib=FILE nor {DEFAULT}")
        if name == "lib":
            library = value
        else:
            settings.append(f"{name}={value}")
    return ":".join([library, *settings])


def check_fitness(force: bool) -> list[dict[str, str]]:
    """What the doctor finds; raises Problem when that forbids verdicts."""
    is_fit, findings = doctor.fit()
    bad = [finding["sentence"] for finding in findings if finding["level"] == "bad"]
    if not is_fit and not force:
        raise Problem(f"this machine is not fit for a verdict now: {' '.join(bad)} ./hakmem doctor says what to do about "
                      "it; --force measures nevertheless")
    serious = [finding for finding in findings if finding["level"] in ("bad", "warning")]
    for finding in serious:
        say(finding["sentence"])
    return serious


def _cases(program: list[str] | None, suite: str, workload: str) -> list[Case]:
    if program:
        if suite or workload:
            raise Usage("either a program of your own, or --suite or --workload")
        return [make_case(program, "", TIMEOUT_S)]
    chosen = workloads.select(workloads.read_workloads(), suite or "quick", workload)
    return [one.case.without_rest for one in prepared(chosen)]


def _record_path(record: str, plan: Plan, results: Path) -> Path:
    if not record:
        return results / f"ab-{plan.key}.md"
    if record != AUTO:
        return Path(record)
    begun = decision_record.find_begun(plan.key, decision_record.DIRECTORY)
    return begun or decision_record.numbered_path(plan.title)


# ---- The answer. ----


def show(session: Session, verdict: Verdict, record: Path, as_json: bool) -> None:
    """The verdict first; then what it rests on."""
    if as_json:
        head = {"session": session.id, "record": str(record)}
        print(json.dumps({**head, **verdict.to_json()}, indent=1))
        return
    console = Console()
    text = Text(f"{verdict.word}: ", style=_COLOURS[verdict.word])
    text.append(verdict.sentence, style="default not bold")
    console.print(text, soft_wrap=True)
    console.print()
    console.print(result_table(verdict))
    for case in verdict.cases:
        if case.reason:
            console.print(Text(f"{case.case}: {case.reason}"), soft_wrap=True)
    say(f"the record: {record}")


def result_table(verdict: Verdict) -> Table:
    has_latency = any(case.latency for case in verdict.cases)
    table = plain_table()
    table.add_column("b against a", overflow="fold", min_width=14)
    for name in ("time (95 % interval)", "p", "noise", "memory", *(["p99"] * has_latency)):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for case in verdict.cases:
        rails = [_change_text(case.memory), *([_change_text(case.latency)] * has_latency)]
        word = Text(SHORT_WORDS.get(case.word, case.word), style=_COLOURS[case.word])
        table.add_row(case.case, *_cost_texts(case.cost), *rails, word)
    if verdict.overall is not None:
        table.add_row("geometric mean", *_cost_texts(verdict.overall))
    return table


def _cost_texts(finding: Finding | None) -> list[Text | str]:
    if finding is None:
        return ["-"] * 3
    text = _change_text(finding).append(f" ({interval(finding.ratio)})")
    return [text, p_text(finding.p_adjusted), percent(finding.floor)]


def _change_text(finding: Finding | None) -> Text:
    """Green or red only where the difference is beyond doubt."""
    if finding is None:
        return Text("-", style="dim")
    style = {"less": "green", "more": "red"}.get(finding.word, "")
    return Text(signed_percent(finding.change), style=style)
