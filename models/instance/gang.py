"""Gangs: roles, pods, topology rules, slices, elastic ranges, node affinity, and the pods that exist.

Levels are indices into Cluster.levels, ``len(levels)`` meaning ``node``; nodes are indices into
Cluster.nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from models.documents.communication import DEFAULT_FRACTION
from models.documents.gang import Hold, NodeExpression, Parallelism, Toleration, slurm_option
from models.gpu_shares import SHARE
from models.mig import RESOURCE
from models.units import whole_number

OWN_FORMULAS = ("all-to-all", "parameter-server", "pipeline")
"""Patterns that do not get the bandwidth of an all-reduce."""

NodeTerm = tuple[NodeExpression, ...]
"""All of its expressions must hold; a term without any holds nowhere."""

NodeAffinity = tuple[NodeTerm, ...]
"""Any of its terms must hold; without terms every node matches."""


def matches(affinity: NodeAffinity, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node of this name and these labels (implied ones included) matches."""
    return not affinity or any(
        term and all(holds(one, name if one.field else labels.get(one.key)) for one in term)
        for term in affinity
    )


def selects(
    selector: Iterable[tuple[str, str]],
    affinity: NodeAffinity,
    labels: Mapping[str, str],
    name: str,
) -> bool:
    """Whether a pod's node selector and required affinity leave it the node of this name and these labels."""
    return all(labels.get(key) == value for key, value in selector) and matches(
        affinity, labels, name
    )


def holds(one: NodeExpression, value: str | None) -> bool:
    """Whether an expression holds for a value; None: the node has no such label."""
    match one.operator:
        case "In":
            return value is not None and value in one.values
        case "NotIn":
            return value is None or value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    mine = None if value is None else whole_number(value)
    limit = whole_number(one.values[0]) if len(one.values) == 1 else None
    if mine is None or limit is None:
        return False
    return mine > limit if one.operator == "Gt" else mine < limit


def shown(affinity: NodeAffinity) -> str:
    """The affinity in words: ``zone in (a, b) and any gpu, or no spot``; empty without terms."""
    return ", or ".join(" and ".join(str(one) for one in term) or "nothing" for term in affinity)


def turn(priority: int, queued_at: int | None, name: str) -> tuple[int, bool, int, str]:
    """Sort key of the waiting gangs of a namespace: higher priority, then older, undated ones last."""
    return -priority, queued_at is None, queued_at or 0, name


@dataclass(frozen=True, slots=True)
class NextTo:
    """Other pods that the pods of a role keep away from, or join, in a domain of a level.

    ``pod_set``: those of this set of the gang; None: the pods of the role itself.
    """

    level: int
    pod_set: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A domain that gets a pod of the role has at most ``max_skew`` pods of a set more than the least has.

    ``pod_set``: as in ``NextTo``. ``min_domains``: with fewer domains the least one counts as empty.
    """

    level: int
    max_skew: int = 1
    pod_set: str | None = None
    min_domains: int = 1


@dataclass(frozen=True, slots=True)
class Together:
    """Roles whose pods with GPUs should share one domain of the level. ``roles``: indices, ascending."""

    name: str
    roles: tuple[int, ...]
    level: int


@dataclass(frozen=True, slots=True)
class Near:
    """A gang should share one domain of the level with one of these gangs of its namespace.

    ``nodes``: of domains in which such a gang stands that is not in the instance. ``anywhere``: beside it
    counts as one wherever the gang is; no document says so.
    """

    gangs: tuple[str, ...]
    level: int
    nodes: frozenset[int] = frozenset()
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one kind within a gang.

    ``min`` == ``max`` for a fixed size; otherwise allowed counts are min, min+step, ... <= max.
    Their indices are first_index, first_index + 1, ...; it grows upward.
    ``requests``: cpu in millicores, others in whole units, a pod, sorted.
    ``slice_size``/``slice_level``: pods with equal index // slice_size share one domain of that level.
    ``outer_slices``: (size, level) of slices around those, each a multiple of the one before, and wider.
    ``keeps``: by node, mask of the GPUs that stay shared while a pod of the role is there.
    ``thousandths``: of a GPU that a pod counts, parts too; None where the input counts whole GPUs.
    The others say what those of ``RoleDocument`` do.
    """

    name: str
    min: int
    max: int
    step: int
    gpus: int
    elastic: bool = False
    requests: tuple[tuple[str, int], ...] = ()
    required: int | None = None
    preferred: int | None = None
    slice_size: int | None = None
    slice_level: int | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    model: str | None = None
    mix_models: bool = False
    first_index: int = 0
    node_affinity: NodeAffinity = ()
    outer_slices: tuple[tuple[int, int], ...] = ()
    pod_sets: tuple[str, ...] = ()
    anti_affinity: tuple[NextTo, ...] = ()
    affinity: tuple[NextTo, ...] = ()
    spread: tuple[Spread, ...] = ()
    parallelism: Parallelism | None = None
    keeps: tuple[tuple[int, int], ...] = ()
    thousandths: int | None = None

    @property
    def units(self) -> int:
        """What a pod counts wherever plans count GPUs, in ``Instance.gpu_unit``."""
        return self.gpus if self.thousandths is None else self.thousandths

    def keeps_on(self, n: int) -> int:
        """Mask of the GPUs of a node that stay shared while a pod of the role is there."""
        return next((mask for node, mask in self.keeps if node == n), 0) if self.keeps else 0

    @property
    def uses_gpus(self) -> bool:
        """Whether its pods have GPUs, or instances or parts of some."""
        return bool(self.gpus) or has_parts(self.requests)

    @property
    def slice_layers(self) -> tuple[tuple[int, int], ...]:
        """(size, level) of every layer of slices, innermost first."""
        if self.slice_size is None or self.slice_level is None:
            return ()
        return ((self.slice_size, self.slice_level), *self.outer_slices)

    def indices(self, count: int) -> range:
        """Indices of its pods when it has so many."""
        return range(self.first_index, self.first_index + count)

    def allowed_counts(self) -> range:
        """Every pod count the role may run with, ascending."""
        return range(self.min, self.max + 1, self.step)


