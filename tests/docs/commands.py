#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands that stand in README.md, lab/README.md, CONTRIBUTING.md, tests/README.md and docs, but for docs/decisions.

Usage: commands.py [PART]     only those that have PART in them

A command is a line of a fenced block without a language, or of an indented block. In a block with a line that begins
with "$ ", these lines are the commands, and the others are what they print. commands.toml says of each command how it
is run, or why it is not. A command that stands in neither list fails, and so does an entry that fits to no command.

The commands run in the order of the documents, in one scratch directory with the files of tests/docs/files. There,
./hakmem is the launcher, build/release the release build, and ./server a small program.
Environment: TEST_ROOT and TEST_BUILD. Exit status: 77 without what this script needs.
"""
import fcntl
import fnmatch
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

try:
    import tomllib
except ImportError:
    print("skipped: Python 3.11 or newer is needed")
    sys.exit(77)

ROOT = Path(os.environ.get("TEST_ROOT", Path(__file__).resolve().parent.parent.parent))
BUILD = Path(os.environ.get("TEST_BUILD", ROOT / "build/release"))
HERE = Path(__file__).resolve().parent
SECONDS = 300
"""Only against hangs. Most commands take less than a second; a Go program with an empty cache takes 40 of the processor's."""


@dataclass
class Command:
    where: str
    text: str
    output: list[str] = field(default_factory=list)


def documents():
    skipped = ROOT / "docs/decisions"
    yield ROOT / "README.md"
    yield ROOT / "lab/README.md"
    yield ROOT / "CONTRIBUTING.md"
    yield ROOT / "tests/README.md"
    yield from sorted(path for path in (ROOT / "docs").rglob("*.md") if skipped not in path.parents)


def blocks(path):
    """(first line number, lines) of each block that holds commands."""
    lines, fence, block = path.read_text().splitlines(), None, []
    for number, line in enumerate([*lines, ""], 1):
        if match := re.match(r"\s*```(\w*)", line):
            if fence is None:
                fence, block = match.group(1), []
            else:
                if fence == "":
                    yield number - len(block), block
                fence, block = None, []
        elif fence is not None:
            block.append(line)
        elif re.match(r" {4,}\S", line) and (block or not lines[number - 2].strip()):
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []


def commands_of(path):
    found = []
    for first, lines in blocks(path):
        session = any(line.startswith("$ ") for line in lines)
        command = None
        for number, line in enumerate(lines, first):
            text = line.strip()
            if command and command.text.endswith("\\"):
                command.text = f"{command.text[:-1].rstrip()} {text}"
            elif session and not text.startswith("$ "):
                if command:
                    command.output.append(text)
                continue
            elif text:
                command = Command(f"{path.relative_to(ROOT)}:{number}", text.removeprefix("$ "))
                found.append(command)
            command.text = re.sub(r"\s{2,}#\s.*", "", command.text).rstrip()
    return found


def fits(entry, command):
    return entry["command"] == command.text or ("*" in entry["command"] and fnmatch.fnmatchcase(command.text, entry["command"]))


class Place:
    """The scratch directory, and the process that PID stands for."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.target = None
        shutil.copytree(HERE / "files", self.directory, dirs_exist_ok=True)
        (self.directory / "words").write_text("".join(f"{number}\n" for number in range(1, 2001)))
        self.directory.chmod(0o777)  # a server may have a user of its own
        (self.directory / "hakmem").symlink_to(ROOT / "hakmem")
        (self.directory / "include").symlink_to(ROOT / "include")
        (self.directory / "tools").symlink_to(ROOT / "tools")
        (self.directory / "docs").symlink_to(ROOT / "docs")
        (self.directory / "copies").mkdir()
        shutil.copy(BUILD / "libhakmem.so", self.directory / "copies")
        (self.directory / "build").mkdir()
        (self.directory / "build/release").symlink_to(BUILD)
        subprocess.run(["cc", "-O1", "-o", "server", "server.c"], cwd=directory, check=True)

    def pid(self):
        if self.target is None:
            environment = os.environ | {"LD_PRELOAD": str(BUILD / "libhakmem.so"), "HAKMEM_OBSERVE": "1"}
            self.target = subprocess.Popen([self.directory / "server", "--stay"], env=environment)
            while rounds_of(self.target.pid) < 100:  # so that there is something to see
                time.sleep(0.02)
        return str(self.target.pid)

    def end(self):
        if self.target is not None:
            self.target.terminate()
            self.target.wait()


def rounds_of(pid):
    """How often the program of server.c has slept."""
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M).group(1))


def free_port():
    """As in tests/programs/lib.sh: no two tests have the same port, and the kernel gives none of these to others."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hakmem"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "port", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        said = file.read().split()
        port = int(said[-1]) if said and said[-1].isdigit() else 0
        while True:
            port = port + 1 if 20000 <= port < 32000 else 20000
            if not answers(port):
                break
        file.truncate(0)
        file.write(f"{port}\n")
    return str(port)


def prepared(text, replacements, place, port, user=None):
    """The command with its placeholders replaced, each as a whole word, or as a path with what follows it. Another user may
    not reach the build folder."""
    build = place.directory / "copies" if user else BUILD
    for old, new in replacements.items():
        if old in text:
            new = new.replace("{build}", str(build)).replace("{port}", port)
            new = new.replace("{pid}", place.pid() if "{pid}" in new else "")
            text = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", lambda _, new=new: new, text)
    return text


