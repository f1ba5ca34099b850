# SPDX-License-Identifier: MIT
"""./hakmem timeline: makes one HTML page of a trace of ./hakmem record: memory over time, by call site."""
import json
import os
import subprocess
from pathlib import Path

from .binaries import sentences
from .document import check, parse
from .figures import duration, in_words
from .files import check_writable, keep_inputs, origin_of, written
from .page import escape, fill, script_json
from .owners import own_frame
from .processes import Refusal
from .profile_page import place_text
from .sites import add_naming, use_naming
from .symbols import Files, Symbols
from .text import plain, short_name

SHAPE = {"program": str, "pid": int, "time": int, "calls": int, "timed": int, "peak_bytes": int, "moments": [[int]],
         "remarks": [str], "mappings": [{"line": str, "build_id": str, "bias": str}],
         "sites": [{"address": str, "temporary_count": int, "temporary_bytes": int, "cells": [[int]]}],
         "threads": [{"number": str, "temporary_count": int, "temporary_bytes": int, "cells": [[int]]}]}
SITES_MAX = 300  # of the page, the largest; the others are one row
SITES_SHOWN = 10  # of the terminal
NAME_MAX = 70
OTHERS = "all others"


def add_arguments(parser):
    parser.description = ("Makes one HTML page of a trace that ./hakmem record has written, and prints a summary: the bytes in use of each "
                          "call site over time, what was allocated between two moments and still lives, and which sites allocate only to "
                          "free at once. The page needs no network.")
    parser.add_argument("trace", metavar="FILE", help="the trace")
    parser.add_argument("-o", "--output", metavar="PAGE",
                        help="the page's file; FILE.html when not given; the figures alone if PAGE ends in .json")
    add_naming(parser)


def trace_tool():
    """The path of hakmem-trace, which lies beside the launcher of an installed hakmem; else builds it."""
    path = Path(os.environ["HAKMEM_LAUNCHER"]).parent / "hakmem-trace"
    if not path.exists():
        from ..build import build_reader
        path = build_reader()
    return path


def read_timeline(tool, path):
    """What hakmem-trace says of the trace; its exit status if it has said why not."""
    done = subprocess.run([tool, "timeline", path], stdout=subprocess.PIPE)
    if done.returncode != 0:
        return done.returncode
    try:
        document = parse(done.stdout.decode("utf-8", "replace"))
        check(document, SHAPE)
    except ValueError as error:
        raise Refusal(f"'{path}' has no timeline: {error}") from None
    return document


class Site:
    """Call sites of one function, file and line."""

    def __init__(self, name, place):
        self.name, self.place = name, place
        self.cells = {}  # (moment of birth, moment of the end): [bytes, blocks]
        self.temporary = [0, 0]  # blocks, bytes

    def add(self, cells, temporary):
        for born, ended, size, count in cells:
            cell = self.cells.setdefault((born, ended), [0, 0])
            cell[0] += size
            cell[1] += count
        self.temporary = [a + b for a, b in zip(self.temporary, temporary)]

    def add_site(self, other):
        self.add([(*key, *sums) for key, sums in other.cells.items()], other.temporary)

    def live(self, moment):
        return sum(size for (born, ended), (size, _) in self.cells.items() if born <= moment < ended)

    def allocated(self):
        return [sum(column) for column in zip(*self.cells.values())] or [0, 0]


def named_sites(document, path):
    """The sites, and sentences about missing calls and names."""
    files = Files(document["pid"], recorded=document["time"], **origin_of(path))
    symbols = Symbols(document["mappings"], files)
    symbols.resolve(int(site["address"], 16) for site in document["sites"])
    found = {}
    for record in document["sites"]:
        frame = own_frame(symbols.frames[int(record["address"], 16)])
        label = plain(frame.label())
        site = found.setdefault((label, frame.place()), Site(label, [plain(text) for text in place_text(frame)]))
        site.add(record["cells"], (record["temporary_count"], record["temporary_bytes"]))
    return ranked(document, found.values()), document["remarks"] + list(sentences(files))


