# SPDX-License-Identifier: MIT
"""`bench`: workloads times allocators, interleaved; table, pictures, page and JSON."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from . import doctor, runner, secure, servers, store, workloads
from .arms import OURS, SYSTEM, find_arms, read_manifest
from .bugs import TRIES, Trying, check_built
from .instructions import Counting
from .model import Arm, Session
from .options import SERVER_S
from .places import cache_directory
from .problem import Problem, Usage
from .progress import say
from .workloads import Workload

ROUNDS = {"quick": 5, "idle": 3, "aging": 3, "secure": 3, "secure-quick": 3, "servers": 2}
ROUNDS_ELSE = 9  # what a verdict needs


def run(
    suite: str, alloc: str, workload: str, trace: list[Path] | None, runs: int | None, seed: int | None,
    seconds: float, rest: bool, instructions: bool, results: Path | None, output: Path | None,
    as_json: bool, new: bool, listing: bool, force: bool,
) -> None:
    """Measures workloads under several allocators and shows who is best at what."""
    known = workloads.read_workloads()
    if suite == servers.SUITE:
        if trace or instructions:
            raise Usage("suite servers has neither --trace nor --instructions")
        run_servers(alloc, workload, runs, seconds, seed, results, new, force, output, as_json, listing)
        return
    if seconds != SERVER_S:
        raise Usage("--seconds is for the suite servers")
    if listing:
        show_list(listed(known, suite or "full", workload), as_json)
        return
    if suite in secure.SUITES:
        if trace or instructions:
            raise Usage(f"suite {suite} has neither --trace nor --instructions")
        run_secure(known, suite, alloc, workload, runs, seed, results, new, force, output=output, as_json=as_json)
        return
    words = command_words(suite, alloc, workload, runs, trace or ())
    words += [] if rest else ["--no-rest"]
    chosen = [workloads.of_trace(file) for file in trace or []]
    if not trace or suite or workload:
        chosen += workloads.select(known, suite or "quick", workload)
    suite = suite or "quick"
    arms = find_arms(alloc)
    check_output(output)
    advise_peers(arms, alloc)
    with only_session(force):
        findings = doctor.warn()
        ready = prepared(chosen)
        session = runner.run_session(
            [w.case if rest else w.case.without_rest for w in ready], arms,
            runs or ROUNDS.get(suite, ROUNDS_ELSE), seed, words, results=results, new=new,
            findings=findings, parts=[Counting(ready)] if instructions else [], shows=True,
        )
    show_session(session, output, as_json)
    end(session, results)


def command_words(
    suite: str, alloc: str, workload: str, runs: int | None = None,
    traces: Sequence[Path] = (),
) -> list[str]:
    """What was asked for, as one would type it."""
    words = ["bench"]
    for name, value in (
        ("--suite", suite or ("" if workload or traces else "quick")), ("--alloc", alloc),
        ("--workload", workload), ("--runs", str(runs or "")),
        *(("--trace", str(file)) for file in traces),
    ):  # fmt: skip
        words += [name, value] if value else []
    return words


def check_output(output: Path | None) -> None:
    """Before long measuring: what it is for can be written at its end."""
    directory = output or cache_directory() / "reports"
    with writing_to(directory), tempfile.TemporaryFile(dir=directory):
        pass


@contextlib.contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """A folder that is made first; whatever keeps us from it is one sentence."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise Problem(f"cannot write to {directory}: {error.strerror}") from error


def advise_peers(arms: Sequence[Arm], alloc: str) -> None:
    """Nobody shall think that there is nothing else to compare with."""
    if not alloc and all(arm.is_ours or arm.library is None for arm in arms):
        say("no other allocators are installed; for more than glibc type: ./hakmem peers install")


def prepared(chosen: Sequence[Workload], prepare: Callable[[Workload], str] = Workload.prepare) -> list[Workload]:
    """Those that can run here; says why others cannot."""
    ready = []
    for one in chosen:
        if one.inputs is not None and not one.inputs.exists():
            say(f"preparing {one.script.stem if one.script else ''}, once")
        reason = prepare(one)
        if reason:
            say(f"skipping {one.case.name}: {reason}")
        else:
            ready.append(one)
    if not ready:
        raise Problem("none of these workloads can run here")
    return ready


