"""Nodes that rules about whole domains close to pods with GPUs while a plan is built (contract 2.20, 2.21).

Of the nodes that a policy keeps free those are chosen that the fewest waiting pods may use. Knows nothing of
room: a node that is not closed may be full.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rules.demands import Demand
from models.rules.shape import apart, exclusive_levels, spare_domains, spare_nodes

Nodes = frozenset[int]


@lru_cache(maxsize=128)
def without(nodes: Nodes, closed: Nodes) -> Nodes:
    """The difference, one object for all gangs: tables of room go by node sets."""
    return nodes - closed


class ClosedNodes:
    """``active``: whether any rule closes nodes; all else must be called only then.

    ``_pods``: pods with GPUs, or parts of some, by node. ``_tenants``: by level, domain and gang.
    ``_spared``: nodes kept free, by rule; the rules in ``_stale`` choose again.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._levels = exclusive_levels(instance)
        self._rules = spare_nodes(instance)
        self.active = bool(self._levels or self._rules)
        self._pods: Counter[int] = Counter()
        self._tenants = {level: defaultdict[int, Counter[int]](Counter) for level in self._levels}
        uses = instance.once(_uses) if self._rules else Counter[int]()
        # those that the fewest waiting pods may use first, of equals the last ones
        self._order = [sorted(r.nodes, key=lambda n: (uses[n], -n)) for r in self._rules]
        self._spared: list[Nodes] = [Nodes() for _ in self._rules]
        self._stale = set(range(len(self._rules)))
        self._shared: Nodes | None = None

    def add(self, gang: int, pod: PodPlacement, pods: int) -> None:
        """Count a pod of a gang (``pods`` 1), or no longer (-1)."""
        spec = self._instance.gangs[gang]
        role = spec.roles[pod.role]
        if not role.uses_gpus:
            return
        before = self._pods[pod.node]
        self._pods[pod.node] += pods
        if not before or not self._pods[pod.node]:
            self._stale.update(spare_domains(self._instance).get(pod.node, ()))
        for level, domains in self._tenants.items() if role.gpus else ():
            gangs = domains[self._instance.cluster.domain_of[level][pod.node]]
            gangs[gang] += pods
            if not gangs[gang]:
                del gangs[gang]
            if spec.exclusive == level:
                self._shared = None

    def prefer(self, rule: int, nodes: Nodes) -> None:
        """Keep nodes free by a rule that are among these, if there are any."""
        self._order[rule].sort(key=lambda n: n not in nodes)
        self._stale.add(rule)

    def narrowed(self, demand: Demand) -> Demand:
        """The demand without the nodes to which none of its pods with GPUs, or parts of some, may come."""
        closed = self._closed(demand.gang)
        if not closed:
            return demand
        spec, spares = self._instance.gangs[demand.gang], self._spares()
        own = [closed if role.gpus else spares for role in demand.roles]
        roles = tuple(
            replace(role, nodes=without(role.nodes, nodes))
            if spec.roles[role.role].uses_gpus
            else role
            for role, nodes in zip(demand.roles, own, strict=True)
        )
        return replace(demand, roles=roles)

    def broken_by(self, gang: int, pods: Sequence[PodPlacement]) -> bool:
        """Whether pods of a gang, which are counted, are where others may be alone, or on spare nodes."""
        if not self.active:
            return False
        nodes = {pod.node for pod in pods}
        rules = {rule for n in nodes for rule in spare_domains(self._instance).get(n, ())}
        for rule in rules:
            idle = sum(not self._pods[n] for n in self._rules[rule].nodes)
            if idle < self._rules[rule].least:
                return True
        return bool(self._levels) and not nodes.isdisjoint(self._alone(gang))

    def _closed(self, gang: int) -> Nodes:
        for rule in self._stale:
            free = (n for n in self._order[rule] if not self._pods[n])
            chosen = Nodes(n for n, _ in zip(free, range(self._rules[rule].least), strict=False))
            if chosen != self._spared[rule]:
                self._spared[rule], self._shared = chosen, None
        self._stale.clear()
        own = self._instance.gangs[gang].exclusive is not None
        if own:
            return self._spares().union(self._alone(gang))
        if self._shared is None:
            self._shared = self._spares().union(self._alone(gang))
        return self._shared

    def _spares(self) -> Nodes:
        return Nodes().union(*self._spared)

    def _alone(self, gang: int) -> set[int]:
        """The nodes of domains in which the gang and another one may not be together."""
        cluster, found = self._instance.cluster, set[int]()
        for level, domains in self._tenants.items():
            for d, gangs in domains.items():
                if apart(self._instance, gangs, level, gang):
                    found.update(cluster.domains[level][d].nodes)
        return found


def _uses(instance: Instance) -> Counter[int]:
    """Waiting roles with GPUs, or parts of some, that may use each node."""
    sets = Counter(
        instance.eligible_nodes(role)
        for gang in instance.gangs
        if not gang.running
        for role in gang.roles
        if role.uses_gpus
    )
    found: Counter[int] = Counter()
    for nodes, roles in sets.items():
        for n in nodes:
            found[n] += roles
    return found
