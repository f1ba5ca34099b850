# SPDX-License-Identifier: MIT
"""The measuring process, built from lab/measure*.c, on real programs; and who serves them."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from hakmem.lab.base import BUILD
from hakmem.lab.measure import MEASURE, Outcome, judge, measure, prove_program, read_bindings
from hakmem.lab.model import Arm, Case
import psutil
import pytest

NONE = Arm("glibc")
# For measured programs and loads, whose parent is measure: until it has slept, and so looked, that
# many times more. Programs that wait so hold for what measure sees, however busy the machine is.
WATCHED = """
import os, sys, time
def parent(file, key):
    with open(f"/proc/{os.getppid()}/{file}") as text:
        return text.read().rpartition(key)[2].split()[0]
def watched(count):
    key = "\\nvoluntary_ctxt_switches:"
    end = int(parent("status", key)) + count
    while int(parent("status", key)) < end:
        time.sleep(0.002)
"""
HANG_S = 120  # only against hangs


def raw(*words: str, timeout: float = HANG_S) -> subprocess.CompletedProcess[str]:
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


def wait_until(condition: object, seconds: float = HANG_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(("words", "end", "status"), [
    (["--", "true"], "exit", 0), (["--", "sh", "-c", "exit 7"], "exit", 7),
    (["--", "sh", "-c", "kill -SEGV $$"], "signal", signal.SIGSEGV),
    (["--ready-ms", "300", "--load", "false", "--", "sleep", "300"], "load", 1),
    (["--ready-ms", "300", "--load", "/no/such/load", "--", "sleep", "300"], "load", 127),
])
def test_ends(words: list[str], end: str, status: int) -> None:
    seen = report(*words)
    assert (seen["end"], seen["status"]) == (end, status)


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--", "/no/such/program"], 127), (["--", "/etc/passwd"], 126),
     (["--directory", "/no/such/place", "--", "true"], 127), (["--stdout", "/no/such/place/file", "--", "true"], 127),
     ([], 2), (["--nonsense", "--", "true"], 2), (["--timeout-s", "0", "--", "true"], 2),
     (["--interval-ms", "1x", "--", "true"], 2)],
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
    start = time.monotonic_ns()
    asleep = report("--", "sleep", "0.3")
    assert 0.3e9 <= asleep["wall_ns"] <= time.monotonic_ns() - start
    assert asleep["user_ns"] + asleep["system_ns"] < 0.1e9
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    busy = report("--", *python(spin))
    assert busy["user_ns"] + busy["system_ns"] >= 0.28e9


def test_memory_over_time() -> None:
    held = f"{WATCHED}x = bytearray(100 << 20); watched(40); del x; watched(40)"
    seen = report("--", *python(held))
    assert 100 << 10 <= seen["rss_peak_kib"] < 140 << 10
    assert seen["rss_end_kib"] < 40 << 10
    assert seen["lazyfree_end_kib"] == 0
    series = seen["rss_series"]
    assert [point[0] for point in series] == sorted(point[0] for point in series)
    assert max(point[1] for point in series) >= 100 << 10
    assert 60 < len(series) <= 512
    # A point stands for the time since the one before. A full series keeps the larger of two.
    steps = [end[0] - start[0] for start, end in itertools.pairwise([[0, 0], *series])]
    mean = sum(step * point[1] for step, point in zip(steps, series)) / series[-1][0]
    blurred = 3 * max(steps) / series[-1][0] * seen["rss_peak_kib"]
    assert seen["rss_mean_kib"] == pytest.approx(mean, abs=blurred)


def test_our_own_memory_is_not_the_programs() -> None:
    """Rule 9: a large process forks measure, and a small program stays small."""
    held = b"x" * (200 << 20)
    assert report("--", "true")["rss_peak_kib"] < 8 << 10
    assert held


def test_lazily_freed_pages_are_counted() -> None:
    code = (
        "import mmap, os, time\n"
        "m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "m.write(b'x' * (64 << 20))\n"
        "m.madvise(8)\n"  # MADV_FREE
        "time.sleep({0})\n"
        "os._exit(0)"  # Python's own end unmaps first, and the last look may fall behind that
    )
    for seconds in (1, 4, 16, 60):  # looks are rare where they cost much
        seen = report("--", *python(code.format(seconds)))
        if seen["lazyfree_end_kib"]:
            break
    assert 60 << 10 <= seen["lazyfree_end_kib"] <= 65 << 10


def test_memory_of_the_whole_tree() -> None:
    held = "x = bytearray(100 << 20); print(1, flush=True); input()"
    code = (
        "import subprocess\n"
        f"c = [subprocess.Popen([sys.executable, '-S', '-c', '{held}'], stdin=-1, stdout=-1)\n"
        "     for _ in range(2)]\n"
        "[one.stdout.readline() for one in c]\n"
        "watched({0})\n"
        "[one.communicate(b'\\n') for one in c]"
    )
    for count in (30, 120, 480, 1920):  # looks for new processes are rare where they cost much
        seen = report("--", *python(WATCHED + code.format(count)))
        if seen["rss_peak_kib"] >= 200 << 10:
            break
    assert seen["rss_peak_kib"] >= 200 << 10


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
    said, _ = process.communicate(timeout=HANG_S)
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


SERVER = (
    "import socket, sys, time\n"
    "time.sleep(0.4)\n"
    "held = bytearray(50 << 20)\n"
    "s = socket.socket()\n"
    "s.bind(('127.0.0.1', 0))\n"
    "print(s.getsockname()[1], time.monotonic_ns(), flush=True)\n"
    "s.listen()\n"
    "while True:\n"
    "    c, _ = s.accept(); c.recv(9); time.sleep(0.1); c.close()\n"
)
LOAD = (
    f"{WATCHED}import socket\n"
    "assert 'LD_PRELOAD' not in os.environ and 'ONLY_SERVER' not in os.environ\n"
    "port = int(open('{output}').read().split()[0])\n"
    "for _ in range(4):\n"
    "    c = socket.create_connection(('127.0.0.1', port)); c.send(b'x'); c.recv(1)\n"
    "watched(20)\n"
)


def load_words(command: list[str]) -> list[str]:
    return [word for part in command for word in ("--load", part)]


def test_a_server_is_timed_by_its_load(tmp_path: Path) -> None:
    output = tmp_path / "output"
    load = load_words(python(filled(LOAD, output=output)))
    words = ["--ready-ms", "60000", "--env", "ONLY_SERVER=1", "--stdout", str(output)]
    seen = report(*words, *load, "--", *python(SERVER))
    end = time.monotonic_ns()
    assert seen["end"] == "stopped"
    # Without the time until it listens.
    assert 0.4e9 <= seen["wall_ns"] <= end - int(output.read_text().split()[1])
    assert seen["rss_end_kib"] >= 50 << 10


LISTENING = """
import socket, sys, time
kind, path, after_s = sys.argv[1:]
time.sleep(float(after_s))
s = socket.socket({"unix": socket.AF_UNIX, "tcp": socket.AF_INET, "tcp6": socket.AF_INET6}[kind])
s.bind(path if kind == "unix" else ("127.0.0.1" if kind == "tcp" else "::1", 0))
if kind != "unix":
    with open(path, "w") as file:
        file.write(repr(s.getsockname()[:2]))
