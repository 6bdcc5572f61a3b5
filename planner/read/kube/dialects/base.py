"""What a dialect can describe: pod groups, controllers, GPU holdings, quotas and a GPU back end.

A dialect reads untrusted objects: its functions are bounded and never raise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from models.apply.terms import GPUS
from planner.read.findings import Remarks
from planner.read.kube.dialects.gpus import GpuSystem
from planner.read.kube.dialects.quotas import CellReader, QuotaReader
from planner.read.kube.levels.node_domains import Tiers
from planner.read.kube.lookup import Tree, at, number
from planner.read.kube.records import (
    ControllerKey,
    GroupKey,
    Key,
    KubeNode,
    KubeObject,
    KubePod,
    LevelAsk,
    Objects,
    Owner,
    ReplicaRange,
    SliceAsk,
)

MAX_ANNOTATION = 65_536
"""Longest annotation that is read, in characters."""

JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

MIN, MAX, STEP = RANGE = ("gangplan.dev/min", "gangplan.dev/max", "gangplan.dev/step")
"""Annotations with the numbers of pods that a role may have."""

PodKey = tuple[str, str]
"""(namespace, name)"""


class RoleIndex(Struct, frozen=True):
    """The place of a pod in its gang; ``index`` None: unknown."""

    role: str
    index: int | None


class RoleSpec(Struct, frozen=True):
    """A role as its controller specifies it.

    ``size``: None if unknown. ``stride``: pods of one Job of a JobSet. ``queue_like``: its pods work
    through more indexes than run at once, so an index is no rank. ``later``: the controller creates
    its pods only once other roles run, so none counts as missing before the first exists.
    ``range``: the numbers of pods that its controller's own fields allow. ``scalable``: a scale
    subresource of the controller sets the number of its pods. ``succeeded``: pods that the status of the
    controller counts as succeeded. ``ends_gang``: where one of its pods has succeeded, the work is over.
    """

    name: str
    size: int | None
    first_index: int = 0
    stride: int = 1
    queue_like: bool = False
    later: bool = False
    required: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()
    range: ReplicaRange | None = None
    scalable: bool = False
    succeeded: int = 0
    ends_gang: bool = False


class Controller(Struct, frozen=True):
    """A controller and the gang it makes. ``kind``, ``name``: of the gang; ``roles``: by name, in its order.

    ``ranks``: order of the replicas of a role that have names and no numbers. ``minimum``: pods that its
    gang needs, where no group says so; ``minimums``: the same by role.
    """

    key: ControllerKey
    kind: str
    name: str
    object: KubeObject | None = None
    roles: Mapping[str, RoleSpec] = {}
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    queue: str | None = None
    problems: tuple[str, ...] = ()
    ranks: dict[str, int] = {}
    minimum: int | None = None
    minimums: dict[str, int] = {}

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.key.namespace}/{self.name}"


class Colocation(Struct, frozen=True):
    """Pods that ask for one domain of a level; with ``size``, every so many by index do.

    ``hard``: required, else preferred. ``source``: who asks, for messages. ``partial``: the members
    are one part of ``size`` pods, selected by labels.
    """

    members: frozenset[PodKey]
    level: LevelAsk
    hard: bool
    source: str
    size: int | None = None
    partial: bool = False


class PodGroup(Struct, frozen=True):
    """A pod group. ``gang`` False: its pods may start one by one.

    ``minimum``: pods it needs; ``minimums``: the same by role. ``parent``: the group of groups it
    starts with, ``siblings``: the names of all groups in it, ``parent_required``: the level they
    share. ``roles``: role by pod, for pods without a controller; ``order``: order of these roles.
    """

    key: GroupKey
    object: KubeObject | None = None
    gang: bool = True
    minimum: int | None = None
    minimums: dict[str, int] = {}
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    colocations: tuple[Colocation, ...] = ()
    queue: str | None = None
    preemptible: bool = False
    parent: str | None = None
    siblings: tuple[str, ...] = ()
    parent_required: LevelAsk | None = None
    roles: dict[PodKey, str] = {}
    order: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        kind = self.object.kind if self.object is not None else "PodGroup"
        return f"{kind} {self.key.namespace}/{self.key.name}"


class Grouped(NamedTuple):
    """A group that pods name. ``object``: None if it is not in the input."""

    key: GroupKey
    object: KubeObject | None
    pods: Sequence[KubePod]
    api: Objects
    remarks: Remarks


class Naming(Struct, frozen=True, kw_only=True):
    """How pods name something: the first label, annotation or owner of these that a pod has.

    ``labels``, ``annotations``: keys, whose value is the name. ``owners``: (API group, kind) of the owner, or
    of the owner of its Job. ``fields``: of its spec. ``find``: the name, where it is not the value as it
    stands; it is not asked about pods that have none of the others.
    """

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()
    fields: tuple[str, ...] = ()
    find: Callable[[KubeObject, Objects], str | None] | None = None

    @property
    def marks(self) -> frozenset[object]:
        """A pod with none of these names nothing."""
        return frozenset((*self.labels, *self.annotations, *self.owners, *self.fields))

    def name_on(self, pod: KubeObject, api: Objects) -> str | None:
        if self.find is not None:
            return self.find(pod, api)
        for key in self.labels:
            if found := pod.labels.get(key):
                return found
        for key in self.annotations:
            if found := pod.annotations.get(key):
                return found
        above = (one for one in owner_line(pod, api) if (one.group, one.kind) in self.owners)
        return next((one.name for one in above), None)


def owner_line(pod: KubeObject, api: Objects) -> tuple[Owner, ...]:
    """The owner of a pod, and if that is a Job, the owner of this."""
    owner = pod.owner
    if owner is None:
        return ()
    job = api.owner_of(pod) if (owner.group, owner.kind) == ("batch", "Job") else None
    return (owner,) if job is None or job.owner is None else (owner, job.owner)


class GroupReader(Naming, frozen=True):
    """How one scheduler groups pods.

    ``api_group``, ``kind``: of its group objects; ``api_group`` None: groups exist in labels only.
    ``describe``: the group, from its object and its pods.
    """

    name: str
    api_group: str | None
    describe: Callable[[Grouped], PodGroup]
    kind: str = "PodGroup"

    def object_of(self, api: Objects, key: GroupKey) -> KubeObject | None:
        """The group object; a Workload holds groups named ``workload/group``."""
        if self.api_group is None:
            return None
        own = key.name.partition("/")[0] if self.kind == "Workload" else key.name
        return api.named(self.api_group, self.kind, key.namespace, own)

    def read(
        self, key: GroupKey, pods: Sequence[KubePod], api: Objects, remarks: Remarks
    ) -> PodGroup:
        return self.describe(Grouped(key, self.object_of(api, key), pods, api, remarks))


class Controlled(NamedTuple):
    """A controller that pods name. ``object``: the one of that name, of the kinds that its reader owns."""

    key: ControllerKey
    object: KubeObject | None
    pods: Sequence[KubePod]
    api: Objects

    @property
    def tree(self) -> Tree:
        """The object's; empty without one."""
        return {} if self.object is None else self.object.tree


