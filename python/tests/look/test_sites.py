# SPDX-License-Identifier: MIT
"""Tests of sites in `./hakmem top`, stat, profile and metrics: tables, orders, names in every output.

tests/launcher/site_views.sh tries them on a program."""
import gzip
import io
import json
import re
import types
import unittest
import unittest.mock
from pathlib import Path

from hakmem.look import (
    document, owners, pprof, profile, profile_data, report, served_profiles, sites, symbols, top, view)


def record(kind, name, address="", module="", offset="", **sums):
    return {"kind": kind, "name": name, "address": address, "module": module, "offset": offset} | dict.fromkeys(sites.NUMBERS, 0) | sums


def make_report(records, at):
    figures = {"totals": {}, "sites": records}
    made = report.Report(types.SimpleNamespace(pid=1), figures)
    made.at = at
    return made


RECORDS = [record("named", "parser", live_bytes=3000, live_count=3, live_usable_bytes=3000, allocated_bytes=3000, samples=5),
           record("address", "", address="0xffff0", live_bytes=1000, live_count=1, live_usable_bytes=1200, allocated_bytes=90000,
                  freed_count=80, lifetime_ms=90_000, samples=9)]


class Tables(unittest.TestCase):
    def test_orders_and_growth(self):
        before = make_report(RECORDS, 10.0)
        now = make_report([RECORDS[0], RECORDS[1] | {"live_bytes": 2000, "live_usable_bytes": 2500}], 12.0)
        for sort, first in [("u", "parser"), ("g", "0xffff0"), ("w", "0xffff0"), ("a", "0xffff0")]:
            table = view.sites_table(now, before, sort)
            self.assertEqual(table.rows[0][-1], first, sort)
        self.assertEqual(table.rows[0], ["2.0 KiB", " 40 %", "1", "500 B", "87.9 KiB", "1.5 min", "500 B", "0xffff0"])
        self.assertIn("estimated from 14 samples", table.title)

    def test_a_leak_beside_a_container_is_a_suspect(self):
        def stack(history, live):
            return types.SimpleNamespace(history=history, sums={"live_bytes": live})

        site = profile.Site("", None)
        site.add(stack(list(range(0, 1000, 100)), 1000))
        site.add(stack([20] * 10, 0))  # the container's buffer, freed at exit
        site.history[-1] += 200
        self.assertFalse(profile.only_grow(site.moments()))
        self.assertTrue(site.only_grows())
        site = profile.Site("", None)
        site.add(stack([100, 200] * 5, 1000))
        self.assertFalse(site.only_grows())

    def test_no_sites(self):
        self.assertEqual(view.sites_table(make_report([], 1.0), None, "u").rows, [])
        choice = top.Choice()
        choice.press("s")
        self.assertEqual(choice.make(make_report([], 1.0), None).title, top.NO_SITES)

    def test_keys(self):
        choice = top.Choice()
        choice.press("w")
        choice.press("g")  # not of classes
        self.assertEqual((choice.table, choice.sorts), ("classes", {"classes": "w", "sites": "u"}))
        choice.press("s")
        choice.press("g")
        choice.press("h")  # not of sites
        self.assertEqual((choice.table, choice.sorts), ("sites", {"classes": "w", "sites": "g"}))
        choice.press("s")
        self.assertEqual(choice.table, "classes")

    def test_screen(self):
        """A name that is too long for the screen takes no room from the figures."""
        made = make_report([RECORDS[0] | {"name": "n" * 200}, RECORDS[1] | {"kind": "named", "name": "get[abi:cxx11] [/b]"}], 1.0)
        made.process = types.SimpleNamespace(pid=1, name="x", threads=1, rss=1)
        made.figures |= {"hakmem": {"version": "0"}}
        made.totals = dict.fromkeys(("bytes_in_use", "objects_in_use_count", "bytes_cached", "bytes_free_dirty", "bytes_mapped",
                                     "arenas_count", "superslabs_count", "huge_count"), 0)
        choice = top.Choice()
        choice.press("s")
        drawn = top.draw(made, None, [], choice, False, 100, 40)
        lines = [re.sub("\x1b[^m]*m", "", line) for line in drawn]
        self.assertTrue(any(line.rstrip().endswith("  get[abi:cxx11] [/b]") for line in lines), lines)
        self.assertLessEqual(max(map(len, lines)), 99)
        heads = next(line for line in lines if "allocated  mean life" in line)
        self.assertTrue(heads.rstrip().endswith("site"), heads)
        self.assertRegex(next(line for line in lines if "nnn" in line), r"^ *2\.9 KiB +75 % +3 +0 B +2\.9 KiB +n+…n+$")

        for columns in (80, 200):
            lines = [re.sub("\x1b[^m]*m", "", line) for line in top.draw(made, None, [], choice, False, columns, 40)]
            heads = next(line for line in lines if "share  blocks" in line)
            self.assertTrue(heads.endswith("site"), heads)
            self.assertFalse([line for line in lines if len(line) >= columns or line.endswith("…")], lines)
            self.assertEqual(any("█" in line for line in lines), columns == 200)


