#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks figures and lists of the documents against their sources: golden files, headers, tables of the code.

Usage: check_figures.py [ROOT]

FACTS: a page must state the figure, in the words of the pattern, and each match must have the right one. FALSE: words that
no page may say, because the code says otherwise. The functions named check_... compare lists.
"""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
PAST = {"CHANGELOG.md", "decisions"}  # a record states what was measured then


def read(name):
    return (ROOT / name).read_text()


def defines(text):
    """The #defines of a header that are constant expressions, by name."""
    found = {"HAK_TINY_LIMITS": 0, "HAK_SECURE": 0, "HAK_LEVEL": 0}
    text = re.sub(r"/\*.*?\*/", "", text.replace("\\\n", " "), flags=re.S)
    for name, words in re.findall(r"^#define (\w+) +(.+)$", text, re.M):
        words = re.sub(r"\b(\d+|0x[0-9A-Fa-f]+)[uU]\b", r"\1", words)
        words = re.sub(r"\((\w+) \? ([^:]+) : ([^:]+)\)", r"(\2 if \1 else \3)", words).replace("/", "//")
        try:
            found.setdefault(name, eval(words, {"__builtins__": {}}, found))
        except (SyntaxError, NameError, TypeError):
            pass
    return found


GOLDEN = dict(re.findall(r"^gcc-12 (\S+) (\d+)$", read("tests/golden/fast_path.txt"), re.M))
HIT = [GOLDEN["malloc(100)"], GOLDEN["malloc(2000)"], GOLDEN["free(100)"]]
LIMITS = defines(read("src/core/limits.h"))
CLASSES, CLASSES_MAX = LIMITS["CLASS_COUNT"], int(re.search(r"OWNER_SPAN_TAKEN = (\w+),", read("src/region/window.h"))[1], 0) // 2
SEARCH = 2 * LIMITS["LOOKS_MAX"] + 1
RULES = read("python/hakmem/lab/verdict.py")
ROUNDS = re.search(r"^ROUNDS, ROUNDS_MAX = (\d+), (\d+)", read("python/hakmem/lab/options.py"), re.M).groups()
PERFORMANCE = read("docs/performance.md")
OURS = re.search(r"measured twice \| (\d\.\d\d)", PERFORMANCE)[1]
PEERS = sorted(re.findall(r"^\| [a-z0-9 ]+ \| (\d\.\d\d) \| \d\.\d\d \|$", PERFORMANCE, re.M))

FACTS = [  # page, pattern with a group for each figure, figures
    ("docs/performance.md", r"instructions of malloc up to 1,040 bytes, above, and of free \(gcc 12\) \| (\d+), (\d+), (\d+)", HIT),
    ("README.md", r"hakmem\s+needs\s+(\d+)\s+%\s+more\s+time\s+than\s+this\s+best.*?the\s+others\s+need\s+(\d+)\s+to\s+(\d+)\s+%\s+more",
     [round(100 * float(time)) - 100 for time in (OURS, PEERS[0], PEERS[-1])]),
    ("lab/README.md", r"takes (\d+) instructions now, above 1,040 bytes\s+(\d+), and a hit of free (\d+)", HIT),
    ("lab/cost_model.toml", r"^malloc_hit = \[\{ instructions = (\d+)", HIT[:1]),
    ("lab/cost_model.toml", r"^malloc_hit_mid = \[\{ instructions = (\d+)", HIT[1:2]),
    ("lab/cost_model.toml", r"^free_hit = \[\{ instructions = (\d+)", HIT[2:]),
    ("docs/design/sizes.md", r"must be at most (\d+) .* It is (\d+), so (\d+) more classes fit",
     [CLASSES_MAX, CLASSES, CLASSES_MAX - CLASSES]),
    ("docs/design/region.md", r"looks\s+at\s+(\d+)\s+superslabs,\s+however\s+large", [2 * SEARCH]),
    ("lab/README.md", r"a verdict needs at least (\d+) samples", [re.search(r"samples_min: int = (\d+)", RULES)[1]]),
    ("docs/benchmarking.md", r"Here (\d+) to (\d+) runs decide", ROUNDS),
    ("docs/design/remote_free.md", r"one locked operation, or (\w+) if the owner",
     re.findall(r"costs one atomic operation, or (\w+) if", " ".join(read("src/cache/remote.c").replace("\n *", " ").split()))),
]
FALSE = [
    (r"owner word[^.|]* (?:holds|has) [^.|]*(?:arena|owner arena) and the\s+size class\b|owner word: a size class",
     "an owner word has twice the size class"),
    (r"(?:XOR key|, the result)\s+is the\s+size class", "the result is twice the size class"),
    (r"the\s+size class in the owner word", "an owner word has twice the size class"),
    (r"(?:below|less than) 240", "window.h bounds the number of classes"),
    (r"malloc takes the slow path[^.]*in two cases", "src/front/fast.h has three exits"),
    (r"compare-and-swap\s+tells it", "src/cache/remote.c: three atomic operations"),
    (r"(?:[Nn]ineteen|[Ee]ighteen|[Tt]wenty) (?:short )?(?:answers|questions)", "the table grows"),
    (r"ends by `_exit`[^.]*writes none|dash ends by `_exit`", "docs/observability/README.md: reports are written at _exit"),
    (r'^\| "free of a foreign pointer" in the log', "the log says: foreign pointer not freed"),
    (r"installs (?:the Python package )?rich\b", "python/hakmem/look imports the standard library only"),
    (r"there are \d+ samples", "verdict.py has a least and a most number"),
    (r"all rights are reserved", "LICENSE is MIT"),
    (r"includes only files that stand above it", "the drawing lacks files, and its groups use each other"),
    (r"every mechanism in `src/`", "the page has those of the allocator alone"),
    (r"It says that nobody will notice", "INCONCLUSIVE says that the runs could not tell"),
    (r"[Tt]he other locks: [A-Z_]+,", "locks.md has the list of locks"),
    (r"\d+ of \d+ test files", "each new test changes it"),
    (r"\bL2\.5\b", "the code knows no such name"),
    (r"one pool of memory for all threads", "docs/design/arena.md: a few arenas"),
    (r"the only lock that allocation holds over the kernel", "locks.md: HUGE is held over mincore"),
    (r"less time than the fastest of seven others in each", "performance.md: a mean, and it names workloads behind"),
    (r"Each bound [^.]* and the test that fails", "some rows name no test"),
    (r"many writes to freed memory", "guarantees.md: writes to the first 16 bytes"),
]


