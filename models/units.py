"""Exact values as people write them: decimals, Kubernetes quantities, durations and times, and back.

Nothing is rounded before the end, digits and exponents are bounded, and errors show input safely.
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

_SHOWN = 60
_MAX_INTEGER_SHOWN = 10**20


class InvalidValueError(ValueError):
    """A value that is not valid: what is wrong, and what to write instead."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def shown(text: object) -> str:
    """Text quoted for a message: one line, control characters escaped, at most 60 characters."""
    raw = str(text) if isinstance(text, str) else repr(text)
    if raw.isprintable() and len(raw) <= _SHOWN:
        return f"'{raw}'"  # readers ask for a hundred thousand, most for no message
    cut = (
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in shortened(raw, _SHOWN)
    )
    return f"'{''.join(cut)}'"


def plural(count: float, noun: str) -> str:
    """``1 node``, ``1,204 nodes``, ``0.5 GPUs``."""
    return f"{decimal_text(count)} {noun}" if count == 1 else f"{decimal_text(count)} {noun}s"


def decimal_text(count: float) -> str:
    """``1,204``, ``7.2``: at most three decimals."""
    rounded = round(count, 3)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def first_of(names: Sequence[str], most: int, noun: str = "") -> str:
    """``a, b and 3 more``: the first names, and how many follow; ``noun``: what those are, if it is said."""
    most = shown_of(len(names), most)
    rest = len(names) - most
    more = plural(rest, noun) if noun else f"{rest:,} more"
    return ", ".join(names[:most]) + (f" and {more}" if rest > 0 else "")


SHOWN_SCHEDULERS = 4
"""Most schedulers that a sentence names."""


def shown_of(count: int, most: int) -> int:
    """How many of ``count`` are shown where about ``most`` are: a single other one is named, not counted."""
    return count if count <= most + 1 else most


def shortened(text: str, most: int) -> str:
    """The text with at most so many characters; dots are in place of those cut off."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def described(value: object) -> str:
    """The kind of a value, for a message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the number {value}" if abs(value) < _MAX_INTEGER_SHOWN else "an enormous number"
    if isinstance(value, float | Decimal):
        return f"the number {shown(str(value))[1:-1]}"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return "a list" if isinstance(value, list | tuple) else "an object"


MAX_DIGITS = 15
"""Most significant digits of a decimal; JSON's doubles keep this many."""


_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
)


def exact(value: float | Decimal | str) -> Fraction:
    """The number itself as a rational; a float is taken as the decimal it prints as.

    Raises InvalidValueError for NaN, infinities and text that is no decimal. Exponents are bounded, so
    ``1e999999999`` costs nothing.
    """
    if isinstance(value, bool):
        raise InvalidValueError("expected a number, not true or false")
    if isinstance(value, int):
        return Fraction(value)
    text = str(value)
    if not _DECIMAL.fullmatch(text):
        raise InvalidValueError("not a finite decimal number", "write it like 0.5 or 12")
    return Fraction(text)


