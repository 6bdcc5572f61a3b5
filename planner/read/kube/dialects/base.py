"""What a dialect can describe: pod groups, controllers, GPU holdings, quotas and a GPU back end.

A dialect reads untrusted objects: its functions are bounded and never raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from planner.read.findings import Remarks
from planner.read.kube.dialects.made_pods import Makes
from planner.read.kube.dialects.quotas import QuotaReader
from planner.read.kube.lookup import at, number
from planner.read.kube.records import (
    KubeNode,
    KubeObject,
    KubePod,
    LevelAsk,
    Objects,
    ReplicaRange,
    SliceAsk,
)

MAX_ANNOTATION = 65_536
"""Longest annotation that is read, in characters."""

PodKey = tuple[str, str]
"""(namespace, name)"""


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


@dataclass(frozen=True, slots=True)
class RoleIndex:
    """The place of a pod in its gang; ``index`` None: unknown."""

    role: str
    index: int | None


@dataclass(frozen=True, slots=True)
class RoleSpec:
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


@dataclass(frozen=True)
class Controller:
    """A controller and the gang it makes. ``kind``, ``name``: of the gang; ``roles``: in its order.

    ``ranks``: order of the replicas of a role that have names and no numbers. ``minimum``: pods that its
    gang needs, where no group says so; ``minimums``: the same by role.
    """

    key: ControllerKey
    kind: str
    name: str
    object: KubeObject | None = None
    roles: tuple[RoleSpec, ...] = ()
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    queue: str | None = None
    problems: tuple[str, ...] = ()
    ranks: dict[str, int] = field(default_factory=dict)
    minimum: int | None = None
    minimums: dict[str, int] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.key.namespace}/{self.name}"

    @cached_property
    def _by_name(self) -> dict[str, RoleSpec]:
        return {role.name: role for role in reversed(self.roles)}

    def role(self, name: str) -> RoleSpec | None:
        """The first role of that name."""
        return self._by_name.get(name)


@dataclass(frozen=True, slots=True)
class Colocation:
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


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A pod group. ``gang`` False: its pods may start one by one.

    ``minimum``: pods it needs; ``minimums``: the same by role. ``parent``: the group of groups it
    starts with, ``siblings``: the names of all groups in it, ``parent_required``: the level they
    share. ``roles``: role by pod, for pods without a controller; ``order``: order of these roles.
    """

    key: GroupKey
    object: KubeObject | None = None
    gang: bool = True
    minimum: int | None = None
    minimums: dict[str, int] = field(default_factory=dict)
    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    colocations: tuple[Colocation, ...] = ()
    queue: str | None = None
    preemptible: bool = False
    parent: str | None = None
    siblings: tuple[str, ...] = ()
    parent_required: LevelAsk | None = None
    roles: dict[PodKey, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        kind = self.object.kind if self.object is not None else "PodGroup"
        return f"{kind} {self.key.namespace}/{self.key.name}"


@dataclass(frozen=True, slots=True)
class GroupReader:
    """How one scheduler groups pods.

    ``api_group``, ``kind``: of its group objects; ``api_group`` None: groups exist in labels only.
    ``group_name``: the group a pod names, None if none. ``describe``: the group, from its object
    (None if it is not in the input) and its pods.
    """

    name: str
    api_group: str | None
    group_name: Callable[[KubePod], str | None]
    describe: Callable[[GroupKey, KubeObject | None, Sequence[KubePod], Objects, Remarks], PodGroup]
    kind: str = "PodGroup"

    def find(self, api: Objects, namespace: str, name: str) -> KubeObject | None:
        """The group object; a Workload holds groups named ``workload/group``."""
        if self.api_group is None:
            return None
        own = name.partition("/")[0] if self.kind == "Workload" else name
        return api.named(self.api_group, self.kind, namespace, own)


@dataclass(frozen=True, slots=True)
class ControllerReader:
    """How one controller labels its pods. ``kind``: that of its keys.

    ``key``: the controller of a pod. ``describe``: that controller, from its object or else from its
    pods. ``role_index``: role and index of a pod. ``replaces``: it makes a pod that has succeeded anew;
    others count such a pod as done.
    """

    kind: str
    key: Callable[[KubePod, Objects], ControllerKey | None]
    describe: Callable[[ControllerKey, Sequence[KubePod], Objects], Controller]
    role_index: Callable[[KubePod, Controller], RoleIndex]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class HoldingReader:
    """How pods record which GPUs they hold. ``name``: in messages.

    ``keys``: annotations, without any of which ``read`` is not called. ``read``: GPU indices from a
    pod's annotations and its node; ``()`` if they cannot be read, None if the pod names none.
    """

    name: str
    keys: tuple[str, ...]
    read: Callable[[Mapping[str, str], KubeNode], tuple[int, ...] | None]


class CannotEncode(Exception):  # noqa: N818  # said of a plan, not of a fault of ours
    """The back end cannot make the node use the GPUs that the plan chose.

    Its text: a clause about the pod, without a full stop; may hold names of the cluster (untrusted).
    """


@dataclass(frozen=True, slots=True)
class Scale:
    """``plural``: of the kind. ``role``: whose pods it counts, None: all of them."""

    plural: str
    version: str = "v1"
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Everything gangplan knows about one scheduler or controller; each part is optional.

    ``precedence``: the lower the earlier it is asked. A controller comes before those of the objects that it
    makes, JobSet before Job; a pod that names several groups belongs to the first whose object exists.
    ``makes``: kinds whose objects may wait without pods, by API group and kind. ``kinds``: what is read of
    its objects, as rows of ``planner.read.kube.kinds``. ``annotations``: keys that are read; ``domain/``:
    all of that domain. ``without``: what a run does without the right to list a resource, in words; without
    those to the others it does not begin. ``scales``: kinds whose ``scale`` sets the number of pods.
    """

    name: str
    precedence: int = 0
    groups: tuple[GroupReader, ...] = ()
    controller: ControllerReader | None = None
    holdings: tuple[HoldingReader, ...] = ()
    quotas: QuotaReader | None = None
    makes: Mapping[tuple[str, str], Makes] = field(default_factory=dict)
    kinds: str = ""
    annotations: str = ""
    without: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[tuple[str, str], Scale] = field(default_factory=dict)


def count(tree: object, *path: str, absent: int | None) -> int | None:
    """The count below the path; ``absent`` if none is stated, None if it is not a count."""
    value = at(tree, *path)
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def allowed_range(least: int | None, most: int | None, step: int | None = 1) -> ReplicaRange | None:
    """The range that fields of a controller state; None if they state none that makes sense."""
    if least is None or most is None or step is None or not 0 < step <= least <= most:
        return None
    return ReplicaRange(least, most, step)


def product(one: int | None, other: int | None) -> int | None:
    """The product; None if a factor is unknown."""
    return None if one is None or other is None else one * other


def label_or_annotation(pod: KubePod, key: str) -> str | None:
    """Projects moved keys from annotations to labels and back."""
    return pod.annotations.get(key) or pod.labels.get(key) or None


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
    found = []
    for index in numbers:
        if index is None or not 0 <= index < 4096:
            return ()
        found.append(index)
    return tuple(found)


def comma_list(written: str) -> tuple[int, ...]:
    """Indices written as ``0,3``; blanks are allowed."""
    if len(written) > MAX_ANNOTATION:
        return ()
    return gpu_indices(number(part.strip()) for part in written.split(",") if part.strip())
