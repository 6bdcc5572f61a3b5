"""The one way to a cluster: a ``kubectl proxy`` on a unix socket that only we can reach.

Credentials stay kubectl's business. Only the given paths get through, and no DELETE. Proxy, socket
and folder are gone at the end, however the program ends.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import lru_cache

from planner.cluster.kubectl import Kubectl
from planner.cluster.proxy_process import ProxyProcess
from planner.cluster.retry import RetryingTransport
from planner.cluster.transport import (
    JSON,
    LOST,
    TOO_LONG,
    ApiRequest,
    MalformedError,
    Reply,
    Tree,
    list_object,
)
from planner.cluster.unix_http import BrokenError, HttpAnswer, UnixHttpConnection
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.untrusted_text import one_line

MAX_BYTES = 256 * 2**20
"""Largest body that is read."""

CONNECTIONS = 8
"""Requests in flight at once, at most."""

FILTERED = "Filtered"
"""Reason of a reply of the proxy itself: the path is not an accepted one, nothing was forwarded."""

VERSION = "/version"
"""Asked first: every user may read it."""

_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


@contextlib.contextmanager
def connect(
    environ: Mapping[str, str],
    *,
    context: str | None = None,
    kubeconfig: str | None = None,
    timeout_s: float = 60.0,
    accept: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
) -> Iterator[ProxyTransport]:
    """A transport to the cluster of that context (None: the current one), for the paths of ``accept``.

    ``accept``: patterns of ``planner.cluster.api_paths``. ``timeout_s``: for one request.
    Raises UnavailableError (69), NotPermittedError (77), MissingPathError (66), CannotWriteError (73).
    """
    kubectl = Kubectl.find(environ, context=context, kubeconfig=kubeconfig)
    process = ProxyProcess(kubectl, (VERSION, *accept))
    transport = ProxyTransport(process, timeout_s=timeout_s, max_bytes=max_bytes)
    try:
        process.start()
        transport.check_server()
        yield transport
    finally:
        transport.close()


class ProxyTransport:
    """The transport through ``kubectl proxy``. Threads take turns.

    ``context``: None if kubectl has none. ``version``: the server's, such as v1.36.2, None if it
    does not say. ``date``: the server's clock at ``check_server``.
    """

    def __init__(self, process: ProxyProcess, *, timeout_s: float, max_bytes: int) -> None:
        self._process = process
        self._connections = [
            UnixHttpConnection(lambda: process.socket, timeout_s=timeout_s, max_bytes=max_bytes)
            for _ in range(CONNECTIONS)
        ]
        self._turn = threading.Lock()
        self.context = process.kubectl.context
        self.kubeconfig = process.kubectl.kubeconfig
        self.version: str | None = None
        self.date: float | None = None

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """One request and its reply; anything but an answer of the API server is Reply(LOST)."""
        with self._turn:
            if not self._ready():
                return self._ended()
            request = ApiRequest(method, path, body, content_type=content_type)
            return self._asked(self._connections[0], request)

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """Shared among the connections, so they are carried out in any order."""

        def share(first: int) -> list[Reply]:
            connection = self._connections[first]
            return [self._asked(connection, one) for one in requests[first::CONNECTIONS]]

        with self._turn:
            if not self._ready():
                return [self._ended()] * len(requests)
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                found = list(pool.map(share, range(min(CONNECTIONS, len(requests)))))
        return [found[n % CONNECTIONS][n // CONNECTIONS] for n in range(len(requests))]

    def _asked(self, connection: UnixHttpConnection, one: ApiRequest) -> Reply:
        body = None if one.body is None else _ENCODE(one.body).encode("utf-8", "surrogatepass")
        try:
            return self._reply(connection.request(one.method, one.path, body, one.content_type))
        except BrokenError as error:
            reason = {"reason": TOO_LONG} if error.too_long else {}
            return Reply(LOST, body=reason, why=str(error))

    def check_server(self) -> None:
        """Whether the server answers and knows us. Raises UnavailableError, NotPermittedError."""
        reply = RetryingTransport(self).send("GET", VERSION)
        message, kubectl = one_line(reply.message), self._process.kubectl
        if reply.status == 401 or (
            reply.status == LOST and reply.why.startswith("getting credentials")
        ):
            hint = f"try it by hand: {kubectl.by_hand()}"
            raise NotPermittedError(Fault(f"not logged in: {message}", hint))
        if reply.status == LOST or reply.status >= 500:
            what = f"cannot reach the API server: {message}"
            raise UnavailableError(Fault(what, kubectl.hint(reply.message)))
        version = reply.body.get("gitVersion")
        self.version = one_line(version) if reply.ok and isinstance(version, str) else None
        self.date = reply.date

    def close(self) -> None:
        """End the connection and the proxy."""
        self._hang_up()
        self._process.close()

    def _ready(self) -> bool:
        """Whether the proxy runs, started anew if something ended it."""
        if self._process.alive:
            return True
        self._hang_up()
        return self._process.restart()

    def _hang_up(self) -> None:
        for connection in self._connections:
            connection.close()

    def _ended(self) -> Reply:
        return Reply(LOST, why=f"kubectl proxy ended: {self._process.last_line()}")

    def _reply(self, answer: HttpAnswer) -> Reply:
        headers = answer.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        retry_after_s = _seconds(headers.get("retry-after"))
        if kind == JSON:
            try:
                body = list_object(answer.body)
            except MalformedError as error:
                return _without_body(answer, str(error))
            return Reply(answer.status, body, _clock(headers.get("date", "")), retry_after_s)
        text = one_line(answer.body[:2000].decode("utf-8", "replace"))
        if kind != "text/plain":
            what = f"a body of {kind or 'no'} type" if answer.body else "an empty body"
            why = f"HTTP {answer.status} with {what}, not from an API server"
            return _without_body(answer, why)
        if "audit-id" in headers or answer.status == 404:
            # the API server's own plain text: "404 page not found" where it has no such API
            return _without_body(answer, text)
        if answer.status == 403 and text == "Forbidden":
            return Reply(
                400, {"reason": FILTERED}, why="kubectl proxy does not accept this request"
            )
        return Reply(LOST, why=text or f"HTTP {answer.status}")


@lru_cache(1)
def _clock(written: str) -> float | None:
    """Seconds since the epoch of a header Date; a thousand answers a second share one."""
    try:
        return parsedate_to_datetime(written).timestamp()
    except ValueError:
        return None


def _without_body(answer: HttpAnswer, why: str) -> Reply:
    """An answer without the JSON it should have: its status counts only if it is a failure."""
    if answer.status >= 500 or answer.status == 404:
        retry_after_s = _seconds(answer.headers.get("retry-after"))
        return Reply(answer.status, why=why, retry_after_s=retry_after_s)
    return Reply(LOST, why=why)


def _seconds(written: str | None) -> float | None:
    """Of a header Retry-After. Its other form, a date, is not used by API servers."""
    if written is None or not written.isascii() or not written.isdigit() or len(written) > 6:
        return None
    return float(written)
