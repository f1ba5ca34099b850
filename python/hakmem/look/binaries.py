# SPDX-License-Identifier: MIT
"""The files that name a module's code. A file is known by the build id of what the process mapped, not by its path: behind
that there may be another program by now, or in this root directory. find() is the one place that decides this."""
import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib
from dataclasses import dataclass, replace

from .elf import Elf
from .processes import Refusal, STATUS_USAGE, inside, process_folder

BUILD_ID = re.compile(r"([0-9a-f]{2}){2,64}")
DEBUG_FOLDER = "/usr/lib/debug"
DOWNLOAD_SECONDS = 60
CHECKED_MAX = 1 << 30  # bytes of a file whose checksum is compared
ADDRESS_MASK = (1 << 64) - 1

symfs = []  # the folders of --symfs, which hold files of other machines by their paths or names


def add_symfs(parser):
    parser.add_argument("--symfs", metavar="FOLDER", action="append", default=[],
                        help="take names from the programs, libraries and .debug files in FOLDER whose build ids fit")


def use_symfs(arguments):
    for folder in arguments.symfs:
        if not os.path.isdir(folder):
            raise Refusal(f"--symfs: '{folder}' is not a folder", STATUS_USAGE)
        symfs.append(os.path.abspath(folder))


@dataclass(frozen=True)
class Module:
    """A file as a process mapped it."""
    path: str
    build_id: str = ""  # in hexadecimal digits; "" if it is not known
    bias: int = None  # what was added to the file's own addresses; None if it is not known
    device: int = 0
    inode: int = 0  # 0 if it is not known

    def address(self, found, place):
        """Address in the file of (offset in the file or None, address in the process). Of the very file that was mapped, the
        offset says it: older versions of hakmem could write a wrong bias."""
        offset, address = place
        elf = found.elf() if found else None
        if elf and offset is not None and (found.is_mapped and elf.has_code(offset) or self.bias is None):
            return elf.address_of(offset)
        return offset if self.bias is None else (address - self.bias) & ADDRESS_MASK


class Binary:
    """An open file, and a path by which tools reach the same one."""

    def __init__(self, file, path):
        self.file, self.elf = file, Elf(file.fileno())
        self.origin = path  # as it was found
        self.path = path
        try:
            is_there = not path.startswith("/proc/") and "\n" not in path and os.path.samestat(os.fstat(file.fileno()), os.stat(path))
        except OSError:
            is_there = False
        if not is_there:
            self.path = f"/proc/self/fd/{file.fileno()}"

    def settle(self):
        """Closes what tools reach by a path: a large program has more modules than one may have open files."""
        if not self.path.startswith("/proc/"):
            self.file.close()


def open_binary(path, users=None):
    """The file behind a path, which may be a link of /proc; None if it is no regular file, or of none of these users."""
    try:
        seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        about = os.fstat(seen)
        if not stat.S_ISREG(about.st_mode) or users is not None and about.st_uid not in users:
            return None
        return Binary(os.fdopen(os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_CLOEXEC), "rb"), path)
    except OSError:
        return None
    finally:
        os.close(seen)


class Found:
    """What names a module's code."""

    def __init__(self, own, debug, is_mapped):
        self.own = own  # the module's own file; None: it is not there
        self.debug = debug  # a file with its debug information; None if there is none, or the own one has it
        self.is_mapped = is_mapped  # the own file is what the process mapped, not one of the same build id
        self.mini = None
        if own and not own.elf.has(".symtab") and not debug:
            self.mini = unpack(own.elf.mini())

    def lines(self):
        """The file that tells lines; None if none does."""
        return next((binary for binary in (self.debug, self.own) if binary and binary.elf.has_lines()), None)

    def tables(self):
        """Paths of the files with names of functions, the best first."""
        return [binary.path for binary in (self.debug, self.own, self.mini) if binary]

    def elf(self):
        return self.own.elf if self.own else None


def unpack(data):
    """A file with these bytes, which tools may read with whatever rights they have."""
    if not data:
        return None
    file = tempfile.TemporaryFile()
    file.write(data)
    file.flush()
    os.fchmod(file.fileno(), 0o444)
    return Binary(file, "")


# --- the module's own file -------------------------------------------------------------------------------------------

def is_unchanged(module, binary, files):
    """Whether a file without a recorded id is what was mapped: the same inode, which nobody has touched since."""
    about = os.fstat(binary.file.fileno())
    is_same = module.inode == about.st_ino != 0 and (module.device == about.st_dev or os.major(module.device) == 0)
    written = files.alive[1]  # knows parts of a second, if the file with the addresses is the original
    moment = written if 0 <= written - files.recorded < 1 else files.recorded
    return is_same and (files.mappings is not None or 0 < about.st_ctime <= moment)


def mappings_of(module, files):
    place = (module.device, module.inode)
    return [mapping for mapping in files.mappings or []
            if mapping.path == module.path or module.inode and (mapping.device, mapping.inode) == place]


def living_candidates(module, files):
    """(path, whether it leads to what is mapped, whatever its name is) in a living process. That may see its paths from
    another root directory than we do."""
    same = mappings_of(module, files)
    try:
        place = process_folder(files.process.pid)
        if len({(mapping.device, mapping.inode) for mapping in same}) == 1:
            yield f"{place}/map_files/{same[0].start:x}-{same[0].end:x}", True
        if module.build_id or os.readlink(f"{place}/exe").removesuffix(" (deleted)") == module.path:
            yield f"{place}/exe", True
        yield inside(f"{place}/root", module.path), False
    except OSError:
        pass


def may_try(module, files):
    """A living process may have let a file go that the build id tells. Else it may name only what it maps."""
    return files.may_open(module.path) or bool(module.build_id) and files.is_of_users(module.path)


