"""The instance in dense indices, as the rules and values of the judge read it.

Level ``len(levels)`` is the node level. GPU sets are bit masks. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from models.documents.cluster import GpuSharing, Level, Taint
from models.documents.gang import GangDocument, NodeExpression, Parallelism, Toleration
from models.documents.policy import PolicySpec
from models.documents.queue import QueueSpec
from models.hardware import Nic, ServerModel


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod on one node. ``gpus``: a mask, None where unknown, 0 for a pod without GPUs."""

    role: int
    index: int
    node: int
    gpus: int | None


PARTS = ("nvidia.com/mig-", "share.gangplan.dev/")
"""Begin the names of instances (MIG) and of parts of GPUs."""

PodKey = tuple[int, int]
"""(role, index) of a pod of its gang."""


@dataclass(frozen=True, slots=True)
class Sharer:
    """A GPU of which pods have parts, by index or by name, and the resources of these.

    ``instances``: of instances (MIG) the resource, and the memory slice where it begins.
    """

    gpu: int | str
    parts: tuple[str, ...]
    instances: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """``domain[l]``: index of its domain at level l, the node level last.

    ``named``: levels, from the widest, at which it has a value, and ``names`` of its domains there.
    ``labels`` include the implied ones. ``selected``: by the policy. ``usable``: that, ready and not
    cordoned. ``held``: what its pods of no gang hold, which is not in ``allocatable``. ``suspect``: it
    failed lately. ``unhealthy`` has the ``partitioned`` GPUs as well, which no repair makes whole, and
    ``unknown_unhealthy`` those of ``unknown_partitioned``. ``comes``: those that the plan
    partitions. ``could``: instances that its GPUs could have besides, but not all at once.
    ``mig_mode``: GPUs that never become whole, though no instances are stated of them.
    ``stated``: what the document says is allocatable, without instances to come. ``sharers``: GPUs that pods
    which run share, which count as partitioned; ``comes`` and ``unknown_comes`` have those that the plan
    shares. ``released``: those that nobody shares any more.
    """

    name: str
    model: ServerModel | None
    domain: tuple[int, ...]
    named: int
    names: tuple[str, ...]
    allocatable: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    nics: tuple[Nic, ...]
    selected: bool
    usable: bool
    unhealthy: int
    partitioned: int
    unknown_unhealthy: int
    unknown_partitioned: int
    dynamic_mig: str | None
    mig_mode: tuple[int, ...]
    comes: int
    released: int
    could: Mapping[str, int]
    sharing: GpuSharing | None
    sharers: tuple[Sharer, ...]
    unknown_comes: int
    stated: Mapping[str, int]
    held: Mapping[str, int]
    suspect: bool

    def has(self, level: int) -> bool:
        """Whether it has a value at a level; without one it is a domain of its own there."""
        return level < self.named or level == len(self.domain) - 1

    @property
    def gpus(self) -> int:
        return self.model.gpus if self.model else 0

    @property
    def whole_gpus(self) -> int:
        """GPUs that are not partitioned."""
        return self.gpus - self.partitioned.bit_count() - self.unknown_partitioned

    @property
    def as_it_was(self) -> Node:
        """Before the plan partitions GPUs: as if its GPUs could have all instances at once."""
        if not (self.comes or self.unknown_comes or self.could or self.released):
            return self
        offered = {name: most + self.could.get(name, 0) for name, most in self.allocatable.items()}
        return replace(
            self,
            partitioned=(self.partitioned & ~self.comes) | self.released,
            unhealthy=(self.unhealthy & ~self.comes) | self.released,
            unknown_unhealthy=self.unknown_unhealthy - self.unknown_comes,
            unknown_partitioned=self.unknown_partitioned - self.unknown_comes,
            comes=0,
            released=0,
            unknown_comes=0,
            could={},
            allocatable=offered,
        )

    @property
    def all_gpus(self) -> int:
        return (1 << self.gpus) - 1

    @property
    def healthy(self) -> int:
        """Mask of the GPUs not known to be unhealthy, and not partitioned."""
        return self.all_gpus & ~self.unhealthy


@dataclass(frozen=True, slots=True)
class PodRule:
    """What ``rule`` (its name as a violation) asks about the pods of a set, None: of the role itself.

    ``max_skew``, ``min_domains``: of ``spread``.
    """

    rule: str
    level: int
    pod_set: str | None
    max_skew: int = 0
    min_domains: int = 1


