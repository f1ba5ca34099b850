# SPDX-License-Identifier: MIT
"""./hakmem learn: Shows what a program has learned (HAKMEM_LEARN=FILE): what was tried, the evidence, what was adopted."""
import math
import statistics

from . import learn_file
from .output import worded
from .processes import source

BARS = "▁▂▃▄▅▆▇█"
MOVES = {
    "smaller_bins": "smaller thread caches", "larger_bins": "larger thread caches",
    "no_huge_pages": "no huge pages", "huge_pages": "huge pages",
    "purge_sooner": "free memory goes back sooner", "purge_later": "free memory goes back later",
    "keep_no_huge": "freed huge blocks go back at once", "keep_huge": "freed huge blocks are kept",
    "back": "the setting before the last change",
}
VERDICTS = {"adopted": "adopted", "dropped": "dropped", "went_back": "went back", "froze": "dropped, nothing is left to try",
            "opened": "the program's work has changed: all is tried again"}
PAIRS_MAX = 40  # LEARN_PAIRS_MAX of src/learn/tournament.h
ODDS_DROP = 20  # LEARN_EVIDENCE_DROP


def add_arguments(parser):
    parser.add_argument("action", metavar="show", choices={"show": ("show", "print what the file says")})
    parser.add_argument("file", type=source, metavar="FILE", help="the file that HAKMEM_LEARN named")


def changes(point, base):
    """The knobs of a setting that differ, as environment variables."""
    return " ".join(f"HAKMEM_{name.upper()}={value}" for name, value in point.items() if value != base[name])


def sparkline(costs):
    """One bar for each pair: high where the change cost less."""
    most = max(map(abs, costs), default=0) or 1
    return "".join(BARS[round((1 - cost / most) / 2 * (len(BARS) - 1))] for cost in costs)


def median_change(differences):
    """The median difference as a change from the setting before, in percent. The file has differences in percent of the mean of both."""
    part = statistics.median(differences) / 100
    return 100 * ((2 + part) / (2 - part) - 1) if part < 2 else math.inf


def verdict(decision):
    """What was decided, and of a change that was dropped, by which rule."""
    if decision.verdict not in ("dropped", "froze"):
        return VERDICTS[decision.verdict]
    if len(decision.costs) >= PAIRS_MAX:
        reason = f"no proof in {PAIRS_MAX} pairs"
    elif max(decision.evidence(against=True), default=0) >= ODDS_DROP:
        reason = f"{ODDS_DROP} to 1 against it"
    else:
        reason = "cost too much time"
    return f"{VERDICTS[decision.verdict]}: {reason}"


def line(decision):
    time = f"{decision.seconds // 60}:{decision.seconds % 60:02}"
    if decision.verdict == "opened":
        return f"{decision.run:>4} {time:>7}  {VERDICTS['opened']}"
    if not decision.costs:
        return f"{decision.run:>4} {time:>7}  {MOVES[decision.move]:<36} {VERDICTS[decision.verdict]}"
    return (f"{decision.run:>4} {time:>7}  {MOVES[decision.move]:<36} {len(decision.costs):>5} {decision.wins:>5} "
            f"{median_change(decision.time):>+7.1f} {median_change(decision.memory):>+8.1f} "
            f"{max(decision.evidence()):>8.3g}  {verdict(decision):<27} {sparkline(decision.costs)}")


def describe(state):
    """The whole answer, line by line."""
    use = changes(state.champion, state.options)
    yield f"{state.program}, {state.runs} run{'s' if state.runs != 1 else ''}"
    moves = {decision.move for decision in state.decisions if decision.costs} - {"back"}
    if use:
        options = "".join(f" --set {name}={value}" for name, value in state.champion.items() if value != state.options[name])
        yield f"Setting now: {use}"
        yield worded(f"The same without learning: ./hakmem run{options} -- PROGRAM")
    elif moves:
        yield f"Setting now: that of the options; {len(moves)} of {len(MOVES) - 1} changes were tried, and none was adopted."
    else:
        yield "Setting now: that of the options; nothing is decided yet: the program has run or allocated too little."
    if state.sites:
        yield f"Long-lived sites, whose objects have slabs of their own: {', '.join(state.sites)}"
        yield "They have them only while HAKMEM_LEARN is set."
    if not state.decisions:
        return
    yield ""
    yield (f"{'run':>4} {'min:s':>7}  {'tried':<36} {'pairs':>5} {'wins':>5} {'time %':>7} {'memory %':>8} {'odds':>8}  "
           f"{'verdict':<27} pair by pair, high is good")
    yield from map(line, state.decisions)
    yield ""
    weight = "" if state.memory_percent == 100 else f", where memory counts {state.memory_percent} % of time"
    yield f"A pair is two stretches of time, one with the change. It wins if time and memory together cost 1 % less{weight}."
    yield "Run: which start of the program. min:s: when it was decided, since that start. Bars: each row has its own scale."
    yield "Time and memory: the change's medians; below 0 it needs less. Odds: the highest of 1 to N that the wins are chance."
    yield f"A test ends after {PAIRS_MAX} pairs at the latest. A change is adopted then if the odds have reached 1,000, and the medians"
    yield "say that time grows by at most 1 % and memory by at most 2 %. After that, the setting before comes back at odds of 20."


def run(arguments):
    for text in describe(learn_file.read(arguments.file)):
        print(text)
