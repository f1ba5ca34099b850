#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the sources against the rules of the tree. Usage: check_layers.py [ROOT]

layers     a file of src/ includes its own folder and lower ones; slab and large never meet
unity      src/hakmem.c includes every .c of src/ but the shared library's own, each once, lower layers first; then the
           secure form's own, again lower layers first
#if        only where machines and builds differ: base/compiler, base/arch, core/limits, os/, override/
calls      no printf, malloc, getenv, assert.h in src/
size       lines to 100 columns, files to 500 lines, functions to 70
names      file names are unique in src/
reach      front/fast.h needs few headers: who reads the fast paths need not read arenas, gate or locks
constants  no more #defines with a value than CONSTANTS_MAX says: a new one replaces one that nobody would miss
markers    no unfinished business, no paths of one machine
"""
import re
import sys
from collections import Counter
from pathlib import Path

LAYERS = [["base"], ["os"], ["core"], ["region"], ["slab", "large"], ["cache"], ["arena"], ["heap"], ["control"], ["learn"], ["observe"],
          ["front"], ["override"]]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
IF_ALLOWED = re.compile(r"src/(base/(compiler|arch|tags)\.h|core/limits\.h|os/.*|override/.*)$")
FAST_HEADERS_MAX = 14
SHARED_ONLY = {"override/direct.c", "override/dlopen.c", "override/early.c"}
LINE_MAX, FILE_MAX, FUNCTION_MAX = 100, 500, 70
CONSTANTS_MAX = {"src/core/limits.h": 65, "src and include": 254}
CONSTANT = re.compile(r"^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+(?=\S)(?!.*(?:__|[{;]|do\b|return))", re.M)
FAMILY = r"malloc|calloc|realloc|reallocarray|free|strdup|strndup|aligned_alloc|posix_memalign"
CALL = re.compile(r"(?<![\w.>])(?:v?(?:f|d|s|sn|as)?printf|puts|(?:secure_)?getenv|assert)\s*\(")
FAMILY_CALL = re.compile(rf"(?<![\w.>])(?:{FAMILY})\s*\(")
# Written in two parts so that this file passes its own check.
MARKERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|/(?:ro" r"ot|wo" r"rk)/")
C_SUFFIXES = {".c", ".h", ".hpp", ".cc"}
MARKED_PLACES = ["src", "include", "bench", "trace", "run", "tests", "tools", "cmake", "packaging", "lab", "python", "bindings",
                 "hakmem", "CMakeLists.txt", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".ci", ".github", "docs"]


class Report:
    def __init__(self):
        self.count = 0

    def fail(self, path, line, text):
        self.count += 1
        print(f"{path}:{line}: {text}" if line else f"{path}: {text}")


def strip_comments(text):
    """Blanks comments and the insides of literals, keeping line numbers."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] * 2
        return " " + "\n" * token.count("\n")

    return pattern.sub(blank, text)


