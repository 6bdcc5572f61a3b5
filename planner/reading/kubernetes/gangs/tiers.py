"""Volcano's networkTopology as the levels it asks for.

Promises: hard asks for the tier it names, soft prefers the lowest there is. Called by the Volcano
dialects of groups and of controllers.
"""

from __future__ import annotations

from planner.reading.kubernetes.forms import LevelAsk
from planner.reading.kubernetes.looking import Tree, mapping, number, text, whole

MODE = "volcano.sh/network-topology-mode"
TIER = "volcano.sh/network-topology-highest-tier"
NO_TIER = "hard network topology without a tier; Volcano does not honour it, and it is ignored"
_TIERS = 1000

LOWEST = LevelAsk(tier=0)


def asked(tree: Tree, *path: str) -> tuple[LevelAsk | None, LevelAsk | None, str | None]:
    """(required, preferred, what is odd) of the networkTopology below the path."""
    found = mapping(tree, *path)
    if not found:
        return None, None, None
    tier = whole(found, "highestTierAllowed")
    return _levels(text(found, "mode") or "hard", tier, text(found, "highestTierName"))


def annotated(notes: dict[str, str]) -> tuple[LevelAsk | None, LevelAsk | None, str | None]:
    """The same from annotations."""
    mode, tier = notes.get(MODE), notes.get(TIER)
    if mode is None and tier is None:
        return None, None, None
    return _levels(mode or "hard", number(tier), None if number(tier) is not None else tier)


def _levels(
    mode: str, tier: int | None, name: str | None
) -> tuple[LevelAsk | None, LevelAsk | None, str | None]:
    if mode == "soft":
        return None, LOWEST, None
    if mode != "hard":
        return None, None, f"network topology mode {mode[:40]!r} is unknown; it is ignored"
    if name is not None:
        return LevelAsk(tier_name=name), None, None
    if tier is None:
        return None, None, NO_TIER
    if not 0 <= tier <= _TIERS:
        return None, None, f"network topology tier {tier} is no tier; it is ignored"
    return LevelAsk(tier=tier), None, None
