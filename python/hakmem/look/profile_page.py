# SPDX-License-Identifier: MIT
"""The page of heap profiles: one HTML file with a flame graph and a table of the sites that hold most memory."""
import os
import re

from .figures import change_in_words, duration, in_words
from .page import cell, change_cell, escape, fill, pick_cell, script_json, table
from .profile import ThreadSites, sites_of, threads_of
from .profile_data import NO_STACK
from .text import plain

FIELDS = ("samples", "allocated_count", "allocated_bytes", "freed_count", "freed_remote_count", "lifetime_ms",
          "live_count", "live_bytes", "live_age_ms", "peak_bytes", "peak_count")  # of the sums, what the page shows
MEASURES = {"live_bytes": "bytes in use", "live_count": "blocks in use", "peak_bytes": "bytes at the peak",
            "allocated_bytes": "bytes allocated", "allocated_count": "blocks allocated"}
PROCESSES_MAX = 100  # the largest of a file; the page says how many it leaves out
SITES_LIVE_MAX, SITES_ALLOCATED_MAX = 150, 50  # rows of the table: by live bytes, and further ones by allocated bytes


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "–"


def blocks(count):
    return f"{count:,} block{'' if count == 1 else 's'}"


def tidy_path(path):
    return os.path.normpath(path) if path else ""


def short_path(path):
    """The end of a path, which says most."""
    return "…/" + "/".join(path.split("/")[-2:]) if path.count("/") > 2 else path


# --- the data of the script ------------------------------------------------------------------------------------------

class Numbers:
    """Values that the script refers to by their numbers."""

    def __init__(self):
        self.numbers = {}

    def of(self, value):
        return self.numbers.setdefault(value, len(self.numbers))

    def all(self):
        return list(self.numbers)


class Tables:
    def __init__(self):
        self.texts, self.functions, self.frames, self.known = Numbers(), Numbers(), Numbers(), {}

    def frame(self, frame):
        """A function is [name, file, module]; a frame [function, line, name with its offset]."""
        number = self.known.get(frame)
        if number is None:
            label = plain(frame.label())
            name = re.sub(r"\+0x[0-9a-f]+$", "", label) if frame.function else label
            of = self.texts.of
            function = self.functions.of((of(name), of(plain(tidy_path(frame.file))), of(plain(frame.module))))
            number = self.known[frame] = self.frames.of((function, frame.line, of(label)))
        return number


def paths_of(profile, tables, by_thread=False):
    """[(numbers of the frames, outermost first, sums)], sorted."""
    return sorted(((tuple(map(tables.frame, reversed(stack.shown_frames(by_thread)))), stack.sums) for stack in profile.stacks),
                  key=lambda pair: pair[0])


def profile_data(profile, tables, fields, by_thread=False):
    """The stacks, each without the frames that it shares with the one before."""
    stacks = paths_of(profile, tables, by_thread)
    kept, added, frames, before = [], [], [], ()
    for path, _ in stacks:
        shared = 0
        for ours, others in zip(path, before):
            if ours != others:
                break
            shared += 1
        kept.append(shared)
        added.append(len(path) - shared)
        frames += path[shared:]
        before = path
    return {"kept": kept, "added": added, "frames": frames,
            "sums": {name: [sums[name] for _, sums in stacks] for name in fields}}


def script_data(profiles, fields, by_thread=False):
    tables = Tables()
    shown = [profile_data(profile, tables, fields, by_thread) for profile in profiles]
    return script_json({"texts": tables.texts.all(), "functions": tables.functions.all(), "frames": tables.frames.all(),
                        "profiles": shown})


# --- what needs no script --------------------------------------------------------------------------------------------

def sparkline(moments, height, width):
    """A small chart of [(milliseconds before the end, bytes)], oldest first."""
    span, most = moments[0][0], max(held for _, held in moments)
    if span <= 0 or most <= 0:
        return ""
    points = [f"{width * (span - ago) / span:.1f},{1 + (height - 2) * (1 - held / most):.1f}" for ago, held in moments]
    said = "; ".join(f"{duration(ago)} before: {in_words(held)}" if ago else f"at the end: {in_words(held)}"
                     for ago, held in moments)
    return (f'<svg class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img">'
            f'<title>{escape(said)}</title><polygon points="0,{height} {" ".join(points)} {width},{height}"/>'
            f'<polyline points="{" ".join(points)}"/></svg>')


def moments_of(profile, history, held_now):
    return [*zip(profile.history_ago_ms, history), (0, held_now)]


def change_since_halfway(moments):
    half = moments[0][0] / 2
    return moments[-1][1] - next(held for ago, held in reversed(moments) if ago >= half)