class ControllerReader(Naming, frozen=True):
    """How one controller labels its pods. ``kind``: that of its keys.

    ``part``: of a pod, which gang of the controller it is in. ``describe``: the controller, from its object
    or else from its pods. ``role_index``: role and index of a pod. ``replaces``: it makes a pod that has
    succeeded anew; others count such a pod as done.
    """

    kind: str
    describe: Callable[[Controlled], Controller]
    role_index: Callable[[KubePod, Controller], RoleIndex]
    part: Callable[[KubeObject, str], str] = lambda *_: ""
    replaces: bool = False

    def read(self, key: ControllerKey, pods: Sequence[KubePod], api: Objects) -> Controller:
        made = (api.named(group, kind, key.namespace, key.name) for group, kind in self.owners)
        found = next(filter(None, made), None)
        return self.describe(Controlled(key, found, pods, api))


class HoldingReader(Struct, frozen=True):
    """How pods record which GPUs they hold. ``name``: in messages.

    ``keys``: annotations, without any of which ``read`` is not called. ``read``: GPU indices from a
    pod's annotations and its node; ``()`` if they cannot be read, None if the pod names none.
    """

    name: str
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, str], KubeNode], tuple[int, ...] | None]


class TopologyReader(Struct, frozen=True):
    """Objects of kind Topology, which name levels by labels of nodes: their API group, and whose they are.

    ``followed``: how many nodes with GPUs follow each, by its name.
    """

    group: str
    title: str
    followed: Callable[[Objects, Sequence[KubeNode]], Counter[str | None]] = lambda *_: Counter()


