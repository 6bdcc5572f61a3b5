"""What reading keeps of one object: the fields that planning reads, each within a bound.

What a recorded snapshot keeps, so that both read the same. A value of an unexpected type keeps its type:
what cannot be read is not taken for what is absent. A field past its bound loses the rest, never the
object. Equal parts of objects are one: pods of a controller differ in little.
"""

from __future__ import annotations

import marshal
import sys
from decimal import Decimal
from typing import Any

from planner.read.kube.kinds import ALL, FRAGMENTS
from planner.read.kube.lookup import Tree
from planner.read.kube.pruning import Prune, Rules, allowed, compiled

MAX_TEXT = 4_096
"""Longest text of one field; a name has at most 253 characters."""

MAX_LONG_TEXT = 65_536
"""Likewise of expressions and lists of indexes, of all annotations of an object together, and of an
object of a kind that is not known."""

MAX_KEYS = 1_000
"""Most labels of one object, and entries of any other object with free field names."""

MAX_KEY = 317
"""Longest such name: a prefix of 253 and a name of 63 characters, as of labels."""

MAX_ENTRIES = 1_000
"""Most entries of one list: containers, tolerations, terms."""

MAX_LONG_ENTRIES = 100_000
"""Likewise of lists that grow with the cluster: members of a HyperNode, values of a requirement."""

LARGE_PART = 4_096
"""Bytes from which a part of an object is large: it may be dropped later, and is not worth keeping then."""

MAX_LARGE_PARTS = 64 * 2**20
"""Bytes of different large parts that are kept to be shared."""

_ATOMS = frozenset({str, int, float, bool, Decimal, type(None)})


class ObjectReducer:
    """Reduces the objects of one input. ``lost``: fields of the last one that passed a bound."""

    def __init__(self) -> None:
        from planner.read.kube.dialect_registry import holding_readers  # they read objects too

        self.lost: dict[str, None] = {}
        self._kinds = {(kind.group, kind.name): kind for kind in ALL}
        self._rules = _Bounded(self.lost, {key for one in holding_readers() for key in one.keys})
        self._pruners: dict[tuple[str, str], Prune] = {}
        self._metadata = compiled("...Object", FRAGMENTS, self._rules)
        self._known: dict[int, Any] = {}
        self._large = 0

    def reduce(self, tree: Tree, group: str, kind: str) -> Tree:
        """The part of the object that planning reads; its lists and objects may be shared."""
        self.lost.clear()
        found: Tree = self._pruner(group, kind)(tree)
        for part in found.values():
            if type(part) is dict:
                for name, value in part.items():
                    if value and type(value) in (dict, list):
                        part[name] = self._shared(value)
        return found

    def _pruner(self, group: str, kind: str) -> Prune:
        key = (group, kind)
        if key not in self._pruners:
            row = self._kinds.get(key)
            self._pruners[key] = self._unknown if row is None else row.reduce(self._rules)
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
        if key not in self._known and len(written) >= LARGE_PART:
            self._large += len(written)
            if self._large > MAX_LARGE_PARTS:
                return value
        found = self._known.setdefault(key, value)
        return found if found == value else value


