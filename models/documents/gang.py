"""The Gang document: roles, topology rules, elastic ranges, and the pods that exist.

Nodes, levels and other gangs are left to the reader.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from models.documents.base import (
    ApiVersion,
    Data,
    Document,
    Duration,
    FieldError,
    LabelKey,
    LabelValue,
    Many,
    Mapped,
    Name,
    Path,
    Prose,
    Requested,
    RequestedMiB,
    Sentence,
    ShortName,
    Time,
    Title,
    decimal,
    omitted,
    read_once,
    suggestion,
    twice,
    whole,
    within,
)
from models.documents.cluster import resource_errors
from models.documents.communication import Communication
from models.documents.server import GpuIndices
from models.gpu_shares import MOST_GPUS, SHARE, Part, amount_of, share_in
from models.host_ranges import host_ranges
from models.mig import MAX_SLICES, instance_in, profile_names, resource_of
from models.units import InvalidValueError, described, plural, shown, whole_number

MAX_PODS = 1_000_000
"""Most pods of one gang."""

MAX_RANK = 10**12

NODE_NAME = "metadata.name"
"""The one node field that an expression may match."""

LevelName = Annotated[str, Field(description="`node` or a level of the cluster")]
Count = Annotated[int, whole(1, MAX_PODS)]


class SliceDocument(Document):
    """Pods with equal floor(index / size) share one domain of `required`."""

    size: Count
    required: LevelName


def slice_errors(
    inner: SliceDocument | None, outer: Sequence[SliceDocument]
) -> Iterator[FieldError]:
    """Each layer holds several whole slices of the one inside it; paths start at the role."""
    if inner is None:
        if outer:
            what, hint = "outer slices without `slice`", "write the innermost ones as `slice`"
            yield FieldError(("outerSlices",), what, hint)
        return
    for i, (small, large) in enumerate(pairwise((inner, *outer))):
        if large.size % small.size or large.size == small.size:
            what = f"slices of {large.size} pods around slices of {small.size}"
            yield FieldError(("outerSlices", i, "size"), what, f"write a multiple of {small.size}")


TolerationOperator = Literal["Equal", "Exists"]
ToleratedEffect = Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Toleration(Data):
    """A Kubernetes toleration."""

    key: LabelKey | Literal[""] = ""
    operator: TolerationOperator = "Equal"
    value: LabelValue = ""
    effect: ToleratedEffect = ""

    def field_errors(self) -> Iterator[FieldError]:
        """What Kubernetes would refuse; paths start at the toleration."""
        if self.operator == "Exists" and self.value:
            hint = "remove it, or use operator: Equal"
            yield FieldError(("value",), "Exists takes no value", hint)
        if self.operator == "Equal" and not self.key:
            what = "a toleration without a key tolerates everything or nothing"
            yield FieldError((), what, "add a key, or operator: Exists to tolerate everything")


Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


_SLURM_OPTIONS = {
    "slurm/partition": "--partition=",
    "slurm/feature": "--constraint=",
    "slurm/gpu": "--gres=gpu:",
    "slurm/reservation": "--reservation=",
}


def slurm_option(key: str, value: str) -> str:
    """``--constraint=ib`` of ``slurm/feature.ib``: what a label stands for in Slurm's words; else empty."""
    kind, _, name = key.partition(".")
    return _SLURM_OPTIONS[kind] + (name or value) if kind in _SLURM_OPTIONS else ""


