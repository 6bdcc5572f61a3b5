"""Quantities and times as the judge reads them, independently of the readers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from models.verify.form import quantity, seconds_of


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("96", 96),
        ("1500m", Fraction(3, 2)),
        ("2Ti", 2 * 1024**4),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("100k", 100_000),
        ("3E", 3 * 10**18),
        ("3Ei", 3 * 1024**6),
        ("12e6", 12_000_000),
        ("5E-3", Fraction(1, 200)),
        (".5", Fraction(1, 2)),
        ("7.", 7),
        ("1n", Fraction(1, 10**9)),
    ],
)
def test_a_quantity_is_read_exactly(text: str, amount: Fraction) -> None:
    assert quantity(text) == amount


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1 Gi",
        "1ki",
        "1mi",
        "Gi",
        "1e",
        "1e100",
        "1e999999999",
        "0x10",
        "²",
        "1" * 41,
        ".",
    ],
)
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-02T00:00:01.999Z", 86401),
        ("2026-11-20T08:00:00Z", 1795161600),
        ("2026-11-20T10:00:00+02:00", 1795161600),
        ("2026-11-20T02:30:00-05:30", 1795161600),
        ("1969-12-31T23:59:59Z", -1),
    ],
)
def test_a_time_is_seconds_since_1970_with_fractions_floored(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "2026-11-20", "2026-11-20T08:00:00", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z",
     "2026-11-20T24:00:00Z",
     "2026-11-20T08:60:00Z", "2026-11-20T08:00:00+24:00", "\uff12026-11-20T08:00:00Z"],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    assert seconds_of(text) is None
