# SPDX-License-Identifier: MIT
"""Output that cannot be written is one sentence and a status, for every command of this folder."""
import os
import sys
from pathlib import Path

from .processes import STATUS_CANNOT, Refusal
from .text import Plain, plain


def worded(text):
    """Text for the user: an installed hakmem is called by its name."""
    in_checkout = (Path(__file__).parents[3] / "hakmem").exists()
    return text if in_checkout else text.replace("./hakmem", "hakmem")


def leave_output():
    """Nobody can have it: no message about it when the interpreter ends either."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def status_of(command, status_cannot=STATUS_CANNOT):
    """Calls the command and writes what it printed; the exit status."""
    if sys.stdout is None:
        print("hakmem: standard output is closed", file=sys.stderr)
        return status_cannot
    before = sys.stdout, sys.stderr
    sys.stdout = Plain(sys.stdout)
    sys.stderr = Plain(sys.stderr) if sys.stderr is not None else None
    try:
        try:
            status = command() or 0
        except SystemExit as ended:  # argparse has printed a help
            status = ended.code or 0
        sys.stdout.flush()
        return status
    except Refusal as refusal:
        print(f"hakmem: {plain(worded(str(refusal)))}", file=sys.stderr)
        try:
            sys.stdout.flush()  # what was printed before
        except OSError:  # one sentence is enough
            leave_output()
        return refusal.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head -1`
        leave_output()
        return 0
    except OSError as error:
        leave_output()
        what = f"cannot use '{error.filename}'" if error.filename else "cannot write the output"
        print(f"hakmem: {plain(what)}: {error.strerror}", file=sys.stderr)
        return status_cannot
    finally:
        sys.stdout, sys.stderr = before
