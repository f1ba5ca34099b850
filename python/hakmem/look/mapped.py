# SPDX-License-Identifier: MIT
"""What a process has in memory beside its heap, from the kernel's list of its mappings: rows of the summary, fields of JSON."""
import json
import os
import re

from .processes import process_folder, read_text

HEAD = re.compile(r"[0-9a-f]+-[0-9a-f]+ (?P<rights>[-rwxsp]{4}) \S+ \S+ (?P<inode>\d+) *(?P<path>.*)")
SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")  # files of memory
# Of the report's line: title, MiB and percent; and the line with a part of it, which the rows here have more exactly.
NOT_HAKMEM = re.compile(r"  not hakmem's +(\d+\.\d\d) MiB +(\d+\.\d) %.*(?:\n    anonymous .*)?")
RSS = re.compile(r"resident memory \(RSS\) +(\d+\.\d\d) MiB")
FILES_NAMED = 3
SMAPS_SECONDS = 2.0  # for the kernel, which walks all page tables


def mappings(text):
    """[(rights, path, resident bytes)] of the text of /proc/PID/smaps."""
    found = []
    for line in text.split("\n"):
        head = HEAD.fullmatch(line)
        if head:
            found.append([head["rights"], head["path"] if head["inode"] != "0" or head["path"][:1] == "[" else "", 0])
        elif line.startswith("Rss:") and found:
            found[-1][2] += int(line.split()[1]) * 1024
    return found


def largest(files):
    """The files with most memory, in words, in MiB."""
    named = sorted(files.items(), key=lambda pair: -pair[1])[:FILES_NAMED]
    return ", ".join(f"{'anonymous' if path.startswith('/dev/zero') else os.path.basename(path.removesuffix(' (deleted)'))} {held / 2**20:.2f}" for path, held in named if held >= 2**20 / 200)


def groups(text):
    """{title: {path: resident bytes}}; anonymous memory is not there, because hakmem's own is among it."""
    found = mappings(text)
    code = {path for rights, path, _ in found if "x" in rights}
    result = {"program and libraries": {}, "other files": {}, "shared memory": {}, "main stack": {}}
    for _, path, held in found:
        title = "main stack" if path == "[stack]" else None if path[:1] != "/" else \
            "shared memory" if path.startswith(SHARED) else "program and libraries" if path in code else "other files"
        if title:
            result[title][path] = result[title].get(path, 0) + held
    return result


def parts(pid, whole):
    """[(title, how much, notes)] of memory that is not hakmem's, which adds up to `whole` bytes. None: the kernel does not say."""
    try:
        found = groups(read_text(f"{process_folder(pid)}/smaps", SMAPS_SECONDS))
    except OSError:
        return None
    rows, left = [], whole
    for title, files in found.items():
        held = min(sum(files.values()), left)
        left -= held
        rows.append((title, held, "" if title == "main stack" else largest(files)))
    return rows + [("anonymous", left, "the program's own mappings, stacks of threads")]


def with_rows(report, pid):
    """The report, a text, with the parts of what is not hakmem's below that line. They add up to it."""
    line, whole = NOT_HAKMEM.search(report), RSS.search(report)
    rows = parts(pid, round(float(line[1]) * 2**20)) if line and whole and float(whole[1]) else None
    if not rows:
        return report
    shown, before = "", 0
    for title, held, note in rows:  # hundredths of a MiB, as the report has them: rounded sums are subtracted, so that they add up
        hundredths = round(100 * (before + held) / 2**20) - round(100 * before / 2**20)
        before += held
        if hundredths:
            shown += f"\n    {title:<21}{hundredths / 100:>13.2f} MiB {hundredths / float(whole[1]):>5.1f} %  {note}".rstrip()
    return report[:line.end()].partition("\n    anonymous ")[0] + shown + report[line.end():]


def with_fields(report, figures, pid):
    """The same for a report in JSON, whose figures these are."""
    whole = figures.get("summary", {}).get("not_hakmem_bytes")
    rows = parts(pid, whole) if isinstance(whole, int) else None
    if not rows:
        return report
    mapped = {title.replace(" ", "_") + "_bytes": held for title, held, _ in rows}
    return report.rstrip()[:-1] + f', "mapped": {json.dumps(mapped)}}}\n'
