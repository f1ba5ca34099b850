# SPDX-License-Identifier: MIT
"""./hakmem test: builds six forms of hakmem and runs every test (tests/README.md)."""
import argparse
import atexit
import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from .build import TOOLS
from .environment import find, interpreter
from .ground import JOBS, LAUNCHER, ROOT, call, clock, configure, locked, make, mode, place, say, show_log
from .long_tests import fuzz, soak
from .look.processes import STATUS_USAGE, Refusal
from .packages import need
from .test_names import has_case, likely_tests
from .words import Parser

ABOUT = """Builds six forms of hakmem and runs every test (tests/README.md). As root on Debian and Ubuntu it installs what
it needs. Tests that need what is not there are skipped."""
FORMS = ("release", "debug", "clang", "tsan", "asan", "aarch64")
CROSS_TOOLS = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64")
WANTED = ("pkg-config", "readelf", "clang", "clang-format", "clang-tidy", "zstd.h")
WANTED_BY_TESTS = ("spin", "musl-gcc", "libfuzzer", "gdb", "bpftrace", "meson", "lintian", "abidiff", "ensurepip", "dpkg-shlibdeps",
                   "file", "man")


class Forms:
    """Builds forms; `options` are those of cmake."""

    def __init__(self, build, werror):
        self.build = build
        self.options = [f"-DHAKMEM_WERROR={'ON' if werror else 'OFF'}"]
        self.cross = None  # options of the form for aarch64; None: it cannot be built and run here
        self.built = set()

    def configure(self, preset, log):
        cross = self.cross if preset == "aarch64" and self.cross else []
        return configure(self.build / preset, preset, log, *self.options, *cross)

    def make(self, preset):
        """One line, and the log only when it fails."""
        if preset in self.built:
            return
        log, start = self.build / f"{preset}.log", time.monotonic()
        print(f"building {preset:9}", end="", flush=True)
        with clock("building"), open(log, "w") as file:
            done = self.configure(preset, file) and make(self.build / preset, file)
        if not done:
            print(" FAILED")
            show_log(log, sys.stdout)
            raise Refusal(f"{preset} does not build; the output is above", 1)
        print(f" {time.monotonic() - start:.0f} s", flush=True)
        self.built.add(preset)

    def find_cross(self):
        """Its cmocka is made from the distribution's source, once: the package for another architecture would change the
        system's list of architectures."""
        if self.cross is not None:
            return
        if os.uname().machine != "x86_64":
            self.cross = []  # on aarch64 all forms are
            return
        if not all(map(shutil.which, CROSS_TOOLS)):
            say("the tests for aarch64 are left out: they need its gcc and g++ and qemu-aarch64 (Debian: gcc-aarch64-linux-gnu "
                "g++-aarch64-linux-gnu qemu-user)")
            return
        folder = place("cache") / "cmocka-aarch64"
        log = folder.with_name("cmocka-aarch64.log")
        with locked(folder.with_name("cmocka-aarch64.lock")):
            if not (folder / "libcmocka.a").exists() and not make_cmocka(folder, log):
                say(f"the tests for aarch64 are left out: cmocka cannot be built for it ({log})")
                return
        self.cross = [f"-DCMOCKA_INCLUDE={folder}", f"-DCMOCKA_LIBRARY={folder}/libcmocka.a"]


def make_cmocka(folder, log):
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    (new / "build").mkdir(parents=True)
    with open(log, "w") as file:
        if not call([ROOT / "tools/debian_source.sh", "cmocka"], file, cwd=new):
            return False
        source = next(new.glob("cmocka-*/"), new)
        if not (call(["cmake", "--toolchain", ROOT / "cmake/aarch64.cmake", "-G", "Ninja", "-S", source, "-B", new / "build",
                      "-DBUILD_SHARED_LIBS=OFF", "-DWITH_STATIC_LIB=ON", "-DUNIT_TESTING=OFF", "-DWITH_EXAMPLES=OFF"], file)
                and call(["cmake", "--build", new / "build"], file)):
            return False
    shutil.copy(source / "include/cmocka.h", new)
    shutil.copy(new / "build/src/libcmocka-static.a", new / "libcmocka.a")
    for part in (folder, new / "build", new / "apt"):
        shutil.rmtree(part, ignore_errors=True)
    new.rename(folder)
    return True


# --- what is prepared beside the first builds: it comes from the network and takes long ---

def prepare(words):
    """The other process of start_preparing. What fails here is left out."""
    if words == ["aarch64"]:
        Forms(place("build"), False).find_cross()
    interpreter("test")
    return 0


def start_preparing(presets, log):
    """In a group of its own, which ends with this process."""
    words = [sys.executable, "-I", "-B", str(ROOT / "python/hakmem/cli.py"), "--prepare"]
    with open(log, "w") as file:
        process = subprocess.Popen([*words, *(["aarch64"] if "aarch64" in presets else [])], stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, "HAKMEM_LAUNCHER": LAUNCHER, "HAKMEM_INSTALL": mode["install"]})

    def end():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    atexit.register(end)
    return process


# --- the command line ---

