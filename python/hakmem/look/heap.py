# SPDX-License-Identifier: MIT
"""./hakmem heap: makes one HTML page of a heap map, or of two maps that it compares."""
import os
import time
from pathlib import Path

from .attach import connect
from .callers import Callers
from .files import keep_inputs, written
from .figures import change_in_words, duration, in_words, percent_text
from .heap_map import MapError, from_text, load
from .mapped import parts as parts_beside
from . import page
from .page import cell, escape, fill, number_change_cell, script_json
from .processes import Refusal, STATUS_USAGE, is_number, parse_pid, source
from .report import read_figures
from .sites import add_naming, use_naming
from .text import short_name

PARTS = [
    ("in_use", "in use", "Blocks that the program has not freed."),
    ("cached", "free in thread caches", "Freed blocks that threads keep for their next allocations."),
    ("in_slabs", "free inside slabs", "Free space between blocks in use. Whole pages of it may go back after seconds, the "
                                      "rest when the blocks beside it are freed."),
    ("kept", "kept for reuse", "Freed blocks above 64 KiB that hakmem keeps for a moment."),
    ("slices", "free slices", "Free memory that no block is in, not given back yet."),
]
RETURNABLE = ["kept", "slices"]


def object_text(size):
    return f"{size} B" if size < 1024 else f"{size / 1024:.1f} KiB".replace(".0 ", " ")


def count_text(number, noun):
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("ss") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def time_text(seconds):
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds < 1 << 40 else "unknown time"


# --- what the map says, in sentences -----------------------------------------------------------------------------

def most_wasteful(heap_map):
    """The class with the most free memory in its slabs, if that is worth a sentence."""
    classes = sorted(heap_map.classes, key=lambda c: c.resident_parts[2])
    return classes[-1] if classes and classes[-1].resident_parts[2] >= sum(heap_map.parts().values()) / 50 else None


def sentences(heap_map):
    parts = heap_map.parts()
    whole = sum(parts.values())
    back = sum(parts[key] for key in RETURNABLE)
    result = [f"{percent_text(parts['in_use'], whole)} of the heap's {in_words(whole)} of resident memory is in use: "
              f"{in_words(parts['in_use'])} in {count_text(heap_map.totals['objects_in_use_count'], 'block')}."]
    result.append(f"{in_words(back)} could go back to the system now." if back else
                  "Nothing could go back to the system now.")
    if parts["in_slabs"]:
        result.append(f"{in_words(parts['in_slabs'])} is free space inside slabs, between blocks in use.")
    worst = most_wasteful(heap_map)
    if worst:
        result.append(f"Objects of {object_text(worst.object_bytes)} have most of it: "
                      f"{in_words(worst.resident_parts[2])}, in slabs that are {percent_text(worst.fill, 1)} in use.")
    return [sentence[0].upper() + sentence[1:] for sentence in result]


def huge_pages(heap_map):
    """How much lies in huge pages, and sentences about it: how full the superslabs there are, and why it is not more."""
    found = heap_map.data.get("huge_pages", {"bytes": None, "in_use_permille": None, "why": ""})
    held, used, whole = found["bytes"], found["in_use_permille"], sum(heap_map.parts().values())
    notes = [f"{percent_text(held, whole)} of the resident heap"] if held else []
    notes += [f"blocks fill {percent_text(used, 1000)} of the superslabs there"] if used is not None else []
    return "unknown" if held is None else in_words(held), notes + [found["why"]] * (found["why"] != "")


def summary(heap_map):
    """For a terminal."""
    parts = heap_map.parts()
    whole = sum(parts.values())
    lines = [f"{heap_map.program}, process {heap_map.header['process']}, {time_text(heap_map.header['time'])}"]
    lines += [f"  {name:<22}{in_words(parts[key]):>11}  {percent_text(parts[key], whole):>9}" for key, name, _ in PARTS]
    lines.append(f"  {'resident heap':<22}{in_words(whole):>11}")
    lines.append(f"  {'could go back now':<22}{in_words(sum(parts[key] for key in RETURNABLE)):>11}")
    held, notes = huge_pages(heap_map)
    lines += [f"  {'in huge pages':<22}{held:>11}", *(f"    {note}" for note in notes)]
    lines += [f"  {name + ', beside it':<33}{in_words(size):>11}" for name, size, _ in heap_map.beside if size]
    return lines


