"""Values in untrusted trees, names, and label selectors. Nothing here raises, whatever a tree holds.

Readers call these dozens of times for each object: hence the loop in each of the common ones, and the exact
types that JSON and YAML have: comparing them is faster than `isinstance`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from models.documents.base import KEY_FORM, NAME_FORM
from models.units import InvalidValueError, epoch_seconds, quantity

Tree = dict[str, Any]
Read = TypeVar("Read")

_NOTHING: Tree = {}


class Known:
    """What is found in parts that many share, by their identity: they are kept for that."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[object, Any]] = {}

    def of(self, read: Callable[..., Read], *parts: object) -> Read:
        same = (read, *map(id, parts))
        if same not in self._known:
            self._known[same] = (parts, read(*parts))
        found: Read = self._known[same][1]
        return found


def at(tree: object, *path: str) -> object:
    """The value below a path of field names; None if a step is missing or not an object."""
    for name in path:
        if type(tree) is not dict:
            return None
        tree = tree.get(name)
    return tree


def mapping(tree: object, *path: str) -> Tree:
    """The object below the path, or an empty one."""
    for name in path:
        if type(tree) is not dict:
            return _NOTHING
        tree = tree.get(name)
    return tree if type(tree) is dict else _NOTHING


def items(tree: object, *path: str) -> list[Any]:
    """The list below the path, or an empty one."""
    for name in path:
        if type(tree) is not dict:
            return []
        tree = tree.get(name)
    return tree if type(tree) is list else []


def objects(tree: object, *path: str) -> list[Tree]:
    """The objects in the list below the path; entries of other types are skipped."""
    found = items(tree, *path)
    return [entry for entry in found if type(entry) is dict] if found else []


def text(tree: object, *path: str) -> str | None:
    """The non-empty text below the path."""
    for name in path:
        if type(tree) is not dict:
            return None
        tree = tree.get(name)
    return tree if type(tree) is str and tree else None


def whole(tree: object, *path: str) -> int | None:
    """The integer below the path; booleans, fractions and huge numbers are none."""
    value = at(tree, *path)
    if type(value) is not int or abs(value) > 2**53:
        return None
    return value


def true_conditions(tree: object) -> set[str | None]:
    """The types of the conditions in the status of an object that are true."""
    found = objects(tree, "status", "conditions")
    return {text(one, "type") for one in found if one.get("status") == "True"}


def conditions(tree: object, kind: str) -> list[Tree]:
    """The conditions of a type in the status of an object: API servers keep one."""
    return [one for one in objects(tree, "status", "conditions") if one.get("type") == kind]


def holds_condition(tree: object, kind: str) -> bool:
    return any(one.get("status") == "True" for one in conditions(tree, kind))


def flag(tree: object, *path: str) -> bool:
    return at(tree, *path) is True


def texts(tree: object, *path: str) -> dict[str, str]:
    """The text values of the object below the path: labels, annotations, selectors."""
    return {k: v for k, v in mapping(tree, *path).items() if type(v) is str}


_MAX_QUANTITY = 100


def amount(written: object) -> Fraction | None:
    """A number, or a quantity of Kubernetes, that is not negative; None for anything else."""
    return _quantity(str(written)) if type(written) in (str, int, float, Decimal) else None


@lru_cache(maxsize=65536)
def _quantity(written: str) -> Fraction | None:
    try:
        return quantity(written) if len(written) <= _MAX_QUANTITY else None
    except InvalidValueError:
        return None


def time_of(written: object) -> int | None:
    """Seconds since 1970; None for what is no time."""
    try:
        return epoch_seconds(written) if isinstance(written, str) else None
    except InvalidValueError:
        return None


def number(text_: str | None) -> int | None:
    """A non-negative decimal integer of at most nine digits: an index or a count."""
    if text_ is None or not text_.isascii() or not text_.isdecimal() or len(text_) > 9:
        return None
    return int(text_)


_FORM, _KEY = re.compile(NAME_FORM), re.compile(KEY_FORM)
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
LONGEST = 253
SHORT = 63


