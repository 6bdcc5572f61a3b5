"""How far one run may go: evictions, waits, and how pods of ours are told.

Promises: plain data. Made by ``planner.live.applying``; read by the machine in this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from models.policy import KubernetesPolicy

_DEFAULTS = KubernetesPolicy()

_LONGEST = 5
"""Ticks between two looks at most."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_evictions``: pods evicted in this run at most. ``evict_partial``: undo what is partial.

    ``wait_rounds``: so many times ``tick_s`` seconds are waited at most while pods go, come or are being
    bound. ``gate``, ``scheduler``, ``backend``: of the Policy. ``dry``: nothing is really written,
    so nothing is waited for. ``open_nodes``: (node, why) that no further gang is bound to, for other
    schedulers may fill them.
    """

    allow_evictions: bool = False
    max_evictions: int = 0
    evict_partial: bool = False
    wait_rounds: int = 30
    tick_s: float = 2.0
    gate: str = _DEFAULTS.scheduling_gate
    scheduler: str = _DEFAULTS.scheduler_name
    backend: str = "annotation"
    dry: bool = False
    open_nodes: tuple[tuple[str, str], ...] = ()

    def waits(self) -> Iterator[float]:
        """Seconds before each next look while something is waited for: short at first, then longer.

        Reading a large cluster takes seconds itself. Together they are ``wait_rounds * tick_s``.
        """
        left, last, step = self.wait_rounds, 0, 1
        while left > 0:
            taken = min(step, left, _LONGEST)
            yield taken * self.tick_s
            left -= taken
            last, step = step, last + step
