"""How far one run may go: evictions, waits, and how pods of ours are told.

Promises: plain data. Made by ``planner.applying``; read by the machine in this package.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.policy import KubernetesPolicy

_DEFAULTS = KubernetesPolicy()


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_evictions``: pods evicted in this run at most. ``evict_partial``: undo what is partial.

    ``wait_rounds``: so often the cluster is read again, ``tick_s`` seconds apart, while pods go or are
    being bound. ``gate``, ``scheduler``, ``backend``: of the Policy. ``dry``: nothing is really written,
    so nothing is waited for.
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
