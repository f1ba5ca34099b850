"""./hakmem stat, top, metrics, observe, profile, learn: python3 -m hakmem_observe COMMAND. Only standard modules until a command needs
more."""
import argparse
import importlib
import os
import sys

from .processes import Refusal, STATUS_CANNOT, STATUS_USAGE

COMMANDS = ("stat", "top", "metrics", "observe", "profile", "learn")


class Parser(argparse.ArgumentParser):
    """One sentence for a wrong command line."""

    def error(self, message):
        name = self.prog.split()[-1]
        raise Refusal(f"{name}: {message} (./hakmem {name} --help)", STATUS_USAGE)


def run(words):
    if not words or words[0] not in COMMANDS:
        raise Refusal(f"there is no command '{words[0] if words else ''}'", STATUS_USAGE)
    module = importlib.import_module(f".{words[0]}", __package__)
    parser = Parser(prog=f"./hakmem {words[0]}", description=module.__doc__.partition(": ")[2],
                    allow_abbrev=False)
    module.add_arguments(parser)
    words, program = words[1:], []
    if getattr(module, "RUNS_PROGRAMS", False) and "--" in words:
        end = words.index("--")
        words, program = words[:end], words[end + 1:]
    arguments = parser.parse_args(words)
    arguments.program = program
    return module.run(arguments) or 0


def main():
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except Refusal as refusal:
        print(f"hakmem: {refusal}", file=sys.stderr)
        status = refusal.status
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads: no message at the end either
        status = 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        what = f"cannot use '{error.filename}'" if error.filename else "cannot write the output"
        print(f"hakmem: {what}: {error.strerror}", file=sys.stderr)
        status = STATUS_CANNOT
    sys.exit(status)


if __name__ == "__main__":
    main()
