#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes docs/options.md, docs/counters.md, docs/control.md, docs/api.md and docs/observability/probes.md from the tables
and headers of the code.

Usage: write_lists.py          writes them
       write_lists.py --check  says which one is out of date, which counter nothing counts, which probe stands
                               nowhere and which public function no comment describes, status 1
"""
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NEVER = "never"
WHEN = {"START": "at start", "ANY": "any time", "UNLEARNED": "unless learning"}

OPTIONS_PAGE = """\
# Run options

`tools/write_lists.py` writes this page from the tables in `src/core/option_list.h`.

An option is an environment variable: `HAKMEM_` and the name in capitals. hakmem reads all options once, when the
process starts. With the launcher, write `./hakmem run --set purge_delay_ms=100 -- PROGRAM`. A file and the program
itself can set options, too, and change some of them later: [configuration.md](configuration.md).

- Sizes are in bytes. The suffixes k, m, g and t mean KiB, MiB, GiB and TiB: `64m`, `64M` and `64MiB` are equal.
- Times are in milliseconds and take no suffix.
- If a name is unknown or a value is not allowed, hakmem writes one line to standard error and ignores the option.
  The launcher refuses a wrong `--set` or profile file.
- Setuid programs ignore all options but those of their own string `hak_options`.

## Options and profiles

A profile is a set of values for the options: `default` suits most programs, `fast` keeps freed memory longer, `small`
keeps little, `debug` finds invalid frees. Choose one with `HAKMEM_PROFILE` or with `./hakmem run --profile`, which also
takes a file of settings, such as `./hakmem tune` writes ([learning.md](learning.md)). An option that you set yourself
overrides the profile.

| name | meaning | default, and where a profile differs | may change |
|---|---|---|---|
{table}

The last column says when `hak_option_set` may change the option: at any time, or only at start. `unless learning`
means: at any time, but with `HAKMEM_LEARN` the learner sets it, and `hak_option_set` returns EBUSY.

With `HAKMEM_CACHE_BYTES_TOTAL=0`, the limit is at least 32 MiB. hakmem reads a container's limits only in cgroup
version 2, and if the process may use more than two CPUs. Set the option in other small containers with many threads.

## When to change an option

Most programs need no change. Measure first ([tuning.md](tuning.md)).

{advice}

## Where the report goes

