"""Reduces an object of the API to the fields that planning reads: an allow-list, nothing else passes.

Which fields: ``planner.read.kube.kinds``. A field past its bound loses the rest, never the object. For
recording, a value whose type or form differs from the expected one is dropped; for reading it keeps its
type, so that what cannot be read is not taken for what is absent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

Tree = dict[str, Any]
Prune = Callable[[Any], Any]
"""From a value to the part of it that is kept, or GONE."""

GONE: Final = object()

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

SHORT = 64
"""Texts up to this length are likely to be those of other objects, too."""

_NUMBERS = frozenset({int, float, bool, Decimal})
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"[0-9]{1,20}")
_NODES = re.compile(r"[a-z0-9.*,;-]*")
_QUANTITY = re.compile(r"[+-]?[0-9.]{1,40}(?:[eE][+-]?[0-9]{1,3}|[KMGTPEkmun]i?)?")

TYPES: dict[str, tuple[int, re.Pattern[str] | None]] = {
    "Scalar": (MAX_TEXT, None),
    "Long": (MAX_LONG_TEXT, None),
    "Label": (MAX_KEY, _LABEL),
    "Quantity": (MAX_KEY, _QUANTITY),
    "Integer": (MAX_KEY, _INTEGER),
    "Nodes": (MAX_LONG_TEXT, _NODES),
}
"""Of each type of the table the longest text, and the form that a recorded one has."""


class Field(Struct, frozen=True):
    """``shape``: "[]" a list, "[+]" one that grows with the cluster, "[*]" a map with any keys, of ``of``.

    ``of``: a type, or the fields of an object.
    """

    name: str
    shape: str | None
    of: str | Selection


Selection = dict[str, Field]

_WORD = re.compile(r"\S+")
_FIELD = re.compile(r"(?P<name>\w+)(?P<shape>\[[+*]?\])?(?:=(?P<type>\w+))?")


def selection(fields: str, fragments: Mapping[str, str]) -> Selection:
    """The fields of a selection, written like those of GraphQL.

    ``name``: a text, number or boolean. ``name=Type``: another type, or a fragment.
    ``name { ... }``: an object with these fields. ``...Name``: the fields of a fragment.
    ``name[]``, ``name[+]``, ``name[*]``: see ``Field``. A name that comes again adds to its fields.
    """
    return _selection(iter(_WORD.findall(fields)), fragments)


def _selection(words: Iterator[str], fragments: Mapping[str, str]) -> Selection:
    """The fields up to the closing brace or the end of the text."""
    found: Selection = {}
    for word in words:
        if word == "}":
            break
        if word == "{":
            last = next(reversed(found.values()))
            before = last.of if isinstance(last.of, dict) else {}
            found[last.name] = replace(last, of=_joined(before, _selection(words, fragments)))
        elif word.startswith("..."):
            found |= selection(fragments[word[3:]], fragments)
        else:
            field = _FIELD.fullmatch(word)
            assert field is not None, word
            of = field["type"] or "Scalar"
            own = selection(fragments[of], fragments) if of in fragments else of
            again = found.pop(field["name"], None)
            if again is not None and of == "Scalar":  # more fields of the same
                own = again.of
            found[field["name"]] = Field(field["name"], field["shape"], own)
    return found


def _joined(before: Selection, more: Selection) -> Selection:
    found = before | more
    for name in before.keys() & more.keys():
        known, added = before[name].of, more[name].of
        if isinstance(known, dict) and isinstance(added, dict):
            found[name] = replace(more[name], of=_joined(known, added))
    return found


class Pruner:
    """Makes the pruners of selections of fields.

    ``lost``: takes the names of fields that pass a bound. ``keys``: of annotations that are kept.
    """

    def __init__(
        self,
        fragments: Mapping[str, str],
        keys: frozenset[str],
        *,
        recording: bool,
    ) -> None:
        self.lost: dict[str, None] = {}
        self._fragments = fragments
        self._recording = recording
        self._keys = keys
        self._claims = Field("volumes", "[]", selection(_CLAIM, fragments))

    def compiled(self, fields: str) -> Prune:
        """The pruner of an object with these fields."""
        return partial(self._record, selection(fields, self._fragments))

    def _kept(self, field: Field, value: Any) -> Any:  # noqa: ANN401  # trees of JSON have no narrower type
        match field.shape:
            case None:
                return self._one(field, value)
            case "[*]":
                return self._map(field, value)
            case shape:
                return self._list(field, value, MAX_LONG_ENTRIES if shape == "[+]" else MAX_ENTRIES)

    def _one(self, field: Field, value: Any) -> Any:  # noqa: ANN401
        match field.of:
            case dict() as fields:
                return self._record(fields, value)
            case "Annotations":
                return self.annotations(value)
            case "Volumes":
                return self.volumes(value)
            case of:
                return self._atom(field.name, *TYPES[of], value)

    def _odd(self, value: Any) -> Any:  # noqa: ANN401
        """What is kept of a value of another type: a hollow one of that; a short atom as it is."""
        if self._recording:
            return GONE
        if type(value) is str:
            return value[:MAX_KEY]
        return value if value is None or type(value) in _NUMBERS else type(value)()

    def _record(self, fields: Selection, value: Any) -> Any:  # noqa: ANN401
        """An object of these fields; empty if it has none of them: ``basic: {}`` has a meaning."""
        if type(value) is not dict:
            return self._odd(value)
        kept = {}
        for written, inner in value.items():
            field = fields.get(written)
            if field is not None and (part := self._kept(field, inner)) is not GONE:
                kept[field.name] = part  # the name of the table, which all objects share
        return kept

    def _list(self, field: Field, value: Any, most: int) -> Any:  # noqa: ANN401
        if type(value) is not list:
            return self._odd(value)
        containers = field.name in ("containers", "initContainers")
        past = len(value) > most
        if past:
            self.lost[field.name] = None
            value = _with_devices_first(value) if containers else value
        kept = [part for one in value[:most] if (part := self._one(field, one)) is not GONE]
        # An entry that cannot be read: readers see that something is missing.
        return [*kept, None] if past and not containers else kept

    def _map(self, field: Field, value: Any) -> Any:  # noqa: ANN401
        if type(value) is not dict:
            return self._odd(value)
        kept: Tree = {}
        past = False
        for key, inner in value.items():
            if len(key) > MAX_KEY or len(kept) >= MAX_KEYS:
                past = True
            elif (part := self._one(field, inner)) is not GONE:
                kept[sys.intern(key)] = part
        if past:
            self.lost[field.name] = None
            kept[""] = []  # cannot be read, likewise
        return kept

    def _atom(self, name: str, most: int, form: re.Pattern[str] | None, value: Any) -> Any:  # noqa: ANN401
        if type(value) is not str:
            return value if type(value) in _NUMBERS else self._odd(value)
        if self._recording and form is not None and form.fullmatch(value) is None:
            return GONE
        if len(value) > most:
            self.lost[name] = None
            return value[: most + 1]  # still too long to be valid, so equal to nothing
        return sys.intern(value) if len(value) <= SHORT else value

    def annotations(self, value: Any) -> Any:  # noqa: ANN401
        """Those on the allow-list, while they are not too long together; GONE if there is none."""
        if type(value) is not dict:
            return self._odd(value)
        kept: dict[str, str] = {}
        left = MAX_LONG_TEXT
        for key, text in value.items():
            if type(text) is not str or not is_kept(key, self._keys):
                continue
            past = len(key) > MAX_KEY or len(kept) >= MAX_KEYS or len(text) > left
            if past and not self._recording:  # who reads the record says so
                self.lost["annotations"] = None
                continue
            left -= len(text)
            kept[sys.intern(key)] = text
        return kept or GONE

    def volumes(self, value: Any) -> Any:  # noqa: ANN401
        """Those that name a claim, with its name alone; GONE if there is none."""
        if type(value) is not list:
            return self._odd(value)
        kinds = {"persistentVolumeClaim", "ephemeral"}
        named = [one for one in value if type(one) is dict and not kinds.isdisjoint(one)]
        return self._list(self._claims, named, MAX_ENTRIES) if named else GONE


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


_CLAIM = "name persistentVolumeClaim { claimName } ephemeral { }"
"""What is kept of a volume that names a claim."""


@lru_cache(maxsize=4096)
def is_kept(key: str, keys: frozenset[str]) -> bool:
    """Whether an annotation is kept. ``keys``: and domains with a slash, of which all are."""
    domain, slash, _ = key.partition("/")
    return key in keys or bool(slash and domain + slash in keys)
