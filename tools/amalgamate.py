#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes all of hakmem as one source and one header: hakmem.c and hakmem.h.

Usage: amalgamate.py [--meson] DIRECTORY

`cc -O2 program.c hakmem.c -pthread` then makes a program that runs on hakmem. --meson adds meson.build, so that the
directory is a Meson subproject. The output depends on the sources alone. The folder hakmem has the names that programs
include elsewhere, such as hakmem/hakmem.h, so that those of an installed hakmem are not taken for them.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Each includes only those before it.
FIRST_HEADERS = ["hakmem", "stats"]
HEADERS = FIRST_HEADERS + sorted({path.stem for path in (ROOT / "include/hakmem").glob("*.h")} - set(FIRST_HEADERS))
INCLUDE = re.compile(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')

HEAD = """\
/* hakmem.c: all of hakmem {version}, a drop-in malloc for Linux. tools/amalgamate.py wrote this file.
 *
 *   cc -O2 program.c hakmem.c -pthread        malloc, free and the like of the program are hakmem's
 *   cc -O2 -DHAK_OVERRIDE=0 ...               only the hak_ functions of hakmem.h are
 *
 * A shared library wants -fvisibility=hidden as well, so that it exports nothing else.
 * Needs gcc or clang, C11 with GNU extensions, and Linux on x86-64 or aarch64.
 *
{licence} */
#ifndef HAK_OVERRIDE
#define HAK_OVERRIDE 1
#endif

/* hakmem's code gets a section of its own: by its bounds a sample's stack finds the program's call. */
#define HAK_TEXT __attribute__((section("hakmem_text")))

"""


def fail(text):
    sys.exit(f"amalgamate: {text}")


def version():
    text = (ROOT / "include/hakmem/hakmem.h").read_text()
    return ".".join(re.findall(r"^#define HAK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text, re.M))


def licence():
    """The text as lines of a comment."""
    return "\n".join(f" * {line}".rstrip() for line in (ROOT / "LICENSE").read_text().splitlines())


def public_header():
    """The public headers one behind the other; each keeps its guard."""
    text = (f"/* hakmem.h: the functions of hakmem {version()}. tools/amalgamate.py wrote this file.\n"
            " * SPDX-License-Identifier: MIT; hakmem.c has the text. */\n")
    for name in HEADERS:
        source = (ROOT / f"include/hakmem/{name}.h").read_text()
        text += "\n" + re.sub(r'^#include "hakmem/\w+\.h"\n\n?', "", source, flags=re.M)
    return text


def place_functions(lines):
    """Puts HAK_TEXT before every function that the file defines: in this tree, a function's body begins with a brace at
    the start of a line, and nothing else does."""
    lines = list(lines)
    for number in [number for number, line in enumerate(lines) if line == "{"]:
        start = number - 1
        while lines[start][0].isspace():
            start -= 1
        while start > 0 and re.match(r"\w", lines[start - 1]) and not re.search(r"[;}>/\\]$", lines[start - 1]):
            start -= 1
        lines[start] = "HAK_TEXT " + lines[start]
    return lines


class Unit:
    """One output file: sources with their own headers in place of the #include lines, each once."""

    def __init__(self):
        self.done = set()
        self.system = set()
        self.parts = []

    def add(self, name):
        path = ROOT / "src" / name
        if name in self.done:
            return
        self.done.add(name)
        if not path.is_file():
            fail(f"src/{name} does not exist")
        self.parts.append(f"\n/* ---- {name} ---- */\n")
        depth = 0
        for line in place_functions(path.read_text().splitlines()):
            include = INCLUDE.match(line)
            if re.match(r"\s*#\s*if", line):
                depth += 1
            elif re.match(r"\s*#\s*endif", line):
                depth -= 1
            if include is None:
                self.parts.append(line + "\n")
            elif include.group(2):
                self.add_system(include.group(2), line, depth - name.endswith(".h"))
            elif not include.group(1).startswith("hakmem/"):
                self.add(include.group(1))

    def add_system(self, name, line, depth):
        """Those that every machine has stand at the top; the others where they are."""
        if depth == 0:
            self.system.add(name)
        else:
            self.parts.append(line + "\n")


def source():
    unit = Unit()
    unit.add("hakmem.c")
    body = "".join(unit.parts)
    # The first lines of src/hakmem.c, which have to come before all headers.
    settings = re.findall(r"^#define (?:HAK_UNITY|_GNU_SOURCE) 1\n", body, re.M)
    if len(settings) != 2:
        fail("src/hakmem.c does not define HAK_UNITY and _GNU_SOURCE as 1")
    for line in settings:
        body = body.replace(line, "", 1)
    body = re.sub(r"^#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n", "", body, flags=re.M)
    body = body.replace(".pushsection .text\\n", '.pushsection hakmem_text,\\"ax\\",%progbits\\n')
    body = re.sub(r"\n{3,}", "\n\n", body)
    headers = "".join(f"#include <{name}>\n" for name in sorted(unit.system))
    guard = "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE 1\n#endif\n"
    return (HEAD.format(version=version(), licence=licence()) + "#define HAK_UNITY 1\n" + guard + "\n" + headers +
            '\n#include "hakmem.h"\n' + body)


def main():
    words = sys.argv[1:]
    meson = "--meson" in words
    places = [word for word in words if word != "--meson"]
    if len(places) != 1 or places[0].startswith("-"):
        fail("usage: amalgamate.py [--meson] DIRECTORY")
    directory = Path(places[0])
    files = {"hakmem.c": source(), "hakmem.h": public_header()}
    for name in HEADERS:
        files[f"hakmem/{name}.h"] = '#include "../hakmem.h"\n'
    files["hakmem/hakmem.hpp"] = (ROOT / "include/hakmem/hakmem.hpp").read_text()
    if meson:
        text = (ROOT / "packaging/meson/meson.build").read_text()
        files["meson.build"] = text.replace("@VERSION@", version())
    try:
        (directory / "hakmem").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    except OSError as error:
        fail(f"cannot write to {directory}: {error.strerror}")


if __name__ == "__main__":
    main()
