# SPDX-License-Identifier: MIT
"""A small server of HTTP for `./hakmem metrics`. One thread reads and writes all connections as they are ready, so that those
which say nothing, or read nothing, take nobody's place; whoever makes an answer has a thread of his own and hands it over."""
import collections
import contextlib
import http
import io
import selectors
import socket
import time
from http.client import HTTPException, parse_headers

CONNECTIONS_MAX = 256  # at once; then the one goes that has been silent longest
HEAD_SECONDS = 2.0  # for a request to come whole, however slowly the other side talks
HEAD_MAX = 16 << 10  # bytes of a request
ANSWER_SECONDS = 20.0  # until the answer is there, and the same again until it is read
LOOK_SECONDS = 0.25  # between two looks at these times


class Connection:
    def __init__(self, request):
        self.socket = request
        self.given = b""  # of the request, until it is whole
        self.answer = None  # what is left to send
        self.is_asking = False  # the request is whole
        self.until = time.monotonic() + HEAD_SECONDS

    def is_gone(self):
        """Whether the other side has hung up."""
        try:
            return self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


def response(status, kind, body):
    """The bytes of an answer."""
    head = (f"HTTP/1.0 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n")
    return head.encode() + body


def refusal(status, sentence=None):
    return response(status, "text/plain; charset=utf-8", f"{sentence or http.HTTPStatus(status).phrase}\n".encode())


class Server:
    """`answer(server, connection, path, headers)` returns the bytes of an answer, or None: it gives them to deliver()."""

    def __init__(self, address, port, answer):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.create_server((address, port), family=family, backlog=CONNECTIONS_MAX)
        self.answer = answer
        self.connections = {}  # by socket, the oldest first
        self.delivered = collections.deque()  # (connection, answer) of other threads
        self.bell = socket.socketpair()
        self.is_closed = False
        self.selector = selectors.DefaultSelector()
        for one in (self.listener, self.bell[0]):
            one.setblocking(False)
            self.selector.register(one, selectors.EVENT_READ)
        self.bell[1].setblocking(False)

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def deliver(self, connection, answer):
        """From any thread."""
        self.delivered.append((connection, answer))
        self.ring()

    def ring(self):
        with contextlib.suppress(OSError):  # it rings already, or the server has ended
            self.bell[1].send(b"x")

    def close(self):
        """From any thread: ends serve_forever."""
        self.is_closed = True
        self.ring()

    def serve_forever(self):
        try:
            while not self.is_closed:
                for key, _ in self.selector.select(LOOK_SECONDS if self.connections else None):
                    if key.fileobj is self.listener:
                        self.accept()
                    elif key.fileobj is self.bell[0]:
                        self.bell[0].recv(4096)
                    elif key.fileobj in self.connections:
                        self.go_on(self.connections[key.fileobj])
                while self.delivered:
                    self.send(*self.delivered.popleft())
                now = time.monotonic()
                for connection in [one for one in self.connections.values() if one.until < now]:
                    self.end(connection)
        finally:
            for connection in list(self.connections.values()):
                self.end(connection)
            self.selector.close()
            for one in (self.listener, *self.bell):
                one.close()

    def accept(self):
        try:
            request, _ = self.listener.accept()
        except OSError:  # it has gone, or there are too many open files
            self.make_room()
            return
        if len(self.connections) >= CONNECTIONS_MAX and not self.make_room():
            request.close()
            return
        request.setblocking(False)
        self.connections[request] = Connection(request)
        self.selector.register(request, selectors.EVENT_READ)

    def make_room(self):
        """Ends the connection that has been longest without a whole request, or without reading its answer."""
        idle = next((one for one in self.connections.values() if not one.is_asking or one.answer is not None), None)
        if idle is not None:
            self.end(idle)
        return idle is not None

    def end(self, connection):
        if self.connections.pop(connection.socket, None) is not None:
            with contextlib.suppress(KeyError):
                self.selector.unregister(connection.socket)
            connection.socket.close()

    def go_on(self, connection):
        try:
            if connection.answer is not None:
                connection.answer = connection.answer[connection.socket.send(connection.answer):]
                if not connection.answer:
                    self.end(connection)
                return
            piece = connection.socket.recv(HEAD_MAX)
        except BlockingIOError:
            return
        except OSError:
            self.end(connection)
            return
        connection.given += piece
        head, end, _ = connection.given.replace(b"\r\n", b"\n").partition(b"\n\n")
        if not piece or (not end and len(connection.given) > HEAD_MAX):
            self.end(connection)
        elif end:
            self.selector.unregister(connection.socket)
            connection.is_asking, connection.given = True, b""
            connection.until = time.monotonic() + ANSWER_SECONDS
            answer = self.answer_to(connection, head)
            if answer is not None:
                self.send(connection, answer)

    def answer_to(self, connection, head):
        line, _, fields = head.partition(b"\n")
        words = line.decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return refusal(400)
        try:
            headers = parse_headers(io.BytesIO(fields + b"\n\n"))
        except (HTTPException, ValueError):
            return refusal(400)
        return self.answer(self, connection, words[1], headers) if words[0] == "GET" else refusal(501)

    def send(self, connection, answer):
        if connection.socket not in self.connections:  # it has been ended
            return
        connection.answer = memoryview(answer)
        connection.until = time.monotonic() + ANSWER_SECONDS
        self.selector.register(connection.socket, selectors.EVENT_WRITE)
        self.go_on(connection)