@dataclass(frozen=True, slots=True)
class Role:
    """``model``: slug of a GPU or server model. ``first``: index of its first pod.

    ``slices``: (size, level) of every layer. ``affinity``: to nodes: terms, any of which must hold.
    ``pod_sets``: sets that its pods are in. ``parallelism``: as stated. ``counts``: of a pod, in
    ``Facts.gpu_unit``.
    """

    name: str
    min: int
    max: int
    step: int
    elastic: bool
    first: int
    gpus: int
    counts: int
    requests: Mapping[str, int]
    required: int | None
    preferred: int | None
    slices: tuple[tuple[int, int], ...]
    selector: Mapping[str, str]
    affinity: tuple[tuple[NodeExpression, ...], ...]
    tolerations: tuple[Toleration, ...]
    model: str | None
    mix_models: bool
    pod_sets: tuple[str, ...]
    pod_rules: tuple[PodRule, ...]
    parallelism: Parallelism | None

    def allows(self, count: int) -> bool:
        """Whether the role may run with ``count`` pods."""
        return self.min <= count <= self.max and (count - self.min) % self.step == 0

    def gapless(self, indices: Collection[int]) -> bool:
        """Whether distinct indices are its first ones."""
        if not indices:
            return True
        return min(indices) == self.first and max(indices) == self.first + len(indices) - 1


def uses_parts(role: Role) -> bool:
    """Whether its pods have instances or parts of GPUs."""
    return any(name.startswith(PARTS) for name in role.requests)


def uses_gpus(role: Role) -> bool:
    """Whether its pods have GPUs, or instances or parts of some."""
    return bool(role.gpus) or uses_parts(role)


@dataclass(frozen=True)
class Gang:
    """``existing``: (name, uid) of every existing pod. ``running_pods``: the pods that run.

    ``scheduler``: whose waiting pods it has, None for gangplan's own.
    ``hold``: code of the reason why no pod of it may be placed, ``hold_text``: its sentence. ``joined``:
    NVLink between servers counts for it. ``fraction``: part of a step spent in communication where links
    are ideal. ``counts_speed``: whether slower GPU models slow it down. ``planned``: nodes where an earlier
    plan placed its pods. ``budgets``: disruption budgets of running pods that have any. ``duration``:
    seconds it is expected to run. ``balance``, ``exclusive``: levels. ``ranks``: of pods that an earlier plan
    dealt one. ``submitted``: or evicted, whichever was later.
    ``min_run_time``: seconds after ``since``, its first start or a later move, that it is left alone, its
    evictions counted. ``starts_again``: when it may start after these, None without any or where the policy
    does not say. ``together``: groups of roles that should share a domain of a level; ``near``: names of
    gangs, and the level.
    ``priority``: with its band under ``order: shortest``; ``stated_priority``: without.
    ``shown_priority``: that of its own scheduler, where a document states it.
    ``document``: what it states, for what only one rule reads.
    """

    namespace: str
    name: str
    priority: int
    stated_priority: int
    shown_priority: int
    submitted: int | None
    preemptible: bool
    movable: bool
    required: int | None
    preferred: int | None
    min_share: Fraction
    pattern: str
    weight: int
    joined: bool
    fraction: Fraction
    counts_speed: bool
    service: str | None
    roles: tuple[Role, ...]
    existing: Mapping[PodKey, tuple[str, str | None]]
    running_pods: Mapping[PodKey, Pod]
    hold: str | None
    hold_text: str | None
    started: int | None
    since: int | None
    min_run_time: int
    starts_again: int | None
    checkpoint: int | None
    resize_after: int | None
    planned: Mapping[PodKey, int]
    budgets: Mapping[PodKey, tuple[str, ...]]
    queue: str | None
    scheduler: str | None
    duration: int | None
    balance: int | None
    exclusive: int | None
    ordered: bool
    together: tuple[tuple[frozenset[int], int], ...]
    near: tuple[tuple[str, ...], int] | None
    ranks: Mapping[PodKey, int]
    document: GangDocument = field(compare=False, repr=False)
    # What every rule asks for follows when the gang is read. ``whole``: whether the running pods of every
    # role are its first indices, of an allowed count. ``counts_at_min``: what it counts; ``w``: or 1 if that
    # is nothing.
    key: tuple[str, str] = field(init=False, compare=False)
    running: bool = field(init=False, compare=False)
    whole: bool = field(init=False, compare=False)
    elastic: bool = field(init=False, compare=False)
    gpus_at_min: int = field(init=False, compare=False)
    counts_at_min: int = field(init=False, compare=False)
    w: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        counts = sum(role.min * role.counts for role in self.roles)
        self.__dict__.update(
            key=(self.namespace, self.name),
            running=bool(self.running_pods),
            whole=self._whole(),
            elastic=any(role.elastic for role in self.roles),
            gpus_at_min=sum(role.min * role.gpus for role in self.roles),
            counts_at_min=counts,
            w=counts or 1,
        )

    @property
    def managed(self) -> bool:
        """Whether promises to queues bind it: it is in a queue, or gangplan's to start."""
        return self.scheduler is None or self.queue is not None

    @property
    def counts_against_promises(self) -> bool:
        """Not preemptible, and in a queue or gangplan's to start: others in no queue know of no promise."""
        if self.preemptible:
            return False
        return self.queue is not None or self.scheduler is None

    def _whole(self) -> bool:
        found: list[list[int]] = [[] for _ in self.roles]
        for role, index in self.running_pods:
            found[role].append(index)
        return all(
            role.allows(len(indices)) and role.gapless(indices)
            for role, indices in zip(self.roles, found, strict=True)
        )

    def held(self, pod: Pod) -> int:
        """GPUs the pod holds; of a pod with unknown GPUs, as many as its role requests."""
        return self.roles[pod.role].gpus if pod.gpus is None else pod.gpus.bit_count()

    def counted(self, pods: Iterable[Pod]) -> int:
        """What pods of it count, in ``Facts.gpu_unit``."""
        return sum(self.roles[pod.role].counts for pod in pods)


