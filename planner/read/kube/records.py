"""Objects, nodes, pods and gangs as the readers of this package pass them on.

Amounts are integers: cpu in millicores, everything else in whole units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Struct

from models.apply.records import StartRecord, read_record
from models.documents.gang import NodeExpression, Parallelism
from models.gpu_shares import Part, share_in, shared_by
from models.mig import instance_in
from planner.read.kube.lookup import Tree

if TYPE_CHECKING:
    from models.documents.cluster import GpuSharing, Taint
    from models.documents.gang import Toleration
    from models.instance.gang import NextTo, Spread
    from planner.read.kube.pods.pod_rules import PodRule

Derived = TypeVar("Derived")

START = "gangplanStart"
"""Field of a pod, next to ``metadata``, that gangplan adds to what it reads of a cluster: the record of its
start, with it alone, as JSON. Tenants cannot write it: API servers drop fields that pods do not have."""

MAX_GPUS = 1024
"""Most GPUs of one server; more is a mistake, or shares counted as GPUs."""


class Owner(Struct, frozen=True):
    """The controlling owner of an object. ``controls``: the reference says so; else it is the first owner."""

    kind: str
    name: str
    uid: str
    group: str = ""
    controls: bool = False


class KubeObject(Struct, frozen=True, eq=False):
    """One object. ``group``: the API group ("" for core); ``version``: without the group.

    ``created``: seconds since 1970 from metadata.creationTimestamp, None if absent or malformed.
    """

    kind: str
    group: str
    version: str
    namespace: str
    name: str
    uid: str | None
    tree: Tree
    labels: dict[str, str]
    annotations: dict[str, str]
    created: int | None
    owner: Owner | None

    @property
    def key(self) -> Key:
        return (self.group, self.kind, self.namespace, self.name)

    @property
    def owner_key(self) -> Key | None:
        """The key that its owner has, if that is in its namespace."""
        owner = self.owner
        return None if owner is None else (owner.group, owner.kind, self.namespace, owner.name)

    @property
    def subject(self) -> str:
        """How messages name it: ``Pod team-a/vit-3``, ``Node gpu-01``."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self.where

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name}"


Key = tuple[str, str, str, str]
"""(API group, kind, namespace, name)"""


class GroupKey(NamedTuple):
    """One pod group; ``reader``: the name of its ``GroupReader``."""

    reader: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """The name in messages; a group inside an object is ``object-group``."""
        return self.name.replace("/", "-")


class ControllerKey(NamedTuple):
    """One controller; ``part``: which of its gangs (the group of a LeaderWorkerSet)."""

    kind: str
    namespace: str
    name: str
    part: str = ""


_MAX_OWNERS = 8


