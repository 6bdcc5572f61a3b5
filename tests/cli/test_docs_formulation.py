"""docs/formulation.md against the code: modules and constants that it cites exist, shares are in force."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models import tiers
from planner.search.bound import tier_search
from planner.search.engines import portfolio

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "formulation.md").read_text(encoding="utf-8")

SHARES = {
    "ADMISSION_SHARE": (tier_search.ADMISSION_SHARE, 35),
    "CLOCK_SHARE": (portfolio.CLOCK_SHARE, 15),
    "LAST_SHARE": (tier_search.LAST_SHARE, 80),
}


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
    sources = "".join(
        path.read_text(encoding="utf-8")
        for room in ("models", "planner")
        for path in (ROOT / room).rglob("*.py")
    )
    for name in set(re.findall(r"`([A-Z]+_[A-Z_]+)`", TEXT)):
        assert re.search(rf"^{name}\b", sources, re.MULTILINE), name


@pytest.mark.parametrize("name", SHARES)
def test_a_share_is_the_one_in_force(name: str) -> None:
    value, percent = SHARES[name]
    assert round(100 * value) == percent
    assert f"`{name}`" in TEXT
    assert f"{percent} %" in TEXT


def test_every_tier_has_a_row() -> None:
    table = TEXT[TEXT.index("## 4. Best") : TEXT.index("## 5. The plan")]
    for row in tiers.TIERS:
        assert f"`{row.name}" in table, row.name