def significant_digits(value: Fraction) -> int | None:
    """Digits needed to write the number as a decimal; None where it has no finite decimal."""
    places = 0
    denominator = value.denominator
    for prime in (2, 5):
        power = 0
        while denominator % prime == 0:
            denominator //= prime
            power += 1
        places = max(places, power)
    if denominator != 1:
        return None
    return len(str(abs(value.numerator * 10**places // value.denominator)))


def number(value: Fraction) -> int | float:
    """The JSON number of a decimal: an integer if it is whole, else the float that prints as it."""
    return value.numerator if value.denominator == 1 else value.numerator / value.denominator


MAX_AMOUNT = 10**15
"""Largest value of a quantity in its unit (millicores, bytes, pieces)."""


_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{
        suffix: Fraction(1000 ** (i + 1)) for i, suffix in enumerate(("k", "M", "G", "T", "P", "E"))
    },
    **{s: Fraction(1024 ** (i + 1)) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))"
    r"(?:([eE][+-]?[0-9]{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?"
)


@lru_cache(maxsize=4096)
def quantity(text: str) -> Fraction:
    """A Kubernetes quantity such as ``500m``, ``1.5Gi``, ``12e6``, exactly. Raises InvalidValueError."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise InvalidValueError(
            f"{shown(text)} is not a quantity", "write it like 500m, 96, 1.5Gi, 2Ti or 12e6"
        )
    digits, exponent, suffix = found.groups()
    value = Fraction(digits + (exponent or "")) * _SUFFIXES[suffix or ""]
    if value < 0:
        raise InvalidValueError(f"{shown(text)} is negative", "a quantity is zero or more")
    if value > MAX_AMOUNT:
        raise InvalidValueError(f"{shown(text)} is too large", f"the most is {MAX_AMOUNT:,}")
    return value


@lru_cache(maxsize=4096)
def requested(resource: str, value: Fraction) -> int:
    """Units a pod requests: millicores of cpu, whole units of anything else; rounded up."""
    return math.ceil(value * 1000 if resource == "cpu" else value)


@lru_cache(maxsize=4096)
def offered(resource: str, value: Fraction) -> int:
    """Units a node offers: millicores of cpu, whole units of anything else; rounded down."""
    return math.floor(value * 1000 if resource == "cpu" else value)


@lru_cache(maxsize=4096)
def quantity_text(resource: str, units: int) -> str:
    """The canonical quantity: ``208`` or ``1500m`` cpu, ``2Ti`` memory, ``110`` of others."""
    if resource == "cpu":
        return str(units // 1000) if units % 1000 == 0 else f"{units}m"
    if in_bytes(resource) and units:
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            if units % _SUFFIXES[suffix] == 0:
                return f"{units // _SUFFIXES[suffix]}{suffix}"
    return str(units)


def in_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


MAX_SECONDS = 10**10
"""Longest duration, about 317 years."""


_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_PART = re.compile(r"([0-9]{1,40}(?:\.[0-9]{1,40})?)(ns|us|µs|ms|s|m|h|d)")


@lru_cache(maxsize=4096)
def seconds(text: str) -> int:
    """Whole seconds of a duration such as ``90m``, ``1h30m``; fractions floored at the end."""
    parts = _PART.findall(text)
    if not parts or "".join(digits + unit for digits, unit in parts) != text:
        raise InvalidValueError(
            f"{shown(text)} is not a duration", "write it like 90m, 6h, 1h30m or 21600s"
        )
    total = sum((Fraction(digits) * _UNITS[unit] for digits, unit in parts), Fraction(0))
    if total > MAX_SECONDS:
        raise InvalidValueError(
            f"{shown(text)} is too long", f"the longest duration is {MAX_SECONDS}s"
        )
    return math.floor(total)


def duration_text(whole_seconds: int) -> str:
    """The canonical duration, in whole seconds: ``21600s``."""
    return f"{whole_seconds}s"


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d{1,30})?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


@lru_cache(maxsize=4096)
def epoch_seconds(text: str) -> int:
    """Seconds since 1970 UTC of an RFC 3339 time; fractions floored. Raises InvalidValueError.

    Years 1970 to 2999: so that ages times GPUs stay far below 2^63.
    """
    found = _TIME.fullmatch(text)
    hint = "write it like 2026-11-20T08:00:00Z"
    if found is None:
        raise InvalidValueError(f"{shown(text)} is not an RFC 3339 time", hint)
    day, hour, minute, second = found.group(1), *(int(found.group(part)) for part in (2, 3, 4))
    sign, (off_hours, off_minutes) = found.group(5), (int(found.group(i) or 0) for i in (6, 7))
    if off_hours > 23 or off_minutes > 59:
        raise InvalidValueError(f"{shown(text)} has an impossible offset from UTC", hint)
    midnight = _midnight(day)
    if midnight is None or hour > 23 or minute > 59 or second > 60:
        raise InvalidValueError(f"{shown(text)} is not a possible time", hint)
    # A leap second, 60, is the first second of the next minute.
    local = midnight + (hour * 60 + minute) * 60 + second
    result = local - (off_hours * 60 + off_minutes) * 60 * (-1 if sign == "-" else 1)
    if not 0 <= result < YEAR_3000:
        raise InvalidValueError(f"{shown(text)} is not between the years 1970 and 2999", hint)
    return result


@lru_cache(maxsize=4096)
def _midnight(day: str) -> int | None:
    """Seconds since 1970 at the start of a day written as 2026-11-20; None if there is no such day."""
    try:
        return calendar.timegm(date(int(day[:4]), int(day[5:7]), int(day[8:])).timetuple())
    except ValueError:
        return None


YEAR_3000 = calendar.timegm((3000, 1, 1, 0, 0, 0, 0, 0, 0))


def time_text(epoch: int) -> str:
    """The canonical time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_INT64 = range(-(2**63), 2**63)


def whole_number(text: str) -> int | None:
    """A decimal integer of 64 bits, as Kubernetes reads it; None for other text."""
    if not re.fullmatch(r"[+-]?[0-9]{1,64}", text):
        return None
    number = int(text)
    return number if number in _INT64 else None
