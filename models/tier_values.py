"""The value of every tier for a given plan, as exact integers, without a solver.

The search scores with these functions and the plan states their results. The judge has its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from models.cluster import Cluster
from models.gang import Gang
from models.instance import Instance
from models.occupancy import free_after
from models.rates.gang_bandwidth import ServerSet, gang_MBps, ideal_MBps, server_set, share_permille
from models.rates.gpu_sets import UnknownRate
from models.solution import GangDecision, PodPlacement
from models.tiers import Condition, Tier, stated_tiers


def stranded(instance: Instance, free: Sequence[int]) -> int:
    """permille-GPU left that the next request of the mix cannot use. ``free``: GPUs a node."""
    total = 0
    for nodes in gpu_models(instance).values():
        left = sum(free[n] for n in nodes)
        for size, permille in instance.policy.mix:
            total += permille * (left - size * placeable(instance, nodes, free, size))
    return total


def gpu_models(instance: Instance) -> dict[str, tuple[int, ...]]:
    """Nodes of every GPU model, by its name."""
    found: dict[str, list[int]] = {}
    for index, node in enumerate(instance.cluster.nodes):
        if node.model is not None:
            found.setdefault(node.model.gpu, []).append(index)
    return {name: tuple(found[name]) for name in sorted(found)}


def whole_nodes(instance: Instance, free: Sequence[int]) -> dict[int, int]:
    """Nodes with as many GPUs free as the largest node of their GPU model has: node to GPUs, sorted.

    ``free``: GPUs a node.
    """
    nodes = instance.cluster.nodes
    whole = {}
    for members in gpu_models(instance).values():
        largest = max(nodes[n].gpus for n in members)
        whole.update({n: largest for n in members if free[n] == largest})
    return dict(sorted(whole.items()))


def whole_domains(instance: Instance, whole: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """The nodes with GPUs of every innermost domain that has two or more of them, all in ``whole``."""
    cluster = instance.cluster
    if not cluster.levels:
        return ()
    found = []
    for domain in cluster.domains[cluster.node_level - 1]:
        nodes = tuple(n for n in domain.nodes if cluster.nodes[n].model is not None)
        if len(nodes) > 1 and all(n in whole for n in nodes):
            found.append(nodes)
    return tuple(found)


def placeable(instance: Instance, nodes: Sequence[int], free: Sequence[int], size: int) -> int:
    """How many requests of ``size`` GPUs fit what is left on the nodes of one GPU model."""
    largest = max(instance.cluster.nodes[n].gpus for n in nodes)
    if size <= largest:
        return sum(free[n] // size for n in nodes)
    servers = -(-size // largest)
    return sum(
        sum(1 for n in members if free[n] == largest) // servers
        for members in request_domains(instance, nodes, size)
    )


def request_domains(
    instance: Instance, nodes: Sequence[int], size: int
) -> tuple[tuple[int, ...], ...]:
    """The nodes of one GPU model by domain of the innermost level with room for ``size`` installed GPUs."""
    cluster = instance.cluster
    for level in range(len(cluster.levels) - 1, -1, -1):
        members: dict[int, list[int]] = {}
        for n in nodes:
            members.setdefault(cluster.domain_of[level][n], []).append(n)
        if any(sum(cluster.nodes[n].gpus for n in m) >= size for m in members.values()):
            return tuple(tuple(members[d]) for d in sorted(members))
    return (tuple(nodes),)


def kept(instance: Instance, decisions: Sequence[GangDecision], priority: int) -> int:
    """GPUs of standing pods of this priority that are there after the plan, wherever."""
    total = 0
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        if gang.priority == priority and gang.running:
            after = {(pod.role, pod.index) for pod in decision.pods}
            total += sum(
                gang.roles[p.role].gpus for p in gang.running_pods if (p.role, p.index) in after
            )
    return total


def disruption(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """GPUs taken from running gangs, each times what its loss counts (``Instance.disruption_cost``)."""
    return sum(
        _gpus_lost(gang, decision) * instance.disruption_cost(gang)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        if gang.running
    )


def _gpus_lost(gang: Gang, decision: GangDecision) -> int:
    """All standing GPUs of a gang that is stopped or moves, of one that only shrinks those dropped."""
    after = {(p.role, p.index): (p.node, p.gpus) for p in decision.pods}
    before = {(p.role, p.index): (p.node, p.gpus) for p in gang.running_pods}
    gpus = {key: gang.roles[key[0]].gpus for key in before}
    moved = any(gpus[key] and key in after and after[key] != place for key, place in before.items())
    if not decision.pods or moved:
        return sum(gpus.values())
    return sum(gpus[key] for key in before if key not in after)


def stability(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """GPUs that pods ask for which are not on the node where an earlier plan wanted them."""
    total = 0
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        if gang.planned:
            wanted = {(p.role, p.index): p.node for p in gang.planned}
            total += sum(
                gang.roles[pod.role].gpus
                for pod in decision.pods
                if wanted.get((pod.role, pod.index), pod.node) != pod.node
            )
    return total


ADMITTED = ("place", "complete", "keep", "move", "resize")


@dataclass(frozen=True, slots=True)
class GangValue:
    """What the plan states of one gang. ``domains``: used a level, widest first, the node level last."""

    bandwidth: Fraction | None
    share: int | None
    meets_min_share: bool
    domains: tuple[int, ...]


CONDITIONS: dict[Condition, Callable[[Instance, Gang], bool]] = {
    "may_lose_gpus": lambda _instance, gang: _may_lose_gpus(gang),
    "aged": lambda instance, gang: instance.aged(gang),
    "elastic": lambda _instance, gang: gang.elastic,
}
"""Whether a gang meets the condition of a tier."""


def tiers_of(instance: Instance) -> tuple[Tier, ...]:
    """The tiers a plan of this instance states, in order (contract, sections 4 and 7)."""
    return instance.once(_tiers_of)


def _tiers_of(instance: Instance) -> tuple[Tier, ...]:
    met: dict[int, set[str]] = {}
    for gang in instance.gangs:
        own = met.setdefault(gang.priority, set())
        for name, meets in CONDITIONS.items():
            if name not in own and meets(instance, gang):
                own.add(name)
    listed = ((objective.name, objective.tolerance) for objective in instance.policy.objectives)
    return tuple(stated_tiers(listed, met))


def _may_lose_gpus(gang: Gang) -> bool:
    """Whether it runs and could be stopped or shrunk."""
    return gang.running and (gang.preemptible or (gang.movable and _above_min(gang)))


def _above_min(gang: Gang) -> bool:
    counts = [sum(1 for p in gang.running_pods if p.role == i) for i in range(len(gang.roles))]
    return any(r.elastic and n > r.min for r, n in zip(gang.roles, counts, strict=True))


def admitted(instance: Instance, index: int, decision: GangDecision) -> bool:
    """Whether the gang runs whole after the plan; a kept gang with pods missing does not."""
    if decision.decision == "keep":
        return index not in instance.incomplete
    return decision.decision in ADMITTED


KnownMasks = Sequence[int] | Mapping[int, int]
"""Mask of GPUs known to be held, by node: of all nodes, or of those of a gang."""


def own_sets(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: KnownMasks
) -> dict[int, ServerSet]:
    """The gang's GPUs a node. ``known``: mask of the GPUs known to be held, a node, after the plan."""
    masks: dict[int, int] = {}
    blind: dict[int, int] = {}
    for pod in pods:
        gpus = gang.roles[pod.role].gpus
        if not gpus:
            continue
        masks.setdefault(pod.node, 0)
        if pod.gpus is None:
            blind[pod.node] = blind.get(pod.node, 0) + gpus
        else:
            masks[pod.node] |= pod.gpus
    nodes = instance.cluster.nodes
    return {n: server_set(nodes[n], mask, blind.get(n, 0), known[n]) for n, mask in masks.items()}