class MadePod(NamedTuple):
    """What sets one pod apart: its name, the labels its controller adds, and an owner reference.

    ``uid``: by which a plan names it, where that may be applied before the pod exists.
    """

    name: str
    labels: Mapping[str, str]
    owner: Tree
    uid: str | None = None


class PodSet(Struct, frozen=True):
    """Pods of one template and role. ``made``: by their number, from 0.

    ``scheduler``, ``priority_class``: for templates that name none.
    """

    role: RoleSpec
    template: Tree
    made: Callable[[int], MadePod]
    scheduler: str | None = None
    priority_class: str | None = None


class Makes(Struct, frozen=True):
    """A kind whose objects may wait without pods. ``pods``: those that an object would have.

    ``waits``: whether it does wait, where the kind has a state of its own for that; else a suspended one
    does, or one whose group waits. ``group_of_its_name``: its operator names the group after it. ``left``:
    the pods without those of these indexes, which have succeeded.
    """

    pods: Callable[[KubeObject], Iterable[PodSet]]
    waits: Callable[[KubeObject], bool] | None = None
    group_of_its_name: bool = False
    left: Callable[[KubeObject, frozenset[int]], Iterable[PodSet]] | None = None


class RequestState(StrEnum):
    """How far a request for a placement is, and what it stands for."""

    waits = "waits"
    """To be planned and answered."""
    placed = "placed"
    """It has its nodes: they are kept for it."""
    evicted = "evicted"
    """It has its nodes, but was stopped: it has to wait again."""
    idle = "idle"
    """It has none, and its system does not want any now."""
    dead = "dead"
    """What it stands for is over: to be closed."""
    over = "over"
    """It is closed, or not answered by us."""


class PlacementRequest(Struct, frozen=True):
    """A workload whose system asks where to run it, before its pods exist, by ``object``.

    ``stands_for``: the keys of what is not looked at besides: itself, its owner, the owner of
    that, and so on. ``sets``: all its pods; ``missing``: by set
    the numbers of those that are not bound yet; ``nodes``: by set those of all pods, once it has them.
    ``members``: pods that came of it; ``plan``: the id of the plan that gave it its nodes. ``admitted``: its
    system lets it start. ``problem``: why it gets no nodes, if not by the plan.
    """

    object: KubeObject
    state: RequestState
    stands_for: tuple[Key, ...]
    sets: tuple[PodSet, ...]
    missing: tuple[Sequence[int], ...]
    nodes: tuple[tuple[str, ...], ...] = ()
    members: frozenset[PodKey] = frozenset()
    plan: str | None = None
    admitted: bool = False
    problem: str = ""


class Asked(Struct, frozen=True):
    """What annotations ask of the topology. ``group``: of roles that share what they ask.

    ``remarks``: contradictions; ``problems``: what is not supported.
    """

    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()
    group: str | None = None
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


ASKS_NOTHING = Asked()


class Terms(Struct):
    """On which terms a workload without pods waits. ``suspended``: it is.

    ``scheduler``: who lets its pods start next, whatever they name; ``default_scheduler``: where they name
    none. ``priority``: if not that of its pods. ``tolerations``, ``annotations``: that its pods get.
    ``together``: they start together, so that they are a gang.
    """

    suspended: bool
    scheduler: str | None = None
    default_scheduler: str | None = None
    priority: int | None = None
    tolerations: tuple[Tree, ...] = ()
    annotations: Mapping[str, str] = {}
    together: bool = False


