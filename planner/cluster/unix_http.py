"""HTTP/1.1 over one kept connection to a unix socket: one request at a time.

An answer is whole and within its limits of time and size, or it is a BrokenError and the connection
is closed: a late answer is never taken for that of another request.
"""

from __future__ import annotations

import contextlib
import errno
import io
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, cast

_BUFFER = 64 * 2**10
_MAX_DIGITS = 15

_OVERHEAD = 2**20
"""Bytes of status lines, headers, chunk sizes and what is read ahead, without the body."""

_MAX_REFUSAL = 2000
"""Bytes that are read of an answer in place of lines."""


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
        self._stream: _Stream | None = None

    def request(
        self, method: str, target: str, body: bytes | None, content_type: str
    ) -> HttpAnswer:
        """Send one request and read its answer. Raises BrokenError."""
        sent = _encoded(method, target, body, content_type)
        with self._breaking():
            stream = self._connected()
            stream.socket.limit(self._timeout_s, self._max_bytes + _OVERHEAD)
            stream.socket.sendall(sent)
            answer, last = _answer(stream, self._max_bytes)
        if last:
            self.close()
        return answer

    def lines(self, target: str, idle_s: float) -> Iterator[bytes]:
        """GET an answer that goes on: its lines as they come, until it ends.

        Raises BrokenError, also for another status than 200 and if nothing comes for ``idle_s``.
        """
        with self._breaking():
            stream = self._connected()
            stream.socket.limit(idle_s, self._max_bytes + _OVERHEAD)
            stream.socket.sendall(_encoded("GET", target, None, ""))
            response = HTTPResponse(cast("socket.socket", stream))
            response.begin()
            if response.status != HTTPStatus.OK:
                said = response.read(_MAX_REFUSAL).decode("utf-8", "replace")
                raise BrokenError(f"HTTP {response.status}: {said}")
            while line := response.readline(self._max_bytes):
                yield line
                stream.socket.limit(idle_s, self._max_bytes + _OVERHEAD)
        self.close()

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

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

    def _connected(self) -> _Stream:
        """The kept connection, or a new one if the server has closed it."""
        if self._stream is None or not self._stream.idle():
            self.close()
            self._stream = _Stream(_Socket())
            self._stream.socket.limit(self._timeout_s, 0)
            self._stream.socket.connect(self._path())
        return self._stream


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

    def end_limit(self) -> None:
        """Reads return at once until the next ``limit``."""
        self._deadline = 0.0

    def recv_into(self, buffer: Any, *rest: int) -> int:  # noqa: ANN401  # any writable buffer
        if self._deadline == 0.0:
            raise BlockingIOError(errno.EAGAIN, "no answer is awaited")
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.settimeout(left_s)
        count = super().recv_into(buffer, *rest)
        self._left -= count
        if self._left < 0:
            raise _too_long()
        return count


class _Stream(io.BufferedReader):
    """What answers are read from. Each HTTPResponse closes its file; this one stays open."""

    def __init__(self, source: _Socket) -> None:
        super().__init__(socket.SocketIO(source, "rb"), _BUFFER)
        self.socket = source

    def makefile(self, _mode: str) -> _Stream:
        return self

    def close(self) -> None:
        """See ``end``."""

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.raw.close()

    def idle(self) -> bool:
        """Whether nothing has arrived unasked, the end of the connection included."""
        if select.select([self.socket], [], [], 0)[0]:
            return False
        self.socket.end_limit()
        return not self.peek(1)  # what followed the last answer and was not part of it


def _answer(stream: _Stream, max_bytes: int) -> tuple[HttpAnswer, bool]:
    """The next answer, and whether it is the last of its connection."""
    while True:
        response = HTTPResponse(cast("socket.socket", stream))
        response.begin()
        if not 100 <= response.status < 200:  # interim answers
            break
    if response.status in {204, 304}:
        body = b""
    elif response.chunked:
        body = response.read(max_bytes + 1)
    else:
        length = response.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or len(length) > _MAX_DIGITS:
            raise ValueError("an answer without a length")
        if int(length) > max_bytes:
            raise _too_long()
        body = response.read()
    if len(body) > max_bytes:
        raise _too_long()
    return HttpAnswer(response.status, body, response.headers), response.will_close


def _too_long() -> BrokenError:
    return BrokenError("the answer is larger than the limit", too_long=True)


def _encoded(method: str, target: str, body: bytes | None, content_type: str) -> bytes:
    """One HTTP/1.1 request. Raises ValueError for a target that could be two lines."""
    valid = target.startswith("/") and target.isascii() and target.isprintable()
    if not valid or " " in target:
        raise ValueError(f"not a request target: {target!r}")
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
    if body is None:
        return f"{head}\r\n".encode("ascii")
    head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body
