"""A proxy between a client and a server of objects that breaks requests on cue."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.kit.servers import Place

_ENDPOINT = re.compile(r"http://127\.0\.0\.1:(\d+)")
_HOP = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
_PATIENCE_S = 120


class Kind(Enum):
    """What happens to a request instead of its reply."""

    RESET = "the connection is reset"
    ERROR_500 = "500"
    ERROR_503 = "503"
    STALL = "nothing more comes"
    LATE = "nothing more comes, and the server gets the request when `Wire.release` is called"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """Which request breaks, and how."""

    kind: Kind
    at: int
    """The number of the request, from 1 on."""
    is_done: bool
    """Whether the server does its work before."""
    lasts: bool
    """Whether all later requests break, too."""


@dataclass
class Wire:
    """What passes, and what breaks."""

    port: int
    """Of the server."""
    seen: list[str] = field(default_factory=list)
    """The methods and paths of the requests since the last `arm`."""
    broken_count: int = 0
    breakage: Breakage | None = None
    _held: threading.Event = field(default_factory=threading.Event)
    _late: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, breakage: Breakage | None) -> None:
        """Break the requests from now on in this way."""
        with self._lock:
            self.seen.clear()
            self.broken_count = 0
            self.breakage = breakage
            self._held = threading.Event()

    def release(self) -> None:
        """Stop to break requests, end those that are held, and send those that are late."""
        with self._lock:
            self.breakage = None
            self._held.set()
            late, self._late = self._late, []
        for thread in late:
            thread.join(_PATIENCE_S)

    def next_breakage(self, request: str) -> tuple[Breakage | None, threading.Event]:
        """Count a request; return how it breaks, and what ends its wait."""
        with self._lock:
            self.seen.append(request)
            number, breakage = len(self.seen), self.breakage
            hits = breakage is not None and (
                number == breakage.at or (breakage.lasts and number > breakage.at)
            )
            if not hits:
                return None, self._held
            self.broken_count += 1
            return breakage, self._held

    def later(self, act: threading.Thread) -> None:
        """Run a thread for a request that is late; `release` waits for its end."""
        with self._lock:
            self._late.append(act)
        act.start()


@contextmanager
def wired(place: Place) -> Iterator[tuple[Wire, Place]]:
    """Yield a wire to the server of a place, and the place as it is reached through the wire."""
    found = next(
        match for value in place.options.values() if (match := _ENDPOINT.search(str(value)))
    )
    wire = Wire(port=int(found[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Relay,), {"wire": wire}))
    server.daemon_threads = True
    runs = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    runs.start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    options = {
        name: _ENDPOINT.sub(endpoint, value) if isinstance(value, str) else value
        for name, value in place.options.items()
    }
    try:
        yield wire, Place(url=place.url, options=options)
    finally:
        wire.release()
        server.shutdown()
        runs.join()
        server.server_close()


class _Relay(BaseHTTPRequestHandler):
    """Passes the requests of one connection on, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wire: Wire

    def _relay(self) -> None:
        body = self._body()
        breakage, held = self.wire.next_breakage(f"{self.command} {self.path}")
        if breakage is None:
            self._answer(*self._asked(body))
            return
        if breakage.kind is Kind.LATE:
            self.wire.later(threading.Thread(target=self._ask_late, args=(body, held)))
        elif breakage.is_done:
            self._asked(body)
        match breakage.kind:
            case Kind.ERROR_500 | Kind.ERROR_503:
                text = b"<Error><Code>InternalError</Code><Message>on cue</Message></Error>"
                self._answer(int(breakage.kind.value), [("Content-Type", "application/xml")], text)
                return
            case Kind.STALL | Kind.LATE:
                held.wait(_PATIENCE_S)
        self.close_connection = True
        # So that the connection is reset, not closed.
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _relay  # noqa: N815 - names of http.server

    def finish(self) -> None:
        with suppress(OSError):  # of a connection that was reset
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):  # the client has gone
            super().handle()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _ask_late(self, body: bytes, held: threading.Event) -> None:
        if held.wait(_PATIENCE_S):
            self._asked(body)

    def _asked(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the server's answer: the status, the headers and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.wire.port, timeout=_PATIENCE_S)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in _HOP | {"expect"}:
                    connection.putheader(name, value)
            if body or "Content-Length" in self.headers:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        size = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                size = value
            if name.lower() not in _HOP:
                self.send_header(name, value)
        if status not in {204, 304}:
            self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(body)