class Names(unittest.TestCase):
    def test_a_file_that_is_gone(self):
        found = sites.parse_sites([record("address", "", address="0x1000", module="/nonexistent", offset="0x10")])
        names = sites.SiteNames(1)
        names.resolve(found)
        self.assertEqual(names.apply(found)[0].title(), "nonexistent+0xf")
        names.resolve(found)
        self.assertEqual(len(names.known), 1)

    def test_names_of_the_program_win(self):
        found = sites.parse_sites(RECORDS)
        names = sites.SiteNames(1)
        names.known = {found[0].key: None, found[1].key: sites.Frame("work(int)", "/src/a.cc", 7, "", 0)}
        self.assertEqual([site.title() for site in names.apply(found)], ["parser", "work(int) (a.cc:7)"])


def profile_text(mappings=(), frames="0x10 0x20", **head):
    def stack(site, frames, held):
        return {"frames": frames, **({} if site is None else {"site": site}), "history_bytes": ""} | dict.fromkeys(profile_data.SUMS, 2) | {
            "live_bytes": held, "allocated_bytes": held}

    document = {"hakmem_profile": {"version": 1, "program": "/bin/prog", "process": 1, "period": 4096} | head, "history": {"ago_ms": ""},
                "stacks": [stack("parser;<nodes>", frames, 100), stack("", frames, 30), stack(None, frames, 5),
                           stack("cache", "", 7)], "mappings": list(mappings)}
    return json.dumps(document)


def profiles(*arguments, **head):
    return profile_data.parse_profiles([profile_text(*arguments, **head)], "test")


