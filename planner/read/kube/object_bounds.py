"""What reading keeps of one object: the fields that planning reads, each within a bound.

What a recorded snapshot keeps, so that both read the same. Equal parts of objects are one: pods of a
controller differ in little.
"""

from __future__ import annotations

import marshal
from collections.abc import Collection, Mapping
from functools import cache
from sys import intern
from types import MappingProxyType
from typing import Any

from msgspec import Raw

from planner.read.kube.decoders import REFUSED, Decode, Decoders
from planner.read.kube.kinds import ALL, FRAGMENTS, annotation_keys
from planner.read.kube.lookup import Tree
from planner.read.kube.pruning import MAX_LONG_TEXT, SHORT, Prune, Pruner

LARGE_PART = 4_096
"""Bytes from which a part of an object is large: it may be dropped later, and is not worth keeping then."""

MAX_LARGE_PARTS = 64 * 2**20
"""Bytes of different large parts that are kept to be shared."""

MAX_WRITTEN = 8 * 2**20
"""Bytes of parts that are kept as they are written: the objects of a list that are alike are neighbours."""

_OWN = frozenset({"name", "uid", "resourceVersion", "creationTimestamp", "startTime"})
"""Texts that objects hardly share."""


@cache
def _decoders(keys: frozenset[str], fields: str) -> tuple[Decode, dict[str, dict[str, Decode]]]:
    """They keep nothing of what they read, and take longer to make than a small input to read."""
    return Decoders(FRAGMENTS, keys, recording=False).in_parts(fields)


class ObjectReducer:
    """Reduces the objects of one input. ``lost``: fields of the last one that passed a bound.

    ``keys``: of annotations that are kept besides. ``more``: fields that ``decode`` keeps besides, by kind.
    """

    def __init__(
        self, keys: Collection[str] = (), more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._kinds = {(kind.group, kind.name): kind for kind in ALL}
        self._more = more
        self._keys = annotation_keys().union(keys)
        self._pruner = Pruner(FRAGMENTS, self._keys, recording=False)
        self.lost = self._pruner.lost
        self._pruners: dict[tuple[str, str], Prune] = {}
        self._decoders: dict[tuple[str, str], tuple[Decode, dict[str, dict[str, Decode]]] | None]
        self._decoders = {}
        self._read: dict[tuple[Decode, bytes], Any] = {}
        self._written = self._large = 0
        self._metadata = self._pruner.compiled("...Object")
        self._known: dict[int, Any] = {}

    def reduce(self, tree: Tree, group: str, kind: str) -> Tree:
        """The part of the object that planning reads; its lists and objects may be shared."""
        self.lost.clear()
        return self._with_shared(self._of(group, kind)(tree))

    def decode(self, written: str | bytes | Raw, group: str, kind: str) -> Tree | None:
        """The same of an object in JSON; None if it has to be reduced field by field."""
        sort = (group, kind)
        if sort not in self._decoders:
            row = self._kinds.get(sort)
            more = self._more.get(kind, "")
            self._decoders[sort] = _decoders(self._keys, f"{row.kept} {more}") if row else None
        how = self._decoders[sort]
        if how is None:
            return None
        decode, parts = how
        try:
            found: Tree = decode(written)
            read = self._read
            for name, fields in parts.items():
                part = found.get(name, {})
                for field, value in part.items():
                    if type(value) is Raw:
                        key = (fields[field], bytes(value))
                        part[field] = read[key] if key in read else self._part(*key)
                    elif type(value) is str and field not in _OWN and len(value) <= SHORT:
                        part[field] = intern(value)
        except REFUSED:
            return None
        return found

    def _part(self, decode: Decode, written: bytes) -> Any:  # noqa: ANN401
        """A list or an object; of those that are written alike one."""
        found = decode(written)
        if found:
            found = self._shared(found)
        self._written += len(written)
        if self._written > MAX_WRITTEN:
            self._read.clear()
            self._written = len(written)
        self._read[decode, written] = found
        return found

    def _with_shared(self, found: Tree) -> Tree:
        for part in found.values():
            if type(part) is dict:
                for name, value in part.items():
                    if value and type(value) in (dict, list):
                        part[name] = self._shared(value)
        return found

    def _of(self, group: str, kind: str) -> Prune:
        key = (group, kind)
        if key not in self._pruners:
            row = self._kinds.get(key)
            self._pruners[key] = self._unknown if row is None else self._pruner.compiled(row.kept)
        return self._pruners[key]

    def _unknown(self, tree: Tree) -> Tree:
        """An object of another kind: whole if it is small, else its metadata."""
        kept: Tree = self._metadata(tree)
        try:
            rest = {name: value for name, value in tree.items() if name not in kept}
            if len(repr(rest)) <= MAX_LONG_TEXT:
                kept |= rest
                return kept
        except RecursionError:
            pass  # deeper than anything that is read
        self.lost["spec"] = None
        return kept

    def _shared(self, value: Any) -> Any:  # noqa: ANN401  # any part of a tree
        """An equal value that another object has, if there is one."""
        try:
            written = marshal.dumps(value, 2)
        except ValueError:  # a Decimal: rare, and the more so twice
            return value
        key = hash(written)
        found = self._known.get(key)
        if found == value:
            return found
        value = _interned(value)
        if len(written) >= LARGE_PART:
            self._large += len(written)
            if self._large > MAX_LARGE_PARTS:
                return value
        return self._known.setdefault(key, value) if found is None else value


def _interned(value: Any) -> Any:  # noqa: ANN401
    """An equal value whose texts are those of other objects, too."""
    kind = type(value)
    if kind is str:
        return intern(value) if len(value) <= SHORT else value
    if kind is dict:
        return {
            intern(name): intern(inner)
            if type(inner) is str and len(inner) <= SHORT
            else _interned(inner)
            for name, inner in value.items()
        }
    return list(map(_interned, value)) if kind is list else value
