"""Decodes an object of the API from JSON: the fields that planning reads, and no others.

The types are made of the table of ``planner.read.kube.kinds``, so that what is decoded is what
``pruning`` keeps. An object with anything else in such a field, or more than its bound, is refused whole:
``pruning`` then reduces it field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypedDict

import msgspec

from planner.read.kube.pruning import (
    GONE,
    MAX_ENTRIES,
    MAX_KEY,
    MAX_KEYS,
    MAX_LONG_ENTRIES,
    TYPES,
    Field,
    Pruner,
    Selection,
    selection,
)

Tree = dict[str, Any]
Decode = Callable[[str | bytes | msgspec.Raw], Any]


class _Exactly(type):
    """The type of a hook's result: msgspec asks whether that is an instance."""

    def __instancecheck__(cls, _: object) -> bool:
        return True


class _Annotations(metaclass=_Exactly):
    """Annotations on the allow-list."""


class _Volumes(metaclass=_Exactly):
    """Volumes that name a claim."""


_HOOKED = {"Annotations": _Annotations, "Volumes": _Volumes}


class Decoders:
    """Makes decoders of selections of fields. ``keys``: as of ``Pruner``.

    ``recording``: they make structs, of which encoding leaves out what is not there, and refuse texts of
    another form; else they make dictionaries.
    """

    def __init__(
        self, fragments: Mapping[str, str], keys: frozenset[str], *, recording: bool
    ) -> None:
        self._fragments = fragments
        self._recording = recording
        self._pruner = Pruner(fragments, keys, recording=recording)

    def of(self, fields: str) -> Decode:
        """Decodes an object with these fields. Raises REFUSED where these are not all that it has there."""
        return self._decoder(self._record("Object", selection(fields, self._fragments)))

    def in_parts(self, fields: str) -> tuple[Decode, dict[str, dict[str, Decode]]]:
        """The same in two steps, so that what objects share is decoded once.

        The first leaves lists and objects two levels down as they are written; the others decode them.
        """
        types: dict[str, Any] = {}
        parts: dict[str, dict[str, Decode]] = {}
        for one in selection(fields, self._fragments).values():
            types[one.name] = self._field(one)
            if one.shape is None and not isinstance(one.of, str):
                inner = {field.name: self._field(field) for field in one.of.values()}
                later = [field.name for field in one.of.values() if not _is_text(field)]
                parts[one.name] = {name: self._decoder(inner[name]) for name in later}
                types[one.name] = _tree(one.name, inner | dict.fromkeys(later, msgspec.Raw))
        return self._decoder(_tree("Object", types)), parts

    def _decoder(self, kept: Any) -> Decode:  # noqa: ANN401
        return msgspec.json.Decoder(kept, dec_hook=self._reduced).decode

    def _record(self, name: str, fields: Selection) -> Any:  # noqa: ANN401  # a type made at run time
        types = {one.name: self._field(one) for one in fields.values()}
        if not self._recording:
            return _tree(name, types)
        own = [(field, type_ | None, None) for field, type_ in types.items()]
        return msgspec.defstruct(name, own, omit_defaults=True)

    def _field(self, field: Field) -> Any:  # noqa: ANN401
        of = (
            self._atom(field.of)
            if isinstance(field.of, str)
            else self._record(field.name, field.of)
        )
        match field.shape:
            case "[]" | "[+]":
                most = MAX_LONG_ENTRIES if field.shape == "[+]" else MAX_ENTRIES
                return Annotated[list[of], msgspec.Meta(max_length=most)]  # type: ignore[valid-type]
            case "[*]":
                key = Annotated[str, msgspec.Meta(max_length=MAX_KEY)]
                return Annotated[dict[key, of], msgspec.Meta(max_length=MAX_KEYS)]  # type: ignore[valid-type]
            case _:
                return of

    def _atom(self, name: str) -> Any:  # noqa: ANN401
        if name in _HOOKED:
            return _HOOKED[name]
        most, form = TYPES[name]
        if not self._recording:
            return Annotated[str, msgspec.Meta(max_length=most)] | int | bool | None
        pattern = None if form is None else rf"^(?:{form.pattern})\Z"
        return Annotated[str, msgspec.Meta(max_length=most, pattern=pattern)] | int | bool

    def _reduced(self, kind: type, value: Any) -> Any:  # noqa: ANN401
        """What is kept of annotations and volumes. Raises ValueError where some of it is lost."""
        pruner = self._pruner
        pruner.lost.clear()
        found = pruner.volumes(value) if kind is _Volumes else pruner.annotations(value)
        if pruner.lost:
            raise ValueError
        return None if found is GONE else found


def _tree(name: str, types: dict[str, Any]) -> Any:  # noqa: ANN401
    return TypedDict(name, types, total=False)  # type: ignore[operator]


def _is_text(field: Field) -> bool:
    return field.shape is None and isinstance(field.of, str) and field.of not in _HOOKED


REFUSED = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What decoding raises."""


class _Head(msgspec.Struct):
    apiVersion: str = ""  # noqa: N815
    kind: str = ""


def head(written: bytes) -> tuple[str, str]:
    """API version and kind of an object in JSON; empty where it has none that can be read."""
    try:
        found = msgspec.json.decode(written, type=_Head)
    except REFUSED:
        return "", ""
    return found.apiVersion, found.kind
