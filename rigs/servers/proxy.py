"""A proxy on loopback before a REST catalog or an object store, which does to chosen requests what
networks and servers do.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

#: 503: not now. 401: the token has expired. lost: done, but nobody is told. half: the answer
# breaks off. slow: an answer after two seconds. 503, 500 and 409 after: done, and answered with
# that error. 503 again: the same, and the client is to repeat the request.
Fault = Literal[
    "503", "401", "lost", "half", "slow", "503 after", "503 again", "500 after", "409 after"
]
# Answers in place of that of the server: what a client is told, and whether it is to ask again.
_AFTER: dict[Fault | None, tuple[int, bool]] = {
    "503 after": (503, False),
    "503 again": (503, True),
    "500 after": (500, False),
    "409 after": (409, False),
}


def _error(status: int) -> bytes:
    """The body of an error of a REST catalog."""
    return b'{"error": {"message": "not now", "type": "Fault", "code": %d}}' % status


class Proxy:
    """Counts requests, and asks ``fault`` (of method, path and the number of the request) what
    happens to each; None: nothing.

    ``latency`` are seconds before each request is passed on, and ``most_at_once`` is how many were
    under way at most.
    """

    def __init__(self, behind: str) -> None:
        self.behind = urlsplit(behind)
        self.requests: list[str] = []
        self.fault: Callable[[str, str, int], Fault | None] = lambda *_: None
        self._counting = threading.Lock()
        self.address = ""
        self.latency = 0.0
        self.most_at_once = self._at_once = 0

    @contextlib.contextmanager
    def serving(self) -> Iterator[Proxy]:
        """Answer at ``address`` until the block ends."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                with proxy.counted():
                    proxy.handle(self)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _any  # noqa: N815 - the names that the base class calls

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            self.address = f"http://127.0.0.1:{server.server_address[1]}"
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield self
            finally:
                server.shutdown()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """One request more is under way until the block ends."""
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._counting:
                self._at_once -= 1

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        """Pass one request on, or not."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._counting:
            self.requests.append(f"{request.command} {request.path}")
            fault = self.fault(request.command, request.path, len(self.requests))
        if fault == "slow":
            time.sleep(2)
        if fault in {"503", "401"}:
            self._send(request, int(fault), _error(int(fault)))
            return
        time.sleep(self.latency)
        server = http.client.HTTPConnection(
            self.behind.hostname or "", self.behind.port, timeout=60
        )
        with contextlib.closing(server):
            # With the host that it was sent to: an object store has it in the signature.
            server.request(request.command, request.path, body, dict(request.headers.items()))
            answer = server.getresponse()
            content, passed = (
                answer.read(),
                {key.title(): value for key, value in answer.getheaders()},
            )
        if fault == "lost":
            request.close_connection = True
            return
        if fault in _AFTER:
            status, is_to_be_repeated = _AFTER[fault]
            more = {"Retry-After": "1"} if is_to_be_repeated else None
            self._send(request, status, _error(status), more)
            return
        self._send(request, answer.status, content, passed, half=fault == "half")

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        passed: Mapping[str, str] | None = None,
        *,
        half: bool = False,
    ) -> None:
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **(passed or {}),
        }
        request.send_response_only(status)
        for key, value in headers.items():
            if key not in {"Transfer-Encoding", "Connection"}:
                request.send_header(key, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content[: len(content) // 2] if half else content)
        request.close_connection |= half
