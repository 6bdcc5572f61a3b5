"""What a search returns: one decision a gang and one result a tier, in dense indices.

Promises: frozen data, solver-free; ``models.plan`` turns it into the plan document.
Built by ``planner.search`` (greedy and exact alike).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.tiers import Sense

Decision = Literal["place", "complete", "keep", "move", "resize", "preempt", "wait"]
Proof = Literal["exact", "numerical"]
StoppedBy = Literal["proof", "budget", "time", "signal"]


@dataclass(frozen=True, slots=True, order=True)
class PodPlacement:
    """One pod on one node. ``gpus``: bit mask, 0 for a pod without GPUs, None where the node decides."""

    role: int
    index: int
    node: int
    gpus: int | None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a gang waits: a code of the contract (NoRoom, Resources, ...) and one sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class GangDecision:
    """``pods``: every pod after the plan (standing and placed), sorted; empty for wait and preempt."""

    decision: Decision
    pods: tuple[PodPlacement, ...] = ()
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class TierResult:
    """``value``: of the final plan; ``best``: when the tier was solved; ``bound``: no plan beats it."""

    name: str
    sense: Sense
    value: int
    best: int
    bound: int
    proof: Proof | None

    @property
    def gap(self) -> float:
        return abs(self.bound - self.best) / max(1, abs(self.best))


@dataclass(frozen=True, slots=True)
class MoveSet:
    """Gangs that restart elsewhere together, and what that bought against the best plan without it.

    ``gangs``, ``admitted``: indices into Instance.gangs, ascending; ``admitted`` wait without the moves.
    ``moved_gpus``: all GPUs the moved gangs hold now. The rest are differences, negative where the
    moves cost some: ``gpus`` (w of all admitted gangs), ``bandwidth`` (w x share, permille-GPU),
    ``whole_nodes`` and ``whole_domains`` (wholly free), ``gain`` (thousandths, rounded down): GPUs bought
    of these three kinds for each GPU moved.
    """

    gangs: tuple[int, ...]
    moved_gpus: int
    admitted: tuple[int, ...]
    gpus: int
    bandwidth: int
    whole_nodes: int
    whole_domains: int
    gain: int


@dataclass(frozen=True, slots=True)
class Solution:
    """``decisions``: one a gang, in Instance order. ``notes``: what the plan assumes, in sentences.

    ``moves``: the gangs decided ``move``, each in one set.
    """

    decisions: tuple[GangDecision, ...]
    tiers: tuple[TierResult, ...]
    stopped_by: StoppedBy
    solver: str
    effort: float = 0.0
    notes: tuple[str, ...] = ()
    moves: tuple[MoveSet, ...] = ()
