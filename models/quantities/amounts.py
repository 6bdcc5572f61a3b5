"""Kubernetes quantities to exact amounts, and amounts back to canonical quantities.

Promises: exact integers in the end (cpu in millicores, everything else in whole units), bounded.
Called by ``models.documents``, ``models.canonical`` and the readers.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from models.quantities.refusal import Refused, shown

MAX_AMOUNT = 10**15
"""Largest integer any quantity may stand for (millicores, bytes, things)."""


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
    """A Kubernetes quantity such as ``500m``, ``1.5Gi``, ``12e6``, exactly. Raises Refused."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise Refused(
            f"{shown(text)} is not a quantity", "write it like 500m, 96, 1.5Gi, 2Ti or 12e6"
        )
    digits, exponent, suffix = found.groups()
    value = Fraction(digits + (exponent or "")) * _SUFFIXES[suffix or ""]
    if value < 0:
        raise Refused(f"{shown(text)} is negative", "a quantity is zero or more")
    if value > MAX_AMOUNT:
        raise Refused(f"{shown(text)} is too large", f"the most is {MAX_AMOUNT:,}")
    return value


def requested(resource: str, value: Fraction) -> int:
    """Units a pod asks for: millicores of cpu, whole units of anything else; rounded up."""
    return math.ceil(value * 1000 if resource == "cpu" else value)


def offered(resource: str, value: Fraction) -> int:
    """Units a node offers: millicores of cpu, whole units of anything else; rounded down."""
    return math.floor(value * 1000 if resource == "cpu" else value)


def quantity_text(resource: str, units: int) -> str:
    """The canonical quantity: ``208`` or ``1500m`` cpu, ``2Ti`` memory, ``110`` of other things."""
    if resource == "cpu":
        return str(units // 1000) if units % 1000 == 0 else f"{units}m"
    if _in_bytes(resource) and units:
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            if units % _SUFFIXES[suffix] == 0:
                return f"{units // _SUFFIXES[suffix]}{suffix}"
    return str(units)


def _in_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
