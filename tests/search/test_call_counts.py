"""No phase of a plan takes more calls of Python functions than n log n as nodes and gangs grow.

Calls are counted, not seconds, so that the verdict is the same on every machine.
"""

from __future__ import annotations

from math import log2
from pathlib import Path

import pytest

from benchmarks.generator import busy
from benchmarks.phases import Phases, counting
from benchmarks.shared import shared

SMALL, LARGE = 64, 192
"""Nodes; half as many gangs wait."""

SLACK = 1.25
"""Racks are ragged and gangs are drawn: what is counted is not quite proportional."""


def calls(nodes: int, folder: Path, *, on: bool) -> dict[str, int]:
    instance = busy(nodes, nodes // 2, 1)
    found = {}
    for phase, run in Phases(shared(instance) if on else instance, folder, solving=False):
        with counting() as count:
            run()
        found[phase] = count[0]
    return found


@pytest.mark.parametrize("on", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_phase_grows_faster_than_n_log_n(on: bool, tmp_path: Path) -> None:
    small, large = calls(SMALL, tmp_path, on=on), calls(LARGE, tmp_path, on=on)
    most = SLACK * LARGE * log2(LARGE) / (SMALL * log2(SMALL))
    grown = {phase: round(large[phase] / small[phase], 2) for phase in small}
    fast = {phase for phase, ratio in grown.items() if ratio > most}
    assert not fast, (most, grown)
