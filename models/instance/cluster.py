"""The cluster: levels, domains and nodes, as an immutable tree with dense indices."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TypeVar

from models.documents.cluster import DisruptionBudget, GpuSharing, Level, MigGpus, Taint
from models.gpu_shares import SHARE
from models.hardware import Nic, ServerModel, mask_of

Owner = TypeVar("Owner")
Found = TypeVar("Found")


def once_with(find: Callable[[Owner], Found]) -> Callable[[Owner], Found]:
    """The function, which keeps what it finds in a gang or a cluster with it: instances share these."""
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def kept(owner: Owner) -> Found:
        known: dict[str, Found] = owner.__dict__
        if name not in known:
            known[name] = find(owner)
        return known[name]

    return kept


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A GPU of which pods that run have parts, or that is ready for some: ``used`` is empty then.

    ``gpu``: its index; None where only the ``group`` is known. ``used``: resources of their parts, with
    their numbers; ``instances``: of instances (MIG) the profile and the memory slice where it begins.
    """

    gpu: int | None
    group: str | None
    used: tuple[tuple[str, int], ...]
    instances: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One server of the cluster.

    ``domains[l]`` is the short name of the node's domain at level l, None where the node has no
    value there; shape: one entry per level, widest first. ``nics`` None means those of the model.
    ``allocatable``: cpu in millicores, every other resource in whole units (memory: bytes),
    sorted by resource; an absent resource does not limit.
    ``unhealthy``: bit mask of unhealthy and of partitioned GPUs, none of which is given;
    ``unknown_unhealthy`` has those of ``unknown_partitioned`` as well. ``held``: in the units of
    ``allocatable``. ``reshapable``: of what is allocatable the instances and parts that its GPUs could have
    of each kind, but not of all at once. ``shared``: GPUs that pods share already, among the unhealthy ones;
    of these ``releasable``, a mask, are idle once no pod is left of the roles that share them. The others
    say what those of ``NodeDocument`` do, maps as sorted pairs.
    """

    name: str
    model: ServerModel | None
    domains: tuple[str | None, ...]
    allocatable: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    nics: tuple[Nic, ...] | None = None
    unschedulable: bool = False
    ready: bool = True
    unhealthy: int = 0
    unknown_unhealthy: int = 0
    held: tuple[tuple[str, int], ...] = ()
    last_failure: int | None = None
    mig: tuple[MigGpus, ...] = ()
    unknown_partitioned: int = 0
    dynamic_mig: str | None = None
    sharing: GpuSharing | None = None
    shared: tuple[SharedGpu, ...] = ()
    reshapable: tuple[tuple[str, int], ...] = ()
    releasable: int = 0

    @property
    def gpus(self) -> int:
        """Installed GPUs."""
        return self.model.gpus if self.model else 0

    @property
    def partitioned(self) -> int:
        """Bit mask of the GPUs that are never given whole: that have instances (MIG), or are shared."""
        shared = mask_of(one.gpu for one in self.shared if one.gpu is not None)
        return mask_of(gpu for one in self.mig for gpu in one.gpus) | shared

    @property
    def empty_mig(self) -> tuple[int, ...]:
        """GPUs in MIG mode without instances but of pods: plans may give some, and never give them whole."""
        if self.dynamic_mig is None:
            return ()
        return tuple(gpu for one in self.mig if not one.profiles for gpu in one.gpus)

    @property
    def unknown_shared(self) -> int:
        """Shared GPUs of unknown index; ``unknown_partitioned`` has them as well."""
        return sum(one.gpu is None for one in self.shared)

    @property
    def whole_gpus(self) -> int:
        """GPUs that could be given whole if all were healthy, and none was shared."""
        known, unknown = self.partitioned.bit_count(), self.unknown_partitioned
        shared = (one for one in self.shared if one.used and one.gpu not in self.empty_mig)
        return self.gpus - known - unknown + sum(1 for _ in shared)

    @property
    def has_failed_gpus(self) -> bool:
        """Whether GPUs are unhealthy that are not partitioned and not shared."""
        failed = self.unknown_unhealthy > self.unknown_partitioned
        return failed or bool(self.unhealthy & ~self.partitioned)

    @property
    def healthy(self) -> int:
        """Bit mask of the GPUs not known to be unhealthy, and not partitioned."""
        return (self.model.all_gpus if self.model else 0) & ~self.unhealthy

    @property
    def givable(self) -> int:
        """Bit mask of the GPUs that a plan may give whole if no pod is in the way."""
        return self.healthy | self.releasable

    def still_shared(self, kept: int) -> tuple[SharedGpu, ...]:
        """Those of ``shared`` that stay so. ``kept``: mask of those of which some pod is left."""
        gone = self.releasable & ~kept
        return tuple(one for one in self.shared if one.gpu is None or not gone >> one.gpu & 1)

    @property
    def healthy_gpus(self) -> int:
        """Installed GPUs without unhealthy and partitioned ones, free or not."""
        return max(0, self.healthy.bit_count() - self.unknown_unhealthy)

    @property
    def stated(self) -> dict[str, int]:
        """What is allocatable without what pods have of GPUs in parts, and what these could have."""
        others = dict(self.reshapable)
        for resource, count in (pair for one in self.shared for pair in one.used):
            others[resource] = others.get(resource, 0) + count
        offered = ((name, most - others.get(name, 0)) for name, most in self.allocatable)
        return {name: most for name, most in offered if not name.startswith(SHARE)}

    @property
    def at_most(self) -> dict[str, int]:
        """What it offers of each resource if no pod runs."""
        held = dict(self.held)
        return {name: most + held.get(name, 0) for name, most in self.allocatable}

    @property
    def gpus_in_order(self) -> int:
        """Installed GPUs without unhealthy ones; partitioned and shared ones count."""
        sick = (self.unhealthy & ~self.partitioned).bit_count()
        return max(0, self.gpus - sick - self.unknown_unhealthy + self.unknown_partitioned)

    @property
    def effective_nics(self) -> tuple[Nic, ...]:
        """The node's own NICs, or those of its model."""
        if self.nics is not None:
            return self.nics
        return self.model.nics if self.model else ()


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain of one level: its whole path and its nodes (indices, ascending)."""

    level: int
    path: tuple[str, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    """Levels widest first; nodes sorted by name. ``node_level`` = len(levels) is the innermost level.

    ``budgets``: sorted by namespace and name.

    Derived: ``domains[l]`` lists the domains of level l (l == node_level: one a node), and
    ``domain_of[l][n]`` is the dense index of node n's domain at level l. A node without a value
    at a level is a domain of its own there and at every narrower level.
    """

    name: str
    levels: tuple[Level, ...]
    nodes: tuple[Node, ...]
    uid: str | None = None
    budgets: tuple[DisruptionBudget, ...] = ()
    domains: tuple[tuple[Domain, ...], ...] = field(init=False, repr=False, compare=False)
    domain_of: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        domains, domain_of = _domains(self.levels, self.nodes)
        object.__setattr__(self, "domains", domains)
        object.__setattr__(self, "domain_of", domain_of)

    @property
    def node_level(self) -> int:
        return len(self.levels)

    @cached_property
    def span_weights(self) -> tuple[int, ...]:
        """What ``span`` counts a domain for, a level, the node level last.

        4^k for the k-th counted level outwards from ``node`` (k = 0); 0 for one that is not counted.
        """
        weight, found = 1, [1]
        for level in reversed(self.levels):
            weight *= 4 if level.counted else 1
            found.append(weight if level.counted else 0)
        return tuple(reversed(found))

    @property
    def counted_levels(self) -> tuple[int, ...]:
        """Indices of the levels above ``node`` that tiers count, widest first."""
        return tuple(i for i, level in enumerate(self.levels) if level.counted)

    def narrowest_domain(self, nodes: Collection[int]) -> str | None:
        """The narrowest named domain that holds these nodes, such as ``rack r1``; None if there is none."""
        one, *rest = nodes
        for level in range(self.node_level, -1, -1):
            of = self.domain_of[level]
            name = self._named(level, one)
            if name is not None and all(of[n] == of[one] for n in rest):
                return f"{self.level_name(level)} {name}"
        return None

    def domain_name(self, level: int, n: int) -> str:
        """The path of a node's domain at a level, such as ``b1/r1``; the node's name if it is alone there."""
        values = self.nodes[n].domains[: level + 1]
        alone = level == self.node_level or None in values
        return self.nodes[n].name if alone else "/".join(v for v in values if v is not None)

    def _named(self, level: int, n: int) -> str | None:
        """The name of a node's domain at a level; None if it has none there or at a wider level."""
        node = self.nodes[n]
        if level == self.node_level:
            return node.name
        values = node.domains[: level + 1]
        return None if None in values else values[-1]

    def level_name(self, level: int) -> str:
        """Name of a level index; ``node`` for the innermost."""
        return "node" if level == len(self.levels) else self.levels[level].name


