# SPDX-License-Identifier: MIT
"""./hakmem profile: the call stacks that hold a program's memory."""
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

from .figures import in_words
from .files import check_writable, keep_inputs, refusing, written
from .owners import SCRIPT, is_of_interpreter, own_frame
from .processes import Refusal, STATUS_CANNOT, STATUS_USAGE, is_number, parse_pid, source
from .profile_data import (
    SITE_MODULE, WHY_NO_STACK, keep_documents, parse_profiles, read_documents, read_profiles, split_documents, thread_frame)
from .profile_compare import compared_remarks, folded_lines, print_changes, render_changes
from .profile_living import profile_process
from .profile_run import run_watched
from .sites import add_naming, use_naming
from .text import plain, short_name

RUNS_PROGRAMS = True  # what follows -- is a program and its arguments

OWN_VARIABLES = ("HAKMEM_LAUNCHER", "HAKMEM_ATTACH_TOOL", "HAKMEM_CALLER_PATH")  # of the launcher for these tools

MEASURES = {
    "live": ("live_bytes", "live_count", "in use"),
    "allocated": ("allocated_bytes", "allocated_count", "allocated in all"),
    "peak": ("peak_bytes", "peak_count", "in use at the peak"),
}
SAMPLES = {"live": "samples_live", "allocated": "samples", "peak": "peak_samples"}
PEAK_SAMPLES = 1000  # with fewer the highest moment may be one of chance, more than 3 % above the real one
THREAD_SITES = 3  # shown below each thread
LINE_MAX = 300  # characters of a name in a line
SUSPECT_MOMENTS = 4  # a site that was seen at fewer moments is no suspect


def add_arguments(parser):
    parser.forms = ["[OPTION...] -- PROGRAM [ARGUMENT...]", "[OPTION...] PID", "[OPTION...] FILE"]
    parser.description = ("Shows which call stacks hold memory: of a program that it runs, when it ends; of a living "
                          "process, what it allocates while it is sampled; of a profile that HAKMEM_PROFILE_FILE=FILE has written.")
    parser.add_argument("--leaks", action="store_true",
                        help="show the sites of the memory that was not freed, and name those that only grow")
    parser.add_argument("--period", metavar="BYTES", default=None,
                        help="average number of bytes from one sample to the next; when not given, 512k, with --leaks 16k, with --peak 1k")
    parser.add_argument("--fail-above", metavar="BYTES", default=None,
                        help="with --leaks: end with status 1 if more than BYTES are not freed and the program itself succeeds")
    parser.add_argument("--fail-growing", action="store_true",
                        help="with --leaks: end with status 1 if a site only grows and the program itself succeeds")
    parser.add_argument("--ignore", metavar="FUNCTION", action="append", default=[],
                        help="leave out stacks with this function, which may have * in its name; may be repeated")
    parser.add_argument("--allocated", action="store_true", help="show all allocated memory, not only what is in use")
    parser.add_argument("--peak", action="store_true", help="show what was in use when most was, not what is in use at the end")
    parser.add_argument("--threads", action="store_true", help="show which thread allocated the memory, with the largest sites of each")
    parser.add_argument("--compare", metavar="OLD", type=source,
                        help="show what the sites have more or less than in the profile OLD, a file that -o has written")
    parser.add_argument("--sites", metavar="N", default="10", help="number of sites in the table; 10 when not given")
    parser.add_argument("--stacks", action="store_true", help="show the whole stack of each site")
    parser.add_argument("--pprof", metavar="FILE", help="write the profile for pprof (gzipped protobuf)")
    parser.add_argument("--folded", metavar="FILE", help="write folded stacks, for flame graph programs")
    parser.add_argument("--html", metavar="FILE", help="write a page with a flame graph")
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the profile itself in FILE")
    parser.add_argument("--nth", metavar="N", default=None,
                        help="of several profiles that each process wrote to FILE, show the Nth; the last when not given")
    parser.add_argument("--seconds", metavar="N", default=None, help="how long to sample a living process; 10 when not given")
    add_naming(parser)
    parser.add_argument("--stop", action="store_true", help="end the sampling of a living process")
    parser.add_argument("file", nargs="?", type=source, metavar="PID or FILE", help="a process to sample, or a profile to show")
    parser.epilog = ("Exit status: that of PROGRAM; 1 when --fail-above or --fail-growing fails; 126 when the process or the file cannot "
                     "be read; 127 when there is no such program or process.")


