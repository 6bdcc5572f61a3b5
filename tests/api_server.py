"""A Kubernetes API server for tests: lists of recorded objects over HTTP, and answers that go wrong.

Promises: discovery, paging with ``limit`` and ``continue``, Status objects and their codes as a real
API server answers them; it listens on localhost only and ends with the test. The real kubectl asks.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kube import SNAPSHOTS

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. ``missing`` bytes of the body are promised and never sent."""

    code: int
    body: bytes
    after_s: float = 0.0
    missing: int = 0
    headers: tuple[tuple[str, str], ...] = ()


Mishap = Callable[["Request"], Answer | None]
"""Called before the ordinary answer; None: nothing happens to this request."""


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` without the query; ``number``: how many came for this path before."""

    path: str
    query: dict[str, str]
    number: int


@dataclass(slots=True)
class Resource:
    """One kind as served: all its objects, in order."""

    kind: str
    plural: str
    group: str
    version: str
    items: list[Tree]
    namespaced: bool
    verbs: tuple[str, ...] = ("get", "list", "watch")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


def recorded(path: Path) -> Tree:
    """A recorded list, packed or not."""
    raw = path.read_bytes()
    tree: Tree = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return tree


def status(code: int, reason: str, message: str) -> Answer:
    """A failure as the API server words it."""
    tree = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Answer(code, json.dumps(tree).encode())


def forbidden(verb: str, resource: str, scope: str = "at the cluster scope") -> Answer:
    plural, _, group = resource.partition(".")
    message = (
        f'{resource} is forbidden: User "tester" cannot {verb} resource "{plural}"'
        f' in API group "{group}" {scope}'
    )
    return status(403, "Forbidden", message)


@dataclass(slots=True)
class ApiServer:
    """What a cluster serves. ``requests``: (path, query) of everything that was asked, in order."""

    resources: list[Resource] = field(default_factory=list)
    mishaps: list[Mishap] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    resource_version: str = "4711"
    unchanging: bool = False
    """Make every answer once: then the time taken is kubectl's and the asker's, not this server's."""
    _made: dict[str, Answer] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, snapshot: str) -> ApiServer:
        """Serves a recorded snapshot."""
        found = cls()
        for path in sorted((SNAPSHOTS / snapshot).glob("*.json*")):
            if path.name != "expected.json":
                found.add(path.name.partition(".")[0], recorded(path))
        return found

    def add(self, plural: str, tree: Tree) -> Resource:
        """Serve a list as it was recorded."""
        group, _, version = tree["apiVersion"].rpartition("/")
        namespaced = any("namespace" in item["metadata"] for item in tree["items"])
        kind = tree["kind"].removesuffix("List")
        resource = Resource(kind, plural, group, version, tree["items"], namespaced)
        self.resources.append(resource)
        return resource

    def resource(self, plural: str, group: str = "") -> Resource:
        return next(one for one in self.resources if (one.plural, one.group) == (plural, group))

    def fail(
        self, path: str, *answers: Answer | None, when: Callable[[Request], bool] | None = None
    ) -> None:
        """Answer the first requests for the path so (None: as usual), the later ones as usual."""
        left = list(answers)

        def mishap(request: Request) -> Answer | None:
            if request.path != path or not left or (when is not None and not when(request)):
                return None
            return left.pop(0)

        self.mishaps.append(mishap)

    def refuse(self, path: str, answer: Answer) -> None:
        """Answer every request for the path so."""
        self.mishaps.append(lambda request: answer if request.path == path else None)

    def asked(self, path: str) -> list[dict[str, str]]:
        """Queries of the requests for the path."""
        return [request.query for request in self.requests if request.path == path]

    def answer(self, target: str) -> Answer:
        """What is sent for GET ``target``."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            number = self._counts.get(parts.path, 0)
            self._counts[parts.path] = number + 1
            request = Request(parts.path, query, number)
            self.requests.append(request)
            for mishap in self.mishaps:
                if (found := mishap(request)) is not None:
                    return found
        if not self.unchanging:
            return self._usual(request)
        key = "&".join([parts.path, *(f"{k}={v}" for k, v in query.items() if k != "timeout")])
        if key not in self._made:
            self._made[key] = self._usual(request)
        return self._made[key]

    def _usual(self, request: Request) -> Answer:
        if (tree := self._discovery(request.path)) is not None:
            return _json(tree)
        for resource in self.resources:
            if not request.path.startswith(resource.root + "/"):
                continue
            rest = request.path.removeprefix(resource.root + "/").split("/")
            if rest == [resource.plural]:
                return self._page(resource, resource.items, request.query)
            if rest[0] == "namespaces" and rest[2:] == [resource.plural] and resource.namespaced:
                inside = [i for i in resource.items if i["metadata"]["namespace"] == rest[1]]
                return self._page(resource, inside, request.query)
            if len(rest) == 2 and rest[0] == resource.plural and not resource.namespaced:
                named = [i for i in resource.items if i["metadata"]["name"] == rest[1]]
                if named:
                    return _json({"kind": resource.kind, "apiVersion": "v1", **named[0]})
        return status(404, "NotFound", "the server could not find the requested resource")

    def _page(self, resource: Resource, items: list[Tree], query: dict[str, str]) -> Answer:
        limit = int(query.get("limit", "0")) or len(items) or 1
        start = _start(query["continue"]) if "continue" in query else 0
        metadata: Tree = {"resourceVersion": self.resource_version}
        left = len(items) - start - limit
        if left > 0:
            metadata |= {"continue": _token(start + limit), "remainingItemCount": left}
        tree = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": items[start : start + limit],
        }
        return _json(tree)

    def _discovery(self, path: str) -> Tree | None:
        versions = {(one.group, one.version): None for one in self.resources if one.group}
        if path == "/apis":
            groups: dict[str, list[str]] = {}
            for group, version in versions:
                groups.setdefault(group, []).append(version)
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(name, found) for name, found in groups.items()],
            }
        for resource in self.resources:
            if path == resource.root:
                alike = [one for one in self.resources if one.root == path]
                return {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": resource.api_version,
                    "resources": [_described(one) for one in alike],
                }
        return None


def _group(name: str, versions: list[str]) -> Tree:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _described(resource: Resource) -> Tree:
    return {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }


def _json(tree: Tree) -> Answer:
    return Answer(200, json.dumps(tree, separators=(",", ":")).encode())


def _token(start: int) -> str:
    return base64.b64encode(json.dumps({"v": "meta.k8s.io/v1", "start": start}).encode()).decode()


def _start(token: str) -> int:
    return int(json.loads(base64.b64decode(token))["start"])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, and a kubeconfig that leads there under the context ``test``."""

    url: str
    kubeconfig: Path


@contextmanager
def serving(server: ApiServer, folder: Path) -> Iterator[Endpoint]:
    """Serve on a free port of localhost while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = server.answer(self.path)
            if answer.after_s:
                stopped.wait(answer.after_s)
            self.send_response(answer.code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body) + answer.missing))
            for name, value in answer.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
            if answer.missing:
                self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    stopped = threading.Event()
    with _Server(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{http.server_port}"
            yield Endpoint(url, kubeconfig(folder / "kubeconfig", url))
        finally:
            stopped.set()
            http.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests are about."""


def kubeconfig(path: Path, url: str) -> Path:
    """A kubeconfig with the one context ``test``, which is the current one."""
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def main() -> None:
    """``python tests/api_server.py SNAPSHOT``: serve it until interrupted, to try things by hand."""
    server = ApiServer.of(sys.argv[1])
    with serving(server, Path.cwd()) as endpoint:
        sys.stdout.write(f"export KUBECONFIG={endpoint.kubeconfig}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
