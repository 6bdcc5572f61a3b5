"""HTTP over one unix socket, on one kept connection: a request at a time, or several ahead.

Promises: an answer is whole and within its bounds of time and size, or it is Broken, and then the
connection is gone: nothing that comes late is ever taken for a later answer. Called by ``proxy``.
"""

from __future__ import annotations

import contextlib
import io
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

_MAX_LINE = 64 * 2**10
_MAX_HEADERS = 200
_MAX_DIGITS = 15
_CHUNK = 2**20

_AHEAD = 32 * 2**10
"""Bytes of requests on their way at once: less than a socket holds, so that sending never has to wait."""

Question = tuple[str, str, bytes | None, str]
"""Method, target, body, content type."""


class BrokenError(Exception):
    """No whole answer. ``too_long``: because it was longer than is read."""

    def __init__(self, why: str, *, too_long: bool = False) -> None:
        super().__init__(why)
        self.too_long = too_long


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; ``headers`` by lower-case name, the last of several."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Channel:
    """Not safe for several threads.

    ``path``: where the socket is now. ``seconds``: for one request; ``most``: bytes of one body.
    """

    def __init__(self, path: Callable[[], str], *, seconds: float, most: int) -> None:
        self._path = path
        self._seconds = seconds
        self._most = most
        self._line: _Line | None = None

    def ask(self, method: str, target: str, body: bytes | None, content_type: str) -> Answer:
        """Send one request and read its answer. Raises BrokenError."""
        request = _request(method, target, body, content_type)
        with self._unbroken():
            line = self._open()
            line.send(request)
            return self._answered(line)

    def ask_all(self, questions: Sequence[Question]) -> Iterator[Answer | BrokenError]:
        """Send requests without waiting for the answers between; an answer each, in their order.

        The other side carries them out one after the other. Once one is broken, so are all after it:
        nobody knows which of them were carried out.
        """
        broken: BrokenError | None = None
        for requests in _together([_request(*question) for question in questions]):
            for number in range(len(requests)):
                if broken is None:
                    try:
                        yield self._next(b"".join(requests) if number == 0 else b"")
                        continue
                    except BrokenError as error:
                        broken = error
                yield broken

    def _next(self, requests: bytes) -> Answer:
        """The next answer, once these requests are sent. Raises BrokenError."""
        with self._unbroken():
            line = self._open() if requests else self._line
            if line is None:
                raise EOFError("it was closed")
            line.begin(self._seconds)
            if requests:
                line.send(requests)
            return self._answered(line)

    def _answered(self, line: _Line) -> Answer:
        answer = _answer(line, self._most)
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    @contextlib.contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Whatever goes wrong ends the connection. Raises BrokenError."""
        try:
            yield
        except BaseException as error:
            self.close()  # what is left of this answer must not meet the next request
            match error:
                case TimeoutError():
                    raise BrokenError(f"no answer within {self._seconds:g} s") from error
                case OSError() | EOFError():
                    why = getattr(error, "strerror", None) or str(error)
                    raise BrokenError(f"the connection broke: {why}") from error
                case ValueError():
                    raise BrokenError(f"that is no HTTP answer: {error}") from error
            raise

    def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _open(self) -> _Line:
        """The kept connection, or a new one where the other side has closed it meanwhile."""
        if self._line is not None and self._line.idle():
            self._line.begin(self._seconds)
            return self._line
        self.close()
        self._line = _Line()
        self._line.begin(self._seconds)
        self._line.connect(self._path())
        return self._line


class _Line:
    """A connection, each of whose reads and writes ends at the deadline of the request."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        raw = self._socket.makefile("rb", buffering=0)
        self._reader = io.BufferedReader(raw, 64 * 2**10)
        self._deadline = 0.0

    def begin(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def connect(self, path: str) -> None:
        self._patience()
        self._socket.connect(path)

    def idle(self) -> bool:
        """Whether nothing came unasked, the end of the connection included."""
        if select.select([self._socket], [], [], 0)[0]:
            return False
        self._socket.settimeout(0)
        return not self._reader.peek(1)  # what came with the last answer and was no part of it

    def send(self, request: bytes) -> None:
        self._patience()
        self._socket.sendall(request)

    def line(self) -> bytes:
        """Without its end. Raises EOFError, or ValueError for one that does not end."""
        self._patience()
        line = self._reader.readline(_MAX_LINE)
        if not line.endswith(b"\n"):
            if len(line) == _MAX_LINE:
                raise ValueError("a line that does not end")
            raise EOFError("it was closed")
        return line.rstrip(b"\r\n")

    def head(self) -> list[bytes]:
        """The lines of a head up to the empty one, without their ends. Raises as ``line`` does."""
        self._patience()
        held = self._reader.peek(1)
        end = held.find(b"\r\n\r\n")
        count = held.count(b"\r\n", 0, max(end, 0))
        if 0 <= end < _MAX_LINE and held.count(b"\n", 0, end) == count <= _MAX_HEADERS:
            return self._reader.read(end + 4)[:-4].split(b"\r\n")
        lines = [self.line()]  # it comes in pieces, or is no common one
        while lines[-1]:
            if len(lines) > _MAX_HEADERS:
                raise ValueError("too many headers")
            lines.append(self.line())
        return lines[:-1]

    def take(self, count: int) -> list[bytes]:
        """Exactly so many bytes, in pieces. Raises EOFError."""
        pieces: list[bytes] = []
        while count:
            self._patience()
            piece = self._reader.read1(min(count, _CHUNK))
            if not piece:
                raise EOFError("it ended within an answer")
            pieces.append(piece)
            count -= len(piece)
        return pieces

    def close(self) -> None:
        for one in (self._reader, self._socket):
            with contextlib.suppress(OSError):
                one.close()

    def _patience(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def _together(requests: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Requests in groups of at most _AHEAD bytes, or of one that is longer."""
    group: list[bytes] = []
    for request in requests:
        if group and sum(map(len, group)) + len(request) > _AHEAD:
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _answer(line: _Line, most: int) -> Answer:
    status, headers = _head(line)
    while 100 <= status < 200:  # interim answers
        status, headers = _head(line)
    if status in {204, 304}:
        return Answer(status, b"", headers)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Answer(status, _chunked(line, most), headers)
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()) or len(length) > _MAX_DIGITS:
        raise ValueError("an answer without a length")
    return Answer(status, b"".join(line.take(_bounded(int(length), most))), headers)


def _chunked(line: _Line, most: int) -> bytes:
    pieces: list[bytes] = []
    room = most
    while size := _hexadecimal(line.line().partition(b";")[0]):
        room -= _bounded(size, room)
        pieces += line.take(size)
        if line.line():
            raise ValueError("a chunk longer than it says")
    while line.line():  # trailers
        pass
    return b"".join(pieces)


def _bounded(size: int, most: int) -> int:
    if size > most:
        raise BrokenError("the answer is larger than is read", too_long=True)
    return size


def _request(method: str, target: str, body: bytes | None, content_type: str) -> bytes:
    """One HTTP/1.1 request. Raises ValueError for a target that could be two lines."""
    whole = target.startswith("/") and target.isascii() and target.isprintable()
    if not whole or " " in target:
        raise ValueError(f"no target of a request: {target!r}")
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
    if body is None:
        return f"{head}\r\n".encode("ascii")
    head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def _head(line: _Line) -> tuple[int, dict[str, str]]:
    first, *others = line.head() or [b""]
    version, _, rest = first.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or len(code) != 3 or not code.isdigit():
        raise ValueError("it does not begin as one")
    headers: dict[str, str] = {}
    for found in others:
        name, _, value = found.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return int(code), headers


def _hexadecimal(digits: bytes) -> int:
    """Raises ValueError for what ``int`` would allow beside digits: signs, spaces, underscores."""
    stripped = digits.strip()
    if not stripped or stripped.strip(b"0123456789abcdefABCDEF") or len(stripped) > _MAX_DIGITS:
        raise ValueError("a chunk without a size")
    return int(stripped, 16)
