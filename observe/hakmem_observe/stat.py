"""./hakmem stat: one report of a living process."""
import sys

from .attach import connect
from .processes import parse_pid


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", help="the process")
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    parser.add_argument("--full", action="store_true", help="print the whole report, not only its summary")


def ask_first(observer, names):
    """The reply to the first of these requests that the process knows."""
    for name in names[:-1]:
        try:
            return observer.ask(name)
        except KeyError:
            pass
    return observer.ask(names[-1])


def run(arguments):
    observer, _ = connect(parse_pid(arguments.pid))
    names = ["json"] if arguments.json else ["full", "text"] if arguments.full else ["summary", "text"]
    sys.stdout.buffer.write(ask_first(observer, names))
    sys.stdout.flush()
