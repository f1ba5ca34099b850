# SPDX-License-Identifier: MIT
"""The laboratory's packages: one virtual environment in the cache, made when one of its commands asks for it."""
import os
import shutil
import subprocess
import sys

from .build import build_lab
from .early import require_program
from .ground import ROOT, clock, locked, mode, place, say
from .lab.options import OWN_PROGRAM, parser_of
from .look.processes import STATUS_FAILED, Refusal
from .packages import may_install, need

REQUIREMENTS = ROOT / "lab/requirements.txt"  # each package with its hashes: tools/pin_packages.sh
SIZE = "some 410 MB on disk, from PyPI"


def asked(*words):
    """What python3 prints; it makes the environment, and is the one that this runs in."""
    return subprocess.run(["python3", "-I", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def find():
    """The environment's folder and whether it is complete. Other packages, or another Python, are another one."""
    text = REQUIREMENTS.read_text() + asked("-V").stdout
    number = subprocess.run(["cksum"], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    directory = place("cache") / f"python-{'-'.join(number.split())}"
    return directory, (directory / "complete").exists()


def interpreter(command):
    """The environment's Python; makes it if that is allowed."""
    directory, is_complete = find()
    python = directory / "bin/python"
    if is_complete:
        return python
    if asked("-c", "import sys; sys.exit(sys.version_info < (3, 11))").returncode != 0:
        raise Refusal(f"the laboratory needs Python 3.11 or newer; python3 is {asked('-V').stdout.strip()}", STATUS_FAILED)
    if not may_install(f"Python packages for the laboratory in {directory} ({SIZE})"):
        raise Refusal(f"the laboratory needs Python packages ({SIZE}); type: ./hakmem --install {command}", STATUS_FAILED)
    mode["install"] = "yes"
    need("to install Python packages", "ensurepip")
    with locked(directory.with_name(directory.name + ".lock")):
        if not (directory / "complete").exists():
            make(directory)
    return python


def make(directory):
    """The last step makes it count: what a kill left behind is made again."""
    say(f"preparing Python packages for the laboratory in {directory} (once; {SIZE})")
    shutil.rmtree(directory, ignore_errors=True)
    steps = (["python3", "-I", "-m", "venv", "--", directory],
             [directory / "bin/python", "-I", "-m", "pip", "install", "--require-hashes", "--quiet", "--disable-pip-version-check",
              "-r", REQUIREMENTS])
    with clock("preparing"):
        for words in steps:
            done = subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace")
            if done.returncode != 0:
                break
    if done.returncode != 0:
        print(done.stdout.rstrip("\n"), file=sys.stderr)
        raise Refusal("the Python packages could not be installed (is there a network?); pip's output is above", STATUS_FAILED)
    (directory / "complete").write_text("")


def run_lab(words):
    """Hands over to hakmem.lab in its environment, for which neither a help nor a wrong word asks."""
    parser = parser_of(words[0])
    found = vars(parser.read(words[1:]))
    # A list of words, as add_program reads it; the commands of peers are one word.
    command = next((found[name] for name in ("command", "program") if isinstance(found.get(name), list)), [])
    if parser.forms == OWN_PROGRAM and not command:
        parser.error("which program?")
    require_program(command[0] if command else "")
    python, build = interpreter(words[0]), place("build")
    if words[0] not in ("doctor", "peers", "score"):
        build_lab(build)
    # What workloads and peers need is installed by the laboratory itself.
    os.environ.update(LABORATORY_INSTALL=mode["install"], LABORATORY_ROOT=str(ROOT), LABORATORY_BUILD=str(build))
    sys.stdout.flush()
    os.execv(python, [str(python), "-I", str(ROOT / "python/hakmem/cli.py"), "--lab", *words])
