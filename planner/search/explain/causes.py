"""What may keep a gang from starting beside a plan: one cause for each thing that somebody can change.

Without a cause the instance is looser by exactly that: a gang that holds GPUs is gone, a node is in order, a
wish of the gang or a rule of the policy is dropped. The size of the gang and the hardware are no causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from models.gpu_shares import share_in
from models.instance.cluster import Node
from models.instance.eligibility import without_conditions
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.reshaping import with_reshapable
from models.instance.solution import GangDecision
from models.rules.declaration import Asked, Requirement
from models.rules.registry import requirements
from planner.search.free_space import SET_ASIDE

GANG = "gang"
NODE = "node"
SIZE = "size"
"""Kinds of causes; all others have the name of a ``models.rules.declaration.Requirement``."""


@dataclass(frozen=True, slots=True)
class World:
    """A plan of an instance, and the gang of it that is asked about. ``gang``: its index."""

    instance: Instance
    decisions: tuple[GangDecision, ...]
    gang: int

    @property
    def spec(self) -> Gang:
        return self.instance.gangs[self.gang]

    def with_gang(self, gang: Gang) -> World:
        """The same with another description of the gang."""
        gangs = list(self.instance.gangs)
        gangs[self.gang] = gang
        return replace(self, instance=replace(self.instance, gangs=tuple(gangs)))

    def without(self, gone: Collection[int]) -> World:
        """The same without the pods of these gangs, which do not come back, and their parts of GPUs."""
        if not gone:
            return self
        gangs, decisions = list(self.instance.gangs), list(self.decisions)
        for index in gone:
            gangs[index] = replace(gangs[index], pods=(), hold=SET_ASIDE)
            decisions[index] = GangDecision("wait")
        instance = replace(self.instance, gangs=tuple(gangs))
        if not sharers(self.instance).keys().isdisjoint(gone):
            instance = with_reshapable(instance)
        return replace(self, instance=instance, decisions=tuple(decisions))

    def with_nodes(self, nodes: Sequence[Node]) -> World:
        """The same with other descriptions of the nodes; more of them may follow."""
        cluster = replace(self.instance.cluster, nodes=tuple(nodes))
        return replace(self, instance=replace(self.instance, cluster=cluster))


def sharers(instance: Instance) -> Mapping[int, Mapping[int, int]]:
    """By gang and node, pods with parts of GPUs of which others get more only once these have left."""
    return instance.once(_sharers)


def _sharers(instance: Instance) -> dict[int, Counter[int]]:
    shared = {n for n, node in enumerate(instance.cluster.nodes) if node.shared}
    found = dict[int, Counter[int]]()
    for index, gang in enumerate(instance.gangs) if shared else ():
        for pod in gang.running_pods:
            part = pod.start is not None or share_in(r for r, _ in gang.roles[pod.role].requests)
            if pod.node is not None and pod.node in shared and part:
                found.setdefault(index, Counter())[pod.node] += 1
    return found


Relax = Callable[[World], World]


@dataclass(frozen=True, slots=True)
class Cause:
    """``kind``: ``GANG``, ``NODE``, ``SIZE`` or the name of a requirement.

    ``name``: of the gang, node, level or rule; ``fields``: what else its words need.
    ``gang``, ``node``, ``role``: indices of what it is about. ``weight``: GPUs that it takes.
    """

    kind: str
    name: str
    gang: int | None = None
    node: int | None = None
    role: int | None = None
    weight: int = 0
    relax: Relax | None = None
    fields: Mapping[str, object] = field(default_factory=dict, hash=False, compare=False)


def relaxed(world: World, dropped: Collection[Cause]) -> World:
    """The world without these causes."""
    nodes = {one.node for one in dropped if one.kind == NODE}
    found = world.without(
        [one.gang for one in dropped if one.gang is not None and one.relax is None]
    )
    if nodes:
        kept = enumerate(found.instance.cluster.nodes)
        found = found.with_nodes([in_order(node) if n in nodes else node for n, node in kept])
    for one in dropped:
        if one.relax is not None:
            found = one.relax(found)
    return found


def in_order(node: Node) -> Node:
    """The node ready, uncordoned, without the taints of a condition, and with healthy GPUs."""
    return replace(
        without_conditions(node),
        ready=True,
        unschedulable=False,
        unhealthy=node.partitioned,
        unknown_unhealthy=node.unknown_partitioned,
    )


def node_faults(node: Node) -> tuple[str, ...]:
    """Codes of what is wrong with a node; none if nothing is."""
    tainted = len(without_conditions(node).taints) < len(node.taints)
    found = (
        ("NotReady", not node.ready),
        ("Cordoned", node.unschedulable),
        ("Tainted", tainted and node.ready and not node.unschedulable),
        ("UnhealthyGpus", node.healthy_gpus < node.whole_gpus - len(node.shared)),
    )
    return tuple(code for code, wrong in found if wrong)


def with_role(world: World, number: int, **changes: Any) -> World:  # noqa: ANN401  # fields of a role
    """The world with another description of one role of the gang."""
    roles = list(world.spec.roles)
    roles[number] = replace(roles[number], **changes)
    return world.with_gang(replace(world.spec, roles=tuple(roles)))


def causes_of(world: World) -> tuple[Cause, ...]:
    """Everything that may keep the gang waiting, whether it does or not.

    After gangs and nodes what the policy and queues ask for, then the gang, then each of its roles.
    """
    asked = requirements()
    instance, spec = world.instance, world.spec
    pods = [one.pods for one in world.decisions]
    found = [*_holders(world), *_nodes(world)]
    for one in asked:
        if one.of_all is not None:
            found += (
                _asked(one, w, partial(_changed, w.change))
                for w in one.of_all(instance, pods, world.gang)
            )
    for one in asked:
        if one.of_gang is not None:
            found += (
                _asked(one, w, partial(_changed_gang, w.change))
                for w in one.of_gang(instance, spec)
            )
    for number, role in enumerate(spec.roles):
        for one in asked:
            if one.of_role is not None:
                found += (
                    _asked(one, w, partial(_changed_role, number, w.change), number)
                    for w in one.of_role(instance, role)
                )
    return tuple(found)


def _holders(world: World) -> Iterator[Cause]:
    for index, (gang, one) in enumerate(zip(world.instance.gangs, world.decisions, strict=True)):
        if index == world.gang or not one.pods:
            continue
        yield Cause(
            GANG,
            "/".join(gang.key),
            gang=index,
            weight=sum(gang.roles[pod.role].gpus for pod in one.pods),
            fields={"nodes": len({pod.node for pod in one.pods}), "decision": one.decision},
        )


def _nodes(world: World) -> Iterator[Cause]:
    for n, node in enumerate(world.instance.cluster.nodes):
        faults = node_faults(node)
        if faults:
            fields = {"faults": faults}
            yield Cause(NODE, node.name, node=n, weight=node.gpus, fields=fields)


def _changed(change: Callable[[Instance], Instance], world: World) -> World:
    return replace(world, instance=change(world.instance))


def _changed_gang(change: Callable[[Gang], Gang], world: World) -> World:
    return world.with_gang(change(world.spec))


def _asked(one: Requirement, wish: Asked[Any], relax: Relax, role: int | None = None) -> Cause:
    return Cause(one.name, wish.name, role=role, relax=relax, fields=wish.fields)


def _changed_role(number: int, change: Callable[[Role], Role], world: World) -> World:
    roles = list(world.spec.roles)
    roles[number] = change(roles[number])
    return world.with_gang(replace(world.spec, roles=tuple(roles)))
