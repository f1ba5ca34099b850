# SPDX-License-Identifier: MIT
"""./hakmem metrics: Serves the figures of living processes to Prometheus."""
import contextlib
import hmac
import ipaddress
import pwd
import queue
import re
import signal
import sys
import threading
import time
import weakref

from .attach import tool
from .files import open_regular
from .prometheus import prometheus, read_helps
from .processes import Refusal, STATUS_CANNOT, STATUS_NO_PROCESS, STATUS_USAGE, is_number, parse_pid, printable
from .report import read_figures
from .served_profiles import PATHS, ServedProfiles, Unanswered, packed, read_question
from .serving import Server, refusal, response
from .watched import Watched, Work, ask_all

SCRAPE_SECONDS = 4.0  # for all processes, which are asked at once; Prometheus waits 10 s
REQUESTS_MAX = 16  # for profiles, at once
WAITS_MAX = 8  # of these, requests for what changes in some seconds
TOKEN_MAX = 4096  # bytes
HOSTS = re.compile(r"(127(?:\.[0-9]{1,3}){3}|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)  # a page of a browser has another one
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HELPS = weakref.WeakKeyDictionary()  # of figures, by the observer of the process that said them


def add_arguments(parser):
    parser.add_argument("pids", metavar="PID", nargs="*", help="process ids")
    parser.add_argument("--name", action="append", default=[],
                        help="serve the processes of this name that run on hakmem, while they live; may be repeated")
    parser.add_argument("--cgroup", metavar="PATH", action="append", default=[],
                        help="serve the processes in this cgroup or below it; a part of the path is enough, such as nginx.service")
    parser.add_argument("--user", metavar="USER", action="append", default=[],
                        help="of these, serve only processes of this user, a name or a number; may be repeated; when not given: "
                             "your own, and for root those of every user")
    parser.add_argument("--listen", metavar="ADDRESS", default="127.0.0.1",
                        help="the IP address; 127.0.0.1 when not given, another one needs --token-file")
    parser.add_argument("--port", metavar="P", type=int, default=9464,
                        help="the port; 9464 when not given; 0: any free one, which is printed")
    parser.add_argument("--once", action="store_true", help="print the text once and serve nothing")
    parser.add_argument("--token-file", metavar="FILE",
                        help="answer only requests with the token in this file (Authorization: Bearer TOKEN)")
    parser.add_argument("--profile", action="store_true",
                        help="sample the processes until the end, and serve /debug/pprof/heap and /debug/pprof/allocs for pprof")


def collect(watched, seconds, profiles=None):
    until = time.monotonic() + seconds
    observers = watched.now(seconds / 2)
    if profiles:
        profiles.begin(observers, until - seconds / 4)
    reports = {process.pid: figures and (process.name, figures)
               for process, figures in ask_all(observers, "json", (until - time.monotonic()) * 0.8, read_figures)}
    unknown = {pid: observer for pid, observer in observers.items() if reports.get(pid) and observer not in HELPS}
    asked = ask_all(unknown, "names", until - time.monotonic(), lambda text, _: read_helps(text.decode("utf-8", "replace")))
    for (process, helps), observer in zip(asked, unknown.values()):
        if helps is not None:
            HELPS[observer] = helps
    return prometheus({pid: found and (*found, HELPS.get(observers[pid], {})) for pid, found in reports.items()})


def read_user(word):
    """Its number."""
    try:
        return int(word) if is_number(word) else pwd.getpwnam(word).pw_uid
    except KeyError:
        raise Refusal(f"metrics: there is no user '{printable(word)}'", STATUS_USAGE) from None


def read_token(path):
    try:
        with open_regular(path) as file:
            token = file.read(TOKEN_MAX).strip()
    except OSError as error:
        raise Refusal(f"metrics: cannot read the token in '{path}': {error.strerror}", STATUS_USAGE) from None
    if not token.isascii() or not 16 <= len(token) < TOKEN_MAX or b"\n" in token:
        raise Refusal(f"metrics: the token in '{path}' must be one line of 16 ASCII characters or more", STATUS_USAGE)
    return token


class Answers:
    """What a Server answers. `profiles`: of ServedProfiles. A local server is asked by one of HOSTS only; another one has a
    token."""

    def __init__(self, watched, token, profiles=None, is_local=True):
        self.watched, self.token, self.profiles, self.is_local = watched, token, profiles, is_local
        self.lock = threading.Lock()  # an Observer is for one thread at a time
        self.scrapers = queue.SimpleQueue()  # connections that wait for figures
        self.waits = threading.BoundedSemaphore(WAITS_MAX)
        self.places = threading.BoundedSemaphore(REQUESTS_MAX)
        self.scraping = None  # Work, from the first request on

    def refused(self, path, headers):
        if self.is_local and not HOSTS.fullmatch(headers.get("Host", "")):
            return 421
        given = headers.get("Authorization", "").encode("utf-8", "replace")
        if self.token is not None and not hmac.compare_digest(given, b"Bearer " + self.token):
            return 401
        known = ("/", "/metrics", *(PATHS if self.profiles else ()))
        return None if path.partition("?")[0] in known else 404

    def __call__(self, server, connection, path, headers):
        if status := self.refused(path, headers):
            return refusal(status)
        if path.partition("?")[0] not in PATHS:
            self.scraping = self.scraping or Work(self.scrape, server)
            self.scrapers.put(connection)
        elif self.places.acquire(blocking=False):
            Work(self.profile, server, connection, path)
        else:
            return refusal(503, f"{REQUESTS_MAX} other profiles are being made")
        return None

    def scrape(self, server):
        """One collection after the other: all who wait when it begins get the same."""
        while True:
            waiting = [self.scrapers.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.append(self.scrapers.get_nowait())
            try:
                text = self.alone(collect, self.watched, SCRAPE_SECONDS, self.profiles)
                answer = response(200, CONTENT_TYPE, text.encode("utf-8", "replace"))
            except Unanswered as why:
                answer = refusal(why.status, str(why))
            except Exception as why:  # such as too many open files: the next one may do
                answer = refusal(500, f"{type(why).__name__}: {why}")
            for connection in waiting:
                server.deliver(connection, answer)

    def alone(self, do, *arguments):
        if not self.lock.acquire(timeout=SCRAPE_SECONDS):
            raise Unanswered(503, "another request takes too long")
        try:
            return do(*arguments)
        finally:
            self.lock.release()

    def profile(self, server, connection, url):
        try:
            server.deliver(connection, response(200, "application/octet-stream", self.made_profile(connection, url)))
        except Unanswered as why:
            server.deliver(connection, refusal(why.status, str(why)))
        finally:
            self.places.release()

    def made_profile(self, connection, url):
        path, pids, seconds = read_question(url)
        first = None
        if seconds:
            if not self.waits.acquire(blocking=False):
                raise Unanswered(503, f"{WAITS_MAX} other requests wait for their seconds")
            try:
                connection.until += seconds
                first = self.alone(self.profiles.take, pids, SCRAPE_SECONDS)
                while (left := first[0] + seconds - time.monotonic()) > 0 and not connection.is_gone():
                    time.sleep(min(left, 0.5))
            finally:
                self.waits.release()
        return packed(path, first, self.alone(self.profiles.take, pids, SCRAPE_SECONDS))


def run(arguments):
    if not 0 <= arguments.port <= 65535:
        raise Refusal("metrics: --port needs a number from 0 to 65535 (./hakmem metrics --help)", STATUS_USAGE)
    try:
        address = ipaddress.ip_address(arguments.listen)
    except ValueError:
        raise Refusal(f"metrics: --listen needs an IP address, not '{printable(arguments.listen)}'", STATUS_USAGE) from None
    token = read_token(arguments.token_file) if arguments.token_file is not None else None
    if not address.is_loopback and token is None:
        raise Refusal(f"metrics: others can reach {address}; --token-file FILE keeps them out", STATUS_USAGE)
    if not (arguments.pids or arguments.name or arguments.cgroup):
        raise Refusal("metrics: which processes? (./hakmem metrics --help)", STATUS_USAGE)
    if not all(arguments.name + arguments.cgroup):
        raise Refusal("metrics: --name and --cgroup need a name that is not empty", STATUS_USAGE)
    if arguments.once and arguments.profile:
        raise Refusal("metrics: --profile goes with serving, not with --once", STATUS_USAGE)
    if arguments.user and not (arguments.name or arguments.cgroup):
        raise Refusal("metrics: --user goes with --name or --cgroup", STATUS_USAGE)
    with contextlib.suppress(Refusal):
        tool()  # building it takes time, which is not the processes'
    users = set(map(read_user, arguments.user)) or None
    watched = Watched(map(parse_pid, arguments.pids), arguments.name, arguments.cgroup, users)
    if arguments.once:
        text = collect(watched, SCRAPE_SECONDS)
        if not text:
            raise Refusal("metrics: there is no such process that runs on hakmem", STATUS_NO_PROCESS)
        sys.stdout.write(text)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the sampling ends
    profiles = ServedProfiles(watched) if arguments.profile else None
    try:
        serve(address, arguments.port, Answers(watched, token, profiles, address.is_loopback))
    finally:
        if profiles:
            profiles.close()


def serve(address, port, answers):
    try:
        server = Server(str(address), port, answers)
    except OSError as error:
        raise Refusal(f"cannot serve on {address}, port {port}: {error.strerror}", STATUS_CANNOT) from None
    count = len(answers.watched.now(SCRAPE_SECONDS))
    host = f"[{address}]" if address.version == 6 else address
    print(f"serving {count} process{'es' * (count != 1)} on http://{host}:{server.port}/metrics", flush=True)
    server.serve_forever()
