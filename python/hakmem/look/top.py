# SPDX-License-Identifier: MIT
"""./hakmem top: Shows a living process, again and again."""
import os
import re
import select
import shutil
import sys
import time
import unicodedata
from collections import deque

from . import view
from .attach import connect
from .binaries import sentences
from .figures import size
from .observer import observed
from .output import worded
from .processes import Ended, Refusal, STATUS_USAGE, parse_pid
from .report import Reporter, is_terminal
from .sites import add_naming, use_naming

ROWS_PLAIN = 15
HELP = {  # below the table of classes, or of sites
    "classes": "q quit  p pause  s sites  sort: h held  u in use  w free  c class",
    "sites": "q quit  p pause  s classes  sort: u in use  g growth  w rounding  a allocated",
}
STYLES = {"": "", "bold": "\x1b[1m", "dim": "\x1b[2m", "heads": "\x1b[2;4m", "reverse": "\x1b[7m", "end": "\x1b[0m"}
COLOURS = (  # of parts of a line
    (re.compile(f"{view.USED}+"), "\x1b[36m"),
    (re.compile(f"{view.FREE}+"), "\x1b[33m"),
    (re.compile(r"(?<= )\+(?=[0-9.]*[1-9])\S+"), "\x1b[31m"),  # growth
    (re.compile(r"(?<= )-(?=[0-9.]*[1-9])\S+"), "\x1b[32m"),
    (re.compile(f"(?<=resident |in use   )[{view.BARS}]+"), "\x1b[36m"),
)
NO_SITES = worded("no site was sampled: start the process with HAKMEM_SAMPLE_BYTES=512k, or run ./hakmem profile PID")


def add_arguments(parser):
    parser.add_argument("pid", metavar="PID", nargs="?", help="the process id; without it, list the observed processes")
    parser.add_argument("--once", action="store_true", help="print one report as plain text")
    parser.add_argument("--batch", metavar="N", type=int, help="print N reports as plain text")
    parser.add_argument("--delay", metavar="SECONDS", type=float, default=1.0, help="time from one report to the next; 1 when not given")
    add_naming(parser)
    parser.epilog = f"Keys with size classes: {HELP['classes']}. Keys with sites: {HELP['sites']}."


def list_processes():
    found = observed()
    if not found:
        print(worded("no process is observed; ./hakmem top PID attaches to a process, and HAKMEM_OBSERVE=1 lets a new one be observed"))
    for process in found:
        print(f"{process.pid:>8}  {size(process.rss):>10}  {process.name}")


def report_lines(reporter, report, before, history):
    """Of plain text."""
    lines = view.summary(report, before, history)
    for table in view.tables(report, before):
        if table.rows:
            lines += ["", *view.plain(table, ROWS_PLAIN)]
    return lines + [*sentences(reporter.names)]


def print_reports(reporter, times, delay):
    before, history = None, deque(maxlen=view.HISTORY)
    for turn in range(times):
        if turn:
            time.sleep(delay)
            reporter.observer.allow()
        report = reporter.take()
        history.append(report)
        lines = report_lines(reporter, report, before, [] if times == 1 else history)
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


def no_colour():
    return bool(os.environ.get("NO_COLOR"))


def fit(text, width):
    """The text without what would move the cursor, cut to a number of columns."""
    shown, room = "", width
    for character in text:
        character = character if character.isprintable() else "?"
        if not unicodedata.combining(character):
            room -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if room < 0:
            while shown and unicodedata.combining(shown[-1]):
                shown = shown[:-1]
            return shown[:-1] + "…"
        shown += character
    return shown


def coloured(text):
    for pattern, colour in COLOURS:
        text = pattern.sub(lambda match, colour=colour: colour + match[0] + "\x1b[39m", text)
    return text


def folded(line, width):
    """The line in pieces that fit, broken between figures."""
    at = line.rfind("   ", 0, width)
    if len(line) <= width or not line[:max(at, 0)].strip():
        return [line]
    return [line[:at], *folded(" " * 9 + line[at:].lstrip(), width)]