@dataclass(frozen=True, slots=True)
class Facts:
    """Nodes sorted by name, gangs by (namespace, name). ``now``: ages are counted to it.

    ``budgets``: evictions that each disruption budget allows, by namespace and name. ``queues``: by name,
    sorted; their parents exist and form a tree. ``releases``: by node and index, the shared GPUs that
    are idle once no pod of these roles (namespace and name of the gang, role) is on the node. ``gpu_unit``:
    what a whole GPU counts.
    """

    levels: tuple[Level, ...]
    nodes: tuple[Node, ...]
    gangs: tuple[Gang, ...]
    policy: PolicySpec
    now: int
    budgets: Mapping[tuple[str, str], int]
    queues: Mapping[str, QueueSpec]
    releases: Mapping[tuple[int, int], frozenset[tuple[str, str, int]]]
    gpu_unit: int

    @property
    def counts_goodput(self) -> bool:
        """Whether the policy lists goodput: then what admitted gangs are worth is w x speed, else w."""
        return any(one.name == "goodput" for one in self.policy.objectives or ())

    def in_gpus(self, counted: int) -> float:
        """GPUs, of what was counted in ``gpu_unit``."""
        whole, part = divmod(counted, self.gpu_unit)
        return whole if not part else counted / self.gpu_unit

    @property
    def reshapes(self) -> bool:
        """Whether a plan may partition GPUs: then what has room depends on which."""
        return bool(self.releases) or any(
            node.could or node.comes or node.unknown_comes for node in self.nodes
        )

    @property
    def free_restarts(self) -> bool:
        """Whether stopping or moving a gang costs nothing."""
        return self.policy.disruption.weight == "none"

    @property
    def spares(self) -> tuple[tuple[int, int], ...]:
        """(level, nodes kept free in each of its domains)."""
        numbers = {level.name: i for i, level in enumerate(self.levels)}
        return tuple((numbers[name], n) for name, n in self.policy.spares.items())

    @property
    def node_level(self) -> int:
        return len(self.levels)

    @property
    def counted(self) -> tuple[int, ...]:
        """Levels whose domains count in tiers, the widest first and ``node`` last."""
        return (*(i for i, level in enumerate(self.levels) if level.counted), self.node_level)

    def level_name(self, level: int) -> str:
        return "node" if level == len(self.levels) else self.levels[level].name

    def latest_submission(self) -> int:
        """T of the contract."""
        times = (gang.submitted for gang in self.gangs)
        return max((time for time in times if time is not None), default=0)

    def aged(self, gang: Gang) -> bool:
        """Whether the gang waits, and first came longer ago than the policy's limit."""
        if gang.running or (limit := self.policy.starvation) is None:
            return False
        first = gang.document.spec.submitted_at
        return first is not None and self.now - first > limit.after

    def protected(self, gang: Gang) -> bool:
        """Whether it runs, and has not yet for its minimum run time."""
        if not gang.running or gang.since is None or not gang.min_run_time:
            return False
        return self.now - gang.since < gang.min_run_time

    def size_held(self, gang: Gang) -> bool:
        """Whether the gang runs and must keep its number of pods until a later checkpoint."""
        return gang.running and gang.resize_after is not None and gang.resize_after > self.now

    def disruption_cost(self, gang: Gang) -> int:
        """What one of its GPUs counts in disruption: 1, or the seconds of runtime it would lose.

        Seconds since the later of its start and its last checkpoint, from 1 to the cap; the cap
        where neither is known.
        """
        if self.policy.disruption.weight != "lostRuntime":
            return 0 if self.free_restarts else 1
        cap = self.policy.disruption.cap_s
        times = [time for time in (gang.started, gang.checkpoint) if time is not None]
        return max(1, min(cap, self.now - max(times) if times else cap))
