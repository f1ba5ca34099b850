# SPDX-License-Identifier: MIT
"""What the launcher hands over to: python3 -ISB cli.py COMMAND [ARGUMENT...]."""
import sys

if sys.version_info < (3, 9):  # what is above and here, an older one reads, too
    sys.stderr.write("hakmem: %s needs Python 3.9 or newer; python3 is %s\n" % (sys.argv[1], sys.version.split()[0]))
    sys.exit(125)

import importlib.util
import signal
from pathlib import Path

LAB_COMMANDS = ("bench", "compare", "ab", "tune", "score", "peers", "doctor", "cost")

QUESTIONS = ("--need", "--build", "--link", "--peer")  # of the launcher and of hakmem-run


def load_package():
    """Makes this folder the package hakmem, wherever it lies: Python's path stays as it is, so that no module of another
    folder can take its place."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location("hakmem", folder / "__init__.py", submodule_search_locations=[str(folder)])
    package = importlib.util.module_from_spec(spec)
    sys.modules["hakmem"] = package
    spec.loader.exec_module(package)


def main(words):
    """Runs one command; its exit status. Each part loads only what it needs."""
    end = words.index("--") if "--" in words else len(words)
    words = [word for word in words[:end] if word not in ("--install", "--no-install")] + words[end:]  # the launcher's own
    name, others = (words or [""])[0], words[1:]
    if name == "--lab":  # in the laboratory's environment
        from hakmem.lab.cli import main as run_in_lab
        return run_in_lab(others)
    from hakmem.look.output import status_of
    from hakmem.look.processes import STATUS_FAILED, STATUS_USAGE
    if name in ("build", "test", *LAB_COMMANDS):
        from hakmem.places import leave_out_homes
        leave_out_homes()
        if not (Path(__file__).parents[2] / "CMakeLists.txt").exists():
            print(f"hakmem: {name} needs hakmem's source tree; this is an installed hakmem", file=sys.stderr)
            return STATUS_USAGE
    if name == "build":
        from hakmem.build import run
    elif name == "test":
        from hakmem.testing import run
    elif name == "--prepare":  # what `test` does beside
        from hakmem.testing import prepare as run
    elif name == "--guard":  # of hakmem-run
        from hakmem.look.guard_names import run
    elif name in QUESTIONS:
        from hakmem.early import run
        others = words
    elif name in LAB_COMMANDS:
        from hakmem.environment import run_lab as run
        others = words
    else:
        from hakmem.look.__main__ import run
        return status_of(lambda: run(words))
    return status_of(lambda: run(others), STATUS_FAILED)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where the caller ignores it, each child would seem to succeed
    try:
        load_package()
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # while it starts
        sys.exit(130)
