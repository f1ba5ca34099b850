# SPDX-License-Identifier: MIT
"""The state file of the learner. src/learn/learner.h defines the format."""
import re

from .files import read_input
from .processes import Refusal, STATUS_CANNOT

HEADER = "hakmem-learn 1"
KNOBS = ("purge_delay_ms", "bin_bytes", "cache_bytes", "huge_cache_bytes", "huge_threshold")
POINT = " ".join(rf"{name}=(?P<{name}>never|\d+)" for name in KNOBS)
LINE = re.compile(rf"decision (?P<verdict>\w+) (?P<move>\w+) run=(?P<run>\d+) s=(?P<s>\d+) {POINT} "
                  r"time=(?P<time>[-\d,]*) memory=(?P<memory>[-\d,]*)")
FILE_MAX = 1 << 20  # bytes
SITES_MAX = 32  # LEARN_SITES_MAX in src/learn/learner.h
SITE = re.compile(r"apart ([ -~]{1,63})")
GAIN_MIN = 1.0  # percent: LEARN_GAIN_MIN in src/learn/tournament.c
BET = 0.5  # evidence_add in src/learn/tournament.c


class Decision:
    def __init__(self, match, memory_percent):
        self.verdict, self.move = match["verdict"], match["move"]
        self.run, self.seconds = int(match["run"]), int(match["s"])
        self.point = point_of(match)
        # Of each pair, in percent; below 0 the change cost less.
        self.time, self.memory = ([int(number) / 10 for number in match[name].split(",") if number]
                                  for name in ("time", "memory"))
        self.costs = [time + memory_percent / 100 * memory for time, memory in zip(self.time, self.memory)]

    @property
    def wins(self):
        return sum(cost < -GAIN_MIN for cost in self.costs)

    def evidence(self, against=False):
        """The odds for the change, or against it, after each pair, as the learner reckoned them."""
        odds, course = 1.0, []
        for cost in self.costs:
            odds *= 1 + BET if (cost < -GAIN_MIN) != against else 1 - BET
            course.append(odds)
        return course


class State:
    def __init__(self, program, runs, memory_percent, options, champion, sites, decisions):
        self.program, self.runs, self.memory_percent = program, runs, memory_percent
        self.options, self.champion, self.sites, self.decisions = options, champion, sites, decisions


def point_of(match):
    return {name: match[name] if match[name] == "never" else int(match[name]) for name in KNOBS}


def checksum(data):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def parse(data):
    """The state in these bytes; None: they are damaged."""
    body, mark, number = data.rpartition(b"checksum ")
    lines = body.decode("utf-8", "surrogateescape").split("\n")
    if not mark or number != b"%d\n" % checksum(body) or len(lines) < 7 or lines[0] != HEADER:
        return None
    numbers = [re.fullmatch(rf"{name} (\d+)", line) for name, line in zip(("runs", "memory_percent"), lines[2:4])]
    points = [re.fullmatch(rf"{name} {POINT}", line) for name, line in zip(("options", "champion"), lines[4:6])]
    rest = lines[6:-1]
    sites = [SITE.fullmatch(line) for line in rest if line.startswith("apart ")]
    decisions = [LINE.fullmatch(line) for line in rest[len(sites):]]
    if not (all(numbers) and all(points) and all(sites) and all(decisions)) or len(sites) > SITES_MAX:
        return None
    runs, memory_percent = (int(number[1]) for number in numbers)
    return State(lines[1].removeprefix("program "), runs, memory_percent, *map(point_of, points),
                 [site[1] for site in sites], [Decision(decision, memory_percent) for decision in decisions])


def read(path):
    try:
        data = read_input(path)[:FILE_MAX]
    except OSError as error:
        raise Refusal(f"cannot read '{path}': {error.strerror}", STATUS_CANNOT) from None
    state = parse(data)
    if state is None:
        raise Refusal(f"{path} is not a state file of the learner, or it is damaged", STATUS_CANNOT)
    return state