def draw(report, before, history, choice, paused, columns, rows):
    """The lines of a screen of that size."""
    first, *others = view.summary(report, before, history)
    lines = [("bold", first), *(piece for line in others for piece in folded(line, columns - 1))]
    shown = [choice.make(report, before), view.arenas_table(report), view.counters_table(report, before)]
    room = max(rows - len(lines) - 1 - 3 * len(shown), 3)
    smaller = len(shown[1].rows) + len(shown[2].rows)
    for table, most in zip(shown, (room - min(room // 2, smaller), room // 4, room // 4)):
        if table.rows:
            title, heads, *drawn = view.plain(table, max(most, 1), columns)
            lines += ["", ("bold", title), ("heads", heads), *drawn]
        elif table.title == NO_SITES:
            lines += ["", NO_SITES]
    lines = lines[: rows - 1]
    lines.append(("reverse" if paused else "dim", ("paused   " if paused else "") + HELP[choice.table]))
    drawn = []
    for line in lines:
        style, text = line if isinstance(line, tuple) else ("", line)
        fitting = fit(text, columns - 1)
        drawn.append(STYLES[style] + (fitting if style or no_colour() else coloured(fitting)) + (STYLES["end"] if style else ""))
    return drawn


class Screen:
    """The terminal's other screen, which leaves no trace of itself."""

    def write(self, text):
        stream = getattr(sys.stdout, "stream", sys.stdout)  # not text.Plain: fit() has cleaned the names
        stream.write(text)
        stream.flush()

    def __enter__(self):
        self.write("\x1b[?1049h\x1b[?25l")
        return self

    def __exit__(self, *_):
        self.write("\x1b[?25h\x1b[?1049l")

    def show(self, lines):
        self.write("\x1b[H" + "\r\n".join(f"\x1b[2K{line}" for line in lines) + "\x1b[J")


def show_screen(reporter, delay):
    reporter.observer.may_note = False  # it would stand in the picture
    before, report, history = None, reporter.take(), deque(maxlen=view.HISTORY)
    history.append(report)
    choice, paused, due = Choice(), False, time.monotonic() + delay
    try:
        with Keys() as keys, Screen() as screen:
            while True:
                columns, rows = shutil.get_terminal_size()
                screen.show(draw(report, before, history, choice, paused, columns, rows))
                key = keys.wait(due - time.monotonic() if not paused else 3600)
                if key in ("q", "Q", "\x1b"):
                    return
                choice.press(key)
                if key in ("p", " "):
                    paused = not paused
                if not paused and time.monotonic() >= due:
                    reporter.observer.allow()
                    before, report = report, reporter.take()
                    history.append(report)
                    due = time.monotonic() + delay
    except (Refusal, KeyboardInterrupt):  # the screen has gone, and nobody can ask a process that has ended again
        print("\n".join(report_lines(reporter, report, None, [])), flush=True)
        raise


def run(arguments):
    use_naming(arguments)
    if arguments.batch is not None and not 1 <= arguments.batch <= 1_000_000:
        raise Refusal("top: --batch needs a number from 1 to 1000000 (./hakmem top --help)", STATUS_USAGE)
    if not 0.05 <= arguments.delay <= 3600:
        raise Refusal("top: --delay needs seconds from 0.05 to 3600 (./hakmem top --help)", STATUS_USAGE)
    has_screen = is_terminal(sys.stdout) and is_terminal(sys.stdin) and os.environ.get("TERM", "dumb") != "dumb"
    is_plain = arguments.once or arguments.batch is not None or not has_screen
    if arguments.pid is None:
        return list_processes()
    reporter = Reporter(connect(parse_pid(arguments.pid))[0])
    try:
        if is_plain:
            print_reports(reporter, 1 if arguments.once else arguments.batch or 1_000_000, arguments.delay)
        else:
            show_screen(reporter, arguments.delay)
    except Ended as ended:
        print(f"hakmem: {ended}", file=sys.stderr)
