"""What is left free and what the next requests could do with it: the tiers stranded and defragment.

Promises: exact integers; one place for placeable(s), the domains large requests are counted in, and
for what is wholly free. Called by ``evaluating`` and by the formulation's tiers.

What a plan does to what runs or was planned: the tiers kept, disruption and stability.

Promises: exact integers over standing pods, pods after the plan and earlier plans; no bandwidth, no solver.
Called by ``evaluating``.

Values of a plan: bandwidth, share and domains a gang, and every tier of the contract's section 4.

Promises: exact integers, no solver; what it returns is what the plan states and the verifier re-derives.
Called by composing, by the search (to score any plan) and by tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.cluster import Cluster
from models.gang import Gang
from models.instance import Instance
from models.occupancy import free_after
from models.rates.gang_bandwidth import ServerSet, gang_MBps, ideal_MBps, server_set, share_permille
from models.rates.gpu_sets import UnknownRate
from models.solution import GangDecision, PodPlacement, Sense


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
                gang.roles[p.role].gpus for p in gang.standing if (p.role, p.index) in after
            )
    return total


def disruption(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """GPUs taken from running gangs, each times what its loss counts (``Instance.harm``)."""
    return sum(
        _gpus_lost(gang, decision) * instance.harm(gang)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        if gang.running
    )


def _gpus_lost(gang: Gang, decision: GangDecision) -> int:
    """All standing GPUs of a gang that is stopped or moves, of one that only shrinks those dropped."""
    after = {(p.role, p.index): (p.node, p.gpus) for p in decision.pods}
    before = {(p.role, p.index): (p.node, p.gpus) for p in gang.standing}
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

MAXIMISED = ("preference", "bandwidth", "defragment")
"""Single tiers of which more is better; of the others less is."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One objective: family (``admission``), priority where it has one, sense, tolerance."""

    family: str
    priority: int | None
    sense: Sense
    tolerance: Fraction

    @property
    def name(self) -> str:
        return self.family if self.priority is None else f"{self.family}/{self.priority}"


@dataclass(frozen=True, slots=True)
class GangValue:
    """What the plan states of one gang. ``domains``: used a level, widest first, the node level last."""

    bandwidth: Fraction | None
    share: int | None
    meets_min_share: bool
    domains: tuple[int, ...]


def tiers_of(instance: Instance) -> tuple[Tier, ...]:
    """The tiers a plan of this instance states, in order (contract, sections 4 and 7)."""
    listed = {objective.name: objective.tolerance for objective in instance.policy.objectives}
    tiers: list[Tier] = []
    for objective in instance.policy.objectives:
        name, tolerance = objective.name, objective.tolerance
        if name == "admission":
            tiers += _admission_tiers(instance, tolerance, listed.get("waiting"))
        elif name == "waiting":
            if "admission" not in listed:
                present = sorted({gang.priority for gang in instance.gangs}, reverse=True)
                tiers += [Tier("waiting", priority, "max", tolerance) for priority in present]
        elif name == "growth":
            elastic = sorted({g.priority for g in instance.gangs if g.elastic}, reverse=True)
            tiers += [Tier("growth", priority, "max", tolerance) for priority in elastic]
        else:
            sense: Sense = "max" if name in MAXIMISED else "min"
            tiers.append(Tier(name, None, sense, tolerance))
    return tuple(tiers)


def _admission_tiers(
    instance: Instance, tolerance: Fraction, waits: Fraction | None
) -> Iterator[Tier]:
    """Priorities highest first; of each kept, gangs that waited too long, admission.

    ``waits``: tolerance of waiting, None where that is not listed.
    """
    losing = {gang.priority for gang in instance.gangs if _may_lose_gpus(gang)}
    ageing = {gang.priority for gang in instance.gangs if instance.aged(gang)}
    for priority in sorted({gang.priority for gang in instance.gangs}, reverse=True):
        families = ["kept"] if priority in losing else []
        families += ["aged", "aged-waiting"] if priority in ageing else []
        for family in (*families, "admission", "waiting"):
            given = waits if family in ("aged-waiting", "waiting") else tolerance
            if given is not None:
                yield Tier(family, priority, "max", given)


def _may_lose_gpus(gang: Gang) -> bool:
    """Whether it runs and could be stopped or shrunk."""
    return gang.running and (gang.preemptible or (gang.movable and _above_min(gang)))


def _above_min(gang: Gang) -> bool:
    counts = [sum(1 for p in gang.standing if p.role == i) for i in range(len(gang.roles))]
    return any(r.elastic and n > r.min for r, n in zip(gang.roles, counts, strict=True))


