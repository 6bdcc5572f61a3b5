"""The Cluster document: levels, server models, nodes and ranges of nodes; and the levels of a Policy."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field

from models.documents.base import (
    ApiVersion,
    Data,
    Document,
    FieldError,
    HostRange,
    LabelKey,
    LabelValue,
    Many,
    Mapped,
    Name,
    Offered,
    OfferedMiB,
    Path,
    ShortName,
    Time,
    Title,
    checked,
    decimal,
    omitted,
    read_once,
    suggestion,
    twice,
    whole,
    within,
)
from models.documents.server import MAX_GPUS, GpuIndices, NicDocument, ServerModelDocument
from models.gpu_shares import SHARE, part_of
from models.hardware import slug
from models.host_ranges import MAX_NAMES, check_hosts, host_count, hosts
from models.mig import RESOURCE, resource_of
from models.units import MAX_AMOUNT, shown

MAX_LEVELS = 10
MAX_SHARING = 100
NODE_LEVEL = "node"
NO_NAME = "kubernetes"
"""The name of a cluster that was read from Kubernetes objects, which state none."""

HOSTNAME_LABEL = "kubernetes.io/hostname"

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


Hosts = Annotated[HostRange, checked(check_hosts)]


@dataclass(frozen=True, slots=True)
class Level(Data):
    """One topology level."""

    name: Annotated[ShortName, Field(description="Level name; `node` is reserved")]
    label: Annotated[LabelKey | None, omitted(None)] = None
    """Node label that names the domain of this level"""
    oversubscription: Annotated[Fraction, *decimal(1, 10_000)] = Fraction(1)
    """Divides the bandwidth that crosses domains; at least 1"""
    nvlink: Annotated[bool, Field(description="Its domains share one NVLink fabric")] = False
    counted: Annotated[bool, omitted(default=True)] = True
    """Whether tiers such as `span` count its domains; false: only gangs that name it are bound by it"""


@dataclass(frozen=True, slots=True)
class Taint(Data):
    """A Kubernetes taint; PreferNoSchedule is ignored."""

    key: LabelKey
    value: Annotated[LabelValue, Field(default="")]
    effect: Effect


@dataclass(frozen=True, slots=True)
class MigGpus(Data):
    """GPUs of a node that the administrator partitioned (MIG) in one way."""

    gpus: Annotated[GpuIndices, Field(description="Indices of the GPUs; none is given whole")]
    profiles: Many[Title]
    """Profile of every instance on each of them, as `1g.10gb`"""


@dataclass(frozen=True, slots=True)
class GpuSharing(Data):
    """How pods share GPUs of a node."""

    memory: OfferedMiB | None = None
    """Of each GPU; absent: pods that ask for memory share none"""
    pods: Annotated[int, whole(1, MAX_SHARING)] = MAX_SHARING
    """Most pods that share one GPU"""


class NodeDocument(Document):
    """One server, or a range of equal servers."""

    name: Hosts
    """Name or host range such as gpu-[01-16,20]; several brackets: all combinations"""
    model: Title | None = omitted(None)
    """Server model by name or alias; absent: a node without GPUs"""
    domains: Mapped[str, Name] = Field(default={})
    """Short name of its domain at each level"""
    allocatable: Annotated[Offered, read_once()] = Field(default={})
    """What pods may use of each resource; absent: not limiting"""
    unschedulable: bool = Field(default=False, description="Cordoned")
    ready: bool = True
    unhealthy_gpus: GpuIndices = Field(default=(), description="Indices of unhealthy GPUs")
    unknown_unhealthy: Annotated[int, whole(0, MAX_GPUS)] = 0
    """Number of unhealthy GPUs of unknown index, besides `unhealthyGpus`"""
    mig: Many[MigGpus] = omitted(())
    """Partitioned GPUs; of each profile, `allocatable` has what pods may use of the instances as
    `nvidia.com/mig-1g.10gb`, by default all that are not `held`. Beside `dynamicMig` a plan gives
    instances to those without any, which are in MIG mode"""
    unknown_partitioned: Annotated[int, whole(0, MAX_GPUS)] = omitted(0)
    """Number of partitioned GPUs of unknown index, besides `mig`"""
    dynamic_mig: Title | None = omitted(None)
    """Board of its GPUs, as `H100-80`: a plan may partition those that are idle and not in `mig`, or give
    them whole"""
    sharing: GpuSharing | None = omitted(None)
    """Its GPUs may be shared by pods that ask for a fraction, or for memory and cores"""
    labels: Mapped[LabelKey, LabelValue] = Field(default={}, description="Kubernetes labels")
    taints: Many[Taint] = ()
    nics: Many[NicDocument] | None = omitted(None, "Its NICs, in place of its model's")
    held: Offered = omitted({})
    """What pods of no gang hold: `allocatable` is less by that while they run"""
    last_failure: Time | None = omitted(None)
    """When it, or a link of it, last failed; the tier `suspect` keeps such nodes free"""

    @property
    def partitioned(self) -> frozenset[int]:
        """Indices of the GPUs in `mig`."""
        return frozenset(gpu for one in self.mig for gpu in one.gpus)

    @property
    def unusable_gpus(self) -> int:
        """GPUs that are not given whole: unhealthy and partitioned ones."""
        sick = len(self.unhealthy_gpus) + self.unknown_unhealthy
        return sick + len(self.partitioned) + self.unknown_partitioned

    def instances(self) -> Counter[str]:
        """MIG instances of the node, by the resource of their profile."""
        found: Counter[str] = Counter()
        for one in self.mig:
            for profile in one.profiles:
                found[resource_of(profile)] += len(one.gpus)
        return found

    def field_errors(self, levels: Mapping[str, str | None]) -> Iterator[FieldError]:
        """Contradictions inside the node and with the levels (name to label); paths start at the node."""
        yield from self._domain_errors(levels)
        yield from resource_errors(self.allocatable, ("allocatable",))
        for field in ("allocatable", "held"):
            for resource in getattr(self, field):
                if resource.startswith(SHARE):
                    hint = "write `sharing`; pods that hold parts are of gangs"
                    what = "parts of GPUs are not counted"
                    yield FieldError((field, resource), what, hint, at_key=True)
        yield from twice(self.unhealthy_gpus, ("unhealthyGpus",), "GPU {} is listed twice")
        if self.mig:
            yield from self._partitions()

    def _domain_errors(self, levels: Mapping[str, str | None]) -> Iterator[FieldError]:
        for level, value in self.domains.items():
            path: Path = ("domains", level)
            if level == NODE_LEVEL:
                what = "the level `node` has no domains to name: every node is its own"
                hint = f"remove it; levels: {', '.join(levels) or 'none'}"
                yield FieldError(path, what, hint, at_key=True)
            elif level not in levels:
                hint = suggestion(level, levels, "levels")
                yield FieldError(path, f"unknown level {shown(level)}", hint, at_key=True)
            elif (own := self.labels.get(label := levels[level] or "", value)) != value:
                what = (
                    f"the label {shown(own)} contradicts the domain {shown(value)} of level {level}"
                )
                yield FieldError(("labels", label), what, "remove the label: the domain implies it")
        for level, name in levels.items():
            if name in self.labels and level not in self.domains:
                what = f"the label of level {level}, but no domain at that level"
                hint = f"write domains: {{{level}: {self.labels[name]}}}"
                yield FieldError(("labels", name), what, hint)

    def _partitions(self) -> Iterator[FieldError]:
        listed: set[int] = set()
        for i, one in enumerate(self.mig):
            for j, gpu in enumerate(one.gpus):
                if gpu in listed:
                    what = f"GPU {gpu} is listed twice"
                    yield FieldError(("mig", i, "gpus", j), what, "a GPU has one set of instances")
                elif gpu in self.unhealthy_gpus:
                    what = f"GPU {gpu} is unhealthy, and has instances"
                    yield FieldError(("mig", i, "gpus", j), what, "remove it here or there")
                listed.add(gpu)
        instances = self.instances()
        # held ones may be of sick GPUs
        healthy = not (self.unhealthy_gpus or self.unknown_unhealthy)
        for field, amounts in (("allocatable", self.allocatable), ("held", self.held)):
            for resource in amounts:
                used = self.allocatable.get(resource, 0)
                used += self.held.get(resource, 0) if healthy else 0
                known = resource.startswith(RESOURCE) and not self.unknown_partitioned
                if known and used > instances[resource]:
                    what = f"{used:,} instances, but `mig` states {instances[resource]:,}"
                    yield FieldError((field, resource), what, "free and held ones are in `mig`")
                    return


def resource_errors(amounts: Mapping[str, int], path: Path) -> Iterator[FieldError]:
    """GPUs are no resource here; millicores of cpu must stay within bounds, too."""
    for resource, amount in amounts.items():
        if resource.endswith("/gpu"):
            what = f"{shown(resource)} as a resource"
            hint = "the server model has the GPUs of a node; a role requests them with `gpus`"
            yield FieldError((*path, resource), what, hint, at_key=True)
        elif resource.startswith(SHARE) and part_of(resource) is None:
            what = f"no part of a GPU is named {shown(resource)}"
            yield FieldError((*path, resource), what, "write gpu: {fraction: 0.25}", at_key=True)
        elif resource == "cpu" and amount > MAX_AMOUNT:
            yield FieldError((*path, resource), "this quantity is too large", "check the unit")


MAX_EVICTIONS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DisruptionBudget(Data):
    """A disruption budget: how many of the running pods that name it a plan may evict."""

    namespace: Annotated[Name, Field(description="Of the gangs whose pods name it")]
    name: Name
    allowed: Annotated[int, whole(0, MAX_EVICTIONS)]
    """Evictions that one plan may make of its pods"""

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


class ClusterSpec(Document):
    """Levels, widest first; server models that the catalogue lacks; nodes; disruption budgets."""

    levels: Many[Level] = Field(default=(), max_length=MAX_LEVELS)
    """Topology levels, widest first; `node` is implied"""
    server_models: Many[ServerModelDocument] = ()
    """Additions to the shipped catalogue"""
    nodes: Many[NodeDocument] = ()
    disruption_budgets: Many[DisruptionBudget] = omitted(())
    """How many pods of running gangs may be evicted"""


class ClusterMetadata(Document):
    """Name and identity of a cluster."""

    name: Name
    uid: Name | None = omitted(None, "uid of the namespace kube-system")


class ClusterDocument(Document):
    """A cluster, or a part of one: several Cluster documents are merged."""

    api_version: ApiVersion
    kind: Literal["Cluster"]
    metadata: ClusterMetadata
    spec: ClusterSpec

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the document; paths start at its top."""
        yield from level_errors(self.spec.levels, ("spec", "levels"))
        slugs: dict[str, str] = {}
        for i, model in enumerate(self.spec.server_models):
            yield from within(("spec", "serverModels", i), model.field_errors())
            for text in dict.fromkeys(slug(name) for name in (model.name, *model.aliases)):
                if text in slugs:
                    both = f"server models {shown(slugs[text])} and {shown(model.name)}"
                    what = f"{both} are both found as {shown(text)}"
                    path = ("spec", "serverModels", i, "name")
                    yield FieldError(path, what, "rename one, or remove an alias")
                slugs.setdefault(text, model.name)
        levels = {level.name: level.label for level in self.spec.levels}
        for i, node in enumerate(self.spec.nodes):
            yield from within(("spec", "nodes", i), node.field_errors(levels))


