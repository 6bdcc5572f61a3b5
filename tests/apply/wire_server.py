"""A small HTTP server that answers byte by byte, for tests of the transport.

Records requests and connections; listens on a unix socket or on localhost, with TLS on demand.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apiserver_http import write_kubeconfig

Tree = dict[str, Any]

DATE = "Sat, 21 Nov 2026 10:00:00 GMT"
DATE_S = 1795255200.0
"""2026-11-21T10:00:00Z: 20,778 days after 1970-01-01 and ten hours, 20,778 x 86,400 + 36,000."""

TLS = Path(__file__).parents[1] / "data" / "tls"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived; ``headers`` by lower-case name."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


Answer = bytes | list[bytes] | None
"""What is sent: all at once, or piece by piece; None closes the connection without a word."""


def answer(
    code: int = 200, body: bytes | Tree = b"{}", kind: str = "application/json", **more: str
) -> bytes:
    """An HTTP answer with a Date and a length; headers by keyword, ``_`` for ``-``."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Date": DATE, "Content-Type": kind, "Content-Length": str(len(raw))}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = [f"HTTP/1.1 {code} Some", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def version(_: Asked) -> Answer:
    """What is asked first of every server."""
    return answer(body={"major": "1", "minor": "36", "gitVersion": "v1.36.2"})


@dataclass
class Server:
    """``play`` answers, ``greeting`` asks for the version; ``pause``: called between pieces."""

    play: Callable[[Asked], Answer]
    greeting: Callable[[Asked], Answer] = version
    pause: Callable[[], object] = lambda: None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    _open: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)

    def targets(self) -> list[str]:
        """Paths that were asked for, without those of the greeting."""
        return [one.target for one in self.asked if one.path != "/version"]

    def open_now(self) -> tuple[socket.socket, ...]:
        return tuple(self._open)

    def hang_up(self, connections: tuple[socket.socket, ...] | None = None) -> None:
        """Close these connections now, or all."""
        for one in self.open_now() if connections is None else connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def listening(self, listener: socket.socket) -> Iterator[Server]:
        listener.listen()
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
            thread.join(5)
            self.hang_up()
            for one in self._threads:
                one.join(5)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, _ = listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(wire,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, wire: socket.socket) -> None:
        self._open.add(wire)
        with wire, wire.makefile("rb") as reader, contextlib.suppress(OSError):
            if wire.family == socket.AF_INET:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (asked := _read(reader)) is not None:
                self.asked.append(asked)
                greets = asked.path.endswith("/version")
                found = (self.greeting if greets else self.play)(asked)
                if found is None:
                    break
                for number, piece in enumerate([found] if isinstance(found, bytes) else found):
                    if number:
                        self.pause()
                    wire.sendall(piece)
        self._open.discard(wire)


def _read(reader: Any) -> Asked | None:  # noqa: ANN401  # a SocketIO has no narrow type
    first = reader.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers = {}
    while line := reader.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Asked(first[0], first[1], headers, reader.read(int(headers.get("content-length", "0"))))


@contextmanager
def on_socket(path: Path, play: Callable[[Asked], Answer], **more: Any) -> Iterator[Server]:  # noqa: ANN401
    """Serve on a unix socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with Server(play, **more).listening(listener) as server:
            yield server


@contextmanager
def on_localhost(
    folder: Path,
    play: Callable[[Asked], Answer],
    *,
    tls: bool = False,
    user: Tree | None = None,
    path: str = "",
) -> Iterator[tuple[Server, Path]]:
    """Serve on localhost; with a kubeconfig whose context ``test`` leads there."""
    with socket.create_server(("127.0.0.1", 0)) as plain:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{plain.getsockname()[1]}{path}"
        config = kubeconfig(folder / "kubeconfig", url, user=user)
        listener = plain
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "localhost.crt", TLS / "localhost.key")
            listener = context.wrap_socket(plain, server_side=True)
        with Server(play).listening(listener) as server:
            yield server, config


def kubeconfig(path: Path, url: str, *, user: Tree | None = None) -> Path:
    """A kubeconfig that accepts any certificate."""
    insecure = {"insecure_skip_tls_verify": True} if url.startswith("https") else {}
    return write_kubeconfig(path, url, user=user, **insecure)