@dataclass(frozen=True, slots=True)
class NodeExpression(Data):
    """One requirement on the labels of a node, or on its name."""

    key: LabelKey
    operator: Operator
    values: Many[Prose] = ()
    field: Annotated[bool, omitted(default=False)] = False
    """On the field metadata.name, not on a label"""

    def __str__(self) -> str:
        named = ", ".join(host_ranges(self.values) if self.field else self.values)
        match self.operator:
            case "In" | "NotIn":
                inside = "in" if self.operator == "In" else "not in"
                return f"{self.key} {inside} ({named})"
            case "Gt" | "Lt":
                return f"{self.key} {'>' if self.operator == 'Gt' else '<'} {named}"
            case "DoesNotExist":
                return f"no {self.key}"
        return slurm_option(self.key, "") or f"any {self.key}"

    def field_errors(self) -> Iterator[FieldError]:
        """What Kubernetes would refuse; paths start at the expression."""
        if self.field and self.key != NODE_NAME:
            hint = f"the only one is {NODE_NAME}"
            yield FieldError(("key",), f"no field {shown(self.key)}", hint)
        if self.field and self.operator not in ("In", "NotIn"):
            yield FieldError(("operator",), f"{self.operator} on a field", "use In or NotIn")
        elif self.operator in ("In", "NotIn"):
            if not self.values:
                yield FieldError((), f"{self.operator} without values", "add `values`")
        elif self.operator in ("Exists", "DoesNotExist"):
            if self.values:
                yield FieldError(("values",), f"{self.operator} takes no values", "remove them")
        elif len(self.values) != 1 or whole_number(self.values[0]) is None:
            path: Path = ("values",) if self.values else ()
            what = f"{self.operator} compares with one whole number"
            yield FieldError(path, what, 'write it like values: ["4"]')


Terms = tuple[tuple[NodeExpression, ...], ...]


class SharedAffinity(Terms):
    """An affinity that many roles share. Its hash, of a thousand expressions perhaps, is kept.

    ``sound``: it was checked before, and nothing is wrong with it.
    """

    sound = False
    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash

    def __reduce__(self) -> tuple[type["SharedAffinity"], tuple[Terms]]:
        """Hashes of text differ from process to process."""
        return (SharedAffinity, (tuple(self),))


