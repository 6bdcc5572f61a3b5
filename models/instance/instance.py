"""Instance: one cluster, its gangs and a policy, frozen; all that the planner works on.

Gangs are sorted by (namespace, name), nodes by name; every default is filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property, wraps
from operator import attrgetter
from typing import Protocol, TypeVar, TypeVarTuple, cast

from models.documents.policy import GPUS, NO_COST, WhatIf
from models.instance.cluster import Cluster, Node
from models.instance.eligibility import Eligibility, model_matches, tolerated, without_conditions
from models.instance.gang import Gang, Role, selects
from models.instance.policy import Policy
from models.instance.queue import Queue, QueueShares
from models.instance.solution import PodPlacement, Reserved, standing_of
from models.instance.speed import RelativeSpeeds
from models.units import number

Found = TypeVar("Found")
Args = TypeVarTuple("Args")

Lines = tuple[tuple[int, ...], ...]
"""Gangs of strict queues in their order, a line each."""

_queued_at = attrgetter("queued_at")


def _lacks(gang: Gang) -> bool:
    """Whether it waits or has pods missing."""
    return not gang.running or bool(gang.missing)


def _latest(gang: Gang) -> int | None:
    """The latest time that it states."""
    times = (gang.queued_at, gang.started_at, gang.last_checkpoint)
    return max((t for t in times if t is not None), default=None)


@dataclass(frozen=True)
class EarlierPlan:
    """What an earlier plan promised, in seconds since the epoch.

    ``gangs``: keys of all that it knew. ``starts``: when those that waited were to start at the
    latest; where, has ``Gang.planned``. ``gone``: nodes of these places that do not exist now. ``waited``:
    gangs that waited in turn, neither held nor stopped by it, None where nobody knows. ``sound``: names of
    nodes that were in order.
    """

    gangs: frozenset[tuple[str, str]]
    starts: Mapping[tuple[str, str], int] = field(hash=False)
    gone: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict, hash=False)
    waited: frozenset[tuple[str, str]] | None = None
    sound: frozenset[str] = frozenset()


class Starts(Protocol):
    """Who is known to be able to start on the empty cluster: some rules ask, the answer asks all."""

    def __init__(self, instance: Instance) -> None: ...

    def can(self, index: int) -> bool:
        """Whether it is known that the gang could start."""
        ...

    def can_now(self, index: int) -> bool:
        """The same on nodes as they are."""
        ...


@dataclass(frozen=True)
class Instance:
    """``queues``: sorted by name. ``shares``: what they are promised and hold in the whole, None to count it.

    ``reserved``: nodes held for gangs while this plan is made. ``what_if``: how it differs from its input,
    None if it does not.
    ``earlier``: what an earlier plan promised, None without one. ``starts``: who could start
    (``models.starts.empty_starts``). ``gpu_unit``: 1000 where GPUs are counted in thousandths, for some pods
    have parts, else 1 (``models.instance.gpu_units``).
    """

    cluster: Cluster
    gangs: tuple[Gang, ...]
    policy: Policy
    queues: tuple[Queue, ...] = ()
    shares: QueueShares | None = None
    reserved: tuple[Reserved, ...] = ()
    what_if: WhatIf | None = None
    earlier: EarlierPlan | None = None
    gpu_unit: int = 1
    starts: type[Starts] = field(kw_only=True)

    def in_gpus(self, units: int) -> float:
        """GPUs, of what is counted in its unit: as documents state them."""
        return number(Fraction(units, self.gpu_unit))

    @property
    def could_start(self) -> Starts:
        """Who is known to be able to start."""
        return self.once(self.starts)

    def with_reserved(self, reserved: tuple[Reserved, ...]) -> Instance:
        """The same with other nodes held for gangs that wait; who could start does not depend on that."""
        other = replace(self, reserved=reserved)
        other.__dict__["_kept"] = {self.starts: self.could_start}
        return other

    def with_gangs(self, gangs: tuple[Gang, ...], policy: Policy) -> Instance:
        """The same cluster with other gangs; ``policy``: one that selects the same nodes.

        What depends on the nodes alone is not derived anew.
        """
        other = replace(self, gangs=gangs, policy=policy)
        for kept in ("relative_speeds", "_eligibility", "_gpu_names"):
            other.__dict__[kept] = getattr(self, kept)
        return other

    def with_changed(self, changed: Mapping[int, Gang]) -> Instance:
        """The same with other descriptions of some gangs; what others have alone is not derived anew."""
        gangs = list(self.gangs)
        for index, gang in changed.items():
            gangs[index] = gang
        other = self.with_gangs(tuple(gangs), self.policy)
        other.__dict__["_like"] = self, tuple(changed)
        return other

    def of_gangs(self, find: Callable[[Gang], Found]) -> Sequence[Found]:
        """What a function finds in each gang alone, in their order."""
        if find not in self._of_gangs:
            like, changed = self._like
            found = list(map(find, self.gangs) if like is None else like.of_gangs(find))
            for index in changed:
                found[index] = find(self.gangs[index])
            self._of_gangs[find] = found
        return cast("Sequence[Found]", self._of_gangs[find])

    @cached_property
    def _of_gangs(self) -> dict[Callable[[Gang], object], Sequence[object]]:
        return {}

    @cached_property
    def _like(self) -> tuple[Instance | None, tuple[int, ...]]:
        """The instance of which it is a change, if it is one, and the gangs that differ."""
        return None, ()

    def once(self, find: Callable[[Instance], Found]) -> Found:
        """What a function finds in the instance, computed when first asked for and kept."""
        if find not in self._kept:
            self._kept[find] = find(self)
        return cast("Found", self._kept[find])

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: it derives the rest anew."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _kept(self) -> dict[object, object]:
        return {}

    @cached_property
    def latest_submission(self) -> int:
        """The latest time since which a gang is in the queue; 0 without any."""
        return max((t for t in self.of_gangs(_queued_at) if t is not None), default=0)

    @cached_property
    def standing(self) -> Sequence[tuple[PodPlacement, ...]]:
        """The pods of every gang that run now."""
        return self.of_gangs(standing_of)

    @cached_property
    def incomplete(self) -> frozenset[int]:
        """Indices of running gangs that have pods missing."""
        return frozenset(i for i in self._lacking if self.gangs[i].running)

    @cached_property
    def _lacking(self) -> list[int]:
        return [i for i, lacks in enumerate(self.of_gangs(_lacks)) if lacks]

    @cached_property
    def lacking(self) -> tuple[int, ...]:
        """Indices of gangs that wait or have pods missing, and are not held."""
        return tuple(i for i in self._lacking if self.gangs[i].hold is None)

    def age(self, gang: Gang) -> int:
        """Seconds in the queue until the latest submission or eviction; 0 without submittedAt."""
        since = gang.queued_at
        return 0 if since is None else self.latest_submission - since

    @cached_property
    def now(self) -> int:
        """The reference time of ages: the policy's, else the latest time in the input."""
        if self.policy.now is not None:
            return self.policy.now
        return max((t for t in self.of_gangs(_latest) if t is not None), default=0)

    def aged(self, gang: Gang) -> bool:
        """Whether the gang waits, and was submitted before the policy's starvation limit, evicted or not."""
        limit = self.policy.starvation_after_s
        if limit is None or gang.running or (since := gang.submitted_at) is None:
            return False
        return self.now - since > limit

    def size_held(self, gang: Gang) -> bool:
        """Whether the gang runs and must keep its number of pods until ``resize_after``."""
        return gang.running and gang.resize_after is not None and self.now < gang.resize_after

    @cached_property
    def relative_speeds(self) -> RelativeSpeeds:
        """Speeds of the server models next to the fastest in the input."""
        return RelativeSpeeds(node.model for node in self.cluster.nodes)

    @cached_property
    def by_speed(self) -> bool:
        """Whether running gangs are worth their GPUs times their speed: the policy lists goodput."""
        return self.policy.lists("goodput")

    @property
    def restarts_free(self) -> bool:
        """Whether it costs nothing to stop or move a gang."""
        return self.policy.disruption.weight == NO_COST

    def disruption_cost(self, gang: Gang) -> int:
        """Cost of losing one of its GPUs in the disruption tier: 1, or seconds of lost runtime.

        Seconds since the last checkpoint or the start, whichever is later, from 1 to the cap; the cap if
        neither is known. Nothing where restarts are free.
        """
        disruption = self.policy.disruption
        if disruption.weight == GPUS:
            return 1
        if self.restarts_free:
            return 0
        lost = self.lost_work_s(gang)
        return max(1, disruption.cap_s if lost is None else min(disruption.cap_s, lost))

    def lost_work_s(self, gang: Gang) -> int | None:
        """Seconds since the last checkpoint or the start, whichever is later; None if neither is known."""
        times = [t for t in (gang.started_at, gang.last_checkpoint) if t is not None]
        return self.now - max(times) if times else None

    def min_share(self, gang: Gang) -> Fraction:
        """minBandwidthShare of the gang, or the policy's default."""
        own = gang.min_bandwidth_share
        return self.policy.min_bandwidth_share if own is None else own

    def labels_of(self, node: Node) -> dict[str, str]:
        """The node's labels with the implied ones: level labels (short value) and the hostname."""
        labels = {"kubernetes.io/hostname": node.name}
        for level, value in zip(self.cluster.levels, node.domains, strict=True):
            if level.label is not None and value is not None:
                labels[level.label] = value
        labels.update(node.labels)
        return labels

    def ours(self, node: Node) -> bool:
        """Whether the node matches the policy's nodeSelector."""
        if not self.policy.node_selector:
            return True
        labels = self.labels_of(node)
        return all(labels.get(key) == value for key, value in self.policy.node_selector)

    def schedulable(self, node: Node) -> bool:
        """Selected by the policy, ready and not cordoned."""
        return node.ready and not node.unschedulable and self.ours(node)

    def intact(self, node: Node) -> bool:
        """Schedulable, and all its GPUs can be given whole."""
        return node.healthy_gpus == node.gpus and self.schedulable(node)

    def failed(self, node: Node) -> bool:
        """Not schedulable, or with unhealthy GPUs; partitioned and shared ones are in order."""
        return node.has_failed_gpus or not self.schedulable(node)

    def suits(self, role: Role, node: Node) -> bool:
        """Whether a pod of the role may be on the node, whatever the node's condition and space."""
        return (
            selects(role.node_selector, role.node_affinity, self.labels_of(node), node.name)
            and tolerated(role.tolerations, node.taints)
            and (role.model is None or model_matches(role.model, node))
        )

    def eligible_nodes(self, role: Role) -> frozenset[int]:
        """Indices of the nodes that are eligible for the role."""
        return self._eligibility.of(role)

    def matching_nodes(self, role: Role) -> frozenset[int]:
        """Indices of the nodes that would be eligible if all were ready, uncordoned and in good condition."""
        return self._in_order.of(role)

    def gpu_names(self, nodes: frozenset[int]) -> frozenset[str]:
        """Names of the GPUs on these nodes, found once for each set."""
        if nodes not in self._gpu_names:
            models = (self.cluster.nodes[n].model for n in nodes)
            self._gpu_names[nodes] = frozenset(m.gpu for m in models if m is not None)
        return self._gpu_names[nodes]

    @cached_property
    def _gpu_names(self) -> dict[frozenset[int], frozenset[str]]:
        return {}

    def nodes_of_model(self, nodes: frozenset[int], gpu: str) -> frozenset[int]:
        """Those of some eligible nodes that have this GPU model."""
        return self._eligibility.of_gpu(nodes, gpu)

    @cached_property
    def _eligibility(self) -> Eligibility:
        nodes = self.cluster.nodes
        labels = tuple(self.labels_of(node) for node in nodes)
        usable = frozenset(n for n, node in enumerate(nodes) if self.schedulable(node))
        return Eligibility(nodes, labels, usable)

    @cached_property
    def _in_order(self) -> Eligibility:
        nodes = self.cluster.nodes
        ours = frozenset(n for n, node in enumerate(nodes) if self.ours(node))
        return Eligibility(tuple(map(without_conditions, nodes)), self._eligibility.labels, ours)


def once(find: Callable[[Instance], Found]) -> Callable[[Instance], Found]:
    """The function, which computes what it finds in an instance when first asked, and keeps it."""

    @wraps(find)
    def kept(instance: Instance) -> Found:
        return instance.once(find)

    return kept


def once_each(
    find: Callable[[Instance, *Args], Found],
) -> Callable[[Instance, *Args], Found]:
    """The same for each of the other arguments, which are hashed."""

    def known(_instance: Instance) -> dict[object, Found]:
        return {}

    @wraps(find)
    def kept(instance: Instance, *args: *Args) -> Found:
        found = instance.once(known)
        if args not in found:
            found[args] = find(instance, *args)
        return found[args]

    return kept
