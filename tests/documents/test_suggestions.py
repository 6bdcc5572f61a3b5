"""Hints of unknown names: the nearest known one, at a cost that does not grow with the cluster."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import RunCli

from models.documents.base import MAX_COMPARED, suggestion
from planner.read.findings import MAX_FAULTS


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many names each search for the nearest one compared."""
    found: list[int] = []
    search = difflib.get_close_matches

    def counted(word: str, names: Sequence[str], **options: Any) -> list[str]:  # noqa: ANN401  # of difflib
        found.append(len(names))
        return search(word, names, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    return found


def test_a_word_is_compared_with_the_names_beside_it(compared: list[int]) -> None:
    names = [f"gpu-{number:05d}" for number in range(20_000)]
    assert suggestion("gpu-01234x", names) == "did you mean 'gpu-01234'?"
    assert suggestion("gpu-19999x", names) == "did you mean 'gpu-19999'?"
    assert compared == [2 * MAX_COMPARED, MAX_COMPARED]


def test_no_more_hints_are_searched_than_twice_the_faults_that_are_shown(
    cli: RunCli, compared: list[int]
) -> None:
    lines = [f"SwitchName=s{number} Switches=t{number}" for number in range(10 * MAX_FAULTS)]
    found = cli("validate", "-", stdin="\n".join([*lines, "SwitchName=leaf Nodes=n1"]).encode())
    assert found.code == 65
    assert found.err.count("is not defined") == MAX_FAULTS
    assert len(compared) == 2 * MAX_FAULTS


def test_a_name_that_differs_only_in_zeros_is_meant() -> None:
    names = [f"h-{number:02d}" for number in range(1, 40)]
    assert suggestion("h-1", names) == "did you mean 'h-01'?"
