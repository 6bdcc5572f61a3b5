"""What goes into the apply state machine and comes out: limits, requests, events that answer, the verdict.

Plain data without I/O: ``planner.cluster.request_sender`` turns requests into HTTP, tests answer from memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from models.apply.live_state import ClusterView, LivePod
from models.apply.notes import RunNotes
from models.apply.placement_requests import LiveRequest
from models.apply.plan_actions import Key, Named, PodStart, PodStop, Resize
from models.apply.records import RecordKey, StartRecord
from models.instance.policy import KubernetesPolicy

# ---- requests


@dataclass(frozen=True, slots=True)
class CheckLock:
    """Before each gang and while waiting: may the run go on? Answered with LockHeld or Halt.

    ``begun``: pods of a gang are being started, so that after a signal it gets a few more seconds.
    """

    begun: bool = False


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write the record of a start; where there is one already, over the version that was last seen.

    ``pods``: that start next. Rejected before anything is written if one of them could not.
    """

    record: StartRecord
    pods: tuple[PodStart, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveRecord:
    """Remove the record of a start, in the version that was last seen."""

    key: RecordKey


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read one record again. Answered with Done, Gone, Denied or NoAnswer."""

    key: RecordKey


@dataclass(frozen=True, slots=True)
class AllocateDevices:
    """Allocate the pod's devices if the GPU back end has objects for that (DRA); idempotent."""

    pod: PodStart
    seen: LivePod


class ReleaseDevices(Named, frozen=True):
    """Take back the devices of a pod that has not started; idempotent."""


@dataclass(frozen=True, slots=True)
class Ungate:
    """Remove our gate and pin the pod to its node in one patch. Preconditions: uid and ``version``."""

    pod: PodStart
    seen: LivePod


@dataclass(frozen=True, slots=True)
class LabelNode:
    """Set a label of a node to the value; None takes it off. Precondition: the uid that was read."""

    node: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Set the status of a request for a placement. Preconditions: uid and version.

    ``state``: placed (with ``details``), waits (without), or over.
    """

    seen: LiveRequest
    state: str
    message: str
    details: Mapping[str, str] = field(default_factory=dict)


class ReadPod(Named, frozen=True):
    """Read one pod. Answered with Done, Gone, Denied or NoAnswer."""


@dataclass(frozen=True, slots=True)
class ReadCluster:
    """Read nodes and pods, after ``after_s`` seconds. Answered with ClusterRead, Halt, Denied or NoAnswer."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod through the Eviction API. Precondition: uid."""

    pod: PodStop


@dataclass(frozen=True, slots=True)
class Scale:
    """Set the replicas of a role through the scale subresource of the controller of ``member``.

    ``going``: the pods that are to go; where the controller chooses, they are marked as its first choice.
    """

    gang: Key
    resize: Resize
    member: Key
    going: tuple[PodStop, ...] = ()


Single = WriteRecord | RemoveRecord | Ungate
"""Requests that may be on their way together."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Leave these notes to later runs, in place of all earlier ones. Answered with Done or NoAnswer."""

    notes: RunNotes


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Independent requests, sent over several connections without waiting for the answers in between.

    Of one gang they start nothing, or at most one pod. Answered with EventGroup: one event per request,
    in order; a failure does not stop the others.
    """

    requests: tuple[Single, ...]


Request = (
    CheckLock
    | WriteRecord
    | RemoveRecord
    | ReadRecord
    | AllocateDevices
    | ReleaseDevices
    | Ungate
    | LabelNode
    | AnswerRequest
    | ReadPod
    | ReadCluster
    | Evict
    | Scale
    | Remember
    | RequestGroup
)

# ---- events


@dataclass(frozen=True, slots=True)
class LockHeld:
    """The run may go on. ``reread``: the last reading of the cluster is too old to start a gang."""

    reread: bool = False


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the run before the next write. ``lock``: the lock is lost; otherwise a signal."""

    why: str
    lock: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """Success. ``pod``, ``record``: as they are now, if the answer shows it."""

    pod: LivePod | None = None
    record: StartRecord | None = None


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """The cluster as it is now."""

    view: ClusterView


@dataclass(frozen=True, slots=True)
class NotDone:
    """A write or a reading that failed. ``message``: of the server."""

    message: str


class Conflict(NotDone):
    """409: the object changed since it was read. Read, compare, then retry or give up."""


class Gone(NotDone):
    """404, or another pod has the name (its uid differs)."""


class Rejected(NotDone):
    """The server refuses permanently: 400, 403, 422, or there is no such field."""


class Denied(Rejected):
    """403: the account has no right to do it, or has lost it. It may be granted again."""


class BlockedByBudget(NotDone):
    """429: a PodDisruptionBudget forbids the eviction for now. Nothing happened."""


class NoAnswer(NotDone):
    """Unknown whether it was done: no answer or 5xx, after all retries of the transport."""


@dataclass(frozen=True, slots=True)
class EventGroup:
    """One event per request of a RequestGroup, in order."""

    events: tuple[Event, ...]


Event = LockHeld | Halt | Done | ClusterRead | NotDone | EventGroup

_T = TypeVar("_T")
Steps = Generator[Request, Event, _T]
"""A part of the machine that yields requests and returns a result."""


def message_of(event: Event) -> str:
    """The server's message; empty if the event has none."""
    return event.message if isinstance(event, NotDone) else ""


# ---- limits and results

_DEFAULTS = KubernetesPolicy()

_LONGEST_WAIT = 5
"""Most ticks between two readings."""


@dataclass(frozen=True, slots=True)
class ApplyLimits:
    """``max_evictions``: pods that this run may evict. ``evict_partial``: evict partial gangs.

    ``wait_rounds``: ticks of ``tick_s`` seconds to wait at most for pods to go, appear or be bound.
    ``gate``, ``backend``, ``pending_limit_s``: of the Policy. ``dry``: nothing is written, so nothing is
    waited for.
    """

    allow_evictions: bool = False
    max_evictions: int = 0
    evict_partial: bool = False
    wait_rounds: int = 30
    tick_s: float = 2.0
    gate: str = _DEFAULTS.scheduling_gate
    backend: str = "annotation"
    dry: bool = False
    pending_limit_s: int | None = _DEFAULTS.pending_limit_s

    def waits(self) -> Iterator[float]:
        """Seconds before each further reading, growing; ``wait_rounds * tick_s`` in total."""
        left, last, step = self.wait_rounds, 0, 1
        while left > 0:
            taken = min(step, left, _LONGEST_WAIT)
            yield taken * self.tick_s
            left -= taken
            last, step = step, last + step


class Outcome(StrEnum):
    """Result for one gang."""

    started = "started"
    """Every pod is bound."""
    pending = "pending"
    """Every pod is started; the scheduler has not bound all of them yet."""
    unchanged = "unchanged"
    """It was whole before: nothing was written."""
    skipped = "skipped"
    """Nothing of it is started and no record is left: a conflict, or a fact the plan relied on changed."""
    partial = "partial"
    """Some pods are started and the others cannot be: needs an operator or --evict-partial."""
    halted = "halted"
    """The run stopped in the middle of it: the same command resumes it."""
    stopped = "stopped"
    """The pods that had to go are gone: preempted or about to restart elsewhere."""
    resized = "resized"
    """Its controller has another number of pods: it shrank, or a later plan starts its new pods."""
    withheld = "withheld"
    """It needs evictions that are not allowed or that a budget forbids."""
    undone = "undone"
    """It was partial, and its started pods were evicted."""
    advised = "advised"
    """Its controller has no scale field that we may set: an operator has to resize it."""


PodId = tuple[str, str, str]
"""(namespace, name, uid)."""


def pod_ids(pods: Iterable[PodStart | LivePod]) -> tuple[PodId, ...]:
    return tuple((*pod.key, pod.uid) for pod in pods)


@dataclass(frozen=True, slots=True)
class GangVerdict:
    """``why``: one sentence, empty if the outcome says everything. ``pods``: started now.

    ``undo``: the running pods of a gang that is partial or half stopped.
    ``plan``: id of the plan that started it.
    """

    gang: Key
    outcome: Outcome
    plan: str
    why: str = ""
    pods: int = 0
    undo: tuple[PodId, ...] = ()
    resizes: tuple[Resize, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a run. ``stop``: why it ended early. ``writes``: requests that changed something, perhaps."""

    gangs: tuple[GangVerdict, ...] = ()
    stop: str | None = None
    writes: int = 0
    evicted: int = 0
