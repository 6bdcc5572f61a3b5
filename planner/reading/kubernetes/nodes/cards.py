"""Whole cards of a node that HAMi hands out: what its registration lists.

Promises: a registration in which any card is cut up, or numbered oddly, lists none. Called by ``reading``
where the Policy's back end is HAMi; elsewhere such nodes count as giving fractions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.reading.kubernetes.looking import Tree, flag, number, text, whole
from planner.reading.kubernetes.nodes.facts import MOST_GPUS

REGISTER = "hami.io/node-nvidia-register"
_LONGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Cards:
    """``count``: indices are 0 to count - 1. ``sick``: those HAMi counts as unhealthy, ascending."""

    count: int
    sick: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Card:
    index: int | None
    healthy: bool
    cut: bool


def read_cards(annotations: Mapping[str, str]) -> Cards | None:
    """The cards of a node; None where HAMi registered none, or some of them are not given whole."""
    written = annotations.get(REGISTER, "").strip()
    if not written or len(written) > _LONGEST:
        return None
    cards = list(_json(written) if written.startswith("[") else _text(written))
    indices = sorted(-1 if card.index is None else card.index for card in cards)
    if any(card.cut for card in cards) or indices != list(range(len(cards))):
        return None
    sick = sorted(card.index or 0 for card in cards if not card.healthy)
    return Cards(len(cards), tuple(sick)) if 0 < len(cards) <= MOST_GPUS else None


def _json(written: str) -> Iterator[_Card]:
    """A list of objects; HAMi leaves out what is 0, false or empty."""
    try:
        entries = json.loads(written)
    except (ValueError, RecursionError):
        return
    for entry in entries:
        tree: Tree = entry if isinstance(entry, dict) else {}
        index = whole(tree, "index") if "index" in tree else 0
        named = text(tree, "id") is not None
        yield _Card(index if named else None, flag(tree, "health"), text(tree, "mode") == "mig")


def _text(written: str) -> Iterator[_Card]:
    """``uuid,count,memory,cores,type,numa,health[,index,mode]``, a colon after each."""
    for place, entry in enumerate(part for part in written.split(":") if part.strip()):
        fields = [field.strip() for field in entry.split(",")]
        stated = number(fields[7]) if len(fields) > 7 else place
        healthy = len(fields) > 6 and fields[6] == "true"
        yield _Card(stated if fields[0] else None, healthy, fields[8:9] == ["mig"])
