from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.documents.cluster import NodeDocument
from models.documents.gang import RoleDocument
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.units import (
    InvalidValueError,
    epoch_seconds,
    exact,
    offered,
    quantity,
    quantity_text,
    requested,
    seconds,
    shown,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("96", 96),
        ("+5", 5),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("100n", Fraction(1, 10**7)),
        ("7u", Fraction(7, 10**6)),
        ("2k", 2000),
        ("3M", 3 * 10**6),
        ("4G", 4 * 10**9),
        ("5T", 5 * 10**12),
        ("0.5P", 5 * 10**14),
        ("0.0001E", 10**14),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),  # 1.5 * 2^30
        ("2Ti", 2199023255552),  # 2 * 2^40
        ("0.5Pi", 2**49),
        ("12e6", 12_000_000),
        ("12E6", 12_000_000),
        ("1e-3", Fraction(1, 1000)),
    ],
)
def test_a_quantity_is_read_exactly(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", " 1", "1 ", "1Kb", "1ki", "4 cores", "1,5", "0x10", "--1", "-1", "1e", "1m5",
        "NaN", "inf", "²", "1_000", "1e9999", "2Pi", "9" * 41,
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        quantity(text)
    assert caught.value.hint


def test_requests_round_up_and_offers_round_down() -> None:
    # 1.0005 cpu are 1000.5 millicores; half a byte is one byte asked for and none offered.
    assert requested("cpu", quantity("1.0005")) == 1001
    assert offered("cpu", quantity("1.0005")) == 1000
    assert requested("memory", quantity("500m")) == 1
    assert offered("memory", quantity("500m")) == 0
    assert requested("memory", quantity("1Gi")) == offered("memory", quantity("1Gi")) == 2**30


@pytest.mark.parametrize(
    ("resource", "units", "text"),
    [
        ("cpu", 208_000, "208"),
        ("cpu", 1500, "1500m"),
        ("cpu", 0, "0"),
        ("memory", 2 * 2**40, "2Ti"),
        ("memory", 3 * 2**30, "3Gi"),
        ("memory", 1025, "1025"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi"),
        ("pods", 1024, "1024"),
        ("rdma/hca", 8, "8"),
    ],
)
def test_a_quantity_has_one_canonical_text(resource: str, units: int, text: str) -> None:
    assert quantity_text(resource, units) == text


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("90m", 5400),
        ("6h", 21600),
        ("1h30m", 5400),
        ("21600s", 21600),
        ("1.5h", 5400),
        ("90.7s", 90),
        ("500ms", 0),
        ("0.5s500ms", 1),  # floored once, at the end
        ("1d", 86400),
        ("1500000us", 1),
        ("0s", 0),
    ],
)
def test_a_duration_is_floored_to_whole_seconds(text: str, whole: int) -> None:
    assert seconds(text) == whole


@pytest.mark.parametrize("text", ["", "5", "h", "1h 30m", "-1h", "1hour", "1h30", "9" * 30 + "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-02T00:00:00Z", 86400),
        ("2000-02-29T12:00:00Z", 951825600),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("1970-01-01t00:00:01.999z", 1),
        ("1998-12-31T23:59:60Z", 915148800),  # a leap second: 1999-01-01T00:00:00Z
    ],
)
def test_a_time_becomes_seconds_since_1970(text: str, epoch: int) -> None:
    assert epoch_seconds(text) == epoch


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20", "2026-11-20T08:00:00", "2026-11-20 08:00:00Z", "2026-02-30T00:00:00Z",
        "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00+25:00",
        "0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "٢٠٢٦-11-20T08:00:00Z", "",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        epoch_seconds(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, Fraction(1, 10)),  # the decimal it prints as, not the double it is
        (Decimal("0.10"), Fraction(1, 10)),
        (3, Fraction(3)),
        ("1e2", Fraction(100)),
    ],
)
def test_a_decimal_is_exact(value: float, expected: Fraction) -> None:
    assert exact(value) == expected


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Decimal("NaN"), Decimal("1e999999999"), "x", True]
)
def test_what_is_no_finite_decimal_is_refused_at_once(value: float) -> None:
    with pytest.raises(InvalidValueError):
        exact(value)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("gpu-07", ["gpu-07"]),
        ("gpu-[01-03,20]", ["gpu-01", "gpu-02", "gpu-03", "gpu-20"]),
        ("gpu-[8-11]", ["gpu-8", "gpu-9", "gpu-10", "gpu-11"]),
        ("gpu-[08-11]", ["gpu-08", "gpu-09", "gpu-10", "gpu-11"]),
        ("gpu-[099-101]", ["gpu-099", "gpu-100", "gpu-101"]),
        ("r[1-2]-n[1,3]x", ["r1-n1x", "r1-n3x", "r2-n1x", "r2-n3x"]),
    ],
)
def test_a_host_range_is_expanded_in_written_order(pattern: str, names: list[str]) -> None:
    assert list(hosts(pattern)) == names
    assert host_count(pattern) == len(names)


@pytest.mark.parametrize(
    "pattern",
    [
        "a[",
        "a]",
        "a[]",
        "a[1",
        "a[2-1]",
        "a[x]",
        "a[1-]",
        "a[1,,2]",
        "a[[1]]",
        "a[-1]",
        "a[001-10]",
        "a,b",
    ],
)
def test_a_malformed_host_range_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidValueError):
        hosts(pattern)


@pytest.mark.parametrize("pattern", [f"a[1-{MAX_NAMES + 1}]", "a[0-999999]-[0-999999]-[0-999999]"])
def test_a_host_range_that_explodes_is_refused_before_it_is_expanded(pattern: str) -> None:
    with pytest.raises(InvalidValueError, match="the most is 200,000"):
        hosts(pattern)  # asking for the names is enough: no iteration


@given(st.text())
def test_text_is_shown_on_one_printable_line_of_bounded_length(text: str) -> None:
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= 2 + 60 * 10  # every character escaped at worst


def test_documents_have_units_what_pods_ask_for_rounded_up_what_nodes_offer_down() -> None:
    amounts = {"cpu": "1.0004", "memory": 1.5}
    role = RoleDocument.model_validate({"name": "w", "replicas": 1, "gpus": 1, "requests": amounts})
    node = NodeDocument.model_validate({"name": "a", "allocatable": amounts})
    assert role.requests == {"cpu": 1001, "memory": 2}
    assert node.allocatable == {"cpu": 1000, "memory": 1}
    assert role.to_json()["requests"] == {"cpu": "1001m", "memory": "2"}