def known_masks(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Mask of GPUs known to be held after the plan, a node."""
    known = [0] * len(instance.cluster.nodes)
    for decision in decisions:
        for pod in decision.pods:
            known[pod.node] |= pod.gpus or 0
    return known


def gang_value(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: KnownMasks
) -> GangValue:
    """Bandwidth, share and domains of one gang's pods."""
    cluster = instance.cluster
    sets = own_sets(instance, gang, pods, known)
    bandwidth, ideal = _rates(cluster, sets, joined=gang.nvlink_across_nodes)
    share, meets = None, True
    if bandwidth is not None and ideal is not None:
        share = share_permille(bandwidth, ideal)
        meets = bandwidth >= instance.min_share(gang) * ideal
    nodes = {pod.node for pod in pods}
    domains = tuple(len({of[n] for n in nodes}) for of in cluster.domain_of)
    return GangValue(bandwidth, share, meets, domains)


def _rates(
    cluster: Cluster, sets: dict[int, ServerSet], *, joined: bool
) -> tuple[Fraction | None, Fraction | None]:
    """B and ideal; None where there is none, or where a rate they need is not known."""
    bandwidth = None
    with contextlib.suppress(
        UnknownRate
    ):  # the readers refuse it for every gang that may be placed
        bandwidth = gang_MBps(cluster, sets, joined=joined)
    if bandwidth is None:
        return None, None
    models = tuple(dict.fromkeys(m for n in sets if (m := cluster.nodes[n].model) is not None))
    gpus = sum(chosen.count for chosen in sets.values())
    try:
        return bandwidth, ideal_MBps(models, gpus, joined=joined)
    except UnknownRate:
        return bandwidth, None


ValueCache = dict[tuple[int, tuple[PodPlacement, ...]], GangValue]
"""Values of gangs by index and pods, where every GPU index is known: then nothing else matters."""


class Evaluation:
    """Every value of one plan; built once, read by tier. ``cache`` is shared between plans."""

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], cache: ValueCache | None = None
    ) -> None:
        self.instance = instance
        self.decisions = decisions
        self._known: list[int] | None = None
        self._cache: ValueCache = {} if cache is None else cache
        self._alone: dict[tuple[object, ...], GangValue] = {}
        self.values = tuple(self._value(index) for index in range(len(instance.gangs)))
        self.admitted = tuple(
            (gang, decision, value)
            for index, (gang, decision, value) in enumerate(
                zip(instance.gangs, decisions, self.values, strict=True)
            )
            if value is not None and admitted(instance, index, decision)
        )
        self._by_priority: dict[int, list[Gang]] = {}
        for gang, _, _ in self.admitted:
            self._by_priority.setdefault(gang.priority, []).append(gang)

    def _value(self, index: int) -> GangValue | None:
        pods = self.decisions[index].pods
        if not pods:
            return None
        found = self._cache.get((index, pods))
        if found is None:
            found = self._on_one_node(index, pods) or self._computed(index, pods)
            if all(pod.gpus is not None for pod in pods):
                self._cache[index, pods] = found
        return found

    def _computed(self, index: int, pods: tuple[PodPlacement, ...]) -> GangValue:
        if self._known is None:
            self._known = known_masks(self.instance, self.decisions)
        return gang_value(self.instance, self.instance.gangs[index], pods, self._known)

    def _on_one_node(self, index: int, pods: tuple[PodPlacement, ...]) -> GangValue | None:
        """The value of GPUs of known index on one node, once for each set of a server model."""
        node, mask = pods[0].node, 0
        for pod in pods:
            if pod.node != node or pod.gpus is None:
                return None
            mask |= pod.gpus
        gang, model = self.instance.gangs[index], self.instance.cluster.nodes[node].model
        key = (id(model), mask, gang.nvlink_across_nodes, gang.min_bandwidth_share)
        if key not in self._alone:
            self._alone[key] = self._computed(index, pods)
        return self._alone[key]

    def tier(self, tier: Tier) -> int:
        """Value of one tier."""
        worth = PLACEMENT_VALUES.get(tier.family)
        if worth is None:
            return VALUES[tier.family](self, tier)
        return sum(
            worth(self.instance, gang, decision.pods, value)
            for gang, decision, value in self.admitted
        )

    def vector(self) -> tuple[int, ...]:
        """Values of all tiers, in order."""
        return tuple(self.tier(tier) for tier in tiers_of(self.instance))

    def admitted_gangs(self, tier: Tier) -> Sequence[Gang]:
        """Gangs of the tier's priority that run whole after the plan."""
        return self._by_priority.get(tier.priority or 0, ())

    @cached_property
    def free(self) -> list[int]:
        """Free GPUs of every node after the plan."""
        pods = [
            (gang.roles[pod.role].gpus, pod)
            for gang, decision in zip(self.instance.gangs, self.decisions, strict=True)
            for pod in decision.pods
        ]
        return free_after(self.instance, pods)