def mean_cell(total, count, words):
    return cell(words(total / count), f"{total / count:.3f}") if count else cell("–", -1, "dim")


def place_text(frame):
    file = tidy_path(frame.file)
    full = f"{file}:{frame.line}" if file and frame.line else file or frame.module
    short = f"{short_path(file)}:{frame.line}" if file and frame.line else os.path.basename(full)
    return short, full


def site_cell(site):
    """The program's own name for a site stands above the function."""
    if isinstance(site, ThreadSites):
        return pick_cell(site.label(), plain(site.name))
    if site.name:
        place = f"{site.frame.label()} ({place_text(site.frame)[0]})" if site.frame else NO_STACK
        return pick_cell(f"[{site.name}]", place=place, full=place)
    if site.frame is None:
        return f'<td class="name">{NO_STACK}</td>'
    label = site.frame.label()
    return pick_cell(label, re.sub(r"\+0x[0-9a-f]+$", "", label) if site.frame.function else label, *place_text(site.frame))


def site_row(profile, site, totals):
    sum_of = {name: site.total(name) for name in FIELDS}
    live, count = sum_of["live_bytes"], sum_of["live_count"]
    share = 100 * live / totals["live_bytes"] if totals["live_bytes"] else 0
    bar = f'<span class="bar"><i style="width:{share:.1f}%"></i></span>'
    cells = [site_cell(site),
             cell(f'{in_words(live)}<small>{bar}<span class="share">{percent(live, totals["live_bytes"])}</span></small>', live),
             cell(f"{count:,}", count), mean_cell(live, count, in_words), mean_cell(sum_of["live_age_ms"], count, duration)]
    if profile.history_ago_ms:
        moments = moments_of(profile, site.history, live)
        change = change_since_halfway(moments)
        cells.append(change_cell(change, sparkline(moments, 22, 84) + f"<span>{change_in_words(change)}</span>", "growth"))
    freed = sum_of["freed_count"]
    cells += [cell(in_words(sum_of["allocated_bytes"]), sum_of["allocated_bytes"]),
              cell(f'{sum_of["allocated_count"]:,}', sum_of["allocated_count"]),
              mean_cell(sum_of["lifetime_ms"], freed, duration),
              cell(percent(sum_of["freed_remote_count"], freed), sum_of["freed_remote_count"] / freed if freed else -1),
              cell(f'{sum_of["samples"]:,}', sum_of["samples"])]
    return f"<tr>{''.join(cells)}</tr>"


def sites_table(profile, totals):
    by_live = sites_of(profile, "live_bytes")
    by_allocated = sites_of(profile, "allocated_bytes")
    shown = by_live[:SITES_LIVE_MAX]
    names = {(site.label(), site.frame) for site in shown}
    shown += [site for site in by_allocated[:SITES_ALLOCATED_MAX] if (site.label(), site.frame) not in names]
    return rows_table(profile, totals, shown, len(by_allocated), "site",
                 "Function and place in the source that allocates. Frames of the C++ library are left out. A name in brackets "
                 "is one that the program gave (hakmem/site.h).") if shown else ""


def threads_table(profile, totals):
    threads = threads_of(profile, "live_bytes")
    return "<h2>Threads</h2>" + rows_table(profile, totals, threads[:SITES_LIVE_MAX], len(threads), "thread",
                                      "The thread that allocated. It may have ended.")


def rows_table(profile, totals, shown, count, thing, thing_note):
    """Rows of `shown`, of `count` sites or threads."""
    heads = [(thing, thing_note),
             ("in use", "Bytes in blocks that are not freed, and their share of all bytes in use."),
             ("blocks", "Blocks that are not freed."), ("mean size", "Of the blocks in use."),
             ("mean age", "Of the blocks in use.")]
    if profile.history_ago_ms:
        heads.append(("growth", f"Bytes in use over the last {duration(profile.history_ago_ms[0])}, and how they changed in the "
                                "second half of that time."))
    heads += [("allocated", "Bytes of all allocations."), ("allocations", "Number of all allocations."), ("mean life", "Of the freed blocks."),
              ("freed by others", "Share of the freed blocks that another thread freed than the one that allocated."),
              ("samples", "Few samples make a rough estimate: with 4 it is within about 50 %, with 100 within about 10 %.")]
    gap = "<td></td>" if profile.history_ago_ms else ""
    foot = (f"<td>all {count:,} {thing}s</td><td>{in_words(totals['live_bytes'])}</td>"
            f"<td>{totals['live_count']:,}</td><td></td><td></td>{gap}<td>{in_words(totals['allocated_bytes'])}</td>"
            f"<td>{totals['allocated_count']:,}</td><td></td><td></td><td>{totals['samples']:,}</td>")
    left = count - len(shown)
    note = f'<p class="dim">{left:,} smaller {thing}s are not listed.</p>' if left else ""
    rows = [site_row(profile, site, totals) for site in shown]
    return table('class="sites sortable"', heads, rows, foot, sorted_by="in use") + note


