# SPDX-License-Identifier: MIT
"""The names in the files that `./hakmem profile -o` writes: what each address of a profile's stacks was called when the file was
written. So the file can be read when the program is another one, or on another machine."""
import json
from dataclasses import asdict

from .binaries import symfs
from .document import TEXT_MAX
from .symbols import Frame

# Of a document. A frame is known by its index; `frames` of an address are innermost first.
SHAPE = {
    "frames?": [{"function": str, "file": str, "line": int, "module": str, "offset": str}],
    "names?": [{"address": str, "frames": str}],
}


def escaped(value):
    """As hakmem writes text: each byte by itself (document.decode)."""
    return value.encode("utf-8", "replace").decode("latin-1")[:TEXT_MAX] if isinstance(value, str) else value


def with_names(line, frames):
    """The document, a text, with these names: {address: [Frame, ...]}."""
    numbers, records, names = {}, [], []
    for address, found in frames.items():
        for frame in found:
            if frame not in numbers:
                numbers[frame] = len(numbers)
                fields = asdict(frame) | {"offset": f"{frame.offset:#x}"}
                records.append({key: escaped(value) for key, value in fields.items()})
        names.append({"address": f"{address:#x}", "frames": " ".join(str(numbers[frame]) for frame in found)})
    return line.rstrip()[:-1] + f', "frames": {json.dumps(records)}, "names": {json.dumps(names)}}}'


def named_frames(document):
    """{address: [Frame, ...]} of a checked document. ValueError if they are not well-formed."""
    frames = [Frame(record["function"], record["file"], record["line"], record["module"], int(record["offset"][:18], 16))
              for record in document.get("frames", [])]
    found = {}
    for name in document.get("names", []):
        numbers = [int(word) for word in name["frames"].split()]
        if not numbers or min(numbers) < 0 or max(numbers) >= len(frames):
            raise ValueError
        found[int(name["address"][:18], 16)] = [frames[number] for number in numbers]
    return found


def has_names(frames):
    return all(frame.function for frame in frames)


def resolve(symbols, addresses, known):
    """Names these addresses. What the profile itself has no name for is looked up, and all if --symfs says where."""
    symbols.resolve(address for address in addresses if symfs or not has_names(known.get(address, [Frame("", "", 0, "", 0)])))
    for address, frames in known.items():
        if not has_names(symbols.frames.get(address, [Frame("", "", 0, "", 0)])):
            symbols.frames[address] = frames
    unnamed = {frame.module for frames in symbols.frames.values() for frame in frames if not frame.function}
    symbols.files.missing = {path: why for path, why in symbols.files.missing.items() if path in unnamed}
