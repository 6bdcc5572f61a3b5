"""The one way to a cluster: a ``kubectl proxy`` on a unix socket that only we can reach.

Credentials stay kubectl's business. Only the given paths get through. Proxy, socket
and folder are gone at the end, however the program ends. An answer is whole and within its limits of
time and size, or lost: a late answer is never taken for that of another request.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from planner.cluster.kubectl import Kubectl, ProxyProcess
from planner.cluster.retry import KnownRights, RetryingTransport
from planner.cluster.transport import (
    JSON,
    LOST,
    TOO_LONG,
    ApiRequest,
    MalformedError,
    Reply,
    Tree,
    deletes_others,
    list_object,
)
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.untrusted_text import one_line


class BrokenError(Exception):
    """No whole answer. ``too_long``: because it exceeds the limit of its size."""

    def __init__(self, why: str, *, too_long: bool = False) -> None:
        super().__init__(why)
        self.too_long = too_long


@dataclass(frozen=True, slots=True)
class UnixHttp:
    """Requests over a unix socket, a connection each: no answer meets the request of another.

    ``timeout_s``: for one request. ``max_bytes``: of one body.
    """

    timeout_s: float
    max_bytes: int

    def request(
        self, path: str, method: str, target: str, body: bytes | None, content_type: str
    ) -> tuple[int, Message, bytes]:
        """Send one request and read its answer: status, headers and body. Raises BrokenError.

        ``path``: of the socket.
        """
        headers = (
            {"Accept": JSON} if body is None else {"Accept": JSON, "Content-Type": content_type}
        )
        http = HTTPConnection("localhost")
        http.sock = stream = _Socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.limit(self.timeout_s)
            stream.connect(path)
            http.request(method, target, body, headers)
            with http.getresponse() as response:
                return response.status, response.headers, self._body(response)
        except TimeoutError as error:
            raise BrokenError(f"no answer within {self.timeout_s:g} s") from error
        except (OSError, EOFError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise BrokenError(f"the connection broke: {why}") from error
        except (ValueError, HTTPException) as error:
            raise BrokenError(f"not an HTTP answer: {error}") from error
        finally:
            http.close()

    def _body(self, response: HTTPResponse) -> bytes:
        if response.status < HTTPStatus.OK or (response.length is None and not response.chunked):
            raise ValueError("an answer without a length")
        limit, body = self.max_bytes, b""
        if response.length is None:
            body = response.read(limit + 1)
        elif response.length <= limit:
            body = response.read()  # only without a limit it says that the body was cut
        if max(len(body), response.length or 0) > limit:
            raise BrokenError("the answer is larger than the limit", too_long=True)
        return body


class _Socket(socket.socket):
    """Every read ends at the deadline of the request, however the answer trickles."""

    def limit(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.settimeout(seconds)

    def recv_into(self, buffer: Any, *rest: int) -> int:  # noqa: ANN401  # any writable buffer
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.settimeout(left_s)
        return super().recv_into(buffer, *rest)


MAX_BYTES = 256 * 2**20
"""Largest body that is read."""

CONNECTIONS = 8
"""Requests in flight at once, at most."""

FILTERED = "Filtered"
"""Reason of a reply of our own: the path is not an accepted one, or it would delete what is not ours."""

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

    ``accept``: patterns of ``planner.cluster.transport``. ``timeout_s``: for one request.
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
        process.close()


class ProxyTransport:
    """The transport through ``kubectl proxy``. Threads take turns.

    ``context``: None if kubectl has none. ``version``: the server's, such as v1.36.2, None if it
    does not say. ``date``: the server's clock at ``check_server``. ``known``: rights shown so far.
    """

    def __init__(self, process: ProxyProcess, *, timeout_s: float, max_bytes: int) -> None:
        self._process = process
        self._http = UnixHttp(timeout_s, max_bytes)
        self._turn = threading.Lock()
        self.known = KnownRights()
        self.context = process.kubectl.context
        self.kubeconfig = process.kubectl.kubeconfig
        self.version: str | None = None
        self.date: float | None = None

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        """One request and its reply; anything but an answer of the API server is Reply(LOST)."""
        return self.send_all([ApiRequest(method, path, body, content_type=content_type)])[0]

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """At most CONNECTIONS at once, so they are carried out in any order."""
        with self._turn:
            if not (self._process.alive or self._process.restart()):
                why = f"kubectl proxy ended: {self._process.said}"
                return [Reply(LOST, why=why)] * len(requests)
            if len(requests) == 1:
                return [self._asked(requests[0])]
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                return list(pool.map(self._asked, requests))

    def _asked(self, one: ApiRequest) -> Reply:
        if deletes_others(one):
            what = "gangplan deletes nothing but its own records and BindRequests"
            return Reply(400, {"reason": FILTERED}, why=what)
        body = None if one.body is None else _ENCODE(one.body).encode("utf-8", "surrogatepass")
        asked = (self._process.socket, one.method, one.path, body, one.content_type)
        try:
            return _reply(*self._http.request(*asked))
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


def _reply(status: int, headers: Message, body: bytes) -> Reply:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    retry_after_s = _seconds(headers.get("retry-after"))
    if kind == JSON:
        try:
            return Reply(status, list_object(body), _clock(headers.get("date", "")), retry_after_s)
        except MalformedError as error:
            why = str(error)
    elif kind != "text/plain":
        what = f"a body of {kind or 'no'} type" if body else "an empty body"
        why = f"HTTP {status} with {what}, not from an API server"
    else:
        why = one_line(body[:2000].decode("utf-8", "replace")) or f"HTTP {status}"
        # the API server's own plain text: "404 page not found" where it has no such API
        if "audit-id" not in headers and status != 404:
            if (status, why) == (403, "Forbidden"):
                what = "kubectl proxy does not accept this request"
                return Reply(400, {"reason": FILTERED}, why=what)
            return Reply(LOST, why=why)
    # without the JSON that it should have, a status counts only if it is a failure
    if status >= 500 or status == 404:
        return Reply(status, why=why, retry_after_s=retry_after_s)
    return Reply(LOST, why=why)


@lru_cache(1)
def _clock(written: str) -> float | None:
    """Seconds since the epoch of a header Date; a thousand answers a second share one."""
    try:
        return parsedate_to_datetime(written).timestamp()
    except ValueError:
        return None


def _seconds(written: str | None) -> float | None:
    """Of a header Retry-After. Its other form, a date, is not used by API servers."""
    if written is None or not written.isascii() or not written.isdigit() or len(written) > 6:
        return None
    return float(written)
