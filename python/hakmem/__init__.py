# SPDX-License-Identifier: MIT
"""hakmem, a drop-in malloc for Linux: the shared library, and the command that runs programs on it.

    hakmem run -- python app.py                 the command, in a shell
    subprocess.run(command, env=hakmem.environment())   the same for a child of this process
"""
import os
from pathlib import Path

_PRIVATE = Path(__file__).resolve().parent / "libexec/hakmem"


def _part(name):
    """The path of an installed part, which the launcher finds by the same file."""
    for line in (_PRIVATE / "installed").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == name:
            return value
    raise LookupError(f"hakmem: this installation has no {name}")


def __getattr__(name):
    """__version__ of an installed hakmem."""
    if name == "__version__":
        return _part("version")
    raise AttributeError(f"module 'hakmem' has no attribute '{name}'")


def library():
    """The path of libhakmem.so, for LD_PRELOAD."""
    return os.path.normpath(_PRIVATE / _part("library"))


def launcher():
    """The path of the program behind the command hakmem, a script of bash."""
    return str(_PRIVATE / "hakmem")


def environment(**options):
    """This process's environment, with which a new process runs on hakmem; options as in docs/options.md, such as
    purge_delay_ms=100."""
    path = library()
    if set(path) & set(" :$\t\n"):
        raise ValueError(f"LD_PRELOAD cannot hold the path {path}; the command hakmem can")
    preload = os.environ.get("LD_PRELOAD")
    variables = {f"HAKMEM_{name.upper()}": str(value) for name, value in options.items()}
    return {**os.environ, **variables, "LD_PRELOAD": f"{path}:{preload}" if preload else path}