def threads(document):
    found = []
    for record in document["threads"]:
        found.append(Site(f"thread {int(record['number'], 16)}", ["", ""]))
        found[-1].add(record["cells"], (record["temporary_count"], record["temporary_bytes"]))
    return ranked(document, found)


def ranked(document, sites):
    """Those with most memory at a moment first; the smallest are one."""
    moments = range(len(document["moments"]))
    found = sorted((site for site in sites if site.cells), key=lambda site: (-max(map(site.live, moments)), -site.allocated()[0]))
    if len(found) > SITES_MAX:
        rest = Site(OTHERS, ["", ""])
        for site in found[SITES_MAX:]:
            rest.add_site(site)
        found[SITES_MAX:] = [rest]
    return found


def rows(sites):
    return [{"name": site.name, "short": short_name(site.name, NAME_MAX), "place": site.place, "temporary": site.temporary,
             "cells": [[*key, *sums] for key, sums in sorted(site.cells.items())]} for site in sites]


def page_data(document, sites):
    resident, moments = 0, []
    for end_ms, live, most, rss in document["moments"]:
        resident = rss or resident
        moments.append([end_ms, live, most, resident])
    return {"timed": document["timed"], "calls": document["calls"], "moments": moments,
            "sites": rows(sites), "threads": rows(threads(document))}


def peak_moment(document):
    return max(range(len(document["moments"])), key=lambda moment: document["moments"][moment][2])


def when(document, moment):
    if document["timed"]:
        return f"about {duration(document['moments'][moment][0])} after the start"
    return f"after {100 * (moment + 1) // len(document['moments'])} % of the calls"


def headline(document):
    moment = peak_moment(document)
    return (f"{document['program']} (process {document['pid']}): at most {in_words(document['peak_bytes'])} in use, "
            f"{when(document, moment)}; {in_words(document['moments'][-1][1])} at the end; {document['calls']:,} calls")


def render(document, sites, remarks):
    return fill("timeline", title=escape(f"Memory over time of {document['program']}"), headline=escape(headline(document)),
                remarks="".join(f'<p class="dim">{escape(sentence)}</p>' for sentence in remarks),
                data=script_json(page_data(document, sites)))


def print_sites(document, sites, remarks):
    print(headline(document))
    moment = peak_moment(document)
    table = [(site.live(moment), site.live(len(document["moments"]) - 1), *site.allocated(), site) for site in sites]
    print(f"{'near the peak':>13} {'at the end':>12} {'allocated':>12} {'temporary':>10}  site")
    for peak, end, allocated, count, site in sorted(table, key=lambda row: (-row[0], -row[2]))[:SITES_SHOWN]:
        print(f"{in_words(peak):>13} {in_words(end):>12} {in_words(allocated):>12} {100 * site.temporary[0] / max(count, 1):8.0f} %  "
              f"{short_name(site.name, NAME_MAX)}" + (f" ({site.place[0]})" if site.place[0] else ""))
    for sentence in remarks:
        print(sentence)


def run(arguments):
    use_naming(arguments)
    page = arguments.output or f"{arguments.trace}.html"
    if not os.path.exists(arguments.trace):
        raise Refusal(f"timeline: there is no file '{arguments.trace}'")
    keep_inputs(page, arguments.trace)
    check_writable(page)
    document = read_timeline(trace_tool(), arguments.trace)
    if isinstance(document, int):
        return document
    sites, remarks = named_sites(document, arguments.trace)
    is_page = not page.endswith(".json")
    with written(page) as file:
        file.write(render(document, sites, remarks) if is_page else json.dumps(page_data(document, sites)) + "\n")
    print_sites(document, sites, remarks)
    print(f"The {'page' if is_page else 'timeline'} is in {page}")
    return 0
