"""Recorded lists of a cluster, served as they are, and answers that go wrong."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apiserver import Answer, Call, FakeCluster
from apiserver_errors import ApiError, denied, missing
from apiserver_http import RawAnswer
from apiserver_kinds import Kind, Kinds, Place, Tree
from apiserver_store import page
from kube import SNAPSHOTS


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
    return RawAnswer(code, json.dumps(ApiError(code, message, reason=reason).tree()).encode())


def forbidden(verb: str, resource: str) -> RawAnswer:
    plural, _, group = resource.partition(".")
    error = denied("tester", verb, Kind("", plural, group), "", "", "")
    return status(403, error.reason, error.message)


class RecordedServer(FakeCluster):
    """Reads are answered from ``resources``; there are no others."""

    def __init__(self) -> None:
        super().__init__(clock=time.time)
        self.kinds = Kinds(())
        self.resources: list[Resource] = []

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
        self, path: str, *answers: RawAnswer, when: Callable[[Call], bool] = lambda _: True
    ) -> None:
        """Answer the first requests for the path so, the later ones as usual."""
        left = list(answers)

        def hook(call: Call) -> Answer | None:
            return left.pop(0).answer() if call.path == path and left and when(call) else None

        self.before.append(hook)

    def refuse(self, path: str, answer: RawAnswer) -> None:
        """Answer every request for the path so."""
        self.before.append(lambda call: answer.answer() if call.path == path else None)

    def asked(self, path: str) -> list[dict[str, str]]:
        """Queries of the requests for the path."""
        return [call.query for call in self.calls if call.path == path]

    def _read(self, place: Place, query: dict[str, str]) -> Tree:
        items = next(one.items for one in self.resources if one.kind is place.kind)
        if place.namespace:
            items = [one for one in items if one["metadata"]["namespace"] == place.namespace]
        if not place.name:
            return page(place.kind, items, query, "4711")
        for one in items:
            if one["metadata"]["name"] == place.name:
                return {"kind": place.kind.name, "apiVersion": place.kind.api_version} | one
        raise missing(place.kind, place.name)