def level_errors(levels: Sequence[Level], at: Path) -> Iterator[FieldError]:
    """Levels that contradict each other or a reserved name; ``at``: the path of their list."""
    names = [level.name for level in levels]
    yield from twice(names, at, "two levels are named {}", "rename one", ("name",))
    labels = [i if level.label is None else level.label for i, level in enumerate(levels)]
    what, hint = "two levels have the label {}", "a label names the domains of one level"
    yield from twice(labels, at, what, hint, ("label",))
    for i, level in enumerate(levels):
        path = (*at, i)
        if level.name == NODE_LEVEL:
            what = "the level `node` is reserved"
            yield FieldError((*path, "name"), what, "remove it: it is implied")
        if level.label == HOSTNAME_LABEL:
            what = "this label names nodes, not a level above them"
            yield FieldError((*path, "label"), what, "remove it")
        if not level.counted and (level.nvlink or level.oversubscription != 1):
            what = "a level that is not counted, with links of its own"
            hint = "remove `counted`, or `nvlink` and `oversubscription`"
            yield FieldError((*path, "counted"), what, hint)


@dataclass(frozen=True, slots=True)
class PolicyLevel(Level):
    """One topology level: by a node label, or with the nodes of every domain."""

    domains: Annotated[Mapped[Name, Many[Hosts]] | None, omitted(None)] = None
    """Nodes of every domain, in place of a label; any other node is a domain by itself"""

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions; paths start at the level."""
        if self.domains is None:
            return
        if self.label is not None:
            what = f"level {shown(self.name)} has a label and domains"
            yield FieldError(("domains",), what, "keep one of them", at_key=True)
        counts = [host_count(pattern) for patterns in self.domains.values() for pattern in patterns]
        if sum(counts) > MAX_NAMES:
            what = f"{sum(counts):,} nodes in the domains of one level"
            yield FieldError(("domains",), what, f"the most is {MAX_NAMES:,}")
            return
        seen: dict[str, str] = {}
        for domain, patterns in self.domains.items():
            for i, pattern in enumerate(patterns):
                for node in hosts(pattern):
                    if node in seen:
                        other = "twice" if seen[node] == domain else f"also in {shown(seen[node])}"
                        what = f"node {shown(node)} is {other}"
                        yield FieldError(("domains", domain, i), what, "a node is in one domain")
                        return
                    seen[node] = domain

    def written_out(self) -> Self:
        """The same with the names of all nodes of its domains, both sorted."""
        found = {
            domain: tuple(sorted(node for pattern in patterns for node in hosts(pattern)))
            for domain, patterns in sorted((self.domains or {}).items())
        }
        return self if self.domains is None else replace(self, domains=found)