def preference(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], value: GangValue
) -> int:
    """GPUs of the gang, and of its roles, that are within one domain of their preferred level."""
    worth = 0
    if gang.preferred is not None and value.domains[gang.preferred] == 1:
        worth += gang.weight_gpus
    for number, role in enumerate(gang.roles):
        if role.preferred is not None:
            of = instance.cluster.domain_of[role.preferred]
            if len({of[pod.node] for pod in pods if pod.role == number}) == 1:
                worth += role.min * role.gpus or 1
    return worth


def bandwidth(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], value: GangValue
) -> int:
    """Permille-GPU: the share of the ideal bandwidth times the gang's GPUs and weight."""
    del instance, pods
    counts = value.share is not None and gang.pattern != "none"
    return gang.weight * gang.weight_gpus * (value.share or 0) if counts else 0


def span(instance: Instance, gang: Gang, pods: Sequence[PodPlacement], value: GangValue) -> int:
    """Domains used beyond the first, a wider level four times as much as the next narrower one."""
    del pods
    return sum(
        gang.weight_gpus * (used - 1) * 4 ** (instance.cluster.node_level - level)
        for level, used in enumerate(value.domains)
    )


PlacementValue = Callable[[Instance, Gang, Sequence[PodPlacement], GangValue], int]

PLACEMENT_VALUES: dict[str, PlacementValue] = {
    "preference": preference,
    "bandwidth": bandwidth,
    "span": span,
}
"""Tiers that are a sum over admitted gangs of what one gang's placement is worth."""