def start(text, place, entry):
    prefix = []
    if entry.get("user") and os.geteuid() == 0:
        prefix = ["setpriv", "--reuid", entry["user"], "--regid", "nogroup", "--clear-groups"]
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and not key.startswith("HAKMEM_")}
    return subprocess.Popen([*prefix, "bash", "-c", text], cwd=place.directory / entry.get("in", "."), env=environment | {"LC_ALL": "C.UTF-8"},
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", start_new_session=True)


def finish(process, seconds):
    """What it printed; None if it took too long, and is killed with all that it started."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def is_served(session):
    """Whether a process of the session runs on hakmem."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[3]) == session and \
                    "libhakmem" in (status.parent / "maps").read_text():
                return True
        except OSError:
            continue
    return False


def answers(port, greets=False):
    with socket.socket() as caller:
        caller.settimeout(SECONDS)
        try:
            caller.connect(("127.0.0.1", int(port)))
            return not greets or len(caller.recv(1)) == 1
        except OSError:
            return False


def run_server(text, place, entry, port):
    """Starts it, and ends it once it listens, or after the seconds of the entry. What was wrong, or None."""
    process = start(text, place, entry)
    end = time.monotonic() + SECONDS
    seconds = float(entry.get("seconds", 0))
    ready = (lambda: answers(port, entry.get("greets", False))) if seconds == 0 else (lambda: time.monotonic() > end - SECONDS + seconds)
    while not ready() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    alive, served = process.poll() is None, is_served(process.pid)
    if alive:
        os.killpg(process.pid, signal.SIGTERM)
    output = finish(process, SECONDS)
    if output is None:
        return f"it does not end in {SECONDS} seconds"
    if not alive or not served:
        return f"{'hakmem does not serve it' if alive else 'it ended by itself'}:\n{output[-2000:]}"
    return None


def run_command(text, command, place, entry):
    process = start(text, place, entry)
    output = finish(process, SECONDS)
    if output is None:
        return f"it takes more than {SECONDS} seconds"
    wanted = [re.sub(r"\d+", r"\\d+", re.escape(line)).replace("/home/you/hakmem/build/release/libhakmem", r"\S*libhakmem")
              for line in command.output]
    wanted += entry.get("expect", [])
    missing = [line for line in wanted if not re.search(line, output, re.M)]
    if process.returncode != entry.get("status", 0):
        return f"status {process.returncode}:\n{output[-2000:]}"
    return f"its output has no /{missing[0]}/:\n{output[-2000:]}" if missing else None


def run(command, entry, replacements, place):
    """"skipped: why", what was wrong, or None."""
    missing = [name for name in entry.get("needs", []) if not shutil.which(name)]
    if missing:
        return f"skipped: {missing[0]} is not installed"
    port = free_port()
    # An entry's own words first: they may hold shorter ones.
    own = entry.get("replace", {})
    words = own | {old: new for old, new in replacements.items() if old not in own}
    text = prepared(command.text, words, place, port, entry.get("user"))
    if "setup" in entry:
        setup = start(entry["setup"].replace("{port}", port).replace("{build}", str(BUILD)), place, entry)
        output = finish(setup, SECONDS)
        if setup.returncode != 0:
            return f"its setup fails:\n{output}"
    if entry.get("server"):
        return run_server(text, place, entry, port)
    return run_command(text, command, place, entry)


def check_lists(found, lists):
    problems = [f"{command.where}: in no list of {HERE.name}/commands.toml: {command.text}" for command in found
                if not any(fits(entry, command) for entry in lists)]
    problems += [f"commands.toml: in no document: {entry['command']}" for entry in lists
                 if not any(fits(entry, command) for command in found)]
    problems += [f"commands.toml: no reason: {entry['command']}" for entry in lists
                 if "run" not in entry and not entry.get("reason")]
    return problems


def main():
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    with open(HERE / "commands.toml", "rb") as file:
        lists = tomllib.load(file)
    to_run = [entry | {"run": True} for entry in lists["run"]]
    found = [command for path in documents() for command in commands_of(path)]
    problems = check_lists(found, to_run + [{"command": text, "reason": reason} for text, reason in lists["leave"].items()])
    done = skipped = left = 0
    seen = set()
    with tempfile.TemporaryDirectory(prefix="hakmem-docs-") as directory:
        place = Place(directory)
        for command in found:
            entry = next((entry for entry in to_run if fits(entry, command)), None)
            left += entry is None
            if entry is None or part not in command.text or (command.text in seen and not command.output):
                continue
            seen.add(command.text)
            began = time.monotonic()
            problem = run(command, entry, lists["replace"], place)
            print(f"{time.monotonic() - began:6.2f} s  {command.where}  {command.text}", flush=True)
            if problem and problem.startswith("skipped"):
                skipped += 1
                print(f"          {problem}")
            elif problem:
                problems.append(f"{command.where}: {command.text}: {problem}")
            else:
                done += 1
        place.end()
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    print(f"{done} commands run, {skipped} lack their program, {left} have a reason, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
