"""The test API server over HTTPS for kubectl, as a transport without a socket, and with recorded objects."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from apiserver import Answer, FakeCluster
from apiserver_kinds import Json, Tree
from effort import HANG_S

from planner.cluster.retry import KnownRights
from planner.cluster.transport import JSON, Reply

CERTIFICATE = Path(__file__).parents[1] / "data" / "kube_api" / "localhost.pem"
"""A key and a self-signed certificate for 127.0.0.1, good for nothing else."""

ADMIN = "administrator"
"""The token of an administrator."""

Server = Any
"""What can be served: its kinds, its tokens, and ``handle`` as ``FakeCluster`` has it."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A body sent as it is, after ``after_s``. ``missing``: bytes that are promised and never sent."""

    code: int
    body: bytes
    after_s: float = 0.0
    missing: int = 0

    def answer(self) -> Answer:
        """As hooks of a cluster give it."""
        return self.code, {"raw": self}, {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a cluster is served. ``kubeconfig``: leads there as an administrator, context ``test``."""

    url: str
    kubeconfig: Path
    server: Tree

    def as_user(self, token: str) -> Path:
        """A kubeconfig that leads there with this token."""
        path, user = self.kubeconfig.with_name(f"kubeconfig-{token}"), {"token": token}
        return write_kubeconfig(path, self.url, user=user, **self.server)


@contextmanager
def serving(cluster: Server, folder: Path, *, tls: bool = True) -> Iterator[Endpoint]:
    """Serve on a free port of localhost while the block runs. Without ``tls`` kubectl sends no tokens.

    Everybody is an administrator then.
    """
    with _Server(cluster, tls=tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
            more = {"certificate_authority": str(CERTIFICATE)} if tls else {}
            path, user = folder / "kubeconfig", {"token": ADMIN}
            yield Endpoint(url, write_kubeconfig(path, url, user=user, **more), more)
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join()
            server.hang_up()


def write_kubeconfig(
    path: Path, url: str, *, name: str = "test", user: Tree | None = None, **server: Json
) -> Path:
    """A kubeconfig with one context, which is the current one. ``server``: more fields of the cluster."""
    more = {key.replace("_", "-"): value for key, value in server.items()}
    tree: Tree = {"apiVersion": "v1", "kind": "Config", "current-context": name}
    tree["clusters"] = [{"name": name, "cluster": {"server": url} | more}]
    tree["users"] = [{"name": name, "user": user or {}}]
    tree["contexts"] = [{"name": name, "context": {"cluster": name, "user": name}}]
    path.write_text(json.dumps(tree), encoding="utf-8")
    path.chmod(0o600)
    return path


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    """In chunks perhaps: so kubectl sends what it reads from a pipe."""
    if "chunked" not in (request.headers.get("Transfer-Encoding") or ""):
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline(64).split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline(8)
    request.rfile.readline(8)
    return b"".join(parts)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    rbufsize = 65536
    timeout = HANG_S  # clients hang up first: a write on what we just closed is not tried again

    def setup(self) -> None:
        if self.server.context is not None:
            self.request = self.server.context.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
        self.server.open[self.request] = threading.current_thread()
        super().setup()

    def handle(self) -> None:
        with suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.server.open.pop(self.request, None)
        self.request.close()

    def answered(self) -> None:
        """Answer one request."""
        sent, cluster, user = body_of(self), self.server.cluster, None
        kind = (self.headers.get("Content-Type") or JSON).partition(";")[0]
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.server.context and token != ADMIN:
            user = cluster.tokens[token]
        body = json.loads(sent) if sent else None
        code, tree, more = cluster.handle(self.command, self.path, body, kind, user)
        if isinstance(raw := tree.get("raw"), RawAnswer):
            self.server.stopped.wait(raw.after_s)
            self.write(code, raw.body, more, raw.missing)
            self.close_connection |= bool(raw.missing)
        elif code:
            self.write(code, json.dumps(tree, ensure_ascii=False).encode(), more)
        else:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answered  # noqa: N815  # as the base class asks

    def write(self, code: int, body: bytes, headers: dict[str, str], missing: int = 0) -> None:
        self.send_response_only(code)
        more = {"Content-Type": JSON, "Content-Length": str(len(body) + missing)}
        for name, value in (more | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, cluster: Server, *, tls: bool) -> None:
        self.cluster = cluster
        self.stopped = threading.Event()
        self.context: ssl.SSLContext | None = None
        self.open: dict[socket.socket, threading.Thread] = {}
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(CERTIFICATE)
        super().__init__(("127.0.0.1", 0), _Handler)

    def hang_up(self) -> None:
        """End connections that clients keep open, and wait for their threads."""
        for one, thread in list(self.open.items()):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            thread.join(HANG_S)


class FakeWire:
    """A transport to the cluster. ``user``: name of who asks; None for an administrator."""

    def __init__(self, cluster: FakeCluster, user: str | None = None) -> None:
        self.cluster, self.user, self.context = cluster, user, "test"
        self.known = KnownRights()

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        sent = json.loads(json.dumps(body))
        code, tree, headers = self.cluster.handle(method, path, sent, content_type, self.user)
        if isinstance(raw := tree.get("raw"), RawAnswer):
            tree = json.loads(raw.body)
        if code == 0:
            return Reply(0, why="the connection broke")
        date, after = headers.get("Date"), headers.get("Retry-After")
        return Reply(
            code,
            json.loads(json.dumps(tree)),
            date=None if date is None else _seconds(date),
            retry_after_s=None if after is None else float(after),
        )


@lru_cache(maxsize=1024)
def _seconds(date: str) -> float:
    return parsedate_to_datetime(date).timestamp()
