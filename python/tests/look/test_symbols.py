# SPDX-License-Identifier: MIT
"""Tests of names and lines: the frames of an optimised program against what gdb says of them, and names of Rust.

tests/launcher/profile_names.sh runs them."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hakmem.look import inlined, owners, symbols

# The functions of `leaf`'s callers are inlined, one of them twice, and in C++ through a lambda and a template.
PROGRAM_C = """
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x; }
static inline __attribute__((always_inline)) int scratch(int x)
{
    return leaf(x) + 1;
}
static inline __attribute__((always_inline)) int middle(int x)
{
    int got = scratch(x);

    return got * scratch(x + 1);
}
__attribute__((noinline)) int serve(int x)
{
    int all = 0;
    all += middle(x);
    all += scratch(x);
    return all;
}
int main(void)
{
    return serve(1) == 77;
}
"""
PROGRAM_CXX = PROGRAM_C.replace("""    all += middle(x);
""", """    auto through = [&](int y) { return middle(y); };
    all += through(x);
    all += twice<int>(x);
""").replace("__attribute__((noinline)) int serve", """namespace {
template <class T> inline __attribute__((always_inline)) T twice(T x)
{
    return 2 * scratch(x);
}
}
__attribute__((noinline)) int serve""")

# The inlined function's code is the first of the function around it, whose name addr2line takes from the symbol table.
PROGRAM_FIRST = """
__attribute__((noinline)) int leaf(int x) { __asm__ volatile(""); return x; }
static volatile int shared;
static inline __attribute__((always_inline)) int first(int x)
{
    if (x < 0) {
        return shared;
    }
    for (int i = 0; i < 3; i++) {
        shared += leaf(x + i);
    }
    return shared;
}
__attribute__((noinline)) int serve(int x)
{
    return first(x) + 1;
}
int main(void)
{
    return serve(1) == 77;
}
"""

# For each call of `leaf`: [address of the call, [[function, line], innermost first]].
GDB_SCRIPT = """
import json
calls = []
class Stop(gdb.Breakpoint):
    def stop(self):
        frame, stack, found = gdb.newest_frame().older(), [], None
        address = frame.pc() - 1
        while frame is not None and frame.is_valid() and frame.name() is not None:
            stack.append([frame.name(), frame.find_sal().line])
            if frame.type() != gdb.INLINE_FRAME:
                break
            frame = frame.older()
        calls.append([address, stack])
        return False