class Owners(unittest.TestCase):
    """The frame that a site is named by."""

    def own(self, *frames):
        return owners.own_frame([sites.Frame(function, "", 0, module, 0) for function, module in frames]).function

    def test_wrappers_of_malloc(self):
        for name in ("xmalloc", "zrealloc_usable", "_PyObject_Malloc", "PyMem_RawCalloc", "my_malloc", "g_malloc0_n", "xstrdup",
                     "g_strdup_printf", "je_malloc", "mi_malloc_aligned", "ztrymalloc_usable_internal", "av_realloc_f", "xasprintf",
                     "SDL_malloc_REAL", "CRYPTO_zalloc", "ruby_xmalloc2_body", "sqlite3DbMallocRawNN", "luaM_realloc_", "safeRealloc",
                     "mallocWithAbort", "malloc_or_die", "png_malloc_warn", "MALLOC", "alignedAlloc", "posix_memalign",
                     "node::Malloc<char>(unsigned long)", "Pool<int>::malloc(unsigned long)", "WTF::fastMalloc(unsigned long)"):
            self.assertEqual(self.own((name, "/bin/a"), ("work", "/bin/a")), "work", name)

    def test_names_that_only_contain_malloc(self):
        for name in ("preallocate_pool", "set_normalLocation", "localLocation", "prealloc", "file_prealloc", "mallocator_init",
                     "Mallocator::make(int)", "dynamicAllocation", "basicAlloc", "thermallocate", "malloc_table", "reallocate_buffers",
                     "realloc_table", "strdup_list", "malloc_test", "test_malloc", "leakMalloc", "memalignment", "small_object"):
            self.assertEqual(self.own((name, "/bin/a"), ("work", "/bin/a")), name)

    def test_an_allocator_is_no_prefix(self):
        for name, is_inner in (("malloc", True), ("hak__malloc_slow", True), ("operator new(unsigned long)", True), ("malloc_table", False),
                               ("realloc_all", False), ("hak_demo", False)):
            self.assertEqual(profile_data.is_of_allocator(sites.Frame(name, "", 0, "/bin/a", 0)), is_inner, name)

    def test_libraries_by_whole_names(self):
        """The library and the tools know the same names."""
        source = (Path(__file__).parents[3] / "src/observe/loaded.c").read_text(encoding="utf-8")
        literals = re.findall('"(.*?)"', source.partition("library_names[] =")[2].partition(";")[0])
        names = "".join(literals).split("\\0")[:-1]
        self.assertIn("libc", names)
        for name in names:
            for end in ".so", ".so.6", "-2.31.so", "-a04fdf82.so.1":
                self.assertEqual(self.own(("f", f"/lib/{name}{end}"), ("work", "/bin/a")), "work", name + end)
            for end in *(() if "ld" in name or "-" in name else ("pool.so", "-Client.so.1")), ".some.so", ".so.d":
                self.assertEqual(self.own(("f", f"/lib/{name}{end}"), ("work", "/bin/a")), "f", name + end)

    def test_the_users_wrappers(self):
        frames = ("pool_get<int>(int)", "/bin/a"), ("util::take(int)", "/bin/a"), ("work", "/bin/a")
        self.assertEqual(self.own(*frames), frames[0][0])
        owners.use_wrappers(types.SimpleNamespace(wrappers=["pool_*,other", "util::take"]))
        try:
            self.assertEqual(self.own(*frames), "work")
        finally:
            owners.use_wrappers(types.SimpleNamespace(wrappers=[]))

    def test_code_without_names(self):
        """It is the program's, unless it is in no file or in a run-time library."""
        libc, cxx = "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/libstdc++.so.6.0.30"
        self.assertEqual(self.own(("", cxx), ("", libc), ("", "/bin/a"), ("qsort", libc)), "")
        frames = [sites.Frame("", "", 0, module, at) for at, module in enumerate((cxx, libc, "/bin/a", "/bin/b"))]
        self.assertEqual(owners.own_frame(frames).module, "/bin/a")
        self.assertEqual(self.own(("", ""), ("", "[vdso]"), ("work", "/bin/a")), "work")
        self.assertEqual(self.own(("start_thread", libc), ("clone3", libc)), "start_thread")  # there is nothing else

    def test_libraries_in_the_program(self):
        for name in ("alloc::vec::from_elem", "<str>::repeat", "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
                     "<&mut alloc::vec::Vec<T> as core::iter::x>::y", "<hashbrown::raw::RawTable<T> as core::clone::Clone>::clone",
                     "__rustc::__rust_alloc", "std::vector<A<(B)1>, std::allocator<A> >::push_back(A&&)", "xmalloc.part.0",
                     "_ZSt11make_sharedI4NodeJEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_",
                     "_ZNSt6vectorI1ASaIS0_EE9push_backEOS0_", "_ZNK9__gnu_cxx5__aux1fEv",
                     "void std::vector<A>::_M_realloc_insert<A>(A)", "util::xmalloc(unsigned long)", "operator new[](unsigned long)"):
            self.assertEqual(self.own((name, "/bin/a"), ("work", "/bin/a")), "work", name)

    def test_what_looks_like_a_library(self):
        for name in ("core::Engine::load(int)", "alloc::grow()", "<app::Tree as core::clone::Clone>::clone",
                     "std::vector<int, std::allocator<int> > make<int>(int)", "(anonymous namespace)::fill(std::string const&)",
                     "allocate_all", "Node::operator new(unsigned long)"):
            self.assertEqual(self.own((name, "/bin/a"), ("work", "/bin/a")), name)

    def test_files_decide(self):
        inner = [sites.Frame("fill", "/rustc/0123abc/library/alloc/src/vec/mod.rs", 9, "/bin/a", 0),
                 sites.Frame("std::hash<Key>::operator()(Key)", "/src/key.h", 3, "/bin/a", 0)]
        self.assertEqual(owners.own_frame(inner), inner[1])

    def test_python(self):
        for python in "/usr/bin/python3.12", "/usr/lib/libpython3.13d.so.1.0":
            inner, outer = ("PyByteArray_Resize", python), ("_PyEval_EvalFrameDefault", python)
            script = ("py::load:/srv/app.py", "")
            self.assertEqual(self.own(inner, outer, script, outer), script[0])
            self.assertEqual(self.own(inner, outer), inner[0])
            self.assertEqual(self.own(("fill", "/srv/module.so"), outer, script), "fill")  # an extension in C
        self.assertEqual(self.own(("work", "/bin/pythonic"), ("py::load:/srv/app.py", "")), "work")


