# SPDX-License-Identifier: MIT
"""Sites: the places of a program that allocate, as reports and heap maps list them (docs/observability/profile.md)."""
import os
import re
from dataclasses import dataclass

from .binaries import Module, add_symfs, use_symfs
from .generated import may_be_generated
from .owners import add_wrappers, own_frame, use_wrappers
from .symbols import Files, Frame, frames_in_module, parse_identity

CLOSED = " (closed)"  # ends the path of a library that was closed (src/observe/site_list.c)
KINDS = ("named", "number", "address", "other")
TEXTS = ("kind", "name", "address", "module", "offset")
IDENTITY = ("build_id", "bias")  # of the module; an older hakmem writes none
NUMBERS = ("live_bytes", "live_count", "live_usable_bytes", "allocated_bytes", "allocated_count", "freed_count", "lifetime_ms",
           "remote_permille", "samples")
FIELDS = dict.fromkeys(TEXTS, str) | dict.fromkeys(NUMBERS, int)
HEXADECIMAL = re.compile(r"(0x[0-9a-f]{1,16})?")
DIGITS = re.compile(r"(0x)?[0-9a-f]{0,128}")


def add_naming(parser):
    """The options of all commands that name sites."""
    add_wrappers(parser)
    add_symfs(parser)


def use_naming(arguments):
    use_wrappers(arguments)
    use_symfs(arguments)


@dataclass
class Site:
    """Sums of one site, estimated from samples."""
    kind: str
    name: str  # "" for an address that has not been resolved, or has no name
    address: int  # 0: none
    module: str  # file of the address; "": none
    offset: int  # of the address, a return address, in that file
    live_bytes: int
    live_count: int
    live_usable_bytes: int
    allocated_bytes: int
    allocated_count: int
    freed_count: int
    lifetime_ms: int  # mean of freed blocks
    remote_permille: int  # of the freed blocks, those that another thread freed
    samples: int
    place: str = ""  # file and line of a resolved address
    build_id: str = ""  # of the module; "" if it has none or is not known
    bias: int = None  # what was added to the module's own addresses; None if it is not known
    call: int = None  # the address of the call as the module's symbols have it; None if it is not known

    @property
    def rounding(self):
        """Bytes that blocks in use have beyond what was requested."""
        return max(0, self.live_usable_bytes - self.live_bytes)

    @property
    def key(self):
        """The same for the same site of another run: addresses differ from run to run."""
        if self.kind != "address":
            return (self.kind, self.name)
        return (self.module, self.build_id, self.offset) if self.module else ("", self.address)

    def label(self):
        if self.name:
            return self.name
        if self.kind != "address":
            return self.kind
        call = max(self.offset - 1, 0) if self.bias is None else self.address - 1 - self.bias
        return f"{os.path.basename(self.module)}+{call if self.call is None else self.call:#x}" if self.module else f"{self.address:#x}"

    def title(self):
        """With the place in the source, if it is known."""
        return f"{self.label()} ({self.place})" if self.place else self.label()


def check_texts(record):
    """Whether the strings of a record are well-formed."""
    texts = [record.get(key, "") for key in IDENTITY]
    return (record["kind"] in KINDS and all(HEXADECIMAL.fullmatch(record[key]) for key in ("address", "offset"))
            and all(isinstance(text, str) and DIGITS.fullmatch(text) for text in texts))


def parse_sites(records):
    """The sites of checked records: the one that holds most comes first."""
    sites = [Site(record["kind"], record["name"], int(record["address"] or "0", 16), record["module"].removesuffix(" (deleted)"),
                  int(record["offset"] or "0", 16), *(record[key] for key in NUMBERS), "", *parse_identity(record))
             for record in records]
    return sorted(sites, key=lambda site: (-site.live_bytes, -site.allocated_bytes))


class SiteNames:
    """Gives names to sites that are addresses. Remembers them: a program's addresses stay what they are."""

    def __init__(self, pid, process=None, **origin):
        self.pid, self.process = pid, process  # None: it may have ended
        self.origin = origin  # see files.origin_of
        self.known = {}  # key of a site: Frame
        self.missing, self.remarks = {}, set()  # what binaries.sentences says

    def resolve(self, sites):
        addresses = [site for site in sites if site.kind == "address" and site.key not in self.known]
        if not addresses:
            return
        files = Files(self.pid, self.process, **self.origin)
        by_module = {}
        for site in addresses:
            by_module.setdefault(Module(site.module, site.build_id, None if site.bias is None else 0), []).append(site)
        for module, found in by_module.items():
            if module.path.endswith(CLOSED):
                continue
            generated = files.generated() if may_be_generated(module.path) else None
            for site in found if generated else ():  # the call ends where the return address begins
                name = generated.name(site.address - 1)
                if name or not module.path.startswith("/"):
                    self.known[site.key] = Frame(name, "", 0, module.path, site.address - 1)
            found = [site for site in found if site.key not in self.known]
            if found:
                spots = {site.key: (site.offset - 1, site.address - 1 - (site.bias or 0)) for site in found}
                frames = frames_in_module(module, spots, files)
                for site in found:
                    self.known[site.key] = own_frame(frames[site.key])
        self.missing.update(files.missing)
        self.remarks.update(files.remarks)

    def apply(self, sites):
        """Names the sites as far as they are known."""
        for site in sites:
            frame = self.known.get(site.key) if site.kind == "address" else None
            if frame is not None and frame.module == site.module:
                site.call = frame.offset
            if frame is not None and frame.function:
                site.name = frame.function
                site.place = f"{os.path.basename(frame.file)}:{frame.line}" if frame.file and frame.line else ""
        return sites


def named_sites(records, names):
    """The sites of the records, with names."""
    sites = parse_sites(records)
    names.resolve(sites)
    return names.apply(sites)
