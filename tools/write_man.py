#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the manual pages packaging/man/hakmem.1, .3 and .7 from the launcher's help, the public headers and the table of
options.

Usage: write_man.py          writes them
       write_man.py --check  says which one is out of date, status 1
"""
import re
import subprocess
import sys

from write_lists import ROOT, WHEN, first_settings, profiles, shown, table

FIRST_HEADERS = ["hakmem", "stats"]
HEADERS = FIRST_HEADERS + sorted({path.stem for path in (ROOT / "include/hakmem").glob("*.h")} - set(FIRST_HEADERS))
COMMANDS = ["run", "record", "replay", "stat", "top", "profile", "timeline", "heap", "metrics", "observe", "learn"]


def version():
    text = (ROOT / "include/hakmem/hakmem.h").read_text()
    return ".".join(re.findall(r"^#define HAK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text, re.M))


def plain(text):
    """Text as roff shows it: an installed hakmem has a name, and no documents beside it."""
    text = " ".join(text.split()).replace("./hakmem", "hakmem").replace("docs/options.md", "hakmem(7)")
    text = re.sub(r" \(docs/[\w/-]+\.md\)", "", text)
    text = re.sub(r"(;?) ?(?:See )?\bdocs/[\w/-]+\.md(?: [^.]*)?\.(?= |$)", lambda match: "." if match[1] else "", text)
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub(r"^([.'])", r"\\&\1", text)


def entry(term, text):
    return f".TP\n.B {plain(term)}\n{plain(text)}\n"


def page(section, title, body):
    return (f'.\\" tools/write_man.py wrote this page.\n.TH HAKMEM {section} "" "hakmem {version()}" "{title}"\n'
            f".nh\n.ad l\n{body}")


# --- hakmem(1) ---

def launcher(*words):
    done = subprocess.run([ROOT / "hakmem", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def blocks(text):
    """The paragraphs of a help text: ("text", words), or ("entry", term, words) for an indented line and what belongs
    to it."""
    found = []
    for line in text.splitlines():
        item = re.match(r"  (\S.*?)(?:  +(\S.*))?$", line)
        if item and not line.startswith("   "):
            found.append(["entry", item.group(1), item.group(2) or ""])
        elif not line.strip():
            found.append(None)
        elif line[0] == " " and found and found[-1] and found[-1][0] == "entry":
            found[-1][2] += " " + line.strip()
        elif found and found[-1] and found[-1][0] == "text":
            found[-1][1] += " " + line.strip()
        else:
            found.append(["text", line.strip()])
    return [block for block in found if block]


def command(name):
    text = launcher(name, "--help")
    usage, _, rest = text.partition("\n\n")
    lines = [line.replace("Usage:", "").strip() for line in usage.splitlines()]
    body = f".SS {plain(name)}\n" + "".join(f".B {plain(line)}\n.br\n" for line in lines)
    rest = rest.partition("The options for --set")[0]  # hakmem(7) has them
    rest = rest.replace("The first run builds hakmem.\n", "")  # an installed one is built
    for block in [block for block in blocks(rest) if block[1] != "-h, --help"]:
        body += entry(*block[1:]) if block[0] == "entry" else f".PP\n{plain(block[1])}\n"
    return body


def page_1():
    text = launcher("help")
    about = dict(re.findall(r"^  (\w+) +(\S.*)$", text, re.M))
    status = re.search(r"^Exit status: (.*)", text, re.M | re.S).group(1)
    body = ".SH NAME\nhakmem \\- runs programs on the allocator hakmem, and shows their memory\n"
    body += ".SH SYNOPSIS\n.B hakmem\n.I command\n.RI [ argument ...]\n"
    body += (".SH DESCRIPTION\nhakmem is a drop\\-in malloc that is fast, needs little memory, returns freed memory to the "
             "system by itself, and shows where the memory of a program is. This command runs programs on it, records "
             "and replays what they allocate, and looks into processes that run on it.\n.SH COMMANDS\n")
    body += "".join(entry(name, about[name][0].upper() + about[name][1:] + ".") for name in [*COMMANDS, "version", "help"])
    body += ".SH \"COMMANDS IN DETAIL\"\n" + "".join(command(name) for name in COMMANDS)
    body += f".SH \"EXIT STATUS\"\n{plain(status)}\n"
    body += (".SH EXAMPLES\n" + entry("hakmem run --stats -- redis-server", "What a server used its memory for, when it ends.")
             + entry("hakmem run --set purge_delay_ms=100 -- g++ -c big.cc", "Gives free memory back after 100 ms.")
             + entry("hakmem profile --leaks -- ./server", "Which call stacks leak.")
             + entry("hakmem top 4711", "What a running process uses its memory for, every second."))
    return page(1, "User Commands", body + ".SH \"SEE ALSO\"\n.BR hakmem (3),\n.BR hakmem (7),\n.BR malloc (3)\n")


# --- hakmem(3) ---

def sentences(comment):
    """The paragraphs of a C comment; indented lines stay as they are."""
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.strip()[2:-2].splitlines()]
    lines[0] = lines[0].strip()
    text = ""
    for paragraph in re.split(r"\n\s*\n", "\n".join(line.rstrip() for line in lines)):
        if paragraph.startswith("  "):
            text += ".PP\n.nf\n" + "".join(plain_line(line) for line in paragraph.splitlines()) + ".fi\n"
        elif paragraph.strip():
            text += f".PP\n{plain(paragraph)}\n"
    return text


def plain_line(line):
    return re.sub(r"^([.'])", r"\\&\1", line.replace("\\", "\\e").replace("-", "\\-")) + "\n"


def declaration(text):
    """Without what is for the compiler."""
    text = re.sub(r"\bHAK_(API|NOEXCEPT|ATTR_RESULT|ATTR_(ALLOC|RESIZE)\([^;]*\))", "", text)
    text = " ".join(text.split()).replace(" ;", ";").replace("( ", "(")
    return plain(text)


def header_section(name):
    """The head of the header, then each comment that stands before functions, and those functions."""
    text = (ROOT / f"include/hakmem/{name}.h").read_text()
    head = re.search(rf"^/\* {name}\.h: .*?\*/", text, re.M | re.S).group()
    head = re.sub(rf"^/\* {name}\.h: ", "/* ", head)
    body = f".SS <hakmem/{name}.h>\n" + sentences(head)
    # A callback's type is described by the comment before it, and its function by the one that follows.
    found = re.finditer(r"^(/\*(?:[^*]|\*(?!/))*\*/)\n((?:(?:HAK_API|typedef \w+ hak_)[^;]*;\n+"
                        r"|static inline [^{;]*\n\{\n[^}]*\}\n+)+)", text, re.M)
    for comment, declarations in (match.groups() for match in found):
        declarations = re.sub(r"static inline ([^{]*)\n\{[^}]*\}", r"\1;", declarations)
        for one in re.findall(r"[^;]+;", declarations):
            body += f".PP\n.B {declaration(one)}\n"
        body += ".RS 4\n" + sentences(comment).removeprefix(".PP\n") + ".RE\n"
    return body


def page_3():
    body = ".SH NAME\nhakmem \\- functions of the allocator hakmem\n.SH SYNOPSIS\n.nf\n"
    body += "".join(f".B #include <hakmem/{name}.h>\n" for name in HEADERS)
    body += ".PP\n.B cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs hakmem)\n.fi\n"
    body += (".SH DESCRIPTION\nA program that is linked with the library, or runs with it in LD_PRELOAD, needs none of these "
             "functions: malloc, free and their relatives are hakmem's. They are for programs that read their own "
             "statistics, name their call sites, set limits, or use both allocators.\n")
    body += ".SH FUNCTIONS\n" + "".join(header_section(name) for name in HEADERS)
    return page(3, "Library Functions", body + ".SH \"SEE ALSO\"\n.BR hakmem (1),\n.BR hakmem (7),\n.BR malloc (3)\n")


# --- hakmem(7) ---

def page_7():
    by_profile, settings = dict(profiles()), first_settings()
    options = ""
    for kind, name, when, place, help_text, advice in table("src/core/option_list.h", "OPTIONS"):
        values = {profile: shown(kind, place, profile, knobs, settings) for profile, knobs in by_profile.items()}
        value = values.pop("default")
        others = "".join(f"; {other} in the profile {profile}" for profile, other in values.items() if other != value)
        options += entry(f"HAKMEM_{name.upper()}", help_text)
        options += f".br\nDefault: {plain(value)}{plain(others) if kind != 'PROFILE' else ''}. "
        options += f"May change: {WHEN[when]}.\n.br\n{plain(advice)}\n"
    body = ".SH NAME\nhakmem \\- a drop\\-in malloc for Linux, and its environment variables\n"
    body += (".SH DESCRIPTION\nhakmem replaces malloc, free, their relatives, and the operators new and delete of C++. A "
             "program uses it in one of these ways:\n"
             + entry("hakmem run -- PROGRAM", "The launcher; see hakmem(1).")
             + entry("LD_PRELOAD=libhakmem.so.1 PROGRAM", "Any dynamically linked program. Setuid programs are not served.")
             + entry("cc program.c -lhakmem", "A program that is linked with the library; libhakmem.a is the static one.")
             + ".PP\nThe file /proc/PID/maps names the library if hakmem serves the process. With\n.B HAKMEM_STATS=summary\n"
             "a process writes what its memory was used for when it exits.\n")
    body += (".SH OPTIONS\nhakmem reads these environment variables once, when the process starts. Sizes are in bytes and take "
             "the suffixes k, m, g and t; times are in milliseconds. If a name is unknown or a value is not allowed, hakmem "
             "writes one line to standard error and ignores the option. Setuid programs ignore the variables.\n.PP\nThe file "
             "/etc/hakmem.conf has lines NAME=VALUE, which the environment overrides. A program sets options by a string "
             "hak_options, and by hak_option_set; see hakmem(3).\n" + options)
    body += (".SH FILES\n" + entry("/dev/shm/hakmem.UID.PID", "A process that is observed answers through this file, of mode 0600. "
             "It is removed when the process exits."))
    return page(7, "Miscellaneous", body + ".SH \"SEE ALSO\"\n.BR hakmem (1),\n.BR hakmem (3),\n.BR malloc (3),\n.BR ld.so (8)\n")


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit("write_man: unknown argument; see the head of this file")
    stale = False
    for section, text in ((1, page_1()), (3, page_3()), (7, page_7())):
        path = ROOT / f"packaging/man/hakmem.{section}"
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"packaging/man/hakmem.{section} is out of date: run tools/write_man.py")
            stale = True
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
