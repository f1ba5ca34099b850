"""./hakmem metrics: serves the figures of living processes to Prometheus, on this machine only (127.0.0.1)."""
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .attach import connect
from .observer import ASK_SECONDS
from .processes import Refusal, STATUS_CANNOT, STATUS_USAGE, parse_pid

SCRAPE_SECONDS = 5.0  # for each process; Prometheus waits 10 s for all of them
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add_arguments(parser):
    parser.add_argument("pids", metavar="PID", nargs="+", help="the processes")
    parser.add_argument("--port", metavar="P", type=int, default=9464, help="the port (9464); 0: any, which is printed")
    parser.add_argument("--once", action="store_true", help="print the text once and serve nothing")


def escape(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def label(line, labels):
    """A sample's line with these labels before its own."""
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{labels},{rest}"
    name, _, value = line.partition(" ")
    return f"{name}{{{labels}}} {value}"


def prometheus(texts):
    """One text of the texts of several processes, each (name, text) or None if the process is gone. The format wants all
    samples of a metric together, below its help and type."""
    heads, samples = {"hakmem_up": ["# TYPE hakmem_up gauge"]}, {"hakmem_up": []}
    for pid, found in texts.items():
        samples["hakmem_up"].append(f'hakmem_up{{pid="{pid}"}} {int(found is not None)}')
        if found is None:
            continue
        labels = f'pid="{pid}",name="{escape(found[0])}"'
        for line in found[1].splitlines():
            if line.startswith("#"):
                metric = line.split(" ", 3)[2]
                head = heads.setdefault(metric, [])
                if line not in head:
                    head.append(line)
            else:
                samples.setdefault(metric, []).append(label(line, labels))
    return "".join(f"{line}\n" for metric in heads for line in heads[metric] + samples.get(metric, []))


def ask_all(observers, lock, seconds):
    texts = {}
    with lock:  # an Observer is for one thread at a time
        for pid, observer in observers.items():
            try:
                texts[pid] = (observer.process.name, observer.ask("prometheus", seconds).decode("utf-8", "replace"))
            except Refusal:
                texts[pid] = None
    return texts


def make_handler(observers):
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.send_error(404)
                return
            body = prometheus(ask_all(observers, lock, SCRAPE_SECONDS)).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def run(arguments):
    if not 0 <= arguments.port <= 65535:
        raise Refusal("metrics: --port needs a number from 0 to 65535 (./hakmem metrics --help)", STATUS_USAGE)
    observers = {pid: connect(pid)[0] for pid in dict.fromkeys(map(parse_pid, arguments.pids))}
    if arguments.once:
        sys.stdout.write(prometheus(ask_all(observers, threading.Lock(), ASK_SECONDS)))
        return
    try:
        server = ThreadingHTTPServer(("127.0.0.1", arguments.port), make_handler(observers))
    except OSError as error:
        raise Refusal(f"cannot serve on port {arguments.port}: {error.strerror}", STATUS_CANNOT) from None
    server.daemon_threads = True
    print(f"serving {len(observers)} process{'es' * (len(observers) != 1)} on http://127.0.0.1:{server.server_address[1]}/metrics", flush=True)
    server.serve_forever()