def own_candidates(module, files):
    if may_try(module, files):
        yield module.path, False  # first, because tools find more from a path than from an open file
        if "\\012" in module.path:  # as the kernel writes the end of a line
            yield module.path.replace("\\012", "\n"), False
    if files.mappings is not None and (module.build_id or mappings_of(module, files)):
        yield from living_candidates(module, files)


def find_own(module, files):
    """The module's own file, and why there is none."""
    same = {(mapping.device, mapping.inode) for mapping in mappings_of(module, files)}
    if not module.inode and len(same) == 1:
        module = replace(module, **dict(zip(("device", "inode"), *same)))
    why = "its file is gone"
    for path, is_mapped in own_candidates(module, files):
        binary = open_binary(path)
        if binary is None:
            why = "its file cannot be read" if path == module.path and os.path.lexists(path) else why
        elif module.build_id:
            if binary.elf.build_id() == module.build_id:
                return binary, ""
            why = "its file is another one now"
        elif is_mapped or is_unchanged(module, binary, files):
            return binary, ""
        else:
            why = "its build id is not known, so its file may be another one now"
    if os.path.lexists(module.path) and not may_try(module, files):
        why = "its file belongs to another user, or the process does not map it any more"
    return None, why


# --- files elsewhere -------------------------------------------------------------------------------------------------

def id_path(build_id):
    return f".build-id/{build_id[:2]}/{build_id[2:]}.debug"


def symfs_candidates(module):
    for folder in symfs:
        yield from (folder + module.path, os.path.join(folder, os.path.basename(module.path)))
        yield from (f"{folder}{module.path}.debug", os.path.join(folder, os.path.basename(module.path) + ".debug"))
        yield f"{folder}{DEBUG_FOLDER}{module.path}.debug"
        if module.build_id:
            yield from (os.path.join(folder, id_path(module.build_id)), f"{folder}{DEBUG_FOLDER}/{id_path(module.build_id)}")


def debug_candidates(module, link, files):
    """Paths of files with debug information, of this machine and of the process's root directory."""
    roots = [""]
    if files.mappings is not None:
        try:
            roots.insert(0, f"{process_folder(files.process.pid)}/root")
        except OSError:  # it has ended
            pass
    places = [f"{DEBUG_FOLDER}/{id_path(module.build_id)}"] if module.build_id else []
    if link:
        folder = os.path.dirname(module.path)
        places += [f"{folder}/{link[0]}", f"{folder}/.debug/{link[0]}", f"{DEBUG_FOLDER}{folder}/{link[0]}"]
    for root in roots:
        for place in places:
            try:
                yield inside(root, place) if root else place
            except OSError:
                pass


def has_checksum(binary, checksum):
    value, done = 0, 0
    binary.file.seek(0)
    while done <= CHECKED_MAX:
        piece = binary.file.read(1 << 20)
        if not piece:
            return value == checksum
        value, done = zlib.crc32(piece, value), done + len(piece)
    return False


def belongs(binary, module, link):
    """Whether a file with debug information is this module's."""
    if module.build_id:
        return binary.elf.build_id() == module.build_id
    return link is not None and has_checksum(binary, link[1])


def download(what, module, files):
    """A file from the servers of DEBUGINFOD_URLS, which debuginfod's own client keeps; None if there is none."""
    if not os.environ.get("DEBUGINFOD_URLS", "").strip() or not module.build_id:
        return None
    tool = shutil.which("debuginfod-find")
    if tool is None:
        files.remarks.add("DEBUGINFOD_URLS is set, but debuginfod-find is not installed (Debian: debuginfod)")
        return None
    try:
        said = subprocess.run([tool, what, module.build_id], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=DOWNLOAD_SECONDS, text=True, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
    binary = open_binary(said.stdout.strip()) if said.returncode == 0 else None
    return binary if binary and binary.elf.build_id() == module.build_id else None


def find_debug(module, own, files):
    link = own.elf.debug_link() if own else None
    users = None if files.is_trusted or files.mappings is not None else files.users
    candidates = [(path, None) for path in symfs_candidates(module)]
    candidates += [(path, users) for path in debug_candidates(module, link, files)]
    for path, allowed in candidates:
        binary = open_binary(path, allowed)
        if binary and belongs(binary, module, link) and (binary.elf.has_lines() or binary.elf.has(".symtab")):
            return binary
    return None


def find(module, files):
    """Found, or None: then files.missing says why the module has no names."""
    if module in files.found:
        return files.found[module]
    own, why = find_own(module, files)
    is_mapped = own is not None
    if own is None:
        candidates = (open_binary(path) for path in symfs_candidates(module) if module.build_id)
        own = next((binary for binary in candidates if binary and binary.elf.build_id() == module.build_id), None)
    debug = None
    if own is None and module.bias is None:  # a debug file does not tell what was mapped where
        pass
    elif own is None or not own.elf.has_lines():
        debug = find_debug(module, own, files)
        if debug is None and not (own and own.elf.has(".symtab")):
            debug = download("debuginfo", module, files)
    own = own if own or debug else download("executable", module, files)
    found = Found(own, debug, is_mapped) if own or debug else None
    if found is None:
        files.missing[module.path] = why
    for binary in (own, debug):
        if binary:
            binary.settle()
    files.found[module] = found
    return found


def sentences(files):
    """What a reader should know of names that are missing."""
    for path, why in sorted(files.missing.items())[:3]:
        yield f"{os.path.basename(path)} has offsets instead of names: {why} ({path}; --symfs FOLDER names where the right one is)."
    if len(files.missing) > 3:
        yield f"So have {len(files.missing) - 3} more files."
    yield from sorted(files.remarks)
