"""Objects of a cluster as they were last listed: what has not changed since is not decoded again.

A run lists the cluster twice, for applying and for planning.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from planner.cluster.pages import tree_of
from planner.cluster.transport import Tree
from planner.cluster.writes import COST
from planner.read.kube.decoders import REFUSED
from planner.read.kube.kinds import Kind
from planner.read.kube.object_bounds import ObjectReducer
from planner.read.kube.records import KubeObject

_MORE = "status { conditions[] { message } }"
"""Fields of a pod that only applying reads."""


class _Metadata(msgspec.Struct):
    uid: str
    resourceVersion: str  # noqa: N815


class _Identity(msgspec.Struct):
    metadata: _Metadata


@contextmanager
def without_gc() -> Iterator[None]:
    """Trees of JSON have no cycles, and searching them takes as long as parsing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


Listed = tuple[Tree, bool]
"""An object, and whether it has been reduced to what is read; an odd one is whole."""


@dataclass(slots=True)
class Store:
    """``reducer``: of all objects, so that equal parts are one. ``made``: see ``Gatherer``.

    ``listed``: kinds that were listed a moment ago: planning does not list them again.
    """

    reducer: ObjectReducer = field(default_factory=lambda: ObjectReducer((COST,), {"Pod": _MORE}))
    made: dict[int, tuple[Tree, KubeObject]] = field(default_factory=dict)
    listed: dict[Kind, list[Listed]] = field(default_factory=dict)
    _known: dict[Kind, dict[str, tuple[str, Tree]]] = field(default_factory=dict)

    def reader(self, kind: Kind) -> Callable[[Raw], Listed | None]:
        """Reads the objects of a new list of a kind. None for what is none."""
        before = self._known.get(kind, {})
        if kind in self._known:  # objects of what has gone since go, too
            kept = {id(tree) for known in self._known.values() for _, tree in known.values()}
            self.made = {key: one for key, one in self.made.items() if key in kept}
        now = self._known[kind] = {}

        def read(item: Raw) -> Listed | None:
            try:
                found = msgspec.json.decode(item, type=_Identity).metadata
            except REFUSED:
                found = _Metadata("", "")
            version, tree = before.get(found.uid, ("", None))
            if tree is None or version != found.resourceVersion:
                tree = self.reducer.decode(item, kind.group, kind.name)
            if tree is None:
                whole = tree_of(item)
                return None if whole is None else (whole, False)
            if found.uid:
                now[found.uid] = (found.resourceVersion, tree)
            return tree, True

        return read
