"""Exact decimals: numbers as people write them, to rationals and back to JSON numbers.

Promises: nothing is rounded; exponents and digits are bounded before anything is computed.
Called by ``models.documents`` and ``models.canonical``.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from models.quantities.refusal import Refused

MAX_DIGITS = 15
"""Most significant digits of a decimal: so many survive JSON's doubles unchanged."""


_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
)


def exact(value: float | Decimal | str) -> Fraction:
    """The number itself as a rational; a float is taken as the decimal it prints as.

    Raises Refused for NaN, infinities and text that is no decimal. Exponents are bounded, so
    ``1e999999999`` costs nothing.
    """
    if isinstance(value, bool):
        raise Refused("expected a number, not true or false")
    if isinstance(value, int):
        return Fraction(value)
    text = str(value)
    if not _DECIMAL.fullmatch(text):
        raise Refused("not a finite decimal number", "write it like 0.5 or 12")
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
