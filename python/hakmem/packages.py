# SPDX-License-Identifier: MIT
"""Installs what is missing of commands and headers, if it may: as root, with apt-get, by --install and --no-install, or a
question on a terminal. The launcher does the same for what builds hakmem, without Python."""
import os
import shutil
import signal
import subprocess
import sys

from .ground import ROOT, mode, say
from .look.processes import STATUS_FAILED, Refusal

# The Debian packages of commands and headers that have another name.
PACKAGES = {
    "ninja": "ninja-build", "stdio.h": "libc6-dev", "cmocka.h": "libcmocka-dev", "zstd.h": "libzstd-dev", "readelf": "binutils",
    "ensurepip": "python3-venv", "musl-gcc": "musl-tools", "libfuzzer": "libclang-rt-dev", "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "dpkg-source": "dpkg-dev", "dpkg-shlibdeps": "dpkg-dev", "abidiff": "abigail-tools", "man": "man-db", "afl-fuzz": "afl++",
}
OTHER_LINES = {
    "dnf": "sudo dnf install -y cmake ninja-build gcc gcc-c++ clang libcmocka-devel binutils",
    "pacman": "sudo pacman -S --needed cmake ninja gcc clang cmocka",
    "zypper": "sudo zypper install -y cmake ninja gcc gcc-c++ clang libcmocka-devel",
}
FUZZER = "int LLVMFuzzerTestOneInput(const char *bytes, unsigned long size) { return bytes == 0 && size; }"


def may_install(what):
    """Whether the user lets it be installed."""
    if mode["install"] != "ask":
        return mode["install"] == "yes"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"hakmem: install {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().lower().startswith("y")


def succeeds(words, text=""):
    try:
        return subprocess.run(words, input=text, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def have(item):
    if item.endswith(".h"):
        return any(os.path.exists(f"{folder}/{item}") for folder in ("/usr/include", "/usr/local/include"))
    if item == "ensurepip":
        return succeeds(["python3", "-I", "-c", "import ensurepip, venv"])
    if item == "libfuzzer":
        return succeeds(["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", "/dev/null"], FUZZER)
    return shutil.which(item) is not None


def missing(items):
    """The packages of those that are not here."""
    return [PACKAGES.get(item, item) for item in items if not have(item)]


def install_line(packages):
    """What to type for them."""
    for name, line in OTHER_LINES.items():
        if shutil.which(name):
            return f"type: {line}"
    if shutil.which("apt-get"):
        return f"type: {'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {' '.join(packages)}"
    return "with the system's package manager"


def install(purpose, required, wanted):
    """A signal does not cut it short; it is obeyed afterwards."""
    say(f"installing with apt-get {purpose}: {' '.join(required + wanted)}")
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        ended = subprocess.run([ROOT / "tools/install_packages.sh", *required, "--", *wanted]).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if ended == -signal.SIGINT:
        raise KeyboardInterrupt


def need(purpose, *required, wanted=()):
    """Commands and headers; ends the command when a required one is missing, with the line to type. A wanted one is left
    out."""
    packages = missing((*required, *wanted))
    if not packages:
        return
    if shutil.which("apt-get") and os.geteuid() == 0 and may_install(f"{' '.join(packages)} {purpose}"):
        install(purpose, missing(required), missing(wanted))
    packages = missing(required)
    if packages:
        raise Refusal(f"missing {purpose}: {' '.join(packages)}; install them, {install_line(packages)}", STATUS_FAILED)
    packages = missing(wanted)
    if packages:
        say(f"what needs {' '.join(packages)} is left out; to get it, {install_line(packages)}")
