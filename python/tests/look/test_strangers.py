# SPDX-License-Identifier: MIT
"""What a process, a file or another user may say or plant: none of it reaches the terminal, blocks, or ends in a traceback.
tests/launcher/strangers.sh tries the launcher. What needs a second user is tried as root only."""
import contextlib
import http.client
import io
import json
import os
import re
import socket
import stat
import sys
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from hakmem.look import (
    binaries, document, files, metrics, observer, output, processes, profile_data, prometheus, report, serving, symbols, text, watched)
from hakmem.look.elf import Elf
from hakmem.look.processes import Refusal
from place import PlaceTest

STRANGER = 64126
LIES = "a\x1b]0;b\x07\x9b31m\u202eexe\r\nhakmem: all is well\ud800"
as_root = unittest.skipUnless(os.geteuid() == 0, "only root can be two users")


class Place(PlaceTest):
    def setUp(self):
        super().setUp()
        self.precious = self.place / "precious"
        self.precious.write_text("precious")


class Output(unittest.TestCase):
    def test_names(self):
        shown = text.plain(LIES)
        self.assertNotRegex(shown, "[\x00-\x1f\x7f-\x9f\u202e\ud800]")
        self.assertEqual(text.plain("größer<T> 中 é"), "größer<T> 中 é")

    def test_streams(self):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            output.status_of(lambda: print("two\nlines\x1b[2J\x9b"))
            output.status_of(lambda: report.read_figures(b'{"hakmem": "\x1b"}', 1))
        self.assertEqual(out.getvalue(), "two\nlines\ufffd[2J\ufffd\n")
        self.assertRegex(errors.getvalue(), r"^hakmem: the report of process 1 is not one of hakmem: [ -~]+\n$")


GOOD = {"hakmem": {"version": "1"}, "totals": dict.fromkeys(report.SHAPE["totals"], 1), "classes": [], "sites": []}


class Documents(unittest.TestCase):
    def test_bounds(self):
        for lie in ("[" * 100_000, "[" * 20 + "]" * 20, "9" * 5000, "1e999", "NaN", "-Infinity", '{"a":' * 500 + "1" + "}" * 500):
            with self.assertRaises(ValueError):
                document.parse(lie)
        with mock.patch.object(document, "BYTES_MAX", 10), self.assertRaises(ValueError):
            document.parse('"12345678901"')
        with mock.patch.object(document, "VALUES_MAX", 10), self.assertRaises(ValueError):
            document.parse("[" + "1," * 11 + "1]")
        self.assertEqual(document.parse('{"a\\u001b": "\\u001b\\n"}'), {"a\ufffd": "\ufffd\ufffd"})

    def test_reports(self):
        for known in (5, None):  # a filter of system calls may hide what is resident
            report.read_figures(json.dumps(GOOD | {"summary": {"in_use_bytes": known}}).encode(), 1)
        lies = (None, 1, [], "x", {}, {"hakmem": 1}, {"totals": []}, {"totals": {}}, {"classes": 7}, {"classes": [1]},
                {"classes": [{"object_bytes": "x"}]}, {"counters": {"a": "b"}}, {"counters": {"a": -1}}, {"summary": 3},
                {"tiers": {"huge_small_count": 1.5}}, {"sites": [{}]}, {"arenas": [{"id": {}}]}, {"threads": {"a": 1}},
                {"os_calls": {"a": 1 << 70}}, {"hakmem": {"version": "x" * 100_000}})
        for lie in lies:
            said = GOOD | lie if isinstance(lie, dict) and lie else lie
            with self.assertRaises(Refusal, msg=lie):
                report.read_figures(json.dumps(said).encode(), 1)

    def test_profiles(self):
        head = {"version": 1, "program": "p", "process": 1, "period": 1}
        stack = dict.fromkeys(profile_data.SUMS, 1) | {"frames": "0x1", "history_bytes": ""}
        good = {"hakmem_profile": head, "history": {"ago_ms": ""}, "mappings": [], "stacks": [stack]}
        profile_data.parse_profiles([json.dumps(good)], "f")
        lies = (1, [], {}, {"hakmem_profile": head | {"started_us": []}}, {"mappings": [{"line": 1}]}, {"mappings": {}},
                {"stacks": [stack | {"frames": "0x" + "1" * 99}]}, {"stacks": [stack | {"history_bytes": "1" * 9999}]},
                {"stacks": [stack | {"live_bytes": -1}]}, {"stacks": [stack | {"site": []}]}, {"stacks": {"a": 1}},
                {"hakmem_profile": head | {"process": True}}, {"history": {"ago_ms": "²"}})
        for lie in lies:
            said = good | lie if isinstance(lie, dict) and lie else lie
            with self.assertRaises(Refusal, msg=lie):
                profile_data.parse_profiles([json.dumps(said)], "f")


