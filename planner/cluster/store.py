"""Objects of a cluster as they were last listed: what has not changed since is not decoded again.

A run lists the cluster twice, for applying and for planning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from planner.cluster.pages import tree_of
from planner.cluster.transport import Tree
from planner.cluster.writes import COST
from planner.read.kube.decoders import REFUSED
from planner.read.kube.kinds import Kind
from planner.read.kube.object_bounds import ObjectReducer

_MORE = "metadata { managedFields=Managed } status { conditions[] { message } }"
"""Fields of a pod that only applying reads."""


class _Metadata(msgspec.Struct):
    uid: str
    resourceVersion: str  # noqa: N815


class _Identity(msgspec.Struct):
    metadata: _Metadata


def _reducer() -> ObjectReducer:
    return ObjectReducer((COST,), {"Pod": _MORE})


@dataclass(slots=True)
class Store:
    """``reducer``: of all objects, so that equal parts are one."""

    reducer: ObjectReducer = field(default_factory=_reducer)
    _known: dict[Kind, dict[str, tuple[str, Tree]]] = field(default_factory=dict)

    def reader(self, kind: Kind) -> Callable[[Raw], tuple[Tree, bool] | None]:
        """Reads the objects of a new list of a kind.

        To an object and whether it has been reduced; an odd one is whole. None for what is none.
        """
        before = self._known.get(kind, {})
        now = self._known[kind] = {}

        def read(item: Raw) -> tuple[Tree, bool] | None:
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
