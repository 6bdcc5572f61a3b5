"""Everything that may keep a gang from starting beside a plan: gangs, nodes, and what rules ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.rules.declaration import Asked, Requirement
from models.rules.registry import requirements
from planner.search.explain.causes import GANG, NODE, Cause, World, node_faults


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
            found += (_of_all(one, wish) for wish in one.of_all(instance, pods, world.gang))
    for one in asked:
        if one.of_gang is not None:
            found += (_of_gang(one, wish) for wish in one.of_gang(instance, spec))
    for number, role in enumerate(spec.roles):
        for one in asked:
            if one.of_role is not None:
                found += (_of_role(one, number, wish) for wish in one.of_role(instance, role))
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


def _of_all(one: Requirement, wish: Asked[Instance]) -> Cause:
    return Cause(one.name, wish.name, relax=partial(_changed, wish.change), fields=wish.fields)


def _changed(change: Callable[[Instance], Instance], world: World) -> World:
    return replace(world, instance=change(world.instance))


def _of_gang(one: Requirement, wish: Asked[Gang]) -> Cause:
    return Cause(one.name, wish.name, relax=partial(_changed_gang, wish.change), fields=wish.fields)


def _changed_gang(change: Callable[[Gang], Gang], world: World) -> World:
    return world.with_gang(change(world.spec))


def _of_role(one: Requirement, number: int, wish: Asked[Role]) -> Cause:
    relax = partial(_changed_role, number, wish.change)
    return Cause(one.name, wish.name, role=number, relax=relax, fields=wish.fields)


def _changed_role(number: int, change: Callable[[Role], Role], world: World) -> World:
    roles = list(world.spec.roles)
    roles[number] = change(roles[number])
    return world.with_gang(replace(world.spec, roles=tuple(roles)))
