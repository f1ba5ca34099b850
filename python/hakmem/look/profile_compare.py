# SPDX-License-Identifier: MIT
"""`./hakmem profile --compare OLD`: what a profile has more and less than another one, by site."""
import os
from dataclasses import dataclass, replace

from .figures import change_in_words, in_words
from .page import cell, change_cell, escape, fill, number_change_cell, pick_cell, table
from .sites import own_frame
from .text import plain


@dataclass
class Change:
    """One site in both profiles. Lines move from version to version, so a site is the name and the function here."""
    label: str
    old_bytes: int = 0
    new_bytes: int = 0
    old_count: int = 0
    new_count: int = 0

    @property
    def bytes(self):
        return self.new_bytes - self.old_bytes


def label_of(stack):
    frame = own_frame(stack.frames)
    return (f"[{stack.site_name}] " if stack.site_name else "") + (frame.label() if frame else "unknown (no stack)")


def builds_of(profiles):
    """{path: what tells builds of the file apart}."""
    found = {}
    for profile in profiles:
        for mapping in profile.mappings:
            found.setdefault(mapping.path, set()).add(mapping.build_id or (mapping.device, mapping.inode))
    return found


def tell_builds_apart(old, new):
    """Addresses without a name mean something only within one build of a file, so those of the older profile that are of
    another build get names of their own. Returns the names of these files, in words."""
    before, now = builds_of(old), builds_of(new)
    apart = {path for path in before.keys() & now.keys() if path.startswith("/") and before[path] != now[path]}
    found = set()

    def apart_frame(frame):
        if frame.function or frame.module not in apart:
            return frame
        found.add(os.path.basename(frame.module))
        return replace(frame, function=f"{frame.label()} of an older build")

    for profile in old:
        for stack in profile.stacks:
            stack.frames = tuple(map(apart_frame, stack.frames))
    return ", ".join(sorted(found))


def compared_remarks(old, new):
    """Tells builds apart; what a reader should know of names that are missing."""
    apart = tell_builds_apart(old, new)
    remarks = [f"In the {which} profile, {sentence}" for which, profiles in (("older", old), ("newer", new))
               for profile in profiles for sentence in profile.remarks]
    if apart:
        remarks.append(f"So memory of {apart} that has not changed may show as less at an address and as more at a function.")
    return remarks


def changes(old, new, measure, count):
    """The sites of the two lists of profiles, the largest change first."""
    found = {}
    for profiles, side in ((old, "old"), (new, "new")):
        for profile in profiles:
            for stack in profile.stacks:
                change = found.setdefault(label_of(stack), Change(label_of(stack)))
                for what, name in (("bytes", measure), ("count", count)):
                    field = f"{side}_{what}"
                    setattr(change, field, getattr(change, field) + stack.sums[name])
    return sorted((change for change in found.values() if change.bytes or change.new_bytes),
                  key=lambda change: (-abs(change.bytes), change.label))


def folded_lines(old, new, measure):
    """Lines "stack old new", as difffolded.pl of the flame graph programs writes them. Frames have no lines: see Change."""
    sums = {}
    for profiles, side in ((old, 0), (new, 1)):
        for profile in profiles:
            for stack in profile.stacks:
                frames = [plain(frame.label()).replace(";", ":") for frame in reversed(stack.shown_frames())]
                sums.setdefault(";".join(frames), [0, 0])[side] += stack.sums[measure]
    return [f"{frames} {before} {after}\n" for frames, (before, after) in sums.items() if before or after]


# Of the page: what a stack has now, had before, and the differences, of which boxes can be drawn.
MEASURES = {"grown_bytes": "more than before", "shrunk_bytes": "less than before", "new_bytes": "now", "old_bytes": "before"}
ROWS_MAX = 300  # of the page's table


def merged_stacks(old, new, measure):
    """Stacks of both, by the names of their functions, with the sums of MEASURES. The frames are those of the newer one."""
    found = {}
    for profiles, side in ((new, "new_bytes"), (old, "old_bytes")):
        for profile in profiles:
            for stack in profile.stacks:
                key = (stack.site_name, stack.is_cut, *(frame.label() for frame in stack.frames))
                frames = tuple(replace(frame, line=0) for frame in stack.frames)
                merged = found.setdefault(key, replace(stack, frames=frames, sums=dict.fromkeys(MEASURES, 0)))
                merged.sums[side] += stack.sums[measure]
    for stack in found.values():
        change = stack.sums["new_bytes"] - stack.sums["old_bytes"]
        stack.sums["grown_bytes" if change > 0 else "shrunk_bytes"] = abs(change)
    return [stack for stack in found.values() if any(stack.sums.values())]


def changes_table(rows):
    most = max([1, *(abs(row.bytes) for row in rows)])
    cells = []
    for row in rows[:ROWS_MAX]:
        bar = f'<small><span class="bar"><i style="width:{100 * abs(row.bytes) / most:.1f}%"></i></span></small>'
        cells.append(f"<tr>{pick_cell(row.label)}"
                     + change_cell(row.bytes, change_in_words(row.bytes) + bar) + cell(in_words(row.old_bytes), row.old_bytes)
                     + cell(in_words(row.new_bytes), row.new_bytes) + number_change_cell(row.new_count - row.old_count)
                     + cell(f"{row.new_count:,}", row.new_count) + "</tr>")
    heads = ("site", "change", "before", "now", "change of blocks", "blocks now")
    return table('class="sites sortable"', [(name, "") for name in heads], cells)


def render_changes(old, new, measure, count, what):
    """A page with the flame graph of the difference."""
    from . import profile_page as page
    rows = [row for row in changes(old, new, measure, count) if row.bytes]
    before, after = (sum(profile.total(measure) for profile in profiles) for profiles in (old, new))
    merged = replace(new[0], stacks=merged_stacks(old, new, measure))
    said = (f"<b>{change_in_words(after - before)} {escape(what)}:</b> {in_words(before)} before, {in_words(after)} now. "
            "All figures are estimates from samples.")
    section = (f'<section class="process" data-process="0"><p class="headline">{said}</p><div class="graph-place"></div>'
               f'<div class="sites-place"><h2>Sites that changed most</h2>{changes_table(rows)}</div></section>')
    return fill("profile", title=escape(f"Heap profiles of {os.path.basename(new[0].program)}, compared"), chooser="", sections=section,
                     facts=escape(f"{old[0].program}, then {new[0].program}"), measures=page.measure_buttons(MEASURES),
                     data=page.script_data([merged], MEASURES))


def print_changes(old, new, measure, count, most):
    def signed(value, word=str):
        return f"{'+' if value > 0 else '-' if value < 0 else ''}{word(abs(value))}"

    rows = changes(old, new, measure, count)
    total = Change("all sites", *(sum(getattr(row, name) for row in rows)
                                  for name in ("old_bytes", "new_bytes", "old_count", "new_count")))
    print(f"{'change':>12} {'before':>12} {'now':>12} {'blocks':>11}  site")
    for row in [total, *[row for row in rows if row.bytes][:most]]:
        print(f"{signed(row.bytes, in_words):>12} {in_words(row.old_bytes):>12} {in_words(row.new_bytes):>12} "
              f"{signed(row.new_count - row.old_count):>11}  {row.label}")
    left = sum(bool(row.bytes) for row in rows) - most
    if left > 0:
        print(f"and {left} more sites that changed (--sites N shows more)")
