# SPDX-License-Identifier: MIT
"""What `top` and `stat` show of a report: lines and tables, without a word of how they are drawn."""
from dataclasses import dataclass, field

from .figures import count, duration, size
from .report import fastest, rate
from .text import short_name

BARS = " ▁▂▃▄▅▆▇█"
SITE_MIN = 16  # columns for the name of a site
NAMES = ("site", "part")  # columns whose cells begin at the left
HISTORY = 60  # reports that a sparkline shows
USED, FREE = "█", "░"  # cells of a bar
BAR_MIN, BAR_MAX = 8, 40  # columns of the bars; those of sites have BAR_SITES
BAR_SITES, SITES_WIDE = 14, 110  # from so many columns of the screen on
SITES_FULL, SITES_NARROW = 100, ("rounding", "mean life")  # a narrower screen has no room for these

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
    bars: list = field(default_factory=list)  # a row's (bytes in use, bytes in all), for screens

    def drop(self, column):
        at = self.columns.index(column)
        for row in [self.columns, *self.rows]:
            del row[at]


def bar(used, whole, longest, width):
    """A bar of at most `width` columns, for `longest` bytes: the part in use, and the free part."""
    cells = round(width * whole / longest) if longest else 0
    cells = max(cells, 1) if whole else 0
    filled = round(cells * used / whole) if whole else 0
    return USED * filled + FREE * (cells - filled)


def sparkline(values, highest):
    """One character for each value; the highest one stands for `highest`."""
    highest = highest or 1
    return "".join(BARS[round(value / highest * (len(BARS) - 1))] for value in values)


def share(part, whole):
    return f"{100 * part / whole:3.0f} %" if whole else "  - %"


def summary(report, before, history):
    """Some lines on the whole process."""
    totals, process = report.totals, report.process
    resident = report.figures.get("summary", {}).get("in_use_bytes") or 0
    small = report.figures.get("tiers", {}).get("huge_small_count", 0)
    lines = [
        f"process {process.pid} ({process.name}), {process.threads} threads, hakmem {report.figures['hakmem']['version']}",
        f"resident {size(process.rss):>10}   in use {size(totals['bytes_in_use']):>10} "
        f"in {count(totals['objects_in_use_count'])} blocks   resident in use {size(resident)} "
        f"({share(resident, process.rss).strip()} of RSS)",
        f"cached   {size(totals['bytes_cached']):>10}   dirty  {size(totals['bytes_free_dirty']):>10}   "
        f"mapped {size(totals['bytes_mapped'])}   arenas {totals['arenas_count']}   "
        f"superslabs {totals['superslabs_count']}   huge blocks {totals['huge_count'] - small}"
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
        resident, in_use = [at.process.rss for at in history], [at.totals["bytes_in_use"] for at in history]
        highest = max(resident + in_use)
        lines += [f"{name} {sparkline(values, highest)} from 0 to {size(highest)}" for name, values in
                  (("resident", resident), ("in use  ", in_use))]
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
        table.bars.append((used, row["slab_bytes"]))
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
        table.bars.append((site.live_bytes, site.live_bytes))
    return table


def arenas_table(report):
    table = Table("arenas", ["arena", "threads", "kept spans", "cached by threads", "slow mallocs", "remote frees"])
    for arena in report.arenas:
        threads = [thread for thread in report.threads if thread["arena"] == arena["id"]]

        def total(key, own=arena, of=threads):
            return sum(part.get("counters", {}).get(key, 0) for part in [own, *of])

        table.rows.append([str(arena["id"]), str(arena["threads"]), size(arena["span_cached_bytes"]),
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
    return [classes_table(report, before, "h"), sites_table(report, before, "u"), arenas_table(report), counters_table(report, before)]


def plain(table, most, columns=None):
    """The table as text: the title, the heads and the rows. On a screen of so many columns it has bars, all of one scale,
    and names of sites are shortened."""
    has_names = table.columns[-1] in NAMES
    if has_names and columns and columns < SITES_FULL:
        for column in set(SITES_NARROW) & set(table.columns):
            table.drop(column)
    rows = [table.columns, *table.rows[:most]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    bars = bars_of(table, most, widths, has_names, columns)
    yield table.title
    for row, drawn in zip(rows, ["", *bars] if bars else [""] * len(rows)):
        line = "  " + "  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths)) + "  "
        if has_names and bars:
            line += drawn.ljust(BAR_SITES) + "  "
        room = max(columns - len(line) - 1, SITE_MIN) if columns else len(row[-1])
        last = short_name(row[-1], room) if has_names else row[-1].rjust(widths[-1])
        yield (line + last + ("  " + drawn if drawn and not has_names else "")).rstrip()


def bars_of(table, most, widths, has_names, columns):
    """The bars of the rows; none if there is no room. The title then tells their scale."""
    width = 0
    if table.bars and columns:
        room = columns - 1 - sum(widths) - 2 * len(widths) - 2
        width = (BAR_SITES if columns >= SITES_WIDE else 0) if has_names else min(room, BAR_MAX)
    if width < BAR_MIN:
        return []
    longest = max(whole for _, whole in table.bars[:most])
    table.title += f"   {USED} in use" + ("" if has_names else f"  {FREE} free") + f", bars from 0 to {size(longest)}"
    return [bar(used, whole, longest, width) for used, whole in table.bars[:most]]