def sampled_text(heap_map):
    return count_text(sum(site.samples for site in heap_map.sites), "sample")


# --- parts of the page ----------------------------------------------------------------------------------------------

def bar(heap_map, title=""):
    parts = heap_map.parts()
    whole = sum(parts.values())
    cells, labels = [], []
    for key, name, help_text in PARTS:
        share = 100 * parts[key] / whole if whole else 0
        said = f"{in_words(parts[key])}, {percent_text(parts[key], whole)}"
        if share:
            cells.append(f'<span class="part {key}" style="width:{share:.3f}%" title="{escape(name)}: {said}"></span>')
        labels.append(f'<li><i class="part {key}"></i><b>{in_words(parts[key])}</b> {escape(name)}'
                      f'<small>{percent_text(parts[key], whole)}. {escape(help_text)}</small></li>')
    return (f'{title}<div class="bar" role="img" aria-label="Resident memory by use; the list below has the figures">'
            f'{"".join(cells)}</div><ul class="parts">{"".join(labels)}</ul>')


def cards(heap_map):
    parts, totals = heap_map.parts(), heap_map.totals
    slab_bytes = sum(c.slab_bytes for c in heap_map.classes)
    kept = heap_map.mapped_blocks(True)
    figures = [
        ("could go back now", in_words(sum(parts[key] for key in RETURNABLE)),
         f"{in_words(parts['slices'])} in free slices, {in_words(parts['kept'])} in freed blocks kept for reuse"),
        ("resident heap", in_words(sum(parts.values())), f"of {in_words(totals['bytes_mapped'])} mapped"),
        ("superslabs", f"{len(heap_map.data['superslabs']):,}",
         f"{sum(heap_map.slices.values()):,} slices of {in_words(heap_map.header['slice_bytes'])}"),
        ("slabs", f"{sum(c.slabs for c in heap_map.classes):,}",
         f"{in_words(slab_bytes)}, {percent_text(sum(c.in_use_bytes for c in heap_map.classes), slab_bytes)} in use"),
        ("spans in use", f"{heap_map.spans:,}", "blocks of 64 KiB to 2 MiB"),
        ("huge blocks in use", f"{len(heap_map.huge()):,}",
         f"{in_words(sum(w['bytes'] for w in heap_map.huge()))} above 2 MiB each; {count_text(len(kept), 'freed one')} kept"),
        ("in huge pages", huge_pages(heap_map)[0], "; ".join(huge_pages(heap_map)[1])),
        ("arenas", f"{totals['arenas_count']:,}", f"{count_text(totals['threads_count'], 'thread')}; {totals['arenas_parked_count']} without threads"),
    ]
    if heap_map.beside:
        figures.append(("beside the heap", in_words(sum(size for _, size, _ in heap_map.beside)),
                        "; ".join(f"{in_words(size)} {name}" for name, size, _ in heap_map.beside if size)))
    return '<div class="cards">' + "".join(
        f'<div class="card"><small>{escape(name)}</small><b>{escape(value)}</b><small>{escape(note)}</small></div>'
        for name, value, note in figures) + "</div>"


def size_cell(size):
    return cell(in_words(size) if size else "–", size, "" if size else "dim")


def slab_bar(c, largest):
    """The slab memory of a class, with a bar whose scale is the same for all: the largest class fills it."""
    used = c.in_use_bytes, c.cached_bytes, c.free * c.object_bytes
    widths = zip(("in_use", "cached", "in_slabs", "unused"), (*used, c.slab_bytes - sum(used)))
    spans = "".join(f'<span class="part {key}" style="width:{100 * size / largest:.2f}%"></span>' for key, size in widths if size > 0)
    return (f'<td data-value="{c.slab_bytes}" title="in use, in caches, free, never used">'
            f'<span class="bar small">{spans}</span>{in_words(c.slab_bytes)}</td>')