def admitted(instance: Instance, index: int, decision: GangDecision) -> bool:
    """Whether the gang runs whole after the plan; a kept gang with pods missing does not."""
    if decision.decision == "keep":
        return index not in instance.incomplete
    return decision.decision in ADMITTED


def own_sets(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: Sequence[int]
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
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: Sequence[int]
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
        self.values = tuple(self._value(index) for index in range(len(instance.gangs)))
        self._whole = tuple(
            (gang, decision, value)
            for index, (gang, decision, value) in enumerate(
                zip(instance.gangs, decisions, self.values, strict=True)
            )
            if value is not None and admitted(instance, index, decision)
        )
        self._by_priority: dict[int, list[Gang]] = {}
        for gang, _, _ in self._whole:
            self._by_priority.setdefault(gang.priority, []).append(gang)

    def _value(self, index: int) -> GangValue | None:
        pods = self.decisions[index].pods
        if not pods:
            return None
        found = self._cache.get((index, pods))
        if found is None:
            if self._known is None:
                self._known = known_masks(self.instance, self.decisions)
            found = gang_value(self.instance, self.instance.gangs[index], pods, self._known)
            if all(pod.gpus is not None for pod in pods):
                self._cache[index, pods] = found
        return found

    def tier(self, tier: Tier) -> int:
        """Value of one tier."""
        if tier.priority is not None:
            return int(getattr(self, f"_{tier.family.replace('-', '_')}")(tier.priority))
        return int(getattr(self, f"_{tier.family}")())

    def vector(self) -> tuple[int, ...]:
        """Values of all tiers, in order."""
        return tuple(self.tier(tier) for tier in tiers_of(self.instance))

    def _kept(self, priority: int) -> int:
        return kept(self.instance, self.decisions, priority)

    def _aged(self, priority: int) -> int:
        return sum(g.weight_gpus for g in self._whole_of(priority) if self.instance.aged(g))

    def _aged_waiting(self, priority: int) -> int:
        return sum(
            g.weight_gpus * self.instance.age(g)
            for g in self._whole_of(priority)
            if self.instance.aged(g)
        )

    def _admission(self, priority: int) -> int:
        return sum(g.weight_gpus for g in self._whole_of(priority))

    def _waiting(self, priority: int) -> int:
        return sum(
            g.weight_gpus * self.instance.age(g) for g in self._whole_of(priority) if not g.running
        )

    def _whole_of(self, priority: int) -> Sequence[Gang]:
        """Admitted gangs of one priority."""
        return self._by_priority.get(priority, ())

    def _disruption(self) -> int:
        return disruption(self.instance, self.decisions)

    def _preference(self) -> int:
        total = 0
        for gang, decision, value in self._whole:
            if gang.preferred is not None and value.domains[gang.preferred] == 1:
                total += gang.weight_gpus
            for number, role in enumerate(gang.roles):
                if role.preferred is None:
                    continue
                of = self.instance.cluster.domain_of[role.preferred]
                if len({of[pod.node] for pod in decision.pods if pod.role == number}) == 1:
                    total += role.min * role.gpus or 1
        return total

    def _bandwidth(self) -> int:
        return sum(
            gang.weight * gang.weight_gpus * (value.share or 0)
            for gang, _, value in self._whole
            if value.share is not None and gang.pattern != "none"
        )

    def _growth(self, priority: int) -> int:
        total = 0
        for gang, decision, _ in self._whole:
            if gang.priority == priority and gang.elastic:
                gpus = sum(gang.roles[pod.role].gpus for pod in decision.pods)
                total += gpus - sum(role.min * role.gpus for role in gang.roles)
        return total

    def _span(self) -> int:
        node_level = self.instance.cluster.node_level
        return sum(
            gang.weight_gpus * (used - 1) * 4 ** (node_level - level)
            for gang, _, value in self._whole
            for level, used in enumerate(value.domains)
        )

    def _stranded(self) -> int:
        return stranded(self.instance, self._free())

    def _defragment(self) -> int:
        whole = whole_nodes(self.instance, self._free())
        domains = whole_domains(self.instance, whole)
        return sum(whole.values()) + sum(whole[n] for nodes in domains for n in nodes)

    def _stability(self) -> int:
        return stability(self.instance, self.decisions)

    def _free(self) -> list[int]:
        """Free GPUs a node after the plan."""
        pods = [
            (gang.roles[pod.role].gpus, pod)
            for gang, decision in zip(self.instance.gangs, self.decisions, strict=True)
            for pod in decision.pods
        ]
        return free_after(self.instance, pods)
