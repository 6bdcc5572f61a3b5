"""Requests the machine makes, one at a time, and the events that answer them.

Promises: plain data; what HTTP they become is the carrier's business (``planner.cluster.sending``).
Made by the machine in this package; tests answer them from memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.apply.intents import Intent
from models.apply.live_state import ClusterView, LivePod
from models.apply.orders import Key, PodOrder, PodStop, Resize

# ---- requests


@dataclass(frozen=True, slots=True)
class CheckLock:
    """Before each gang, and while waiting: whether the lock is ours for long enough, and we may go on.

    ``what``: the gang next, for messages. ``begun``: its pods are being started, so that a signal lets
    it go on for a few seconds more. Answered with Held or Stop.
    """

    what: str
    begun: bool = False


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """Write the intent on a pod, with uid and ``version`` as preconditions."""

    pod: PodOrder
    intent: Intent
    version: str


@dataclass(frozen=True, slots=True)
class RemoveIntent:
    """Take an intent of ours off a pod that was never started, with uid and ``version``."""

    namespace: str
    name: str
    uid: str
    version: str

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class AllocateDevices:
    """Give the pod its devices where the back end has an object for that (DRA); idempotent."""

    pod: PodOrder
    seen: LivePod


@dataclass(frozen=True, slots=True)
class DryRunBind:
    """A server-side dry run of the binding, with the uid; the event Done says it would do."""

    pod: PodOrder


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take our gate off, pin the pod to its node, in one patch with uid and ``version``.

    ``pin``: False for a pod that is bound by us afterwards; a pin could not be undone.
    """

    pod: PodOrder
    seen: LivePod
    pin: bool = True


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the pod to its node, with uid and ``version``."""

    pod: PodOrder
    version: str


@dataclass(frozen=True, slots=True)
class ReadPod:
    """Read one pod again. Answered with Done, Gone or Lost."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ReadCluster:
    """Read nodes and pods again, after ``after_s`` seconds. Answered with Around, Stop or Lost."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod through the Eviction API, with its uid as precondition."""

    pod: PodStop


@dataclass(frozen=True, slots=True)
class Scale:
    """Set the number of pods of a role through its controller's scale field.

    ``member``: a pod of the role, whose controller it is. Refused where it has no such field.
    """

    gang: Key
    resize: Resize
    member: Key


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests none of which starts anything or depends on another, on their way together, in order.

    Answered with Answers, an event each: whichever of them fails, the others are carried out.
    """

    requests: tuple[WriteIntent | DryRunBind, ...]


Request = (
    CheckLock
    | WriteIntent
    | RemoveIntent
    | AllocateDevices
    | DryRunBind
    | Ungate
    | Bind
    | ReadPod
    | ReadCluster
    | Evict
    | Scale
    | RequestGroup
)

# ---- events


@dataclass(frozen=True, slots=True)
class LockHeld:
    """The lock is ours for long enough. ``due``: it is time to read everything again."""

    due: bool = False


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop here, between two writes.

    ``lock``: the lock is no longer ours; else a signal, or the end of the time allowed.
    """

    why: str
    lock: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """It was done. ``pod``: as it is now, where the answer says so; None if it does not."""

    pod: LivePod | None = None


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """The cluster as it is now."""

    view: ClusterView


@dataclass(frozen=True, slots=True)
class Conflict:
    """409: something changed since it was read. Look again, compare, then try again or give up."""

    message: str


@dataclass(frozen=True, slots=True)
class Gone:
    """404, or another pod stands under that name (its uid differs)."""

    message: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The server will not do it, however often it is asked: 400, 403, 422, or no such field."""

    message: str


@dataclass(frozen=True, slots=True)
class BlockedByBudget:
    """Not now: a PodDisruptionBudget forbids the eviction (429). Nothing happened."""

    message: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nobody knows whether it was done: the answer did not arrive, or said 5xx, as often as was tried."""

    message: str


@dataclass(frozen=True, slots=True)
class EventGroup:
    """One event for each of several requests, in their order."""

    events: tuple[Event, ...]


Event = (
    LockHeld
    | Halt
    | Done
    | ClusterRead
    | Conflict
    | Gone
    | Rejected
    | BlockedByBudget
    | NoAnswer
    | EventGroup
)
