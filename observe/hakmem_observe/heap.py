"""./hakmem heap: makes one HTML page of a heap map, or of two maps that it compares."""
import argparse
import html
import json
import os
import re
import sys
import time
from pathlib import Path

from hakmem_observe.heap_map import MapError, from_text, load, percent_text, size_text
from hakmem_observe.output import status_of

TEMPLATE = Path(__file__).with_name("heap_page.html")
PARTS = [
    ("in_use", "in use", "Blocks that the program has not freed."),
    ("cached", "free in thread caches", "Freed blocks that threads keep for their next allocations."),
    ("in_slabs", "free inside slabs", "Free space between blocks in use. It goes back to the system when the blocks "
                                      "beside it are freed."),
    ("kept", "kept for reuse", "Freed blocks above 64 KiB that hakmem keeps for a moment."),
    ("slices", "free slices", "Free memory that no block is in, not given back yet."),
]
RETURNABLE = ["kept", "slices"]


def escape(text):
    return html.escape(str(text), quote=True)


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
    result = [f"{percent_text(parts['in_use'], whole)} of the heap's {size_text(whole)} of resident memory is in use: "
              f"{size_text(parts['in_use'])} in {count_text(heap_map.totals['objects_in_use'], 'block')}."]
    result.append(f"{size_text(back)} could go back to the system now." if back else
                  "Nothing could go back to the system now.")
    if parts["in_slabs"]:
        result.append(f"{size_text(parts['in_slabs'])} is free space inside slabs, between blocks in use.")
    worst = most_wasteful(heap_map)
    if worst:
        result.append(f"Objects of {object_text(worst.object_bytes)} have most of it: "
                      f"{size_text(worst.resident_parts[2])}, in slabs that are {percent_text(worst.fill, 1)} in use.")
    return [sentence[0].upper() + sentence[1:] for sentence in result]


def summary(heap_map):
    """For a terminal."""
    parts = heap_map.parts()
    whole = sum(parts.values())
    lines = [f"{heap_map.program}, process {heap_map.header['process']}, {time_text(heap_map.header['time'])}"]
    lines += [f"  {name:<22}{size_text(parts[key]):>11}  {percent_text(parts[key], whole):>9}" for key, name, _ in PARTS]
    lines.append(f"  {'resident heap':<22}{size_text(whole):>11}")
    lines.append(f"  {'could go back now':<22}{size_text(sum(parts[key] for key in RETURNABLE)):>11}")
    return lines


# --- parts of the page ----------------------------------------------------------------------------------------------

def bar(heap_map, title=""):
    parts = heap_map.parts()
    whole = sum(parts.values())
    cells, labels = [], []
    for key, name, help_text in PARTS:
        share = 100 * parts[key] / whole if whole else 0
        said = f"{size_text(parts[key])}, {percent_text(parts[key], whole)}"
        if share:
            cells.append(f'<span class="part {key}" style="width:{share:.3f}%" title="{escape(name)}: {said}"></span>')
        labels.append(f'<li><i class="part {key}"></i><b>{size_text(parts[key])}</b> {escape(name)}'
                      f'<small>{percent_text(parts[key], whole)}. {escape(help_text)}</small></li>')
    return (f'{title}<div class="bar" role="img" aria-label="Resident memory by use; the list below has the figures">'
            f'{"".join(cells)}</div><ul class="parts">{"".join(labels)}</ul>')


def cards(heap_map):
    parts, totals = heap_map.parts(), heap_map.totals
    slab_bytes = sum(c.slab_bytes for c in heap_map.classes)
    kept = heap_map.whales(True)
    figures = [
        ("could go back now", size_text(sum(parts[key] for key in RETURNABLE)),
         f"{size_text(parts['slices'])} in free slices, {size_text(parts['kept'])} in freed blocks kept for reuse"),
        ("resident heap", size_text(sum(parts.values())), f"of {size_text(totals['bytes_mapped'])} mapped"),
        ("superslabs", f"{len(heap_map.data['superslabs']):,}",
         f"{sum(heap_map.slices.values()):,} slices of {size_text(heap_map.header['slice_bytes'])}"),
        ("slabs", f"{sum(c.slabs for c in heap_map.classes):,}",
         f"{size_text(slab_bytes)}, {percent_text(sum(c.in_use_bytes for c in heap_map.classes), slab_bytes)} in use"),
        ("spans in use", f"{heap_map.data['spans']:,}", "blocks of 64 KiB to 2 MiB"),
        ("huge blocks in use", f"{len(heap_map.whales(False)):,}",
         f"{size_text(sum(w['bytes'] for w in heap_map.whales(False)))} above 2 MiB each; {count_text(len(kept), 'freed one')} kept"),
        ("heaps", f"{totals['heaps']:,}", f"{count_text(totals['threads'], 'thread')}; {totals['heaps_parked']} without threads"),
    ]
    return '<div class="cards">' + "".join(
        f'<div class="card"><small>{escape(name)}</small><b>{escape(value)}</b><small>{escape(note)}</small></div>'
        for name, value, note in figures) + "</div>"


