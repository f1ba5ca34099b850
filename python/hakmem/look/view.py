# SPDX-License-Identifier: MIT
"""What `top` and `stat` show of a report: lines and tables, without a word of how they are drawn."""
from dataclasses import dataclass, field

from .report import count, duration, fastest, rate, size
from .symbols import names_note
from .text import short_name

BARS = " ▁▂▃▄▅▆▇█"
SITE_MIN = 16  # columns for the name of a site
NAMES = ("site", "part")  # columns whose cells begin at the left
HISTORY = 60  # reports that a sparkline shows

# By key: what the classes are sorted by.
SORTS = {
    "h": ("held", lambda row: row["slab_bytes"]),
    "u": ("in use", lambda row: row["in_use"] * row["object_bytes"]),
    "w": ("free", lambda row: row["slab_bytes"] - row["in_use"] * row["object_bytes"]),
    "c": ("class", lambda row: -row["object_bytes"]),
}
# By key: what the sites are sorted by; `growth` is the change of their live bytes since the report before.
SITE_SORTS = {
    "u": ("in use", lambda site, growth: -site.live_bytes),
    "g": ("growth", lambda site, growth: -growth),
    "w": ("rounding", lambda site, growth: -site.rounding),
    "a": ("allocated", lambda site, growth: -site.allocated_bytes),
}


@dataclass
class Table:
    title: str
    columns: list
    rows: list = field(default_factory=list)

    def drop(self, column):
        at = self.columns.index(column)
        for row in [self.columns, *self.rows]:
            del row[at]


def sparkline(values):
    """One character for each value, the highest for the largest."""
    highest = max(values, default=0) or 1
    return "".join(BARS[round(value / highest * (len(BARS) - 1))] for value in values)


def share(part, whole):
    return f"{100 * part / whole:3.0f} %" if whole else "  - %"


def summary(report, before, history):
    """Some lines on the whole process."""
    totals, process = report.totals, report.process
    resident = report.figures.get("summary", {}).get("in_use_bytes", 0)
    small = report.figures.get("tiers", {}).get("whales_small_count", 0)
    lines = [
        f"process {process.pid} ({process.name}), {process.threads} threads, hakmem {report.figures['hakmem']['version']}",
        f"resident {size(process.rss):>10}   in use {size(totals['bytes_in_use']):>10} "
        f"in {count(totals['objects_in_use_count'])} blocks   resident in use {size(resident)} "
        f"({share(resident, process.rss).strip()} of RSS)",
        f"cached   {size(totals['bytes_cached']):>10}   dirty  {size(totals['bytes_free_dirty']):>10}   "
        f"mapped {size(totals['bytes_mapped'])}   heaps {totals['heaps_count']}   "
        f"superslabs {totals['superslabs_count']}   huge blocks {totals['whales_count'] - small}"
        + (f"   small mappings {small}" if small else ""),
    ]
    if totals.get("peak_bytes_taken"):
        ago_ms = totals.get("peak_taken_ago_ms")
        lines.append(f"peak     {size(totals['peak_bytes_taken']):>10} in slabs, spans and huge blocks"
                     + (f", {duration(ago_ms)} ago" if ago_ms is not None else ""))
    if before is not None:
        lines.append("each second: " + "   ".join(
            f"{name} {count(rate(report, before, group, key) or 0)}" for name, group, key in (
                ("slow mallocs", "counters", "malloc_slow"), ("full bins", "counters", "free_overflow"),
                ("remote frees", "counters", "free_remote"), ("remote batches", "counters", "remote_batches"),
                ("purges", "os_calls", "madvise_dontneed"), ("maps", "os_calls", "mmap"))))
    if len(history) > 1:
        lines.append(f"resident {sparkline([at.process.rss for at in history])}")
        lines.append(f"in use   {sparkline([at.totals['bytes_in_use'] for at in history])}")
    return lines


def classes_table(report, before, sort):
    name, key = SORTS[sort]
    table = Table(f"size classes, by {name}", ["size", "held", "in use", "free", "cached", "used", "blocks/s"])
    earlier = {row["object_bytes"]: row for row in before.classes} if before else {}
    for row in sorted(report.classes, key=key, reverse=True):
        bytes_, used = row["object_bytes"], row["in_use"] * row["object_bytes"]
        growth = ""
        if before is not None:
            grown = row["in_use"] - earlier.get(bytes_, {"in_use": 0})["in_use"]
            growth = f"{grown / (report.at - before.at):+.0f}"
        table.rows.append([size(bytes_), size(row["slab_bytes"]), size(used), size(row["slab_bytes"] - used),
                           size(row["cached"] * bytes_), share(used, row["slab_bytes"]), growth])
    return table


def sites_table(report, before, sort):
    """The sites that were sampled; no rows if none was."""
    name, key = SITE_SORTS[sort]
    table = Table(f"sites, by {name}, estimated from {count(sum(site.samples for site in report.sites))} samples",
                  ["in use", "share", "blocks", "rounding", "allocated", "mean life", "each second", "site"])
    whole = sum(site.live_bytes for site in report.sites)
    earlier = {site.key: site.live_bytes for site in before.sites} if before else {}

    def growth(site):
        return site.live_bytes - earlier.get(site.key, 0) if before else 0

    for site in sorted(report.sites, key=lambda site: key(site, growth(site))):
        each_second = f"{size(growth(site) / (report.at - before.at))}" if before else ""
        life = duration(site.lifetime_ms) if site.freed_count else ""
        table.rows.append([size(site.live_bytes), share(site.live_bytes, whole), count(site.live_count), size(site.rounding),
                           size(site.allocated_bytes), life, each_second, site.title()])
    return table


def sites_note(sites):
    """Lines on the bytes in use of the sites without a name; none if it is not for want of a tool."""
    unnamed = sum(site.live_bytes for site in sites if site.kind == "address" and not site.name)
    note = names_note(size(unnamed)) if unnamed else ""
    return [note] if note else []


def heaps_table(report):
    table = Table("heaps", ["heap", "threads", "kept spans", "cached by threads", "slow mallocs", "remote frees"])
    for heap in report.heaps:
        threads = [thread for thread in report.threads if thread["heap"] == heap["id"]]

        def total(key, own=heap, of=threads):
            return sum(part.get("counters", {}).get(key, 0) for part in [own, *of])

        table.rows.append([str(heap["id"]), str(heap["threads"]), size(heap["span_cached_bytes"]),
                           size(sum(thread["cached_bytes"] for thread in threads)), count(total("malloc_slow")),
                           count(total("free_remote"))])
    return table


def counters_table(report, before):
    table = Table("fastest counters", ["counter", "each second"])
    pairs = fastest(report, before, "counters", 8) + fastest(report, before, "os_calls", 4)
    table.rows = [[name, count(value)] for value, name in sorted(pairs, reverse=True)]
    return table


def tables(report, before):
    """All tables, for a reader without keys."""
    return [classes_table(report, before, "h"), sites_table(report, before, "u"), heaps_table(report), counters_table(report, before)]


def plain(table, most, columns=None):
    """The table as text. Names of sites are shortened to lines of so many columns."""
    rows = [table.columns, *table.rows[:most]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    yield table.title
    has_names = table.columns[-1] in NAMES
    for row in rows:
        line = "  " + "  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths)) + "  "
        room = max(columns - len(line) - 1, SITE_MIN) if columns else len(row[-1])
        yield line + (short_name(row[-1], room) if has_names else row[-1].rjust(widths[-1]))
