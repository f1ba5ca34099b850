"""What the launcher hands over to: python3 -I -B cli.py COMMAND [ARGUMENT...]."""
import importlib.util
import sys
from pathlib import Path

LAB_COMMANDS = ("bench", "compare", "ab", "tune", "replicate", "score", "peers", "doctor", "cost")


def load_package():
    """Makes this folder the package hakmem, wherever it lies: Python's path stays as it is, so that no module of another
    folder can take its place."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location("hakmem", folder / "__init__.py", submodule_search_locations=[str(folder)])
    package = importlib.util.module_from_spec(spec)
    sys.modules["hakmem"] = package
    spec.loader.exec_module(package)


def main():
    """Runs one command; its exit status. Each part loads only what it needs."""
    if sys.argv[1:2] and sys.argv[1] in LAB_COMMANDS:
        from hakmem.lab.cli import main as run
    else:
        from hakmem.look.__main__ import main as run
    return run()


if __name__ == "__main__":
    try:
        load_package()
        sys.exit(main())
    except KeyboardInterrupt:  # while it starts
        sys.exit(130)
