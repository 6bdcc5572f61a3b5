"""HTTP/1.1 over one kept connection to a unix socket: one request at a time.

An answer is whole and within its limits of time and size, or it is a BrokenError and the connection
is closed: a late answer is never taken for that of another request.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

_OVERHEAD = 2**20
"""Bytes of status lines, headers, chunk sizes and what is read ahead, without the body."""


class BrokenError(Exception):
    """No whole answer. ``too_long``: because it exceeds the limit of its size."""

    def __init__(self, why: str, *, too_long: bool = False) -> None:
        super().__init__(why)
        self.too_long = too_long


class UnixHttpConnection:
    """Not thread-safe.

    ``path``: where the socket is now. ``timeout_s``: for one request. ``max_bytes``: of one body.
    """

    def __init__(self, path: Callable[[], str], *, timeout_s: float, max_bytes: int) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._http = HTTPConnection("localhost")
        self._socket: _Socket | None = None

    def request(
        self, method: str, target: str, body: bytes | None, content_type: str
    ) -> tuple[HTTPResponse, bytes]:
        """Send one request and read its answer, with its body. Raises BrokenError."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            self._connected().limit(self._timeout_s, self._max_bytes + _OVERHEAD)
            self._http.request(method, target, body, headers)
            with self._http.getresponse() as response:
                return response, _body(response, self._max_bytes)
        except BaseException as error:
            self.close()  # the rest of this answer must not meet the next request
            match error:
                case TimeoutError():
                    raise BrokenError(f"no answer within {self._timeout_s:g} s") from error
                case OSError():
                    why = error.strerror or str(error)
                    raise BrokenError(f"the connection broke: {why}") from error
                case ValueError() | HTTPException():
                    raise BrokenError(f"not an HTTP answer: {error}") from error
            raise

    def close(self) -> None:
        self._http.close()

    def _connected(self) -> _Socket:
        """The kept connection, or a new one if the server has closed it or sent what nobody asked for."""
        if self._http.sock is None or self._socket is None or _readable(self._socket):
            self.close()
            self._socket = self._http.sock = _Socket()
            self._socket.limit(self._timeout_s, 0)
            self._socket.connect(self._path())
        return self._socket


class _Socket(socket.socket):
    """Every read and write ends at the deadline of the request; reads are bounded in bytes."""

    def __init__(self) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._deadline = 0.0
        self._left = 0

    def limit(self, seconds: float, max_bytes: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._left = max_bytes
        self.settimeout(seconds)

    def recv_into(self, buffer: Any, *rest: int) -> int:  # noqa: ANN401  # any writable buffer
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.settimeout(left_s)
        count = super().recv_into(buffer, *rest)
        self._left -= count
        if self._left < 0:
            raise _too_long()
        return count


def _body(response: HTTPResponse, max_bytes: int) -> bytes:
    if response.chunked:
        found = response.read(max_bytes + 1)
        if len(found) > max_bytes:
            raise _too_long()
        return found
    if response.length is None:
        raise ValueError("an answer without a length")
    if response.length > max_bytes:
        raise _too_long()
    return response.read()  # with a length it would not notice that the body is cut off


def _readable(source: socket.socket) -> bool:
    return bool(select.select([source], [], [], 0)[0])


def _too_long() -> BrokenError:
    return BrokenError("the answer is larger than the limit", too_long=True)
