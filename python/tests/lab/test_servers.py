# SPDX-License-Identifier: MIT
"""Suite `servers`: the table, the load generator, one run of a tiny server, and the report."""

import dataclasses
import json
import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hakmem.lab import servers
from hakmem.lab.model import Arm, Session
from hakmem.lab.base import Problem
from hakmem.lab.plots import write_plots
from hakmem.lab.summary import summarise
from hakmem.lab.tables import headline, session_table
from synthetic import arm, sample, shown

built = pytest.mark.skipif(not servers.LOAD.exists(), reason="lab/load is not built")
has_python = pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python that each user may run")

TINY = """
import asyncio, sys, time
async def serve(reader, writer):
    try:
        while True:
            line = await reader.readline()
            if not line:
                break
            if line.startswith(b"GET /die"):
                sys.exit("the tiny server dies")
            while (await reader.readline()).strip():
                pass
            end = time.thread_time() + 0.002 # the kernel counts processor time in units of 10 ms
            while time.thread_time() < end:
                pass
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    finally:
        writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
"""


def tiny(**changes: object) -> servers.Server:
    start = "exec /usr/bin/python3 tiny.py $port"
    make = f"cat >tiny.py <<'END'\n{TINY}\nEND\n"
    server = servers.Server("tiny", start, ["http", "--target", "/?n={n}"], make=make)
    return dataclasses.replace(server, **changes)  # type: ignore[arg-type]


def test_the_table_is_well_formed():
    table = servers.read_servers()
    assert len(table) >= 14
    assert sum(server.threaded for server in table) >= 5
    for server in table:
        assert server.title and server.packages and server.needs, server.name
        assert server.load[0] in ("redis", "memcached", "http", "mqtt", "dns", "pgsql", "mysql")
        assert "$port" in server.start
        for text in (server.make, server.start):
            subprocess.run(["bash", "-n", "-c", text], check=True)


def test_a_bad_table_is_one_sentence(tmp_path: Path):
    file = tmp_path / "servers.toml"
    file.write_text('[one]\nstart = "x"\nload = ["http"]\nlaod = 1\n')
    with pytest.raises(Problem, match=r"\[one\] has an unknown key 'laod'"):
        servers.read_servers(file)