def _aged(plan: Evaluation, tier: Tier) -> int:
    return sum(g.weight_gpus for g in plan.admitted_gangs(tier) if plan.instance.aged(g))


def _aged_waiting(plan: Evaluation, tier: Tier) -> int:
    instance = plan.instance
    aged = (g for g in plan.admitted_gangs(tier) if instance.aged(g))
    return sum(g.weight_gpus * instance.age(g) for g in aged)


def _admission(plan: Evaluation, tier: Tier) -> int:
    return sum(g.weight_gpus for g in plan.admitted_gangs(tier))


def _waiting(plan: Evaluation, tier: Tier) -> int:
    started = (g for g in plan.admitted_gangs(tier) if not g.running)
    return sum(g.weight_gpus * plan.instance.age(g) for g in started)


def _growth(plan: Evaluation, tier: Tier) -> int:
    total = 0
    for gang, decision, _ in plan.admitted:
        if gang.priority == tier.priority and gang.elastic:
            gpus = sum(gang.roles[pod.role].gpus for pod in decision.pods)
            total += gpus - sum(role.min * role.gpus for role in gang.roles)
    return total


def _defragment(plan: Evaluation) -> int:
    whole = whole_nodes(plan.instance, plan.free)
    domains = whole_domains(plan.instance, whole)
    return sum(whole.values()) + sum(whole[n] for nodes in domains for n in nodes)


VALUES: dict[str, Callable[[Evaluation, Tier], int]] = {
    "kept": lambda plan, tier: kept(plan.instance, plan.decisions, tier.priority or 0),
    "aged": _aged,
    "aged-waiting": _aged_waiting,
    "admission": _admission,
    "waiting": _waiting,
    "disruption": lambda plan, _tier: disruption(plan.instance, plan.decisions),
    "growth": _growth,
    "stranded": lambda plan, _tier: stranded(plan.instance, plan.free),
    "defragment": lambda plan, _tier: _defragment(plan),
    "stability": lambda plan, _tier: stability(plan.instance, plan.decisions),
}
"""The value of every other tier, by its name in ``models.tiers``."""