Stop("leaf")
gdb.execute("run")
print("CALLS" + json.dumps(calls))
"""


def bare(function):
    return owners.bare_name(function).split("(")[0].split("<")[0].rpartition("::")[2]


class AgainstGdb(unittest.TestCase):
    def compare(self, compiler, suffix, program, options):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            source, made, script = (os.path.join(folder, name) for name in ("program." + suffix, "program", "script.py"))
            Path(source).write_text(program)
            Path(script).write_text(GDB_SCRIPT)
            subprocess.run([compiler, "-g", "-no-pie", *options, source, "-o", made], check=True)
            said = subprocess.run(["gdb", "-nx", "-batch", "-x", script, made], capture_output=True, text=True, timeout=100)
            answer = [line for line in said.stdout.split("\n") if line.startswith("CALLS")]
            if not answer or len(json.loads(answer[0][5:])) == 0:
                self.skipTest(f"gdb runs no program here: {said.stderr[-300:]}")
            calls = json.loads(answer[0][5:])
            found = symbols.lines_of_module(made, sorted({address for address, _ in calls}))
            for address, stack in calls:
                self.assertEqual([[bare(function), line] for function, _, line in found[address]],
                                 [[bare(function), line] for function, line in stack], (options, hex(address)))
        return len(calls)

    def test_inlined_calls(self):
        if not shutil.which("gdb") or not any(map(shutil.which, symbols.LLVM_NAMES)):
            self.skipTest("there is no gdb, or no llvm-symbolizer")
        self.assertEqual(self.compare("cc", "c", PROGRAM_C, ["-O2"]), 3)
        self.assertEqual(self.compare("cc", "c", PROGRAM_C, ["-O0"]), 3)
        if shutil.which("c++"):
            self.assertEqual(self.compare("c++", "cc", PROGRAM_CXX, ["-O2"]), 4)

    def test_binutils_alone(self):
        if not all(map(shutil.which, ("gdb", "addr2line", "c++"))):
            self.skipTest("there is no gdb, addr2line or C++ compiler")
        with mock.patch.object(symbols, "LLVM_NAMES", ()):
            for options in (["-O2"], ["-Os", "-gz"], ["-O2", "-flto"]):
                self.compare("c++", "cc", PROGRAM_FIRST, options)
            self.compare("c++", "cc", PROGRAM_CXX, ["-O2"])
            if shutil.which("clang++"):
                self.compare("clang++", "cc", PROGRAM_FIRST, ["-O2", "-gdwarf-4"])


class BinutilsAlone(unittest.TestCase):
    """What is wrong is not said, and why."""

    def test_second_answers(self):
        places = [("serve(int)", "a.cc", 9), ("serve(int) [clone .cold]", "a.cc", 7), ("serve(int)", "a.cc", 15)]
        self.assertEqual(inlined.suspects(places), [0, 1])
        again = [("first", "a.cc", 9), ("second", "a.cc", 7), ("serve", "a.cc", 15)]
        self.assertEqual([name for name, _, _ in inlined.named_again(places, again)], ["first", "second", "serve(int)"])
        self.assertEqual([name for name, _, _ in inlined.named_again(places, None)], ["", "", "serve(int)"])

    def test_what_addr2line_cannot_read(self):
        with tempfile.TemporaryDirectory() as folder:
            source, made = os.path.join(folder, "program.c"), os.path.join(folder, "program")
            Path(source).write_text(PROGRAM_FIRST)
            for flag, wanted in (("-gsplit-dwarf", True), ("-gz", False)):
                subprocess.run(["cc", "-g", "-O2", flag, source, "-o", made], check=True, cwd=folder)
                self.assertEqual("split debug information" in inlined.missing_in(made), wanted)
            self.assertEqual(inlined.missing_in(source), "")
        unit, end = b"\x01\x11\x01\x03\x0e\x55\x23\x00\x00\x02\x1d\x00\x31\x13\x20\x21\x81\x01", b"\x00\x00\x00"
        self.assertIn((inlined.INLINED, inlined.RANGES, inlined.RNGLISTX), inlined.abbreviations(unit + b"\x55\x23" + end))
        self.assertNotIn((inlined.INLINED, inlined.RANGES, inlined.RNGLISTX), inlined.abbreviations(unit + b"\x55\x17" + end))
        self.assertEqual(len(list(inlined.abbreviations(unit[:9]))), 3)


class Symbolizers(unittest.TestCase):
    def test_what_is_missing(self):
        """What the first does not know, the next one is asked for."""
        asked = []

        def answer(command, path, addresses):
            asked.append((command[0], list(addresses)))
            known = {"llvm": {1: [("one", "a.c", 1)], 2: [("two", "", 0)]}, "addr2line": {2: [("two", "b.c", 2)], 3: [("near", "", 0)]}}
            return {address: places for address, places in known[command[0]].items() if address in addresses}

        before = symbols.ask_symbolizer, symbols.symbolizers
        symbols.ask_symbolizer, symbols.symbolizers = answer, lambda: [("llvm",), ("addr2line",)]
        try:
            self.assertEqual(symbols.lines_of_module("x", [1, 2, 3]),
                             {1: [("one", "a.c", 1)], 2: [("two", "b.c", 2)], 3: [("near", "", 0)]})
        finally:
            symbols.ask_symbolizer, symbols.symbolizers = before
        self.assertEqual(asked, [("llvm", [1, 2, 3]), ("addr2line", [2, 3])])

    def test_lines(self):
        self.assertEqual(symbols.parse_inlined(["f", "a.c:3 (discriminator 2)", "??", "??:0"]), [("f", "a.c", 3), ("", "", 0)])
        self.assertEqual(symbols.parse_inlined(["f.constprop.0.isra.0", "a.c:3"]), [("f", "a.c", 3)])
        self.assertEqual(symbols.parse_inlined(["local", "x.cgu.0:0"]), [("local", "", 0)])  # no line: no debug information

    def test_names_of_rust(self):
        for given, plain in (("_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$::clone::h0123456789abcdef",
                              "<alloc::vec::Vec<T> as core::clone::Clone>::clone"),
                             ("app::run::_$u7b$$u7b$closure$u7d$$u7d$::h0123456789abcdef", "app::run::{{closure}}"),
                             ("plain::h0123", "plain::h0123")):
            self.assertEqual(symbols.plain_rust(given), plain)


PROGRAM_NAMES = """
#include <string>
namespace app { struct Shop { int serve(std::string name); template <class T> T sell(T x) { return x; } }; }
__attribute__((noinline)) int app::Shop::serve(std::string name) { return (int)name.size(); }
template int app::Shop::sell<int>(int);
extern "C" int plain(int x) { return x; }
extern "C" int __plain(int x) __attribute__((alias("plain")));
int main(int argc, char **) { return app::Shop().serve(std::string(argc, 'x')) == 77; }
"""


class FunctionTables(unittest.TestCase):
    def setUp(self):
        if not all(map(shutil.which, ("c++", "nm"))):
            self.skipTest("there is no compiler or nm")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.source, self.made = os.path.join(folder.name, "program.cc"), os.path.join(folder.name, "program")
        Path(self.source).write_text(PROGRAM_NAMES)
        subprocess.run(["c++", "-O1", "-g0", "-no-pie", "-rdynamic", "-Wl,--build-id", self.source, "-o", self.made], check=True)

    def nm(self, *words):
        """{name: (start, size)} of the functions."""
        said = subprocess.run(["nm", "-S", "--defined-only", *words, self.made], capture_output=True, text=True, check=True).stdout
        rows = (line.split(maxsplit=3) for line in said.split("\n"))
        return {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4 and row[2] in "TtWw"}

    def test_against_nm(self):
        wanted = {start + size // 2: name for name, (start, size) in self.nm("-C").items() if name != "__plain"}
        for strip in ([], ["strip", self.made]):
            subprocess.run(strip or ["true"], check=True)
            found = symbols.Files(0).functions([self.made], wanted)
            exported = self.nm("-C", "-D")
            self.assertEqual(found, {address: name if not strip or name in exported else "" for address, name in wanted.items()})
        self.assertIn("app::Shop::serve(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >)", found.values())
        self.assertEqual(symbols.FunctionTable([self.made]).name(1), "")

    def test_without_tools(self):
        files, start = symbols.Files(0), self.nm()["plain"][0]
        shop = next(start for name, (start, _) in self.nm().items() if "serve" in name)
        with mock.patch.object(symbols.shutil, "which", lambda name: None):
            self.assertEqual(files.functions([self.made], [start]), {start: "plain"})
            self.assertEqual(files.remarks, set())
            self.assertRegex(files.functions([self.made], [shop])[shop], "^_ZN3app4Shop5serveE")
        self.assertRegex(*files.remarks, r"c\+\+filt .* is not installed")

    def test_damaged_tables(self):
        """Whatever the numbers are, there is an answer."""
        whole, start = Path(self.made).read_bytes(), self.nm()["main"][0]
        for at in [*range(0, 64), *range(len(whole) - 3000, len(whole) - 8, 7)]:
            for wrong in (b"\xff" * 8, b"\xff\xff\xff\xff\xff\xff\xff\x7f"):
                Path(self.made).write_bytes(whole[:at] + wrong + whole[at + 8:])
                self.assertIsInstance(symbols.FunctionTable([self.made]).name(start), str)

    def test_a_file_mapped_as_two_modules(self):
        """As node's program is, which maps a part of its code a second time: its symbols are read once."""
        serve, about = self.nm()["plain"][0], os.stat(self.made)
        binary = symbols.open_binary(self.made)
        with binary.file:
            build_id = binary.elf.build_id()
            offset = next(serve - address + at for at, size, address in binary.elf.code if address <= serve < address + size) & ~4095
        place = f"{offset:08x} {os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x} {about.st_ino} {self.made}"
        base = serve & ~4095
        records = [{"line": f"{base:x}-{base + 4096:x} r-xp {place}", "build_id": build_id, "bias": "0"},
                   {"line": f"7000000-7001000 r-xp {place}"}]
        frames = [serve + 1, 0x7000000 + serve - base + 1]
        with mock.patch.object(symbols, "FunctionTable", wraps=symbols.FunctionTable) as read:
            made = symbols.Symbols(records, symbols.Files(0, is_own=True, recorded=about.st_ctime))
            made.resolve(frames)
        self.assertEqual([made.frames[frame][0].function for frame in frames], ["plain", "plain"])
        self.assertEqual(read.call_count, 1)