def cards(profile, totals):
    live, count = totals["live_bytes"], totals["live_count"]
    figures = [("in use", in_words(live), f"in {blocks(count)}", "live_bytes", live),
               ("at the peak", in_words(totals["peak_bytes"]), f"in {blocks(totals['peak_count'])}, "
                f"{duration(profile.peak_ago_ms or 0)} before", "peak_bytes", totals["peak_bytes"]),
               ("mean block in use", in_words(live / count) if count else "–",
                f"{duration(totals['live_age_ms'] / count)} old on average" if count else "", "live_count", count),
               ("allocated in all", in_words(totals["allocated_bytes"]), f"in {blocks(totals['allocated_count'])}",
                "allocated_bytes", totals["allocated_bytes"]),
               ("mean life of freed blocks",
                duration(totals["lifetime_ms"] / totals["freed_count"]) if totals["freed_count"] else "–",
                f"{percent(totals['freed_remote_count'], totals['freed_count'])} freed by another thread" if totals["freed_count"]
                else "nothing was freed",
                "freed_count", totals["freed_count"]),
               ("samples", f"{totals['samples']:,}", f"of {len(profile.stacks):,} call stacks", "samples", totals["samples"])]
    shown = "".join(f'<div class="card" data-{key.replace("_", "-")}="{value}"><small>{name}</small><b>{text}</b><small>{note}</small></div>'
                    for name, text, note, key, value in figures)
    if profile.history_ago_ms:
        held = [sum(column) for column in zip(*(stack.history for stack in profile.stacks))] or [0] * len(profile.history_ago_ms)
        chart = sparkline(moments_of(profile, held, live), 44, 200)
        if chart:
            shown += (f'<div class="card wide"><small>in use over the last {duration(profile.history_ago_ms[0])}</small>'
                      f"{chart}</div>")
    return f'<div class="cards">{shown}</div>'


def headline(profile, totals):
    program = escape(os.path.basename(profile.program) or "an unknown program")
    if not profile.stacks:
        return f"<b>No block of {program} was sampled.</b> The program allocated too little, or sampling was off."
    sampled = f"hakmem sampled about one block in every {profile.period:,} bytes that the program allocated." if profile.period \
        else "hakmem sampled some blocks; sampling was off when the profile was written."
    return (f"<b>About {in_words(totals['live_bytes'])} were in use in {program}, process {profile.pid}, when this profile was "
            f"written.</b> {sampled} All figures are estimates from these samples.")


def section(profile, number, by_thread):
    totals = {name: profile.total(name) for name in FIELDS}
    name = escape(os.path.basename(profile.program) or "unknown")
    return (f'<section class="process" data-process="{number}"><h2 class="quiet">{name}, process {profile.pid}</h2>'
            f'<p class="headline">{headline(profile, totals)}</p>{cards(profile, totals)}<div class="graph-place"></div>'
            f'<div class="sites-place"><h2>Sites that hold most memory</h2>{sites_table(profile, totals)}'
            f'{threads_table(profile, totals) if by_thread and profile.stacks else ""}</div></section>')


def chooser(profiles):
    options = "".join(f'<option value="{number}">{escape(os.path.basename(profile.program) or "unknown")}, process {profile.pid}: '
                      f'{in_words(profile.total("live_bytes"))} in use, {in_words(profile.total("allocated_bytes"))} allocated</option>'
                      for number, profile in enumerate(profiles))
    return f'<p id="chooser" hidden><label>Process <select id="process">{options}</select></label></p>'


def facts(profiles, left_out):
    said = f"{len(profiles) + left_out:,} processes wrote into this profile" if len(profiles) + left_out > 1 else \
        escape(profiles[0].program or "unknown program")
    return said + (f". The page shows the {len(profiles)} that allocated most." if left_out else "")


def measure_buttons(measures):
    return "".join(f'<button type="button" data-measure="{name}">{text}</button>' for name, text in measures.items())


def render(profiles, title, by_thread=False):
    """The page, as text."""
    profiles = sorted(profiles, key=lambda profile: -profile.total("allocated_bytes"))
    shown = [profile for profile in profiles if profile.stacks][:PROCESSES_MAX] or profiles[:1]
    return fill("profile", title=escape(title), facts=facts(shown, len(profiles) - len(shown)), measures=measure_buttons(MEASURES),
                chooser=chooser(shown) if len(shown) > 1 else "", data=script_data(shown, FIELDS, by_thread),
                sections="".join(section(profile, number, by_thread) for number, profile in enumerate(shown)))
