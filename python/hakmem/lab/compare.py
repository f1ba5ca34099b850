# SPDX-License-Identifier: MIT
"""`compare`: the user's own program under several allocators, and an answer in one sentence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from . import doctor, runner, store
from .bench import advise_peers, check_output, only_session, write_results
from .arms import find_arms
from .base import Usage
from .comparison import Change, Comparison, baseline_of, compare_arms
from .model import Arm, Session
from .options import RUNS
from .program import make_case, rehearse
from .progress import duration_text, say
from .summary import summarise
from .tables import Fitting, details_table, machine_line, plain_table, session_table
from .wording import counted, duration, mebibytes, p_text, signed_percent


def run(
    command: list[str], alloc: str, runs: int, load: str | None, rest: bool, timeout: float, results: Path | None,
    output: Path | None, as_json: bool, new: bool, force: bool,
) -> int:
    """Measures the program and prints the answer."""
    if load == "":
        raise Usage("the load command is empty")  # else a server would run until --timeout
    case = make_case(command, load or "", timeout, rest)
    arms = ordered(find_arms(alloc or None))
    words = ["compare"]
    for name, value in (("--alloc", alloc), ("--load", load), ("--runs", "" if runs == RUNS else str(runs))):
        words += [name, value] if value else []
    words += [] if rest else ["--no-rest"]
    check_output(output)
    advise_peers(arms, alloc)
    with only_session(force):
        findings = doctor.warn()
        say(f"one run under {arms[0].name} first, which does not count")
        seconds = rehearse(case, arms)
        rested = min(runs, runner.REST_ROUNDS) * max(case.rest_s, default=0)
        left = duration_text((seconds * runs + rested) * (len(arms) + 1))
        again = f"under each of {len(arms)} allocators and {arms[0].name} again"
        say(f"{counted(runs, 'run')} {again}: about {left}")
        session = runner.run_session([case], arms, runs, None, [*words, "--", *command], results=results, new=new,
                                     findings=findings, shows=True)
    comparison = show(session, output, as_json)
    store.mark_shown(session, results)
    return 0 if comparison.is_possible else 1


def ordered(arms: Sequence[Arm]) -> list[Arm]:
    """The baseline first: it is the one that runs twice."""
    if len(arms) < 2:
        raise Usage("compare needs at least two allocators; ./hakmem peers install gets some")
    baseline = baseline_of(arms)
    return [baseline, *(arm for arm in arms if arm is not baseline)]


def show(session: Session, output: Path | None, as_json: bool) -> Comparison:
    """The answer and the table, or JSON, on standard output; files in `output`."""
    from . import page, plots  # matplotlib takes its time

    summary = summarise(session)
    comparison = compare_arms(session, summary)
    data = {"session": session.id, **comparison.to_json()}
    parts = report_parts(session, comparison)
    write_results(session, data, parts, output, as_json, lambda directory: page.write_page(
        session, directory, plots.write_plots(session, directory, summary),
        [*parts, session_table(session, summary), details_table(summary)],
    ))
    return comparison


def report_parts(session: Session, comparison: Comparison) -> list[Any]:
    """The answer first; then what it rests on."""
    parts: list[Any] = [Text(comparison.answer, style="bold")]
    parts += [Text(note, style="yellow") for note in comparison.notes]
    return [Text(), *parts, Text(), result_table(comparison), Text(), footnote(session, comparison)]


def result_table(comparison: Comparison) -> Fitting:
    """Whole, with intervals below their ratios, or without what can be found on the page."""
    left_out = ("mean", "p", "faults", "CPU")
    narrower = [(lambda count=count: _table(comparison, "\n", left_out[:count])) for count in range(1, 5)]
    return Fitting(lambda: _table(comparison, " ", ()), *narrower, lambda: _table(comparison, "", left_out))


def _table(comparison: Comparison, gap: str, without: Sequence[str]) -> Table:
    table = plain_table()
    seconds = sorted({second for r in comparison.results for second, _ in r.cell.rest_kib})
    rests = {f"after {second:g}": f"MiB after {second:g} s" for second in seconds}
    names = {"time": "time", "change": f"against {comparison.baseline}", "p": "p", "CPU": "CPU", "peak": "peak MiB",
             "memory": "against", **rests, "faults": "page faults", "mean": "mean MiB"}
    shown = {key: name for key, name in names.items() if key not in without}
    table.add_column("allocator", min_width=10, overflow="fold")
    for name in shown.values():
        table.add_column(name if gap == " " else name.replace(" ", "\n"), justify="right", no_wrap=True)
    for result in comparison.results:
        style = "bold" if result.arm.split(" ")[0] == "hakmem" else ""
        cell, median = result.cell, result.cell.medians
        if not cell.runs:
            table.add_row(result.arm, Text("failed", style="red"), style=style)
            continue
        stars = {key: "*" if result.arm in comparison.best[key] else " " for key in ("time", "peak")}
        values: dict[str, str | Text] = {
            "time": duration(median["time"]) + stars["time"], "change": change_text(result.time, gap),
            "p": p_text(result.time.p) if result.time and result.time.p is not None else "-", "CPU": duration(median["cpu"]),
            "peak": mebibytes(median["peak"]) + stars["peak"], "memory": change_text(result.memory),
            "faults": f"{median['faults']:,.0f}", "mean": mebibytes(median["mean"]),
            **{f"after {second:g}": mebibytes(kib) for second, kib in cell.rest_kib},
        }
        table.add_row(result.arm, *[values.get(key, "-") for key in shown], style=style)
    return table


def change_text(change: Change | None, gap: str = "") -> Text:
    """Green or red only where the difference is beyond doubt; after the gap the interval."""
    if change is None:
        return Text("-", style="dim")
    text, ratio = signed_percent(change.share), change.ratio
    if gap and ratio.low is not None:
        text += f"{gap}({' to '.join(f'{(end - 1) * 100:+.1f}' for end in ratio.ends)})"
    return Text(text, style={"less": "green", "more": "red"}.get(change.word, ""))


def footnote(session: Session, comparison: Comparison) -> Text:
    floors = [r.time.floor for r in comparison.results if r.time and r.time.floor is not None]
    noise = f"noise {floors[0] * 100:.1f} %, " if floors else ""
    return Text(
        f"* cannot be told from the best; {noise}medians of {session.rounds} interleaved runs, "
        f"95 % intervals, p of Mann-Whitney after Holm. {_rest_sentence(session)}"
        f"{machine_line(session.machine)}.",
        style="dim",
    )


def _rest_sentence(session: Session) -> str:
    """Where the memory after the work comes from, or why there is none."""
    case = session.cases[0]
    if not case.load:
        return "Memory after the work is known of servers only (--load): this program then ends. "
    if not case.rest_s:
        return ""
    return f"MiB after the load are medians of {counted(runner.REST_ROUNDS, 'round')}. "
