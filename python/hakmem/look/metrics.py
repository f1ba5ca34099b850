# SPDX-License-Identifier: MIT
"""./hakmem metrics: Serves the figures of living processes to Prometheus."""
import hmac
import ipaddress
import re
import select
import signal
import socket
import sys
import threading
import time
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .files import open_regular
from .observer import ASK_SECONDS
from .prometheus import prometheus, read_helps
from .processes import Refusal, STATUS_CANNOT, STATUS_NO_PROCESS, STATUS_USAGE, parse_pid, printable
from .report import read_figures
from .served_profiles import PATHS, ServedProfiles, Unanswered, packed, read_question
from .watched import Watched, ask_all

SCRAPE_SECONDS = 8.0  # for all processes, one after the other; Prometheus waits 10 s
REQUEST_SECONDS = 15.0  # for a request and its answer, however slowly the other side talks
REQUESTS_MAX = 16  # at once
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
        profiles.begin(observers)
    reports = {}
    for process, text in ask_all(observers, "json", (until - time.monotonic()) / 2):
        try:
            reports[process.pid] = None if text is None else (process.name, read_figures(text, process.pid))
        except Refusal:  # what it says is no report
            reports[process.pid] = None
    unknown = {pid: observer for pid, observer in observers.items() if reports.get(pid) and observer not in HELPS}
    for (process, text), observer in zip(ask_all(unknown, "names", until - time.monotonic()), unknown.values()):
        if text is not None:
            HELPS[observer] = read_helps(text.decode("utf-8", "replace"))
    return prometheus({pid: found and (*found, HELPS.get(observers[pid], {})) for pid, found in reports.items()})


def read_token(path):
    try:
        with open_regular(path) as file:
            token = file.read(TOKEN_MAX).strip()
    except OSError as error:
        raise Refusal(f"metrics: cannot read the token in '{path}': {error.strerror}", STATUS_USAGE) from None
    if not token.isascii() or not 16 <= len(token) < TOKEN_MAX or b"\n" in token:
        raise Refusal(f"metrics: the token in '{path}' must be one line of 16 ASCII characters or more", STATUS_USAGE)
    return token


def make_handler(watched, token, profiles=None, is_local=True):
    """`profiles`: of ServedProfiles. A local server is asked by one of HOSTS only; another one has a token."""
    lock = threading.Lock()  # an Observer is for one thread at a time
    waits = threading.BoundedSemaphore(WAITS_MAX)

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def refusal(self):
            if is_local and not HOSTS.fullmatch(self.headers.get("Host", "")):
                return 421
            given = self.headers.get("Authorization", "").encode("utf-8", "replace")
            if token is not None and not hmac.compare_digest(given, b"Bearer " + token):
                return 401
            known = ("/", "/metrics", *(PATHS if profiles else ()))
            return None if self.path.partition("?")[0] in known else 404

        def alone(self, do, *arguments):
            if not lock.acquire(timeout=SCRAPE_SECONDS):
                raise Unanswered(503, "another request takes too long")
            try:
                return do(*arguments)
            finally:
                lock.release()

        def profile(self):
            path, pids, seconds = read_question(self.path)
            first = None
            if seconds:
                if not waits.acquire(blocking=False):
                    raise Unanswered(503, f"{WAITS_MAX} other requests wait for their seconds")
                try:
                    self.server.prolong(self.request, seconds)
                    first = self.alone(profiles.take, pids, SCRAPE_SECONDS)
                    self.wait(first[0] + seconds)
                finally:
                    waits.release()
            return self.alone(lambda: packed(path, first, profiles.take(pids, SCRAPE_SECONDS)))

        def wait(self, until):
            """Until that moment, or until the other side has gone."""
            while (left := until - time.monotonic()) > 0:
                if select.select([self.connection], [], [], left)[0]:
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        raise ConnectionResetError
                    time.sleep(min(left, 0.5))  # it has sent more than its request

        def do_GET(self):
            if status := self.refusal():
                self.send_error(status)
                return
            try:
                if self.path.partition("?")[0] in PATHS:
                    status, kind, body = 200, "application/octet-stream", self.profile()
                else:
                    status, kind, body = 200, CONTENT_TYPE, self.alone(collect, watched, SCRAPE_SECONDS, profiles).encode()
            except Unanswered as answer:
                status, kind, body = answer.status, "text/plain; charset=utf-8", f"{answer.sentence}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


class Server(ThreadingHTTPServer):
    """Few requests at once, each with an end."""
    daemon_threads = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.free = threading.BoundedSemaphore(REQUESTS_MAX)
        self.ends = {}  # timers, by request

    def process_request(self, request, client_address):
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, client_address):
        self.prolong(request, 0)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.ends.pop(request).cancel()
            self.free.release()

    def prolong(self, request, seconds):
        """Lets the request take so many seconds more than others."""
        if request in self.ends:
            self.ends[request].cancel()
        self.ends[request] = end = threading.Timer(REQUEST_SECONDS + seconds, cut, [request])
        end.daemon = True
        end.start()

    def handle_error(self, *_):
        pass  # the other side has gone


def cut(request):
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended
        pass


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
    watched = Watched(map(parse_pid, arguments.pids), arguments.name, arguments.cgroup)
    if arguments.once:
        if not watched.now():
            raise Refusal("metrics: there is no such process that runs on hakmem", STATUS_NO_PROCESS)
        sys.stdout.write(collect(watched, ASK_SECONDS * len(watched.now())))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the sampling ends
    profiles = ServedProfiles(watched) if arguments.profile else None
    try:
        serve(address, arguments.port, watched, make_handler(watched, token, profiles, address.is_loopback))
    finally:
        if profiles:
            profiles.close()


def serve(address, port, watched, handler):
    Server.address_family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        server = Server((str(address), port), handler)
    except OSError as error:
        raise Refusal(f"cannot serve on {address}, port {port}: {error.strerror}", STATUS_CANNOT) from None
    count = len(watched.now())
    host = f"[{address}]" if address.version == 6 else address
    print(f"serving {count} process{'es' * (count != 1)} on http://{host}:{server.server_address[1]}/metrics", flush=True)
    server.serve_forever()
