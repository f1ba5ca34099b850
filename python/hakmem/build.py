# SPDX-License-Identifier: MIT
"""./hakmem build: the libraries, or all, in one of the forms of CMakePresets.json."""
import json
import sys

from .ground import ROOT, build_or_refuse, call, configure, is_configured, locked, make, place, say
from .look.processes import STATUS_FAILED, STATUS_USAGE, Refusal
from .packages import need
from .words import StrictParser

TOOLS = ("cmake", "ninja", "gcc", "g++", "stdio.h")
FORM_TOOLS = {"clang": ["clang"], "fuzz": ["clang"], "aarch64": ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"]}
ABOUT = """Builds libhakmem.so and libhakmem.a and prints the path of libhakmem.so; libhakmem.a is in the same directory. That
is build/release of the checkout, or a cache directory when the checkout cannot be written or its path has spaces."""
PLAIN = ("-DHAKMEM_TESTS=OFF", "-DHAKMEM_BENCH=OFF")


def presets():
    listed = json.loads((ROOT / "CMakePresets.json").read_text())
    return [preset["configurePreset"] for preset in listed["buildPresets"]]


def begin(stamps):
    """The launcher takes what it finds for fresh by the times of the stamps, which are those of the build's start."""
    for stamp in stamps:
        stamp.with_suffix(".new").write_text("")


def complete(stamps):
    for stamp in stamps:
        stamp.with_suffix(".new").replace(stamp)


def build_libraries(build, preset):
    """Without what tests and benchmarks need."""
    stamps = [build / f".{preset}{form}-stamp" for form in ("", "-secure")]
    directory = build / preset
    if sys.stderr.isatty():
        say(f"building in {directory}")
    begin(stamps)
    build_or_refuse("building", build / f"{preset}.log", lambda log: (
        is_configured(directory) or configure(directory, preset, log, *PLAIN)) and make(directory, log, "hakmem_forms"))
    complete(stamps)


def is_fresh(stamp, *folders):
    """Whether nothing in these folders of the checkout has changed since the build of this name."""
    if not stamp.exists():
        return False
    files = [ROOT / "CMakeLists.txt", *(file for folder in ("cmake", *folders) for file in (ROOT / folder, *(ROOT / folder).rglob("*")))]
    return all(file.stat().st_mtime_ns <= stamp.stat().st_mtime_ns for file in files if file.exists())


def build_parts(stamps, targets, seconds, looks_again=False):
    """Parts that a command needs, where they can be built; the folder of builds. `stamps`: {name: folders of the sources}.
    `looks_again`: for what may have been installed meanwhile."""
    build = place("build")
    directory = build / "release"
    stamps = {build / name: folders for name, folders in stamps.items()}

    def steps(log):
        if not is_configured(directory):
            done = configure(directory, "release", log, *PLAIN)
        else:
            done = not looks_again or call(["cmake", directory], log)
        return done and make(directory, log, *targets)

    with locked(build / ".lock"):  # of two first commands at once the second waits
        if not all(is_fresh(stamp, *folders) for stamp, folders in stamps.items()):
            if sys.stderr.isatty():
                say(f"building in {directory}, once; {seconds} s on an idle machine")
            begin(stamps)
            build_or_refuse("building", build / "release.log", steps)
            complete(stamps)
    return build


def build_for_run(form, traces):
    """What run, record and replay need; the folder of builds. `form`: -secure or nothing; `traces`: yes or nothing."""
    stamps, targets = {f".release{form}-stamp": ("src", "include", "run")}, ["hakmem_secure" if form else "hakmem_shared", "hakmem_runner"]
    if traces:
        stamps[".trace-stamp"] = ("trace",)
        targets.append("hakmem_tracing")
    return build_parts(stamps, targets, 15, looks_again=bool(traces))  # cmake looks for what makes traces smaller


def build_tool():
    """The path of the program that attaches to processes: those who look into one need nothing else."""
    need("to build hakmem", *TOOLS)
    return build_parts({".attach-stamp": ("attach", "include")}, ["hakmem_attach"], 3) / "release/hakmem-attach"


def build_reader():
    """The path of the program that reads traces."""
    need("to build hakmem", *TOOLS, wanted=["zstd.h"])
    return build_parts({".reader-stamp": ("trace", "src")}, ["hakmem_trace"], 5, looks_again=True) / "release/hakmem-trace"


def build_lab(build):
    """The release library, the workloads and lab/measure."""
    need("to build hakmem", *TOOLS)
    directory = build / "release"
    if not (directory / "lab/measure").exists():
        say(f"building the library and the workloads in {directory}")

    def steps(log):
        has_benches = is_configured(directory) and "\nHAKMEM_BENCH:BOOL=ON\n" in (directory / "CMakeCache.txt").read_text()
        return (has_benches or configure(directory, "release", log, "-DHAKMEM_TESTS=OFF", "-DHAKMEM_BENCH=ON")) and \
            make(directory, log, "hakmem_lab")

    with locked(build / ".lock"):
        build_or_refuse("building", build / "release.log", steps)


def run(words):
    parser = StrictParser("build", description=ABOUT)
    parser.add_argument("--preset", metavar="P", default="release",
                        help=f"the form to build; release when not given. There are: {' '.join(presets())}")
    parser.add_argument("--all", action="store_true", help="build the tests and the benchmarks as well")
    options = parser.read(words)
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
