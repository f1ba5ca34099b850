# SPDX-License-Identifier: MIT
"""./hakmem test --soak and --fuzz."""
import os
import subprocess
import sys
import time

from .ground import JOBS, ROOT, configure, make, say, show_log
from .packages import need
from .look.processes import Refusal


def soak(forms, minutes):
    """The last quarter in the form that checks everything at every step."""
    seconds = 60 * minutes
    for preset in ("release", "debug"):
        forms.make(preset)
    program = "tests/soak/test_soak"
    status = subprocess.run([forms.build / "release" / program, "--seconds", str(seconds - seconds // 4)]).returncode
    if status != 0:
        return status if status > 0 else 128 - status
    path = str(forms.build / "debug" / program)
    sys.stdout.flush()
    os.execv(path, [path, "--seconds", str(seconds // 4), "--drift", "100"])


def fuzz(forms, minutes):
    """libFuzzer, AFL++, then traces. What the first two find stays in the build directory; every later run begins with it."""
    build = forms.build
    need("to fuzz", "clang", "libfuzzer", "afl-fuzz")
    for preset in ("release", "debug", "fuzz"):  # release: the tool of traces; debug: to look at findings
        forms.make(preset)
    (build / "fuzz/found").mkdir(parents=True, exist_ok=True)
    begun = build / "fuzz/begun"
    begun.write_text("")
    status = int(fuzz_by_clang(build, minutes) != 0)
    status |= int(fuzz_by_afl(build, minutes) != 0)
    status |= fuzz_traces(build / "release", minutes)
    found = [path for pattern in ("fuzz/crash-*", "fuzz/timeout-*", "fuzz/oom-*", "fuzz/leak-*", "afl/found/default/crashes/id*",
                                  "afl/found/default/hangs/id*") for path in build.glob(pattern)]
    for finding in found:
        if finding.stat().st_mtime > begun.stat().st_mtime:
            say(f"found: {finding} (see it: {build}/debug/tests/model/test_corpus --file {finding})")
            status = 1
    return status


def fuzz_by_clang(build, minutes):
    return subprocess.run(
        [build / "fuzz/tests/model/fuzz_model", f"-fork={JOBS}", f"-max_total_time={60 * minutes}", "-max_len=4096",
         "-len_control=0", "-timeout=60", "-print_final_stats=1", f"-artifact_prefix={build}/fuzz/", build / "fuzz/found",
         ROOT / "tests/model/corpus"]).returncode


def fuzz_by_afl(build, minutes):
    """The same program: what links it is its compiler."""
    with open(build / "afl.log", "w") as log:
        done = configure(build / "afl", "fuzz", log, "-DCMAKE_C_COMPILER=afl-clang-fast", "-DCMAKE_CXX_COMPILER=afl-clang-fast++") \
            and make(build / "afl", log)
    if not done:
        show_log(build / "afl.log", sys.stderr)
        raise Refusal("the form for AFL++ does not build; the output is above", 1)
    output = build / "afl-fuzz.log"
    say(f"AFL++ for {minutes} minutes; what it says is in {output}")
    switches = ("AFL_AUTORESUME", "AFL_NO_UI", "AFL_NO_COLOR", "AFL_SKIP_CPUFREQ", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES")
    with open(output, "w") as file:
        status = subprocess.run(
            ["afl-fuzz", "-V", str(60 * minutes), "-G", "4096", "-t", "60000", "-i", ROOT / "tests/model/corpus", "-o",
             build / "afl/found", "--", build / "afl/tests/model/fuzz_model"], stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, **dict.fromkeys(switches, "1")}).returncode
    print("\n".join(output.read_text(errors="replace").splitlines()[-4:]), flush=True)
    return status


def fuzz_traces(build, minutes):
    """Traces of unusual events, which the tool must read and replay; 1 if it does not. Each run has seeds of its own."""
    end = time.monotonic() + 60 * minutes
    for seed in range(time.time_ns(), sys.maxsize, 100):
        if time.monotonic() > end or subprocess.run([build / "tests/trace/fuzz_events", build / "hakmem-trace", str(seed),
                                                     "100"]).returncode != 0:
            return int(time.monotonic() <= end)