class Holder(Struct, frozen=True):
    """A system that keeps the pods of workloads back, by an object of its own that stands for each.

    ``api_group``, ``kind``: of these objects; ``annotations``: of pods, with its name. ``standing``: each by
    the key of what it stands for. ``waits``: whether one waits; ``keeps``: it then keeps pods back of
    workloads that are not suspended, too. ``pods``: those of one that stands for what is not in the input;
    ``alone``: whether a key may be such. ``set_terms``: from a workload, its owners, and what stands for it.
    ``priority``, ``released_at``: of pods, their controllers and groups, if the system orders them, and if
    it has let them go.
    """

    api_group: str
    kind: str
    standing: Callable[[Objects], Mapping[Key, KubeObject]]
    waits: Callable[[KubeObject], bool]
    pods: Callable[[KubeObject], Iterable[PodSet]]
    set_terms: Callable[[Terms, Objects, Sequence[KubeObject], KubeObject | None], None]
    alone: Callable[[Objects, Key], bool] = lambda *_: True
    annotations: tuple[str, ...] = ()
    keeps: bool = False
    priority: Callable[[Objects, Sequence[KubeObject]], int | None] = lambda *_: None
    released_at: Callable[[Objects, Sequence[KubeObject]], int | None] = lambda *_: None


class CannotEncode(Exception):  # noqa: N818  # said of a plan, not of a fault of ours
    """The back end cannot make the node use the GPUs that the plan chose.

    Its text: a clause about the pod, without a full stop; may hold names of the cluster (untrusted).
    """


class Scale(Struct, frozen=True):
    """``plural``: of the kind. ``role``: whose pods it counts, None: all of them."""

    plural: str
    version: str = "v1"
    role: str | None = None


class Dialect(Struct, frozen=True):
    """Everything gangplan knows about one scheduler or controller; each part is optional.

    ``precedence``: the lower the earlier it is asked. A controller comes before those of the objects that it
    makes, JobSet before Job; a pod that names several groups belongs to the first whose object exists.
    ``makes``: kinds whose objects may wait without pods, by API group and kind. ``kinds``: what is read of
    its objects, as rows of ``planner.read.kube.kinds``. ``annotations``: keys that are read; ``domain/``:
    all of that domain. ``without``: what a run does without the right to list a resource, in words; without
    those to the others it does not begin. ``scales``: kinds whose ``scale`` sets the number of pods.
    ``topology``: what the annotations of a pod ask; the default size of slices is that of its Job, or 0.
    ``controller_topology``: what those of a controller ask; ``segments``: the slices that those of a pod, and
    of its controller, ask, and what is wrong with them. ``topologies``, ``tiers``: levels that its objects
    define. ``gpus``: how it gives GPUs or parts of them. ``queue_keys``: labels and annotations that name a
    queue of it, with their precedence; ``preemptible``: those that say that a gang may be stopped. ``index``:
    the number of a pod of no controller, as its labels have it.
    ``report_unseen``: a remark where it is at work, and the input has no list of what waits without pods.
    ``requests``: those that a plan answers, of workloads without pods.
    """

    name: str
    precedence: int = 0
    groups: tuple[GroupReader, ...] = ()
    controller: ControllerReader | None = None
    holdings: tuple[HoldingReader, ...] = ()
    gpus: tuple[GpuSystem, ...] = ()
    topologies: TopologyReader | None = None
    tiers: Callable[[Objects, Sequence[KubeNode], Remarks], Tiers] | None = None
    quotas: QuotaReader | None = None
    cells: CellReader | None = None
    queue_keys: Mapping[str, int] = {}
    preemptible: Mapping[str, str] = {}
    index: Callable[[KubePod], int | None] = lambda _: None
    makes: Mapping[tuple[str, str], Makes] = {}
    holder: Holder | None = None
    topology: Callable[[dict[str, str], int], Asked] | None = None
    controller_topology: Callable[[Mapping[str, str], Objects], Asked] | None = None
    segments: (
        Callable[
            [Mapping[str, str], Mapping[str, str], Objects], tuple[SliceAsk | None, str | None]
        ]
        | None
    ) = None
    report_unseen: Callable[[Objects, Remarks], None] | None = None
    requests: Callable[[Objects], Iterable[PlacementRequest]] | None = None
    kinds: str = ""
    annotations: str = ""
    without: Mapping[str, str] = {}
    scales: Mapping[tuple[str, str], Scale] = {}


