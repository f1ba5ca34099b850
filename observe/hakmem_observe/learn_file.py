"""The state file of the learner. src/learn/state_file.h defines the format."""
import re

from .processes import Refusal, STATUS_CANNOT

HEADER = "hakmem-learn 1"
KNOBS = ("purge_delay_ms", "bin_bytes", "cache_bytes", "whale_cache_bytes", "huge_threshold")
POINT = " ".join(rf"{name}=(?P<{name}>never|\d+)" for name in KNOBS)
LINE = re.compile(rf"(?P<verdict>\w+) (?P<move>\w+) run=(?P<run>\d+) s=(?P<s>\d+) {POINT} gains=(?P<gains>[-\d,]*)")
GAIN_MIN = 10  # tenths of a percent: LEARN_GAIN_MIN in src/learn/tournament.c
BET = 0.5  # LEARN_BET
ENOUGH = {"adopted": 1000.0, "went_back": 20.0}  # LEARN_EVIDENCE_ADOPT, LEARN_EVIDENCE_BACK


class Decision:
    def __init__(self, match):
        self.verdict, self.move = match["verdict"], match["move"]
        self.run, self.seconds = int(match["run"]), int(match["s"])
        self.point = point_of(match)
        self.gains = [int(gain) for gain in match["gains"].split(",") if gain]

    @property
    def wins(self):
        return sum(gain < -GAIN_MIN for gain in self.gains)

    def evidence(self, against=False):
        """The odds after each pair, as the learner reckoned them."""
        odds, course = 1.0, []
        for gain in self.gains:
            odds *= 1 + BET if (gain < -GAIN_MIN) != against else 1 - BET
            course.append(odds)
        return course


class State:
    def __init__(self, program, runs, options, champion, decisions):
        self.program, self.runs, self.options, self.champion = program, runs, options, champion
        self.decisions = decisions


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
    if not mark or number != b"%d\n" % checksum(body) or len(lines) < 6 or lines[0] != HEADER:
        return None
    options, champion = (re.fullmatch(rf"{name} {POINT}", line)
                         for name, line in zip(("options", "champion"), lines[3:5]))
    decisions = [re.fullmatch(f"decision {LINE.pattern}", line) for line in lines[5:-1]]
    if not (options and champion and all(decisions) and lines[2].removeprefix("runs ").isdigit()):
        return None
    return State(lines[1].removeprefix("program "), int(lines[2].removeprefix("runs ")), point_of(options),
                 point_of(champion), [Decision(match) for match in decisions])


def read(path):
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
    except OSError as error:
        raise Refusal(f"cannot read '{path}': {error.strerror}", STATUS_CANNOT) from None
    state = parse(data)
    if state is None:
        raise Refusal(f"'{path}' is no state file of the learner, or it is damaged", STATUS_CANNOT)
    return state
