"""HTTP/1.1 over one kept connection to a unix socket: one request at a time.

An answer is whole and within its limits of time and size, or it is a BrokenError and the connection
is closed: a late answer is never taken for that of another request.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any


class BrokenError(Exception):
    """No whole answer. ``too_long``: because it exceeds the limit of its size."""

    def __init__(self, why: str, *, too_long: bool = False) -> None:
        super().__init__(why)
        self.too_long = too_long


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes
    headers: Message


class UnixHttpConnection:
    """Not thread-safe.

    ``path``: where the socket is now. ``timeout_s``: for one request. ``max_bytes``: of one body.
    """

    def __init__(self, path: Callable[[], str], *, timeout_s: float, max_bytes: int) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._http = HTTPConnection("localhost")

    def request(
        self, method: str, target: str, body: bytes | None, content_type: str
    ) -> HttpAnswer:
        """Send one request and read its answer. Raises BrokenError."""
        with self._breaking():
            headers = {} if body is None else {"Content-Type": content_type}
            with self._asked(method, target, body, headers) as response:
                return HttpAnswer(response.status, self._body(response), response.headers)

    def close(self) -> None:
        self._http.close()

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """Whatever goes wrong closes the connection and becomes a BrokenError."""
        try:
            yield
        except BaseException as error:
            self.close()  # the rest of this answer must not meet the next request
            match error:
                case TimeoutError():
                    raise BrokenError(f"no answer within {self._timeout_s:g} s") from error
                case OSError() | EOFError():
                    why = getattr(error, "strerror", None) or str(error)
                    raise BrokenError(f"the connection broke: {why}") from error
                case ValueError() | HTTPException():
                    raise BrokenError(f"not an HTTP answer: {error}") from error
            raise

    def _asked(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> HTTPResponse:
        """The request, sent on the kept connection or on a new one, and the head of its answer."""
        stream = self._http.sock
        if not isinstance(stream, _Socket) or select.select([stream], [], [], 0)[0]:
            self.close()  # the server has closed it, or something has arrived unasked
            stream = self._http.sock = _Socket(socket.AF_UNIX, socket.SOCK_STREAM)
            stream.limit(self._timeout_s)
            stream.connect(self._path())
        stream.limit(self._timeout_s)
        self._http.request(method, target, body, {"Accept": "application/json", **headers})
        return self._http.getresponse()

    def _body(self, response: HTTPResponse) -> bytes:
        if response.status < HTTPStatus.OK or (response.length is None and not response.chunked):
            raise ValueError("an answer without a length")
        limit, body = self._max_bytes, b""
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
