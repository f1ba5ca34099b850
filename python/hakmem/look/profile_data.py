# SPDX-License-Identifier: MIT
"""Profiles as hak_profile_write writes them: reading, checking, and giving names to their stacks."""
from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field

from .binaries import sentences
from .closed import SHAPE as CLOSED_SHAPE
from .document import check, parse, parse_whole
from .files import origin_of, read_input, written
from .processes import Refusal
from .profile_names import SHAPE as NAMES_SHAPE, named_frames, resolve, with_names
from .symbols import Files, Frame, Symbols

VERSION = 1
CUT_FRAME = Frame("outer frames cut", "", 0, "", 0)  # stands for the outermost frames of a stack that is too deep
NO_STACK = "unknown (no stack)"
UNKNOWN_FRAME = Frame(NO_STACK, "", 0, "", 0)  # the only one of a stack that could not be walked
WHY_NO_STACK = "the program has no unwind tables, or is the child of a fork of threads with glibc before 2.35"
FULL_FRAME = Frame("unknown (the table of stacks is full)", "", 0, "", 0)  # the only one of all stacks without room
SUMS = ("samples", "samples_live", "allocated_count", "allocated_bytes", "usable_bytes", "freed_count", "freed_bytes",
        "freed_remote_count", "lifetime_ms", "live_count", "live_bytes", "live_age_ms")
LIVE_SUMS = ("samples_live", "live_count", "live_bytes", "live_age_ms")
PEAK_SUMS = ("peak_samples", "peak_count", "peak_bytes")  # profiles of older versions do not have them

HEAD = {"hakmem_profile": {"version": int, "time?": int}}
SHAPE = {
    "hakmem_profile": {"process": int, "program": str, "period": int, "started_us?": int, "duration_us?": int, "own_period?": int,
                       "tools_period?": int},
    "history": {"ago_ms": str},
    "mappings": [{"line": str, "build_id?": str, "bias?": str}],
    "modules?": [CLOSED_SHAPE],
    "peak?": {"bytes": int, "ago_ms": int},
    "threads?": [{"number": int, "id": int, "name": str}],
    **NAMES_SHAPE,
    "stacks": [{"frames": str, "history_bytes": str, "site?": str, "cut?": int, "thread?": int} | dict.fromkeys(SUMS, int)
               | {f"{name}?": int for name in PEAK_SUMS}],
}

BEGIN = re.compile(r'(?=\{"hakmem_profile")')  # of a document; in a text the quotes would be escaped
SITE_MODULE = "named site"  # stands for the file of a frame that is the name of a site
THREAD_MODULE = "thread"  # the same for one that is a thread

ALLOCATOR = re.compile(r"(hak__\w+|(hak_)?(malloc|calloc|realloc|reallocarray|free|memalign|posix_memalign|aligned_alloc|p?valloc)|"
                       r"(void\* )?operator new(\[\])?\(.*|_Unwind_Backtrace|sample_take|stack_step|_Zn[aw]\w*)(\+0x[0-9a-f]+)?$")


def numbers(text):
    return [parse_whole(word) for word in text.split()]


def address(word):
    if len(word) > 18:  # 0x and 64 bits
        raise ValueError
    return int(word, 16)


def hint_of(path):
    """What was meant, if the path is that of a program."""
    return f"; a program goes behind --: ./hakmem profile -- {path}" if shutil.which(path) else ""


@dataclass(frozen=True)
class Thread:
    """That took the samples of a stack."""
    id: int  # the kernel's; 0: several threads
    name: str

    def label(self):
        return f"{self.name + ', ' if self.name else ''}thread {self.id}" if self.id else self.name


OTHER_THREADS = Thread(0, "other threads")  # beyond those that a process tells apart, or before it did