def has_parts(requests: Iterable[tuple[str, object]]) -> bool:
    """Whether instances (MIG) or parts of shared GPUs are among what a pod requests."""
    return any(is_part(resource) for resource, _ in requests)


def is_part(resource: str) -> bool:
    """Whether it counts instances (MIG) or parts of shared GPUs."""
    return resource.startswith((RESOURCE, SHARE))


OFFERS = "offers.gangplan.dev/"
"""Begins labels that nodes have in plans alone: names by which they offer GPUs, ``-`` for ``/``."""


def label_texts(selector: Iterable[tuple[str, str]]) -> list[str]:
    """The terms of a node selector as its owner knows them: of ``OFFERS`` the name of the resource."""
    return [
        _resource(key.removeprefix(OFFERS))
        if key.startswith(OFFERS)
        else slurm_option(key, value) or f"{key}={value}"
        for key, value in selector
    ]


def _resource(name: str) -> str:
    """``nvidia.com-gpu`` as it is written in requests."""
    domain, dot, rest = name.partition(".")
    return domain + dot + rest.replace("-", "/", 1)


@dataclass(frozen=True, slots=True)
class ExistingPod:
    """A pod that exists. ``node`` is an index or None (waits); ``gpus`` a bit mask, None if unknown.

    ``role`` is an index into Gang.roles. ``mode``: how it can be started.
    ``rank``: of its first GPU, where an earlier plan dealt it one.
    ``budgets``: names of the disruption budgets that count its eviction; with several it is never evicted.
    Of a pod with parts of GPUs ``gpus`` are those that it shares, ``gpu_group`` their names, commas between.
    ``start``: the memory slice where its instance (MIG) begins on that GPU, None where the node states its
    instances.
    """

    name: str
    role: int
    index: int
    uid: str | None = None
    node: int | None = None
    gpus: int | None = None
    mode: str | None = None
    budgets: tuple[str, ...] = ()
    rank: int | None = None
    gpu_group: str | None = None
    start: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class PlannedPod:
    """Where an earlier plan placed a pod: ``role`` an index into Gang.roles, ``node`` into the nodes."""

    role: int
    index: int
    node: int


class OfRole(Protocol):
    """A pod, wherever it is."""

    @property
    def role(self) -> int:
        """Index of its role in the gang."""


