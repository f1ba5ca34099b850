# SPDX-License-Identifier: MIT
"""Peers: which library serves is proved, and whatever goes wrong is one sentence."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hakmem.lab import arms, base, cli, peers, proof, recipes
from hakmem.lab.arms import Entry, find_arms
from hakmem.lab.model import Arm
from hakmem.lab.base import Problem
from hakmem.lab.recipes import Built, Crate, Recipe, Workshop
from rich.console import Console

TINY = Path(__file__).with_name("tiny_allocator.c")


@pytest.fixture(scope="module", autouse=True)
def proof_once(tmp_path_factory):
    """One proof program for all tests: it takes a second to compile."""
    folder = tmp_path_factory.mktemp("proof")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        program = proof.proof_program()
        patch.setattr(proof, "proof_program", lambda: program)
        yield program


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of each test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hakmem" / "peers"


@pytest.fixture(scope="session")
def make_library(tmp_path_factory):
    """Compiles the tiny allocator, with a fault or without, once each."""
    folder = tmp_path_factory.mktemp("libraries")

    def make(fault: str = "WHOLE") -> str:
        library = folder / f"lib{fault.lower()}.so"
        if not library.exists():
            words = ["cc", "-O1", "-fPIC", "-shared", "-fno-builtin", f"-D{fault}", str(TINY)]
            subprocess.run([*words, "-o", str(library), "-ldl"], check=True)
        return str(library)

    return make


def installed() -> list[Arm]:
    return [entry.arm for entry in arms.usable_entries()]


def quiet() -> Console:
    return Console(file=open(os.devnull, "w"))


def recipe_of(key: str, library: str, fails: str = "") -> Recipe:
    def build(workshop: Workshop, _: Path) -> Built:
        with (recipes.peers_directory() / "built").open("a") as log:
            log.write(f"{key}\n")
        if fails:
            raise Problem(fails)
        copy = workshop.folder / f"lib{key}.so"
        shutil.copy(library, copy)
        return Built(copy, compiler="cc 1", flags="-O1")

    return Recipe(key, key.upper(), "1.0", "a test", build)


def builds_of(cache: Path) -> list[str]:
    return (cache / "built").read_text().split()


# ---- The proof. ----


def test_whole_library_serves_everything(make_library):
    library = make_library()
    serving = proof.prove(Arm("whole", library))
    assert {"malloc", "free", "operator new", "operator delete[]"} <= serving.keys()
    assert set(serving.values()) == {os.path.realpath(library)}


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [("WITHOUT_MALLOC", r"^x: malloc is served by \S*libc\.so\.6, not by \S*_malloc\.so$"),
     ("WITHOUT_NEW", r"^x: operator new is served by \S*libstdc\+\+.*and so are 3 more"),
     ("CALLOC_DIRTY", r"fails in the proof program.*calloc gave memory that is not zero"),
     ("CRASHES", r"crashes in the proof program \(SIGSEGV\)"),
     ("COMPLAINS", r"^x: HAKMEM_NONSENSE=1 ignored: unknown option$")],
)
def test_faulty_library_is_refused(make_library, fault, sentence):
    with pytest.raises(Problem, match=sentence):
        proof.prove(Arm("x", make_library(fault)))


def test_per_cpu_mode_is_required_only_where_it_is_asked_for(make_library):
    library = make_library("WITHOUT_PER_CPU")
    assert proof.examine(Arm("x", library)).per_cpu is False
    with pytest.raises(Problem, match="per-CPU caches are off"):
        proof.prove(Arm("x", library, {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}))


def test_glibc_arm_with_another_preload_in_the_shell_is_still_glibc(make_library, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", make_library())
    serving = proof.prove(arms.glibc_arm())
    assert Path(serving["malloc"]).name == "libc.so.6"
    assert Path(serving["operator new"]).name.startswith("libstdc++")


@pytest.mark.parametrize("name", ["with space", "with:colon", "with$dollar"])
def test_path_that_ld_preload_cannot_hold(tmp_path, make_library, name):
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(make_library(), folder / "lib.so")
    with pytest.raises(Problem, match="LD_PRELOAD cannot hold"):
        proof.prove(Arm("x", str(folder / "lib.so")))


# ---- Names and settings. ----


@pytest.fixture
def ours(tmp_path, monkeypatch, make_library):
    """A build folder with both forms."""
    (tmp_path / "release").mkdir()
    for name in ("libhakmem.so", "libhakmem-secure.so"):
        shutil.copy(make_library(), tmp_path / "release" / name)
    monkeypatch.setattr(base, "BUILD", tmp_path / "release")


@pytest.fixture
def some_peers(cache, make_library):
    sha = base.file_hash(make_library())
    common = {"library": make_library(), "sha256": sha, "recipe": "r"}
    arms.write_manifest({"snmalloc": Entry(key="snmalloc", name="snmalloc", **common, version="0.7"),
                         "mimalloc3": Entry(key="mimalloc3", name="mimalloc 3", **common),
                         "scudo": Entry(key="scudo", name="scudo", **common, is_default=False),
                         "Mine": Entry(key="Mine", name="Mine", library=make_library(), sha256="old")})


def test_default_and_all(ours, some_peers):
    names = [arm.name for arm in find_arms(None)]
    assert names == ["hakmem", "mimalloc 3", "snmalloc", "Mine", "glibc"]
    assert [arm.name for arm in find_arms("all")].count("scudo") == 1
    assert find_arms(None)[0].is_ours and not find_arms(None)[1].is_ours


def test_settings_of_hakmem_and_of_others(ours, some_peers):
    found = find_arms(r"hakmem:purge_delay_ms=0:profile=fast, mimalloc 3:MALLOC_CONF=a:true\,b:auto,GLIBC")
    assert found[0].name == "hakmem purge_delay_ms=0 profile=fast" and found[0].is_ours
    assert found[0].environment == {"HAKMEM_PURGE_DELAY_MS": "0", "HAKMEM_PROFILE": "fast"}
    assert found[1].environment == {"MALLOC_CONF": "a:true,b:auto"}
    assert found[2].library is None and len(found[2].sha256) == 64
    secure, plain = find_arms("hakmem-secure:purge_delay_ms=0,hakmem")
    assert secure.name == "hakmem-secure purge_delay_ms=0" and secure.is_ours and plain.is_ours
    assert Path(secure.library or "").name == "libhakmem-secure.so"


def test_library_by_its_path(ours, make_library, tmp_path):
    for name in ("a/x/lib.so", "b/x/lib.so", "c/libhakmem.so"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(make_library(), tmp_path / name)
    first, second, other = find_arms(
        f"{tmp_path}/a/x/lib.so,{tmp_path}/b/x/lib.so,{tmp_path}/c/libhakmem.so:profile=fast"
    )
    assert first.name == f"{tmp_path}/a/x/lib.so" and second.name == f"{tmp_path}/b/x/lib.so"
    assert other.name == "hakmem c/libhakmem.so profile=fast" and other.is_ours
    assert find_arms(f"{tmp_path}/a/x/lib.so")[0].name == "x/lib.so"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [("nonsense", "there is no allocator 'nonsense'; there are hakmem, hakmem-secure, mimalloc3"),
     ("jemalloc", "jemalloc is not installed; type: ./hakmem peers install jemalloc"),
     ("glibc:arena_max=1", "settings in small letters are options of hakmem"),
     ("hakmem:fast", "after the colon comes NAME=VALUE"), ("glibc,glibc", "glibc is named twice"),
     ("/nowhere/lib.so", "there is no library /nowhere/lib.so"), (",", "names no allocator"),
     ("hakmem", "hakmem is not built yet"), ("hakmem-secure", "hakmem-secure is not built yet")],
)
def test_bad_lists(monkeypatch, tmp_path, spec, sentence):
    monkeypatch.setattr(base, "BUILD", tmp_path)
    with pytest.raises(Problem, match=sentence):
        find_arms(spec)


# ---- The manifest. ----


def test_changed_library_of_a_recipe_is_not_used_but_the_users_own_is(some_peers, cache):
    stored = arms.read_manifest()
    arms.write_manifest({k: dataclasses.replace(e, sha256="0" * 64) for k, e in stored.items()})
    assert [arm.name for arm in installed()] == ["Mine"]
    with pytest.raises(Problem, match="is another file than the one proved; type"):
        find_arms("mimalloc3")


# ---- Installing. ----


def test_one_failure_does_not_stop_the_others_and_nothing_is_made_twice(cache, make_library):
    chosen = [recipe_of("bad", make_library(), fails="no compiler"), recipe_of("half", make_library("WITHOUT_NEW")),
              recipe_of("good", make_library())]
    missing = peers.install_peers(chosen, False, quiet())
    assert missing.keys() == {"bad", "half"} and missing["bad"] == "no compiler"
    assert "operator new is served by" in missing["half"]
    assert [arm.version for arm in installed()] == ["1.0, a test, cc 1 -O1"]
    assert builds_of(cache) == ["bad", "half", "good"]
    peers.install_peers(chosen[2:], False, quiet())
    assert builds_of(cache) == ["bad", "half", "good"]
    peers.install_peers(chosen[2:], True, quiet())
    newer = dataclasses.replace(chosen[2], version="2.0")
    peers.install_peers([newer], False, quiet())
    assert builds_of(cache)[3:] == ["good", "good"]
    Path(installed()[0].library).write_text("damaged")
    assert installed() == []
    assert peers.install_peers([newer], False, quiet()) == {}
    assert len(builds_of(cache)) == 6 and list((cache / "build").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_in_the_middle_then_again(cache, make_library, tmp_path, number):
    """By a signal to the group, as from a terminal: what was whole stays, and the rest goes on."""
    script = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[2]]\n"
        "import test_peers as t\n"
        "def slow(workshop, _):\n"
        "    (workshop.folder / 'half.o').write_text('x')\n"
        "    workshop.run(['sh', '-c', 'touch \"$1\"; exec sleep 30', '-', sys.argv[4]])\n"
        "t.peers.RECIPES = (t.recipe_of('good', sys.argv[3]),\n"
        "    t.Recipe('slow', 'slow', '1', 'a test', slow))\n"
        "sys.exit(t.cli.main(['peers', 'install']))\n"
    )
    lab, here = str(Path(peers.__file__).parents[2]), str(Path(__file__).parent)
    words = [sys.executable, "-c", script, lab, here, make_library(), str(tmp_path / "running")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    while not (tmp_path / "running").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    os.killpg(process.pid, number)
    _, said = process.communicate()
    assert "Traceback" not in said
    assert [arm.name for arm in installed()] == ["GOOD"]
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert list((cache / "build").iterdir()) == []
    assert peers.install_peers([recipe_of("slow", make_library())], False, quiet()) == {}
    assert [arm.name for arm in installed()] == ["GOOD", "SLOW"]
    assert list((cache / "build").iterdir()) == []


def test_command_line(cache, make_library, capsys):
    assert cli.main(["peers", "add", "mine", make_library()]) == 0
    assert cli.main(["peers", "list", "--json"]) == 0
    said = capsys.readouterr().out
    listed = json.loads(said[said.index("[") :])
    assert listed[0]["key"] == "mine" and "malloc" in listed[0]["serving"]
    for words, sentence in [(["add", "mine2", make_library("WITHOUT_MALLOC")], "malloc is served by"),
                            (["add", "jemalloc", make_library()], "already means another"),
                            (["add", "a b", make_library()], "cannot be a name"),
                            (["add", "x", "/nowhere.so"], "there is no file"),
                            (["remove", "nobody"], "is not installed"),
                            (["install", "nonsense"], "there is no recipe 'nonsense'")]:
        assert cli.main(["peers", *words]) != 0
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and sentence in lines[0]
    assert cli.main(["peers", "remove", "mine"]) == 0
    assert capsys.readouterr().out == "mine: forgotten\n"
    assert Path(make_library()).exists() and installed() == []



def workshop_in(folder: Path) -> Workshop:
    (folder / "work").mkdir()
    return Workshop(folder / "log", folder / "work")


def test_failed_command_is_one_sentence_with_its_reason(tmp_path):
    workshop = workshop_in(tmp_path)
    script = "echo 'x.c:1: error: no such thing'; echo 'make: *** [all]'; exit 3"
    with pytest.raises(Problem, match=r"^sh failed: x\.c:1: error: no such thing \(log: .*\)$"):
        workshop.run(["sh", "-c", script])
    assert "[3]" in (tmp_path / "log").read_text()
    with pytest.raises(Problem, match="cannot be run: No such file"):
        workshop.run(["/nowhere/cc"])


def test_missing_package_without_root_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name, **_: name if name == "apt-get" else None)
    workshop = workshop_in(tmp_path)
    with pytest.raises(Problem, match="cargo is missing; type: sudo apt-get install -y cargo$"):
        recipes.find_cargo(workshop)
    with pytest.raises(Problem, match="g.. is missing; type: sudo apt-get install -y g"):
        recipes.need(workshop, "c++")


def test_crate_with_another_checksum_is_refused(tmp_path, monkeypatch, cache):
    cargo = tmp_path / "cargo"
    cargo.write_text(
        '#!/bin/sh\nmkdir -p vendor/thing-1.0\n'
        'echo \'{"package": "bad"}\' >vendor/thing-1.0/.cargo-checksum.json\n'
    )
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cache.mkdir(parents=True)
    with pytest.raises(Problem, match="crate thing 1.0 is not the one .* its checksum is bad"):
        recipes.crate_sources(workshop_in(tmp_path), Crate("thing", "1.0", "good"))
    assert not (cache / "sources").exists()
