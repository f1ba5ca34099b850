# SPDX-License-Identifier: MIT
"""Reads heap maps: the JSON documents of hak_heap_map (docs/observability/formats.md)."""
import re
from dataclasses import dataclass, field

from .binaries import sentences
from .document import check, parse
from .files import origin_of, read_input
from .processes import Refusal
from .sites import FIELDS as SITE, SiteNames, check_texts, named_sites

VERSION = 1
KINDS = ["free_clean", "free_dirty", "free_aged", "kept_spans", "spans", "slabs"]
LETTERS = {"c": "free_clean", "d": "free_dirty", "a": "free_aged", "k": "kept_spans", "s": "spans", "t": "spans"}
WORD = re.compile(r"(?:([cdakst])([0-9]{1,4})|h([0-9]{1,10})|z([0-9]{1,4})"
                  r"|u([0-9]{1,6})(?:f([0-9]{1,6}))?(?:x([0-9]{1,4}))?)")

HEADER = {"version": int, "hakmem": str, "process": int, "program": str, "time": int, "page_bytes": int,
          "slice_bytes": int, "superslab_slices": int, "base": int}
TOTALS = dict.fromkeys(["bytes_mapped", "objects_in_use_count", "arenas_count", "arenas_parked_count", "threads_count"], int)
CLASS = dict.fromkeys(["class", "object_bytes", "slab_slices", "slab_objects", "cached"], int)
SHAPE = {"heap_map": HEADER, "totals": TOTALS, "classes": [CLASS], "sites?": [SITE],
         "superslabs": [{"index": int, "claimed": int, "in_huge_page?": int, "pages": str, "slices": str, "resident": str}],
         "huge_pages?": {"bytes": (int,), "in_use_permille": (int,), "why": str},
         "huge": [dict.fromkeys(["address", "bytes", "resident_bytes", "kept", "age_ms"], int)]}


class MapError(Refusal):
    """One sentence that says why a file is no heap map that this reader can show."""


@dataclass
class HeapClass:
    """The slabs of one size class. Objects: in_use + cached + free + not_carved = capacity."""
    index: int
    object_bytes: int
    slab_slices: int
    slab_objects: int
    cached_most: int  # free objects in thread caches, a moment before or after the others were counted
    slice_bytes: int
    slabs: int = 0
    out: int = 0  # in use or in thread caches
    free: int = 0
    resident_bytes: int = 0

    @property
    def slab_bytes(self):
        return self.slabs * self.slab_slices * self.slice_bytes

    @property
    def cached(self):
        return min(self.cached_most, self.out)

    @property
    def in_use(self):
        return self.out - self.cached

    @property
    def not_carved(self):
        return self.slabs * self.slab_objects - self.out - self.free

    @property
    def in_use_bytes(self):
        return self.in_use * self.object_bytes

    @property
    def cached_bytes(self):
        return self.cached * self.object_bytes

    @property
    def free_bytes(self):
        """What no block has in the slabs: free objects, not carved ones, and the rest of each slab."""
        return self.slab_bytes - self.in_use_bytes - self.cached_bytes

    @property
    def resident_parts(self):
        """Resident bytes in use, cached, and free. Which pages the free objects are on is not known: blocks in use
        count as resident before free ones."""
        in_use = min(self.in_use_bytes, self.resident_bytes)
        cached = min(self.cached_bytes, self.resident_bytes - in_use)
        return in_use, cached, self.resident_bytes - in_use - cached

    @property
    def fill(self):
        return self.in_use / max(1, self.slabs * self.slab_objects)


@dataclass
class HeapMap:
    data: dict  # the document
    name: str   # of the file
    classes: list = field(default_factory=list)
    slices: dict = field(default_factory=dict)  # kind: count of slices
    resident: dict = field(default_factory=dict)  # kind: bytes
    spans: int = 0  # in use
    sites: list = field(default_factory=list)  # of sites.Site, the one that holds most first
    remarks: list = field(default_factory=list)  # sentences about names that are missing
    beside: list = field(default_factory=list)  # of a living process: mapped.parts

    @property
    def header(self):
        return self.data["heap_map"]

    @property
    def totals(self):
        return self.data["totals"]

    @property
    def program(self):
        return self.header["program"].rsplit("/", 1)[-1] or "a program without a name"

    def mapped_blocks(self, kept):
        return [block for block in self.data["huge"] if bool(block["kept"]) == kept]

    def huge(self):
        """Blocks in use above the size of a superslab."""
        most = self.header["slice_bytes"] * self.header["superslab_slices"]
        return [block for block in self.mapped_blocks(False) if block["bytes"] > most]

    def small_mappings(self):
        """Smaller blocks in use that have a mapping of their own: emergency memory, and alignments above a superslab."""
        most = self.header["slice_bytes"] * self.header["superslab_slices"]
        return [block for block in self.mapped_blocks(False) if block["bytes"] <= most]

    def parts(self):
        """Resident bytes of the heap by what they are: in the order of the bar, without overlap."""
        sums = [sum(part) for part in zip(*(c.resident_parts for c in self.classes))] or [0, 0, 0]
        in_use, cached, free = sums
        blocks = self.resident["spans"] + sum(block["resident_bytes"] for block in self.mapped_blocks(False))
        kept = self.resident["kept_spans"] + sum(block["resident_bytes"] for block in self.mapped_blocks(True))
        slices = sum(self.resident[kind] for kind in KINDS[:3])
        return {"in_use": in_use + blocks, "cached": cached, "in_slabs": free, "kept": kept, "slices": slices}