def class_table(heap_map):
    """The class with the most slab memory comes first."""
    heads = [("object size", ""), ("slabs", ""), ("slab memory", ""), ("filled", "share of the objects that are in use"),
             ("in use", ""), ("in caches", "free objects in thread caches"), ("free", "free objects in slabs"),
             ("never used", "objects that no one has had yet, and the rest of each slab"), ("resident", ""),
             ("resident, free", "resident memory of the slabs that no block in use needs")]
    rows = []
    classes = sorted(heap_map.classes, key=lambda c: (-c.slab_bytes, c.object_bytes))
    for c in classes:
        free = c.free * c.object_bytes
        rows.append(
            f'<tr data-class="{c.index}" data-slabs="{c.slabs}" data-in-use="{c.in_use}">'
            f'<td data-value="{c.object_bytes}"><button class="pick" data-class="{c.index}">{object_text(c.object_bytes)}'
            f'</button></td>{cell(f"{c.slabs:,}", c.slabs)}{slab_bar(c, max(1, classes[0].slab_bytes))}{cell(percent_text(c.fill, 1), f"{c.fill:.6f}")}{size_cell(c.in_use_bytes)}'
            f"{size_cell(c.cached_bytes)}{size_cell(free)}{size_cell(c.free_bytes - free)}{size_cell(c.resident_bytes)}"
            f"{size_cell(c.resident_parts[2])}</tr>")
    sums = [sum(values) for values in zip(*((c.slabs, c.slab_bytes, c.in_use_bytes, c.cached_bytes, c.free * c.object_bytes,
                                             c.free_bytes - c.free * c.object_bytes, c.resident_bytes, c.resident_parts[2])
                                            for c in heap_map.classes))] or [0] * 8
    foot = (f"<td>all</td><td>{sums[0]:,}</td><td>{in_words(sums[1])}</td><td></td>"
            + "".join(f"<td>{in_words(size)}</td>" for size in sums[2:]))
    return table("classes", heads, rows, foot)


def table(name, heads, rows, foot=""):
    return page.table(f'id="{name}" class="sortable"', heads, rows, foot)


# Words of the heads of both tables of sites.
SITE_HEAD = ("site", "A name that the program gave (hakmem/site.h), or the function that called malloc or operator new.")
ROUNDING_HEAD = "Bytes of the blocks in use beyond what was requested: sizes are rounded up to size classes and pages."


NAME_MAX = 80  # characters of a site's name in a table; the tip has the whole


def site_cell(site):
    label = site.label()
    return (f'<td class="name" data-value="{escape(label)}" title="{escape(label)}">{escape(short_name(label, NAME_MAX))}'
            + (f"<small>{escape(site.place)}</small>" if site.place else "") + "</td>")


def site_table(heap_map):
    """Waste by site. The figures are estimates from samples."""
    sites = heap_map.sites
    if not sites:
        return ('<p class="dim">The program took no samples, so its sites are unknown. Start it with HAKMEM_SAMPLE_BYTES=512k, or call '
                "hak_profile_start.</p>")
    live, rounding = sum(site.live_bytes for site in sites), sum(site.rounding for site in sites)
    heads = [SITE_HEAD, ("in use", "Requested bytes of the blocks in use."), ("share", "Of the bytes in use of all sites."),
             ("blocks", "Blocks in use."), ("rounding", ROUNDING_HEAD),
             ("of its memory", "Rounding as a share of the usable bytes of the site's blocks."),
             ("of all rounding", "The site's share of the rounding of all sites."), ("allocated", "Bytes of all allocations so far."),
             ("mean life", "Of the freed blocks."), ("freed by others", "Share of the freed blocks that another thread freed."),
             ("samples", "Few samples make a rough estimate: with 4 it is within about 50 %, with 100 within about 10 %.")]
    rows = []
    for site in sites:
        freed = site.freed_count
        rows.append(f"<tr>{site_cell(site)}{size_cell(site.live_bytes)}{share_cell(site.live_bytes, live)}"
                    f"{cell(f'{site.live_count:,}', site.live_count)}"
                    f"{size_cell(site.rounding)}{share_cell(site.rounding, site.live_usable_bytes)}{share_cell(site.rounding, rounding)}"
                    f"{size_cell(site.allocated_bytes)}{cell(duration(site.lifetime_ms) if freed else '–', site.lifetime_ms if freed else -1)}"
                    f"{cell(percent_text(site.remote_permille, 1000) if freed else '–', site.remote_permille if freed else -1)}"
                    f"{cell(f'{site.samples:,}', site.samples)}</tr>")
    foot = (f"<td>all {count_text(len(sites), 'site')}</td><td>{in_words(live)}</td><td></td>"
            f"<td>{sum(site.live_count for site in sites):,}</td><td>{in_words(rounding)}</td>"
            f"<td>{percent_text(rounding, sum(site.live_usable_bytes for site in sites))}</td><td></td>"
            f"<td>{in_words(sum(site.allocated_bytes for site in sites))}</td><td></td><td></td>"
            f"<td>{sum(site.samples for site in sites):,}</td>")
    note = (f'<p class="dim">A site is a place of the program that allocates. All figures of this table are estimates from '
            f"{sampled_text(heap_map)}. A map has at most {SITES_MAX} sites, the largest.</p>")
    note += "".join(f'<p class="dim">{escape(text)}</p>' for text in heap_map.remarks)
    return note + table("sites", heads, rows, foot)