s.listen()
time.sleep(600)
"""
# As impatient as redis-benchmark: a first refusal is final, and it never ends.
IMPATIENT = """
import ast, socket, sys, time
kind, path, _ = sys.argv[1:]
family = {"unix": socket.AF_UNIX, "tcp": socket.AF_INET, "tcp6": socket.AF_INET6}[kind]
try:
    address = path if kind == "unix" else ast.literal_eval(open(path).read())
    socket.socket(family).connect(address)
except OSError:
    time.sleep(600)
"""


@pytest.mark.parametrize(("kind", "after_s"), [("tcp", "0.1"), ("tcp6", "0.1"), ("unix", "2.2")])
def test_an_impatient_load_waits_for_the_server(kind: str, after_s: str, tmp_path: Path) -> None:
    if kind == "tcp6":
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no such addresses")
    words = [kind, str(tmp_path / "place"), after_s]
    load = load_words([*python(IMPATIENT), *words])
    seen = report("--timeout-s", "120", "--ready-ms", "60000", *load, "--", *python(LISTENING), *words)
    assert seen["end"] == "stopped"


RESTING = WATCHED + """
import socket
held = bytearray(100 << 20)
s = socket.socket(socket.AF_UNIX)
s.bind("{path}")
s.listen()
load = s.accept()[0].recv(9).decode()
# Until measure has read the memory at the load's end: it has reaped the load, and sleeps again for a while.
while os.path.exists("/proc/" + load) or parent("stat", ")") != "S":
    time.sleep(0.002)
