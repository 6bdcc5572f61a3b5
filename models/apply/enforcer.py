"""What must become true for a gang to run, and by which writes: one Enforcer for each way to start gangs.

Enforcers are pure and decide what is written. When is the machine's: it has the lock, budgets, tries,
recovery and verdicts, and sends one write after the other, each only until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from models.apply.live_state import ClusterView, PodState
from models.apply.plan_actions import GangActions, Key, PodStart
from models.apply.records import PodPlace, RecordKey, StartRecord
from models.apply.requests import Done, RemoveRecord, Request, WriteRecord


@dataclass(frozen=True, slots=True)
class PodBatch:
    """Pods of one gang that start together. ``plan``: id of the plan that starts them.

    ``size``: pods that start together, of which some may be missing in ``pods``.
    """

    gang: Key
    plan: str
    size: int
    pods: tuple[PodStart, ...]

    @classmethod
    def of(cls, plan: str, gang: GangActions) -> PodBatch:
        """All pods that the plan starts of a gang."""
        return cls(gang.key, plan, len(gang.starts), gang.starts)

    @property
    def key(self) -> RecordKey:
        """Of the record of its start."""
        return self.gang, self.plan


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one object. It may be sent again until the view shows that it is done.

    ``what``: the object, as messages begin: ``pod vit-3``. ``about``: what is read again after a conflict or
    without an answer, a pod or a record; None: the whole cluster. ``request``: with the preconditions of the
    object as the view has it, which has no obstacle. ``obstacle``: why it must not be sent, in words that go
    on after ``what``: ``is being deleted``. ``learn``: enters a success into the view: the object of the
    answer or, without one, what it means.
    """

    what: str
    about: PodStart | RecordKey | None
    request: Callable[[ClusterView], Request]
    done: Callable[[ClusterView], bool]
    obstacle: Callable[[ClusterView], str | None]
    learn: Callable[[ClusterView, Done], None] = lambda *_: None


def recorded(
    key: RecordKey,
    before: StartRecord | None,
    after: StartRecord | None,
    pods: tuple[PodStart, ...] = (),
) -> Write:
    """The record of a start is as ``after``, or gone; ``before``: as it was when that was decided.

    ``pods``: that start next.
    """

    def obstacle(view: ClusterView) -> str | None:
        same = view.records.get(key) == before
        return None if same else "was written by another run"

    return Write(
        "the record of its start",
        key,
        lambda _: RemoveRecord(key) if after is None else WriteRecord(after, pods),
        lambda view: view.records.get(key) == after,
        obstacle,
        lambda view, answer: view.enter(key, answer.record or after),
    )


@dataclass(frozen=True, slots=True)
class WritePlan:
    """``prepare``: lets nothing run, and can be taken back. ``start``: each may let a part of the gang run.

    In order; the machine stops at the first that fails.
    """

    prepare: tuple[Write, ...] = ()
    start: tuple[Write, ...] = ()


class Enforcer(Protocol):
    """One way to start gangs. Of each start the machine keeps a record, written before anything else."""

    def refusal(self, view: ClusterView, batch: PodBatch) -> str | None:
        """Why the batch cannot be started, as far as the view shows; asked before the first write."""

    def places(self, view: ClusterView, batch: PodBatch) -> tuple[PodPlace, ...]:
        """What to record of each pod; asked of a batch that it does not refuse.

        Nothing where its last write alone starts the whole gang, and shows later runs that it did.
        """

    def plan(self, view: ClusterView, batch: PodBatch) -> WritePlan:
        """What is left to write until the whole batch is started; it is recorded by now."""

    def withdrawal(self, view: ClusterView, batch: PodBatch) -> tuple[Write, ...]:
        """What takes back everything written for the parts that have not started, but for the record."""

    def state(self, view: ClusterView, order: PodStart) -> PodState:
        """How far a part of the batch is."""