def test_a_server_that_is_not_here_names_its_packages(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LABORATORY_INSTALL", "no")
    server = tiny(needs=["no-such-server"], packages=["one", "two"])
    assert server.prepare() == ("no-such-server is not installed; on Debian: apt-get install one two")


def plan(*words: str) -> list[list[int]]:
    command = [str(servers.LOAD), "http", "1", "--plan", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["plan"]


@built
def test_moments_are_planned_by_the_seed_alone():
    phases = ["a:open:10:1000", "b:quiet:1", "c:open:10:1000"]
    first, quiet, second = plan("--seed", "7", *phases)
    assert plan("--seed", "7", "--connections", "1", *phases)[0] == first
    assert plan("--seed", "8", *phases)[0] != first
    assert quiet == []
    assert first != second
    assert first == sorted(first)
    assert first[-1] < 10e9
    # Poisson: of 10,000 expected within 6 standard deviations; gaps spread as much as their mean.
    assert abs(len(first) - 10_000) < 600
    gaps = [b - a for a, b in zip(first, first[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert 0.9 < spread / mean < 1.1


@pytest.fixture
def stalling() -> Iterator[int]:
    """Answers HTTP on one connection at a time; its 20th answer takes half a second."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        count = 0
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                while peer.recv(4096):
                    count += 1
                    if count == 20:
                        time.sleep(0.5)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@built
def test_latency_counts_from_the_planned_moment(stalling: int):
    words = [str(servers.LOAD), "http", str(stalling), "--connections", "1", "--seed", "3"]
    done = subprocess.run([*words, "steady:open:1:100"], capture_output=True, text=True, timeout=120, check=True)
    phase = json.loads(done.stdout)["phases"][0]
    planned = plan("--seed", "3", "steady:open:1:100")[0]
    assert phase["requests"] == len(planned)
    assert phase["errors"] == 0
    assert phase["worst_ns"] >= 0.5e9
    # Many moments lie within the half second: each has waited, not only the one that hung.
    late = sum(count for end, count in phase["latencies"] if end > 0.1e9)
    assert late >= 10


@built
@has_python
def test_a_run_of_a_tiny_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "after_s", lambda _: 0.3)
    server, glibc = tiny(), Arm("glibc")
    with servers.Runner([server], 1.5, 1) as runner:
        outcome = runner.run(server.case(1.5), glibc, 50.0, 100, 0)
        assert outcome.sentence(server.case(1.5)) == ""
        folder = runner._folder
    assert not folder.exists()
    report = outcome.report
    planned = plan("--seed", "1000", *servers.phases(1.5, 50.0))
    assert report["serving"]["requests"] == sum(map(len, planned))
    assert report["serving"]["errors"] == 0
    assert report["serving"]["cpu_ns"] > 0
    assert report["rss_peak_kib"] >= report["rss_mean_kib"] > 1000
    assert [one[0] for one in report["rest"]] == [0.3]
    assert [one[0] for one in report["serving"]["phases"]] == ["warm", "steady", "burst", "quiet", "end"]
    assert servers.descendants(os.getpid()) == []


@built
@has_python
def test_a_server_that_dies_says_why():
    server = tiny(load=["http", "--ready-s", "1", "--target", "/die"])
    with servers.Runner([server], 5, 1) as runner:
        sentence = runner.run(server.case(5), Arm("glibc"), 50.0, 0, 0).sentence(server.case(5))
    assert sentence.startswith("it ended with status 1")
    assert "the tiny server dies" in sentence


def fabricated() -> Session:
    arms = [arm(name) for name in ("hakmem", "glibc", "jemalloc", "hakmem (again)")]
    made_up = [servers.Server(name, "x", ["http"], title="made up") for name in ("one", "two")]
    cases = [server.case(7) for server in made_up]
    costs = {"hakmem": 0.8, "hakmem (again)": 0.8, "glibc": 1.0, "jemalloc": 1.25}
    samples = []
    for case in cases:
        for one in arms:
            for number in range(2):
                cost = costs[one.name]
                figures = {"requests": 100, "cpu_ns": cost * 1e5, "p50_ns": 1e5, "p99_ns": 2e5, "p999_ns": cost * 1e6,
                           "worst_ns": 2e6, "burst_worst_ns": 1e7, "faults": 1.5,
                           "latencies": [[100000, 90], [int(cost * 1e6), 10]],
                           "phases": [["warm", 0.0, 1.0], ["steady", 1.0, 2.0]]}
                made = sample(case, one.name, number, 1e3, cost * 1e5)
                samples.append(
                    dataclasses.replace(made, serving=figures, rss_mean_kib=cost * 1e5, rest=[[3, cost * 5e4, 0]],
                                        rss_series=[[0, 10], [2000, cost * 1e5]])
                )
    return Session(id="x", command=["bench", "--suite", "servers"], created="2026-11-28T00:00:00", commit="",
                   machine={}, arms=arms, cases=cases, rounds=2, seed=1, samples=samples)


def test_ratios_are_to_the_best_other_allocator(tmp_path: Path):
    session = fabricated()
    summary = summarise(session)
    assert list(summary.totals) == ["cpu_request", "p999", "mean", "after"]
    assert {view.best_peer for row in summary.rows for view in row.views.values()} == {"glibc"}
    for total in summary.totals.values():
        assert {name: total[name].mean for name in ("hakmem", "glibc", "jemalloc")} == pytest.approx(
            {"hakmem": 0.8, "glibc": 1.0, "jemalloc": 1.25})
    assert "0.80 times the processor time" in headline(summary)[1].plain
    text = shown([session_table(session, summary)], 100)
    assert "Latency, p99.9, lower is better: 1.00 is the best peer of the row" in text and "geometric mean" in text
    assert [path.name for path in write_plots(session, tmp_path, summary)] == ["server-one.png", "server-two.png"]