@dataclass(frozen=True, slots=True)
class Parallelism(Data):
    """How the GPUs of a role share the work of a model."""

    tensor: Count = 1
    pipeline: Count = 1
    data: Annotated[Count | None, omitted(None)] = None
    """Replicas; absent: what the others leave of the GPUs"""
    expert: Annotated[Count, Field(description="Divides data x context")] = 1
    context: Count = 1

    def field_errors(self, gpus: int, *, elastic: bool) -> Iterator[FieldError]:
        """Degrees that are not the GPUs of the role at `min`; paths start at the parallelism."""
        replica = self.tensor * self.pipeline * self.context
        product = replica * (self.data or 1)
        wrong = product != gpus if self.data is not None and not elastic else gpus % product
        if wrong:
            named = "tensor x pipeline x context" + ("" if self.data is None else " x data")
            what = f"{named} is {product:,}, but the role has {plural(gpus, 'GPU')}"
            yield FieldError((), what, "the product is the number of GPUs of all pods of the role")
        elif (gpus // replica * self.context) % self.expert:
            what = f"expert {self.expert} does not divide data x context"
            yield FieldError(("expert",), what, f"a divisor of {gpus // replica * self.context}")


class PodDocument(Document):
    """A pod that exists: with a node it runs, without it waits."""

    name: Name | None = Field(default=None, description="Absent: <gang>-<role>-<index>")
    uid: Name | None = omitted()
    role: str
    index: Annotated[int, whole(0, MAX_PODS - 1)]
    node: Name | None = omitted()
    gpus: GpuIndices | None = None
    """Indices of its GPUs; null: not known, or it waits"""
    mode: Literal["gate", "request"] | None = omitted(None)
    """How a waiting pod can be started. gate: its gate is removed; request: it is made once a request for its
    placement is answered"""

    budgets: Many[Name] = omitted(())
    """Disruption budgets of its namespace that count its eviction while it runs"""
    rank: Annotated[int, whole(0, MAX_RANK)] | None = omitted(None)
    """Rank of its first GPU, where an earlier plan dealt it one"""
    gpu_group: Title | None = omitted(None)
    """Name of the GPU that it shares, where its index is not known: pods of one name share it. Of several:
    their names, with commas between"""
    start: Annotated[int, whole(0, MAX_SLICES - 1)] | None = omitted(None)
    """Memory slice where its instance begins on that GPU, of a node with dynamicMig"""

    @model_serializer(mode="wrap")
    def _without_gpus_while_it_waits(
        self, serialize: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        document: dict[str, Any] = serialize(self)
        if self.node is None:
            document.pop("gpus")
        return document


@dataclass(frozen=True, slots=True)
class Hold(Data):
    """Why pods of the gang must not start even if there is room."""

    code: Literal["Unsupported", "Incomplete", "Gated", "QueueLimit", "Backoff"]
    message: Sentence


class PlannedDocument(Document):
    """Where an earlier plan placed a pod, whether it exists or not."""

    role: str
    index: Annotated[int, whole(0, MAX_PODS - 1)]
    node: Name


MAX_EVICTIONS = 1_000_000


class GangStatus(Document):
    """Pods of the gang that exist, since when, and why the others must not start."""

    pods: Many[PodDocument] = ()
    hold: Hold | None = omitted(None, "While it is set, no pod of the gang is placed")
    scheduler: Name | None = omitted(None)
    """Whose its waiting pods are, if not gangplan's: a plan of them cannot be applied"""
    scheduler_priority: Annotated[int, whole(0, 2**32)] | None = omitted(None)
    """The priority that its scheduler shows, and the tables; `spec.priority` is what counts"""
    started_at: Time | None = omitted(None, "When its pods started")
    runs_since: Time | None = omitted(None)
    """When the first of its running pods started, from which `minRunTime` and the time that it has run count;
    absent: `startedAt`"""
    expected_left_s: Duration | None = omitted(None, alias="expectedLeft")
    """How much longer it is expected to run at full speed, by the durations of others like it; for the
    policy's `order`, and no promise"""
    last_checkpoint: Time | None = omitted(None, "Work until then is not lost when it stops")
    evicted_at: Time | None = omitted(None)
    """When a plan stopped or moved it last: it pauses, or is left alone, from then on"""
    evictions: Annotated[int, whole(0, MAX_EVICTIONS)] = omitted(0)
    """How often plans stopped or moved it"""
    planned: Many[PlannedDocument] = omitted((), "Where an earlier plan placed its pods")


MAX_GPUS_A_POD = 100_000
MAX_PRIORITY = 2_000_000_000

Share = Annotated[Fraction, *decimal(0, 1)]


class ReplicaRange(Document):
    """Elastic: min, min + step, ... not above max pods."""

    min: Count
    max: Count
    step: Count = 1


Replicas = Annotated[
    Annotated[Count, Tag("count")] | Annotated[ReplicaRange, Tag("range")],
    Discriminator(lambda one: "range" if isinstance(one, dict | ReplicaRange) else "count"),
]


LEVELS = ("required", "preferred", "balance", "exclusive")
"""Fields of the topology of a gang that name a level."""


_LEVELS = frozenset((*LEVELS, "level"))


def level_names(part: Document, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every level that a part of a gang names, with its path; ``path``: of the part."""
    for name, value in vars(part).items():
        if name in _LEVELS:
            if value is not None:
                yield (*path, name), value
        elif isinstance(value, Document):
            yield from level_names(value, (*path, name))
        elif isinstance(value, tuple) and value and isinstance(value[0], Document):
            for i, one in enumerate(value):
                yield from level_names(one, (*path, to_camel(name), i))


class RoleTopology(Document):
    """Where pods go: all in one domain of `required`, if possible in one of `preferred`."""

    required: LevelName | None = omitted()
    preferred: LevelName | None = omitted()


class GangTopology(RoleTopology):
    """The same for all pods of the gang, how they use domains, and the least share of the ideal bandwidth."""

    min_bandwidth_share: Share | None = omitted(None)
    """Wait rather than run below this share of the ideal bandwidth"""
    balance: LevelName | None = omitted(None)
    """The domains used have equally many of its pods with GPUs, or one more"""
    exclusive: LevelName | None = omitted(None)
    """No domain with GPU pods of it has one of another gang"""
    order: bool = omitted(default=False)
    """Consecutive pods of a role are dealt to places near each other"""


class NextToDocument(Document):
    """Other pods in the same domain of a level."""

    level: LevelName
    pod_set: Title | None = omitted(None, "Pods of this set of the gang; absent: of this role")


class SpreadDocument(NextToDocument):
    """How evenly the pods of a set are spread over the domains of a level."""

    max_skew: Count = 1
    """Most pods that a domain may have more than the one with the fewest"""
    min_domains: Count = omitted(1, "With fewer domains, the one with the fewest counts as empty")


class GroupTopology(RoleTopology):
    """All pods in one domain of `required`, if possible those with GPUs in one of `preferred`."""


class GroupDocument(Document):
    """Roles whose pods share one domain; a role may be in several groups."""

    name: ShortName
    roles: Many[ShortName]
    topology: GroupTopology


MAX_NEAR = 64
"""Most gangs that one may name to be near to."""


class NearDocument(Document):
    """Gangs of the same namespace: all pods with GPUs in one domain of `level` with those of one of them."""

    gangs: Annotated[Many[Name], Field(json_schema_extra={"minItems": 1, "maxItems": MAX_NEAR})]
    level: LevelName


GpuFraction = Annotated[Fraction, *decimal(Fraction(1, 1000), Fraction(999, 1000))]


class GpuDocument(Document):
    """A part of a GPU: an instance, a fraction, or memory and cores."""

    profile: Title | None = omitted(None, "MIG profile of the instance that each pod gets")
    fraction: GpuFraction | None = omitted(None)
    """Of memory and cores of a shared GPU, in thousandths, rounded up; with `cores` of memory"""
    memory: RequestedMiB | None = omitted(None, "Of a shared GPU")
    cores: Annotated[int, whole(0, 100)] | None = omitted(None)
    """Cores of a shared GPU in percent; 0, and absent beside `memory`: whatever is left"""
    count: Annotated[int, whole(1, MOST_GPUS)] | None = omitted(None)
    """Shared GPUs of one server, with so much of each; absent: 1"""

    @property
    def resource(self) -> str:
        """The name of the request that it is read as."""
        if self.fraction is not None:
            part = Part.fraction(ceil(1000 * self.fraction), self.cores)
        elif self.memory is not None:
            part = Part.memory(self.memory, self.cores or 0)
        else:
            return resource_of(self.profile or "")
        return replace(part, gpus=self.count or 1).resource

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside it."""
        stated = [x for x in ("profile", "fraction", "memory") if getattr(self, x) is not None]
        if len(stated) != 1:
            what = " and ".join(stated) if stated else "no part of a GPU"
            yield FieldError((), what, "write one of profile, fraction and memory", at_key=True)
        if self.cores is not None and self.memory is None and self.fraction is None:
            what, hint = "cores without memory", "write memory, or a fraction of it"
            yield FieldError(("cores",), what, hint, at_key=True)
        if self.count is not None and self.profile is not None:
            what, hint = "several instances in one pod", "write them as `requests`"
            yield FieldError(("count",), what, hint, at_key=True)
        if self.profile is not None and self.profile not in profile_names():
            what = f"no board has a profile {shown(self.profile)}"
            hint = suggestion(self.profile, profile_names(), "profiles")
            yield FieldError(("profile",), what, hint)


def _part(value: object) -> object:
    """The value, unless it is a number, which is meant for ``gpus``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        hint = (
            "write whole GPUs as gpus: 8, and a part as gpu: {fraction: 0.5} or {profile: 1g.10gb}"
        )
        raise InvalidValueError(f"expected an object with fields, not {described(value)}", hint)
    return value


def _needs_gpu_or_gpus(schema: dict[str, Any]) -> None:
    schema["required"].remove("gpus")
    schema["anyOf"] = [{"required": ["gpus"]}, {"required": ["gpu"]}]


class RoleDocument(Document):
    """Pods of one kind within a gang."""

    model_config = ConfigDict(json_schema_extra=_needs_gpu_or_gpus)

    name: ShortName
    replicas: Replicas = Field(description="How many pods, or {min, max, step}")
    first_index: Annotated[int, whole(0, MAX_PODS - 1)] = omitted(0, "Index of its first pod")
    gpus: Annotated[int, whole(0, MAX_GPUS_A_POD)]
    """GPUs of each pod; 0 for a launcher, and the default beside `gpu`"""
    gpu: Annotated[GpuDocument | None, BeforeValidator(_part)] = omitted(None)
    """A part of a GPU; read as a request of `nvidia.com/mig-1g.10gb`, `share.gangplan.dev/0.25`,
    `share.gangplan.dev/12288Mi-30` and so on"""
    requests: Requested = Field(default={}, description="Other resources of each pod")
    topology: RoleTopology = RoleTopology.model_construct()
    slice: SliceDocument | None = omitted()
    outer_slices: Many[SliceDocument] = omitted(())
    """Slices around those of `slice`, each wider than the one before"""
    model: Title | None = omitted(None, "A GPU model or a server model")
    node_selector: Mapped[LabelKey, LabelValue] = Field(default={})
    """Labels its nodes must have"""
    node_affinity: Annotated[
        Many[Many[NodeExpression]],
        AfterValidator(SharedAffinity),
        read_once(),
    ] = omitted((), "Any of these terms must hold, all expressions of one")
    tolerations: Many[Toleration] = ()
    mix_models: bool = Field(default=False, description="Its pods may run on several GPU models")
    pod_sets: Many[Title] = omitted((), "Sets of the gang that its pods belong to")
    anti_affinity: Many[NextToDocument] = omitted(())
    """Pods that are never in one domain with a pod of this role"""
    affinity: Many[NextToDocument] = omitted(())
    """Pods of which one is in the domain of every pod of this role"""
    spread: Many[SpreadDocument] = omitted((), "Domains over which pods are spread evenly")
    parallelism: Parallelism | None = omitted(None)
    """How its GPUs share the work of a model: which of them have to be near"""

    @model_validator(mode="before")
    @classmethod
    def _without_gpus(cls, tree: object) -> object:
        if isinstance(tree, dict) and "gpus" not in tree and tree.get("gpu") is not None:
            return {**tree, "gpus": 0}
        return tree

    @property
    def all_requests(self) -> dict[str, int]:
        """`requests`, and that of the part of a GPU."""
        if self.gpu is None:
            return self.requests
        return {**self.requests, self.gpu.resource: amount_of(self.gpu.resource)}

    @property
    def span(self) -> tuple[int, int, int]:
        """(min, max, step) of its pod count."""
        if isinstance(self.replicas, int):
            return self.replicas, self.replicas, 1
        return self.replicas.min, self.replicas.max, self.replicas.step

    @property
    def indices(self) -> range:
        """Every index its pods may have."""
        return range(self.first_index, self.first_index + self.span[1])

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the role; paths start at the role."""
        least, most, _ = self.span
        if least > most:
            what = f"min {least} is above max {most}"
            yield FieldError(("replicas", "min"), what, "swap them, or raise max")
        if (last := self.first_index + most - 1) >= MAX_PODS:
            hint = f"the largest is {MAX_PODS - 1:,}"
            yield FieldError(("firstIndex",), f"indices up to {last:,}", hint)
        yield from slice_errors(self.slice, self.outer_slices)
        yield from self._request_errors()
        terms = self.node_affinity
        if isinstance(terms, SharedAffinity) and not terms.sound:
            wrong = [
                error
                for t, term in enumerate(terms)
                for e, expression in enumerate(term)
                for error in within(("nodeAffinity", t, e), expression.field_errors())
            ]
            terms.sound = not wrong
            yield from wrong
        for i, toleration in enumerate(self.tolerations):
            yield from within(("tolerations", i), toleration.field_errors())
        yield from twice(self.pod_sets, ("podSets",), "the pod set {} is listed twice")
        if self.parallelism is not None:
            own = self.parallelism.field_errors(least * self.gpus, elastic=least < most)
            yield from within(("parallelism",), own)

    def _request_errors(self) -> Iterator[FieldError]:
        yield from resource_errors(self.requests, ("requests",))
        if "pods" in self.requests:
            what, hint = "pods cannot be requested", "every pod takes one; remove it"
            yield FieldError(("requests", "pods"), what, hint, at_key=True)
        parts = [name for name in self.requests if name.startswith(SHARE)]
        for resource in parts:
            if self.requests[resource] != amount_of(resource) or len(parts) > 1 or self.gpus:
                what = "a pod has one part of a GPU, or one of each of several, and no whole ones"
                hint = (
                    "write gpu: {fraction: 0.5}, or {fraction: 0.5, count: 2} for parts of two GPUs"
                )
                yield FieldError(("requests", resource), what, hint, at_key=True)
        if self.gpu is None:
            return
        if faults := list(self.gpu.field_errors()):
            yield from within(("gpu",), faults)
            return
        resource = self.gpu.resource
        if self.gpus:
            what, hint = "GPUs and a part of one in one pod", "remove `gpus`, or make two roles"
            yield FieldError(("gpu",), what, hint)
        if resource in self.requests or (parts and resource.startswith(SHARE)):
            what, hint = f"{resource} is requested twice", "remove it here: `gpu` requests one"
            yield FieldError(("requests", resource), what, hint, at_key=True)


class GangSpec(Document):
    """What the gang requests."""

    queue: Title | None = omitted()
    service: Title | None = omitted(None)
    """Gangs of one namespace and service run on one GPU model, unless a role of theirs has `mixModels`"""
    submitted_at: Time | None = omitted()
    expected_duration_s: Duration | None = omitted(alias="expectedDuration")
    resize_after: Time | None = omitted(None, "While it runs, its number of pods stays until then")
    priority: Annotated[int, whole(-MAX_PRIORITY, MAX_PRIORITY)] = 0
    """Larger goes first"""
    preemptible: bool = Field(default=False, description="May be stopped for a higher priority")
    movable: bool = Field(default=False, description="May be restarted elsewhere")
    min_run_time_s: Duration | None = omitted(None, alias="minRunTime")
    """For so long after `startedAt` it is not stopped, shrunk or moved; absent: that of its queue, else of
    the policy"""
    topology: Annotated[GangTopology, read_once()] = GangTopology.model_construct()
    roles: Annotated[Many[RoleDocument], read_once()] = Field(json_schema_extra={"minItems": 1})
    groups: Many[GroupDocument] = omitted(())
    """Roles that share a domain; `required` is read as podSets and affinity"""
    near: NearDocument | None = omitted(None)
    """Gangs of which one should be in the same domain, if possible"""
    communication: Annotated[Communication, read_once()] = Communication.model_construct()


class GangMetadata(Document):
    """Name of a gang."""

    name: Name
    namespace: Name = "default"


class GangDocument(Document):
    """A gang: all its pods start together or none does."""

    api_version: ApiVersion
    kind: Literal["Gang"]
    metadata: GangMetadata
    spec: Annotated[GangSpec, read_once()]
    status: GangStatus = GangStatus.model_construct()

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return (self.metadata.namespace, self.metadata.name)

    @property
    def shown_priority(self) -> int:
        """The priority that people know: its scheduler's, if it is another one."""
        own = self.status.scheduler_priority
        return self.spec.priority if own is None else own

    @property
    def running_pods(self) -> tuple[PodDocument, ...]:
        return tuple(pod for pod in self.status.pods if pod.node is not None)

    @property
    def queued_at(self) -> int | None:
        """Since when it has been in the queue: an eviction counts as a new submission. None if undated."""
        submitted, evicted = self.spec.submitted_at, self.status.evicted_at
        return submitted if submitted is None or evicted is None else max(submitted, evicted)

    @property
    def safe_since(self) -> int | None:
        """When its work was last safe: the last checkpoint or the start; None if unknown."""
        times = (self.status.started_at, self.status.last_checkpoint)
        return max((time for time in times if time is not None), default=None)

    def pod_name(self, pod: PodDocument) -> str:
        """The name the pod goes by."""
        return pod.name or f"{self.metadata.name}-{pod.role}-{pod.index}"

    def set_of(self, group: str) -> str:
        """The pod set of a group."""
        return f"{self.metadata.namespace}/{self.metadata.name}/{group}"

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the gang; paths start at its top."""
        yield from self.spec_errors()
        yield from self.pod_errors()

    def spec_errors(self) -> Iterator[FieldError]:
        """Those in its spec, which many gangs may have in common."""
        path: Path = ("spec", "roles")
        roles = self.spec.roles
        if not roles:
            yield FieldError(path, "a gang without roles", "write at least one role")
        names = [role.name for role in roles]
        yield from twice(names, path, "two roles are named {}", "rename one", ("name",))
        known = {pod_set for role in roles for pod_set in role.pod_sets}
        for i, role in enumerate(roles):
            yield from within((*path, i), role.field_errors())
            for name in ("affinity", "antiAffinity", "spread"):
                for j, rule in enumerate(getattr(role, name.replace("A", "_a"))):
                    if rule.pod_set is not None and rule.pod_set not in known:
                        what = f"no pods of the gang are in the set {shown(rule.pod_set)}"
                        hint = suggestion(rule.pod_set, known, "pod sets")
                        yield FieldError((*path, i, name, j, "podSet"), what, hint)
        if (pods := sum(role.span[1] for role in roles)) > MAX_PODS:
            yield FieldError(path, f"{pods:,} pods in one gang", f"the most is {MAX_PODS:,}")
        communication = self.spec.communication.field_errors(self.min_gpus)
        yield from within(("spec", "communication"), communication)
        yield from _group_errors(self)
        yield from _near_errors(self)

    def pod_errors(self) -> Iterator[FieldError]:
        """Those between its pods and its roles."""
        return _pod_errors(self)

    @property
    def min_gpus(self) -> int:
        """GPUs of all its pods at `min`."""
        return sum(role.span[0] * role.gpus for role in self.spec.roles)


MAX_SET_NAME = 253


def _group_errors(gang: GangDocument) -> Iterator[FieldError]:
    """Groups of roles that there are not, and names that are too long; paths start at the gang's top."""
    roles = [role.name for role in gang.spec.roles]
    seen = set(roles)
    for i, group in enumerate(gang.spec.groups):
        path: Path = ("spec", "groups", i)
        if group.name in seen:
            what = f"two groups or roles are named {shown(group.name)}"
            yield FieldError((*path, "name"), what, "rename one")
        seen.add(group.name)
        if not group.roles:
            yield FieldError((*path, "roles"), "a group without roles", "name its roles")
        if group.topology.required is None and group.topology.preferred is None:
            what, hint = "a group without a level", "write `required` or `preferred`"
            yield FieldError((*path, "topology"), what, hint)
        own = [role for role in gang.spec.roles if role.name in group.roles]
        if group.topology.preferred is not None and own and not any(role.gpus for role in own):
            what = "no role of the group has GPUs, and others do not count"
            hint = "remove `preferred`, or write `required`"
            yield FieldError((*path, "topology", "preferred"), what, hint)
        for j, name in enumerate(group.roles):
            if name not in roles:
                what = f"unknown role {shown(name)}"
                yield FieldError((*path, "roles", j), what, suggestion(name, roles, "roles"))
        if len(gang.set_of(group.name)) > MAX_SET_NAME:
            what = f"the name {shown(group.name)} is too long here"
            yield FieldError((*path, "name"), what, "shorten it")


def _near_errors(gang: GangDocument) -> Iterator[FieldError]:
    """Gangs that cannot be named, or not so many; paths start at the gang's top."""
    if gang.spec.near is None:
        return
    path: Path = ("spec", "near", "gangs")
    names = gang.spec.near.gangs
    if not 0 < len(names) <= MAX_NEAR:
        yield FieldError(path, f"near to {plural(len(names), 'gang')}", f"name 1 to {MAX_NEAR}")
    if gang.metadata.name in names:
        at = names.index(gang.metadata.name)
        yield FieldError((*path, at), "a gang cannot be near itself", "name another gang")
    yield from twice(names, path, "the gang {} is named twice", "name it once")


def _pod_errors(gang: GangDocument) -> Iterator[FieldError]:
    """Contradictions between the pods of a gang and its roles; paths start at the gang's top."""
    if not gang.status.pods and not gang.status.planned:
        return
    roles = {role.name: role for role in reversed(gang.spec.roles)}
    seen: set[tuple[str, int]] = set()
    for i, pod in enumerate(gang.status.pods):
        path: Path = ("status", "pods", i)
        budgets = (*path, "budgets")
        yield from twice(pod.budgets, budgets, "the disruption budget {} is listed twice")
        yield from _index_errors(path, pod, roles)
        if pod.role not in roles:
            continue
        if (pod.role, pod.index) in seen:
            what = f"two pods are {pod.role} {pod.index} of gang {shown(gang.metadata.name)}"
            yield FieldError((*path, "index"), what, "give each its own index")
        seen.add((pod.role, pod.index))
        role = roles[pod.role]
        part = None if role.gpus else share_in(role.all_requests)
        if pod.gpu_group is not None and part is None:
            what, hint = "a group of a pod that shares no GPU", "remove it"
            yield FieldError((*path, "gpuGroup"), what, hint, at_key=True)
        if pod.start is not None:
            yield from _start_errors(path, pod, role)
        elif pod.gpus and not role.gpus and instance_in(role.all_requests) is not None:
            what = "a GPU, but not where on it the instance begins"
            hint = "add `start`, or remove `gpus` where `mig` states the instances"
            yield FieldError((*path, "gpus"), what, hint)
            continue
        known = (part is not None or pod.start is not None) and pod.gpus and pod.node is not None
        yield from _gpu_errors((*path, "gpus"), pod, amount_of(part or "") if known else role.gpus)
    planned: set[tuple[str, int]] = set()
    for i, place in enumerate(gang.status.planned):
        path = ("status", "planned", i)
        yield from _index_errors(path, place, roles)
        if (place.role, place.index) in planned:
            what = f"pod {place.role} {place.index} is planned twice"
            yield FieldError((*path, "index"), what, "keep one of the two")
        planned.add((place.role, place.index))


def _start_errors(path: Path, pod: PodDocument, role: RoleDocument) -> Iterator[FieldError]:
    """Where an instance begins that the pod has not, or nobody knows on which GPU."""
    if role.gpus or instance_in(role.all_requests) is None:
        what, hint = "the start of a pod that has not one instance of a GPU", "remove it"
    elif pod.node is None or not pod.gpus:
        what, hint = "the start of an instance on an unknown GPU", "add the node and the GPU of it"
    else:
        return
    yield FieldError((*path, "start"), what, hint, at_key=True)


def _index_errors(
    path: Path, pod: PodDocument | PlannedDocument, roles: Mapping[str, RoleDocument]
) -> Iterator[FieldError]:
    """A pod that no role has."""
    role = roles.get(pod.role)
    if role is None:
        hint = suggestion(pod.role, roles, "roles")
        yield FieldError((*path, "role"), f"unknown role {shown(pod.role)}", hint)
    elif pod.index not in role.indices:
        what = f"there is no pod {pod.index} of role {shown(pod.role)}"
        hint = f"indices are {role.indices[0]} to {role.indices[-1]}"
        yield FieldError((*path, "index"), what, hint)


def _gpu_errors(path: Path, pod: PodDocument, requested: int) -> Iterator[FieldError]:
    """GPUs that a pod cannot hold; ``requested``: by its role."""
    if pod.gpus is None:
        return
    if pod.node is not None and len(pod.gpus) == len(set(pod.gpus)) == requested:
        return
    if pod.node is None and pod.gpus:
        yield FieldError(path, "a waiting pod holds no GPUs", "add its node")
    elif len(pod.gpus) != requested and pod.node is not None:
        what = f"{len(pod.gpus)} GPUs held, but role {shown(pod.role)} requests {requested}"
        yield FieldError(path, what, f"list {requested} of them, or null if they are not known")
    yield from twice(pod.gpus, path, "GPU {} is listed twice")
