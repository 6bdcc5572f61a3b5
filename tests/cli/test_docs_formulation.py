"""docs/formulation.md against the code: modules and constants that it cites exist, shares are in force."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models import tiers

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "formulation.md").read_text(encoding="utf-8")

SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for room in ("models", "planner")
    for path in (ROOT / room).rglob("*.py")
)


def test_every_module_it_names_exists() -> None:
    files = [
        str(p.relative_to(ROOT))
        for d in ("models", "planner", "tests")
        for p in (ROOT / d).rglob("*.py")
    ]
    cited = set(re.findall(r"`([a-z_/]+\.py)`", TEXT))
    assert len(cited) > 20
    missing = {name for name in cited if not any(f"/{file}".endswith(f"/{name}") for file in files)}
    assert missing == set()


def test_every_constant_it_names_exists() -> None:
    for name in set(re.findall(r"`([A-Z]+_[A-Z_]+)`", TEXT)):
        assert re.search(rf"^{name}\b", SOURCES, re.MULTILINE), name


@pytest.mark.parametrize(
    ("name", "percent"), [("ADMISSION_SHARE", 35), ("CLOCK_SHARE", 15), ("LAST_SHARE", 80)]
)
def test_a_share_is_the_one_in_force(name: str, percent: int) -> None:
    assert re.findall(rf"^{name} = ([0-9.]+)$", SOURCES, re.MULTILINE) == [f"{percent / 100:g}"]
    assert f"`{name}`" in TEXT
    assert f"{percent} %" in TEXT


def test_every_tier_has_a_row() -> None:
    table = TEXT[TEXT.index("## 4. Best") : TEXT.index("## 5. The plan")]
    for row in tiers.TIERS:
        assert f"`{row.name}" in table, row.name