@lru_cache(maxsize=65536)
def is_name(text: str, longest: int = LONGEST) -> bool:
    """Whether a text is a valid Name or ShortName of the documents."""
    return len(text) <= longest and _FORM.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether an API server accepts it as the name of an object (RFC 1123 subdomain)."""
    return _SUBDOMAIN.fullmatch(text) is not None and len(text) <= LONGEST and ".." not in text


@lru_cache(maxsize=65536)
def is_label_key(text: str) -> bool:
    return len(text) <= 317 and _KEY.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    return text == "" or is_name(text, SHORT)


def clean(text: str, longest: int = LONGEST) -> str:
    """The text if it is a name, else the nearest name; ``unnamed`` if nothing is left."""
    if is_name(text, longest):
        return text
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", text[: 4 * longest])[:longest]
    return kept.strip("._-") or "unnamed"


def distinct(name: str, taken: set[str], longest: int = LONGEST) -> str:
    """The name, with a number appended if it is taken; adds it to ``taken``."""
    found = name
    if name in taken:
        # Numbers are given in order, perhaps thousands to one name: the first free one is found by halving.
        last, free = 1, 2
        while _numbered(name, free, longest) in taken:
            last, free = free, 2 * free
        while free - last > 1:
            middle = (last + free) // 2
            if _numbered(name, middle, longest) in taken:
                last = middle
            else:
                free = middle
        found = _numbered(name, free, longest)
    taken.add(found)
    return found


def _numbered(name: str, number: int, longest: int) -> str:
    tail = f"-{number}"
    return name[: longest - len(tail)] + tail


def matches(selector: Tree, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels; a malformed requirement selects nothing."""
    return bool(LabelSets([labels]).matching(selector))


_OPERATORS = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Of requirements on labels, and whether they list values."""


def is_label_selector(selector: object) -> bool:
    """Whether the API server accepts it as a label selector."""
    labels, more = at(selector, "matchLabels") or {}, at(selector, "matchExpressions") or []
    if not (isinstance(selector, dict) and isinstance(labels, dict) and isinstance(more, list)):
        return False
    return all(
        isinstance(value, str) and is_label_key(key) for key, value in labels.items()
    ) and all(
        is_label_key(text(one, "key") or "")
        and _OPERATORS.get(text(one, "operator") or "") is bool(items(one, "values"))
        and all(isinstance(value, str) for value in items(one, "values"))
        for one in more
    )


def selector_parts(selector: Tree) -> int:
    """Labels, expressions and values of a selector of labels or nodes."""
    found = (*items(selector, "matchExpressions"), *items(selector, "matchFields"))
    return len(mapping(selector, "matchLabels")) + sum(
        1 + len(items(one, "values")) for one in found
    )


class LabelSets:
    """Sets of labels, numbered; sets of their numbers are bit masks, made when they are asked for."""

    def __init__(self, sets: Sequence[dict[str, str]]) -> None:
        self.all = (1 << len(sets)) - 1
        # of those with a value of a label, and with any (None)
        self._numbers: dict[tuple[str, str | None], list[int]] = {}
        self._masks: dict[tuple[str, str | None], int] = {}
        for number, labels in enumerate(sets):
            for key, value in labels.items():
                self._numbers.setdefault((key, value), []).append(number)
                self._numbers.setdefault((key, None), []).append(number)

    def matching(self, selector: Tree) -> int:
        """Those that a label selector selects; a malformed requirement selects nothing."""
        found = self.all
        for key, value in mapping(selector, "matchLabels").items():
            found &= self._with(key, [value])
        for one in objects(selector, "matchExpressions"):
            named, operator = text(one, "key"), text(one, "operator")
            if named is None or operator not in _OPERATORS:
                return 0
            listed = self._with(named, items(one, "values") if _OPERATORS[operator] else None)
            found &= listed if operator in ("In", "Exists") else ~listed
        return found

    def _with(self, key: str, values: Sequence[object] | None) -> int:
        """Those with one of these values of a label; None: with any."""
        found = 0
        for value in (None,) if values is None else [one for one in values if isinstance(one, str)]:
            same = (key, value)
            if same in self._numbers and same not in self._masks:
                self._masks[same] = mask_of(self._numbers[same])
            found |= self._masks.get(same, 0)
        return found


def union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def mask_of(numbers: Iterable[int]) -> int:
    """The mask that has these numbers; its time is that of the numbers plus its length."""
    listed = list(numbers)
    found = bytearray(max(listed, default=-1) // 8 + 1)
    for number in listed:
        found[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(found, "little")


def mask_key(mask: int) -> bytes:
    """A mask as the key of a dictionary: as integers, single bits have 61 hashes in all."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def bits(mask: int) -> list[int]:
    """The numbers that a mask has, ascending."""
    if mask.bit_count() * 64 < mask.bit_length():  # few of many: faster one by one
        found = []
        while mask:
            lowest = mask & -mask
            found.append(lowest.bit_length() - 1)
            mask ^= lowest
        return found
    written = f"{mask:b}"[::-1]
    return [number for number, bit in enumerate(written) if bit == "1"]
