#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes lists from the tables of the code: the help of `run`, and in the pages of PARTS what stands between
<!-- NAME: written by ... --> and <!-- end -->.

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
    macros |= {"ARENAS_AUTOMATIC": 0, "CACHE_BYTES_AUTOMATIC": 0, "FOREIGN_ABORT": 0}
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
    rows = []
    for kind, name, when, place, help_text, advice in table("src/core/option_list.h", "OPTIONS"):
        values = {profile: shown(kind, place, profile, knobs, settings) for profile, knobs in by_profile.items()}
        default = values["default"]
        others = [f"; {profile} {value}" for profile, value in values.items() if value != default and kind != "PROFILE"]
        rows.append(f"| `HAKMEM_{name.upper()}` | {help_text} {advice} | {default}{''.join(others)} | {WHEN[when]} |")
    head = "| name | meaning, and when to set it | default, and where a profile differs | may change |\n|---|---|---|---|\n"
    return {"options": head + "\n".join(rows)}

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
    return {"counters": "\n".join(rows)}

def control():
    actions = [f'| `"{name}"` | {value} | {help_text} |'
               for name, _, value, help_text in table("src/front/control.h", "CONTROL_ACTIONS")]
    return {"actions": "| name | value | what it does |\n|---|---|---|\n" + "\n".join(actions)}

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
    head = "| probe | arguments | fires when |\n|---|---|---|\n"
    return {"probes": head + "\n".join(rows), "bpftrace": "\n".join(bpftrace)}

PARTS = {"docs/options.md": (options, control), "docs/observability/README.md": (counters,),
         "docs/observability/probes.md": (probe_page,)}

def filled(name, lists):
    """The page with the lists between their marks."""
    page = (ROOT / name).read_text()
    for part, text in {part: text for each in lists for part, text in each().items()}.items():
        page, count = re.subn(rf"(<!-- {part}: .*? -->\n\n).*?(?=<!-- end -->)", lambda mark: f"{mark[1]}{text}\n\n", page, flags=re.S)
        if count != 1:
            sys.exit(f"{name}: {count} marks of {part}, not one")
    return page

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
    pages = {name: filled(name, lists) for name, lists in PARTS.items()}
    pages |= {"python/hakmem/help/run.txt": run_help()}
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
