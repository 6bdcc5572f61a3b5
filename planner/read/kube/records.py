"""Neutral forms of what Kubernetes objects say: the interface between the readers of this package.

Promises: frozen data without behaviour beyond lookups; amounts are integers (cpu in millicores,
everything else in whole units). Built by nodes, pods, levels and gangs; put together by assembling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.read.kube.lookup import Tree

if TYPE_CHECKING:
    from models.cluster import Taint
    from models.gang import Toleration


@dataclass(frozen=True, slots=True)
class Owner:
    """The controlling owner of an object."""

    kind: str
    name: str
    uid: str
    group: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class KubeObject:
    """One object as it was read. ``group`` is the API group ("" for core), ``version`` without it.

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
    def subject(self) -> str:
        """How messages name it: ``Pod team-a/vit-3``, ``Node gpu-01``."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self.where

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(slots=True)
class Objects:
    """Every object of the input, by kind. Two objects of one kind and name: the first one counts."""

    by_kind: dict[str, list[KubeObject]] = field(default_factory=dict)
    index: dict[tuple[str, str, str, str], KubeObject] = field(default_factory=dict)
    uids: dict[str, KubeObject] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_kind)

    def add(self, found: KubeObject) -> bool:
        """Keep it; False if one of that kind, namespace and name is there already."""
        key = (found.group, found.kind, found.namespace, found.name)
        if key in self.index:
            return False
        self.index[key] = found
        self.by_kind.setdefault(found.kind, []).append(found)
        if found.uid is not None:
            self.uids.setdefault(found.uid, found)
        return True

    def of(self, kind: str, *groups: str) -> list[KubeObject]:
        """Objects of a kind, of these API groups or of any, in the order they were read."""
        found = self.by_kind.get(kind, [])
        return [one for one in found if one.group in groups] if groups else list(found)

    def named(self, group: str, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self.index.get((group, kind, namespace, name))

    def owner_of(self, found: KubeObject) -> KubeObject | None:
        """The object that controls this one, by uid, else by kind and name in its namespace."""
        owner = found.owner
        if owner is None:
            return None
        if (by_uid := self.uids.get(owner.uid)) is not None:
            return by_uid
        return self.named(owner.group, owner.kind, found.namespace, owner.name)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of a node as a DRA ResourceSlice describes it. ``index``: as nvidia-smi counts."""

    driver: str
    pool: str
    name: str
    index: int
    uuid: str | None = None
    product: str | None = None
    pcie_root: str | None = None
    numa: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KubeNode:
    """One node. ``allocatable``: everything but GPUs; ``gpus``: whole GPUs that pods may ask for.

    ``installed``: what capacity, slices or labels say is built in (the largest credible figure).
    ``gpu_resource``: the resource name pods ask for, None without GPUs. ``asked_by``: every name
    its GPUs are asked by: resources, and DRA drivers. ``shared``: why its GPUs are not given whole
    (``MIG``, ``time-sliced``, ``fractional``), None if they are.
    ``topology_only``: takes only topology-scheduled GPU pods (ACK). ``sick``: GPUs known to be bad.
    """

    object: KubeObject
    allocatable: dict[str, int]
    gpus: int
    installed: int
    gpu_resource: str | None
    ready: bool
    unschedulable: bool
    taints: tuple[Taint, ...]
    devices: tuple[Device, ...] = ()
    asked_by: tuple[str, ...] = ()
    shared: str | None = None
    topology_only: bool = False
    sick: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.object.name

    @property
    def labels(self) -> dict[str, str]:
        return self.object.labels


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a node selector term; ``field`` True: on metadata.name, not on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class KubePod:
    """One pod that is neither Succeeded nor Failed, or one that is (``finished``: holds nothing).

    ``node``: where it runs or where room is held for it; ``bound``: whether it is really there.
    ``ours``: waits, and is ours to place; ``mode`` says how (gate or binding).
    ``requests``: without GPUs. ``gpus``: whole ones, asked by ``gpu_resource`` (or a DRA driver).
    ``indices``: GPUs it holds, ascending, None where nobody knows which.
    ``selector``, ``affinity`` (any of these terms, all expressions of one), ``tolerations``: where
    it may go. ``unsupported``: constraints that are not modelled, in the words shown to people.
    ``fabric``: holds a ComputeDomain (IMEX) claim. ``topology_scheduled``: marked so for ACK.
    """

    object: KubeObject
    node: str | None
    bound: bool
    finished: str | None
    terminating: bool
    ours: bool
    mode: str | None
    gates: tuple[str, ...]
    scheduler: str
    priority: int
    gpus: int
    gpu_resource: str | None
    requests: dict[str, int]
    indices: tuple[int, ...] | None = None
    selector: dict[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[Expression, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    unsupported: tuple[str, ...] = ()
    fabric: bool = False
    topology_scheduled: bool = False

    @property
    def name(self) -> str:
        return self.object.name

    @property
    def key(self) -> tuple[str, str]:
        return (self.object.namespace, self.object.name)

    @property
    def labels(self) -> dict[str, str]:
        return self.object.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.object.annotations

    @property
    def subject(self) -> str:
        return self.object.subject


@dataclass(frozen=True, slots=True)
class LevelAsk:
    """A level as a gang names it; exactly one is set.

    ``label``: a node label key. ``tier``: a tier number of the HyperNodes, 0 for the lowest there
    is. ``tier_name``: a tier by name.
    """

    label: str | None = None
    tier: int | None = None
    tier_name: str | None = None

    def __str__(self) -> str:
        if self.label is not None:
            return self.label
        return f"hypernode tier {self.tier_name if self.tier_name is not None else self.tier}"


@dataclass(frozen=True, slots=True)
class SliceAsk:
    """Every ``size`` pods of a role, by index, share one domain."""

    size: int
    level: LevelAsk


@dataclass(frozen=True, slots=True, eq=False)
class KubeRole:
    """Pods of one kind in a gang.

    ``size``: how many the gang has when it is whole. ``first_index``: the index of the first.
    ``members``: (index, pod) of those that exist, ascending by index, each index once.
    """

    name: str
    size: int
    members: tuple[tuple[int, KubePod], ...]
    first_index: int = 0
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class KubeGang:
    """A gang as its group object or its controller describes it.

    ``kind``: of the controller or group (``JobSet``, ``PodGroup``, ``Pod``). ``missing``: what must
    still come before it can start, in words; None when all are there. ``problems``: what it asks
    that is not modelled. ``submitted_at``, ``started_at``, ``last_checkpoint``, ``resize_after``:
    seconds since 1970.
    """

    namespace: str
    name: str
    kind: str
    roles: tuple[KubeRole, ...]
    priority: int = 0
    queue: str | None = None
    submitted_at: int | None = None
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    preemptible: bool = False
    movable: bool = False
    missing: str | None = None
    problems: tuple[str, ...] = ()
    started_at: int | None = None
    last_checkpoint: int | None = None
    resize_after: int | None = None

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def pods(self) -> list[KubePod]:
        return [pod for role in self.roles for _, pod in role.members]