def cell(text, value=None, style=""):
    attributes = (f' class="{style}"' if style else "") + (f' data-value="{value}"' if value is not None else "")
    return f"<td{attributes}>{escape(text)}</td>"


def size_cell(size):
    return cell(size_text(size) if size else "–", size, "" if size else "dim")


def fill_bar(c):
    whole = max(1, c.slab_bytes)
    widths = [("in_use", c.in_use_bytes), ("cached", c.cached_bytes), ("in_slabs", c.free * c.object_bytes)]
    spans = "".join(f'<span class="part {key}" style="width:{100 * size / whole:.2f}%"></span>' for key, size in widths)
    return f'<td data-value="{c.fill:.6f}"><span class="bar small">{spans}</span>{percent_text(c.fill, 1)}</td>'


def class_table(heap_map):
    heads = [("object size", ""), ("slabs", ""), ("slab memory", ""), ("filled", "share of the objects that are in use"),
             ("in use", ""), ("in caches", "free objects in thread caches"), ("free", "free objects in slabs"),
             ("never used", "objects that no one has had yet, and the rest of each slab"), ("resident", ""),
             ("resident, free", "resident memory of the slabs that no block in use needs")]
    rows = []
    for c in heap_map.classes:
        free = c.free * c.object_bytes
        rows.append(
            f'<tr data-class="{c.index}" data-slabs="{c.slabs}" data-in-use="{c.in_use}">'
            f'<td data-value="{c.object_bytes}"><button class="pick" data-class="{c.index}">{object_text(c.object_bytes)}'
            f'</button></td>{cell(f"{c.slabs:,}", c.slabs)}{size_cell(c.slab_bytes)}{fill_bar(c)}{size_cell(c.in_use_bytes)}'
            f"{size_cell(c.cached_bytes)}{size_cell(free)}{size_cell(c.free_bytes - free)}{size_cell(c.resident_bytes)}"
            f"{size_cell(c.resident_parts[2])}</tr>")
    sums = [sum(values) for values in zip(*((c.slabs, c.slab_bytes, c.in_use_bytes, c.cached_bytes, c.free * c.object_bytes,
                                             c.free_bytes - c.free * c.object_bytes, c.resident_bytes, c.resident_parts[2])
                                            for c in heap_map.classes))] or [0] * 8
    foot = (f"<td>all</td><td>{sums[0]:,}</td><td>{size_text(sums[1])}</td><td></td>"
            + "".join(f"<td>{size_text(size)}</td>" for size in sums[2:]))
    return table("classes", heads, rows, foot)


def table(name, heads, rows, foot=""):
    head = "".join(f'<th scope="col"{f" title={chr(34)}{escape(note)}{chr(34)}" if note else ""}><button>{escape(text)}'
                   f"</button></th>" for text, note in heads)
    foot = f"<tfoot><tr>{foot}</tr></tfoot>" if foot else ""
    return (f'<div class="scroll" tabindex="0"><table id="{name}" class="sortable"><thead><tr>{head}</tr></thead>'
            f'<tbody>{"".join(rows)}</tbody>{foot}</table></div>')


WHALES_SHOWN = 1000


def whale_table(heap_map):
    whales = sorted(heap_map.data["whales"], key=lambda w: -w["resident_bytes"])
    if not whales:
        return "<p>There are none.</p>"
    rows = []
    for whale in whales[:WHALES_SHOWN]:
        state = f"freed {whale['age_ms'] / 1000:.1f} s ago, kept" if whale["kept"] else "in use"
        rows.append(f'<tr><td data-value="{whale["address"]}"><code>{whale["address"]:#x}</code></td>{size_cell(whale["bytes"])}'
                    f"{size_cell(whale['resident_bytes'])}"
                    f"{cell(percent_text(whale['resident_bytes'], whale['bytes']), whale['resident_bytes'] / max(1, whale['bytes']))}"
                    f"{cell(state, style='name')}</tr>")
    left = len(whales) - len(rows)
    note = f"<p class=dim>{count_text(left, 'smaller one')} are not listed.</p>" if left else ""
    return table("whales", [("address", ""), ("size", ""), ("resident", ""), ("resident share", ""), ("state", "")], rows) + note


def change_text(change):
    return "–" if change == 0 else ("+" if change > 0 else "−") + size_text(abs(change))


def change_cell(change):
    return cell(change_text(change), change, "dim" if change == 0 else "more" if change > 0 else "less")


def comparison(before, after):
    """The section that says what changed from `before` to `after`."""
    old, new = before.parts(), after.parts()
    grown = sum(new.values()) - sum(old.values())
    rows = []
    for key, name, _ in PARTS:
        rows.append(f'<tr><td class="name"><i class="part {key}"></i>{escape(name)}</td>{size_cell(old[key])}'
                    f"{size_cell(new[key])}{change_cell(new[key] - old[key])}</tr>")
    foot = (f"<td>resident heap</td><td>{size_text(sum(old.values()))}</td><td>{size_text(sum(new.values()))}</td>"
            f"<td>{change_text(grown)}</td>")
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
    return f"{subject} {'grew' if change > 0 else 'shrank'} by {size_text(abs(change))}."