time.sleep({waits})
del held
time.sleep({lives})
raise SystemExit({status})
"""
ENDING = WATCHED + """
import socket
c = socket.socket(socket.AF_UNIX)
c.connect("{path}")
c.send(str(os.getpid()).encode())
watched(20)
os._exit(0)
"""


def resting(place: Path, rest_s: int, lives: float, status: int = 0) -> dict[str, object]:
    """A server that lets go of 100 MiB after its load."""
    path = place / f"{rest_s}-{status}"
    server = python(filled(RESTING, path=path, waits=rest_s / 2 if lives else 0, lives=lives, status=status))
    load = load_words(python(filled(ENDING, path=path)))
    return report("--ready-ms", "60000", "--rest-s", str(rest_s), *load, "--", *server)


def filled(code: str, **values: object) -> str:
    for name, value in values.items():
        code = code.replace(f"{{{name}}}", str(value))
    return code


def test_a_server_rests_after_its_load(tmp_path: Path) -> None:
    for rest_s in (4, 16, 60):  # a busy machine may not let it let go in the shorter ones
        start = time.monotonic_ns()
        seen = resting(tmp_path, rest_s=rest_s, lives=600)
        elapsed_ns = time.monotonic_ns() - start
        assert seen["end"] == "stopped"
        # The time and the memory at the end are the load's.
        assert seen["wall_ns"] <= elapsed_ns - rest_s * 1e9
        assert seen["rss_end_kib"] >= 100 << 10
        ((second, rss_kib, _),) = seen["rest"]
        assert second == rest_s
        if rss_kib < 50 << 10:
            break
    assert rss_kib < 50 << 10


def test_a_server_that_ends_in_its_rest(tmp_path: Path) -> None:
    asked = resting(tmp_path, rest_s=600, lives=0)
    failed = resting(tmp_path, rest_s=600, lives=0, status=3)
    assert (asked["end"], asked["rest"]) == ("stopped", [])
    assert (failed["end"], failed["status"]) == ("exit", 3)


def test_a_server_that_does_not_stop_is_killed() -> None:
    stubborn = "trap '' TERM; while :; do sleep 0.1; done"
    words = ["--ready-ms", "300", "--stop-ms", "300", "--load", "true", "--", "sh", "-c", stubborn]
    seconds = []
    while len(seconds) < 5 and min(seconds, default=10) >= 10:  # 10 are the default of --stop-ms
        start = time.monotonic()
        assert report(*words)["end"] == "stopped"
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 10


def test_input_output_and_place(tmp_path: Path) -> None:
    words = ["--stdout", str(tmp_path / "output"), "--stderr", str(tmp_path / "errors"), "--directory", str(tmp_path)]
    report(*words, "--", "sh", "-c", "cat; pwd; echo complaint >&2")
    assert (tmp_path / "output").read_text() == f"{tmp_path}\n"
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


# ---- Who serves a program that cannot tell itself. ----


BINDINGS = """\
     12:\tbinding file prog [0] to /lib/libc.so.6 [0]: normal symbol `printf' [GLIBC_2.2.5]
     12:\tbinding file prog [0] to /a/libmine.so [0]: normal symbol `malloc' [GLIBC_2.2.5]
     12:\tbinding file /lib/libstdc++.so.6 [0] to /a/libmine.so [0]: normal symbol `_Znwm' [X]
     12:\tbinding file prog [0] to /lib/libother.so [0]: normal symbol `free' [GLIBC_2.2.5]
     12:\tbinding file prog [0] to /a/libmine.so [0]: normal symbol `free' [GLIBC_2.2.5]
"""
MINE = Arm("mine", "/a/libmine.so")
CASE = Case("c", ["/bin/prog"], kind="program")
FINE = Outcome({"end": "exit", "status": 0}, "", "")


def test_a_stub_in_the_program_is_not_what_serves() -> None:
    text = (
        "1: binding file /lib/libz.so [0] to /bin/prog [0]: normal symbol `free' [X]\n"
        "1: binding file /bin/prog [0] to /a/libmine.so [0]: normal symbol `free' [X]\n"
    )
    assert read_bindings(text) == {"free": ["/a/libmine.so"]}
    c = text.replace("/lib/libz.so", "/lib/libc.so.6").replace("/a/libmine.so", "/lib/libc.so.6")
    assert read_bindings(c) == {"free": ["/lib/libc.so.6"]}
    own = text.replace("to /a/libmine.so", "to /bin/prog")
    assert read_bindings(own) == {"free": ["/bin/prog"]}


def test_a_foreign_free_is_found() -> None:
    serving, sentence = judge([read_bindings(BINDINGS)], MINE, FINE, CASE)
    assert serving["free"] == "/lib/libother.so and /a/libmine.so"
    assert sentence == "it is served by /lib/libother.so, not by /a/libmine.so"


def test_one_process_of_a_tree_that_is_not_served() -> None:
    good = {"malloc": ["/a/libmine.so"], "free": ["/a/libmine.so"]}
    bad = {"malloc": ["/lib/libc.so.6"]}
    assert judge([good, {}], MINE, FINE, CASE) == ({k: v[0] for k, v in good.items()}, "")
    assert "by /lib/libc.so.6" in judge([good, bad], MINE, FINE, CASE)[1]
    # Without a library the program's own choice is on record.
    assert judge([bad], Arm("glibc"), FINE, CASE) == ({"malloc": "/lib/libc.so.6"}, "")


def test_nothing_bound_and_nothing_started() -> None:
    assert "no library can serve it" in judge([{}], MINE, FINE, CASE)[1]
    assert judge([], MINE, Outcome({}, "", "measure: no such file."), CASE)[1] == "no such file."


@pytest.mark.skipif(not (BUILD / "libhakmem.so").exists(), reason="hakmem is not built")
def test_real_programs(tmp_path: Path) -> None:
    ours = Arm("hakmem", str(BUILD / "libhakmem.so"))
    script = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', '0'])"
    case = Case("c", [sys.executable, "-S", "-c", script], kind="program")
    serving, sentence = prove_program(case, ours)
    assert sentence == ""
    assert os.path.samefile(serving["malloc"], ours.library or "")
    serving, sentence = prove_program(case, Arm("glibc"))
    assert sentence == "" and "libc" in serving["malloc"]