def share_cell(part, whole):
    return cell(percent_text(part, whole), part / whole if whole else 0)


SITES_MAX = 100  # SITE_LIST_MAX of src/observe/report.h

HUGE_SHOWN = 1000


def huge_table(heap_map):
    blocks, small = sorted(heap_map.data["huge"], key=lambda w: -w["resident_bytes"]), heap_map.small_mappings()
    if not blocks:
        return "<p>There are none.</p>"
    rows = []
    for block in blocks[:HUGE_SHOWN]:
        state = (f"freed {block['age_ms'] / 1000:.1f} s ago, kept" if block["kept"] else
                 "in use, small mapping" if block in small else "in use")
        rows.append(f'<tr><td data-value="{block["address"]}"><code>{block["address"]:#x}</code></td>{size_cell(block["bytes"])}'
                    f"{size_cell(block['resident_bytes'])}"
                    f"{cell(percent_text(block['resident_bytes'], block['bytes']), block['resident_bytes'] / max(1, block['bytes']))}"
                    f"{cell(state, style='name')}</tr>")
    left = len(blocks) - len(rows)
    note = f"<p class=dim>{count_text(left, 'smaller one')} are not listed.</p>" if left else ""
    if small:
        note += (f'<p class="dim">{count_text(len(small), "small mapping")} of {in_words(sum(w["bytes"] for w in small))} in all: blocks of '
                 "2 MiB or less with a mapping of their own. hakmem takes one for an alignment above 2 MiB, and as emergency memory for a "
                 "thread that may not wait for a lock. Attaching to a process leaves one: the observer's thread needs it.</p>")
    return table("huge", [("address", ""), ("size", ""), ("resident", ""), ("resident share", ""), ("state", "")], rows) + note


def change_cell(change):
    return page.change_cell(change, change_in_words(change))


def comparison(before, after):
    """The section that says what changed from `before` to `after`."""
    old, new = before.parts(), after.parts()
    grown = sum(new.values()) - sum(old.values())
    rows = []
    for key, name, _ in PARTS:
        rows.append(f'<tr><td class="name"><i class="part {key}"></i>{escape(name)}</td>{size_cell(old[key])}'
                    f"{size_cell(new[key])}{change_cell(new[key] - old[key])}</tr>")
    foot = (f"<td>resident heap</td><td>{in_words(sum(old.values()))}</td><td>{in_words(sum(new.values()))}</td>"
            f"<td>{change_in_words(grown)}</td>")
    parts = table("changes", [("resident memory", ""), ("before", ""), ("after", ""), ("change", "")], rows, foot)
    seconds = after.header["time"] - before.header["time"]
    said = f"{verb_text(grown, 'The resident heap')} {verb_text(new['in_use'] - old['in_use'], 'Memory in use')}"
    if not is_same_heap(before, after):
        said += " The two maps are of different processes, so the picture cannot show which memory changed."
    elif seconds > 0:
        said += f" {count_text(seconds, 'second')} lie between the two maps."
    return f'<h2 id="comparison">What changed</h2><p class="headline">{said}</p>{parts}'


