"""./hakmem stat: one report of a living process."""
import sys

from .attach import connect
from .processes import parse_pid


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", help="the process")
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    parser.add_argument("--full", action="store_true", help="print the whole report, not only its summary")


def run(arguments):
    observer, _ = connect(parse_pid(arguments.pid))
    name = "json" if arguments.json else "full" if arguments.full else "summary"
    sys.stdout.buffer.write(observer.ask(name))
    sys.stdout.flush()
