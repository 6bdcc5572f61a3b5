"""The test API server over HTTPS for kubectl, and as a transport without a socket."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Protocol
from urllib.parse import urlsplit

import yaml
from apiserver import FakeCluster
from apiserver_discovery import CONTENT_TYPE, V2, decoded, described, swagger
from apiserver_errors import ApiError
from apiserver_kinds import Json, Kinds, Tree
from apiserver_rbac import User
from effort import HANG_S

from planner.cluster.transport import JSON, Reply

CERTIFICATE = Path(__file__).parents[1] / "data" / "kube_api" / "localhost.pem"
"""A key and a self-signed certificate for 127.0.0.1, good for nothing else."""

ADMIN = "administrator"
"""The token of an administrator."""

_UNAUTHORIZED = ApiError(401, "Unauthorized").tree()


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A body sent as it is, after ``after_s``. ``missing``: bytes that are promised and never sent."""

    code: int
    body: bytes
    after_s: float = 0.0
    missing: int = 0


class Server(Protocol):
    """What can be served."""

    kinds: Kinds
    tokens: dict[str, User]

    def handle(
        self,
        method: str,
        target: str,
        body: Json = None,
        content_type: str = "application/json",
        user: str | None = None,
        agent: str = "",
    ) -> tuple[int, Tree | RawAnswer, dict[str, str]]: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a cluster is served. ``kubeconfig``: leads there as an administrator, context ``test``."""

    url: str
    kubeconfig: Path
    folder: Path
    tls: bool

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with this kubeconfig, and a discovery cache of its own."""
        own = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder), "KUBERC": "off"}
        return {**base, **own}

    def as_user(self, token: str, *, name: str = "test") -> Path:
        """A kubeconfig that leads there with this token, under the context ``name``."""
        path = self.folder / f"kubeconfig-{token}"
        return _kubeconfig(path, self.url, token, tls=self.tls, name=name)


@contextmanager
def serving(cluster: Server, folder: Path, *, tls: bool = True) -> Iterator[Endpoint]:
    """Serve on a free port of localhost while the block runs. Without ``tls`` kubectl sends no tokens.

    Everybody is an administrator then.
    """
    with _Server(cluster, tls=tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
            path = _kubeconfig(folder / "kubeconfig", url, ADMIN, tls=tls)
            yield Endpoint(url, path, folder, tls)
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
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url} | more}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.write_text(json.dumps(tree), encoding="utf-8")
    path.chmod(0o600)
    return path


def _kubeconfig(path: Path, url: str, token: str, *, tls: bool, name: str = "test") -> Path:
    server = {"certificate_authority": str(CERTIFICATE)} if tls else {}
    return write_kubeconfig(path, url, name=name, user={"token": token}, **server)