class Metrics(Place):
    def test_samples(self):
        lies = {"counters": {"a": 1, "b\n": 2, "B": 3, "a b": 4}, "os_calls": {'x"}\n': 5}, "locks": {"lock_waits": "6"},
                "summary": {"rss_bytes": True, "kept_bytes": -1, "tables_bytes": None, "in_use_bytes": 7},
                "named_sites": [{"name": "s\\", "live_bytes": 8, "live_count": 9, "allocated_bytes": 10}]}
        helps = prometheus.read_helps("counters.a\t\thelp\ncounters.b\t\tx\x1b\nlocks.lock_waits\t\nsummary.rss_bytes\t\t\n")
        self.assertEqual(helps, {"counters.a": "help"})
        made = prometheus.prometheus({"1": ('n"\\\n', GOOD | lies, helps), "2": None}).splitlines()
        name = r'pid="1",name="n\"\\\n"'
        self.assertEqual(made[2:4], ['hakmem_up{pid="1"} 1', 'hakmem_up{pid="2"} 0'])
        self.assertEqual(made[made.index("# HELP hakmem_a_total help"):][:3], [
            "# HELP hakmem_a_total help", "# TYPE hakmem_a_total counter", f"hakmem_a_total{{{name}}} 1"])
        self.assertIn(f'hakmem_os_calls_total{{{name},call="x\\"}}\\n"}} 5', made)
        self.assertIn(f'hakmem_site_live_blocks{{{name},site="s\\\\"}} 9', made)
        self.assertEqual([line for line in made if re.search("rss_bytes|resident_|lock_waits| [234]$", line)], [
            "# HELP hakmem_resident_bytes what resident memory is used for; the sum is hakmem_rss_bytes",
            "# TYPE hakmem_resident_bytes gauge", f'hakmem_resident_bytes{{{name},part="in_use"}} 7'])

    def serve(self, token=None):
        server = serving.Server("127.0.0.1", 0, metrics.Answers(watched.Watched([]), token))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.close)
        return server.port

    def status(self, port, **headers):
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        asked.putrequest("GET", "/metrics", skip_host=True)
        for name, value in headers.items():
            asked.putheader(name, value)
        asked.endheaders()
        answer = asked.getresponse().status
        asked.close()
        return answer

    def test_hosts_and_tokens(self):
        port = self.serve()
        for host in (f"127.0.0.1:{port}", "localhost", "[::1]:1"):
            self.assertEqual(self.status(port, Host=host), 200)
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil", ""):
            self.assertEqual(self.status(port, Host=host), 421)
        port = self.serve(b"0123456789abcdef")
        self.assertEqual(self.status(port, Host="localhost"), 401)
        self.assertEqual(self.status(port, Host="localhost", Authorization="Bearer 0123456789abcdeg"), 401)
        self.assertEqual(self.status(port, Host="localhost", Authorization="Bearer 0123456789abcdef"), 200)

    def test_idle_connections(self):
        """Those that say nothing, or not all, take nobody's place, and end."""
        self.replace(serving, "HEAD_SECONDS", 1000.0)  # not their ends make room
        self.replace(serving, "ANSWER_SECONDS", 1000.0)
        port = self.serve()
        idle = []
        for number in range(serving.CONNECTIONS_MAX + 64):
            idle.append(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(OSError):
                idle[-1].sendall((b"", b"GET /metrics HT")[number % 2])
            if number % 64 == 0:
                self.assertEqual(self.status(port, Host="localhost"), 200)
        self.assertEqual(self.status(port, Host="localhost"), 200)
        idle[0].settimeout(60)
        self.assertEqual(self.rest(idle[0]), b"")  # of the first ones no place is left
        for one in idle:
            one.close()

    def rest(self, connection):
        try:
            return connection.recv(1)
        except ConnectionResetError:
            return b""

    def test_slow_requests(self):
        self.replace(serving, "HEAD_SECONDS", 0.3)
        slow = socket.create_connection(("127.0.0.1", self.serve()), timeout=60)
        with contextlib.suppress(OSError):
            while True:  # until it is cut, however often a byte comes
                slow.sendall(b"G")
                time.sleep(0.1)
        self.assertEqual(self.rest(slow), b"")
        slow.close()

    def test_requests_that_are_none(self):
        port = self.serve()
        for text, status in ((b"\n\n", 400), (b"GET / HTTP/9\r\n\r\n", 400), (b"POST / HTTP/1.0\n\n", 501), (b"GET  HTTP/1.0\n\n", 400),
                             (b"GET / HTTP/1.0\nHost: localhost\n\n", 200), (b"GET / HTTP/1.0\n" + b"a: b\n" * 200 + b"\n", 400)):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as asked:
                asked.sendall(text)
                self.assertEqual(asked.makefile("rb").read().split()[1], b"%d" % status, text)

    def test_cgroups(self):
        own = processes.read_text("/proc/self/cgroup").splitlines()[0].split(":", 2)[2]
        for cgroup, is_wanted in ((own, True), (own + "/", True), ("/", True), (own + "x", False), ("/no-such", False)):
            self.assertIs(watched.Watched([], cgroups=[cgroup])._is_wanted(os.getpid()), is_wanted, cgroup)

    def test_names_are_bytes(self):
        before = Path("/proc/self/comm").read_bytes()
        try:
            Path("/proc/self/comm").write_bytes(b"caf\xe9")
            self.assertTrue(watched.Watched([], [os.fsdecode(b"caf\xe9")])._is_wanted(os.getpid()))
            self.assertFalse(watched.Watched([], ["caf\u00e9", "caf"])._is_wanted(os.getpid()))
        finally:
            Path("/proc/self/comm").write_bytes(before)

    def watch(self, find):
        """A Watched whose only process is this one."""
        pid = os.getpid()
        self.replace(watched, "find_observer", find)
        those = watched.Watched([], [processes.read_text("/proc/self/comm").strip()])
        self.replace(those, "_is_wanted", lambda other: other == pid)
        return those

    def test_processes_that_come_and_go(self):
        pid, tried, observers = os.getpid(), [], [mock.Mock(), mock.Mock()]
        for observer in observers:
            observer.process = processes.look(pid)

        def find(process):
            tried.append(process.pid)
            if len(tried) == 1:
                raise Refusal("not now")
            return observers[len(tried) - 2]

        those = self.watch(find)
        self.assertEqual(those.now(), {})
        self.assertEqual((those.now(), tried), ({}, [pid]))  # one that refuses is left alone
        those.refused.clear()
        self.assertEqual((those.now(), those.now()), ({pid: observers[0]},) * 2)
        observers[0].process.stack -= 1  # as after an exec
        self.assertEqual(those.now(), {pid: observers[1]})
        observers[0].close.assert_called_once_with()
        self.replace(those, "_is_wanted", lambda other: False)
        self.assertEqual(those.now(), {})
        observers[1].close.assert_called_once_with()

    def test_users(self):
        found = mock.Mock(process=processes.look(os.getpid()))
        those = self.watch(lambda process: found)
        those.users = {STRANGER}
        self.assertEqual(those.now(), {})
        those.users = {STRANGER, *found.process.uids}
        self.assertEqual(those.now(), {os.getpid(): found})
        self.assertEqual((metrics.read_user("root"), metrics.read_user("64126")), (0, STRANGER))
        for word in ("", "no-such-user", "-1", "\x1b"):
            with self.assertRaises(Refusal):
                metrics.read_user(word)

    def test_one_that_does_not_let_itself_be_looked_into(self):
        """It costs the others nothing, is there when it can be, and is not looked for twice meanwhile."""
        gate, tried, observer = threading.Event(), [], mock.Mock(process=processes.look(os.getpid()))

        def find(process):
            tried.append(process)
            gate.wait()
            return observer

        those = self.watch(find)
        self.assertEqual([those.now(0), those.now(0.1), len(tried)], [{}, {}, 1])
        gate.set()
        self.assertEqual(those.now(), {os.getpid(): observer})
        self.assertEqual(len(tried), 1)

    def test_silent_processes(self):
        """All are asked at once, and those that answer are served, however long the others take."""
        gate = threading.Event()
        self.addCleanup(gate.set)

        class Asked:
            process, work = mock.Mock(pid=1), None

            def __init__(self, is_silent):
                self.is_silent, self.asked = is_silent, 0

            def ask(self, _, seconds):
                self.asked += 1
                if self.is_silent:
                    gate.wait()
                    raise Refusal("it does not answer")
                return b"said"

        ones = {number: Asked(number != 20) for number in range(21)}
        for _ in range(2):
            said = [answer for _, answer in watched.ask_all(ones, "json", 2, lambda text, _: text)]
            self.assertEqual(said, [None] * 20 + [b"said"])
        self.assertEqual([one.asked for one in ones.values()], [1] * 20 + [2])  # nobody is asked twice at once

    def test_answers_that_are_none(self):
        liar = mock.Mock(work=None, process=mock.Mock(pid=1))
        for lie in (b"{", b"[" * 100_000, b"\xff" * 1000, b"1e999"):
            liar.ask.return_value = lie
            self.assertEqual([answer for _, answer in watched.ask_all({1: liar}, "json", 60, report.read_figures)], [None])


class Files(Place):
    def test_reading(self):
        pipe, link = self.place / "pipe", self.place / "link"
        os.mkfifo(pipe)
        link.symlink_to(self.precious)
        for path in (pipe, link, self.place, "/dev/zero", self.place / "none"):
            with self.assertRaises(OSError):
                files.open_regular(str(path)).close()
        files.open_regular(str(self.precious), {os.geteuid()}).close()
        with self.assertRaises(OSError):
            files.open_regular(str(self.precious), {STRANGER})
        self.replace(files, "INPUT_MAX", 1 << 20)
        self.replace(files, "INPUT_SECONDS", 0.1)
        self.replace(files, "SILENT_SECONDS", 0.1)
        huge = self.place / "huge"
        with huge.open("wb") as file:
            file.truncate(1 << 42)
        for path in ("/dev/zero", huge):
            with self.assertRaises(Refusal):
                files.read_input(str(path))
        with self.assertRaises(Refusal):  # nobody writes
            files.read_input(str(pipe))
        said = io.StringIO()
        with os.fdopen(os.open(pipe, os.O_RDWR), "wb"), self.assertRaises(Refusal), contextlib.redirect_stderr(said):
            files.read_input(str(pipe))
        self.assertIn("waiting up to", said.getvalue())

    def test_writing(self):
        page = self.place / "page"
        for planted in (page, self.place / f"page.{os.getpid()}"):
            planted.symlink_to(self.precious)
        with files.written(str(page)) as file:
            file.write("text")
        self.assertEqual((page.read_text(), self.precious.read_text()), ("text", "precious"))
        self.assertEqual(stat.S_IMODE(page.lstat().st_mode), 0o600)
        self.assertEqual(sorted(path.name for path in self.place.iterdir()), ["page", f"page.{os.getpid()}", "precious"])
        for name in ("", str(self.place), str(self.place / "none" / "page")):
            with self.assertRaises(Refusal):
                files.check_writable(name)

    def test_pipes(self):
        pipe = str(self.place / "pipe")
        os.mkfifo(pipe)
        with mock.patch.object(files, "READER_SECONDS", 0), self.assertRaisesRegex(Refusal, "nobody reads"):
            files.check_writable(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        files.check_writable(pipe)
        with self.assertRaises(BlockingIOError):  # what stays open is not at its end
            os.read(reader, 100)
        with files.written(pipe) as file:
            file.write("stacks")
        self.assertEqual(os.read(reader, 100), b"stacks")
        if os.geteuid() == 0:
            os.chown(pipe, STRANGER, STRANGER)
            with self.assertRaisesRegex(Refusal, "another user"), files.written(pipe):
                pass


class Names(Place):
    def test_perf_maps(self):
        pid = 1 << 30  # nobody's
        path = Path(f"/tmp/perf-{pid}.map")
        self.addCleanup(path.unlink, missing_ok=True)
        path.write_text(f"1000 10 {LIES}\n".encode("utf-8", "replace").decode() + "x y z\n" + "f" * 5000 + " 1 a\n2000 10 good\n")
        made = symbols.GeneratedCode(pid, {os.geteuid()})
        self.assertEqual(made.name(0x2005), "good")
        self.assertNotIn("\x1b", made.name(0x1005))
        self.assertEqual(symbols.GeneratedCode(pid, {STRANGER}).ranges, [])

    def test_modules(self):
        elf = self.place / "elf"
        head = bytearray(b"\x7fELF\x02" + bytes(59))
        for table, size, count in ((64, 0, 9), (1 << 63, 56, 1), (64, 65535, 65535), (64, 56, 65535)):
            head[32:40], head[54:58] = table.to_bytes(8, "little"), size.to_bytes(2, "little") + count.to_bytes(2, "little")
            elf.write_bytes(head)
            with open(elf, "rb") as file:
                self.assertEqual(Elf(file.fileno()).segments, [])
        pipe = self.place / "pipe"
        os.mkfifo(pipe)
        self.assertIsNone(binaries.open_binary(str(pipe)))

    def test_only_what_is_mapped(self):
        living = symbols.Files(os.getpid(), processes.look(os.getpid()))
        self.assertTrue(living.may_open(os.path.realpath(sys.executable)))
        self.assertFalse(living.may_open(str(self.precious)))

    def tool(self, script):
        tool = self.place / "addr2line"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        self.enter(mock.patch.dict(os.environ, {"PATH": f"{self.place}:{os.environ['PATH']}", "SECRET": "1"}))

    def test_time_and_space(self):
        self.tool("exec sleep 1000")
        self.replace(symbols, "TOOL_SECONDS", 1)
        self.assertEqual(symbols.run_tool(["addr2line"], str(self.precious)), [])
        self.tool("exec cat /dev/zero")
        self.replace(symbols, "TOOL_SECONDS", 60)
        self.replace(symbols, "TOOL_OUTPUT_MAX", 1 << 16)
        self.assertLessEqual(len(symbols.run_tool(["addr2line"], str(self.precious))[0]), 1 << 16)

    def test_names_in_time(self):
        """Of a process of another user; also in another thread than the main one, as metrics has."""
        gate = threading.Event()
        self.addCleanup(gate.set)
        process = processes.look(os.getpid())
        own, others = symbols.Files(process.pid, process), symbols.Files(process.pid, process)
        self.assertEqual(own.in_time(lambda: "name", "", lambda: "none"), "name")
        others.left = 0.2
        self.assertEqual(others.in_time(lambda: "name", "", lambda: "none"), "name")
        self.assertEqual(others.in_time(gate.wait, "", lambda: "none"), "none")
        self.assertEqual(others.in_time(lambda: "name", "", lambda: "none"), "none")  # all of it was taken
        self.assertEqual(others.in_time(lambda: "name", os.path.realpath("/bin/sh"), lambda: "none"), "name")  # root's file
        self.assertRegex("".join(others.remarks), "^Some names are missing")
        others.left, said = 0.2, []
        thread = threading.Thread(target=lambda: said.append(others.in_time(gate.wait, "", lambda: "none")))
        thread.start()
        thread.join()
        self.assertEqual(said, ["none"])

    @as_root
    def test_rights(self):
        self.tool('id -u; env | grep -c SECRET')
        self.assertEqual(symbols.run_tool(["addr2line"], str(self.precious))[:2], ["0", "1"])
        os.chown(self.precious, STRANGER, STRANGER)
        self.assertEqual(symbols.run_tool(["addr2line"], str(self.precious))[:2], [str(STRANGER), "0"])
        os.chown(self.precious, 0, 0)
        os.chown(self.place, STRANGER, STRANGER)
        self.assertEqual(symbols.run_tool(["addr2line"], str(self.precious))[:2], [str(symbols.NOBODY), "0"])


class Observed(unittest.TestCase):
    def test_names_of_others(self):
        """In /dev/shm anybody makes files of any name."""
        user, pid = os.geteuid(), os.getpid()
        names = [f"hakmem.{user}.{rest}" for rest in ("²", "9" * 200, "", "-1", "0", f"{pid}.", "x", f"{pid}.²")]
        made = [Path("/dev/shm", name) for name in names]
        for path in made:
            path.touch()
            self.addCleanup(path.unlink, missing_ok=True)
        pipe, link = Path(f"/dev/shm/hakmem.{user}.{pid}"), Path(f"/dev/shm/hakmem.{user}.1")
        os.mkfifo(pipe)
        self.addCleanup(pipe.unlink, missing_ok=True)
        if not link.exists():
            link.symlink_to("/dev/zero")
            self.addCleanup(link.unlink, missing_ok=True)
        self.assertNotIn(pid, [process.pid for process in observer.observed()])
        with self.assertRaises(observer.NotObserved):
            observer.Observer(processes.look(pid))
        for word in ("²", "9" * 5000, "-1", "0", "1\n"):
            with self.assertRaises(Refusal):
                processes.parse_pid(word)