def check_includes(report, path, layer, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            if re.match(r"\s*#\s*include\s+<(assert\.h)>", line):
                report.fail(path, number, "assert.h is for tests; use base/check.h")
            continue
        target = match.group(1)
        folder = target.split("/")[0]
        if folder == "hakmem":
            continue
        if "/" not in target or folder not in RANK:
            report.fail(path, number, f'include "{target}": write it as "layer/file.h"')
        elif folder != layer and RANK[folder] >= RANK[layer]:
            report.fail(path, number, f"{layer}/ may not include {folder}/ ({target})")


def is_plain_conditional(path, directive, rest, first):
    """Guards, C++ in public headers, and the macros that shape the unity file."""
    if first and directive == "ifndef" and rest.startswith("HAK"):
        return True
    if re.search(r"\b(HAK_UNITY|_GNU_SOURCE)\b", rest):
        return True
    if str(path).startswith("include/"):
        return re.fullmatch(r"defined\(__(cplusplus|GNUC__)\)|defined\(__GNUC__\)", rest) is not None
    return str(path) == "src/hakmem.c" and rest in ("HAK_OVERRIDE", "HAK_SECURE")


def check_conditionals(report, path, code):
    if IF_ALLOWED.match(str(path)):
        return
    allowed_stack, first = [], True
    for number, line in enumerate(code.splitlines(), 1):
        match = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b\s*(.*?)\s*$", line)
        if not match:
            continue
        directive, rest = match.groups()
        if directive in ("if", "ifdef", "ifndef"):
            allowed = is_plain_conditional(path, directive, rest, first)
            allowed_stack.append(allowed)
            first = False
        else:
            allowed = not allowed_stack or allowed_stack[-1]
            if directive == "endif" and allowed_stack:
                allowed_stack.pop()
        if not allowed and directive != "endif":
            report.fail(path, number, f"#{directive} {rest}: use a constant in a plain if".replace(" :", ":"))


def check_calls(report, path, layer, code):
    for number, line in enumerate(code.splitlines(), 1):
        match = CALL.search(line) or (layer != "override" and FAMILY_CALL.search(line))
        if match and not line.lstrip().startswith("#"):
            report.fail(path, number, f"calls {match.group(0)[:-1].strip()}")


def check_size(report, path, text):
    lines = text.splitlines()
    if len(lines) > FILE_MAX:
        report.fail(path, 0, f"{len(lines)} lines, at most {FILE_MAX}")
    start = 0
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_MAX:
            report.fail(path, number, f"{len(line)} columns, at most {LINE_MAX}")
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start - 1 > FUNCTION_MAX:
                report.fail(path, start, f"function of {number - start - 1} lines, at most {FUNCTION_MAX}")
            start = 0


def check_constants(report, root, paths):
    counts = {str(path): len(CONSTANT.findall((root / path).read_text())) for path in paths}
    counts["src and include"] = sum(counts.values())
    for place, most in CONSTANTS_MAX.items():
        if counts.get(place, 0) > most:
            report.fail(place, 0, f"{counts[place]} constants, at most {most}")


def check_unity(report, root, sources):
    unity = root / "src/hakmem.c"
    if not unity.exists():
        report.fail("src/hakmem.c", 0, "missing")
        return
    text = strip_comments_only(unity.read_text())
    included = re.findall(r'#\s*include\s+"([^"]+\.c)"', text)
    wanted = {str(path.relative_to("src")) for path in sources if path.suffix == ".c" and path.name != "hakmem.c"}
    wanted -= SHARED_ONLY
    for name in sorted(wanted - set(included)):
        report.fail("src/hakmem.c", 0, f"does not include {name}")
    for name in sorted(set(included) - wanted):
        report.fail("src/hakmem.c", 0, f"includes {name}, which does not exist")
    for name, count in Counter(included).items():
        if count > 1:
            report.fail("src/hakmem.c", 0, f"includes {name} {count} times")
    for part in re.split(r"#if HAK_SECURE\n|#if HAK_OVERRIDE\n", text):
        ranks = [RANK.get(name.split("/")[0], 0) for name in re.findall(r'#\s*include\s+"([^"]+\.c)"', part)]
        if ranks != sorted(ranks):
            report.fail("src/hakmem.c", 0, "does not include lower layers first")


def check_reach(report, root):
    needed = todo = {"front/fast.h"}
    while todo:
        texts = [path.read_text() for path in (root / "src" / name for name in todo) if path.exists()]
        todo = {name for text in texts for name in re.findall(r'#\s*include\s+"([^"]+)"', text)} - needed
        needed = needed | todo
    if len(needed) > FAST_HEADERS_MAX:
        report.fail("src/front/fast.h", 0, f"needs {len(needed)} headers: {', '.join(sorted(needed))}")


def strip_comments_only(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def is_cache(path):
    """Whether a tool left it there (.ruff_cache, __pycache__): it is not in the repository, whatever it says."""
    return any(part == "__pycache__" or part.endswith("_cache") for part in path.parts)


def check_markers(report, root):
    for place in MARKED_PLACES:
        start = root / place
        paths = sorted(start.rglob("*")) if start.is_dir() else [start]
        for path in paths:
            if not path.is_file() or path.suffix in {".png", ".svg"} or is_cache(path.relative_to(root)):
                continue
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if match := MARKERS.search(line):
                    report.fail(path.relative_to(root), number, f"'{match.group(0)}' does not belong in the tree")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    report = Report()
    sources = sorted(p.relative_to(root) for p in (root / "src").rglob("*") if p.suffix in C_SUFFIXES)
    headers = sorted(p.relative_to(root) for p in (root / "include").rglob("*.h"))
    for name, count in Counter(path.name for path in sources).items():
        if count > 1:
            report.fail(name, 0, f"{count} files of this name in src/")
    for path in sources + headers:
        text = (root / path).read_text()
        code = strip_comments(text)
        check_size(report, path, text)
        check_conditionals(report, path, code)
        if path.parts[0] != "src" or str(path) == "src/hakmem.c":
            continue
        layer = path.parts[1]
        if layer not in RANK:
            report.fail(path, 0, f"{layer} is not a layer")
            continue
        check_includes(report, path, layer, strip_comments_only(text))
        check_calls(report, path, layer, code)
    check_constants(report, root, sources + headers)
    check_unity(report, root, sources)
    check_reach(report, root)
    check_markers(report, root)
    print(f"check_layers: {len(sources)} sources, {len(headers)} headers, {report.count} problems")
    return 1 if report.count or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
