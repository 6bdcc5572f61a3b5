"""Typed access to an untrusted JSON document: every fault is noted with its place, none is raised.

Promises: whatever the document holds, no exception; a value that is wrong is replaced by a harmless one
and at most ``MAX_FAULTS`` faults are kept. Called by the modules of ``models.verify.check`` that read a part.

Quantities, times and durations of a plan document, read exactly and independently of the readers.

Promises: bounded work on any string, None where it is not one. Called by ``models.verify.check`` alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from datetime import date
from fractions import Fraction
from functools import lru_cache

from models.verify.violation import Violation

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


_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    **{s: Fraction(1, 1000 ** (i + 1)) for i, s in enumerate("mun")},
    **{s: Fraction(1000 ** (i + 1)) for i, s in enumerate("kMGTPE")},
    **{f"{s}i": Fraction(1024 ** (i + 1)) for i, s in enumerate("KMGTPE")},
}

# At most 40 digits and an exponent of two: "1e999999999" must not cost memory.
_QUANTITY = re.compile(
    r"([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})"
)

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]{1,12})?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)

# Hours, minutes and seconds in this order, each at most once: 90m, 1h30m, 21600s.
_DURATION = re.compile(
    r"(?:([0-9]{1,15}(?:\.[0-9]{1,9})?)h)?(?:([0-9]{1,15}(?:\.[0-9]{1,9})?)m)?"
    r"(?:([0-9]{1,15}(?:\.[0-9]{1,9})?)s)?"
)

_EPOCH = date(1970, 1, 1).toordinal()


@lru_cache(maxsize=4096)
def quantity(text: str) -> Fraction | None:
    """The exact amount a quantity stands for (``1500m`` is 3/2), None if it is not a quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    digits, suffix = match.groups()
    amount = Fraction(digits if not digits.endswith(".") else digits[:-1])
    if suffix in _SUFFIXES:
        return amount * _SUFFIXES[suffix]
    if suffix[1:].lstrip("+-").isdigit():
        return amount * Fraction(10) ** int(suffix[1:])
    return None


def seconds_of(text: str) -> int | None:
    """Whole seconds since 1970 of an RFC 3339 time, fractions floored; None if it is not one."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    sign, off_hours, off_minutes = match.group(7, 8, 9)
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:  # 30 February, year 0
        return None
    offset = 0
    if sign is not None:
        if int(off_hours) > 23 or int(off_minutes) > 59:
            return None
        offset = (int(off_hours) * 3600 + int(off_minutes) * 60) * (1 if sign == "+" else -1)
    return days * 86400 + hour * 3600 + minute * 60 + second - offset


def duration_of(text: str) -> int | None:
    """Whole seconds of a duration such as ``24h`` or ``86400s``, fractions floored; None if it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    parts = zip(match.groups(), (3600, 60, 1), strict=True)
    return int(sum(Fraction(amount) * unit for amount, unit in parts if amount))
