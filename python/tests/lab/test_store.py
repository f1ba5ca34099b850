# SPDX-License-Identifier: MIT
"""Session files: what is written is there again, also after the worst."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hakmem.lab import store
from hakmem.lab.model import Arm, Case, Failure, Sample, Session
from hakmem.lab.base import Problem


def make_session() -> Session:
    return Session(id="", command=["bench", "--suite", "quick"], created="2026-01-01T00:00:00Z", machine={"id": "abc"},
                   commit="c0ffee", arms=[Arm("a", "/a.so"), Arm("b")], cases=[Case("one", ["/bin/true"])], rounds=2,
                   seed=5)


def make_sample(arm: str = "a", number: int = 0) -> Sample:
    return Sample(case="one", arm=arm, round=number, order=number, padding=3, started="now", status=0, wall_ns=10,
                  user_ns=5, system_ns=1, rss_peak_kib=100, rss_mean_kib=50.5, rss_end_kib=None, lazyfree_end_kib=0,
                  minor_faults=1, major_faults=0, voluntary_switches=0, involuntary_switches=0, rss_series=[[0.5, 20]],
                  workload={"operations": 2, "nanoseconds": 7})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with store.Store.create(tmp_path, "bench", "key", make_session()) as opened:
        opened.add("proof", {"arm": "a", "serving": {"malloc": "/a.so"}})
        opened.add_sample(make_sample())
        opened.add_failure(Failure("one", "b", 0, 11, "it crashed", "now"))
        opened.add("instructions", {"case": "one", "arm": "a", "per_operation": 12.5})
        written = opened.session
    assert store.load(opened.path) == written
    assert written.id == opened.path.stem
    assert opened.path.name.endswith("-bench-key.jsonl")
    assert not written.is_complete


def test_a_torn_last_line_is_ignored_and_cut_off(tmp_path: Path) -> None:
    with store.Store.create(tmp_path, "bench", "key", make_session()) as opened:
        opened.add_sample(make_sample())
    whole = opened.path.read_bytes()
    with opened.path.open("ab") as file:
        file.write(b'{"kind":"run","case":"one","ar')
    assert len(store.load(opened.path).samples) == 1
    with store.Store.resume(opened.path) as again:
        assert opened.path.read_bytes() == whole
        again.add_sample(make_sample("b"))
    assert [s.arm for s in store.load(opened.path).samples] == ["a", "b"]


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "x-bench-key.jsonl"
    file.write_text('{"kind": "session"}\n')
    with pytest.raises(Problem, match="line 1, is not part of a session"):
        store.load(file)
    file.write_text("")
    with pytest.raises(Problem, match="holds no session"):
        store.load(file)
    with pytest.raises(Problem, match="cannot read"):
        store.load(tmp_path / "absent.jsonl")


def test_a_session_that_cannot_be_gone_on_with_says_what_to_do(tmp_path: Path) -> None:
    with store.Store.create(tmp_path, "bench", "key", make_session()) as opened:
        opened.add_sample(make_sample())
        opened.add_sample(make_sample("b"))
    lines = opened.path.read_text().splitlines(keepends=True)
    opened.path.write_text(lines[0] + "garbage\n" + lines[2])
    with pytest.raises(Problem, match="line 2, is not part of a session; move it away, or use"):
        store.open_unfinished(tmp_path, "bench", "key", lambda _: False)
    assert opened.path.read_text() == lines[0] + "garbage\n" + lines[2]
    opened.path.unlink()
    opened.path.mkdir()
    with pytest.raises(Problem, match="cannot go on with .*: Is a directory"):
        store.open_unfinished(tmp_path, "bench", "key", lambda _: False)


@pytest.mark.parametrize("head", [b"", b'{"kind":"sess'])
def test_a_session_without_a_head_is_no_obstacle(tmp_path: Path, head: bytes) -> None:
    """A kill between making the file and its first line."""
    (tmp_path / "20260101T000000Z-bench-key.jsonl").write_bytes(head)
    assert store.open_unfinished(tmp_path, "bench", "key", lambda _: False) is None
    store.Store.create(tmp_path, "bench", "key", make_session()).close()
    found = store.open_unfinished(tmp_path, "bench", "key", lambda _: False)
    assert found is not None
    found.close()


def test_kinds_and_fields_of_newer_versions_are_passed_over(tmp_path: Path) -> None:
    with store.Store.create(tmp_path, "bench", "key", make_session()) as opened:
        opened.add_sample(make_sample())
    with opened.path.open("a") as file:
        file.write(json.dumps({"kind": "weather", "rain": True}) + "\n")
        file.write(json.dumps({"kind": "run", **make_sample("b").to_json(), "extra": 1}) + "\n")
    assert len(store.load(opened.path).samples) == 2


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with store.Store.create(tmp_path, "bench", "key", make_session()) as opened:
        code = (
            "import sys; from pathlib import Path; from hakmem.lab import store\n"
            "try: store.Store.resume(Path(sys.argv[1]))\n"
            "except store.Problem as problem: sys.exit(str(problem))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, str(opened.path)], capture_output=True, text=True)
        assert done.returncode == 1 and "measured by another process" in done.stderr
    store.Store.resume(opened.path).close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    opened = store.Store.create(tmp_path, "bench", "key", make_session())
    opened.close()
    full = store.Store(opened.path, os.open("/dev/full", os.O_WRONLY), opened.session)
    with pytest.raises(Problem, match="cannot write .*: No space left"):
        full.add_sample(make_sample())
    full.close()
    assert full.session.samples == []


