"""Small values whose exactness no document shows: decimals, names and ranges, text as it is shown."""

from __future__ import annotations

import difflib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import kube
import pytest
from conftest import RunCli
from effort import first_fast
from hypothesis import given
from strategies import texts

from models.documents.base import MAX_COMPARED, suggestion
from models.host_ranges import MAX_NAMES, host_count, host_ranges, hosts
from models.units import InvalidValueError, exact, shown
from planner.read.findings import MAX_FAULTS
from planner.read.inputs import read


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("1e999999999"), "x", True])
def test_what_is_no_finite_decimal_is_refused_at_once(value: float) -> None:
    with pytest.raises(InvalidValueError):
        exact(value)


@pytest.mark.parametrize(
    ("names", "ranges"),
    [
        ("", ""),
        ("a b", "a b"),
        ("n7", "n7"),
        ("n08 n09 n10", "n[08-10]"),
        ("n1 n2 n4", "n[1-2,4]"),
        ("n9 n10 n11", "n9 n[10-11]"),
        ("r1-n1 r1-n2 r2-n1", "r1-n[1-2] r2-n1"),
        ("1 2", "[1-2]"),
        ("n2 n2 n1", "n[1-2]"),
    ],
)
def test_names_are_written_as_ranges_that_expand_to_them(names: str, ranges: str) -> None:
    assert list(host_ranges(names.split())) == ranges.split()
    back = [name for one in ranges.split() for name in hosts(one)]
    assert sorted(back) == sorted(set(names.split()))
    assert sum(map(host_count, ranges.split())) == len(back)


def test_a_range_that_explodes_is_refused_before_it_is_expanded() -> None:
    assert host_count(f"a[1-{MAX_NAMES}]") == MAX_NAMES == 200_000
    for pattern in (f"a[1-{MAX_NAMES + 1}]", "a[0-999999]-[0-999999]-[0-999999]"):
        with pytest.raises(InvalidValueError, match="the most is 200,000"):
            hosts(pattern)  # asking for the names is enough: no iteration


@given(texts())
def test_text_is_shown_on_one_printable_line_of_bounded_length(text: str) -> None:
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= 2 + 60 * 10  # every character escaped at worst


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many names each search for the nearest one compared."""
    found: list[int] = []
    search = difflib.get_close_matches

    def counted(word: str, names: list[str], **options: int) -> list[str]:
        found.append(len(names))
        return search(word, names, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    return found


def test_hints_cost_no_more_in_a_large_cluster_or_with_many_faults(
    cli: RunCli, compared: list[int]
) -> None:
    """A word is compared with the names beside it, and twice as often as faults are shown."""
    names = [f"gpu-{number:05d}" for number in range(20_000)]
    assert suggestion("gpu-01234x", names) == "did you mean 'gpu-01234'?"
    assert suggestion("gpu-19999x", names) == "did you mean 'gpu-19999'?"
    assert compared == [2 * MAX_COMPARED, MAX_COMPARED]
    compared.clear()
    lines = [f"SwitchName=s{number} Switches=t{number}" for number in range(10 * MAX_FAULTS)]
    found = cli("validate", "-", stdin="\n".join([*lines, "SwitchName=leaf Nodes=n1"]).encode())
    assert (found.code, found.err.count("is not defined")) == (65, MAX_FAULTS)
    assert len(compared) == 2 * MAX_FAULTS
    names = [f"h-{number:02d}" for number in range(1, 40)]
    assert suggestion("h-1", names) == "did you mean 'h-01'?"


@pytest.mark.parametrize("name", first_fast(["v100-mpi", "nvl72", "h100-gke"]))
def test_planning_with_the_saved_policy_has_the_same_levels_and_domains(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    folder, saved = str(kube.SNAPSHOTS / name), tmp_path / "policy.yaml"
    assert cli("validate", folder, "--save-policy", str(saved)).code == 0
    first, again = read([folder]), read([folder], policy=str(saved))
    assert (again.cluster, again.gangs) == (first.cluster, first.gangs)
    assert again.policy.kubernetes.levels == first.cluster.levels