def parse_count(text, name):
    if not is_number(text) or int(text) == 0:
        raise Refusal(f"profile: {name} takes a number from 1 on, not '{text[:40]}'", STATUS_USAGE)
    return int(text)


def parse_size(text, name, least=1):
    """A number of bytes, which may end in k, m or g."""
    size = re.fullmatch(r"([0-9]{1,15})([kKmMgG]?)", text)
    value = int(size[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[size[2].lower()] if size else -1
    if value < least:
        raise Refusal(f"profile: {name} takes a number of bytes such as 4096, 64k or 1m, not '{text[:40]}'", STATUS_USAGE)
    return value


def default_period(arguments):
    """None: hakmem's own."""
    return "16k" if arguments.leaks else "1k" if arguments.peak else None


def is_ignored(stack, patterns):
    """Whether one of the stack's functions is to be left out. C++ names match with or without their arguments."""
    names = {name for frame in stack.frames for name in (frame.function, frame.function.split("(")[0])}
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


class Site:
    """Stacks whose innermost frame of the program is the same, under the same name of the program's (hakmem/site.h)."""

    def __init__(self, name, frame):
        self.name = name  # "" if the program gave none
        self.frame = frame
        self.stacks = []
        self.history = []

    def add(self, stack):
        self.stacks.append(stack)
        self.history = [a + b for a, b in zip(self.history, stack.history)] if self.history else list(stack.history)

    def total(self, name):
        return sum(stack.sums[name] for stack in self.stacks)

    def label(self):
        place = self.frame.place() if self.frame else ""
        label = self.frame.label() if self.frame else "unknown (no stack)"
        return (f"[{self.name}] " if self.name else "") + label + (f" ({place})" if place else "")

    def moments(self):
        """Its live bytes over time, from when it had some."""
        return moments_of(self.history, self.total("live_bytes"))

    def only_grows(self):
        """Whether it only grows, or its largest stack: a container next to what leaks may be freed at exit."""
        largest = max(self.stacks, key=lambda stack: stack.sums["live_bytes"])
        return only_grow(self.moments()) or only_grow(moments_of(largest.history, largest.sums["live_bytes"]))


def moments_of(history, last):
    """Live bytes over time, from when there were some."""
    moments = [*history, last]
    while moments and moments[0] == 0:
        del moments[0]
    return moments


def only_grow(moments):
    """Never less than at the moment before, and more in three of four steps. Rare samples may miss a step."""
    steps = [later - earlier for earlier, later in zip(moments, moments[1:])]
    grown = sum(step > 0 for step in steps)
    return len(moments) >= SUSPECT_MOMENTS and min(steps) >= 0 and grown >= 0.75 * len(steps)


class ThreadSites(Site):
    """All stacks of a thread."""

    def __init__(self, thread):
        super().__init__(thread_frame(thread).label(), None)
        self.thread = thread

    def label(self):
        return self.thread.label()


def threads_of(profile, measure):
    threads = {}
    for stack in filter(lambda stack: stack.sums["samples"] > 0, profile.stacks):
        threads.setdefault(stack.thread, ThreadSites(stack.thread)).add(stack)
    return sorted(threads.values(), key=lambda thread: -thread.total(measure))


def sites_of(profile, measure):
    """`profile`: or a part of it that has stacks."""
    sites = {}
    for stack in profile.stacks:
        frame = own_frame(stack.frames)
        key = (stack.site_name, frame.label(), frame.place()) if frame else (stack.site_name,)
        sites.setdefault(key, Site(stack.site_name, frame)).add(stack)
    ranked = sorted(sites.values(), key=lambda site: -site.total(measure))
    return [site for site in ranked if site.total(measure) > 0]


def print_site(site, measure, count, total, whole_stacks):
    size = site.total(measure)
    blocks = site.total(count)
    print(f"{in_words(size):>12} {100 * size / total:5.1f} % {blocks:>10} {'block ' if blocks == 1 else 'blocks'}  {short_name(site.label(), LINE_MAX)}")
    if whole_stacks:
        for stack in sorted((stack for stack in site.stacks if stack.sums[measure] > 0), key=lambda stack: -stack.sums[measure])[:3]:
            thread = f" {stack.thread.label()} in" if stack.thread else ""
            print(f"{'':22}{in_words(stack.sums[measure])} by{thread}")
            for frame in stack.shown_frames():
                place = f" ({frame.place()})" if frame.module != SITE_MODULE and frame.place() else ""
                print(f"{'':24}{short_name(frame.label(), LINE_MAX)}{place}")


def counted(number, thing):
    return f"{number} {thing}{'s' * (number != 1)}"


def title(profile):
    number = f", profile {profile.number} of {profile.count}" if profile.count > 1 else ""
    return f"{profile.program} (process {profile.pid}{number})"


def shown_measure(arguments):
    return "peak" if arguments.peak else "allocated" if arguments.allocated and not arguments.leaks else "live"


def print_table(profile, arguments):
    measure, count, what = MEASURES[shown_measure(arguments)]
    total = profile.total(measure)
    samples = profile.total(SAMPLES[shown_measure(arguments)])
    if arguments.peak:
        what += f", {(profile.peak_ago_ms or 0) / 1000:.1f} s before this profile"
    elif arguments.living:
        what = "allocated while it was sampled" + ("" if arguments.allocated else ", and still in use")
    print(f"{title(profile)}: about {in_words(total)} {what}, in about "
          f"{counted(profile.total(count), 'block')}; estimated from {counted(samples, 'sample')}")
    if arguments.peak and 0 < samples < PEAK_SAMPLES and profile.period != 1:
        print("With so few samples the peak is a rough estimate; with --period 1 it is exact.")
    without = sum(stack.sums["samples"] for stack in profile.stacks if not stack.frames)
    if without:
        print(f"{counted(without, 'sample')} without a stack: {WHY_NO_STACK}")
    sites = sites_of(profile, measure)
    for site in sites[:arguments.sites]:
        print_site(site, measure, count, total, arguments.stacks)
    if len(sites) > arguments.sites:
        print(f"and {len(sites) - arguments.sites} more sites (--sites N shows more)")


def print_threads(profile, arguments):
    measure, count, _ = MEASURES[shown_measure(arguments)]
    total = profile.total(measure)
    threads = [thread for thread in threads_of(profile, measure) if thread.total(measure) > 0]
    print(f"\nBy the {'threads' if len(threads) > 1 else 'thread'} that allocated:")
    for thread in threads[:arguments.sites]:
        print_site(thread, measure, count, total, False)
        if only_grow(thread.moments()):
            print(f"{'':22}grew all through the run: " + ", ".join(in_words(held) for held in thread.moments()[-5:]))
        for site in sites_of(thread, measure)[:THREAD_SITES]:
            print(f"{'':22}{in_words(site.total(measure))} in {site.label()}")
    if len(threads) > arguments.sites:
        print(f"and {len(threads) - arguments.sites} more threads (--sites N shows more)")


def print_python_hint(profile):
    frames = [frame for stack in profile.stacks for frame in stack.frames]
    if any(map(is_of_interpreter, frames)) and not any(frame.function.startswith(SCRIPT) for frame in frames):
        print("Functions of Python scripts have names with `python3 -X perf`, from Python 3.12 on.")


def write_folded(profiles, path, measure, by_thread=False, old=None):
    with written(path) as file:
        if old is not None:
            file.writelines(folded_lines(old, profiles, measure))
            return
        for profile in profiles:
            for stack in profile.stacks:
                size = stack.sums[measure]
                if size > 0:
                    frames = [plain(frame.label()).replace(";", ":") for frame in reversed(stack.shown_frames(by_thread))]
                    file.write(f"{';'.join(frames)} {size}\n")


def compare(old, profiles, arguments):
    """Shows the changes from the profiles `old`, of one program or of all processes of one run, to these."""
    measure, count, what = MEASURES[shown_measure(arguments)]
    if arguments.peak and any(profile.peak_ago_ms is None for profile in old + profiles):
        raise Refusal("profile: an older version of hakmem wrote one of the profiles, and noted no peak")
    print(f"{titles(old)}, then {titles(profiles)}: {what}, estimated from {sum(profile.total(SAMPLES[shown_measure(arguments)]) for profile in old)} "
          f"and {sum(profile.total(SAMPLES[shown_measure(arguments)]) for profile in profiles)} samples")
    remarks = compared_remarks(old, profiles)
    print_changes(old, profiles, measure, count, arguments.sites)
    for sentence in remarks:
        print(sentence)
    if arguments.folded:
        write_folded(profiles, arguments.folded, measure, old=old)
    if arguments.html:
        with written(arguments.html) as file:
            file.write(render_changes(old, profiles, measure, count, what))
    return 0


def titles(profiles):
    return title(profiles[0]) if len(profiles) == 1 else f"{len(profiles)} processes"


def show(profiles, arguments):
    """Shows them. The exit status: see fails."""
    old = arguments.old
    for profile in profiles + (old or []):
        profile.stacks = [stack for stack in profile.stacks if not is_ignored(stack, arguments.ignore)]
    if old is not None:
        return compare(old, profiles, arguments)
    from .profile_leaks import in_order, others_in_words, print_leaks
    profiles, others = in_order(profiles, arguments.pid, MEASURES[shown_measure(arguments)][0])
    shown = [profile for profile in profiles if profile.stacks] or profiles[-1:]
    if arguments.peak and any(profile.peak_ago_ms is None for profile in shown):
        raise Refusal("profile: an older version of hakmem wrote this profile, and noted no peak")
    if arguments.threads and not all(profile.has_threads() for profile in shown if profile.stacks):
        raise Refusal("profile: the profile does not keep threads apart; HAKMEM_PROFILE_THREADS=1 lets a process do that")
    if others:
        measure, _, what = MEASURES[shown_measure(arguments)]
        print(others_in_words(others, measure, f"not freed {arguments.when}" if arguments.leaks else what))
    for number, profile in enumerate(shown):
        if number or others:
            print()
        (print_leaks if arguments.leaks else print_table)(profile, arguments)
        if arguments.threads and profile.stacks:
            print_threads(profile, arguments)
        print_python_hint(profile)
        for sentence in profile.remarks:
            print(sentence)
    profiles = profiles[::-1] + others
    if arguments.folded:
        write_folded(profiles, arguments.folded, MEASURES[shown_measure(arguments)][0], arguments.threads)
    if arguments.pprof:
        from .pprof import write_pprof
        with written(arguments.pprof, binary=True) as file:
            write_pprof(profiles, file)
    if arguments.html:
        from .profile_page import render
        with written(arguments.html) as file:
            file.write(render(profiles, f"Heap profile of {os.path.basename(profiles[0].program)}", arguments.threads))
    return fails(profiles, arguments)


def fails(profiles, arguments):
    """The exit status: 1 if more is not freed than --fail-above allows, or a site grew under --fail-growing, else 0."""
    most = math.inf if arguments.fail_above is None else arguments.fail_above
    above = [profile for profile in profiles if profile.total("live_bytes") > most]
    growing = [site.label() for profile in profiles for site in sites_of(profile, "live_bytes") if site.only_grows()] \
        if arguments.fail_growing else []
    for profile in above:
        print(f"hakmem: {title(profile)} has not freed about {in_words(profile.total('live_bytes'))}, more than "
              f"{in_words(most)}", file=sys.stderr)
    for label in growing:
        print(f"hakmem: {label} grew all through the run", file=sys.stderr)
    return 1 if above or growing else 0


def run_program(words, arguments, path):
    """Runs the program; its exit status, and a Watch."""
    period = arguments.period or default_period(arguments)
    launcher = os.environ.get("HAKMEM_LAUNCHER") or str(Path(__file__).parents[3] / "hakmem")
    command = [launcher, "run", "--quiet"]
    if period:
        command += ["--set", f"sample_bytes={period}"]
    if arguments.threads:
        command += ["--set", "profile_threads=1"]
    environment = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    environment["HAKMEM_PROFILE_FILE"] = path
    if "HAKMEM_CALLER_PATH" in os.environ:
        environment["PATH"] = os.environ["HAKMEM_CALLER_PATH"]
    if os.access("/dev/shm", os.W_OK):
        environment.setdefault("HAKMEM_OBSERVE", "1")
    return run_watched(command + ["--"] + words, environment)


def has_profile_of(pid, path):
    """Whether the process itself has written one to the file."""
    if not os.path.exists(path):
        return False
    text = r'"(?:[^"\\]|\\.)*"'  # which may hold any sign: the program's name comes first
    head = re.compile(rf'\{{"hakmem_profile": \{{(?:[^}}"]|{text})*?"process": {pid}\b')
    with open(path, encoding="utf-8", errors="replace") as file:
        return any(head.match(line) and line.endswith("]}") for line in split_documents(file.read()))


def add_watched(watch, status, path):
    """Adds the last answer of a program that ended without a profile. False: there is none."""
    if not watch.text:
        return False
    with refusing(path), open(path, "ab") as file:
        file.write(watch.text)
    what = f"{signal.Signals(-status).name} ended the program" if status < 0 else "the program wrote no profile at its end"
    print(f"hakmem: {what}; this is its profile of {time.monotonic() - watch.taken:.1f} s before", file=sys.stderr)
    return True


def profile_program(words, arguments):
    folder, began = tempfile.mkdtemp(prefix="hakmem-profile-"), time.time()
    try:
        path = os.path.join(folder, "profile")
        status, watch = run_program(words, arguments, path)
        if not has_profile_of(watch.pid, path) and add_watched(watch, status, path):
            arguments.when = "until shortly before its end"
        if not os.path.exists(path) or os.path.getsize(path) == 0:  # the launcher has said why, or the program was killed
            if status in (125, 126, 127):
                return status
            raise Refusal("the program left no profile: a signal or the exit system call ended it, or the file could not be "
                          "written (./hakmem profile PID looks at a living process)",
                          128 - status if status < 0 else status or STATUS_CANNOT)
        lines, origin = read_documents(path, is_own=True, alive=(began, math.inf))
        if arguments.output:
            lines = keep_documents(lines, path, arguments.output, **origin)
        sys.stdout.flush()
        arguments.pid = watch.pid
        failed = show(parse_profiles(lines, path, **origin), arguments)
        return 128 - status if status < 0 else status or failed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_outputs(arguments):
    """What cannot be written is refused before the work."""
    for path in (arguments.output, arguments.html, arguments.pprof, arguments.folded):
        if path is not None:
            check_writable(path)


def run(arguments):
    use_naming(arguments)
    arguments.sites = parse_count(arguments.sites, "--sites")
    arguments.living, arguments.when, arguments.pid = False, "at exit", None  # process id: of a program that runs here
    nth = parse_count(arguments.nth, "--nth") if arguments.nth else None
    check_outputs(arguments)
    for path in filter(None, (arguments.html, arguments.pprof, arguments.folded)):
        keep_inputs(path, arguments.file, arguments.compare)
    if bool(arguments.program) == bool(arguments.file):
        raise Refusal("profile: name a program behind --, or the file of a profile (./hakmem profile --help)",
                      STATUS_USAGE)
    if arguments.period:
        parse_size(arguments.period, "--period")
    is_process = not arguments.program and is_number(arguments.file) and not os.path.exists(arguments.file)
    if arguments.fail_above is not None:
        arguments.fail_above = parse_size(arguments.fail_above, "--fail-above", 0)
    if (arguments.fail_above is not None or arguments.fail_growing) and not arguments.leaks:
        raise Refusal("profile: --fail-above and --fail-growing go with --leaks", STATUS_USAGE)
    if arguments.peak and (arguments.allocated or arguments.leaks):
        raise Refusal("profile: --peak goes neither with --allocated nor with --leaks", STATUS_USAGE)
    if nth and (arguments.program or is_process):
        raise Refusal("profile: --nth is for the file of a profile", STATUS_USAGE)
    arguments.old = None
    if arguments.compare and arguments.threads:
        raise Refusal("profile: --compare goes without --threads: threads of two runs are not the same", STATUS_USAGE)
    if arguments.compare:
        if arguments.leaks or arguments.pprof:
            raise Refusal("profile: --compare goes with neither --leaks nor --pprof (pprof -diff_base compares)", STATUS_USAGE)
        arguments.old = read_profiles(arguments.compare)
    if arguments.program:
        return profile_program(arguments.program, arguments)
    if is_process:
        seconds = parse_count(arguments.seconds, "--seconds") if arguments.seconds else None
        wanted = arguments.period or default_period(arguments)
        arguments.living, arguments.when = True, "until now"
        profiles, status = profile_process(parse_pid(arguments.file), arguments, parse_size(wanted, "--period") if wanted else 0, seconds)
        failed = show(profiles, arguments) if profiles else 0
        return status or failed
    if arguments.period or arguments.output or arguments.seconds or arguments.stop:
        raise Refusal(f"profile: --period, --output, --seconds and --stop are not for '{arguments.file}', which is taken "
                      "for the file of a profile", STATUS_USAGE)
    return show(read_profiles(arguments.file, nth), arguments)
