"""Typed access to an untrusted JSON document: every fault is noted with its place, none is raised.

Promises: whatever the document holds, no exception; a value that is wrong is replaced by a harmless one
and at most ``MAX_FAULTS`` faults are kept. Called by the modules of ``models.checking`` that read a part.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from fractions import Fraction

from models.checking.violation import Violation

MAX_FAULTS = 50
"""A document with more faults than this is not worth listing further."""

MAX_INTEGER = 2**63 - 1
"""No count, size, rate or priority in a plan may be larger (or smaller than its negative)."""

Object = dict[str, object]


def shown(value: object) -> str:
    """A short printable form of any JSON value, control characters escaped."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a huge integer"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value) if value is not None else "null"
        return text if len(text) <= 80 else text[:77] + "..."
    return f"a {type(value).__name__}"


def printable(name: str) -> str:
    """A name as it may appear in a message: control characters and lone surrogates replaced."""
    return "".join(c if c.isprintable() else "?" for c in name[:200])


class Form:
    """Faults of form found so far."""

    def __init__(self) -> None:
        self.faults: list[Violation] = []

    def fault(self, where: str, what: str, *, rule: str = "form", gang: str | None = None) -> None:
        """Note one fault; ``where`` is a path such as ``spec.gangs[3].pods``."""
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Violation(rule, gang, f"{where}: {what}"))

    def mapping(
        self,
        value: object,
        where: str,
        known: frozenset[str] | None = None,
        required: Collection[str] = (),
    ) -> Object:
        """The object itself, {} if it is none. ``known``: no other field may be there."""
        if not isinstance(value, dict):
            self.fault(where, f"must be an object, not {shown(value)}")
            return {}
        if known is not None and not known >= value.keys():
            for key in value:
                if key not in known:
                    self.fault(where, f"unknown field {shown(key)}")
        for key in required:
            if key not in value:
                self.fault(where, f"field {key!r} is missing")
        return value

    def table(self, value: object, where: str) -> Object:
        """An object with any names; null and absent count as empty."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(where, f"must be an object, not {shown(value)}")
            return {}
        if not all(isinstance(key, str) for key in value):
            self.fault(where, "every name of an object must be a string")
            return {}
        return value

    def items(self, value: object, where: str) -> list[object]:
        if not isinstance(value, list):
            self.fault(where, f"must be a list, not {shown(value)}")
            return []
        return value

    def optional_items(self, value: object, where: str) -> list[object]:
        return [] if value is None else self.items(value, where)

    def text(self, value: object, where: str) -> str:
        """A string that is not empty."""
        if isinstance(value, str) and value:
            return value
        self.fault(where, f"must be a non-empty string, not {shown(value)}")
        return ""

    def optional_text(self, value: object, where: str) -> str | None:
        return None if value is None else self.text(value, where)

    def string(self, value: object, where: str) -> str:
        """A string, possibly empty; null and absent count as empty."""
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        self.fault(where, f"must be a string, not {shown(value)}")
        return ""

    def integer(
        self, value: object, where: str, low: int = -MAX_INTEGER, high: int = MAX_INTEGER
    ) -> int:
        if type(value) is int and low <= value <= high:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            self.fault(where, f"must be from {low} to {high}, not {shown(value)}")
        else:
            self.fault(where, f"must be an integer, not {shown(value)}")
        return low if low > -MAX_INTEGER else 0

    def optional_integer(
        self, value: object, where: str, low: int = -MAX_INTEGER, high: int = MAX_INTEGER
    ) -> int | None:
        return None if value is None else self.integer(value, where, low, high)

    def flag(self, value: object, where: str, *, default: bool = False) -> bool:
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self.fault(where, f"must be true or false, not {shown(value)}")
        return default

    def choice(self, value: object, where: str, options: Collection[str]) -> str:
        if isinstance(value, str) and value in options:
            return value
        self.fault(where, f"must be one of {', '.join(options)}, not {shown(value)}")
        return next(iter(options))

    def number(self, value: object, where: str, low: int = 0, high: int = MAX_INTEGER) -> Fraction:
        """A JSON number as the exact decimal it is written as, from ``low`` to ``high``."""
        exact = _exact(value)
        if exact is None:
            self.fault(where, f"must be a number, not {shown(value)}")
            return Fraction(low)
        if not low <= exact <= high:
            self.fault(where, f"must be from {low} to {high}, not {shown(value)}")
            return Fraction(low)
        return exact


def _exact(value: object) -> Fraction | None:
    if type(value) is int and abs(value) <= MAX_INTEGER:
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))  # 0.1 means one tenth, not the nearest binary fraction
    return None
