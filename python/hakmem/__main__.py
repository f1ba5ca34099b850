# SPDX-License-Identifier: MIT
"""The command hakmem, also as python -m hakmem: becomes the launcher, so that the process stays the same."""
import os
import sys

from . import launcher


def main():
    try:
        os.execvp("bash", ["bash", launcher(), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"hakmem: cannot start bash: {error.strerror}")


if __name__ == "__main__":
    main()
