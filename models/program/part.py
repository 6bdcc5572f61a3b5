"""A part of an instance: some nodes, and the gangs that may change there, as an instance of its own.

Everything else stays as a plan has it: its pods are taken off the nodes. A plan of the part is a plan
of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from models.documents.cluster import DisruptionBudget
from models.documents.policy import SolveLimits
from models.instance.cluster import Cluster, Node
from models.instance.disruption_budgets import guards, taken, without
from models.instance.gang import Gang, Role, Spread
from models.instance.instance import Instance, Outside
from models.instance.occupancy import PODS
from models.instance.policy import Policy
from models.instance.queue import QueueShares, QueueUse
from models.instance.solution import GangDecision, PodPlacement, Reserved, placed
from models.program.base_state import moves_pods
from models.queues.cell_places import Reach
from models.queues.cells import cells_by_model, without_cells
from models.queues.queue_order import kept_behind, lines_in_part
from models.queues.queue_shares import add_use, shares
from models.queues.reserved_quotas import crowded_out
from models.rules.pod_rules import Kind, Rule, pod_rules
from models.rules.registry import closed_in_part
from models.rules.shape import spares_of_part


@dataclass(frozen=True)
class Part:
    """``nodes``, ``gangs``: indices in the whole, ascending. ``start``: one decision a gang."""

    instance: Instance
    nodes: tuple[int, ...]
    gangs: tuple[int, ...]
    start: tuple[GangDecision, ...]

    def merged(self, decisions: Sequence[GangDecision]) -> dict[int, GangDecision]:
        """Decisions about gangs of the part, by their index in the whole."""
        return {
            gang: replace(decision, pods=_moved(decision.pods, self.nodes))
            for gang, decision in zip(self.gangs, decisions, strict=True)
        }


class Standing:
    """A plan of an instance, and which gangs have pods on a node: now, after the plan, or both."""

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.decisions = list(decisions)
        self.by_node: list[set[int]] = [set() for _ in instance.cluster.nodes]
        self.moves: dict[int, int] = {}
        self._use = QueueUse()
        celled = bool(cells_by_model(instance))
        self._reach = Reach(instance, enumerate(one.pods for one in decisions)) if celled else None
        for gang, decision in enumerate(decisions):
            self._enter(gang, decision)

    def nodes(self, gang: int) -> set[int]:
        """Nodes on which the gang has pods now or after the plan."""
        own = {pod.node for pod in self.decisions[gang].pods}
        return own | {p.node for p in self.instance.gangs[gang].pods if p.node is not None}

    def update(self, decisions: Sequence[GangDecision]) -> None:
        """Another plan of the same instance."""
        for gang, (old, new) in enumerate(zip(self.decisions, decisions, strict=True)):
            if old is not new:
                for n in self.nodes(gang):
                    self.by_node[n].discard(gang)
                self.moves.pop(gang, None)
                self._count(self._use, gang, -1)
                if self._reach is not None:
                    self._reach.add(gang, old.pods, -1)
                    self._reach.add(gang, new.pods)
                self.decisions[gang] = new
                self._enter(gang, new)

    def _enter(self, gang: int, decision: GangDecision) -> None:
        for n in self.nodes(gang):
            self.by_node[n].add(gang)
        spec = self.instance.gangs[gang]
        if decision.decision == "move" and moves_pods(
            placed(spec, spec.running_pods), decision.pods
        ):
            self.moves[gang] = spec.units_of(spec.running_pods)
        self._count(self._use, gang, 1)

    def _count(self, use: QueueUse, gang: int, sign: int) -> None:
        """Count what the gang holds, for its queues."""
        add_use(self.instance, use, gang, self.decisions[gang].pods, sign)

    def _shares(self, freed: Collection[int]) -> QueueShares | None:
        """The queues, with what gangs hold that are not freed."""
        known = shares(self.instance)
        if known is None:
            return None
        outside = self._use.copy()
        for gang in freed:
            self._count(outside, gang, -1)
        return replace(known, outside=outside)

    def returnable(self, freed: Collection[int]) -> set[int]:
        """Those of the gangs that find the room they left as it was, if only these gangs change.

        A pod that stays is exempt from many rules, so that a part must not offer to keep one where
        another gang has come. Nor may a gang leave whose GPUs nobody knows: a pod that came gets no
        indices next to it, and would need them without it.
        """
        found = set(freed)
        while True:
            blocked = {gang for gang in found if self._taken(gang, found)}
            if not blocked:
                return found
            found -= blocked

    def _taken(self, gang: int, freed: Collection[int]) -> bool:
        """Whether a gang that is not freed came to a node that this gang leaves, or may not leave."""
        after = {(p.role, p.index, p.node) for p in self.decisions[gang].pods}
        spec = self.instance.gangs[gang]
        left = {
            p.node
            for p in spec.running_pods
            if p.node is not None
            and (
                (p.role, p.index, p.node) not in after
                or (p.gpus is None and spec.roles[p.role].gpus)
            )
        }
        return any(
            self._came(other, n) for n in left for other in self.by_node[n] if other not in freed
        )

    def _came(self, gang: int, n: int) -> bool:
        """Whether the gang has pods on a node, or GPUs there, that it does not have now."""
        spec = self.instance.gangs[gang]
        now = {
            (p.role, p.index): p.gpus if spec.roles[p.role].gpus else 0
            for p in spec.pods
            if p.node == n
        }
        return any(
            pod.node == n and (pod.gpus or 0) != (now.get((pod.role, pod.index), -1) or 0)
            for pod in self.decisions[gang].pods
        )

    def part(self, nodes: Iterable[int], freed: Collection[int], limits: SolveLimits) -> Part:
        """The part with these nodes in which these gangs may change; all their pods are on the nodes.

        Gangs that wait for one that holds room and is not in the part are left out.
        """
        order, gangs = tuple(sorted(nodes)), self._unbarred(freed)
        position, free = {n: i for i, n in enumerate(order)}, set(gangs)
        cluster = self.instance.cluster
        kept = (self._without_fixed(n, free) for n in order)
        instance = Instance(
            Cluster(cluster.name, cluster.levels, tuple(kept), cluster.uid, self._budgets(free)),
            tuple(
                _evenly(
                    self.instance,
                    gang,
                    _on(self.instance.gangs[gang], position),
                    order,
                )
                for gang in gangs
            ),
            self._policy(free, limits),
            queues=without_cells(self.instance.queues),
            shares=self._shares(gangs),
            outside=self._outside(gangs, position),
            reserved=tuple(_within(one, position) for one in self.instance.reserved),
            gpu_unit=self.instance.gpu_unit,
            starts=self.instance.starts,
        )
        start = tuple(
            replace(one, pods=_moved(one.pods, position))
            for one in (self.decisions[gang] for gang in gangs)
        )
        return Part(instance, order, gangs, start)

    def _outside(self, gangs: tuple[int, ...], position: Mapping[int, int]) -> Outside:
        """What the whole asks of a part with these gangs; ``position``: of its nodes."""
        pods = [one.pods for one in self.decisions]
        number = {gang: i for i, gang in enumerate(gangs)}
        closed = closed_in_part(self.instance, pods, number.keys())
        for gang, nodes in self._places_of_cells(gangs):
            closed[gang] = closed.get(gang, frozenset()) | nodes
        return Outside(
            self.instance.latest_submission,
            self.instance.relative_speeds,
            lines_in_part(self.instance, number),
            spares_of_part(self.instance, pods, position, number.keys()),
            {
                self.instance.gangs[gang].key: frozenset(
                    position[n] for n in nodes if n in position
                )
                for gang, nodes in closed.items()
            },
        )

    def _places_of_cells(self, gangs: Iterable[int]) -> Iterator[tuple[int, frozenset[int]]]:
        """(gang, nodes where its pods may be in the way of cells), for places of cells as they are now."""
        if self._reach is None or not self._reach.keep():
            return  # the ledger looks at what comes of it
        for gang in gangs:
            if self.instance.gangs[gang].firm_on_gpus:
                yield gang, self._reach.closed(gang)

    def _unbarred(self, freed: Collection[int]) -> tuple[int, ...]:
        """Those of the gangs, ascending, that need not wait for one that is not freed."""
        gangs = self.instance.gangs
        pods = [one.pods for one in self.decisions]
        kept = kept_behind(self.instance, pods, freed) | crowded_out(self.instance, pods, freed)
        return tuple(gang for gang in sorted(freed) if gangs[gang].running or gang not in kept)

    def _without_fixed(self, n: int, freed: set[int]) -> Node:
        """The node without what pods of other gangs hold there after the plan."""
        node = self.instance.cluster.nodes[n]
        mask, kept, unknown, used = 0, 0, 0, Counter[str]()
        for role, pod in self._fixed(n, freed):
            if pod.gpus is None:
                unknown += role.gpus
            mask |= pod.gpus or 0
            kept |= role.keeps_on(n)
            used.update(dict(role.requests))
            used[PODS] += 1
        if not used:
            return node
        given = node.releasable & mask
        gone = [one for one in node.shared if one.gpu is not None and given >> one.gpu & 1]
        for one in gone:  # nothing of it is shared any more
            used.update(dict(one.used))
        return replace(
            node,
            unhealthy=node.unhealthy | mask,
            unknown_unhealthy=node.unknown_unhealthy + unknown,
            shared=tuple(one for one in node.shared if one not in gone),
            releasable=node.releasable & ~(kept | mask),
            allocatable=tuple((name, most - used[name]) for name, most in node.allocatable),
        )

    def _fixed(self, n: int, freed: set[int]) -> Iterator[tuple[Role, PodPlacement]]:
        for gang in sorted(self.by_node[n] - freed):
            roles = self.instance.gangs[gang].roles
            for pod in self.decisions[gang].pods:
                if pod.node == n:
                    yield roles[pod.role], pod

    def _budgets(self, freed: set[int]) -> tuple[DisruptionBudget, ...]:
        """What the evictions of other gangs leave of the disruption budgets."""
        budgets = self.instance.cluster.budgets
        others = (gang for gang in guards(self.instance).takings if gang not in freed)
        return without(budgets, taken(self.instance, self.decisions, others)) if budgets else ()

    def _policy(self, freed: set[int], limits: SolveLimits) -> Policy:
        """The policy with what the moves of other gangs leave of its limits."""
        policy = replace(self.instance.policy, solve=limits, now=self.instance.now)
        if policy.moves is None:
            return policy
        moved = [gpus for gang, gpus in self.moves.items() if gang not in freed]
        gangs, gpus = policy.moves.max_gangs, policy.moves.max_gpus
        left = replace(
            policy.moves,
            max_gangs=None if gangs is None else gangs - len(moved),
            max_gpus=None if gpus is None else gpus - sum(moved),
        )
        return replace(policy, moves=left)


def _moved(
    pods: Sequence[PodPlacement], position: Mapping[int, int] | Sequence[int]
) -> tuple[PodPlacement, ...]:
    """The pods with the indices of their nodes in another instance."""
    return tuple(PodPlacement(p.role, p.index, position[p.node], p.gpus) for p in pods)


def _within(one: Reserved, position: Mapping[int, int]) -> Reserved:
    """What is held for a gang, of the nodes of another instance."""
    nodes = tuple(position[n] for n in one.nodes if n in position)
    return replace(one, nodes=nodes, pods=())


def _on(gang: Gang, position: Mapping[int, int]) -> Gang:
    """The gang with the indices of its nodes in another instance, without what was planned elsewhere."""
    pods = tuple(
        pod if pod.node is None else replace(pod, node=position[pod.node]) for pod in gang.pods
    )
    planned = tuple(
        replace(pod, node=position[pod.node]) for pod in gang.planned if pod.node in position
    )
    roles = (
        replace(role, keeps=tuple((position[n], m) for n, m in role.keeps if n in position))
        for role in gang.roles
    )
    return replace(gang, roles=tuple(roles), pods=pods, planned=planned)


ALWAYS_EMPTY = 1 << 30
"""More domains than there are: the least counts as empty."""


def _evenly(instance: Instance, index: int, gang: Gang, nodes: Sequence[int]) -> Gang:
    """The gang on these nodes: a spread takes the domains that it cannot know of for empty."""
    rules = pod_rules(instance)
    if all(rule.kind is not Kind.SPREAD for rule in rules.of.get(index, ())):
        return gang
    roles = list[Role]()
    for number, role in enumerate(gang.roles):
        about, key = rules.by_role.get((index, number), ()), (index, number)
        stated = {rule.stated: rule for rule in about if key in rule.owners}
        spread = tuple(_whole(stated.get(one), one, nodes) for one in role.spread)
        roles.append(replace(role, spread=spread))
    return replace(gang, roles=tuple(roles))


def _whole(rule: Rule | None, one: Spread, nodes: Sequence[int]) -> Spread:
    if rule is None:
        return one
    inside = {rule.of[n] for n in nodes if rule.counts(n)}
    whole = rule.least_counts and rule.domains <= inside
    return replace(one, min_domains=1 if whole else ALWAYS_EMPTY)