def fail(name, sentence):
    raise MapError(f"{name} {sentence}")


def check_shape(name, data):
    if not isinstance(data, dict) or "heap_map" not in data:
        if isinstance(data, dict) and "hakmem" in data:
            fail(name, "is a report of hakmem, not a heap map; ./hakmem run --heap-map FILE writes a map")
        fail(name, "is not a heap map; ./hakmem run --heap-map FILE writes one")
    header = data["heap_map"]
    version = header.get("version") if isinstance(header, dict) else None
    if type(version) is int and version != VERSION:
        fail(name, f"is a heap map of version {version}, and this hakmem reads version {VERSION}")
    try:
        check(data, SHAPE)
    except ValueError as error:
        fail(name, f"is damaged: {error}")
    for key, least, most in [("slice_bytes", 4096, 1 << 30), ("superslab_slices", 1, 1024), ("page_bytes", 512, 1 << 30)]:
        if not least <= header[key] <= most:
            fail(name, f"is damaged: heap_map.{key} is out of range")


def read_slices(text, classes):
    """The runs of slices that are alike: (kind, slices, spans or slabs that begin there, class, objects out and free in each
    slab). Raises ValueError if the text is malformed."""
    at = 0
    arena = of_class = None
    while at < len(text):
        match = WORD.match(text, at)
        if match is None:
            raise ValueError
        at = match.end()
        letter, length, new_arena, new_class, out, free, times = match.groups()
        if letter:
            yield LETTERS[letter], int(length), letter == "s", None, 0, 0
        elif new_arena:
            arena = int(new_arena)
        elif new_class:
            of_class = classes.get(int(new_class))
        elif of_class is None or arena is None or int(out) + int(free or 0) > of_class.slab_objects:
            raise ValueError
        else:
            times = int(times or 1)
            yield "slabs", times * of_class.slab_slices, times, of_class, int(out), int(free or 0)


def count_slices(heap_map, superslab, classes):
    """Adds the slices of a superslab to the sums of the map. Raises ValueError if its strings are malformed."""
    claimed, digits, at = superslab["claimed"], superslab["resident"], 0
    if len(digits) not in (1, claimed) or not re.fullmatch("[0-8]+", digits):
        raise ValueError
    eighths = [int(digit) for digit in digits] * (claimed // len(digits))
    for kind, count, begun, of_class, out, free in read_slices(superslab["slices"], classes):
        resident = sum(eighths[at:at + count]) * heap_map.header["slice_bytes"] // 8
        at += count
        heap_map.slices[kind] += count
        heap_map.resident[kind] += resident
        if of_class is None:
            heap_map.spans += begun
        else:
            of_class.slabs += begun
            of_class.out += begun * out
            of_class.free += begun * free
            of_class.resident_bytes += resident
    if at != claimed:
        raise ValueError


def count_all(name, heap_map, classes):
    heap_map.slices, heap_map.resident = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    last = -1
    for i, superslab in enumerate(heap_map.data["superslabs"]):
        if not last < superslab["index"] < 1 << 32 or not 1 <= superslab["claimed"] <= heap_map.header["superslab_slices"]:
            fail(name, f"is damaged: superslabs[{i}] has no place in the heap")
        last = superslab["index"]
        try:
            count_slices(heap_map, superslab, classes)
        except ValueError:
            fail(name, f"is damaged: superslabs[{i}] does not say what its slices are")
    heap_map.classes = [of_class for of_class in classes.values() if of_class.slabs]


def from_text(text, name, process=None, callers=None, **origin):
    """The map in a document. `process`: it is of this living process, and `callers` know whose its sites are. `origin`: see
    files.origin_of."""
    try:
        data = parse(text)
    except ValueError:
        if text.lstrip().startswith('{"heap_map"'):
            fail(name, "is cut or damaged: it begins as a heap map and does not end as one")
        fail(name, "is not a heap map; ./hakmem run --heap-map FILE writes one")
    check_shape(name, data)
    heap_map, classes = HeapMap(data, name), {}
    for c in data["classes"]:
        if not 0 < c["slab_slices"] <= data["heap_map"]["superslab_slices"] or c["class"] > 255 or not c["object_bytes"]:
            fail(name, f"is damaged: class {c['class']} has no slabs")
        if c["class"] in classes:
            fail(name, f"is damaged: it has class {c['class']} twice")
        classes[c["class"]] = HeapClass(*(c[key] for key in CLASS), data["heap_map"]["slice_bytes"])
    count_all(name, heap_map, classes)
    heap_map.sites, heap_map.remarks = read_sites(name, data, process, callers, origin)
    return heap_map


def read_sites(name, data, process, callers, origin):
    """The sites, with names, and what is to be said of those without; none if the process took no samples, or its hakmem
    knows no sites."""
    records = data.get("sites", [])
    for i, record in enumerate(records):
        if not check_texts(record):
            fail(name, f"is damaged: sites[{i}] is not a place of a program")
    names = SiteNames(data["heap_map"]["process"], process, **origin)
    sites = named_sites(records, names)
    return callers.split(sites, names) if callers else sites, list(sentences(names))


def load(path):
    """Reads a file. Raises MapError with one sentence."""
    try:
        text, origin = read_input(path).decode("utf-8"), origin_of(path)
    except UnicodeDecodeError:
        fail(path, "is not a heap map; ./hakmem run --heap-map FILE writes one")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it cannot be a file's name"
        raise MapError(f"cannot read {path}: {reason}") from None
    if not text.strip():
        fail(path, "is empty; the process that writes it may not have ended yet")
    return from_text(text, path, **origin)
