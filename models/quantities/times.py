"""Durations and RFC 3339 times to whole seconds, and back to their canonical text.

Promises: fractions are floored once, at the end; no local time zone is ever consulted.
Called by ``models.documents``, ``models.canonical`` and the readers.
"""

from __future__ import annotations

import calendar
import math
import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from models.quantities.refusal import Refused, shown

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
        raise Refused(f"{shown(text)} is not a duration", "write it like 90m, 6h, 1h30m or 21600s")
    total = sum((Fraction(digits) * _UNITS[unit] for digits, unit in parts), Fraction(0))
    if total > MAX_SECONDS:
        raise Refused(f"{shown(text)} is too long", f"the longest duration is {MAX_SECONDS}s")
    return math.floor(total)


def duration_text(whole_seconds: int) -> str:
    """The canonical duration, in whole seconds: ``21600s``."""
    return f"{whole_seconds}s"


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d{1,30})?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


@lru_cache(maxsize=4096)
def epoch_seconds(text: str) -> int:
    """Seconds since 1970 UTC of an RFC 3339 time; fractions floored. Raises Refused.

    Years 1970 to 2999: so that ages times GPUs stay far below 2^63.
    """
    found = _TIME.fullmatch(text)
    hint = "write it like 2026-11-20T08:00:00Z"
    if found is None:
        raise Refused(f"{shown(text)} is not an RFC 3339 time", hint)
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    sign, off_hours, off_minutes = (
        found.group(7),
        int(found.group(8) or 0),
        int(found.group(9) or 0),
    )
    leap = second == 60  # a leap second is the first second of the next minute
    if off_hours > 23 or off_minutes > 59:
        raise Refused(f"{shown(text)} has an impossible offset from UTC", hint)
    try:
        local = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError:
        raise Refused(f"{shown(text)} is not a possible time", hint) from None
    offset = (off_hours * 60 + off_minutes) * 60 * (-1 if sign == "-" else 1)
    result = calendar.timegm(local.timetuple()) + leap - offset
    if not 0 <= result < _YEAR_3000:
        raise Refused(f"{shown(text)} is not between the years 1970 and 2999", hint)
    return result


_YEAR_3000 = calendar.timegm((3000, 1, 1, 0, 0, 0, 0, 0, 0))


def time_text(epoch: int) -> str:
    """The canonical time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
