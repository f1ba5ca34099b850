# SPDX-License-Identifier: MIT
"""Names of the functions in a report of the guard, which `./hakmem run` prints when the program has ended (run/names.c)."""
import re

from .binaries import Module, sentences
from .files import origin_of, read_input
from .symbols import Files, frames_in_module
from .text import plain, short_name

FIRST = "hakmem: fatal: "
EVENT = re.compile(r"hakmem:   \w+ by thread .*")
FRAME = re.compile(r"hakmem:     #(\d+) 0x[0-9a-f]{1,16} (/.*)\+0x([0-9a-f]{1,16})")
BUILD_ID = re.compile(r"hakmem:   build id ([0-9a-f]{4,128}) (/.*)")
LINE_MAX = 300  # characters of a name


def frame_lines(number, frame):
    place = frame.place()
    return f"hakmem:     #{number} {short_name(frame.label(), LINE_MAX)}" + (f" ({place})" if place else "")


def named_report(lines, files):
    """The lines of one report with functions instead of addresses; [] if there is nothing to name."""
    ids = {match[2]: match[1] for match in map(BUILD_ID.fullmatch, lines) if match}
    found = [match for match in map(FRAME.fullmatch, lines) if match]
    by_module = {}
    for _, path, address in map(re.Match.groups, found):
        path = path.removesuffix(" (deleted)")
        by_module.setdefault(Module(path, ids.get(path, ids.get(f"{path} (deleted)", "")), 0), set()).add(int(address, 16))
    names = {}
    for module, addresses in by_module.items():
        frames = frames_in_module(module, {address: (None, address) for address in addresses}, files)
        names.update({(module.path, address): frames[address] for address in addresses})
    said = []
    for line in lines:
        frame = FRAME.fullmatch(line)
        if frame:
            said += [frame_lines(frame[1], name) for name in names[frame[2].removesuffix(" (deleted)"), int(frame[3], 16)]]
        elif EVENT.fullmatch(line) or line.startswith("hakmem:     #"):
            said.append(line)
    return said if any(frame.function for frames in names.values() for frame in frames) else []


def run(words):
    """Prints the reports of a file with names."""
    lines = [plain(line) for line in read_input(words[0]).decode("utf-8", "replace").split("\n")]
    starts = [number for number, line in enumerate(lines) if line.startswith(FIRST)] + [len(lines)]
    files = Files(0, is_own=True, **origin_of(words[0]))
    for start, end in zip(starts, starts[1:]):
        said = named_report(lines[start:end], files)
        if said:
            print("hakmem: the functions:\n" + "\n".join(said))
    for sentence in sentences(files):
        print(f"hakmem: {sentence}")
    return 0
