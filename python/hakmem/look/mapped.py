# SPDX-License-Identifier: MIT
"""What a process has in memory beside its heap: rows for the summary, from the kernel's list of its mappings."""
import os
import re

from .processes import read_text

HEAD = re.compile(r"[0-9a-f]+-[0-9a-f]+ (?P<rights>[-rwxsp]{4}) \S+ \S+ (?P<inode>\d+) *(?P<path>.*)")
SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")  # files of memory
# Of report_writer's line: title, MiB and percent.
NOT_HAKMEM = re.compile(r"  not hakmem's +(\d+\.\d\d) MiB +(\d+\.\d) %.*")
RSS = re.compile(r"resident memory \(RSS\) +(\d+\.\d\d) MiB")
FILES_NAMED = 3


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


def with_rows(report, pid):
    """The report, a text, with the parts of what is not hakmem's below that line. They add up to it."""
    line, whole = NOT_HAKMEM.search(report), RSS.search(report)
    try:
        found = groups(read_text(f"/proc/{pid}/smaps"))
    except OSError:
        return report
    if not line or not whole or float(whole[1]) == 0:
        return report
    rows, left = [], round(100 * float(line[1]))  # hundredths of a MiB, as the report has them
    for title, files in found.items():
        held = min(round(100 * sum(files.values()) / 2**20), left)
        left -= held
        rows.append((title, held, "" if title == "main stack" else largest(files)))
    rows.append(("anonymous", left, "the program's own mappings, stacks of threads"))
    shown = "".join(f"\n    {title:<21}{held / 100:>13.2f} MiB {held / float(whole[1]):>5.1f} %  {note}".rstrip()
                    for title, held, note in rows if held)
    return report[:line.end()] + shown + report[line.end():]