class Texts(unittest.TestCase):
    def test_bytes_that_are_not_ascii(self):
        parsed = document.parse('{"path": "/tmp/gr\\u00c3\\u00b6\\u00c3\\u009fe", "other": "\\u00ff", "list": [{"name": "\\u00c3\\u00bc"}]}')
        self.assertEqual(parsed, {"path": "/tmp/größe", "other": "\xff", "list": [{"name": "ü"}]})


def numbers(data):
    """The varints in the data."""
    found, shift = [0], 0
    for byte in data:
        found[-1] |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(0)
            shift = 0
    return found[:-1]


# From pprof's proto/profile.proto, not from the code under test. Capitals: a message.
PROTO = {
    "Profile": {1: "sample_type ValueType", 2: "sample Sample", 3: "mapping Mapping", 4: "location Location", 5: "function Function",
                6: "string_table", 9: "time_nanos", 10: "duration_nanos", 11: "period_type ValueType", 12: "period", 14: "default_sample_type"},
    "ValueType": {1: "type", 2: "unit"},
    "Sample": {1: "location_id", 2: "value", 3: "label Label"},
    "Label": {1: "key", 2: "str", 3: "num"},
    "Mapping": {1: "id", 2: "memory_start", 3: "memory_limit", 4: "file_offset", 5: "filename", 6: "build_id", 7: "has_functions",
                8: "has_filenames", 9: "has_line_numbers", 10: "has_inline_frames"},
    "Location": {1: "id", 2: "mapping_id", 3: "address", 4: "line Line"},
    "Line": {1: "function_id", 2: "line"},
    "Function": {1: "id", 2: "name", 3: "system_name", 4: "filename"},
}


def decode(name, data):
    """The fields of a message of protobuf: numbers, lists of numbers, of messages, and of bytes."""
    made, rest = {}, data
    while rest:
        end = next(i for i, byte in enumerate(rest) if byte < 0x80) + 1
        tag, rest = numbers(rest[:end])[0], rest[end:]
        field, _, kind = PROTO[name][tag >> 3].partition(" ")
        end = next(i for i, byte in enumerate(rest) if byte < 0x80) + 1
        value, rest = numbers(rest[:end])[0], rest[end:]
        if tag & 7 == 2:
            value, rest = rest[:value], rest[value:]
            if kind:
                value = decode(kind, value)
            elif field != "string_table":
                made[field] = numbers(value)
                continue
            made.setdefault(field, []).append(value)
        else:
            made[field] = value
    return made