With `HAKMEM_STATS`, the process writes a report when it exits ([the summary](observability/README.md#the-summary)
explains it), also by `_exit` or `quick_exit`, as shells do. A process that a signal ends writes none, unless
`HAKMEM_STATS_SIGNAL` is 1.

The process opens the file of `HAKMEM_STATS_FILE` when it starts, so the workers of a server can report after they gave
up root. Without a file, it keeps a copy of standard error, because programs such as `ls` close standard error before
they end. The descriptor has a number of 512 or more. If the name has a `%p`, a forked child opens a file of its own.
If the program has closed the descriptor, the limit of open files is too low for it, or the file is a named pipe that
nobody reads at the start, the process opens the file by its name when it exits.
"""

COUNTERS_PAGE = """\
# Counters

`tools/write_lists.py` writes this page from the table in `src/core/counters.h`.

The counters say how often hakmem takes its slow paths, and which ones. Each arena and each thread counts for itself.
The fast paths of malloc and free count nothing. `./hakmem run --stats=full -- PROGRAM` prints the sum of each counter,
and the counters of each arena and thread that are not zero.

The [glossary](glossary.md) has the words.

{table}
"""

CONTROL_PAGE = """\
# Control by name

`tools/write_lists.py` writes this page from the tables in `src/front/control.h`, `src/core/option_list.h` and
`src/core/counters.h`.

A program calls one function to read a figure, to read or set an option, or to do something:

```c
#include <hakmem/control.h>

char answer[256];
hak_control("counters.malloc_slow", NULL, answer, sizeof answer);       /* read a figure */
hak_control("options.purge_delay_ms", NULL, answer, sizeof answer);     /* read an option */
hak_control("options.purge_delay_ms", "100", NULL, 0);                  /* set it */
hak_control("report.json", "/var/log/service.json", NULL, 0);           /* append a report to a file */
```

It returns 0 or an errno value ([control.h](../include/hakmem/control.h)). For a console of your program, pass the words
of the user to it and print the answer.

`hak_control("list", NULL, answer, size)` lists all names of the library that the program runs on.

## Actions

The second argument, `value`, is NULL or what the second column says.

| name | value | what it does |
|---|---|---|
{actions}

## Options

`options.NAME` reads an option if `value` is NULL, and sets it otherwise. [options.md](options.md) says what the options
mean. These may change while the program runs:

{options}

All others change at start only: they decide whether a thread starts, a file opens or a table is made. A new value works
within the next 50 ms of allocations of each thread. So does a lower limit of thread caches: the surplus objects go back
at the thread's next frees. Memory that was returned, huge pages that exist and blocks in use stay as they are.

## Figures

Each number of the JSON report has a name: the keys that lead to it, with dots between them.

| names | what they are |
|---|---|
| `summary.NAME` | what the resident memory is used for ([the summary](observability/README.md#the-summary)) |
| `totals.NAME` | the fields of `struct hak_stats` ([stats.h](../include/hakmem/stats.h)) |
| `tiers.NAME` | slabs, spans, huge allocations and tables, in bytes |
| `classes.BYTES.NAME` | objects of one size, such as `classes.64.in_use` |
| `arenas.ID.NAME` | one arena, such as `arenas.1.threads` |
| `os_calls.NAME` | system calls so far |
| `locks.lock_waits` | times that a thread found a lock taken |
| `hakmem.process`, `hakmem.level` | the process id; the assertions that are compiled in, 0 to 2 |
| `counters.NAME` | slow paths so far ([counters.md](counters.md)) |
"""

API_PAGE = """\
# Functions

`tools/write_lists.py` writes this page from the headers in `include/hakmem`.

Each function that a program may call besides those of the C library and of C++, and the first sentence of its
description. The header has the rest.

{tables}
"""

PROBES_PAGE = """\
# Probes

`tools/write_lists.py` writes this page from the table in `src/base/probe.h`.

Probes (USDT) show single events of a running process to bpftrace, perf, SystemTap and gdb. They need no option, no
restart and no other build.

A probe is one `nop` in a slow path of hakmem, and up to five instructions that bring its arguments into registers. A
tool that listens replaces the `nop` with a trap: each hit enters the kernel, and with gdb it stops the process.

## The probes

Each argument is an unsigned number of 8 bytes. bpftrace calls them `arg0`, `arg1` and so on, gdb `$_probe_arg0`.

| probe | arguments | fires when |
|---|---|---|
{table}

- `arena` is the id of an arena in the report.
- `object_bytes` is the object size of the class. The `objects` of a refill include the one that malloc returns.
- `error` is an errno: 12 (ENOMEM), or 17 (EEXIST) if the addresses are taken and hakmem tries others.
- `flags` are the flags of mremap. With bit 2 (`MREMAP_FIXED`), the new addresses were mapped already. With bit 4
  (`MREMAP_DONTUNMAP`), the old addresses stay mapped.
- `state` says what the thread is doing: the sum of the `INSIDE_` bits in `src/core/gate.h`. 0 means that another
  thread's fork takes long.

The probes agree with the report, which `tests/probes` checks with gdb and with bpftrace.

## Which file has them

The probes are in the file that hakmem's code is in: `libhakmem.so`, or a program that is linked with `libhakmem.a`.

    lib=$(grep -om1 '/.*libhakmem[^ ]*' /proc/PID/maps)   # preloaded or linked with the shared library
    lib=$(readlink /proc/PID/exe)                         # linked with the archive
    readelf -n $lib                                       # lists the probes

`strip` keeps the probes. llvm-strip needs the option `--keep-section=.note.stapsdt`.

## bpftrace

bpftrace needs root. Add `-p PID` for one process that runs already. Without it, bpftrace shows all processes that use
the file, also those that start later.

{bpftrace}

## perf

perf needs root and tracefs, which is usually at /sys/kernel/tracing.

    perf buildid-cache --add $lib
    perf probe sdt_hakmem:map
    perf record -e sdt_hakmem:map -g -p PID -- sleep 10

## gdb

gdb needs no root for your own processes. It stops the process at each hit, so do not use it on a service. This command
prints the next mapping and who asked for it:

    gdb -p PID -ex 'break -probe-stap hakmem:map' -ex continue -ex 'print $_probe_arg1' -ex backtrace

`info probes stap hakmem` in gdb lists the probes.
"""

def table(path, macro):
    """The X(...) entries of a macro as lists of their top-level arguments."""
    text = (ROOT / path).read_text()
    body = re.search(rf"#define {macro}\(X\)(.*?[^\\])\n", text, re.S).group(1).replace("\\\n", " ")
    for entry in re.finditer(r'X\(((?:[^()"]|"[^"]*")*)\)', body):
        parts = re.findall(r'(?:[^,"]|"[^"]*")+', entry.group(1))
        yield [" ".join(part.replace('"', " ").split()) for part in parts]

def item(text):
    """The lines of an item of a list."""
    return textwrap.wrap(f"- {text}", 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)

def c_number(text):
    """The value of a knob's initializer, as without tiny limits."""
    text = re.sub(r"\b(\d+)u\b", r"\1", text)
    limits = (ROOT / "src/core/limits.h").read_text()
    macros = {name: lambda size: size for name in ("DELAY_MS", "BIN_BYTES", "CACHE_BYTES", "HUGE_BYTES")}
    macros |= {"KIB": lambda count: count << 10, "MIB": lambda count: count << 20}
    macros["BIN_BYTES_MAX"] = int(re.search(r"BIN_BYTES_MAX \(HAK_TINY_LIMITS \? \d+u : (\d+)u\)", limits).group(1))
    macros |= {"UINT32_MAX": NEVER, "UINT64_MAX": NEVER, "true": 1, "false": 0}
    macros |= {"ARENAS_AUTOMATIC": 0, "CACHE_BYTES_AUTOMATIC": 0, "HAK_SECURE": 0}
    return eval(text, {"__builtins__": {}}, macros)  # text of this project's own source

def profiles():
    """The name of each profile and its knobs."""
    text = (ROOT / "src/core/options.c").read_text().replace("\\\n", " ")
    for name, macro in re.findall(r'\{"(\w+)", (KNOBS_\w+)\}', text):
        body = re.search(rf"#define {macro}\s*\{{(.*?)\}}", text, re.S).group(1)
        fields = re.findall(r"\.(\w+) = ((?:[^,()]|\((?:[^()]|\([^()]*\))*\))+)", body)
        yield name, {field: c_number(value.strip()) for field, value in fields}

def first_settings():
    """What the settings that are not 0 at first begin with."""
    text = (ROOT / "src/core/options.c").read_text().replace("\\\n", " ")
    body = re.search(r"#define SETTINGS_DEFAULT\s*\{(.*?)\}", text, re.S).group(1)
    return {field: c_number(value) for field, value in re.findall(r"\.(\w+) = (\w+)", body) if value != "HAK_CONFIG_FILE"}

def shown(kind, place, profile, knobs, settings):
    """The value of an option in a profile, as a user would write it."""
    if kind == "INPUT":
        return re.search(r'#define HAK_CONFIG_FILE "(.*)"', (ROOT / "src/core/limits.h").read_text()).group(1)
    if kind in ("PROFILE", "STATS", "PATH", "DUMP"):
        return {"PROFILE": profile, "STATS": "none", "DUMP": "none", "PATH": "not set"}[kind]
    values = knobs if place.startswith("hak__knobs.") else settings
    value = values.get(place.rpartition(".")[2], 0)
    if value == NEVER:
        return "no limit" if kind == "BYTES" else NEVER
    units = ["", "k", "m", "g", "t"] if kind.startswith("BYTES") else [""]
    while value and value % 1024 == 0 and len(units) > 1:
        value //= 1024
        units.pop(0)
    return f"{value}{units[0]}"

def options():
    by_profile, settings = dict(profiles()), first_settings()
    rows, advices = [], []
    for kind, name, when, place, help_text, advice in table("src/core/option_list.h", "OPTIONS"):
        values = {profile: shown(kind, place, profile, knobs, settings) for profile, knobs in by_profile.items()}
        default = values["default"]
        others = [f"; {profile} {value}" for profile, value in values.items() if value != default and kind != "PROFILE"]
        rows.append(f"| `HAKMEM_{name.upper()}` | {help_text} | {default}{''.join(others)} | {WHEN[when]} |")
        advices += item(f"`{name}`: {advice}")
    return OPTIONS_PAGE.format(
        table="\n".join(rows),
        advice="\n".join(advices),
    )

def run_help():
    """The text of `./hakmem run --help`, whose end is the table of options. Without those that run has flags for."""
    head = (ROOT / "python/hakmem/help/run.txt").read_text().partition("\n\nThe options for --set")
    knobs, settings = dict(profiles())["default"], first_settings()
    lines = []
    for kind, name, _, place, help_text, _ in table("src/core/option_list.h", "OPTIONS"):
        if not re.fullmatch("profile|stats|stats_file|stats_pid|heap_map_file|announce", name):
            value = shown(kind, place, "default", knobs, settings).replace("not set", "unset")
            entry = f"  {name:20} {value:6} "
            texts = textwrap.wrap(help_text, 80 - 30, break_on_hyphens=False)
            lines += [entry + texts.pop(0)] if len(entry) == 30 else [entry.rstrip()]
            lines += [f"{'':30}{text}" for text in texts]
    return head[0] + head[1] + head[2].partition("\n\n")[0] + "\n\n" + "\n".join(lines) + "\n"

def counters():
    rows = [line for _, name, text in table("src/core/counters.h", "HAK_COUNTERS") for line in item(f"`{name}`: {text}")]
    return COUNTERS_PAGE.format(table="\n".join(rows))

def control():
    actions = [f'| `"{name}"` | {value} | {help_text} |'
               for name, _, value, help_text in table("src/front/control.h", "CONTROL_ACTIONS")]
    options = []
    for key in ("ANY", "UNLEARNED"):
        names = [f"`{name}`" for _, name, when, *_ in table("src/core/option_list.h", "OPTIONS") if when == key]
        options += item(f"{WHEN[key]}: {', '.join(names)}")
    return CONTROL_PAGE.format(actions="\n".join(actions), options="\n".join(options))

def functions(header):
    """Each public name of a header with the comment before it, which also stands for names right after it."""
    text = header.read_text()
    comment = ""
    for match in re.finditer(r"^/\*(.*?)\*/|^(?:HAK_API|static inline) ([^;{]*)|^\n", text, re.S | re.M):
        if match.group(1) is not None:
            comment = " ".join(re.sub(r"\n \*", " ", match.group(1)).split())
        elif match.group(2) is None:
            comment = ""
        elif name := re.search(r"\b(hak_\w+)\s*[(\[]", match.group(2)):
            if name.group(1)[-1] != "_" and name.group(1) != "hak_site_keep":
                yield name.group(1), comment

INTERNAL = "hak_observe_enter", "hak_observe_stack"  # for hakmem-attach, not for programs

def api():
    tables = []
    for header in sorted((ROOT / "include/hakmem").glob("*.h")):
        rows = [line for name, text in functions(header) if name not in INTERNAL
                for line in item(f"`{name}`: " + re.split(r"(?<=[.]) ", text)[0])]
        tables.append(f"## [hakmem/{header.name}](../include/hakmem/{header.name})\n\n" + "\n".join(rows))
    return API_PAGE.format(tables="\n\n".join(tables))

def described_by_nothing():
    return [f"include/hakmem/{header.name}: no comment describes {name}"
            for header in sorted((ROOT / "include/hakmem").glob("*.h")) for name, text in functions(header) if not text]

def probes():
    """For each probe: provider, name, arguments, when it fires, and an example for bpftrace."""
    text = (ROOT / "src/base/probe.h").read_text()
    body = re.search(r"#define HAK_PROBES\(.*?[^\\]\n", text, re.S).group(0).replace("\\\n", " ")
    for entry in re.finditer(r'X\d\((\w+), (\w+), ([\w, ]+), +("[^"]*"(?: +"[^"]*")*), +"([^"]*)"\)', body):
        provider, name, arguments, text, action = entry.groups()
        yield provider, name, arguments.split(", "), " ".join(text.replace('"', " ").split()), action

def probe_page():
    rows, bpftrace = [], []
    for provider, name, arguments, text, action in probes():
        rows.append(f"| {provider}:{name} | {', '.join(arguments)} | {text} |")
        bpftrace.append(f"    bpftrace -e 'usdt:'$lib':{provider}:{name} {{ {action} }}'")
    return PROBES_PAGE.format(table="\n".join(rows), bpftrace="\n".join(bpftrace))

def fired_nowhere():
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.c*"))
    names = (f"probe_{provider}_{name}" for provider, name, *_ in probes())
    return [name for name in names if not re.search(rf"\b{name}\(", code)]

def counted_by_nothing():
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.c*"))
    names = (name for name, _, _ in table("src/core/counters.h", "HAK_COUNTERS"))
    return [name for name in names if not re.search(rf"\bCOUNTER_{name}\b", code)]

def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit("write_lists: unknown argument; see the head of this file")
    stale = False
    pages = {"docs/options.md": options(), "docs/counters.md": counters(), "docs/control.md": control(), "docs/api.md": api(),
             "docs/observability/probes.md": probe_page(), "python/hakmem/help/run.txt": run_help()}
    for name, text in pages.items():
        path = ROOT / name
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{name} is out of date: run tools/write_lists.py")
            stale = True
    for name in counted_by_nothing() if check else []:
        print(f"src/core/counters.h: nothing counts {name}")
        stale = True
    for name in fired_nowhere() if check else []:
        print(f"src/base/probe.h: nothing calls {name}")
        stale = True
    for problem in described_by_nothing() if check else []:
        print(problem)
        stale = True
    sys.exit(1 if stale else 0)

if __name__ == "__main__":
    main()