@dataclass
class Stack:
    frames: tuple  # of symbols.Frame, innermost first, without those of the allocator
    sums: dict  # by the names of SUMS and PEAK_SUMS
    history: list  # live bytes at the moments of the profile's history_ago_ms
    site_name: str = ""  # that the program gave (hakmem/site.h); "" if none
    is_cut: bool = False  # it has more frames than a profile's stacks: the outermost are missing
    thread: Thread | None = None  # None: the profile does not keep threads apart

    def shown_frames(self, by_thread=False):
        """With a frame for the site's name, which is innermost: flame graphs show it as the tip. With one for those that
        are cut, and, `by_thread`, one for the thread as the outermost."""
        site = (site_frame(self.site_name),) if self.site_name else ()
        thread = (thread_frame(self.thread),) if by_thread else ()
        return (*((*site, *self.frames, *((CUT_FRAME,) if self.is_cut else ())) or (UNKNOWN_FRAME,)), *thread)


def site_frame(name):
    return Frame(f"[{name}]", "", 0, SITE_MODULE, 0)


def thread_frame(thread):
    return Frame(f"[{thread.label()}]", "", 0, THREAD_MODULE, 0)


@dataclass
class Profile:
    program: str
    pid: int
    period: int
    history_ago_ms: list  # moments of the run, milliseconds before the profile was written, oldest first
    stacks: list
    number: int = 1  # of the profiles that the process wrote
    count: int = 1
    peak_ago_ms: int | None = None  # when most was in use, before the profile was written; None: it was not noted
    time: int = 0  # at which it was written, seconds since 1970; 0 if it does not say
    duration_us: int = 0  # from the start of the sampling, or of what it counts; 0 if it does not say
    mappings: list = field(default_factory=list)  # of symbols.Mapping, of code
    remarks: list = field(default_factory=list)  # sentences about missing names

    def total(self, name):
        return sum(stack.sums[name] for stack in self.stacks)

    def has_threads(self):
        return any(stack.thread for stack in self.stacks)


def parse_document(line, path):
    """One line of a profile file, checked."""
    try:
        document = parse(line)
        check(document, HEAD)
        head = document["hakmem_profile"]
        if head["version"] != VERSION:
            raise Refusal(f"'{path}' is a profile of version {head['version']}; this hakmem reads version {VERSION}")
        check(document, SHAPE)
        stacks, mappings = document["stacks"], document["mappings"]
        for stack in stacks:
            stack["history"] = numbers(stack["history_bytes"])
            stack["site"] = str(stack.get("site", ""))
            stack["addresses"] = [address(word) for word in stack["frames"].split()]
        if "threads" in document:
            threads = {thread["number"]: Thread(thread["id"], thread["name"]) for thread in document["threads"]}
            for stack in stacks:
                stack["thread"] = threads.get(stack.get("thread"), OTHER_THREADS)
        head["history"] = numbers(document["history"]["ago_ms"])
        head["modules"] = document.get("modules", [])
        head["named"] = named_frames(document)
        for module in head["modules"]:
            for key in ("start", "end", "base", "head"):
                address(module[key])
        head["peak_ago_ms"] = document["peak"]["ago_ms"] if "peak" in document else None
        if any(len(stack["history"]) != len(head["history"]) for stack in stacks):
            raise ValueError
    except ValueError:
        raise Refusal(f"{path} is not a profile of hakmem, or it is cut{hint_of(path)}") from None
    return head, stacks, mappings


def is_of_allocator(frame):
    return os.path.basename(frame.module).startswith(("libhakmem", "libgcc_s")) or bool(ALLOCATOR.match(frame.function))


