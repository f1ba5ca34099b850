# SPDX-License-Identifier: MIT
"""A report of a process, and what became of it since the report before."""
import os
import time

from .callers import Callers
from .document import check, parse
from .processes import Ended, Refusal, STATUS_FAILED, look
from .sites import FIELDS as SITE, SiteNames, check_texts, parse_sites

COUNTERS = {str: int}
SHAPE = {
    "hakmem": {"version": str, "process?": int},
    "totals": dict.fromkeys(("bytes_in_use", "objects_in_use_count", "bytes_cached", "bytes_free_dirty", "bytes_mapped",
                             "arenas_count", "superslabs_count", "huge_count"), int),
    "summary?": {"in_use_bytes?": (int,)},
    "huge_pages?": {},
    "locks?": {},
    "tiers?": {"huge_small_count?": int},
    "counters?": COUNTERS,
    "os_calls?": COUNTERS,
    "classes?": [dict.fromkeys(("object_bytes", "slab_bytes", "in_use", "cached"), int)],
    "arenas?": [{"id": int, "threads": int, "span_cached_bytes": int, "counters?": COUNTERS}],
    "threads?": [{"arena": int, "cached_bytes": int, "counters?": COUNTERS}],
    "sites?": [SITE],
    "named_sites?": [{"name": str, "live_bytes": int, "live_count": int, "allocated_bytes": int}],
}


class Report:
    """Figures of one moment."""

    def __init__(self, process, figures):
        self.at = time.monotonic()
        self.process = process
        self.figures = figures
        self.totals = figures["totals"]
        self.counters = figures.get("counters", {})
        self.os_calls = figures.get("os_calls", {})
        self.classes = figures.get("classes", [])
        self.arenas = figures.get("arenas", [])
        self.threads = figures.get("threads", [])
        self.sites = parse_sites(figures.get("sites", []))


def read_figures(text, pid):
    """The document of a report, checked."""
    try:
        figures = parse(text.decode("latin-1"))  # decode does the rest
        check(figures, SHAPE)
        if not all(map(check_texts, figures.get("sites", []))):
            raise ValueError("a site is no place of a program")
    except ValueError as error:
        raise Refusal(f"the report of process {pid} is not one of hakmem: {error}", STATUS_FAILED) from None
    return figures


def take(observer):
    """Asks the process. Raises Ended when it is not there any more, or another one is."""
    started = observer.process.start
    figures = read_figures(observer.ask("json"), observer.process.pid)
    try:
        process = look(observer.process.pid)
    except Refusal:  # it has ended after it answered
        process = observer.process
    if process.start != started:
        raise Ended(observer.process.pid)
    return Report(process, figures)


class Reporter:
    """Takes reports of a process, and names their sites."""

    def __init__(self, observer):
        self.observer = observer
        self.names = SiteNames(observer.process.pid, observer.process)
        self.callers = Callers(observer)

    def take(self):
        report = take(self.observer)
        self.names.resolve(report.sites)
        report.sites = self.callers.split(self.names.apply(report.sites), self.names)
        return report


def rate(now, before, group, key):
    """How often a second the counter grew; None: there is no earlier report."""
    if before is None or now.at <= before.at:
        return None
    grown = getattr(now, group).get(key, 0) - getattr(before, group).get(key, 0)
    return max(grown, 0) / (now.at - before.at)


def fastest(now, before, group, count):
    """The counters of a group that grow fastest, as (rate, name)."""
    if before is None:
        return []
    rates = [(rate(now, before, group, key), key) for key in getattr(now, group)]
    return sorted((pair for pair in rates if pair[0] > 0), reverse=True)[:count]


def is_terminal(stream):
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