class _Bounded(Rules):
    """Rules for reading. ``lost``: takes the names of fields that pass a bound."""

    def __init__(self, lost: dict[str, None], keys: set[str]) -> None:
        """``keys``: of annotations that are kept besides those of the allow-list."""
        self._lost = lost
        self._keys = keys

    def typed(self, name: str, of_type: str) -> Prune | None:
        if of_type in _LONGEST:
            return self._text(name, _LONGEST[of_type])
        return {"Annotations": self._annotations, "Volumes": self._volumes}.get(of_type)

    def record(self, fields: dict[str, Prune]) -> Prune:
        # Names as the table writes them: a hundred thousand objects share them.
        known = {name: (name, prune) for name, prune in fields.items()}

        def prune(value: Any) -> Any:  # noqa: ANN401
            if type(value) is not dict:
                return _hollow(value)
            kept = {}
            for written, inner in value.items():
                found = known.get(written)
                if found is not None:
                    name, below = found
                    kept[name] = below(inner)
            return kept

        return prune

    def list(self, name: str, of: Prune, *, long: bool) -> Prune:
        def prune(value: Any) -> Any:  # noqa: ANN401
            if type(value) is not list:
                return _hollow(value)
            most = MAX_LONG_ENTRIES if long else MAX_ENTRIES
            if len(value) <= most:
                return [of(one) for one in value]
            self._lost[name] = None
            if name in ("containers", "initContainers"):
                value = _with_devices_first(value)
            kept = [of(one) for one in value[:most]]
            # An entry that cannot be read: readers see that something is missing.
            return kept if name in ("containers", "initContainers") else [*kept, None]

        return prune

    def map(self, name: str, of: Prune) -> Prune:
        def prune(value: Any) -> Any:  # noqa: ANN401
            if type(value) is not dict:
                return _hollow(value)
            kept: Tree = {}
            for key, inner in value.items():
                if len(key) <= MAX_KEY and len(kept) < MAX_KEYS:
                    kept[sys.intern(key)] = of(inner)
            if len(kept) < len(value):
                self._lost[name] = None
                kept[""] = []  # cannot be read, likewise
            return kept

        return prune

    def _text(self, name: str, most: int) -> Prune:
        def prune(value: Any) -> Any:  # noqa: ANN401
            if type(value) is not str:
                return _hollow(value)
            if len(value) > most:
                self._lost[name] = None
                return value[: most + 1]  # still too long to be valid, so equal to nothing
            return sys.intern(value) if len(value) <= _SHORT else value

        return prune

    def _annotations(self, value: Any) -> Any:  # noqa: ANN401
        """Those that planning reads, while they are not too long together."""
        if type(value) is not dict:
            return _hollow(value)
        kept: dict[str, str] = {}
        left = MAX_LONG_TEXT
        for key, text in value.items():
            if not allowed(key) and key not in self._keys:
                continue
            if type(text) is str and len(key) <= MAX_KEY and len(kept) < MAX_KEYS:
                left -= len(text)
                if left >= 0:
                    kept[sys.intern(key)] = text
                    continue
                left += len(text)
            elif type(text) is not str:
                continue
            self._lost["annotations"] = None
        return kept

    def _volumes(self, value: Any) -> Any:  # noqa: ANN401
        """Those that name a claim."""
        if type(value) is not list:
            return _hollow(value)
        text = self._text("volumes", MAX_TEXT)
        claims = self.record(
            {
                "name": text,
                "persistentVolumeClaim": self.record({"claimName": text}),
                "ephemeral": self.record({}),
            }
        )
        named = [
            one
            for one in value
            if type(one) is dict and ("persistentVolumeClaim" in one or "ephemeral" in one)
        ]
        return self.list("volumes", claims, long=False)(named)


_LONGEST = {
    **dict.fromkeys(("Label", "Quantity"), MAX_KEY),
    **dict.fromkeys(("Scalar", "Integer", "DnsName"), MAX_TEXT),
    "Long": MAX_LONG_TEXT,
}
"""Longest text of each type of the table."""

_SHORT = 64
"""Texts up to this length are likely to be those of other objects, too."""


def _hollow(value: Any) -> Any:  # noqa: ANN401
    """A value of the same type without what is in it; a short atom as it is."""
    if type(value) is str:
        return value[:MAX_KEY]
    return value if type(value) in _ATOMS else type(value)()


def _with_devices_first(containers: list[Any]) -> list[Any]:
    """Containers that request a device, then the others: no GPU is forgotten."""

    def has_devices(one: Any) -> bool:  # noqa: ANN401
        resources = one.get("resources") if type(one) is dict else None
        if type(resources) is not dict:
            return resources is not None
        amounts = (resources.get("requests"), resources.get("limits"), resources.get("claims"))
        return any(
            "/" in name if type(name) is str else True for some in amounts for name in some or ()
        )

    return sorted(containers, key=lambda one: not has_devices(one))