def documents():
    return [ROOT / "README.md", ROOT / "lab/README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in PAST)]


def check_facts():
    for page, pattern, figures in FACTS:
        found = re.findall(pattern, read(page), re.M)
        wanted = tuple(str(figure) for figure in figures)
        if not found:
            yield f"{page}: does not say: {pattern}"
        for match in found:
            match = match if isinstance(match, tuple) else (match,)
            if match != wanted:
                yield f"{page}: says {', '.join(match)}, but the code has {', '.join(wanted)}; correct the page: {pattern}"


def check_false():
    for path in [*documents(), ROOT / "packaging/debian/finish.sh", ROOT / "tools/write_lists.py"]:
        text = path.read_text()
        for pattern, why in FALSE:
            for match in re.finditer(pattern, text, re.M):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}: '{' '.join(match[0].split())}', but {why}"


def check_locks():
    page = read("docs/design/locks.md")
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+)\b[^|]*\|[^|]*\| ([^|]*) \|", page, re.M)
    ranks = re.findall(r"^ +LOCK_RANK_([A-Z_]+)\b", read("src/core/lock.h"), re.M)
    if [(int(number), name) for number, name, _ in rows] != list(enumerate(ranks, 1)):
        yield f"docs/design/locks.md: the table of locks is not that of src/core/lock.h: {', '.join(ranks)}"
    held = [name for _, name, over in rows if over.startswith("yes")]
    words = ", ".join(held[:-1]) + f" and {held[-1]} are held over a system call"
    if words not in page:
        yield f"docs/design/locks.md: the table says: only {words}"


def check_glossary():
    page = read("docs/glossary.md")
    letters = re.findall(r"^## (.*)$", page, re.M)
    terms = [re.sub(r"[^a-z0-9 ]", "", term.lower()) for term in re.findall(r"^- \*\*([^*]*)\*\*", page, re.M)]
    for kind, names in (("section", letters), ("term", terms)):
        for first, second in zip(names, names[1:]):
            if first >= second:
                yield f"docs/glossary.md: {kind} '{second}' stands behind '{first}'"


def check_test_folders():
    page = read("tests/README.md")
    for path in {path.parent for path in (ROOT / "tests").glob("*/*") if path.parent.name != "__pycache__"}:
        if f"| `tests/{path.name}` |" not in page:
            yield f"tests/README.md: the table of folders has no row of tests/{path.name}"


def check_imports():
    """The tools that look into processes need Python alone."""
    for path in (ROOT / "python/hakmem/look").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else \
                [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for name in names:
                if name.split(".")[0] not in sys.stdlib_module_names | {"hakmem"}:
                    yield f"{path.relative_to(ROOT)}: imports {name}, which is not of the standard library"


def check_structs():
    """The structs of stats.h are written again in Rust, and the report has each field of struct hak_stats."""
    header, crate, report = "include/hakmem/stats.h", "bindings/rust/hakmem-sys/src/lib.rs", "src/observe/report.c"
    text = re.sub(r"/\*.*?\*/", "", read(header), flags=re.S)
    types = {"size_t": "usize", "uint32_t": "u32", "uint64_t": "u64"}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S):
        fields = [(field, types[kind]) for kind, field in re.findall(r"(\w+) (\w+);", body)]
        again = re.search(rf"^pub struct {name} \{{\n(.*?)^\}}", read(crate), re.M | re.S)
        if again and re.findall(r"pub (\w+): (\w+)", again[1]) != fields:
            yield f"{crate}: struct {name} has other fields than in {header}: write them in the same order"
        if name == "hak_stats":
            written = {"bytes_" * (kind == "PART") + field for kind, field in re.findall(r"\b(FIELD|PART)\((\w+)", read(report))}
            for field, _ in fields[2:]:
                if field not in written:
                    yield f"{report}: report_totals lacks {field} of struct {name}: add FIELD({field}, ...)"


def check_release():
    released = re.search(r"^## ([\d.]+) \(([\d-]+)\)", read("CHANGELOG.md"), re.M).groups()
    log = read("packaging/debian/changelog")
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    day, month, year = re.search(r"^ -- .*>  \w+, (\d+) (\w+) (\d+)", log, re.M).groups()
    packed = (re.match(r"hakmem \(([\d.]+)\)", log)[1], f"{year}-{months.index(month) + 1:02}-{int(day):02}")
    if packed != released:
        yield f"packaging/debian/changelog: {packed[0]} of {packed[1]}, CHANGELOG.md {released[0]} of {released[1]}"


def main():
    checks = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
    problems = [problem for check in checks for problem in check()]
    print("\n".join(problems), end="\n" if problems else "")
    print(f"check_figures: {len(FACTS)} figures, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
