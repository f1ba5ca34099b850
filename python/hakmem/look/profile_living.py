# SPDX-License-Identifier: MIT
"""./hakmem profile PID: the profile of a living process."""
import signal
import sys
import time

from .attach import connect
from .profile_data import keep_documents, parse_document, parse_profiles
from .profile_run import OWN_SIGNALS
from .sampling import Claim, gather, own_part

PERIOD = 512 << 10  # hakmem's own


def say(text):
    print(text, file=sys.stderr)


def stop(observer, head):
    pid = observer.process.pid
    observer.ask("profile_stop")
    print(f"process {pid} is no longer sampled" if own_period(head) else f"process {pid} was not being sampled")
    if head.get("tools_period"):
        print("Another tool samples it until that tool ends.")


def own_period(head):
    return head.get("own_period", head["period"])


def head_of(text, pid):
    return parse_document(text.decode("utf-8", "replace"), f"process {pid}")[0]


def say_period(head, asked):
    """That more is sampled than was asked for, if so."""
    who = "the process samples itself" if own_period(head) == head["period"] else "another tool samples it, too"
    if 0 < head["period"] < asked:
        say(f"{who}: one allocation in {head['period']} bytes, instead of {asked}")


def sample(observer, before, period, arguments, seconds):
    """Samples the process for some seconds. The profile as text, and what gather() got."""
    pid, asked = observer.process.pid, period or PERIOD
    first = head_of(before, pid)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, OWN_SIGNALS)
    claim = Claim(observer, period, arguments.threads)
    try:
        say(f"sampling process {pid} for {seconds} s; blocks that exist already are not counted "
            "(HAKMEM_SAMPLE_BYTES=512k samples from the start)")
        say_period(first, asked)
        began = time.monotonic()
        got = gather(claim, seconds)
        lasted = (got.taken or time.monotonic()) - began
    finally:
        claim.end()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if not got.text:
        raise SystemExit(128 + got.signal) if got.signal else got.why
    if got.signal:
        say(f"hakmem: {signal.Signals(got.signal).name} ended the sampling after {lasted:.1f} s")
    if got.why is not None:
        say(f"hakmem: {got.why}; this is its profile of {time.monotonic() - got.taken:.1f} s before")
    if claim.has_gap:
        say("hakmem: some samples are missing: this tool did not run for some seconds")
    if (last := head_of(got.text, pid))["period"] != first["period"]:
        say_period(last, asked)
    if not arguments.peak:
        return own_part(before, got.text, 1000 * lasted), got
    if b'"samples"' in before:
        say("the peak is that of all samples, also of those that were taken before")
    return got.text, got


def profile_process(pid, arguments, period, seconds):
    """`period`: bytes; 0: any. `seconds`: None: not asked for. Profiles of the process, and the exit status; None if there is
    nothing to show. What samples itself already shows what it has at once, if that does."""
    observer, _ = connect(pid)
    text = observer.ask("profile")
    head, ended, status = head_of(text, pid), False, 0
    if arguments.stop:
        stop(observer, head)
        return None, 0
    own = own_period(head)
    if own and not seconds and (not period or own <= period) and (not arguments.threads or b'"threads"' in text):
        say(f"process {pid} is being sampled already, one allocation in {own} bytes (--stop ends that)")
    else:
        text, got = sample(observer, text, period, arguments, seconds or 10)
        ended = got.is_over()
        status = 128 + got.signal if got.signal else 0
    lines, name = [text.decode("utf-8", "replace")], f"process {pid}"
    origin = {"alive": (0, time.time())} if ended else {"process": observer.process}
    if arguments.output:
        lines = keep_documents(lines, name, arguments.output, **origin)
    return parse_profiles(lines, name, **origin), status
