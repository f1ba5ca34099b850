# SPDX-License-Identifier: MIT
"""Tests of `./hakmem heap`: heap maps that are read, refused and compared; the page; the page in a browser.

HEAP_MAP names a real map, and BROWSER a chromium; the tests that need one are skipped without it."""
import contextlib
import copy
import io
import json
import os
import re
import sys
import unittest
import unittest.mock

from browser import Balance, BrowserTest
from hakmem.look import __main__ as commands, heap, heap_map, sites
from place import PlaceTest


def small_map():
    """Two superslabs: slabs of two classes and arenas, two spans, kept and free slices; three huge blocks."""
    return {
        "heap_map": {"version": 1, "hakmem": "0.1.0", "process": 77, "program": "/bin/<b>\"prog\"&</script>", "time": 1700000000,
                     "page_bytes": 4096, "slice_bytes": 32768, "superslab_slices": 64, "base": 0x200000000000},
        "totals": {"bytes_mapped": 40 << 20, "objects_in_use_count": 1053, "arenas_count": 2, "arenas_parked_count": 1,
                   "threads_count": 1},
        "superslabs": [
            {"index": 0, "claimed": 64, "in_huge_page": 0, "pages": "small", "slices": "h1z4u512x2u100f200h2z78u3f5x2s10k2d12a6c27",
             "resident": "8" * 7 + "8" * 10 + "44" + "1" * 12 + "000" + "111" + "0" * 27},
            {"index": 5, "claimed": 64, "in_huge_page": 1, "pages": "huge", "slices": "s64", "resident": "8"},
        ],
        "classes": [{"class": 4, "object_bytes": 64, "slab_slices": 1, "slab_objects": 512, "cached": 81},
                    {"class": 5, "object_bytes": 80, "slab_slices": 1, "slab_objects": 409, "cached": 7},  # of a slab that came later
                    {"class": 78, "object_bytes": 3328, "slab_slices": 2, "slab_objects": 19, "cached": 0}],
        "huge": [
            {"address": 0x300000000000, "bytes": 5 << 20, "resident_bytes": 3 << 20, "kept": 0, "age_ms": 0},
            {"address": 0x300000800000, "bytes": 6 << 20, "resident_bytes": 6 << 20, "kept": 0, "age_ms": 0},
            {"address": 0x300001000000, "bytes": 4 << 20, "resident_bytes": 1 << 20, "kept": 1, "age_ms": 250}],
        "huge_pages": {"bytes": 3 << 20, "in_use_permille": 875, "why": "it is <small>"},
        "sites": [site_record("named", "parser <nodes>", live_bytes=6000, live_count=60, live_usable_bytes=7500),
                  site_record("address", "", address="0x7000000000f0", module="/nonexistent/prog", offset="0x10f0", live_bytes=90000,
                              live_count=3, live_usable_bytes=90500, freed_count=2, lifetime_ms=1500, remote_permille=500),
                  site_record("number", "site 0x1234"), site_record("other", ""),
                  site_record("address", "", address="0x123456")],
    }


def site_record(kind, name, address="", module="", offset="", **sums):
    """A site as heap maps and reports have it."""
    return {"kind": kind, "name": name, "address": address, "module": module, "offset": offset} | dict.fromkeys(sites.NUMBERS, 4) | sums


def later_map():
    """The same process later: a span was freed, one slab filled up, and a superslab is new."""
    data = small_map()
    data["heap_map"]["time"] += 60
    data["superslabs"][0]["slices"] = "h1z4u512x3h2z78u3f5x2d10k2d12a6c27"
    data["superslabs"].append({"index": 6, "claimed": 16, "pages": "small", "slices": "c16", "resident": "0"})
    data["sites"][0].update(live_bytes=16000, live_count=160, live_usable_bytes=20000)
    # The same place in another run: the address differs. A site is new.
    data["sites"][1].update(address="0x7100000000f0", live_bytes=50000, live_count=2, live_usable_bytes=50300)
    data["sites"].append(site_record("named", "cache", live_bytes=1024, live_count=1, live_usable_bytes=1024))
    return data


