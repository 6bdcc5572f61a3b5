"""Colour only repeats what the text says: nothing else changes, and no line outgrows its terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import RunCli

INPUTS = Path(__file__).parent.parent / "inputs"
WIDTHS = (80, 100, 160)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_queue_without_waiting_gangs_is_shown_in_colour(width: int, cli: RunCli) -> None:
    columns = {"COLUMNS": str(width)}
    plain, coloured = (
        cli("plan", str(INPUTS / "queues"), "--color", when, environ=columns)
        for when in ("never", "always")
    )
    assert (plain.code, coloured.code, plain.err) == (0, 0, coloured.err)
    assert "\x1b[" in coloured.out
    assert COLOUR.sub("", coloured.out) == plain.out