class _Handler(StreamRequestHandler):
    """One connection."""

    server: _Server
    disable_nagle_algorithm = True
    rbufsize = 65536

    def setup(self) -> None:
        # clients hang up first (kubectl after 90 s): a write on what we just closed is not tried again
        self.request.settimeout(HANG_S)
        if self.server.context is not None:
            self.request = self.server.context.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
        self.server.open[self.request] = threading.current_thread()
        super().setup()

    def handle(self) -> None:
        with suppress(OSError, ssl.SSLError, ValueError):
            while not self.server.stopped.is_set() and self._one():
                pass

    def finish(self) -> None:
        with suppress(OSError, ssl.SSLError):
            super().finish()
        self.server.open.pop(self.request, None)
        self.request.close()

    def _one(self) -> bool:
        """Answer one request; False at the end of the connection."""
        line = self.rfile.readline(65537)
        if not line.strip():
            return False
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self.rfile.readline(65537)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        again = self._answered(method, target, headers, self._body(headers))
        return again and headers.get("connection", "").lower() != "close"

    def _answered(self, method: str, target: str, headers: dict[str, str], raw: bytes) -> bool:
        """Answer it; False where the connection is over with that."""
        user = self._user(headers)
        if user == "":
            self._send(401, _UNAUTHORIZED, {})
            return True
        if method == "GET" and self._described(target):
            return True
        kind = headers.get("content-type", "application/json").partition(";")[0]
        agent = headers.get("user-agent", "")
        try:
            body = _parsed(raw, kind)
        except ValueError as error:
            self._send(400, ApiError(400, f"couldn't get version/kind; {error}").tree(), {})
            return True
        code, tree, more = self.server.cluster.handle(method, target, body, kind, user, agent)
        if isinstance(tree, RawAnswer):
            self.server.stopped.wait(tree.after_s)
            self._write(code, tree.body, {"Content-Type": "application/json"} | more, tree.missing)
            return not tree.missing
        if code:
            self._send(code, tree, more)
        return code != 0

    def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" in headers.get("transfer-encoding", ""):
            parts = []
            while size := int(self.rfile.readline(64).split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline(8)
            self.rfile.readline(8)
            return b"".join(parts)
        return self.rfile.read(int(headers.get("content-length") or 0))

    def _user(self, headers: dict[str, str]) -> str | None:
        """User name; None: an administrator; empty: the token is unknown."""
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token == ADMIN or not self.server.context:
            return None
        found = self.server.cluster.tokens.get(token)
        return found.name if found is not None else ""

    def _described(self, target: str) -> bool:
        """The OpenAPI documents, which are no objects."""
        path = urlsplit(target).path
        if path == "/openapi/v2":
            body = swagger(self.server.cluster.kinds)
            self._write(200, body, {"Content-Type": V2})
            return True
        tree = described(self.server.cluster.kinds, path)
        if tree is None:
            return False
        self._send(200, tree, {})
        return True

    def _send(self, code: int, tree: Tree, headers: dict[str, str]) -> None:
        self._write(code, _encoded(tree), {"Content-Type": "application/json"} | headers)

    def _write(self, code: int, body: bytes, headers: dict[str, str], missing: int = 0) -> None:
        length = len(body) + missing
        lines = [f"HTTP/1.1 {code} {_phrase(code)}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.request.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
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

    def handle_error(self, request: Json, client_address: Json) -> None:
        """A client that goes away is what some tests are about."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _phrase(code: int) -> str:
    return HTTPStatus(code).phrase if code in set(HTTPStatus) else "Unknown"


def _encoded(tree: Json) -> bytes:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def _parsed(raw: bytes, kind: str) -> Json:
    """Raises ValueError for what cannot be read."""
    if not raw:
        return None
    if kind == CONTENT_TYPE:
        return decoded(raw)
    return yaml.safe_load(raw) if kind.endswith("yaml") else json.loads(raw)


def main() -> None:
    """``python tests/server/apiserver_http.py [NODES]``: serve a small cluster until interrupted."""
    import time

    cluster = FakeCluster(clock=time.time)
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
        cluster.add_node(f"gpu-{number:02}")
    cluster.gang_of_pods("llama", 2)
    with serving(cluster, Path.cwd()) as endpoint:
        sys.stdout.write(f"export KUBECONFIG={endpoint.kubeconfig}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()


class FakeWire:
    """``user``: name of who asks; None for an administrator."""

    def __init__(self, cluster: FakeCluster, user: str | None = None) -> None:
        self.cluster = cluster
        self.user = user
        self.context = "test"

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        sent = None if body is None else _copied(body)
        code, tree, headers = self.cluster.handle(
            method, path, sent, content_type, self.user, "gangplan-test"
        )
        if code == 0:
            return Reply(0, why="the connection broke")
        date = headers.get("Date")
        after = headers.get("Retry-After")
        return Reply(
            code,
            _copied(tree),
            date=None if date is None else _seconds(date),
            retry_after_s=None if after is None else float(after),
        )


def _copied(tree: Json) -> Json:
    """A copy of JSON, made as what it would be on the wire."""
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_copied(value) for value in tree]
    if tree is None or isinstance(tree, (str, int, float)):
        return tree
    raise TypeError(f"no JSON: {json.dumps(tree, default=repr)}")


@lru_cache(maxsize=1024)
def _seconds(date: str) -> float:
    return parsedate_to_datetime(date).timestamp()
