"""A relay between the program and an API server, which sees every request and may change its answer.

Faults happen at an exact request: answers lost before or after the request was carried out, refusals,
a killed process, a clock that jumps.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from apiserver_http import body_of
from effort import HANG_S

Tree = dict[str, Any]

_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}
)
_OURS = frozenset({"host", "accept-encoding"})
"""Not passed on: answers come unpacked, so that they can be looked into."""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)

    def tree(self) -> Tree:
        """The JSON object in it."""
        found: Tree = json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``number``: 1 for the first since ``Relay.forget``."""

    number: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def is_dry_run(self) -> bool:
        return "dryRun" in self.query

    @property
    def writes(self) -> bool:
        """Whether it changes something; questions about rights are POSTed, too, and change nothing."""
        asks = self.path.startswith("/apis/authorization.k8s.io/")
        return self.method != "GET" and not self.is_dry_run and not asks

    @property
    def writes_pods(self) -> bool:
        return self.writes and "/pods/" in self.path

    @property
    def evicts(self) -> bool:
        return self.writes and self.path.endswith("/eviction")

    @property
    def starts(self) -> bool:
        """Whether it takes off the gate of a pod."""
        return self.method == "PATCH" and not self.is_dry_run and b'"$patch"' in self.body

    @property
    def records(self) -> bool:
        """Writes or removes the record of a start."""
        return self.writes and "/configmaps" in self.path

    @property
    def prepares(self) -> bool:
        """One of those that are sent together: they start nothing, and each can be taken back."""
        return self.records or self.is_dry_run

    def __str__(self) -> str:
        return f"{self.number}: {self.method} {self.target}"


Forward = Callable[[], Answer]
Meddler = Callable[[Call, Forward], Answer | None]
"""Makes the answer to a call, mostly by forwarding it; None: the connection breaks without one."""


def honest(_call: Call, forward: Forward) -> Answer | None:
    return forward()


@dataclass(slots=True)
class Relay:
    """``calls``: everything that was asked, in order. ``later_s``: how far the server's clock is ahead."""

    upstream: str
    url: str = ""
    later_s: float = 0.0
    meddler: Meddler = honest
    calls: list[Call] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        """Begin to count anew, and meddle no more."""
        with self._lock:
            self.calls = []
            self.meddler = honest

    @contextmanager
    def meddling(self, meddler: Meddler) -> Iterator[None]:
        """Answer so while the block runs; calls are counted from 1 in it."""
        self.forget()
        self.meddler = meddler
        try:
            yield
        finally:
            self.meddler = honest

    def took(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Call:
        with self._lock:
            call = Call(len(self.calls) + 1, method, target, tuple(headers), body)
            self.calls.append(call)
        return call

    def writes(self) -> list[Call]:
        """Calls that may have changed something, but for those of the lock."""
        return [call for call in self.calls if call.writes and "/leases" not in call.path]


def _passed(call: Call) -> dict[str, str]:
    return {name: value for name, value in call.headers if name.lower() not in _HOP | _OURS}


def _forwarded(upstream: http.client.HTTPConnection, call: Call, later_s: float) -> Answer:
    upstream.request(call.method, call.target, body=call.body or None, headers=_passed(call))
    reply = upstream.getresponse()
    body = reply.read()
    kept = [(name, value) for name, value in reply.getheaders() if name.lower() not in _HOP]
    return Answer(reply.status, body, tuple(_dated(name, value, later_s) for name, value in kept))


def _dated(name: str, value: str, later_s: float) -> tuple[str, str]:
    if name.lower() != "date" or not later_s:
        return name, value
    then = parsedate_to_datetime(value).timestamp() + later_s
    return name, formatdate(then, usegmt=True)


def _write(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    handler.send_response_only(answer.code)
    for name, value in answer.headers:
        handler.send_header(name, value)
    if not any(name.lower() == "date" for name, _ in answer.headers):
        handler.send_header("Date", handler.date_time_string())
    handler.send_header("Content-Length", str(len(answer.body)))
    handler.end_headers()
    handler.wfile.write(answer.body)


def _handler(relay: Relay) -> type[BaseHTTPRequestHandler]:
    address = urlsplit(relay.upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.upstream = http.client.HTTPConnection(address, timeout=HANG_S)

        def finish(self) -> None:
            self.upstream.close()
            super().finish()

        def answered(self) -> None:
            body = body_of(self)
            call = relay.took(self.command, self.path, self.headers.items(), body)
            answer = relay.meddler(call, lambda: self.forwarded(call))
            if answer is None:
                self.close_connection = True
                return
            _write(self, answer)

        def forwarded(self, call: Call) -> Answer:
            try:
                return _forwarded(self.upstream, call, relay.later_s)
            except (http.client.HTTPException, OSError):
                self.upstream.close()
                raise

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answered  # noqa: N815  # as the base class asks

        def log_message(self, *args: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is what some tests are about; it sees a broken connection, too."""


@contextmanager
def relaying(upstream: str) -> Iterator[Relay]:
    """A relay to a plain HTTP server while the block runs."""
    relay = Relay(upstream)
    with _Server(("127.0.0.1", 0), _handler(relay)) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        relay.url = f"http://127.0.0.1:{served.server_port}"
        try:
            yield relay
        finally:
            with contextlib.suppress(OSError):
                served.shutdown()
            thread.join()
