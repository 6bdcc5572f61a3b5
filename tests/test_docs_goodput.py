"""docs/goodput.md: every figure on it is recomputed."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from models.instance.speed import RelativeSpeeds, speed_permille
from models.rates.catalogue import find

PAGE = (Path(__file__).parent.parent / "docs" / "goodput.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table whose head begins so."""
    table = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_speeds_of_the_example_are_computed() -> None:
    h100, a100 = find("DGX H100"), find("DGX A100")
    assert h100 is not None
    assert a100 is not None
    speeds = RelativeSpeeds([h100, a100])
    for where, share, relative, speed, effective in rows("gang on"):
        r = speeds.of([a100 if "A100" in where else h100])
        assert r == int(relative)
        assert speed_permille(int(share), Fraction(1, 4), r) == int(speed)
        assert f"{16 * int(speed) / 1000:.2f}" == effective


@pytest.mark.parametrize("plan", rows("plan"), ids=lambda row: row[0])
def test_the_plans_of_the_presets_are_computed(plan: list[str]) -> None:
    what, gpus, goodput = plan
    share = int(re.findall(r"share (\d+)", what)[0])
    large = 64 * speed_permille(share, Fraction(1, 4))
    small = 8 * 1000 if "gang of 8 runs" in what else 0
    assert int(gpus) == 64 + small // 1000
    assert goodput.rpartition("= ")[2] == f"{large + small:,}"