class Closed(unittest.TestCase):
    """Frames with the number of a module, and code in memory that is no file's."""

    def resolve(self, mappings, frames, closed=()):
        made = symbols.Symbols(mappings, symbols.Files(0), closed)
        made.resolve(frames)
        return [made.frames[frame][0].label() for frame in frames]

    def test_numbers(self):
        closed = [{"number": number, "start": "0x7000", "end": "0x9000", "base": "0x7000", "head": "0x1", "path": path}
                  for number, path in ((0, "/nowhere/first.so"), (2, "/nowhere/third.so"))]
        now = ["7000-9000 r-xp 00000000 08:01 7 /nowhere/now.so", "a000-b000 r-xp 00000000 08:01 7 /nowhere/other.so"]
        frames = [0x7101, 2 << 48 | 0x7101, 1 << 48 | 0x7101, 0xFFFF << 48 | 0x7101, 0xA101]
        self.assertEqual(self.resolve(now, frames, closed),
                         ["first.so+0x100", "third.so+0x100", symbols.NOT_TOLD_APART, symbols.NOT_TOLD_APART, "other.so+0x100"])

    def test_memory_behind_a_file(self):
        self.assertEqual(self.resolve(["7000-8000 r--p 00000000 08:01 7 /nowhere/a.so", "8000-9000 r-xp 00000000 00:00 0 "], [0x8101]),
                         [symbols.GENERATED_WITHOUT_MAP])
        self.assertEqual(self.resolve([], [0x8101]), [symbols.UNMAPPED])