def numbered(
    name: str, labels: Mapping[str, str], owner: Tree, index: str, first: int = 0
) -> Callable[[int], MadePod]:
    """Pods named ``name-number``, with the number from ``first`` in the label ``index``."""

    def made(number: int) -> MadePod:
        return MadePod(f"{name}-{number}", {**labels, index: str(number + first)}, owner)

    return made


def roles_of(sets: Iterable[PodSet]) -> dict[str, RoleSpec]:
    """The roles by name; of one name the first."""
    found: dict[str, RoleSpec] = {}
    for one in sets:
        found.setdefault(one.role.name, one.role)
    return found


def owned_by(one: KubeObject) -> Tree:
    """A reference to the controller."""
    version = f"{one.group}/{one.version}" if one.group else one.version
    return reference(version, one.kind, one.name, one.uid)


def reference(version: str, kind: str, name: str, uid: str | None = None) -> Tree:
    found: Tree = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    return found if uid is None else {**found, "uid": uid}


def count(tree: object, *path: str, absent: int | None) -> int | None:
    """The count below the path; ``absent`` if none is stated, None if it is not a count."""
    value = at(tree, *path)
    if value is None:
        return absent
    return value if type(value) is int and value >= 0 else None


def parallel_pods(spec: Tree) -> int | None:
    """Pods of a Job that run together; 1 by default, None if the spec is malformed."""
    wanted = count(spec, "parallelism", absent=1)
    completions = count(spec, "completions", absent=None)
    return wanted if wanted is None or completions is None else min(wanted, completions)


def marked_role(role: str, index: str, default: str) -> Callable[[KubePod, Controller], RoleIndex]:
    """Reads the role and the index of a pod from two labels or annotations."""
    return lambda pod, _: RoleIndex(mark(pod, role) or default, number(mark(pod, index)))


def completion_index(pod: KubePod) -> int | None:
    """The number of a pod of an indexed Job."""
    return number(mark(pod, COMPLETION_INDEX))


def is_elastic(annotations: Mapping[str, str]) -> bool:
    """Whether any annotation of a range is there."""
    return not annotations.keys().isdisjoint(RANGE)


def allowed_range(least: int | None, most: int | None, step: int | None = 1) -> ReplicaRange | None:
    """The range that fields of a controller state; None if they state none that makes sense."""
    if least is None or most is None or step is None or not 0 < step <= least <= most:
        return None
    return ReplicaRange(least, most, step)


def product(one: int | None, other: int | None) -> int | None:
    """The product; None if a factor is unknown."""
    return None if one is None or other is None else one * other


def mark(pod: KubePod, key: str) -> str | None:
    """Projects moved keys from annotations to labels and back."""
    return pod.labels.get(key) or pod.annotations.get(key) or None


def annotation(annotations: Mapping[str, str], key: str) -> str | None:
    """The annotation, None if it is absent or blank."""
    found = annotations.get(key)
    return found if found and found.strip() else None


def json_value(written: str | None) -> object:
    """The value of a JSON text; None if it is absent, malformed, too long or too deep."""
    if written is None or len(written) > MAX_ANNOTATION:
        return None
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return None


def gpu_indices(numbers: Iterable[int | None]) -> tuple[int, ...]:
    """The indices, if every one is valid; else ``()``."""
    given = list(numbers)
    found = tuple(index for index in given if index is not None and 0 <= index < 4096)
    return found if len(found) == len(given) else ()


def comma_list(written: str) -> tuple[int, ...]:
    """Indices written as ``0,3``; blanks are allowed."""
    if len(written) > MAX_ANNOTATION:
        return ()
    return gpu_indices(number(part.strip()) for part in written.split(",") if part.strip())


def listed(*keys: str) -> Callable[[Mapping[str, str], KubeNode], tuple[int, ...] | None]:
    """Reads indices from the first of these annotations: ``"0,3"``."""

    def read(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
        del node
        found = next(filter(None, (annotation(annotations, key) for key in keys)), None)
        return None if found is None else comma_list(found)

    return read


planned_gpus = listed(GPUS)
