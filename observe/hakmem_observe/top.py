"""./hakmem top: a living process, again and again."""
import select
import sys
import time
from collections import deque

from . import view
from .attach import connect
from .observer import observed
from .output import worded
from .processes import Ended, Refusal, STATUS_USAGE, parse_pid
from .report import Reporter, is_terminal, size
from .text import plain

ROWS_PLAIN = 15
HELP = {  # below the table of classes, or of sites
    "classes": "q quit  p pause  s sites  sort classes: h held  u in use  w free  c class",
    "sites": "q quit  p pause  s classes  sort sites: u in use  g growth  w rounding  a allocated",
}
NO_SITES = worded("no site was sampled: start the process with HAKMEM_SAMPLE_BYTES=512k, or run ./hakmem profile PID")


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", nargs="?", help="the process; without it: the list of observed processes")
    parser.add_argument("--once", action="store_true", help="print one report as plain text")
    parser.add_argument("--batch", metavar="N", type=int, help="print N reports as plain text")
    parser.add_argument("--delay", metavar="SECONDS", type=float, default=1.0, help="from one report to the next (1)")
    parser.epilog = f"Keys with size classes: {HELP['classes']}. Keys with sites: {HELP['sites']}."


def list_processes():
    found = observed()
    if not found:
        print(worded("no process is observed: ./hakmem top PID attaches to one, HAKMEM_OBSERVE=1 starts one that is"))
    for process in found:
        print(f"{process.pid:>8}  {size(process.rss):>10}  {process.name}")


def choose():
    """The process if there is one only, or if the user names it; None: there is none to show."""
    found = observed()
    if len(found) == 1:
        return found[0].pid
    list_processes()
    if not found:
        return None
    try:
        answer = input("process: ").strip()
    except EOFError:
        return None
    return parse_pid(answer) if answer else None


def print_reports(reporter, times, delay):
    before, history = None, deque(maxlen=view.HISTORY)
    for turn in range(times):
        if turn:
            time.sleep(delay)
        report = reporter.take()
        history.append(report)
        lines = view.summary(report, before, [] if times == 1 else history)
        for table in view.tables(report, before):
            if table.rows:
                lines += ["", *view.plain(table, ROWS_PLAIN)]
        print("\n".join(lines), end="\n\n" if turn + 1 < times else "\n", flush=True)
        before = report


class Keys:
    """Single keys from the terminal, without echo."""

    def __enter__(self):
        import termios
        import tty

        self.termios, self.file = termios, sys.stdin.fileno()
        self.before = termios.tcgetattr(self.file)
        tty.setcbreak(self.file)
        return self

    def __exit__(self, *_):
        self.termios.tcsetattr(self.file, self.termios.TCSADRAIN, self.before)

    def wait(self, seconds):
        """The next key; "" if none comes in time."""
        ready, _, _ = select.select([self.file], [], [], max(seconds, 0))
        return (sys.stdin.read(1) or "q") if ready else ""


class Choice:
    """What the user has chosen to see: classes or sites, and their orders."""

    def __init__(self):
        self.table = "classes"
        self.sorts = {"classes": "h", "sites": "u"}

    def press(self, key):
        if key == "s":
            self.table = "sites" if self.table == "classes" else "classes"
        elif key in (view.SORTS if self.table == "classes" else view.SITE_SORTS):
            self.sorts[self.table] = key

    def make(self, report, before):
        """The table that has most of the screen."""
        make = view.classes_table if self.table == "classes" else view.sites_table
        table = make(report, before, self.sorts[self.table])
        if self.table == "sites" and not table.rows:
            table.title = NO_SITES
        return table


def draw(report, before, history, choice, paused, screen):
    """The screen as rich draws it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    lines = list(map(plain, view.summary(report, before, history)))
    parts = [Text(line, no_wrap=True, overflow="ellipsis", style="bold" if number == 0 else "")
             for number, line in enumerate(lines)]
    shown = [choice.make(report, before), view.heaps_table(report), view.counters_table(report, before)]
    room = max(screen.height - len(lines) - 2 - 4 * len(shown), 3)
    for table, rows in zip(shown, (room - min(room // 2, len(shown[1].rows) + len(shown[2].rows)), room // 4, room // 4)):
        drawn = Table(title=table.title, title_justify="left", box=None, pad_edge=False)
        widths = [max(map(len, cells)) + 2 for cells in zip(table.columns, *table.rows)]
        for column in table.columns:
            if column == "site":  # a name that is too long is cut, not the figures
                drawn.add_column(column, no_wrap=True, max_width=max(screen.width - sum(widths[:-1]), 10))
            else:
                drawn.add_column(column, justify="right", no_wrap=True)
        for row in table.rows[: max(rows, 1)]:
            drawn.add_row(*map(Text, map(plain, row)))  # in a plain string, rich takes [brackets] for markup
        if table.rows:
            parts += ["", drawn]
        elif table.title == NO_SITES:
            parts += ["", Text(NO_SITES)]
    parts.append(Text(("paused   " if paused else "") + HELP[choice.table], style="reverse" if paused else "dim"))
    return Group(*parts)


def show_screen(reporter, delay):
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.__stdout__)  # it writes what a terminal obeys; the texts in it are plain
    reporter.observer.may_note = False  # it would stand in the picture
    before, report, history = None, reporter.take(), deque(maxlen=view.HISTORY)
    history.append(report)
    choice, paused, due = Choice(), False, time.monotonic() + delay
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(report, before, history, choice, paused, console.size), refresh=True)
            key = keys.wait(due - time.monotonic() if not paused else 3600)
            if key in ("q", "Q", "\x1b"):
                return
            choice.press(key)
            if key in ("p", " "):
                paused = not paused
            if not paused and time.monotonic() >= due:
                before, report = report, reporter.take()
                history.append(report)
                due = time.monotonic() + delay


def run(arguments):
    if arguments.batch is not None and not 1 <= arguments.batch <= 1_000_000:
        raise Refusal("top: --batch needs a number from 1 to 1000000 (./hakmem top --help)", STATUS_USAGE)
    if not 0.05 <= arguments.delay <= 3600:
        raise Refusal("top: --delay needs seconds from 0.05 to 3600 (./hakmem top --help)", STATUS_USAGE)
    has_screen = is_terminal(sys.stdout) and is_terminal(sys.stdin)
    is_plain = arguments.once or arguments.batch is not None or not has_screen
    if arguments.pid is None and is_plain:
        return list_processes()
    pid = parse_pid(arguments.pid) if arguments.pid is not None else choose()
    if pid is None:
        return None
    reporter = Reporter(connect(pid)[0])
    try:
        if is_plain:
            print_reports(reporter, 1 if arguments.once else arguments.batch or 1_000_000, arguments.delay)
        else:
            show_screen(reporter, arguments.delay)
    except Ended as ended:
        print(f"hakmem: {ended}", file=sys.stderr)
