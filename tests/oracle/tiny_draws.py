"""Draws by seed and topic, with the features of ``features.yaml``.

Called by the generators of tiny instances.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import yaml

FEATURES: Mapping[str, Mapping[str, Any]] = yaml.load(
    Path(__file__).with_name("features.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
HOUR = 3600


class Draws:
    """Random numbers of one seed; ``without``: features that never occur, ``more``: three times as often.

    What is drawn for one topic never depends on the draws, or on the switches, of another.
    """

    def __init__(
        self,
        seed: int,
        without: Collection[str] = (),
        more: Collection[str] = (),
        *,
        busy: bool = False,
    ) -> None:
        if unknown := sorted({*without, *more} - FEATURES.keys()):
            raise ValueError(f"no such feature: {', '.join(unknown)}")
        self.seed, self.without, self.more = seed, frozenset(without), frozenset(more)
        self.busy = busy

    def random(self, topic: str) -> Random:
        return Random(f"{self.seed}/{topic}")

    def on(self, feature: str, r: Random, chance: float | None = None) -> bool:
        """Whether a feature occurs here; always draws, so that switching it off moves nothing else."""
        known = FEATURES[feature]
        if chance is None or (self.busy and "busy" in known):
            chance = known["busy"] if self.busy and "busy" in known else known["chance"]
        often = min(0.9, 3 * chance) if feature in self.more else chance
        on = r.random() < often and feature not in self.without
        return on and (not known.get("asked") or self.asked(feature))

    def asked(self, feature: str) -> bool:
        """Whether a feature was asked for."""
        return feature in self.more and feature not in self.without

    def share(self, r: Random) -> Fraction:
        """A minBandwidthShare."""
        return Fraction(r.choice((100, 250, 500, 500, 800, 1000)), 1000)
