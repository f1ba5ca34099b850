# SPDX-License-Identifier: MIT
"""Names of code addresses: the functions, files and lines of a process's mappings, by the files that binaries.find allows.
Lines come from llvm-symbolizer if there is one, and from addr2line of binutils."""
import bisect
import contextlib
import itertools
import math
import os
import re
import resource
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace

from .binaries import BUILD_ID, Module, find, open_binary
from .closed import SHIFT, UNKNOWN, ClosedModules, address_of, head_hash
from .elf import Elf
from .generated import ALWAYS, HEXADECIMAL, GeneratedCode, generated_by, may_be_generated
from .inlined import ask_again, missing_in
from .owners import CLONE
from .processes import Late, is_number, is_of_another_user, process_folder, read_text, within
from .text import cut, plain

MAPPING = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) ([0-9a-f]{1,16}) ([0-9a-f]{1,8}):([0-9a-f]{1,8}) (\d{1,20}) *(.*)")
OPEN_FILE = re.compile(r"/proc/self/fd/(\d+)")
TOOL_SECONDS, TOOL_OUTPUT_MAX = 60, 256 << 20  # of a run of binutils, for the largest programs there are
NOBODY = 65534
NAMES_SECONDS = 1.0  # for the names of a process of another user


@dataclass(frozen=True)
class Frame:
    function: str  # "" if unknown
    file: str  # "" if unknown
    line: int
    module: str  # path of the program or library; of code that belongs to no file, what it is, in brackets
    offset: int  # address in the module

    def label(self):
        if self.function or self.module.startswith("["):
            return self.function or self.module
        return f"{os.path.basename(self.module) or 'unknown'}+{self.offset:#x}"

    def place(self):
        if self.file and self.line:
            return f"{self.file}:{self.line}"
        return "" if self.module.startswith("[") else os.path.basename(self.module)


UNMAPPED = "[code that is not mapped any more]"
NOT_TOLD_APART = "[code of a library that was closed]"
GENERATED, GENERATED_WITHOUT_MAP = "[generated code]", "[generated code without a perf map]"


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    offset: int  # in the file, bytes
    path: str
    device: int = 0
    inode: int = 0
    build_id: str = ""  # of the file; "" if it has none or is not known
    bias: int = None  # what was added to the file's own addresses; None if it is not known

    def module(self):
        """The same for each place where the same file is mapped: addresses in it are without the bias."""
        return Module(self.path, self.build_id, None if self.bias is None else 0, self.device, self.inode)


def parse_identity(record):
    """Build id and bias of a record, as far as it has them."""
    build_id, bias = record.get("build_id", ""), record.get("bias", "")
    return (build_id if BUILD_ID.fullmatch(build_id) else "",
            int(bias, 16) if HEXADECIMAL.fullmatch(bias) else None)


def parse_mappings(records):
    """Of lines of /proc/PID/maps, or of records with a line."""
    found = []
    for record in records:
        record = {"line": record} if isinstance(record, str) else record
        match = MAPPING.match(record["line"])
        if match:
            start, end, _, offset, major, minor, inode, path = match.groups()
            device = os.makedev(int(major, 16), int(minor, 16))
            found.append(Mapping(int(start, 16), int(end, 16), int(offset, 16), path.removesuffix(" (deleted)"), device, int(inode),
                                 *parse_identity(record)))
    return sorted(found, key=lambda mapping: mapping.start)


def is_roots(path):
    """Whether nobody but root can put another file there."""
    while True:
        about = os.lstat(path)
        if about.st_uid != 0 or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def rights_for(path):
    """With whose rights binutils reads the file: as root, with those of its owner, who knows what is in it. binutils was not
    made for files of strangers."""
    if os.geteuid() != 0:
        return {}
    user = os.stat(path).st_uid
    if user == 0 and not OPEN_FILE.fullmatch(path) and is_roots(path):
        return {}
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    return {"user": user or NOBODY, "group": NOBODY, "extra_groups": [], "env": environment}


