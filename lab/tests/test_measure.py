"""The measuring process, built from lab/measure*.c, on real programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hakmem_lab.measure import MEASURE, Outcome, clean_environment, last_json, measure
from hakmem_lab.model import Arm, Case

NONE = Arm("glibc")
ALLOCATE = "x = bytearray(100 << 20); import time; time.sleep({0}); del x; time.sleep({1})"


def raw(*words: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(MEASURE), *words], capture_output=True, text=True, timeout=timeout)


def report(*words: str) -> dict[str, object]:
    done = raw(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def alive(marker: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]


def wait_until(condition: object, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_exit_and_signal() -> None:
    assert (report("--", "true")["end"], report("--", "true")["status"]) == ("exit", 0)
    failed = report("--", "sh", "-c", "exit 7")
    assert (failed["end"], failed["status"]) == ("exit", 7)
    killed = report("--", "sh", "-c", "kill -SEGV $$")
    assert (killed["end"], killed["status"]) == ("signal", signal.SIGSEGV)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--", "/no/such/program"], 127),
        (["--", "/etc/passwd"], 126),
        (["--directory", "/no/such/place", "--", "true"], 127),
        (["--stdout", "/no/such/place/file", "--", "true"], 127),
        ([], 2),
        (["--nonsense", "--", "true"], 2),
        (["--timeout-s", "0", "--", "true"], 2),
        (["--interval-ms", "1x", "--", "true"], 2),
        (["--env", "NAME", "--", "true"], 2),
    ],
)
def test_what_cannot_be_measured(words: list[str], status: int) -> None:
    done = raw(*words)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("measure: ") or "unrecognized option" in done.stderr


def test_who_cannot_start_never_takes_measure_along() -> None:
    """The child may be gone before its parent lets it go on."""
    words = ["--stdout", "/no/such/place/file", "--", "true"]
    assert {raw(*words).returncode for _ in range(100)} == {127}


def test_time_and_cpu() -> None:
    asleep = report("--", "sleep", "0.3")
    assert 0.3e9 <= asleep["wall_ns"] < 3e9
    assert asleep["user_ns"] + asleep["system_ns"] < 0.1e9
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    busy = report("--", *python(spin))
    assert busy["user_ns"] + busy["system_ns"] >= 0.28e9


def test_memory_over_time() -> None:
    seen = report("--", *python(ALLOCATE.format(0.4, 0.4)))
    assert 100 << 10 <= seen["rss_peak_kib"] < 140 << 10
    assert seen["rss_end_kib"] < 40 << 10
    assert 30 << 10 < seen["rss_mean_kib"] < 100 << 10
    assert seen["lazyfree_end_kib"] == 0
    series = seen["rss_series"]
    assert [point[0] for point in series] == sorted(point[0] for point in series)
    assert max(point[1] for point in series) >= 100 << 10
    assert len(series) > 30


def test_our_own_memory_is_not_the_programs() -> None:
    """Rule 9: a large process forks measure, and a small program stays small."""
    held = b"x" * (200 << 20)
    assert report("--", "true")["rss_peak_kib"] < 8 << 10
    assert held


def test_the_series_stays_short() -> None:
    seen = report("--interval-ms", "1", "--", "sleep", "2")
    assert 100 < len(seen["rss_series"]) <= 512
    assert seen["rss_series"][-1][0] > 1500


def test_lazily_freed_pages_are_counted() -> None:
    code = (
        "import mmap, os, time\n"
        "m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "m.write(b'x' * (64 << 20))\n"
        "m.madvise(8)\n"  # MADV_FREE
        "time.sleep(1)\n"
        "os._exit(0)"  # Python's own end unmaps first, and the last look may fall behind that
    )
    seen = report("--", *python(code))
    assert 60 << 10 <= seen["lazyfree_end_kib"] <= 65 << 10


def test_memory_of_the_whole_tree() -> None:
    held = ALLOCATE.format(1, 0).replace('"', "'")
    code = (
        "import subprocess, sys\n"
        f'c = [subprocess.Popen([sys.executable, "-S", "-c", "{held}"]) for _ in range(2)]\n'
        "[one.wait() for one in c]"
    )
    seen = report("--", *python(code))
    assert seen["rss_peak_kib"] >= 200 << 10
    assert seen["processes"] == 3


def test_faults_and_cpu_of_children_count() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {spin!r}])"
    seen = report("--", *python(code))
    assert seen["user_ns"] + seen["system_ns"] >= 0.18e9


def test_timeout_kills_the_whole_tree() -> None:
    marker = f"30.{os.getpid()}1"
    script = f"sleep {marker} & (setsid sleep {marker} &) ; sleep {marker}"
    seen = report("--timeout-s", "1", "--", "sh", "-c", script)
    assert (seen["end"], seen["status"]) == ("timeout", signal.SIGKILL)
    assert alive(marker) == []


def test_nothing_is_left_when_the_program_ends_first() -> None:
    marker = f"30.{os.getpid()}2"
    assert report("--", "sh", "-c", f"sleep {marker} & exit 0")["end"] == "exit"
    assert alive(marker) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_measure_leaves_nothing(number: signal.Signals) -> None:
    marker = f"30.{os.getpid()}3{int(number)}"
    process = subprocess.Popen([str(MEASURE), "--", "sleep", marker], stdout=subprocess.PIPE)
    assert wait_until(lambda: len(alive(marker)) == 2)  # it and its parent
    process.send_signal(number)
    said, _ = process.communicate(timeout=10)
    assert said == b""
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert wait_until(lambda: alive(marker) == [])


def test_measure_dies_with_its_parent() -> None:
    marker = f"30.{os.getpid()}4"
    code = f"import subprocess; subprocess.run([{str(MEASURE)!r}, '--', 'sleep', {marker!r}])"
    parent = subprocess.Popen(python(code))
    assert wait_until(lambda: len(alive(marker)) == 2)
    parent.kill()
    parent.wait()
    assert wait_until(lambda: alive(marker) == [])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SERVER = (
    "import socket, sys, time\n"
    "time.sleep(0.4)\n"
    "held = bytearray(50 << 20)\n"
    "s = socket.create_server(('127.0.0.1', {port}))\n"
    "while True:\n"
    "    c, _ = s.accept(); c.recv(9); time.sleep(0.1); c.close()\n"
)
LOAD = (
    "import socket, os\n"
    "assert 'LD_PRELOAD' not in os.environ and 'ONLY_SERVER' not in os.environ\n"
    "for _ in range(4):\n"
    "    c = socket.create_connection(('127.0.0.1', {port})); c.send(b'x'); c.recv(1)\n"
)


def load_words(command: list[str]) -> list[str]:
    return [word for part in command for word in ("--load", part)]


def test_a_server_is_timed_by_its_load() -> None:
    port = free_port()
    load = load_words(python(LOAD.format(port=port)))
    seen = report("--env", "ONLY_SERVER=1", *load, "--", *python(SERVER.format(port=port)))
    assert seen["end"] == "stopped"
    assert 0.4e9 <= seen["wall_ns"] < 3e9  # without the time until it listens
    assert seen["rss_end_kib"] >= 50 << 10


def test_a_load_that_never_succeeds() -> None:
    seen = report("--ready-ms", "300", "--load", "false", "--", "sleep", "30")
    assert (seen["end"], seen["status"]) == ("load", 1)
    seen = report("--load", "/no/such/load", "--", "sleep", "30")
    assert (seen["end"], seen["status"]) == ("load", 127)


RESTING = """
import socket, time
held = bytearray(100 << 20)
s = socket.create_server(('127.0.0.1', {port}))
s.accept()[0].recv(1)  # until the load has ended
time.sleep(1)
del held
time.sleep({lives})
raise SystemExit({status})
"""
# It stays for some samples of the memory.
ENDING = (
    "import os, socket, time\n"
    "c = socket.create_connection(('127.0.0.1', {port})); time.sleep(0.5); os._exit(0)"
)


def resting(rest_s: int, lives: float, status: int = 0) -> dict[str, object]:
    """A server that lets go of 100 MiB a second after its load."""
    port = free_port()
    server = python(RESTING.format(port=port, lives=lives, status=status))
    load = load_words(python(ENDING.format(port=port)))
    return report("--rest-s", str(rest_s), *load, "--", *server)


def test_a_server_rests_after_its_load() -> None:
    seen = resting(rest_s=3, lives=60)
    assert seen["end"] == "stopped"
    ((second, rss_kib, _),) = seen["rest"]
    assert second == 3 and rss_kib < 50 << 10
    # The time and the memory at the end are the load's.
    assert seen["wall_ns"] < 3e9 and seen["rss_end_kib"] >= 100 << 10


def test_a_server_that_ends_in_its_rest() -> None:
    asked, failed = resting(rest_s=60, lives=0), resting(rest_s=60, lives=0, status=3)
    assert (asked["end"], asked["rest"]) == ("stopped", [])
    assert (failed["end"], failed["status"]) == ("exit", 3)


def test_no_load_no_rest() -> None:
    assert report("--rest-s", "1", "--", "true")["rest"] == []
    assert raw("--rest-s", "2", "--rest-s", "1", "--", "true").returncode == 2


def test_a_server_that_ends_before_its_load() -> None:
    seen = report("--load", "sleep", "--load", "30", "--", "sh", "-c", "exit 3")
    assert (seen["end"], seen["status"]) == ("exit", 3)


def test_a_server_that_does_not_stop_is_killed() -> None:
    stubborn = "trap '' TERM; while :; do sleep 0.1; done"
    start = time.monotonic()
    seen = report("--stop-ms", "300", "--load", "true", "--", "sh", "-c", stubborn)
    assert seen["end"] == "stopped"
    assert time.monotonic() - start < 10


def test_input_output_and_place(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("from a file")
    words = ["--stdin", str(tmp_path / "input"), "--stdout", str(tmp_path / "output")]
    words += ["--stderr", str(tmp_path / "errors"), "--directory", str(tmp_path)]
    report(*words, "--", "sh", "-c", "cat; pwd; echo complaint >&2")
    assert (tmp_path / "output").read_text() == f"from a file{tmp_path}\n"
    assert (tmp_path / "errors").read_text() == "complaint\n"


def test_python_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAKMEM_PROFILE", "small")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("KEPT", "yes")
    show = ["sh", "-c", "env; pwd"]
    outcome = measure(Case("c", show), Arm("x", None, {"ARM_SET": "1"}), padding=100)
    assert outcome.sentence(Case("c", show)) == ""
    lines = outcome.output.splitlines()
    assert "ARM_SET=1" in lines and "KEPT=yes" in lines and "LAB_PADDING=" + "x" * 100 in lines
    assert not [line for line in lines if line.startswith(("HAKMEM_", "MALLOC_", "LD_PRELOAD"))]
    assert not Path(lines[-1]).exists()  # the fresh folder is gone again
    here = measure(Case("c", ["pwd"], directory=str(tmp_path)), NONE)
    assert here.output == f"{tmp_path}\n"


def test_the_laboratory_is_not_on_the_programs_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from hakmem_lab.places import ROOT

    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/lab:/mine")
    assert clean_environment()["PYTHONPATH"] == "/mine"
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/lab")
    assert "PYTHONPATH" not in clean_environment()


def test_sentences_of_failures() -> None:
    def said(command: list[str], timeout_s: float = 20, load: list[str] | None = None) -> str:
        case = Case("c", command, timeout_s=timeout_s, load=load or [])
        return measure(case, NONE).sentence(case)

    failing = ["sh", "-c", "echo first; echo reason >&2; exit 3"]
    assert said(failing) == "it ended with status 3: reason"
    assert said(["sh", "-c", "kill -ABRT $$"]) == "it was killed by signal 6 (SIGABRT)"
    assert said(["sleep", "9"], 1) == "it took longer than 1 s"
    assert said(["/no/program"]) == "cannot start /no/program: No such file or directory."
    assert said(["true"], load=["sleep", "9"]) == "it ended with status 0 before it was stopped"
    failed = Outcome({"end": "load", "status": 4}, "", "")
    assert failed.sentence(Case("c", ["x"], load=["y"])) == "its load command failed with status 4"


def test_the_end_of_a_long_output() -> None:
    case = Case("c", ["sh", "-c", "head -c 5000000 /dev/zero; echo; echo '{\"a\": 1}'"])
    outcome = measure(case, NONE)
    assert len(outcome.output) == 1 << 20
    assert last_json(outcome.output) == {"a": 1}


def test_the_last_json_line() -> None:
    assert last_json('noise\n{"a": 1}\n{"a": 2}\n[3]\ntail {') == {"a": 2}
    assert last_json("nothing") is None