def number_cell(change):
    text = "–" if change == 0 else f"{change:+,}".replace("-", "−")
    return cell(text, change, "dim" if change == 0 else "more" if change > 0 else "less")


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
                     f"{number_cell(slabs)}{cell(f'{b.in_use if b else 0:,}', b.in_use if b else 0)}{number_cell(objects)}"
                     f"{change_cell(in_use)}{change_cell(resident)}{change_cell(free)}</tr>"))
    heads = [("object size", ""), ("slabs", "after"), ("change", "of slabs"), ("objects in use", "after"),
             ("change", "of objects in use"), ("bytes in use", "change"), ("resident", "change in bytes"),
             ("resident, free", "change in bytes")]
    return "<h3>Changes by size class</h3>" + table("class_changes", heads, [row for *_, row in sorted(rows)])


def is_same_heap(before, after):
    return all(before.header[key] == after.header[key] for key in ("process", "base", "program"))


def render(maps):
    """The page, as text. One map, or two: before and after."""
    shown = maps[-1]
    header = shown.header
    title = f"Heap of {shown.program}, process {header['process']}"
    if len(maps) == 2:
        title += ", two moments"
    said = [escape(sentence) for sentence in sentences(shown)]
    data = {"maps": [m.data for m in maps], "same": len(maps) == 2 and is_same_heap(*maps)}
    values = {
        "title": escape(title),
        "facts": escape(f"{header['program'] or 'unknown program'} · {time_text(header['time'])} · hakmem {header['hakmem']} · "
                        f"OS pages of {size_text(header['page_bytes'])}"),
        "headline": f"<b>{said[0]}</b> {' '.join(said[1:])}",
        "bar": bar(shown),
        "cards": cards(shown),
        "comparison": comparison(*maps) if len(maps) == 2 else "",
        "classes": class_table(shown),
        "class_changes": class_comparison(*maps) if len(maps) == 2 else "",
        "whales": whale_table(shown),
        "moments": "" if len(maps) == 2 else "hidden",
        # "<" would let a program's name end the script.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"@@(\w+)@@", lambda match: values[match.group(1)], TEMPLATE.read_text(encoding="utf-8"))


# --- the command ------------------------------------------------------------------------------------------------------

class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"hakmem: heap: {message} (./hakmem heap --help)", file=sys.stderr)
        sys.exit(2)

    def _print_message(self, message, file=None):  # argparse's own one takes no notice of errors
        (file or sys.stderr).write(message)


def arguments_of(words):
    parser = Parser(prog="./hakmem heap", description="Makes one HTML page of a heap map: a picture of every slice of the "
                    "heap, what is in use, free and kept, waste by size class, and what could go back to the system.")
    parser.add_argument("map", metavar="FILE", nargs="?", help="a map: ./hakmem run --heap-map FILE, HAKMEM_HEAP_MAP_FILE or hak_heap_map() "
                        "wrote it")
    parser.add_argument("-o", "--output", metavar="PAGE", help="the page's file; FILE with the suffix .html when not given")
    parser.add_argument("--compare", metavar="FILE2", help="a later map of the same program: the page shows what changed")
    arguments = parser.parse_args(words)
    if not arguments.map:
        parser.error("which map?")
    return arguments


ASK_SECONDS = 60  # the map of a very large heap takes a few


def is_process(word):
    return word.isdecimal() and len(word) < 11 and not os.path.exists(word)


def read_source(word):
    """The map in a file, or of a living process if the tools that ask processes are there."""
    if not is_process(word):
        return load(word)
    try:
        from hakmem_observe.attach import connect
        from hakmem_observe.processes import Refusal
    except ImportError:
        return load(word)
    try:
        observer, _ = connect(int(word))
        text = observer.ask("map", seconds=ASK_SECONDS)
    except Refusal as refusal:
        raise MapError(str(refusal)) from None
    except KeyError:
        raise MapError(f"process {word} runs on a hakmem that writes no heap maps") from None
    return from_text(text.decode("utf-8", "replace"), f"the map of process {word}")


def page_name(arguments):
    if arguments.output is not None:
        return arguments.output
    if is_process(arguments.map):
        return f"heap-{arguments.map}.html"
    path = Path(arguments.map)
    page = path.with_suffix(".html")
    return str(page if page != path else path.with_name(path.name + ".html"))


def write_page(name, text):
    """Under another name first: a page that is being looked at is never half written."""
    if os.path.exists(name) and not os.path.isfile(name):  # a pipe or a terminal; a directory is refused
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        return
    new = f"{name}.{os.getpid()}"
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, name)
    except OSError:
        if os.path.exists(new):
            os.unlink(new)
        raise


def main(words=None):
    arguments = arguments_of(words)
    name = page_name(arguments)
    try:
        maps = [read_source(word) for word in [arguments.map, arguments.compare] if word is not None]
        write_page(name, render(maps))
    except MapError as error:
        print(f"hakmem: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"hakmem: cannot write {name}: {getattr(error, 'strerror', None) or 'it cannot be a file name'}", file=sys.stderr)
        return 1
    for line in summary(maps[-1]):
        print(line)
    print(f"The picture is in {name}")
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