UNKNOWN = [("huge_pages", "bytes"), ("huge_pages", "in_use_permille")]  # may be null


def read(data, name="map.json"):
    return heap_map.from_text(json.dumps(data), name)


class Maps(unittest.TestCase):
    def test_a_good_map(self):
        said = read(small_map())
        self.assertEqual([c.index for c in said.classes], [4, 78])
        parts = said.parts()
        # Slabs of 64 bytes: all in use; of 3,328: six objects. Spans and huge blocks are in use wholly.
        self.assertEqual(parts["in_use"], 1043 * 64 + 6 * 3328 + 74 * 32768 + (9 << 20))
        self.assertEqual(parts["cached"], 81 * 64)
        self.assertEqual(parts["kept"], 32768 + (1 << 20))
        self.assertEqual(parts["slices"], 15 * 4096)
        self.assertEqual(said.slices, dict(zip(heap_map.KINDS, [27, 12, 6, 2, 74, 7])))
        self.assertEqual(said.resident, dict(zip(heap_map.KINDS, [0, 12 * 4096, 3 * 4096, 32768, 74 * 32768, 7 * 32768])))
        self.assertEqual([(c.slabs, c.in_use, c.cached, c.free, c.not_carved, c.resident_bytes) for c in said.classes],
                         [(3, 1043, 81, 200, 212, 3 * 32768), (2, 6, 0, 10, 22, 4 * 32768)])
        self.assertEqual(said.spans, 2)
        whole = sum(said.resident.values()) + (10 << 20)
        self.assertEqual(sum(parts.values()), whole)

    def refused(self, text, words):
        with self.assertRaises(heap_map.MapError) as caught:
            heap_map.from_text(text, "map.json")
        sentence = str(caught.exception)
        self.assertRegex(sentence, words)
        self.assertTrue(sentence.startswith("map.json ") and "\n" not in sentence, sentence)

    def test_foreign_files(self):
        whole = json.dumps(small_map())
        for text in ["x", "null", "[]", "{}", "3", '"heap_map"', "<html>", "[" * 100000, "\0", '{"a": NaN}']:
            self.refused(text, "is not a heap map")
        self.refused('{"hakmem": {"version": "0.1.0"}}', "is a report of hakmem, not a heap map")
        for length in [12, 100, len(whole) // 2, len(whole) - 1]:
            self.refused(whole[:length], "is cut or damaged")
        data = small_map()
        data["heap_map"]["version"] = 2
        self.refused(json.dumps(data), "of version 2, and this hakmem reads version 1")

    def test_every_field_is_needed_and_has_a_type(self):
        def places(value, path=()):
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
            for key, inner in items:
                yield path + (key,)
                yield from places(inner, path + (key,))

        for path in list(places(small_map())):
            for wrong in [None, True, -1, 1.5, [], {}, 1 << 64]:
                if wrong == [] and path in (("superslabs",), ("huge",), ("sites",)) or wrong is None and path in UNKNOWN:
                    continue  # a heap may have none; the kernel may not say
                data = copy.deepcopy(small_map())
                place = data
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = wrong
                with self.subTest(path=path, wrong=wrong):
                    self.refused(json.dumps(data), "is damaged|is not a heap map|this hakmem reads")

    def test_sums_that_do_not_agree(self):
        for place, value in [(("superslabs", 0, "slices"), "h1z4u512x2"),
                             (("superslabs", 0, "slices"), "c63q1"), (("superslabs", 0, "slices"), "z4u1c63"),
                             (("superslabs", 0, "slices"), "h1u1c63"), (("superslabs", 0, "slices"), "h1z9u1c63"),
                             (("superslabs", 0, "slices"), "h1z4u500f50c63"), (("superslabs", 0, "resident"), "9"),
                             (("superslabs", 0, "resident"), "88"), (("superslabs", 1, "index"), 0),
                             (("superslabs", 0, "claimed"), 65), (("superslabs", 0, "claimed"), 0),
                             (("superslabs", 0, "claimed"), 63), (("classes", 0, "slab_objects"), 511),
                             (("classes", 2, "slab_slices"), 3), (("classes", 1, "class"), 4)]:
            data = small_map()
            inner = data
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            with self.subTest(place=place, value=value):
                self.refused(json.dumps(data), "is damaged")

    def test_sites(self):
        said = read(small_map())
        self.assertEqual([(site.label(), site.live_bytes, site.rounding) for site in said.sites[:2]],
                         [("prog+0x10ef", 90000, 500), ("parser <nodes>", 6000, 1500)])
        self.assertEqual(sorted(site.label() for site in said.sites[2:]), ["0x123456", "other", "site 0x1234"])
        data = small_map()
        del data["sites"]  # as a hakmem without sites writes it
        self.assertEqual(read(data).sites, [])
        for key, value in [("kind", "x"), ("address", "0xg"), ("address", "12"), ("offset", "-1"), ("offset", "0x" + "1" * 17)]:
            data = small_map()
            data["sites"][1][key] = value
            with self.subTest(key=key, value=value):
                self.refused(json.dumps(data), "is damaged: sites.1. is not a place of a program")


class Pages(unittest.TestCase):
    def test_a_page(self):
        page = heap.render([read(small_map())])
        self.assertEqual(Balance(page).open, [])
        self.assertNotIn("@@", page)
        self.assertNotIn("<b>\"prog", page)  # the program's name is text
        self.assertEqual(page.count("</script>"), 2)
        self.assertIsNone(re.search(r"https?://|<link|@import|src=", page))  # all in one file
        self.assertIn('data-class="4" data-slabs="3" data-in-use="1043"', page)

    def test_a_comparison(self):
        page = heap.render([read(small_map()), read(later_map())])
        self.assertIn("60 seconds lie between the two maps", page)
        self.assertIn("+412", page)  # objects of class 4
        self.assertIn('"same":true', page)
        other = later_map()
        other["heap_map"]["process"] = 78
        self.assertIn("of different processes", heap.render([read(small_map()), read(other)]))

    def test_huge_pages(self):
        data = small_map()
        self.assertEqual("; ".join(heap.huge_pages(read(data))[1]).replace("\N{NO-BREAK SPACE}", " "),
                         "24 % of the resident heap; blocks fill 88 % of the superslabs there; it is <small>")
        self.assertIn("<small>in huge pages</small><b>3.0 MiB</b>", heap.render([read(data)]))
        self.assertIn("it is &lt;small&gt;", heap.render([read(data)]))
        data["huge_pages"].update(bytes=0, in_use_permille=None)
        self.assertEqual(heap.huge_pages(read(data)), ("0 bytes", ["it is <small>"]))
        data["huge_pages"].update(bytes=None, why="")
        self.assertEqual(heap.huge_pages(read(data)), ("unknown", []))
        del data["huge_pages"], data["superslabs"][1]["in_huge_page"]  # as a hakmem before it writes them
        self.assertEqual(heap.huge_pages(read(data)), ("unknown", []))
        self.assertIn("  in huge pages             unknown", heap.summary(read(data)))

    def test_small_mappings(self):
        data = small_map()
        self.assertNotIn("small mapping", heap.render([read(data)]))
        data["huge"].append({"address": 0x300002000000, "bytes": 4096, "resident_bytes": 4096, "kept": 0, "age_ms": 0})
        said = read(data)
        self.assertEqual([len(said.huge()), len(said.small_mappings())], [2, 1])
        page = heap.render([said])
        self.assertIn("<small>huge blocks in use</small><b>2</b><small>11.0 MiB above", page)
        self.assertIn("in use, small mapping", page)
        self.assertIn("1 small mapping of 4.0 KiB in all", page)

    def test_waste_by_site(self):
        page = heap.render([read(small_map())])
        self.assertIn("estimates from 20 samples", page)
        row = re.search(r"<tr><td[^>]*>parser &lt;nodes&gt;</td>.*?</tr>", page).group(0)
        self.assertEqual(re.findall(r"<td[^>]*>([^<]*)</td>", row)[1:8],
                         ["5.9 KiB", "6\xa0%", "60", "1.5 KiB", "20\xa0%", "75\xa0%", "4 bytes"])
        row = re.search(r"<tr><td[^>]*>prog\+0x10ef</td>.*?</tr>", page).group(0)
        self.assertEqual(re.findall(r"<td[^>]*>([^<]*)</td>", row)[-3:], ["1.5 s", "50\xa0%", "4"])
        data = small_map()
        data["sites"] = []
        self.assertIn("took no samples", heap.render([read(data)]))

    def test_changes_by_site(self):
        page = heap.render([read(small_map()), read(later_map())])
        changes = page[page.index('<table id="site_changes"'):]
        rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", changes)][:3]
        self.assertEqual(rows, [
            ["prog+0x10ef", "48.8 KiB", "−39.1 KiB", "2", "−1", "300 bytes", "−200 bytes", "–"],
            ["parser &lt;nodes&gt;", "15.6 KiB", "+9.8 KiB", "160", "+100", "3.9 KiB", "+2.4 KiB", "–"],
            ["cache", "1.0 KiB", "+1.0 KiB", "1", "+1", "–", "–", "+4 bytes"]])
        data = [small_map(), later_map()]
        for one in data:
            del one["sites"]
        self.assertNotIn("Changes by site", heap.render([read(one) for one in data]))


class Command(PlaceTest):
    def setUp(self):
        super().setUp()
        self.map = self.place / "map.json"
        self.map.write_text(json.dumps(small_map()))

    def run_with(self, *words):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            with unittest.mock.patch.object(sys, "argv", ["hakmem", "heap", *map(str, words)]):
                with self.assertRaises(SystemExit) as end:
                    commands.main()
        return end.exception.code, out.getvalue(), errors.getvalue()

    def test_refusals(self):
        empty, binary, absent = (self.place / name for name in ("empty", "binary", "absent"))
        empty.write_text("")
        binary.write_bytes(b"\xff\xfe\0")
        for words, status, sentence in [
                ([], 2, "which map"), ([""], 2, "which map"), (["a", "b"], 2, "unknown argument"), ([self.map, "--what"], 2, "unknown option"),
                ([absent], 126, f"cannot read {absent}: No such file"), ([self.place], 126, "Is a directory"),
                ([empty], 126, "is empty"), ([binary], 126, "is not a heap map"), ([self.map, "--compare", empty], 126, "is empty"),
                ([self.map, "-o", absent / "page"], 126, f"cannot write '{absent}/page': No such file"),
                ([self.map, "-o", self.place], 126, "Is a directory"), (["a\0b"], 126, "cannot be a file")]:
            with self.subTest(words=words):
                code, out, errors = self.run_with(*words)
                self.assertEqual((code, out), (status, ""))
                self.assertRegex(errors, r"\Ahakmem: [^\n]+\n\Z")
                self.assertIn(sentence, errors)

    def test_a_process_that_writes_no_maps(self):
        process = unittest.mock.Mock(**{"ask.side_effect": KeyError})
        with unittest.mock.patch.object(heap, "connect", lambda pid: (process, False)):
            self.assertEqual(self.run_with("4712"), (126, "", "hakmem: process 4712 runs on a hakmem that writes no heap maps\n"))


class Browser(BrowserTest):
    """The page in a real browser: no script error, and the counts that its script makes are those of the map."""

    def dom(self, maps, *how, **more):
        return self.run_page(heap.render(maps), *how, **more)

    def check_counts(self, said, dom):
        drawn = re.search(r'<canvas id="map"[^>]*>', dom).group(0)
        count = {name: int(re.search(rf'data-{name}="(\d+)"', drawn).group(1))
                 for name in ["clean", "dirty", "aged", "kept", "span", "slab", "slabs", "superslabs"]}
        slices = said.slices
        self.assertEqual([count[name] for name in ["clean", "dirty", "aged", "kept", "span", "slab"]],
                         [slices[kind] for kind in heap_map.KINDS])
        self.assertEqual(count["slabs"], sum(c.slabs for c in said.classes))
        self.assertEqual(count["superslabs"], len(said.data["superslabs"]))
        for c in said.classes:
            self.assertIn(f'data-class="{c.index}" data-slabs="{c.slabs}" data-in-use="{c.in_use}"', dom)

    def test_counts(self):
        said = read(small_map())
        dom = self.dom([said])
        self.check_counts(said, dom)
        self.assertRegex(dom, r'<div class="tools">')  # no longer hidden
        self.assertIn(">slices of blocks above 64 KiB: 74<", dom.replace("</i>", ">"))
        self.assertIn(">superslabs in huge pages, marked on their right: 1<", dom.replace("</i>", ">"))

    def test_modes_and_a_slice(self):
        said = read(small_map())
        dom = self.dom([said], """setTheme(true); setMode("fill"); zoomAt(2, 0, 0); select(2);
            const modes = [mode];
            for (const button of document.querySelectorAll("#modes button:not([hidden])")) { button.click(); drawNow(); modes.push(mode); }
            note("modes", modes.join(" "));""")
        self.assertEqual(self.noted["modes"], "fill size fill resident arena")
        self.assertRegex(dom, '^[^>]*>\\s*<html[^>]* class="dark"')
        self.assertIn("Slab of 64 B objects. objects: 512; in use, or in a thread's cache: 100 (20 %); free in the slab: 200; "
                      "never used: 212;", dom)
        self.assertIn("address: 0x200000010000", dom)
        dom = self.dom([said], "pick(78);")
        self.assertIn("Only slabs of 3.3 KiB objects: 2.", dom)

    def test_keys_pointer_and_buttons(self):
        script = """
          const press = (key, shiftKey = false) => map.dispatchEvent(new KeyboardEvent("keydown", {key, shiftKey, cancelable: true}));
          press("ArrowRight"); press("ArrowRight"); press("ArrowRight"); press("ArrowRight");
          note("slab", said.textContent);
          press("ArrowDown"); note("below", said.textContent); press("ArrowUp");
          press("Enter"); note("picked", key.textContent);
          press("Escape"); note("unpicked", key.textContent);
          press("+"); press("+"); const large = view.zoom;
          press("ArrowRight", true); press("-"); note("zooms", String(large > view.zoom && view.zoom > view.least));
          press("0"); note("whole", String(view.zoom === view.least));
          map.dispatchEvent(new WheelEvent("wheel", {deltaY: -400, cancelable: true}));
          note("wheel", String(view.zoom > view.least));
          press("0");
          const box = map.getBoundingClientRect();
          map.dispatchEvent(new PointerEvent("pointermove", {clientX: box.x + view.zoom * 2.5, clientY: box.y + view.zoom * .5}));
          note("tip", tip.hidden ? "" : tip.textContent);
          document.querySelector("#classes th button").click();
          document.querySelector("#classes th button").click();
          note("sorted", document.querySelector("#classes th").ariaSort + document.querySelector("#classes tbody tr").dataset.class);
          document.querySelector("#moments button").click(); note("before", map.dataset.span);
          document.querySelector("#theme").click(); note("dark", String(look.dark));"""
        self.dom([read(small_map()), read(later_map())], script=script)
        said = self.noted
        self.assertRegex(said["slab"], "^Slab of 3.3 KiB objects. objects: 19; .*arena: 2;.* slice: 3 to 4 of 64")
        self.assertRegex(said["below"], "^Block of 64 KiB to 2 MiB, in use. size: 2 MiB;.* superslab: 5, in a huge page;")
        self.assertIn("Only slabs of", said["picked"])
        self.assertNotIn("Only slabs of", said["unpicked"])
        self.assertEqual([said[name] for name in ["zooms", "whole", "wheel"]], ["true"] * 3)
        self.assertRegex(said["tip"], "^Slab of 64 B objects")
        self.assertEqual((said["sorted"], said["before"], said["dark"]), ("ascending4", "74", "true"))

    def test_a_real_map(self):
        if not os.environ.get("HEAP_MAP"):
            self.skipTest("HEAP_MAP names no map")
        said = heap_map.load(os.environ["HEAP_MAP"])
        self.assertGreater(len(said.classes), 3)
        self.check_counts(said, self.dom([said]))
