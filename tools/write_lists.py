#!/usr/bin/env python3
"""Writes docs/options.md and docs/counters.md from the tables in the code.

Usage: write_lists.py          writes them
       write_lists.py --check  says which one is out of date, and which counter nothing counts, status 1
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def table(path, macro):
    """The X(...) entries of a macro as lists of their top-level arguments."""
    text = (ROOT / path).read_text()
    body = re.search(rf"#define {macro}\(X\)(.*?[^\\])\n", text, re.S).group(1).replace("\\\n", " ")
    for entry in re.finditer(r'X\(((?:[^()"]|"[^"]*")*)\)', body):
        parts = re.findall(r'(?:[^,"]|"[^"]*")+', entry.group(1))
        yield [" ".join(part.replace('"', " ").split()) for part in parts]


def options():
    lines = [
        "# Run options",
        "",
        "Written by `tools/write_lists.py` from the table in `src/core/options.c`.",
        "",
        "Each is an environment variable: `HAKMEM_` and the name in capitals. hakmem reads them once, when the process starts.",
        "Sizes take the suffixes k, m, g and t: 64m, 64M, 64MiB are equal. hakmem reports an unknown name or a value that is",
        "not allowed in one line on standard error, and ignores it. Setuid programs ignore all of them.",
        "",
        "With the launcher: `./hakmem run --set purge_delay_ms=100 -- PROGRAM`. The launcher does not start the program when the",
        "name is unknown or the value is not allowed.",
        "",
        "A process that is to report opens the file of `HAKMEM_STATS_FILE` at its start, and keeps it open under a descriptor",
        "number of 512 or more. So the workers of a server can report after they gave up root. Without a file it keeps a copy of",
        "standard error there, because programs such as `ls` close that before they end. exec closes the descriptor, and so does",
        "a child of fork that is not to report. A process that has closed it, or that may not have 512 open files, opens the",
        "file by its name at exit; so does one whose file is a named pipe that nobody reads at its start. A process that ends by",
        "`_exit` or a signal does not report: shell scripts run by dash, for example.",
        "",
        "| name | meaning |",
        "|---|---|",
    ]
    lines += [f"| `HAKMEM_{name.upper()}` | {help_text} |" for _, name, _, help_text in table("src/core/options.c", "OPTIONS")]
    return "\n".join(lines) + "\n"


def counters():
    lines = [
        "# Counters",
        "",
        "Written by `tools/write_lists.py` from the table in `src/core/counters.h`. Kept by each heap, in slow paths only;",
        "`./hakmem run --stats -- PROGRAM` prints their sums and each heap's.",
        "",
        "| name | counts |",
        "|---|---|",
    ]
    lines += [f"| {name} | {text} |" for _, name, text in table("src/core/counters.h", "HAK_COUNTERS")]
    return "\n".join(lines) + "\n"


def counted_by_nothing():
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.c*"))
    names = (name for name, _, _ in table("src/core/counters.h", "HAK_COUNTERS"))
    return [name for name in names if not re.search(rf"\bCOUNTER_{name}\b", code)]


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit("write_lists: unknown argument; see the head of this file")
    stale = False
    for name, text in (("docs/options.md", options()), ("docs/counters.md", counters())):
        path = ROOT / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{name} is out of date: run tools/write_lists.py")
            stale = True
    for name in counted_by_nothing() if check else []:
        print(f"src/core/counters.h: nothing counts {name}")
        stale = True
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
