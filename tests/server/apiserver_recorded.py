"""Recorded lists of a cluster, served as they are, and answers that go wrong.

It shares discovery, paging, error wording and HTTP with the cluster in memory, and answers GET only.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qsl

from apiserver_errors import ApiError, denied, no_such_path
from apiserver_http import RawAnswer
from apiserver_kinds import Json, Kind, Kinds, Tree, discovered
from apiserver_rbac import User
from apiserver_store import page
from kube import SNAPSHOTS


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` without the query."""

    path: str
    query: dict[str, str]


Hook = Callable[[Request], RawAnswer | None]
"""What to answer instead; None: the usual."""


@dataclass(slots=True)
class Resource:
    """One kind as served, with all its objects in order."""

    kind: Kind
    items: list[Tree]


def recorded(path: Path) -> Tree:
    """A recorded list, packed or not."""
    raw = path.read_bytes()
    tree: Tree = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return tree


def status(code: int, reason: str, message: str) -> RawAnswer:
    """A failure as the API server words it."""
    return _json(code, ApiError(code, message, reason=reason).tree())


def forbidden(verb: str, resource: str) -> RawAnswer:
    plural, _, group = resource.partition(".")
    kind = Kind("", plural, group)
    return _json(403, denied("tester", verb, kind, "", "", "").tree())


@dataclass(slots=True)
class RecordedServer:
    """``requests``: everything that was asked, in order. ``hooks``: see a request first."""

    resources: list[Resource] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    kinds: Kinds = field(default_factory=lambda: Kinds(()))
    tokens: dict[str, User] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, snapshot: str) -> RecordedServer:
        """Serves a recorded snapshot."""
        found = cls()
        for path in sorted((SNAPSHOTS / snapshot).glob("*.json*")):
            found.add(path.name.partition(".")[0], recorded(path))
        return found

    def add(self, plural: str, tree: Tree) -> None:
        """Serve a list as it was recorded."""
        group, _, version = tree["apiVersion"].rpartition("/")
        namespaced = any("namespace" in item["metadata"] for item in tree["items"])
        name, verbs = tree["kind"].removesuffix("List"), ("get", "list", "watch")
        kind = Kind(name, plural, group, version, namespaced=namespaced, verbs=verbs)
        self.kinds.serve(kind)
        self.resources.append(Resource(kind, tree["items"]))

    def resource(self, plural: str) -> Resource:
        return next(one for one in self.resources if one.kind.plural == plural)

    def fail(
        self, path: str, *answers: RawAnswer, when: Callable[[Request], bool] = lambda _: True
    ) -> None:
        """Answer the first requests for the path so, the later ones as usual."""
        left = list(answers)

        def hook(request: Request) -> RawAnswer | None:
            return left.pop(0) if request.path == path and left and when(request) else None

        self.hooks.append(hook)

    def refuse(self, path: str, answer: RawAnswer) -> None:
        """Answer every request for the path so."""
        self.hooks.append(lambda request: answer if request.path == path else None)

    def asked(self, path: str) -> list[dict[str, str]]:
        """Queries of the requests for the path."""
        return [request.query for request in self.requests if request.path == path]

    def handle(
        self,
        method: str,
        target: str,
        body: Json = None,
        content_type: str = "",
        user: str | None = None,
        agent: str = "",
    ) -> tuple[int, RawAnswer, dict[str, str]]:
        answer = self.answer(target) if method == "GET" else status(405, "MethodNotAllowed", "")
        return answer.code, answer, {"Date": formatdate(usegmt=True)}

    def answer(self, target: str) -> RawAnswer:
        """What is sent for GET ``target``."""
        path, _, encoded = target.partition("?")
        request = Request(path, dict(parse_qsl(encoded, keep_blank_values=True)))
        with self._lock:
            self.requests.append(request)
            for hook in self.hooks:
                if (found := hook(request)) is not None:
                    return found
        place = self.kinds.place(request.path)
        tree: Tree | None = discovered(self.kinds, request.path) if place is None else None
        if place is not None:
            items = next(one.items for one in self.resources if one.kind is place.kind)
            if place.namespace:
                items = [one for one in items if one["metadata"]["namespace"] == place.namespace]
            if place.name:
                api = {"kind": place.kind.name, "apiVersion": place.kind.api_version}
                named = (one for one in items if one["metadata"]["name"] == place.name)
                tree = next((api | one for one in named), None)
            else:
                tree = page(place.kind, items, request.query, "4711")
        return _json(404, no_such_path().tree()) if tree is None else _json(200, tree)


def _json(code: int, tree: Tree) -> RawAnswer:
    return RawAnswer(code, json.dumps(tree, separators=(",", ":")).encode())