def name_stacks(profile, stacks, symbols, known):
    resolve(symbols, {address for stack in stacks for address in stack["addresses"]}, known)
    named = {}
    for stack in stacks:
        frames = [frame for address in stack["addresses"] for frame in symbols.frames[address]]
        while frames and is_of_allocator(frames[0]):
            del frames[0]
        is_cut = bool(stack.get("cut"))
        if is_cut and not stack["addresses"]:
            frames, is_cut = [FULL_FRAME], False
        thread = stack.get("thread")
        key = (stack["site"], is_cut, thread, *frames)
        merged = named.setdefault(key, Stack(tuple(frames), dict.fromkeys(SUMS + PEAK_SUMS, 0), [0] * len(stack["history"]),
                                             stack["site"], is_cut, thread))
        for name in SUMS + PEAK_SUMS:
            merged.sums[name] += stack.get(name, 0)
        merged.history = [a + b for a, b in zip(merged.history, stack["history"])]
    profile.stacks = list(named.values())
    profile.remarks = list(sentences(symbols.files))


def read_profiles(path, nth=None, **origin):
    """A profile of each process that appended to the file: the nth that it wrote, or the last. `origin`: see Files."""
    lines, origin = read_documents(path, **origin)
    return parse_profiles(lines, path, nth, **origin)


def read_documents(path, **origin):
    """The documents of the file, as text, and what is known of where it comes from."""
    try:
        text = read_input(path).decode("utf-8", "replace")
        origin = origin or origin_of(path)
    except OSError as error:
        raise Refusal(f"cannot read '{path}': {error.strerror}{hint_of(path)}") from None
    if not text.strip():
        raise Refusal(f"'{path}' is empty: a process writes its profile there when it exits; one that a signal ends may not have")
    return split_documents(text), origin


def split_documents(text):
    """A document is a line. Behind one that was cut (a full disk, SIGKILL) the next begins in the same line."""
    return [part for line in text.split("\n") for part in BEGIN.split(line) if part.strip()]


def parse_documents(lines, path):
    """The whole documents; a note says how many are not. Refusal if none is whole."""
    documents, damaged = [], None
    for line in lines:
        try:
            documents.append(parse_document(line, path))
        except Refusal as refusal:
            damaged = refusal
    if not documents:
        raise damaged or Refusal(f"'{path}' has no profile")
    left_out = len(lines) - len(documents)
    if left_out:
        what = "1 profile of it is" if left_out == 1 else f"{left_out} profiles of it are"
        print(f"hakmem: '{path}': {what} cut or damaged, and left out", file=sys.stderr)
    return documents


def symbols_of(head, mappings, **origin):
    return Symbols(mappings, Files(head["process"], recorded=head.get("time", 0), **origin), head["modules"])


def name_document(line, path, **origin):
    """The document with the names of its addresses in it. A damaged one stays as it is."""
    try:
        head, stacks, mappings = parse_document(line, path)
    except Refusal:
        return line
    symbols = symbols_of(head, mappings, **origin)
    resolve(symbols, {address for stack in stacks for address in stack["addresses"]}, head["named"])
    return with_names(line, symbols.frames)


def keep_documents(lines, path, output, **origin):
    """Writes the documents to a file, with their names. Returns them as they are then."""
    lines = [name_document(line, path, **origin) for line in lines]
    with written(output) as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


def make_profile(document, number=1, count=1, **origin):
    """With names, of what parse_document has read."""
    head, stacks, mappings = document
    symbols = symbols_of(head, mappings, **origin)
    profile = Profile(head["program"], head["process"], head["period"], head["history"], [], number, count, head["peak_ago_ms"],
                      head.get("time", 0), head.get("duration_us", 0), symbols.mappings)
    name_stacks(profile, stacks, symbols, head["named"])
    return profile


def parse_profiles(lines, path, nth=None, **origin):
    processes = {}
    for number, document in enumerate(parse_documents(lines, path)):
        head = document[0]
        key = (head["process"], head["program"], head.get("started_us", -number))
        processes.setdefault(key, []).append(document)
    found = []
    for documents in processes.values():
        number = nth or len(documents)
        if number <= len(documents):
            found.append(make_profile(documents[number - 1], number, len(documents), **origin))
    if not found:
        most = max(len(documents) for documents in processes.values())
        raise Refusal(f"'{path}' has no profile number {nth}: no process wrote more than {most}")
    return found
