"""Predicted speed of a gang: what communication and the GPU model leave of the speed of an ideal placement.

Permille, in steps of 20: placements that differ by less count as equal, so that ages decide between gangs.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from models.hardware import ServerModel

FULL_SPEED = 1000
"""Speeds are in permille of the same gang with ideal links on the fastest GPUs of the cluster."""

SPEED_STEP = 20
"""Speeds are multiples of it."""


def speed_permille(share: int | None, fraction: Fraction, relative: int = FULL_SPEED) -> int:
    """The largest step that ``1000 relative / ((1000 - c) + 1000 c / share)`` reaches, c = 1000 ``fraction``.

    A step of an iteration on ideal links takes 1: 1 - fraction without communication, and fraction, which
    grows as the bandwidth falls below the ideal. ``share``: permille of the ideal bandwidth, None where
    nothing is communicated. ``relative``: permille of the speed of the fastest GPU model.
    """
    slowdown = Fraction(1)
    if share is not None:
        slowdown = 1 - fraction + fraction * FULL_SPEED / max(1, share)
    return SPEED_STEP * int(relative / slowdown / SPEED_STEP)


class RelativeSpeeds:
    """Speed of server models next to the fastest of the cluster's nodes with GPUs.

    A model without ``relative_speed`` counts as the slowest that has one; all are alike where none has.
    ``models``: these models. ``unknown``: those without. ``slowest``: None where none has one.
    """

    def __init__(self, models: Iterable[ServerModel | None]) -> None:
        self.models = tuple({id(m): m for m in models if m is not None and m.gpus}.values())
        self.unknown = tuple(m for m in self.models if m.relative_speed is None)
        known = [m.relative_speed for m in self.models if m.relative_speed is not None]
        self.slowest = min(known, default=None)
        self._fastest = max(known, default=None)

    def of(self, models: Iterable[ServerModel]) -> int:
        """Permille of the fastest: the slowest of these models; 1000 without any."""
        if self._fastest is None or self.slowest is None:
            return FULL_SPEED
        slowest = min((m.relative_speed or self.slowest for m in models), default=self._fastest)
        return int(FULL_SPEED * slowest / self._fastest)
