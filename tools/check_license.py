#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that every source file names its licence in its first lines. Usage: check_license.py [--fix] [TREE]

The line is SPDX's (https://spdx.dev/learn/handling-license-info), in a comment of the file's language. Documents,
pictures, data and files that have no comments fall under LICENSE without one."""

import subprocess
import sys
from pathlib import Path

FIX = "--fix" in sys.argv[1:]
ROOT = Path(next((word for word in sys.argv[1:] if word != "--fix"), Path(__file__).resolve().parent.parent))
LINE = "SPDX-License-Identifier: MIT"
FORMS = {
    "/* {} */": (".c", ".h", ".hpp", ".cc", ".java", ".map"),
    "// {}": (".rs", ".go", ".js"),
    "; {}": ("fpm.conf",),
    "# {}": (".py", ".sh", ".cmake", ".toml", ".yml", ".conf", ".rb", ".build"),
}
NAMES = dict.fromkeys(("hakmem", ".ci/run", "CMakeLists.txt"), "# {}")


def form_of(path: Path) -> str | None:
    """How a comment of this file looks; None: it needs no line."""
    name = path.as_posix()
    for known, form in NAMES.items():
        if known in (name, path.name):
            return form
    return next((form for form, ends in FORMS.items() if name.endswith(ends)), None)


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode != 0:  # an archive of the sources
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = [path.as_posix() for path in found if path.parts[0] != "build" and not path.parts[0].startswith(".")]
    else:
        names = listed.stdout.decode().split("\0")
    return [Path(name) for name in names if name and (ROOT / name).is_file() and form_of(Path(name))]


def add(path: Path) -> None:
    text = path.read_text()
    first, rest = text.split("\n", 1) if text.startswith("#!") else ("", text)
    path.write_text((first + "\n" if first else "") + form_of(path.relative_to(ROOT)).format(LINE) + "\n" + rest)


def main() -> int:
    found = sources()
    lacking = [name for name in found if LINE not in "".join((ROOT / name).read_text().splitlines(True)[:3])]
    if FIX:
        for name in lacking:
            add(ROOT / name)
        return 0
    for name in lacking:
        print(f"{name}: no line '{LINE}'; tools/check_license.py --fix adds it")
    print(f"check_license: {len(found)} sources, {len(lacking)} problems")
    return 1 if lacking or not found else 0


if __name__ == "__main__":
    sys.exit(main())
