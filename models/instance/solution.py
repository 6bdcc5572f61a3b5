"""The result of a search: one decision for each gang and one result for each tier, in dense indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from models.documents.reason import ReasonFields
from models.instance.cluster import once_with
from models.instance.gang import ExistingPod, Gang
from models.tiers import Sense

Decision = Literal["place", "complete", "keep", "move", "resize", "preempt", "wait"]
ADMITTED: tuple[Decision, ...] = ("place", "complete", "keep", "move", "resize")
"""Decisions after which a gang has pods."""

STARTS: tuple[Decision, ...] = ("place", "complete")
"""Decisions that start a gang."""

Proof = Literal["exact", "numerical"]
StoppedBy = Literal["proof", "budget", "time", "signal"]

PassedOver = Literal["NoStart", "Promised"]
"""Why a gang that waits holds no reservation though one behind it, of its priority, does.

NoStart: no start was found for it within the horizon. Promised: an earlier plan promised that one a start.
"""

Cause = Literal["Arrival", "Failure", "Overrun", "Input"]
"""Why a stated start is later: gangs came since that go before it, or run where it was to start; nodes are
out of order or gone; gangs end later than was expected; or none of these, so that the input is another.
"""

NEVER = "Never"
"""Code of the reason of a gang that could not start even if nothing else ran."""

RESERVED = "Reserved"
"""Code of the reason of a gang that would fit, on nodes that are reserved for others."""

QUEUE_ORDER = "QueueOrder"
"""Code of the reason of a gang that would fit, behind another one of its strict queue."""


QUOTA = "Quota"
"""Code of the reason of a gang that a limit or a guarantee of a queue holds back."""

QUEUE_LIMIT: Final = "QueueLimit"
BACKOFF: Final = "Backoff"
"""Code of gangs that wait because their namespace has too many that wait."""


@dataclass(frozen=True, slots=True, order=True)
class PodPlacement:
    """One pod on one node. ``gpus``: bit mask; 0 for a pod without GPUs, None where the node decides."""

    role: int
    index: int
    node: int
    gpus: int | None


def placed(gang: Gang, pods: Iterable[ExistingPod]) -> tuple[PodPlacement, ...]:
    """Standing pods as the plan writes them."""
    return tuple(
        PodPlacement(p.role, p.index, p.node, p.gpus if gang.roles[p.role].gpus else 0)
        for p in sorted(pods, key=lambda p: (p.role, p.index))
        if p.node is not None
    )


@once_with
def standing_of(gang: Gang) -> tuple[PodPlacement, ...]:
    """The pods of the gang that run now, as the plan writes them."""
    return placed(gang, gang.running_pods)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a gang waits: a code (NoRoom, Resources, ...) and its facts (``models.documents.reason``).

    ``bare``: nothing is stated but the code.
    """

    code: str
    fields: ReasonFields = field(default_factory=ReasonFields)
    bare: bool = False

    @classmethod
    def of(cls, code: str, **fields: Any) -> Reason:  # noqa: ANN401  # of every field's own type
        """A reason with these fields, by their Python names."""
        return cls(code, ReasonFields.with_values(**fields))

    def with_fields(self, code: str | None = None, **fields: Any) -> Reason:  # noqa: ANN401
        """The same reason with more fields, or of another code."""
        more = ReasonFields.with_values(**fields).stated()
        return Reason(code or self.code, self.fields.model_copy(update=more))


QueuePlace = tuple[bool, int, bool, int, str, str]
"""Sort key of a gang in the queue: whether it is not within a guarantee, then the negated priority, ...

See ``models.queues.reservations.queue_place``.
"""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Nodes (indices, ascending) held for a gang from ``start`` to ``end``, if it is known.

    Of a gang that is to start now no node is held: it has to start, wherever it finds a place. Times are
    seconds since the epoch. ``gang``: its namespace and name, ``place``: in the queue.
    ``pods``: where they will be. ``beside``: gangs that need not give way, sorted.
    """

    gang: tuple[str, str]
    place: QueuePlace
    start: int
    end: int | None
    nodes: tuple[int, ...]
    pods: tuple[PodPlacement, ...] = ()
    beside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Delayed:
    """A start that an earlier plan stated, in seconds since the epoch, and that is later now, or dropped.

    ``by``: the gangs (namespace/name) or nodes that are the cause, sorted; empty where it is the input.
    """

    promised: int
    cause: Cause
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GangDecision:
    """``pods``: every pod after the plan, running or placed, sorted; empty for wait and preempt.

    ``reserved``: what is held for it. ``expected_start``: an estimate, in seconds since the epoch.
    ``passed_over``: why a gang behind it in
    the queue holds a reservation and it does not.
    """

    decision: Decision
    pods: tuple[PodPlacement, ...] = ()
    reason: Reason | None = None
    reserved: Reserved | None = None
    expected_start: int | None = None
    passed_over: PassedOver | None = None
    delayed: Delayed | None = None


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
    """Gangs that restart elsewhere together, and the gain over the best plan without these moves.

    ``gangs``, ``admitted``: indices into Instance.gangs, ascending; ``admitted`` wait without the moves.
    ``moved_gpus``: all GPUs the moved gangs hold now. The rest are differences, negative where the
    moves cost some: ``gpus`` (of all admitted gangs), ``bandwidth`` (GPUs x share, permille-GPU),
    ``whole_nodes`` and ``whole_domains`` (wholly free), ``gain`` (thousandths, rounded down): GPUs gained
    of these three kinds for each GPU moved. ``effective``: where the policy lists goodput, effective GPUs
    (permille-GPU), which then count in the gain in the place of ``gpus``.
    """

    gangs: tuple[int, ...]
    moved_gpus: int
    admitted: tuple[int, ...]
    gpus: int
    bandwidth: int
    whole_nodes: int
    whole_domains: int
    gain: int
    effective: int | None = None


ByPriority = tuple[tuple[int, int], ...]
"""(priority, effective GPUs in permille-GPU), the highest priority first."""


@dataclass(frozen=True, slots=True)
class Solution:
    """``decisions``: one for each gang, in Instance order. ``notes``: what the plan assumes, in sentences.

    ``moves``: every gang that moves, in exactly one set. ``one_at_a_time``: effective GPUs of
    the start, which takes one gang after another; None if the search ended before. ``solver_calls``: of the
    search, without those of its reasons.
    """

    decisions: tuple[GangDecision, ...]
    tiers: tuple[TierResult, ...]
    stopped_by: StoppedBy
    solver: str
    effort: float = 0.0
    notes: tuple[str, ...] = ()
    moves: tuple[MoveSet, ...] = ()
    one_at_a_time: ByPriority | None = None
    solver_calls: int = 0