def verb_text(change, subject):
    if change == 0:
        return f"{subject} did not change in size."
    return f"{subject} {'grew' if change > 0 else 'shrank'} by {in_words(abs(change))}."


def class_comparison(before, after):
    """The table of differences by class: the largest change of memory in use comes first."""
    olds, news = ({c.index: c for c in m.classes} for m in (before, after))
    rows = []
    for index in olds | news:
        a, b = olds.get(index), news.get(index)
        of_class = a or b
        slabs, objects, in_use, resident = (
            getattr(b, key, 0) - getattr(a, key, 0) for key in ("slabs", "in_use", "in_use_bytes", "resident_bytes"))
        free = (b.resident_parts[2] if b else 0) - (a.resident_parts[2] if a else 0)
        rows.append((-abs(in_use), of_class.object_bytes, f'<tr data-class="{index}"><td data-value="{of_class.object_bytes}">'
                     f"{object_text(of_class.object_bytes)}</td>{cell(f'{b.slabs if b else 0:,}', b.slabs if b else 0)}"
                     f"{number_change_cell(slabs)}{cell(f'{b.in_use if b else 0:,}', b.in_use if b else 0)}{number_change_cell(objects)}"
                     f"{change_cell(in_use)}{change_cell(resident)}{change_cell(free)}</tr>"))
    heads = [("object size", ""), ("slabs", "after"), ("change", "of slabs"), ("objects in use", "after"),
             ("change", "of objects in use"), ("bytes in use", "change"), ("resident", "change in bytes"),
             ("resident, free", "change in bytes")]
    return "<h3>Changes by size class</h3>" + table("class_changes", heads, [row for *_, row in sorted(rows)])


def site_comparison(before, after):
    """The change of each site; the largest change of bytes in use comes first."""
    if not before.sites and not after.sites:
        return ""
    olds, news = ({site.key: site for site in m.sites} for m in (before, after))
    rows = []
    for key in olds | news:
        a, b = olds.get(key), news.get(key)

        def change(name, a=a, b=b):
            return getattr(b, name, 0) - getattr(a, name, 0)

        held, blocks = getattr(b, "live_bytes", 0), getattr(b, "live_count", 0)
        rows.append((-abs(change("live_bytes")), (b or a).label(),
                     f"<tr>{site_cell(b or a)}{size_cell(held)}{change_cell(change('live_bytes'))}{cell(f'{blocks:,}', blocks)}"
                     f"{number_change_cell(change('live_count'))}{size_cell(getattr(b, 'rounding', 0))}{change_cell(change('rounding'))}"
                     f"{change_cell(change('allocated_bytes'))}</tr>"))
    heads = [SITE_HEAD, ("in use", "after"), ("change", "of bytes in use"), ("blocks", "in use, after"), ("change", "of blocks in use"),
             ("rounding", "after. " + ROUNDING_HEAD), ("change", "of rounding"), ("allocated", "between the two maps")]
    note = (f'<p class="dim">Estimates from {sampled_text(before)} before, and {sampled_text(after)} after. A map has at most '
            f"{SITES_MAX} sites, the largest: a site that only one map has may have been a small one of the other.</p>")
    return "<h3>Changes by site</h3>" + note + table("site_changes", heads, [row for *_, row in sorted(rows, key=lambda row: row[:2])])


def is_same_heap(before, after):
    return all(before.header[key] == after.header[key] for key in ("process", "base", "program"))


def for_script(heap_map):
    """What the script uses: a page is sent on more often than a map."""
    classes = [{"class": c.index, "object_bytes": c.object_bytes, "slab_slices": c.slab_slices, "slab_objects": c.slab_objects,
                "slabs": c.slabs} for c in heap_map.classes]
    return {key: heap_map.data[key] for key in ("heap_map", "superslabs")} | {"classes": classes}


