"""./hakmem top: a living process, again and again."""
import select
import sys
import time
from collections import deque

from . import view
from .attach import connect
from .observer import observed
from .processes import Ended, Refusal, STATUS_USAGE, parse_pid
from .report import is_terminal, size, take

ROWS_PLAIN = 15
HELP = "q quit  p pause  sort classes: h held  u in use  w free  c class"


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", nargs="?", help="the process; without it: the list of observed processes")
    parser.add_argument("--once", action="store_true", help="print one report as plain text")
    parser.add_argument("--batch", metavar="N", type=int, help="print N reports as plain text")
    parser.add_argument("--delay", metavar="SECONDS", type=float, default=1.0, help="from one report to the next (1)")
    parser.epilog = "Keys: " + HELP


def list_processes():
    found = observed()
    if not found:
        print("no process is observed: ./hakmem top PID attaches to one, HAKMEM_OBSERVE=1 starts one that is")
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


def print_reports(observer, times, delay):
    before, history = None, deque(maxlen=view.HISTORY)
    for turn in range(times):
        if turn:
            time.sleep(delay)
        report = take(observer)
        history.append(report)
        lines = view.summary(report, before, [] if times == 1 else history)
        for table in view.tables(report, before, "h"):
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


def draw(report, before, history, sort, paused, height):
    """The screen as rich draws it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    lines = view.summary(report, before, history)
    parts = [Text(line, no_wrap=True, overflow="ellipsis", style="bold" if number == 0 else "")
             for number, line in enumerate(lines)]
    shown = view.tables(report, before, sort)
    room = max(height - len(lines) - 2 - 4 * len(shown), 3)
    for table, rows in zip(shown, (room - min(room // 2, len(shown[1].rows) + len(shown[2].rows)), room // 4, room // 4)):
        drawn = Table(title=table.title, title_justify="left", box=None, pad_edge=False)
        for column in table.columns:
            drawn.add_column(column, justify="right", no_wrap=True)
        for row in table.rows[: max(rows, 1)]:
            drawn.add_row(*row)
        if table.rows:
            parts += ["", drawn]
    parts.append(Text(("paused   " if paused else "") + HELP, style="reverse" if paused else "dim"))
    return Group(*parts)


def show_screen(observer, delay):
    from rich.console import Console
    from rich.live import Live

    console = Console()
    before, report, history = None, take(observer), deque(maxlen=view.HISTORY)
    history.append(report)
    sort, paused, due = "h", False, time.monotonic() + delay
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(report, before, history, sort, paused, console.size.height), refresh=True)
            key = keys.wait(due - time.monotonic() if not paused else 3600)
            if key in ("q", "Q", "\x1b"):
                return
            if key in view.SORTS:
                sort = key
            if key in ("p", " "):
                paused = not paused
            if not paused and time.monotonic() >= due:
                before, report = report, take(observer)
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
    observer, _ = connect(pid)
    try:
        if is_plain:
            print_reports(observer, 1 if arguments.once else arguments.batch or 1_000_000, arguments.delay)
        else:
            show_screen(observer, arguments.delay)
    except Ended as ended:
        print(f"hakmem: {ended}", file=sys.stderr)
