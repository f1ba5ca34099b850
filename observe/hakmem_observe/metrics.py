"""./hakmem metrics: serves the figures of living processes to Prometheus, on this machine only (127.0.0.1)."""
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .attach import connect
from .processes import Refusal, STATUS_CANNOT, STATUS_USAGE, parse_pid
from .report import take

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add_arguments(parser):
    parser.add_argument("pids", metavar="PID", nargs="+", help="the processes")
    parser.add_argument("--port", metavar="P", type=int, default=9464, help="the port (9464); 0: any, which is printed")
    parser.add_argument("--once", action="store_true", help="print the text once and serve nothing")


def samples(report):
    """(name, type, labels, value) of each figure."""
    yield "hakmem_resident_bytes", "gauge", {}, report.process.rss
    for key, value in report.totals.items():
        name = key.removeprefix("bytes_") + "_bytes" if key.startswith("bytes_") else key.removesuffix("_count")
        yield f"hakmem_{name}", "gauge", {}, value
    for row in report.classes:
        labels = {"size": str(row["object_bytes"])}
        yield "hakmem_class_held_bytes", "gauge", labels, row["slab_bytes"]
        yield "hakmem_class_in_use", "gauge", labels, row["in_use"]
        yield "hakmem_class_cached", "gauge", labels, row["cached"]
    for key, value in report.counters.items():
        yield f"hakmem_{key}_total", "counter", {}, value
    for key, value in report.os_calls.items():
        yield "hakmem_os_calls_total", "counter", {"call": key}, value


def escape(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus(reports):
    """The text for reports by process id; None: that process is gone. All samples of a name are together."""
    families = {"hakmem_up": ("gauge", [])}
    for pid, report in reports.items():
        families["hakmem_up"][1].append(f'hakmem_up{{pid="{pid}"}} {int(report is not None)}')
        if report is None:
            continue
        for name, kind, labels, value in samples(report):
            labels = {"pid": str(pid), "name": report.process.name, **labels}
            text = ",".join(f'{key}="{escape(label)}"' for key, label in labels.items())
            families.setdefault(name, (kind, []))[1].append(f"{name}{{{text}}} {value}")
    lines = []
    for name, (kind, of_name) in families.items():
        lines += [f"# TYPE {name} {kind}", *of_name]
    return "\n".join(lines) + "\n"


def ask_all(observers, lock):
    reports = {}
    with lock:  # an Observer is for one thread at a time
        for pid, observer in observers.items():
            try:
                reports[pid] = take(observer)
            except Refusal:
                reports[pid] = None
    return reports


def make_handler(observers):
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.send_error(404)
                return
            body = prometheus(ask_all(observers, lock)).encode()
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
        sys.stdout.write(prometheus(ask_all(observers, threading.Lock())))
        return
    try:
        server = ThreadingHTTPServer(("127.0.0.1", arguments.port), make_handler(observers))
    except OSError as error:
        raise Refusal(f"cannot serve on port {arguments.port}: {error.strerror}", STATUS_CANNOT) from None
    server.daemon_threads = True
    print(f"serving {len(observers)} processes on http://127.0.0.1:{server.server_address[1]}/metrics", flush=True)
    server.serve_forever()
