# SPDX-License-Identifier: MIT
"""Sites of a living process in functions that only pass allocations on, such as xmalloc or those of C++'s library. The report
has one site for each of these; the stacks of the profile tell for whom they allocate."""
import os
from collections import Counter
from dataclasses import replace

from .owners import LIBRARY_FILE, is_of_library, own_frame
from .processes import Refusal
from .profile_data import parse_document
from .symbols import Files, Symbols

ADDRESS_MASK = (1 << 48) - 1  # of a frame; the number of a closed library is above
SUMS = ("live_bytes", "live_count", "allocated_bytes", "allocated_count", "freed_count", "freed_remote_count", "lifetime_ms", "samples")


class Callers:
    """Remembers what the stacks of a process say."""

    def __init__(self, observer):
        self.observer = observer
        self.known = {}  # by a stack's addresses: address of the site in the report, own frame

    def split(self, sites, names):
        """The sites, with those of callers instead of functions that pass allocations on. `names`: of SiteNames."""
        passing = {site.address: site for site in sites if site.kind == "address" and passes(names.known.get(site.key))}
        try:
            stacks = self._stacks() if passing else ()
        except (Refusal, KeyError, OSError):  # it does not answer now
            return sites
        sums, owners, split = {}, {}, set()
        for stack in stacks:
            address, own = self.known[stack["frames"]]
            if address in passing and not stack["site"] and stack["samples"]:
                key = own.label(), own.place()
                sums.setdefault(key, Counter()).update({name: stack[name] for name in SUMS})
                split.add(address)
                owners[key] = min(owners.get(key, (own, address)), (own, address), key=lambda pair: pair[0].offset)
        callers = [site_of(own, passing[address], sums[key]) for key, (own, address) in owners.items()]
        kept = [site for site in sites if site.kind != "address" or site.address not in split]
        return sorted(kept + callers, key=lambda site: (-site.live_bytes, -site.allocated_bytes))

    def _stacks(self):
        """Of the profile now; fills self.known."""
        process = self.observer.process
        head, stacks, mappings = parse_document(self.observer.ask("profile").decode("utf-8", "replace"), f"process {process.pid}")
        fresh = [stack for stack in stacks if stack["frames"] not in self.known]
        if fresh:
            symbols = Symbols(mappings, Files(process.pid, process=process), head["modules"])
            symbols.resolve(address for stack in fresh for address in stack["addresses"])
            for stack in fresh:
                frames = [symbols.frames[address] for address in stack["addresses"]]
                site = next((address for address, found in zip(stack["addresses"], frames) if not is_in_library(found[0])), 0)
                own = own_frame([frame for found in frames for frame in found])
                self.known[stack["frames"]] = (site & ADDRESS_MASK if own is not None else 0, own)
        return stacks


def is_in_library(frame):
    return bool(LIBRARY_FILE.match(os.path.basename(frame.module)))


def passes(frame):
    return frame is not None and is_of_library(frame) and not is_in_library(frame)


def site_of(own, passing, sums):
    """The caller's site, instead of a part of the one through which it allocates."""
    usable = passing.live_usable_bytes * sums["live_bytes"] // max(passing.live_bytes, 1)
    freed = max(sums["freed_count"], 1)
    return replace(passing, name=own.function, module=own.module, offset=own.offset + 1, build_id="", bias=None,
                   place=f"{os.path.basename(own.file)}:{own.line}" if own.file and own.line else "",
                   live_usable_bytes=usable, lifetime_ms=sums["lifetime_ms"] // freed,
                   remote_permille=1000 * sums["freed_remote_count"] // freed,
                   **{name: sums[name] for name in ("live_bytes", "live_count", "allocated_bytes", "allocated_count", "freed_count",
                                                    "samples")})
