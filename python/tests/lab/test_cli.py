# SPDX-License-Identifier: MIT
"""The command line: statuses, one sentence, nothing loaded in vain."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hakmem.lab import bench, cli, options
from hakmem.lab.base import Problem, Usage


def lab(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hakmem.lab", *words], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **variables})


@pytest.mark.parametrize(
    "words",
    [
        [], ["fly"], ["bench", "--no-such-option"], ["bench", "--suite", "huge"], ["bench", "--suite"],
        ["bench", "--runs", "0"], ["bench", "--runs", "x"], ["bench", "superfluous"], ["doctor", "--jsn"],
        ["bench", "--list", "--workload", "no_such_workload"], ["peers", "install", "--json"], ["peers", "list", "x"],
        ["peers", "list", "--force"], ["peers", "add", "x"], ["peers", "remove"], ["peers", "fly"],
    ],
)
def test_bad_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    said, errors = capsys.readouterr()
    assert not words or said == "" and errors.startswith("hakmem: ") and errors.count("\n") == 1


def test_every_command_takes_its_options() -> None:
    """options.py names them; a command's module takes them."""
    for name in (*options.COMMANDS, *options.INNER):
        arguments = inspect.signature(cli.command_of(name)).parameters
        known = {action.dest for action in options.parser_of(name)._actions} - {"help"}
        assert set(arguments) == known, name


def test_the_list_is_of_all_suites() -> None:
    every = json.loads(lab("bench", "--list", "--json").stdout)
    quick = json.loads(lab("bench", "--list", "--json", "--suite", "quick").stdout)
    assert {case["suite"] for case in every} == {"quick", "core", "full"}
    assert {case["suite"] for case in quick} == {"quick"}
    assert "random_mixed_400" in lab("bench", "--list").stdout


def test_a_broken_file_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "workloads.toml").write_text("[")
    done = lab("bench", "--list", LABORATORY_ROOT=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "not valid TOML" in done.stderr


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m hakmem.lab bench --list --json | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_sentence() -> None:
    command = f"{sys.executable} -m hakmem.lab bench --list >/dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "hakmem: bench: No space left on device\n")


def test_statuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def raising(error: BaseException) -> object:
        def command(*_: object, **__: object) -> None:
            raise error

        return lambda name: command

    for error, status, said in ((Problem("it rains"), 1, "hakmem: bench: it rains"),
                                (Usage("not so"), 2, "hakmem: bench: not so"),
                                (Problem("a\nb", 130), 130, "hakmem: bench: a b"),
                                (OSError(28, "No space left", "/x"), 1, "hakmem: bench: No space left (/x)"),
                                (KeyboardInterrupt(), 130, "hakmem: bench: stopped")):
        monkeypatch.setattr(cli, "command_of", raising(error))
        assert cli.main(["bench"]) == status
        assert capsys.readouterr().err == f"{said}\n"
    for result in (0, 3):
        monkeypatch.setattr(cli, "command_of", lambda name, r=result: lambda *_, **__: r)
        assert cli.main(["doctor"]) == result


def test_listing_loads_no_heavy_library() -> None:
    code = (
        "import sys; from hakmem.lab import cli; cli.main(['bench', '--list'])\n"
        "heavy = {'scipy', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_one_session_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with bench.only_session(force=False):
        with pytest.raises(Problem, match="another session is being measured"):
            with bench.only_session(force=False):
                pass
        with bench.only_session(force=True):
            pass
    with bench.only_session(force=False):
        pass


@pytest.mark.parametrize("words", [["--output", "FILE"], ["--results", "FILE"]])
def test_where_nothing_can_be_written(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    words = [str(file) if word == "FILE" else word for word in words]
    command = ["bench", "--alloc", "glibc", "--runs", "1", "--workload", "random_mixed_400", *words]
    done = lab(*command, "--force", XDG_DATA_HOME=str(tmp_path))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert last.startswith("hakmem: bench: cannot") and str(file) in last
    assert list(tmp_path.glob("**/*.jsonl")) == []
