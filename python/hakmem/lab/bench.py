# SPDX-License-Identifier: MIT
"""`bench`: workloads times allocators, interleaved; table, pictures, page and JSON."""

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
from .arms import OURS, SYSTEM, find_arms, installed_of
from .base import Problem, Usage, cache_directory
from .instructions import Counting
from .model import Arm, Case, Session
from .options import SERVER_S
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
    is_secure, is_served = suite in secure.SUITES, suite == servers.SUITE
    if (is_secure or is_served) and (trace or instructions):
        raise Usage(f"suite {suite} has neither --trace nor --instructions")
    if seconds != SERVER_S and not is_served:
        raise Usage("--seconds is for the suite servers")
    bugs, chosen = _chosen(suite or ("full" if listing else "quick" if workload or not trace else ""), workload, seconds)
    if listing:
        show_list([*(Workload(bug) for bug in bugs), *chosen], as_json)
        return
    chosen = [*map(workloads.of_trace, trace or []), *chosen]
    arms = _arms(suite, alloc)
    check_output(output)
    secure.check_built(bugs)
    words = ["bench"]
    for name, value in (("--suite", suite or ("" if workload or trace else "quick")), ("--alloc", alloc),
                        ("--workload", workload), ("--runs", str(runs or "")),
                        *(("--trace", str(file)) for file in trace or ()),
                        ("--seconds", f"{seconds:g}" if seconds != SERVER_S else "")):
        words += [name, value] if value else []
    words += [] if rest else ["--no-rest"]
    parts: list[runner.Part] = [secure.Trying(bugs, runs or secure.tries_of(suite))] if is_secure else []
    with only_session(force), contextlib.ExitStack() as stack:
        findings = doctor.warn() if chosen else []
        ready = prepared(chosen) if chosen else []
        parts += [Counting(ready)] if instructions else []
        of_servers = stack.enter_context(servers.Runner(servers.read_servers(), seconds, seed or 1)) if is_served else None
        session = runner.run_session([w.case if rest and not is_secure else w.case.without_rest for w in ready], arms,
                                     runs or ROUNDS.get(suite or "quick", ROUNDS_ELSE), seed, words, results=results,
                                     new=new, again=bool(ready), findings=findings, parts=parts, shows=True,
                                     server_runner=of_servers)
    show_session(session, output, as_json, is_secure)
    store.mark_shown(session, results)
    if not session.samples and not session.bugs:
        raise Problem("no run has ended well; the reasons are above")


def _chosen(suite: str, workload: str, seconds: float) -> tuple[list[Case], list[Workload]]:
    """Bugs and workloads; without a suite none."""
    if suite == servers.SUITE:
        return [], workloads.choose(servers.workloads_of(seconds), workload)
    known = workloads.read_workloads()
    if suite in secure.SUITES:
        return secure.select(known, suite, workload)
    return [], workloads.select(known, suite, workload) if suite else []


def _arms(suite: str, alloc: str) -> list[Arm]:
    """Those asked for; else those of the suite, with a word on what is not installed."""
    peers = secure.PEERS if suite in secure.SUITES else servers.PEERS if suite == servers.SUITE else ()
    if alloc or not peers:
        arms = find_arms(alloc)
        advise_peers(arms, alloc)
        return arms
    here = installed_of(peers)
    missing = [key for key in peers if key not in here]
    if missing:
        names = " ".join(missing)
        say(f"not installed and left out: {', '.join(missing)}; type: ./hakmem peers install {names}")
    return find_arms(",".join([*(secure.FORMS if suite in secure.SUITES else [OURS]), SYSTEM, *here]))


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


def prepared(chosen: Sequence[Workload]) -> list[Workload]:
    """Those that can run here; says why others cannot."""
    ready = []
    for one in chosen:
        if one.inputs is not None and not one.inputs.exists():
            say(f"preparing {one.script.stem if one.script else ''}, once")
        reason = one.prepare()
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
        raise Problem(f"cannot write to {directory}: {error.strerror}; XDG_CACHE_HOME can name another folder") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not force:
                raise Problem("another session is being measured on this machine, each would disturb the other; wait for "
                              "it, or use --force") from error
        yield
    finally:
        os.close(file)


# ---- Showing. ----


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
        table.add_row(one.case.name, one.case.suite, str(one.case.threads), one.case.title)
    Console().print(table)


def show_session(session: Session, output: Path | None, as_json: bool, is_secure: bool = False) -> None:
    """Tables or JSON on standard output; page, pictures and JSON in `output`, by default in the cache folder."""
    # Here, as they take a second to load.
    from . import page, plots, secure_tables, tables
    from .summary import summarise

    summary = summarise(session)
    head = session.to_json()
    del head["is_shown"]
    for part in ("samples", "failures"):
        head[part] = len(head[part])  # they stay in the session's file
    data = {"session": head, "summary": summary.to_json()}
    if is_secure:
        data["secure"] = secure_tables.report_of(session)
        parts = secure_tables.secure_parts(session, summary, data["secure"])
    else:
        parts = [tables.session_table(session, summary), *tables.headline(summary)]
    write_results(session, data, parts, output, as_json, lambda directory: page.write_page(
        session, directory, plots.write_plots(session, directory, summary) if summary.rows else [],
        [*parts, tables.details_table(summary)],
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