class Objects(Struct):
    """Every object of the input. Of two objects of one kind and name the first counts.

    ``lists``: kinds of which a list was read.
    """

    by_kind: dict[str, list[KubeObject]] = {}
    index: dict[Key, KubeObject] = {}
    lists: set[str] = set()
    derived: dict[object, object] = {}

    def __bool__(self) -> bool:
        return bool(self.by_kind)

    def add(self, found: KubeObject) -> bool:
        """Keep it; False if there is one of that kind, namespace and name."""
        if found.key in self.index:
            return False
        self.index[found.key] = found
        self.by_kind.setdefault(found.kind, []).append(found)
        return True

    def of(self, kind: str, *groups: str) -> list[KubeObject]:
        """Objects of a kind, of these API groups or of any, in the order they were read."""
        found = self.by_kind.get(kind, [])
        return [one for one in found if one.group in groups] if groups else list(found)

    def has_all(self, kind: str) -> bool:
        """Whether a list of the kind was read, or some of it, so that what is not here does not exist."""
        return kind in self.lists or kind in self.by_kind

    def named(self, group: str, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self.index.get((group, kind, namespace, name))

    def owner_of(self, found: KubeObject) -> KubeObject | None:
        """The object that controls this one: in its namespace or in none, by kind, name and uid.

        Owner references are written by tenants, so one to another namespace leads nowhere. A uid counts
        where both sides have one.
        """
        owner = found.owner
        if owner is None:
            return None
        for namespace in (found.namespace, ""):
            made = self.named(owner.group, owner.kind, namespace, owner.name)
            if made is not None and (not owner.uid or made.uid in (None, owner.uid)):
                return made
        return None

    def owners(self, found: KubeObject) -> list[Key]:
        """Its owner, the owner of that, and so on, up to the first that is not in the input."""
        keys: list[Key] = []
        above: KubeObject | None = found
        while above is not None and above.owner_key is not None and len(keys) < _MAX_OWNERS:
            keys.append(above.owner_key)
            above = self.owner_of(above)
        return keys


def once(derive: Callable[[Objects], Derived]) -> Callable[[Objects], Derived]:
    """What a function finds in all objects, found once: no object may be added after that."""

    def known(api: Objects) -> Derived:
        if derive not in api.derived:
            api.derived[derive] = derive(api)
        return cast("Derived", api.derived[derive])

    return known


class Device(Struct, frozen=True):
    """One GPU of a node in a ResourceSlice, or a MIG instance of one: then it has a ``profile``.

    ``index``: of the GPU, as nvidia-smi counts. ``slices``: of its memory, as a mask, where other devices may
    take some of the same; 0: none do.
    """

    driver: str
    pool: str
    name: str
    index: int
    uuid: str | None = None
    product: str | None = None
    profile: str | None = None
    slices: int = 0

    @property
    def start(self) -> int:
        return (self.slices & -self.slices).bit_length() - 1


class MigKind(Struct, frozen=True):
    """A profile that a card in MIG mode can have. ``places``: start and size in memory slices."""

    profile: str
    memory_MiB: int  # noqa: N815  # a unit
    places: frozenset[tuple[int, int]]


class _Read:
    __slots__ = ()
    object: KubeObject

    @property
    def name(self) -> str:
        return self.object.name

    @property
    def labels(self) -> dict[str, str]:
        return self.object.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.object.annotations

    @property
    def subject(self) -> str:
        return self.object.subject


class KubeNode(_Read, Struct, eq=False):
    """One node.

    ``allocatable``: without GPUs. ``gpus``: whole GPUs that pods may request; ``installed``: what
    capacity, slices or labels show (the largest credible figure). ``gpu_resource``: the resource
    name of its GPUs, None without GPUs; ``gpu_names``: every name they can be requested by, resources
    and DRA drivers. ``shared``: why GPUs are not given whole (``MIG``, ``time-sliced``,
    ``fractional``). ``sharing``: how pods share those that none holds whole. ``partitioned``: they are (MIG).
    ``instances``: MIG instances that only claims give; ``possible``: those that claims make of its GPUs,
    of this ``board``. ``mig_mode``: indices of healthy GPUs that give instances, and none whole;
    ``mig_kinds``: which. ``sick``: indices
    of unhealthy GPUs. ``withheld``: MIG instances, and parts alike, that are not offered now, as they change
    or are sick. ``cards``: indices of the GPUs that it registered, by uuid. ``failed_at``: when it last
    failed or came back, in seconds since 1970.
    """

    object: KubeObject
    allocatable: dict[str, int]
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    gpus: int = 0
    installed: int = 0
    gpu_resource: str | None = None
    devices: tuple[Device, ...] = ()
    instances: tuple[Device, ...] = ()
    possible: tuple[Device, ...] = ()
    board: str | None = None
    mig_mode: tuple[int, ...] = ()
    mig_kinds: tuple[MigKind, ...] = ()
    gpu_names: tuple[str, ...] = ()
    shared: str | None = None
    sharing: GpuSharing | None = None
    partitioned: bool = False
    sick: tuple[int, ...] = ()
    withheld: Counter[str] = msgspec.field(default_factory=Counter)
    cards: dict[str, int] = {}
    failed_at: int | None = None

    @property
    def largest_gpus(self) -> int:
        """The most GPUs that pods can hold there."""
        return max(self.installed, self.gpus)


Group = tuple[str, str]

Share = int | str | Group
"""A GPU that pods may hold together: its index, or if that is unknown any name or group.

A group is (namespace, name): a pod can be labelled with any group, so only those of one namespace share,
and the pod that reserves it for everyone, in a namespace of their system, has the namespace "".
"""


class KubePod(_Read, Struct, eq=False):
    """One pod. ``finished``: Succeeded or Failed, None otherwise; a finished pod holds nothing.

    ``node``: where it runs or where room is held for it; ``bound``: whether it is bound. ``tied``: by
    whom (``PINNED``, ``CHOSEN``), if room is held only while it fits there. ``mode``: how gangplan starts it
    (gate), None for pods of others. ``queued``: its scheduler has to find a place for it;
    ``planned``: the plan does, while it waits. ``requests``: without GPUs. ``gpus``: whole ones, requested by
    ``gpu_resource`` (or a DRA driver); ``wants_gpus``: whole ones, shares or others; ``indices``: those it
    holds, ascending, None if unknown. A part of a GPU is among its ``requests``: ``gpus`` is 0, ``indices``
    those that it shares, or ``()`` and ``gpu_group`` names that those who share them have.
    ``made``: instances that its claims made of GPUs; ``holding``: what it claims to hold, until that is
    settled. ``selector``, ``affinity`` (any of the terms, all expressions of one), ``tolerations``: where
    it may go; ``own_affinity``: ``affinity`` as its spec has it; ``rules``: beside which other pods.
    ``unsupported``: constraints that are not modelled, in words; ``waits_for``: what its volumes need
    first, likewise. ``volumes``: what these add to ``affinity``; ``rooted``: only some nodes reach one of
    them. ``fabric``: holds a ComputeDomain (IMEX) claim.
    ``group``, ``controller``: those that it belongs to.
    """

    object: KubeObject
    node: str | None = None
    bound: bool = False
    tied: str | None = None
    finished: str | None = None
    terminating: bool = False
    mode: str | None = None
    queued: bool = False
    planned: bool = False
    gates: tuple[str, ...] = ()
    scheduler: str = ""
    priority: int = 0
    gpus: int = 0
    wants_gpus: bool = False
    gpu_resource: str | None = None
    requests: dict[str, int] = {}
    indices: tuple[int, ...] | None = None
    gpu_group: str | None = None
    made: tuple[Device, ...] = ()
    holding: Holding | None = None
    selector: dict[str, str] = {}
    affinity: tuple[tuple[NodeExpression, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    rules: tuple[PodRule, ...] = ()
    own_affinity: tuple[tuple[NodeExpression, ...], ...] = ()
    unsupported: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    volumes: tuple[tuple[NodeExpression, ...], ...] = ()
    rooted: bool = False
    fabric: bool = False
    group: GroupKey | None = None
    controller: ControllerKey | None = None

    @property
    def start(self) -> StartRecord | None:
        """What is recorded of its start; None if gangplan did not start it."""
        written = self.object.tree.get(START)
        found = read_record(written) if isinstance(written, str) else None
        return None if found is None or len(found.pods) != 1 else found

    @property
    def part(self) -> str | None:
        """The resource of the part of a GPU that it requests."""
        return share_in(self.requests)

    @property
    def instance(self) -> Device | None:
        """The instance that its claim made of a GPU, if it holds nothing else of GPUs."""
        mine = instance_in(self.requests) is not None and not self.gpus and self.holds_room
        return self.made[0] if mine and len(self.made) == 1 else None

    @property
    def shares(self) -> Sequence[int | str]:
        """The GPUs of which it holds parts: their indices, else names."""
        if self.part is None or not self.holds_room:
            return ()
        return shared_by(self.indices or (), self.gpu_group, "/".join(self.key), self.part)

    @property
    def key(self) -> tuple[str, str]:
        return (self.object.namespace, self.object.name)

    @property
    def holds_room(self) -> bool:
        """Whether it runs somewhere or has room held for it."""
        return self.node is not None and self.finished is None

    @property
    def waits(self) -> bool:
        return self.node is None and self.finished is None

    @property
    def to_place(self) -> bool:
        """Whether it waits, and the plan places it."""
        return self.planned and self.waits

    @property
    def left_out(self) -> bool:
        """Whether it waits, and only its own scheduler places it."""
        return self.queued and not self.planned and self.waits


class Holding(Struct):
    """What one pod claims to hold of its node.

    ``gpus``: whole GPUs of its own; ``indices``: which, None if unknown; ``rank``: how surely.
    ``shares``: GPUs it holds together with others; ``part``: how much of each, None where a plan has no
    such part; ``reserves``: shares that it holds alone.
    """

    pod: KubePod
    gpus: int
    indices: tuple[int, ...] | None = None
    rank: int = 0
    shares: tuple[Share, ...] = ()
    part: Part | None = None
    reserves: tuple[Group, ...] = ()


class LevelAsk(Struct, frozen=True):
    """A level as a gang names it; exactly one is set.

    ``label``: a node label key. ``tier``: a tier number of the HyperNodes, 0 for the lowest.
    ``tier_name``: a tier by name.
    """

    label: str | None = None
    tier: int | None = None
    tier_name: str | None = None

    def __str__(self) -> str:
        if self.label is not None:
            return self.label
        return f"hypernode tier {self.tier_name if self.tier_name is not None else self.tier}"


class SliceAsk(Struct, frozen=True):
    """Every ``size`` pods of a role, by index, share one domain."""

    size: int
    level: LevelAsk


class ReplicaRange(Struct, frozen=True):
    """How many pods a role may run with: least, least + step, ... not above ``most``."""

    least: int
    most: int
    step: int = 1

    def at_least(self, count: int) -> int | None:
        """The least allowed number that is no smaller; None if there is none."""
        steps = -(-max(0, count - self.least) // self.step)
        found = self.least + steps * self.step
        return found if found <= self.most else None

    def in_slices(self, size: int) -> ReplicaRange | None:
        """The allowed numbers that are whole slices of so many pods; None if there is none."""
        step = lcm(self.step, size)
        least, most = -(-self.least // step) * step, self.most // step * step
        return None if self.least % self.step or least > most else ReplicaRange(least, most, step)

    def at_most(self, count: int) -> int:
        """The largest allowed number that is no larger, but at least ``least``."""
        steps = max(0, min(count, self.most) - self.least) // self.step
        return self.least + steps * self.step


class KubeRole(Struct, eq=False):
    """Pods of one kind in a gang.

    ``size``: how many the complete gang has, None while unknown. ``members``: (index, pod) of those
    that exist, ascending by index, each index once. ``first_index``: of the complete role.
    ``stride``: pods of one Job of a JobSet. ``mix_models``: may run on several GPU models.
    ``requests``: what every pod of it counts for. ``pod_sets``, ``anti_affinity``, ``spread``: as an instance
    has them.
    ``wished``: the numbers of pods that its owner allows; ``range``: those that a plan may choose as
    things stand, ``size`` then being the least that it needs. ``stated``: annotations of ours allow them.
    ``scalable``: gangplan may set its number. ``parallelism``: how its GPUs share the work, as stated.
    ``gone``: pods that succeeded and do not exist any more; they are not in ``size``. ``replaces``,
    ``ends_gang``: see ``ControllerReader`` and ``RoleSpec``.
    """

    name: str
    size: int | None
    members: list[tuple[int, KubePod]]
    first_index: int = 0
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()
    stride: int = 1
    mix_models: bool = False
    wished: ReplicaRange | None = None
    range: ReplicaRange | None = None
    stated: bool = False
    scalable: bool = False
    requests: dict[str, int] = {}
    pod_sets: tuple[str, ...] = ()
    anti_affinity: dict[NextTo, None] = {}
    spread: dict[Spread, None] = {}
    parallelism: Parallelism | None = None
    gone: int = 0
    replaces: bool = False
    ends_gang: bool = False

    @property
    def model(self) -> KubePod | None:
        """The pod that represents it: one to place, else an unfinished one."""
        pods = (pod for _, pod in self.members)
        return min(pods, key=lambda pod: (not pod.to_place, bool(pod.finished)), default=None)

    @property
    def most(self) -> int:
        """Pods that it may have as things stand."""
        return (self.size or 0) if self.range is None else self.range.most

    @property
    def span(self) -> int:
        """Indexes from the first to the highest that exists."""
        return self.members[-1][0] + 1 - self.first_index if self.members else 0

    @property
    def missing(self) -> int:
        """Pods that do not exist yet; those beyond ``size`` make up for none."""
        size = self.size or 0
        return size - sum(index < self.first_index + size for index, _ in self.members)

    def renumber(self) -> bool:
        """Number the members without gaps; whether any index changed."""
        before = self.members
        self.members = [(self.first_index + i, pod) for i, (_, pod) in enumerate(before)]
        return self.members != before


class KubeGang(Struct, eq=False):
    """A gang as its group object or its controller describes it.

    ``queue``: its Queue in the plan; ``queues``: (dialect, name) of every queue that it names, in order.
    ``kind``: of the controller or group (``JobSet``, ``PodGroup``, ``Pod``). ``missing``: what must
    still come before it can start, in words; None if it is complete. ``stopped``: the queue that starts
    nothing of it now, in words; None without. ``problems``: requirements that
    are not modelled. ``communication``: fields of a gang of the instance. ``service``: gangs
    of one namespace and service run on one GPU model. ``scheduler``: whose its waiting pods are, None for
    gangplan's. ``submitted_at``, ``started_at``, ``last_checkpoint``, ``resize_after``: seconds since 1970;
    ``runs_since``: the start of its first running pod, ``started_at`` of its last. ``min_run_time_s``: as its
    tenant states it. ``deadline_s``: Kubernetes ends it so long after its start, None if it does not.
    ``started_in``: the queue in the plan that started it, None for none; empty if nothing is recorded.
    ``ends_by``: a command that ends it while it runs. ``borrows``: it was started as preemptible.
    ``near``: a level of the plan, and gangs beside which it should be.
    """

    namespace: str
    name: str
    kind: str
    roles: list[KubeRole]
    priority: int = 0
    queue: str | None = None
    queues: tuple[tuple[str, str], ...] = ()
    submitted_at: int | None = None
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    preemptible: bool = False
    movable: bool = False
    missing: str | None = None
    stopped: str | None = None
    problems: tuple[str, ...] = ()
    started_at: int | None = None
    runs_since: int | None = None
    last_checkpoint: int | None = None
    resize_after: int | None = None
    min_run_time_s: int | None = None
    deadline_s: int | None = None
    communication: dict[str, Any] = {}
    service: str | None = None
    scheduler: str | None = None
    started_in: tuple[str | None, ...] = ()
    ends_by: str | None = None
    borrows: bool = False
    near: tuple[int, tuple[KubeGang, ...]] | None = None

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def pods(self) -> list[KubePod]:
        return [pod for role in self.roles for _, pod in role.members]