class Profiles(unittest.TestCase):
    def test_stacks_are_kept_apart_by_name(self):
        made = profiles()[0]
        self.assertEqual(sorted((stack.site_name, stack.sums["live_bytes"]) for stack in made.stacks),
                         [("", 35), ("cache", 7), ("parser;<nodes>", 100)])
        labels = [site.label() for site in profile.sites_of(made, "live_bytes")]
        self.assertTrue(labels[0].startswith(f"[parser;<nodes>] {symbols.UNMAPPED}"), labels)
        self.assertTrue(labels[1].startswith(symbols.UNMAPPED), labels)
        self.assertEqual(labels[2], "[cache] unknown (no stack)")

    def test_pprof(self):
        file = io.BytesIO()
        pprof.write_pprof(profiles(), file)
        read = decode("Profile", gzip.decompress(file.getvalue()))
        text = [string.decode() for string in read["string_table"]]
        functions = {function["id"]: text[function["name"]] for function in read["function"]}
        locations = {location["id"]: functions[location["line"][0]["function_id"]] for location in read["location"]}
        found = {(text[sample["label"][0]["str"]] if "label" in sample else "", sample["value"][3],
                  locations[sample["location_id"][0]]) for sample in read["sample"]}
        self.assertTrue({"time_nanos", "duration_nanos"}.isdisjoint(read))  # an older hakmem wrote no time
        self.assertEqual(found, {("parser;<nodes>", 100, "[parser;<nodes>]"), ("", 35, symbols.UNMAPPED), ("cache", 7, "[cache]")})

    def test_pprof_of_what_changes(self):
        """As net/http/pprof's with seconds: differences, which may be negative, and their duration. Equal stacks are left out."""
        def document(text, *live):
            read = profile_data.parse_document(text, "test")
            for stack, held in zip(read[1], live):
                stack.update(live_bytes=held)
            return read

        process = types.SimpleNamespace(pid=1, start=2, stack=3)
        with unittest.mock.patch.object(served_profiles, "make_profile", lambda document, process: profile_data.make_profile(document)):
            for first, wanted in (({1: (process, document(profile_text(), 100, 30, 5, 7))}, [-20, 50]), ({}, [7, 15, 150])):
                last = {1: (process, document(profile_text(duration_us=9), 150, 10, 5, 7))}  # two without a name are one stack
                data = served_profiles.packed("/debug/pprof/heap", (10.0, first), (12.5, last))
                read = decode("Profile", gzip.decompress(data))
                self.assertEqual(read["duration_nanos"], 2_500_000_000)
                values = [sample["value"] for sample in read["sample"]]
                signed = [value[3] - (1 << 64 if value[3] >> 63 else 0) for value in values]
                self.assertEqual(sorted(signed), wanted)
                self.assertEqual({value[5] for value in values}, {0})

    def test_pprof_mappings(self):
        """The program comes first, with build ids and the addresses that the process had."""
        program, library = "/nonexistent/prog", "/nonexistent/lib.so"
        mappings = [{"line": f"5000-6000 r-xp 00001000 08:02 7 {library}", "build_id": "aabb", "bias": "0x4000"},
                    {"line": f"8000-9000 r-xp 00001000 08:02 8 {program} (deleted)", "build_id": "ccdd", "bias": "0x7000"}]
        made = profiles(mappings, "0x5010 0x8020", program=program, time=1700000000, duration_us=1_500_000)
        self.assertEqual(made[0].remarks, [f"{name} has offsets instead of names: its file is gone ({path}; --symfs FOLDER names where "
                                           "the right one is)." for name, path in (("lib.so", library), ("prog", program))])
        file = io.BytesIO()
        pprof.write_pprof(made, file)
        read = decode("Profile", gzip.decompress(file.getvalue()))
        text = [string.decode() for string in read["string_table"]]
        self.assertEqual((read["time_nanos"], read["duration_nanos"], read["period"]), (1700000000 * 10**9, 1_500_000_000, 4096))
        found = [(text[mapping["filename"]], text[mapping.get("build_id", 0)], mapping.get("memory_start"), mapping.get("memory_limit"),
                  mapping.get("file_offset"), "has_functions" in mapping) for mapping in read["mapping"]]
        self.assertEqual(found[0], (program, "ccdd", 0x8000, 0x9000, 0x1000, False))
        self.assertIn((library, "aabb", 0x5000, 0x6000, 0x1000, False), found)
        places = {(found[location["mapping_id"] - 1][0], location.get("address")) for location in read["location"]}
        self.assertLessEqual({(program, 0x801f), (library, 0x500f)}, places)
