"""What a plan orders: per gang the pods to start and to stop, and the sizes to change.

Promises: pure; read from the plan document alone; a plan without the identity of its cluster, or of
a pod, cannot be ordered. Called by ``planner.cluster`` and the machine in this package.
"""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, str]
"""(namespace, name) of a pod or a gang."""


@dataclass(frozen=True, slots=True)
class PodOrder:
    """A pod to start on ``node``. ``gpus``: indices, ascending; None where the node decides.

    ``gpu_count``: whole GPUs it asks for. ``requests``: other resources (cpu in millicores, others in
    whole units), sorted. ``mode``: how it can be started, as the plan's input says: gate or binding.
    """

    namespace: str
    name: str
    uid: str
    role: str
    index: int
    node: str
    gpus: tuple[int, ...] | None
    gpu_count: int
    requests: tuple[tuple[str, int], ...] = ()
    mode: str | None = None

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class PodStop:
    """A standing pod that has to go: its gang is stopped, shrinks or moves."""

    namespace: str
    name: str
    uid: str
    role: str
    index: int
    node: str
    gpu_count: int

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Resize:
    """A role whose number of pods the plan changes, from ``before`` to ``after``."""

    role: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class GangOrder:
    """What the plan does with one gang.

    ``decision``: place, complete, move, resize or preempt (keep and wait order nothing).
    ``starts``: pods to start together, by (role, index); ``stops``: pods to evict before.
    ``weight``: w(gang) of the contract. ``submitted_at``: seconds since the epoch, None if unknown.
    ``members``: (role, pod) of one standing pod a role that is resized: its controller has the scale.
    """

    namespace: str
    name: str
    decision: str
    priority: int
    weight: int
    submitted_at: int | None = None
    starts: tuple[PodOrder, ...] = ()
    stops: tuple[PodStop, ...] = ()
    resizes: tuple[Resize, ...] = ()
    members: tuple[tuple[str, Key], ...] = ()

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class NodeRelied:
    """What the plan took for granted of a node it starts pods on.

    ``domains``: (level label, value) of the topology levels that have a label. ``labels``: the labels
    that selectors of its pods ask for; ``absent``: those they ask about and it did not have.
    ``taints``: (key, value, effect) that were there. ``gpus``: healthy.
    """

    name: str
    gpus: int
    domains: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything a plan orders. ``cluster``: uid of the namespace kube-system. Sorted by gang key.

    ``created_at``: RFC 3339 UTC, of the plan. ``gate``, ``scheduler``, ``backend``: of its Policy.
    """

    plan: str
    cluster: str
    created_at: str
    gate: str
    scheduler: str
    backend: str
    gangs: tuple[GangOrder, ...]
    nodes: tuple[NodeRelied, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods to start or stop, sorted."""
        return tuple(sorted({gang.namespace for gang in self.gangs if gang.starts or gang.stops}))
