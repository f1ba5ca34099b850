# SPDX-License-Identifier: MIT
"""./hakmem build: the libraries, or all, in one of the forms of CMakePresets.json."""
import json
import sys
import time

from .ground import ROOT, call, clock, configure, is_configured, locked, make, place, say, show_log
from .look.processes import STATUS_FAILED, STATUS_USAGE, Refusal
from .packages import need
from .words import Parser

TOOLS = ("cmake", "ninja", "gcc", "g++", "stdio.h")
FORM_TOOLS = {"clang": ["clang"], "fuzz": ["clang"], "aarch64": ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"]}
ABOUT = """Builds libhakmem.so and libhakmem.a and prints the path of libhakmem.so; libhakmem.a is in the same directory. That
is build/release of the checkout, or a cache directory when the checkout cannot be written or its path has spaces."""
PLAIN = ("-DHAKMEM_TESTS=OFF", "-DHAKMEM_BENCH=OFF")


def presets():
    listed = json.loads((ROOT / "CMakePresets.json").read_text())
    return [preset["configurePreset"] for preset in listed["buildPresets"]]


def build_or_refuse(directory, steps, stamps=(), what="hakmem", is_first=None, seconds=15, quiet=False):
    """Calls `steps` with an open log. The launcher takes what it finds for fresh by the times of the stamps, which are those of
    the build's start. A first build takes its time, so it is told where there is no terminal, too."""
    log, start = directory.with_name(f"{directory.name}.log"), time.monotonic()
    is_told = not quiet and (sys.stderr.isatty() or (not is_configured(directory) if is_first is None else is_first))
    if is_told:
        say(f"building {what} in {directory}; the first time takes {seconds} s on an idle machine")
    for stamp in stamps:
        stamp.with_suffix(".new").write_text("")
    with clock("building"), open(log, "w") as file:
        done = steps(file)
    if not done:
        show_log(log, sys.stderr)
        raise Refusal("the build failed; its output is above", STATUS_FAILED)
    for stamp in stamps:
        stamp.with_suffix(".new").replace(stamp)
    if is_told:
        say(f"built in {time.monotonic() - start:.0f} s")


def build_libraries(build, preset):
    """Without what tests and benchmarks need."""
    stamps = [build / f".{preset}{form}-stamp" for form in ("", "-secure")]
    directory = build / preset
    build_or_refuse(directory, lambda log: (is_configured(directory) or configure(directory, preset, log, *PLAIN)) and
                    make(directory, log, "hakmem_forms"), stamps)


def is_fresh(stamp, *folders):
    """Whether nothing in these folders of the checkout has changed since the build of this name."""
    if not stamp.exists():
        return False
    files = [ROOT / "CMakeLists.txt", *(file for folder in ("cmake", *folders) for file in (ROOT / folder, *(ROOT / folder).rglob("*")))]
    return all(file.stat().st_mtime_ns <= stamp.stat().st_mtime_ns for file in files if file.exists())


def need_for_run(traces):
    need("to build hakmem", *TOOLS, wanted=["zstd.h"] if traces else [])


def build_parts(stamps, targets, made, what="hakmem", seconds=15, looks_again=False, quiet=False):
    """Parts that a command needs, where they can be built; the folder of builds. `stamps`: {name: folders of the sources}.
    `made`: the last of what is made. `looks_again`: for what may have been installed meanwhile."""
    build = place("build")
    directory = build / "release"
    stamps = {build / name: folders for name, folders in stamps.items()}

    def steps(log):
        if not is_configured(directory):
            done = configure(directory, "release", log, *PLAIN)
        else:
            done = not looks_again or call(["cmake", directory], log)
        return done and make(directory, log, *targets)

    def is_done():
        return all(is_fresh(stamp, *folders) for stamp, folders in stamps.items())

    if is_done():  # without the lock: who builds something else may hold it for minutes
        return build
    with locked(build / ".lock"):  # of two first commands at once the second waits
        if not is_done():
            need_for_run(looks_again)
            build_or_refuse(directory, steps, stamps, what, not (directory / made).exists(), seconds, quiet)
    return build


def build_for_run(form, traces, quiet=""):
    """What run, record and replay need; the folder of builds. `form`: -secure or nothing; `traces`, `quiet`: yes or nothing."""
    stamps, targets = {f".release{form}-stamp": ("src", "include", "run")}, ["hakmem_secure" if form else "hakmem_shared", "hakmem_runner"]
    if traces:
        stamps[".trace-stamp"] = ("trace",)
        targets.append("hakmem_tracing")
    # cmake looks for what makes traces smaller
    return build_parts(stamps, targets, "hakmem-run", looks_again=bool(traces), quiet=bool(quiet))


def build_tool():
    """The path of the program that attaches to processes: those who look into one need nothing else."""
    build = build_parts({".attach-stamp": ("attach", "include")}, ["hakmem_attach"], "hakmem-attach", "hakmem-attach", 3)
    return build / "release/hakmem-attach"


def build_reader():
    """The path of the program that reads traces."""
    build = build_parts({".reader-stamp": ("trace", "src")}, ["hakmem_trace"], "hakmem-trace", "hakmem-trace", 5, looks_again=True)
    return build / "release/hakmem-trace"


def build_lab(build):
    """The release library, the workloads and lab/measure."""
    need("to build hakmem", *TOOLS)
    directory = build / "release"

    def steps(log):
        has_benches = is_configured(directory) and "\nHAKMEM_BENCH:BOOL=ON\n" in (directory / "CMakeCache.txt").read_text()
        return (has_benches or configure(directory, "release", log, "-DHAKMEM_TESTS=OFF", "-DHAKMEM_BENCH=ON")) and \
            make(directory, log, "hakmem_lab")

    with locked(build / ".lock"):
        build_or_refuse(directory, steps, what="hakmem and the workloads", is_first=not (directory / "lab/measure").exists())


def parser():
    found = Parser("build", description=ABOUT)
    found.add_argument("--preset", metavar="P", default="release",
                       help=f"the form to build; release when not given. There are: {' '.join(presets())}")
    found.add_argument("--all", action="store_true", help="build the tests and the benchmarks as well")
    return found


def run(words):
    options = parser().read(words)
    preset = options.preset
    if preset not in presets():
        raise Refusal(f"build: there is no preset '{preset}'; there are: {' '.join(presets())}", STATUS_USAGE)
    need("to build hakmem", *TOOLS, *FORM_TOOLS.get(preset, []), *(["cmocka.h"] if options.all else []))
    build = place("build")
    directory = build / preset
    with locked(build / ".lock"):
        if not options.all:
            build_libraries(build, preset)
        elif not (configure(directory, preset, sys.__stderr__) and make(directory, sys.__stderr__)):
            raise Refusal("the build failed; its output is above", STATUS_FAILED)
    for library in ("libhakmem.so", "libhakmem_api.a"):
        if (directory / library).exists():
            print(directory / library)
            break
