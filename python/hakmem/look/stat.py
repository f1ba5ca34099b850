# SPDX-License-Identifier: MIT
"""./hakmem stat: Prints one report of a living process."""
import sys

from . import view
from .attach import connect
from .binaries import sentences
from .mapped import with_fields, with_rows
from .processes import parse_pid
from .report import Reporter, read_figures
from .sites import add_naming, use_naming

SITES_SHOWN = 10


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", help="the process id")
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    parser.add_argument("--full", action="store_true", help="print the whole report, not only its summary")
    add_naming(parser)


def run(arguments):
    use_naming(arguments)
    observer, _ = connect(parse_pid(arguments.pid))
    name = "json" if arguments.json else "full" if arguments.full else "summary"
    text = observer.ask(name)
    shown, pid = text.decode("utf-8", "replace"), observer.process.pid
    sys.stdout.write(with_fields(shown, read_figures(text, pid), pid) if arguments.json else with_rows(shown, pid))
    sys.stdout.flush()
    if name == "summary":
        reporter = Reporter(observer)
        report = reporter.take()
        table = view.sites_table(report, None, "u")
        table.drop("each second")
        if table.rows:
            print("\n" + "\n".join([*view.plain(table, SITES_SHOWN), *sentences(reporter.names)]))
