# SPDX-License-Identifier: MIT
"""Tests of the page of heap profiles: what it says, that names cannot break it, and its script in a browser.

PROFILE names a real profile, and BROWSER a chromium; the tests that need one are skipped without it."""
import dataclasses
import html
import json
import os
import random
import re
import unittest
from pathlib import Path

from browser import Balance, BrowserTest
from hakmem.look import profile_compare, profile_page
from hakmem.look.profile_data import PEAK_SUMS, SUMS, Profile, Stack, read_profiles
from hakmem.look.symbols import Frame

EVIL = "</script><script>x()</script><!--\"quoted\" & 'single' <b>\\u0041\x00\x1b\ud800"
MEASURES = ["live_bytes", "live_count", "allocated_bytes", "allocated_count"]


def frame(function, file="", line=0, module="/usr/bin/program", offset=0x1234):
    return Frame(function, file, line, module, offset)


def sums(live_bytes, live_count, freed_count=0, samples=3):
    return dict.fromkeys(SUMS + PEAK_SUMS, 0) | {
        "samples": samples, "samples_live": min(samples, live_count), "allocated_count": live_count + freed_count,
        "allocated_bytes": live_bytes + 100 * freed_count, "usable_bytes": live_bytes + 100 * freed_count, "freed_count": freed_count,
        "freed_bytes": 100 * freed_count, "freed_remote_count": freed_count // 4, "lifetime_ms": 2000 * freed_count,
        "live_count": live_count, "live_bytes": live_bytes, "live_age_ms": 60_000 * live_count}


def small_profile():
    """main calls load, at two lines, and serve; serve calls load."""
    main, start = frame("main", "./src/../src/main.c", 10), frame("_start")
    load, again = frame("load", "src/load.c", 7), frame("load", "src/load.c", 9)
    serve = frame("serve(std::vector<int> const&)", "src/serve.cc", 30, "/usr/lib/libserve.so")
    insert = frame("std::map<int, std::string>::insert(int)", "/usr/include/c++/12/map", 99)
    return Profile("/usr/bin/program", 77, 4096, [3000, 2000, 1000], [
        Stack((load, main, start), sums(1 << 20, 10, 8), [0, 1 << 19, 1 << 20]),
        Stack((again, main, start), sums(1 << 19, 5), [1 << 19] * 3),
        Stack((insert, load, serve, main, start), sums(1 << 18, 100), [0, 0, 1 << 17]),
        Stack((serve, main, start), sums(0, 0, 40), [5000, 0, 0]),
        Stack((frame("", module=""), frame("near+0x12"), start), sums(4096, 2), [0, 0, 0]),
        Stack((frame("", module=""), frame("near+0x34"), start), sums(4096, 2), [0, 0, 0]),
        Stack((), sums(1000, 1), [0, 0, 0])])


def evil_profile():
    return Profile(EVIL, 78, 4096, [5], [Stack((frame(EVIL, EVIL, 3, "/" + EVIL), frame("main")), sums(5000, 5), [1]),
                                         Stack((frame("@@data@@ @@title@@ \\1"),), sums(6000, 5), [1])])


def compared_page():
    """A line of load is gone, and fresh is new."""
    old, new = small_profile(), small_profile()
    new.stacks[1] = Stack((frame("fresh"), *new.stacks[1].frames[1:]), sums(3 << 18, 9), [0] * 3)
    return profile_compare.render_changes([old], [new], "live_bytes", "live_count", "in use")


def large_profile(stacks=20_000, depth=60):
    """Stacks that leave one another at random frames."""
    random.seed(4711)
    functions = [frame(f"space::part{i}<std::vector<int, std::allocator<int> > >::call(int, char const*)", f"src/part{i}.cc", i + 1,
                       f"/usr/lib/libpart{i % 20}.so") for i in range(3000)]
    paths = [(frame("_start"), *random.choices(functions, k=depth - 1))]
    for _ in range(stacks - 1):
        shared = 1 + int((depth - 1) * random.random() ** .4)
        paths.append(random.choice(paths)[:shared] + tuple(random.choices(functions, k=depth - shared)))
    return Profile("/usr/bin/large", 79, 524288, [9000, 10], [
        Stack(tuple(reversed(path)), sums(int(random.paretovariate(1.1) * 1000), random.randrange(1, 50), random.randrange(9)), [0, 1])
        for path in paths])