def _domains(
    levels: tuple[Level, ...], nodes: tuple[Node, ...]
) -> tuple[tuple[tuple[Domain, ...], ...], tuple[tuple[int, ...], ...]]:
    """Group nodes by whole path at every level, the node level last; order: by path, then node."""
    all_domains: list[tuple[Domain, ...]] = []
    all_of: list[tuple[int, ...]] = []
    for level in range(len(levels) + 1):
        members: dict[tuple[tuple[int, str], ...], list[int]] = {}
        for index, node in enumerate(nodes):
            members.setdefault(_path(node, level, len(levels)), []).append(index)
        ordered = sorted(members)
        position = {path: i for i, path in enumerate(ordered)}
        all_domains.append(
            tuple(
                Domain(level, tuple(name for _, name in path), tuple(members[path]))
                for path in ordered
            )
        )
        all_of.append(tuple(position[_path(node, level, len(levels))] for node in nodes))
    return tuple(all_domains), tuple(all_of)


def _path(node: Node, level: int, node_level: int) -> tuple[tuple[int, str], ...]:
    """Whole path of the node's domain: (0, short name) a level, (1, node name) for a node without a value."""
    path: list[tuple[int, str]] = []
    for value in node.domains[: level + 1]:
        if value is None:
            return (*path, (1, node.name))
        path.append((0, value))
    if level == node_level:
        path.append((1, node.name))
    return tuple(path)