def minutes(text):
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"needs a whole number of minutes, from 1 to 999999, not '{text}'")
    return int(text)


def parser():
    found = Parser("test", description=ABOUT)
    found.add_argument("--quick", action="store_true", help="run only the short tests, of two forms")
    found.add_argument("--only", metavar="REGEX[:CASE]",
                       help="run only the tests whose names match, such as 'release/unit' or 'launcher'; of a test in C only "
                            "one case, such as 'unit/flush:broken_lists'")
    found.add_argument("--werror", action="store_true", help="take a warning of the compiler for an error, as in CI")
    found.add_argument("--no-install", action="store_true", help="install nothing")  # the launcher takes it
    found.add_argument("--soak", metavar="MINUTES", type=minutes,
                       help="instead: run a changing server workload; fail on leaks and slow growth")
    found.add_argument("--fuzz", metavar="MINUTES", type=minutes,
                       help="instead: compare the library with a model by libFuzzer, then by AFL++, and make traces, MINUTES each")
    return found


def read(words):
    options = parser().read(words)
    if options.only == "":
        parser().error("--only needs a regular expression")
    options.case = None
    if options.only and (parts := re.fullmatch(r"(.+):(\w+)", options.only)):
        options.only, options.case = parts.groups()
    for name in ("soak", "fuzz"):
        others = [other for other in ("quick", "only", "soak", "fuzz") if other != name and getattr(options, other)]
        if getattr(options, name) and others:
            parser().error(f"--{name} goes with no other option")
    return options


def install(presets, is_long):
    wanted = [*WANTED, *([] if is_long else WANTED_BY_TESTS)]
    if not is_long and "aarch64" in presets and os.uname().machine == "x86_64":
        wanted += [*CROSS_TOOLS, "dpkg-source"]
    need("to build and test hakmem", *TOOLS, "cmocka.h", wanted=wanted)


def require_tests(forms, presets, regex):
    """Ends the command when no test has such a name, before all forms are built."""
    for preset in presets:
        with open(forms.build / f"{preset}.log", "w") as log:
            if not forms.configure(preset, log):
                return  # its build shows why
    listed = subprocess.run(["ctest", "--test-dir", forms.build / "all", "-N", "-R", regex], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True).stdout
    if not re.search("Total Tests: [1-9]", listed):
        raise Refusal(f"test: no test's name matches '{regex}'", STATUS_USAGE)


def set_environment(log):
    """For the tests: scripts install nothing either."""
    directory, is_complete = find()
    if is_complete:
        os.environ["LABORATORY_PYTHON"] = str(directory / "bin/python")
    else:
        say(f"the laboratory's tests are left out: its Python packages are missing ({log} says why); to get them, "
            "type: ./hakmem --install doctor")
    os.environ["LABORATORY_INSTALL"] = mode["install"]
    if mode["install"] == "no":
        os.environ["PIP_NO_INDEX"] = "1"


def run(words):
    options = read(words)
    presets = list(FORMS[:2] if options.quick else FORMS)
    if options.only:  # before anything is installed or built
        presets = [preset for preset in presets if likely_tests(preset, options.only)]
        if not presets:
            raise Refusal(f"test: no test's name matches '{options.only}'", STATUS_USAGE)
    if options.case and not has_case(options.case):
        raise Refusal(f"test: no test in C has a case '{options.case}'", STATUS_USAGE)
    install(presets, options.soak or options.fuzz)
    for name in [name for name in os.environ if name.startswith("HAKMEM_")]:
        del os.environ[name]  # what the caller has set for runs is not part of the tests
    compileall.compile_dir(ROOT / "python/hakmem", quiet=2)  # tests start the tools a thousand times; these write no such files
    if options.case:
        os.environ["TEST_CASE"] = options.case
    forms = Forms(place("build"), options.werror)
    if options.soak:
        return soak(forms, options.soak)
    if options.fuzz:
        return fuzz(forms, options.fuzz)
    log = forms.build / "prepare.log"
    preparing = start_preparing(presets, log)
    if not options.only:
        for preset in ("release", "debug"):
            forms.make(preset)
    preparing.wait()
    set_environment(log)
    if "aarch64" in presets:
        forms.find_cross()
    presets = [preset for preset in presets if
               (preset != "aarch64" or forms.cross is not None) and (preset != "clang" or shutil.which("clang"))]
    # One ctest over all forms, so that its last lines count everything.
    (forms.build / "all").mkdir(exist_ok=True)
    lines = [f"subdirs([==[{forms.build / preset}]==])\n" for preset in presets]
    (forms.build / "all/CTestTestfile.cmake").write_text("".join(lines))
    if options.only:
        require_tests(forms, presets, options.only)
    for preset in presets:
        forms.make(preset)
    # Twice as many as processors: half of the tests' time is waiting.
    filters = [*(["-L", "quick"] if options.quick else []), *(["-R", options.only] if options.only else [])]
    sys.stdout.flush()
    os.execvp("ctest", ["ctest", "--test-dir", str(forms.build / "all"), "-j", str(2 * JOBS), "--output-on-failure",
                        "--no-tests=error", *filters])
