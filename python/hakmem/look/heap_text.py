# SPDX-License-Identifier: MIT
"""Heap maps as text: `./hakmem heap --text`. One map, or an earlier and a later one."""
from .figures import change_in_words, in_words
from .heap import PARTS, object_text
from .view import Table, plain

ROWS_MAX = 15  # of a table


def changes(olds, news, figures):
    """[(size of the change, row)] of things that two maps have by key; without an earlier map the last figure's size counts."""
    rows = []
    for key in (olds or {}) | news:
        old, new = figures((olds or {}).get(key)), figures(news.get(key))
        change = new[0] - old[0]
        cells = [in_words(value) for value in new]
        rows.append((abs(change) if olds is not None else new[0], key, cells + ([change_in_words(change)] if olds is not None else [])))
    return sorted((row for row in rows if row[0]), key=lambda row: (-row[0], str(row[1])))


def table_of(title, columns, rows, name, last):
    table = Table(title, [*columns, last])
    table.rows = [[*cells, name(key)] for _, key, cells in rows]
    return plain(table, ROWS_MAX)


def lines(maps):
    """All tables. What changed most comes first, or what holds most."""
    before, shown = maps[0] if len(maps) == 2 else None, maps[-1]
    change = ["change"] if before else []

    def both(of):
        return of(before) if before else None, of(shown)

    if before:
        names = {key: name for key, name, _ in PARTS}
        parts = changes(*both(lambda of: of.parts()), lambda value: [value or 0])
        yield from table_of("what changed in the resident memory of the heap", ["bytes", *change], parts, names.get, "part")
        yield ""
    classes = changes(*both(lambda of: {c.object_bytes: c for c in of.classes}),
                      lambda c: [c.in_use_bytes, c.cached_bytes, c.resident_parts[2], c.resident_bytes] if c else [0] * 4)
    yield from table_of("size classes", ["in use", "cached", "free, resident", "resident", *(["change in use"] if before else [])], classes,
                        object_text, "objects of")
    labels = {site.key: site.label() + (f" ({site.place})" if site.place else "") for of in maps for site in of.sites}
    if labels:
        sites = changes(*both(lambda of: {site.key: site for site in of.sites}),
                        lambda site: [site.live_bytes, site.rounding, site.allocated_bytes] if site else [0] * 3)
        yield ""
        yield from table_of("call sites, estimated from samples", ["in use", "rounding", "allocated", *change], sites, labels.get, "site")
    blocks = changes(*both(lambda of: {w["address"]: w for w in of.data["huge"] if not w["kept"]}),
                     lambda block: [block["bytes"], block["resident_bytes"]] if block else [0, 0])
    if blocks:
        yield ""
        yield from table_of("blocks with mappings of their own", ["bytes", "resident", *change], blocks, hex, "address")