@contextlib.contextmanager
def only_session(force: bool) -> Iterator[None]:
    """Two sessions at once would measure each other."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = os.open(directory / "measuring.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Problem(
            f"cannot write to {directory}: {error.strerror}; XDG_CACHE_HOME can name another folder"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not force:
                raise Problem(
                    "another session is being measured on this machine, each would disturb the "
                    "other; wait for it, or use --force"
                ) from error
        yield
    finally:
        os.close(file)


def run_secure(
    known: Sequence[Workload], suite: str, alloc: str, workload: str,
    runs: int | None, seed: int | None, results: Path | None, new: bool, force: bool,
    **show: Any,
) -> None:
    """The suites of hardened allocators. Memory after the work is not asked about."""
    bugs, chosen = secure.select(known, suite, workload)
    spec, missing = secure.default_allocators()
    arms = find_arms(alloc or spec)
    check_output(show["output"])
    check_built(bugs)
    if missing and not alloc:
        say(
            f"not installed and left out: {', '.join(missing)}; type: ./hakmem peers install "
            f"{' '.join(missing)}"
        )
    with only_session(force):
        findings = doctor.warn() if chosen else []
        ready = prepared(chosen) if chosen else []
        session = runner.run_session(
            [w.case.without_rest for w in ready], arms, runs or ROUNDS.get(suite, ROUNDS_ELSE),
            seed, command_words(suite, alloc, workload, runs), results=results, new=new,
            again=bool(ready), findings=findings, parts=[Trying(bugs, runs or TRIES)], shows=True,
        )
    show_session(session, is_secure=True, **show)
    end(session, results)


def run_servers(
    alloc: str, workload: str, runs: int | None, seconds: float, seed: int | None,
    results: Path | None, new: bool, force: bool, output: Path | None, as_json: bool,
    listing: bool,
) -> None:  # fmt: skip
    """Real servers under a planned load. The first four figures of the report are judged."""
    known = {server.name: server for server in servers.read_servers()}
    cases = [Workload(server.case(seconds)) for server in known.values()]
    chosen = workloads.choose(cases, workload)
    if listing:
        show_list(chosen, as_json)
        return
    entries = read_manifest()
    here = [key for key in servers.PEERS if key in entries and not entries[key].fault]
    arms = find_arms(alloc or ",".join([OURS, SYSTEM, *here]))
    check_output(output)
    if not alloc and len(here) < len(servers.PEERS):
        names = " ".join(key for key in servers.PEERS if key not in here)
        say(f"not all allocators are installed; type: ./hakmem peers install {names}")
    with only_session(force):
        findings = doctor.warn()
        ready = prepared(chosen, lambda one: known[one.case.name].prepare())
        words = command_words(servers.SUITE, alloc, workload, runs)
        words += ["--seconds", f"{seconds:g}"] if seconds != SERVER_S else []
        with servers.Runner(list(known.values()), seconds, seed or 1) as server_runner:
            session = runner.run_session(
                [one.case for one in ready], arms, runs or ROUNDS[servers.SUITE], seed, words, results=results, new=new,
                findings=findings, shows=True, server_runner=server_runner,
            )
    from . import servers_tables

    servers_tables.show(session, output, as_json)
    end(session, results)


def end(session: Session, results: Path | None) -> None:
    store.mark_shown(session, results)
    if not session.samples and not session.bugs:
        raise Problem("no run has ended well; the reasons are above")


def listed(known: Sequence[Workload], suite: str, workload: str) -> list[Workload]:
    if suite not in secure.SUITES:
        return workloads.select(known, suite, workload)
    bugs, costs = secure.select(known, suite, workload)
    return [*(Workload(bug) for bug in bugs), *costs]


def show_list(chosen: Sequence[Workload], as_json: bool) -> None:
    if as_json:
        print(json.dumps([one.case.to_json() for one in chosen]))
        return
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    # Names are there to be typed: what is wrapped is what they mean.
    for name in ("workload", "suite", "threads"):
        table.add_column(name, no_wrap=True)
    table.add_column("what it imitates", overflow="fold")
    for one in chosen:
        case = one.case
        table.add_row(case.name, case.suite, str(case.threads), case.title)
    Console().print(table)


def show_session(session: Session, output: Path | None, as_json: bool, is_secure: bool = False) -> None:
    """Tables or JSON on standard output; page, pictures and JSON in `output`, by default in the cache folder."""
    # Here, as they take a second to load.
    from . import page, plots, secure_tables, tables
    from .summary import summarise

    summary = summarise(session)
    data = describe(session, summary.to_json())
    if is_secure:
        data["secure"] = secure_tables.report_of(session)
        parts = secure_tables.secure_parts(session, summary, data["secure"])
    else:
        parts = [tables.session_table(session, summary)]
    write_results(session, data, parts, output, as_json, lambda directory: page.write_page(
        session, directory, plots.write_plots(session, directory, summary) if summary.rows else [],
        [*parts, page.details_table(summary)],
    ))


def write_results(
    session: Session, data: dict[str, Any], parts: Sequence[Any], output: Path | None, as_json: bool,
    write_page: Callable[[Path], Path],
) -> None:
    """The parts, or the data as JSON, on standard output; then the files."""
    directory = output or cache_directory() / "reports" / session.id
    text = json.dumps(data, indent=1)
    if as_json:
        print(text)
    else:
        console = Console()
        for part in parts:
            console.print(part)
    with writing_to(directory):
        (directory / "results.json").write_text(text + "\n", encoding="utf-8")
        path = write_page(directory)
    say(f"page, pictures and JSON: {path}")


def describe(session: Session, summary: dict[str, Any]) -> dict[str, Any]:
    """The head of the session and what came of it; the samples stay in the session's file."""
    head = session.to_json()
    del head["is_shown"]
    for part in ("samples", "failures"):
        head[part] = len(head[part])
    return {"session": head, "summary": summary}
