"""Quantities, times and durations of a plan document, read exactly and independently of the readers.

Promises: bounded work on any string, None where it is not one. Called by ``models.checking`` alone.
"""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction
from functools import lru_cache

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