@dataclass(frozen=True)
class Gang:
    """All pods start together or none does.

    Its fields say what those of ``GangSpec`` and ``GangStatus`` do, times in seconds since the epoch, None
    if unknown. ``hold``: while set, the gang is neither placed nor completed. ``counts_speed``: whether
    slower GPU models slow it down. ``min_run_time_s``: its own, None for that of its queue or the policy
    (``models.instance.run_times``). ``ordered``: consecutive pods of a role are near each other.
    ``together``: roles that should share a domain; ``near``: gangs beside which it should be.
    ``priority``: with its band where the policy's order has bands (``models.queues.bands``);
    ``stated_priority``: then that of the document.
    """

    namespace: str
    name: str
    roles: tuple[Role, ...]
    priority: int = 0
    queue: str | None = None
    submitted_at: int | None = None
    expected_duration_s: int | None = None
    preemptible: bool = False
    movable: bool = False
    required: int | None = None
    preferred: int | None = None
    min_bandwidth_share: Fraction | None = None
    pattern: str = "all-reduce"
    weight: int = 1
    nvlink_across_nodes: bool = True
    fraction: Fraction = DEFAULT_FRACTION
    counts_speed: bool = True
    service: str | None = None
    pods: tuple[ExistingPod, ...] = ()
    hold: Hold | None = None
    scheduler: str | None = None
    scheduler_priority: int | None = None
    started_at: int | None = None
    runs_since: int | None = None
    last_checkpoint: int | None = None
    evicted_at: int | None = None
    evictions: int = 0
    min_run_time_s: int | None = None
    resize_after: int | None = None
    planned: tuple[PlannedPod, ...] = ()
    balance: int | None = None
    exclusive: int | None = None
    ordered: bool = False
    together: tuple[Together, ...] = ()
    near: Near | None = None
    expected_left_s: int | None = None
    stated_priority: int | None = None

    @property
    def own_priority(self) -> int:
        """The priority that its document states."""
        return self.priority if self.stated_priority is None else self.stated_priority

    @property
    def shown_priority(self) -> int:
        """The priority that people know: its scheduler's, if it is another one."""
        return self.own_priority if self.scheduler_priority is None else self.scheduler_priority

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @cached_property
    def running_pods(self) -> tuple[ExistingPod, ...]:
        """Pods that run, by (role, index)."""
        return tuple(
            sorted((p for p in self.pods if p.node is not None), key=lambda p: (p.role, p.index))
        )

    @cached_property
    def running(self) -> bool:
        return any(pod.node is not None for pod in self.pods)

    @property
    def begun_at(self) -> int | None:
        """When the first of its running pods started: later starts of others change nothing of it."""
        return self.started_at if self.runs_since is None else self.runs_since

    @cached_property
    def stands(self) -> bool:
        """Whether it runs whole and keeps its pods where they are, in any plan in which it runs."""
        return self.running and not (self.movable or self.elastic or self.missing)

    @property
    def unmanaged(self) -> bool:
        """Whether it waits for another scheduler and names no queue: no promise to queues binds that one."""
        return self.scheduler is not None and self.queue is None

    @property
    def firm(self) -> bool:
        """Whether what it holds is off what queues are promised: it may not be stopped, and is managed."""
        return not (self.preemptible or self.unmanaged)

    @property
    def firm_on_gpus(self) -> bool:
        """Whether cells of queues are closed to it: it may not be stopped, and has GPUs."""
        return self.firm and any(role.gpus for role in self.roles)

    @property
    def queued_at(self) -> int | None:
        """Since when it has been in the queue: an eviction counts as a new submission. None if undated."""
        if self.submitted_at is None or self.evicted_at is None:
            return self.submitted_at
        return max(self.submitted_at, self.evicted_at)

    @cached_property
    def elastic(self) -> bool:
        return any(role.elastic for role in self.roles)

    @cached_property
    def ruled(self) -> bool:
        """Whether a role states rules about pods next to it."""
        return any(role.anti_affinity or role.affinity or role.spread for role in self.roles)

    @property
    def parallel(self) -> bool:
        """Whether a role says how its GPUs share the work."""
        return any(role.parallelism is not None for role in self.roles)

    @property
    def in_groups(self) -> bool:
        """Whether its bandwidth is not that of one all-reduce (section 3, 7 to 12)."""
        return self.pattern in OWN_FORMULAS or self.parallel

    @property
    def by_rank(self) -> bool:
        """Whether its bandwidth depends on which pod has which rank."""
        return self.parallel or self.pattern == "pipeline"

    @cached_property
    def weight_gpus(self) -> int:
        """What it counts at ``min``, or 1 if that is nothing: w(gang) of the formulation."""
        return self.least_units or 1

    @cached_property
    def least_units(self) -> int:
        """What it counts at ``min``: nothing where it asks for neither GPUs nor parts."""
        return sum(role.min * role.units for role in self.roles)

    def units_of(self, pods: Iterable[OfRole]) -> int:
        """What these pods of it count."""
        return sum(self.roles[pod.role].units for pod in pods)

    @property
    def most_gpus(self) -> int:
        """Its GPUs at ``max``, or 1 if it requests none."""
        return sum(role.max * role.units for role in self.roles) or 1

    def gpus_of(self, roles: Iterable[int]) -> int:
        """What these roles count at ``min``, or 1 if that is nothing."""
        return sum(self.roles[number].min * self.roles[number].units for number in roles) or 1

    @property
    def most_preference(self) -> int:
        """What it adds to the tier ``preference`` by its own place, where all that it prefers holds."""
        worth = self.weight_gpus if self.preferred is not None else 0
        roles = (n for n, role in enumerate(self.roles) if role.preferred is not None)
        worth += sum(self.gpus_of((number,)) for number in roles)
        return worth + sum(self.gpus_of(one.roles) for one in self.together)

    @cached_property
    def target_counts(self) -> tuple[int, ...]:
        """Target number of pods of every role.

        Waiting: ``min``. Running: the smallest allowed count that covers the highest running index.
        """
        least = [0] * len(self.roles)
        for pod in self.pods:
            if pod.node is not None:
                count = pod.index + 1 - self.roles[pod.role].first_index
                least[pod.role] = max(least[pod.role], count)
        return tuple(
            next((count for count in role.allowed_counts() if count >= most), role.max)
            for role, most in zip(self.roles, least, strict=True)
        )

    @cached_property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """(role, index) of the pods to place so that the gang is whole, sorted."""
        running = {(p.role, p.index) for p in self.pods if p.node is not None}
        return tuple(
            (number, index)
            for number, count in enumerate(self.target_counts)
            for index in self.roles[number].indices(count)
            if (number, index) not in running
        )