def limit_tool():
    for what, most in ((resource.RLIMIT_FSIZE, TOOL_OUTPUT_MAX), (resource.RLIMIT_CPU, TOOL_SECONDS), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def run_tool(words, path, text=""):
    """The lines that the tool says of the file, or of a text from it; none if it is not installed, fails, or takes too long."""
    tool = shutil.which(words[0])
    if tool is None:
        return []
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(text.encode())
        given.seek(0)
        try:
            kept = [int(number) for number in OPEN_FILE.findall(path)]
            subprocess.run([tool, *words[1:]], stdin=given, stdout=said, stderr=subprocess.DEVNULL, cwd="/", pass_fds=kept,
                           timeout=TOOL_SECONDS, preexec_fn=limit_tool, **rights_for(path))
        except (OSError, subprocess.SubprocessError):
            return []
        said.seek(0)
        return [plain(line) for line in said.read().decode("utf-8", "replace").split("\n")]


class Files:
    """Which files may be opened for the names of a process: what it really maps. If it has ended, there are only its own
    words, or those of whoever wrote the file that has them: then no file of a third user, unless binutils gets that with
    its owner's rights, or we have just run the program (`is_own`)."""

    def __init__(self, pid, process=None, is_own=False, alive=ALWAYS, owner=None, recorded=0):
        self.pid, self.process = pid, process
        self.alive = alive  # a process that has ended lived within these two moments
        self.owner = owner  # of the file that it wrote; None: not known
        self.recorded = recorded  # when the addresses were written, seconds since 1970; 0 if that is not known
        self.found, self.missing, self.remarks = {}, {}, set()  # of binaries.find
        self.tables = {}  # FunctionTable by the paths of its files: a program may be mapped as several modules
        self.left = NAMES_SECONDS if process is not None and is_of_another_user(process) else math.inf
        self.is_trusted = is_own or os.geteuid() == 0
        self.users = {0, os.geteuid(), *(process.uids if process is not None else ())}
        self.mapped = self.mappings = None
        if process is not None:
            try:
                self.mappings = parse_mappings(read_text(f"{process_folder(process.pid)}/maps").split("\n"))
            except OSError:
                self.mappings = []
            self.mapped = {mapping.path for mapping in self.mappings}

    def in_time(self, find, path, otherwise):
        """What find() returns. Another user's process may have files that take long: those that are not root's get
        NAMES_SECONDS in all, and then the result is what otherwise() returns."""
        if math.isinf(self.left) or os.path.exists(path) and is_roots(path):
            return find()
        began = time.monotonic()
        try:
            return within(self.left, find)
        except Late:
            self.remarks.add(f"Some names are missing: another user's process gets {NAMES_SECONDS} s for its names; ask as that user.")
            return otherwise()
        finally:
            self.left -= time.monotonic() - began

    def may_open(self, path):
        if self.mapped is not None:
            return path in self.mapped
        return self.is_of_users(path)

    def is_of_users(self, path):
        try:
            return self.is_trusted or os.lstat(path).st_uid in self.users
        except OSError:
            return False

    def generated(self):
        if self.process is not None:
            return self.in_time(lambda: generated_by(self.process), "", lambda: GeneratedCode(self.pid, (), ()))
        return GeneratedCode(self.pid, {*self.users, self.owner}, alive=self.alive)

    def functions(self, paths, addresses):
        """{address: function, "" if none is known} by the symbol tables of a module's files, the best first."""
        key, addresses = tuple(paths), sorted(addresses)
        if addresses and key not in self.tables:
            self.tables[key] = FunctionTable(paths)
        names = [self.tables[key].name(address) for address in addresses]
        return dict(zip(addresses, demangled(names, paths[0], self)))


class FunctionTable:
    """The functions that a module's symbol tables name, with their sizes. A stripped library has those it exports."""

    def __init__(self, paths):
        self.rows = []  # (start, rank, size, place of the name, path): where tables differ, the highest rank counts
        for path in reversed(paths):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                elf = Elf(file.fileno())
                for rank, table in enumerate((".symtab", ".dynsym"), self.rows[-1][1] + 1 if self.rows else 0):
                    self.rows += [(start, rank, size, place, path) for start, size, place in elf.functions(table)]
        self.rows.sort()

    def name(self, address):
        """The function that holds the address, as the linker knows it; "" if none does: the nearest name before it would be a
        guess. Of several names, the last in the alphabet: `malloc`, not `__libc_malloc`."""
        index = bisect.bisect_right(self.rows, (address, math.inf)) - 1
        if index < 0:
            return ""
        start, rank, *_ = self.rows[index]
        first = bisect.bisect_left(self.rows, (start, rank))
        names = [(path, place) for start, _, size, place, path in self.rows[first:index + 1] if address < start + size]
        if not names:
            return ""
        with contextlib.suppress(OSError), open(names[0][0], "rb") as file:
            elf = Elf(file.fileno())
            return max(elf.name_at(place) for _, place in names).partition("@")[0]
        return ""


DEMANGLERS = (("c++filt", "-i"), ("llvm-cxxfilt",))


def demangled(names, path, files):
    """The names of functions of this file as people write them."""
    names = [plain(name) for name in names]
    tool = next((command for command in DEMANGLERS if shutil.which(command[0])), None)
    if tool is None and any(name.startswith(("_Z", "_R")) for name in names):
        files.remarks.add("Names of C++ and Rust are as the linker knows them: c++filt (package binutils) is not installed.")
    said = run_tool(tool, path, "".join(f"{name}\n" for name in names))[:-1] if tool and names else []
    return [cut(name) for name in (said if len(said) == len(names) else names)]


ARTIFICIAL = "<artificial>"  # what addr2line takes for the file of code that was optimised at link time


def parse_inlined(block):
    """Functions and places of one address as addr2line -fi and llvm-symbolizer print them, innermost first."""
    places = []
    for function, place in zip(block[0::2], block[1::2]):
        place = re.sub(r" \(discriminator \d+\)$", "", place)
        file, _, line = place.rpartition(":")
        known = cut(CLONE.sub("", function)) if function != "??" else ""
        places.append((known, "" if os.path.basename(file) in ("??", ARTIFICIAL) else file, int(line) if is_number(line) else 0))
    if not any(line for _, _, line in places):  # the symbol table has the files that local symbols come from
        return [(function, "", 0) for function, _, _ in places]
    return places


# They answer alike, but addr2line knows less of inlined functions (inlined.py), so it is asked only for what the first does
# not know: debug information that distributions compress with dwz, or all where LLVM is missing.
LLVM_NAMES = ("llvm-symbolizer", *(f"llvm-symbolizer-{version}" for version in range(25, 12, -1)))
LLVM_WORDS = ("--output-style=GNU", "--addresses", "--functions=linkage", "--inlines", "--demangle", "--obj")
BINUTILS = ("addr2line", "-afiCe")


def symbolizers():
    """The commands that tell function, file and line, the best first."""
    llvm = next(filter(shutil.which, LLVM_NAMES), None)
    return ([(llvm, *LLVM_WORDS)] if llvm else []) + [BINUTILS]


def lines_of_module(path, addresses):
    """{address: [(function, file, line)], innermost first}."""
    found = {}
    for command in symbolizers():
        missing = [address for address in addresses if address not in found or not found[address][-1][1]]
        answers = ask_symbolizer(command, path, missing)
        if command == BINUTILS:
            answers = ask_again(answers, path, lambda copy, doubted: ask_symbolizer(BINUTILS, copy, doubted))
        found.update((address, places) for address, places in answers.items() if address not in found or places[-1][1])
    return found


RUST_HASH = re.compile("::h[0-9a-f]{16}$")
RUST_SIGNS = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


def plain_rust(name):
    """The name as people write it: LLVM takes Rust's older mangled names for C++."""
    if not RUST_HASH.search(name):
        return name
    name = re.sub(r"(^|::)_\$", r"\1$", RUST_HASH.sub("", name)).replace("..", "::")
    return re.sub(r"\$(u[0-9a-f]{1,5}|[A-Z]{1,2})\$", plain_rust_sign, name)


def plain_rust_sign(match):
    sign = match.group(1)
    return RUST_SIGNS.get(sign, match.group(0)) if sign[0] != "u" else plain(chr(int(sign[1:], 16)))


def ask_symbolizer(command, path, addresses):
    if not addresses:
        return {}
    marks = "".join(f"{address:#x}\n" for address in addresses)
    output = map(plain_rust, run_tool([*command, path], path, marks))
    found, block, at = {}, [], None
    for line in itertools.chain(output, ["0x0"]):
        if re.fullmatch(r"0x[0-9a-f]{1,16}", line):
            if at is not None:
                found[at] = parse_inlined(block)
            at, block = int(line, 16), []
        else:
            block.append(line)
    return found


def frames_in_module(module, spots, files):
    """{key: [Frame, ...], innermost first} of {key: (offset in the file or None, address in the process)}."""
    return files.in_time(
        lambda: found_in_module(module, spots, files), module.path,
        lambda: {key: [Frame("", "", 0, module.path, address if offset is None else offset)] for key, (offset, address) in spots.items()})


def found_in_module(module, spots, files):
    binary = find(module, files)
    where = {key: module.address(binary, spot) for key, spot in spots.items()}
    if binary is None:
        return {key: [Frame("", "", 0, module.path, offset)] for key, offset in where.items()}
    teller = binary.lines()
    lines = lines_of_module(teller.path, sorted(set(where.values()))) if teller else {}
    if teller and not any(shutil.which(command[0]) for command in symbolizers()):
        files.remarks.add("Lines and inlined functions are missing: addr2line (package binutils) is not installed.")
    elif teller and len(symbolizers()) == 1 and (missing := missing_in(teller.path)):
        files.remarks.add(f"Of {os.path.basename(module.path)}, {missing}.")
    # Without debug information addr2line takes the nearest name before the address.
    unknown = {offset for offset in where.values() if offset not in lines or not lines[offset][-1][1]}
    names, found = files.functions(binary.tables(), unknown), {}
    for key, offset in where.items():
        places = [(names[offset], "", 0)] if offset in names else lines[offset]
        found[key] = [Frame(function, file, line, module.path, offset) for function, file, line in places]
    return found


def frames_in_closed(file, offsets, files):
    """{address: [Frame, ...]} of {address: address in the file} in a file that was closed, as often as it was loaded."""
    path, head = file
    binary = open_binary(path) if files.may_open(path) and head_hash(path) == head else None
    if binary is None:
        return {address: [Frame("", "", 0, path, offset)] for address, offset in offsets.items()}
    about = os.fstat(binary.file.fileno())
    same = Module(path, binary.elf.build_id(), 0, about.st_dev, about.st_ino)
    return frames_in_module(same, {address: (None, offset) for address, offset in offsets.items()}, files)


class Symbols:
    """Frames of the return addresses of one process, some of which have the number of a module (src/observe/loaded.h)."""

    def __init__(self, mapping_records, files, closed=()):
        self.mappings = parse_mappings(mapping_records) or files.mappings or []  # a process that has changed its root tells none
        self.starts = [mapping.start for mapping in self.mappings]
        self.files = files
        self.closed = ClosedModules(closed)
        self.generated = files.generated()
        self.frames = {}

    def mapping_of(self, address):
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.mappings[index].end:
            return self.mappings[index]
        return None

    def file_of_moved_code(self, mapping, address):
        """The mapping as it was: some programs move their code to memory of their own, for huge pages, and back to its place.
        None: it is something else."""
        if mapping is None or mapping.path:
            return None
        before = self.mapping_of(mapping.start - 1)
        found = find(before.module(), self.files) if before and before.path.startswith("/") else None
        if found is None or found.elf() is None:
            return None
        base = before.start - found.elf().address_of(before.offset) if before.bias is None else before.bias
        for offset, size, start in found.elf().code:
            if start <= address - base < start + size:
                return replace(before, start=mapping.start, end=mapping.end, offset=offset + mapping.start - base - start)
        return None

    def resolve(self, addresses):
        """Fills self.frames for all these return addresses: {address: [Frame, ...]}, innermost first."""
        modules, closed = {}, {}
        for address in set(addresses):
            module = self.closed.find(address)
            if module is not None:
                closed.setdefault(module.file, {})[address] = address_of(address) - 1 - module.base
                continue
            if address >> SHIFT:
                self.frames[address] = [Frame("", "", 0, NOT_TOLD_APART, address_of(address) - 1)]
                if address >> SHIFT == UNKNOWN:
                    self.files.remarks.add("The program loaded and closed more libraries than hakmem tells apart (65,536), "
                                           "so some stacks have frames without names.")
                continue
            mapping = self.mapping_of(address - 1)  # the call ends where the return address begins
            path = mapping.path if mapping else ""
            name = self.generated.name(address - 1) if may_be_generated(path) else ""
            if not name:
                mapping = self.file_of_moved_code(mapping, address - 1) or mapping
                path = mapping.path if mapping else ""
            if name or not path.startswith("/"):
                self.frames[address] = [Frame(name, "", 0, path or self.kind_of(mapping), address - 1)]
            else:
                spot = address - 1 - mapping.start + mapping.offset, address - 1 - (mapping.bias or 0)
                modules.setdefault(mapping.module(), {})[address] = spot
        for module, spots in modules.items():
            self.frames.update(frames_in_module(module, spots, self.files))
        for file, offsets in closed.items():
            self.frames.update(frames_in_closed(file, offsets, self.files))

    def kind_of(self, mapping):
        """What code is that no file has."""
        return UNMAPPED if mapping is None else GENERATED if self.generated.ranges else GENERATED_WITHOUT_MAP