def render(maps):
    """The page, as text. One map, or two: before and after."""
    shown = maps[-1]
    header = shown.header
    title = f"Heap of {shown.program}, process {header['process']}"
    if len(maps) == 2:
        title += ", two moments"
    said = [escape(sentence) for sentence in sentences(shown)]
    data = {"maps": [for_script(m) for m in maps], "same": len(maps) == 2 and is_same_heap(*maps)}
    both = len(maps) == 2
    facts = (f"{header['program'] or 'unknown program'} · {time_text(header['time'])} · hakmem {header['hakmem']} · "
             f"OS pages of {in_words(header['page_bytes'])}")
    return fill("heap", title=escape(title), facts=escape(facts), headline=f"<b>{said[0]}</b> {' '.join(said[1:])}",
                bar=bar(shown), cards=cards(shown), classes=class_table(shown), sites=site_table(shown), huge=huge_table(shown),
                comparison=comparison(*maps) if both else "", class_changes=class_comparison(*maps) if both else "",
                site_changes=site_comparison(*maps) if both else "", moments="" if both else "hidden", data=script_json(data))


# --- the command ------------------------------------------------------------------------------------------------------

def add_arguments(parser):
    parser.forms = ["[OPTION...] FILE", "[OPTION...] PID"]
    parser.description = ("Makes one HTML page of a heap map, or of a living process, and prints a summary. The page needs no network "
                          "and opens in any browser. It shows every slice of the heap: what is in use, free and kept, the waste of "
                          "each size class, all blocks above 2 MiB, and what could go back to the system now.")
    parser.add_argument("map", metavar="FILE or PID", nargs="?", type=source, help="a map, or the process id of a living process")
    parser.add_argument("-o", "--output", metavar="PAGE",
                        help="the page's file; FILE with the suffix .html, or heap-PID.html, when not given")
    parser.add_argument("--compare", metavar="FILE2", type=source, help="a later map of the same program: the page also shows what changed since FILE")
    parser.add_argument("--text", action="store_true", help="print tables, and write no page")
    add_naming(parser)
    parser.epilog = ("A map comes from: ./hakmem run --heap-map FILE PROGRAM, HAKMEM_HEAP_MAP_FILE=FILE, or a call of hak_heap_map in the "
                     "program (hakmem/stats.h).")




def is_process(word):
    return is_number(word) and not os.path.exists(word)


def read_source(word, is_alone):
    """The map in a file, or of a living process. A file says nothing of callers, so a map that is compared does not either."""
    if not is_process(word):
        return load(word)
    observer, _ = connect(parse_pid(word))
    try:
        text = observer.ask("map")
    except KeyError:
        raise MapError(f"process {word} runs on a hakmem that writes no heap maps") from None
    found = from_text(text.decode("utf-8", "replace"), f"the map of process {word}", observer.process,
                      Callers(observer) if is_alone else None)
    try:
        whole = read_figures(observer.ask("json"), observer.process.pid).get("summary", {}).get("not_hakmem_bytes")
        found.beside = type(whole) is int and parts_beside(word, whole) or []
    except Refusal:  # it has ended, and the map is there
        pass
    return found


def page_name(arguments):
    if arguments.output is not None:
        return arguments.output
    if is_process(arguments.map):
        return f"heap-{arguments.map}.html"
    path = Path(arguments.map)
    page = path.with_suffix(".html")
    return str(page if page != path else path.with_name(path.name + ".html"))


def run(arguments):
    if not arguments.map:
        raise Refusal("heap: which map? (./hakmem heap --help)", STATUS_USAGE)
    use_naming(arguments)
    if arguments.text and arguments.output:
        raise Refusal("heap: --text writes no page, so it does not go with --output", STATUS_USAGE)
    maps = [read_source(word, arguments.compare is None) for word in [arguments.map, arguments.compare] if word is not None]
    if arguments.text:
        from .heap_text import lines
        print(*summary(maps[-1]), "", *lines(maps), sep="\n")
        return
    name = page_name(arguments)
    keep_inputs(name, arguments.map, arguments.compare)
    with written(name) as file:
        file.write(render(maps))
    for line in summary(maps[-1]):
        print(line)
    print(f"The picture is in {name}")