def script_data(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))


def stacks_of(data, number):
    """What the script makes of the data: [(labels, outermost first, sums)]."""
    profile, path, at, found = data["profiles"][number], [], 0, []
    for i, (kept, added) in enumerate(zip(profile["kept"], profile["added"])):
        path = path[:kept] + profile["frames"][at:at + added]
        at += added
        found.append((tuple(data["texts"][data["frames"][f][2]] for f in path), {name: profile["sums"][name][i] for name in profile["sums"]}))
    return found


class Pages(unittest.TestCase):
    def check_form(self, page):
        balance = Balance(page)
        self.assertEqual(balance.open, [])
        self.assertEqual(balance.names.count("script"), 2)
        self.assertEqual(page.count("</script>"), 2)
        self.assertIsNone(re.search(r'<link|@import| src=|url\(|https?://', page))  # all in one file

    def test_a_page(self):
        page = profile_page.render([small_profile()], "Heap profile of program")
        self.check_form(page)
        self.assertNotIn("@@", page)
        said = re.sub("<[^>]*>", "", page)
        self.assertIn("in use in program, process 77, when this profile was written", said)
        self.assertIn("about one block in every 4,096 bytes", said)
        self.assertNotIn("<select", page)
        for name, value in [("live-bytes", (1 << 20) + (1 << 19) + (1 << 18) + 8192 + 1000), ("live-count", 120), ("freed-count", 48),
                            ("samples", 21)]:
            self.assertIn(f'data-{name}="{value}"', page)

    def test_the_table_of_sites(self):
        page = profile_page.render([small_profile()], "t")
        rows = [re.sub("<title>.*?</title>", "", row) for row in re.findall("<tr>(.*?)</tr>", page)]
        cells = [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", row)] for row in rows][1:]
        self.assertEqual(len(cells), 7)
        # load at line 7 is the site of its own stack and of the insert that it calls in the C++ library.
        self.assertEqual(cells[0], ["loadsrc/load.c:7", "1.2 MiB71.1 %", "110", "11.6 KiB", "1.0 min", "+768.0 KiB", "1.3 MiB", "118",
                                    "2.0 s", "25.0 %", "6"])
        self.assertEqual(cells[1][:3], ["loadsrc/load.c:9", "512.0 KiB28.4 %", "5"])
        self.assertEqual(cells[1][5], "–")  # has not grown
        self.assertIn(["unknown (no stack)", "1000 bytes0.1 %"], [row[:2] for row in cells])
        self.assertEqual(cells[-1][0], "all 6 sites")
        self.assertEqual(page.count('<svg class="spark"'), 4 + 3)  # not where nothing was held; and that of the process

    def test_the_data(self):
        for profile in [small_profile(), large_profile(500)]:
            found = stacks_of(script_data(profile_page.render([profile], "t")), 0)
            want = [(tuple(f.label() for f in reversed(stack.frames)) or ("unknown (no stack)",), stack.sums) for stack in profile.stacks]
            if profile.pid == 79:
                self.assertEqual({labels[0] for labels, _ in found}, {want[0][0][0]})
            self.assertEqual(sorted((labels, tuple(of.items())) for labels, of in found),
                             sorted((labels, tuple((name, of[name]) for name in profile_page.FIELDS)) for labels, of in want))

    def test_names_are_text(self):
        page = profile_page.render([evil_profile(), small_profile()], f"Heap profile of {EVIL}")
        self.check_form(page)
        self.assertEqual([c for c in page if c < " " and c != "\n"], [])
        page.encode()
        clean = re.sub("[\x00\x1b\ud800]", "\ufffd", EVIL)
        data = script_data(page)
        self.assertIn(clean, data["texts"])
        self.assertIn("@@data@@ @@title@@ \\1", data["texts"])
        self.assertIn(html.escape(clean), page)

    def test_several_processes(self):
        many = [dataclasses.replace(small_profile(), pid=pid) for pid in range(1, 131)]
        many.append(Profile("/usr/bin/idle", 500, 4096, [], []))
        many[50].stacks[0].sums["allocated_bytes"] += 5_000_000
        page = profile_page.render(many, "t")
        self.check_form(page)
        self.assertIn("131 processes wrote into this profile. The page shows the 100 that allocated most.", page)
        self.assertRegex(page, '<option value="0">program, process 51: ')
        self.assertEqual(page.count("<section"), 100)

    def test_comparison(self):
        page = compared_page()
        self.check_form(page)
        self.assertIn("<b>+256.0 KiB in use:</b> 1.8 MiB before, 2.0 MiB now.", page)
        stacks = {labels[1:]: tuple(sums.values()) for labels, sums in stacks_of(script_data(page), 0)}  # labels[0] is _start
        self.assertEqual(stacks[("main", "load")], (0, 1 << 19, 1 << 20, 3 << 19))  # both lines of it: more, less, now, before
        self.assertEqual(stacks[("main", "fresh")], (3 << 18, 0, 3 << 18, 0))
        self.assertEqual(stacks[("main", "serve(std::vector<int> const&)", "load", "std::map<int, std::string>::insert(int)")], (0, 0, 1 << 18, 1 << 18))
        self.check_form(profile_compare.render_changes([evil_profile()], [evil_profile()], "live_bytes", "live_count", EVIL))


class Browser(BrowserTest):
    """The page in a real browser: no script error, and what its script says is what the profile holds."""

    def dom(self, profiles, *how, **more):
        return self.run_page(profiles if isinstance(profiles, str) else profile_page.render(profiles, "Heap profile"), *how, **more)

    def test_totals(self):
        for profile in [small_profile(), evil_profile()]:
            self.dom([profile], script="""const found = {};
                for (const measure of ["live_bytes", "live_count", "allocated_bytes", "allocated_count"])
                  for (const order of ["start", "site"])
                    for (const unit of ["function", "line"]) {
                      set("measure", measure); set("order", order); set("unit", unit);
                      (found[measure] ??= []).push(Number(flames.dataset.total));
                    }
                note("found", JSON.stringify(found));""")
            self.assertEqual(json.loads(self.noted["found"]), {measure: [profile.total(measure)] * 4 for measure in MEASURES})

    def test_comparison(self):
        self.dom(compared_page(), script="""const box = boxes.findIndex(box => nameOf(box.node) === "main");
            note("tip", factsOf(boxes[box]).facts.map(([name, value]) => `${name} ${value}`).join("; "));
            const found = {};
            for (const name of ["grown_bytes", "shrunk_bytes", "new_bytes", "old_bytes"]) { set("measure", name); found[name] = total(0); }
            note("found", JSON.stringify(found)); note("shown", String($("units").hidden) + state.colour);""")
        self.assertIn("change +256.0 KiB; before 1.8 MiB; now 2.0 MiB; more at some stacks 768.0 KiB; less at others 512.0 KiB", self.noted["tip"])
        whole = small_profile().total("live_bytes")
        self.assertEqual(json.loads(self.noted["found"]),
                         {"grown_bytes": 3 << 18, "shrunk_bytes": 1 << 19, "new_bytes": whole + (1 << 18), "old_bytes": whole})
        self.assertEqual(self.noted["shown"], "truechange")

    def test_boxes(self):
        profile = small_profile()
        script = """const list = () => boxes.filter(box => box.node).map(box => `${box.row} ${shortOf(box.node)} ${total(box.node)} ${self(box.node)}`).join("; ");
            note("functions", list()); set("unit", "line"); note("lines", list());
            set("unit", "function"); set("order", "site"); note("sites", list());"""
        self.dom([profile], script=script)
        self.assertEqual(self.noted["functions"].split("; "), [
            "1 _start 1843200 0", "2 main 1835008 0", "2 near 8192 0", "3 load 1572864 1572864", "3 serve 262144 0",
            "3 unknown+0x1234 8192 8192", "4 load 262144 0", "5 std::map<…>::insert 262144 262144"])  # less than a pixel: no stack
        self.assertIn("3 load:7 1048576 1048576; 3 load:9 524288 524288", self.noted["lines"])
        self.assertIn("1 load 1572864 0; 1 std::map<…>::insert 262144 0", self.noted["sites"])

    def test_details(self):
        self.dom([small_profile()], 'select(boxes[4]); showTip(boxes[4], 0, 0); note("said", said.textContent); note("tip", tip.textContent);')
        self.maxDiff = None
        for text in ["load, src/load.c:7, 9, /usr/bin/program. in all: 1.5 MiB, 85.", "by itself: 1.5 MiB", "in use: 1.5 MiB in 15 blocks",
                     "their mean size: 102.4 KiB", "their mean age: 1.0 min", "mean life of freed blocks: 2.0 s",
                     "freed by other threads: 25.0 %", "samples: 6"]:
            self.assertIn(text, self.noted["said"])
        self.assertTrue(self.noted["tip"].startswith("loadsrc/load.c:7, 9/usr/bin/program"))

    def test_search(self):
        found = {"load": (1 << 20) + (1 << 19) + (1 << 18), "LIBSERVE": 1 << 18, "serve.cc": 1 << 18, "main": 1835008, "zzz": 0}
        self.dom([small_profile()], script=f"""searchFor("main");
            const found = [Number($("found").dataset.sum)];
            for (const text of {json.dumps(list(found))}) {{
              searchFor(text); found.push(Number($("found").dataset.sum));
              if ($("found").textContent.startsWith("no box has this") !== (text === "zzz")) found.push(text);
            }}
            note("found", JSON.stringify(found));""")
        self.assertEqual(json.loads(self.noted["found"]), [found["main"], *found.values()])

    def test_keys_pointer_and_buttons(self):
        self.dom([small_profile()], script="""
            const press = key => flames.dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true, bubbles: true}));
            const way = () => [...document.querySelectorAll("#path li")].map(item => item.textContent).join(" ");
            press("ArrowDown"); press("ArrowDown"); press("ArrowDown"); press("ArrowDown"); press("ArrowRight");
            note("serve", said.textContent); press("ArrowLeft"); note("load", said.textContent); press("ArrowRight");
            press("Enter"); note("zoomed", `${way()}: ${total(zoom)}`);
            press("Backspace"); note("up", way());
            document.querySelector("#path button").click(); note("top", String(zoom) + $("path").hidden);
            const box = boxes[2], place = flames.getBoundingClientRect(), at = {clientX: place.x + box.x + 5, clientY: place.y + box.row * ROW + 5};
            flames.dispatchEvent(new PointerEvent("pointermove", at)); note("tip", tip.textContent);
            flames.dispatchEvent(new MouseEvent("click", at)); note("clicked", way());
            press("Escape"); note("reset", String(zoom));
            dispatchEvent.call(document.body, new KeyboardEvent("keydown", {key: "/", bubbles: true})); note("focus", document.activeElement.id);
            document.querySelector("button.pick").click(); note("picked", $("search").value + ": " + $("found").textContent);
            $("reset").click(); note("cleared", $("search").value + search);
            const head = document.querySelectorAll("table.sites th")[2]; head.click();
            note("sorted", head.ariaSort + document.querySelector("table.sites tbody td").textContent);
            $("theme").click(); note("dark", String(isDark()));""")
        said = self.noted
        self.assertRegex(said["serve"], r"^serve\(std::vector<int> const&\), src/serve.cc:30")
        self.assertRegex(said["load"], "^load,")
        self.assertEqual(said["zoomed"], "all _start main serve: 262144")
        self.assertEqual((said["up"], said["top"], said["reset"]), ("all _start main", "0true", "0"))
        self.assertRegex(said["tip"], "^main.*in all")
        self.assertEqual((said["clicked"], said["focus"], said["cleared"]), ("all _start main", "search", ""))
        self.assertRegex(said["picked"], r"^load: 1.8 MiB, 99.* in 2 boxes")
        self.assertEqual((said["sorted"], said["dark"]), ("descendingloadsrc/load.c:7", "true"))

    def test_a_real_profile(self):
        if not os.environ.get("PROFILE"):
            self.skipTest("PROFILE names no profile")
        profiles = sorted(read_profiles(os.environ["PROFILE"]), key=lambda profile: -profile.total("allocated_bytes"))
        raw = [json.loads(line) for line in Path(os.environ["PROFILE"]).read_text().splitlines()]
        document = next(entry for entry in raw if entry["hakmem_profile"]["process"] == profiles[0].pid)
        self.dom(profiles, script=f"""const totals = measure => {{ set("measure", measure); return Number(flames.dataset.total); }};
            note("found", JSON.stringify({json.dumps(list(MEASURES))}.map(totals)));""")
        self.assertEqual(json.loads(self.noted["found"]), [sum(stack[measure] for stack in document["stacks"]) for measure in MEASURES])
