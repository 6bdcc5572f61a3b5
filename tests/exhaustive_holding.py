"""Which gangs of a tiny instance hold room while they wait: rule 2.14, in its own words.

Promises: counts on the nodes as they would be if all were in order and empty; own code.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from exhaustive_nodes import may_stand
from exhaustive_prices import domain
from exhaustive_queues import ANY, promises
from exhaustive_values import running

from models.cluster import Node
from models.gang import Gang, Role
from models.instance import Instance

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


def holders(instance: Instance) -> frozenset[int]:
    """Gangs that wait before the plan and keep lower ones waiting until they start."""
    least = instance.policy.hold_room_from
    return frozenset(
        g
        for g, gang in enumerate(instance.gangs)
        if least is not None
        and gang.priority >= least
        and not running(gang)
        and gang.hold is None
        and _could_start(instance, gang)
        and _within_limits(instance, g)
    )


def _could_start(instance: Instance, gang: Gang) -> bool:
    nodes = [_nodes(instance, role) for role in gang.roles]
    if not all(map(_role_fits, [instance] * len(nodes), [gang] * len(nodes), gang.roles, nodes)):
        return False
    used = {n for role, own in zip(gang.roles, nodes, strict=True) if role.gpus for n in own}
    needed = sum(role.min * role.gpus for role in gang.roles)
    gpus = {n: instance.cluster.nodes[n].gpus for n in used}
    return needed == 0 or _best(instance, gang.required, gpus) >= needed


def _role_fits(instance: Instance, gang: Gang, role: Role, nodes: Sequence[int]) -> bool:
    cluster = instance.cluster
    room = {n: _room(cluster.nodes[n], role) for n in nodes}
    if role.gpus == 0 and not nodes:
        return False
    models: Counter[str] = Counter()
    for n, pods in room.items():
        model = cluster.nodes[n].model
        models[model.gpu if model else ""] += pods
    if role.gpus and not role.mix_models and max(models.values(), default=0) < role.min:
        return False
    levels = (None, gang.required, role.required)
    if any(_best(instance, level, room) < role.min for level in levels):
        return False
    for size, level in role.slice_layers:
        last = role.first_index + role.min
        slices = [range(start, start + size) for start in range(0, last, size)]
        whole = sum(s[0] >= role.first_index and s[-1] < last for s in slices)
        if sum(pods // size for pods in _by_domain(instance, level, room).values()) < whole:
            return False
    return True


def _room(node: Node, role: Role) -> int:
    """Pods of a role for which an empty node has room, at most all of those without GPUs."""
    room = node.gpus // role.gpus if role.gpus else role.min
    held = dict(node.held)
    for resource, stated in node.allocatable:
        asked = 1 if resource == "pods" else dict(role.requests).get(resource, 0)
        if asked and ".gangplan.dev/" not in resource:
            room = min(room, (stated + held.get(resource, 0)) // asked)
    return room


def _within_limits(instance: Instance, g: int) -> bool:
    """Whether what the gang asks for at least is within the limit of each queue that it is in."""
    known, gang = promises(instance), instance.gangs[g]
    if not known.queues:
        return True
    asked: Counter[str] = Counter()
    for role in gang.roles:
        asked[ANY] += role.min * role.gpus
        models = {known.models[n] for n in _nodes(instance, role)} - {None}
        if role.gpus and len(models) == 1:
            asked[str(models.pop())] += role.min * role.gpus
    return all(
        gpus <= known.limits[queue].get(key, gpus)
        for queue in known.line(known.named[g])
        for key, gpus in asked.items()
    )


def _nodes(instance: Instance, role: Role) -> list[int]:
    """Nodes for the role if all were ready, uncordoned and in good condition."""
    found = []
    for n, node in enumerate(instance.cluster.nodes):
        taints = tuple(t for t in node.taints if not t.key.startswith(PASSING))
        best = replace(node, ready=True, unschedulable=False, taints=taints)
        if may_stand(instance, role, best):
            found.append(n)
    return found


def _best(instance: Instance, level: int | None, room: dict[int, int]) -> int:
    """The most in one domain of a level, or in all."""
    if level is None:
        return sum(room.values())
    return max(_by_domain(instance, level, room).values(), default=0)


def _by_domain(instance: Instance, level: int, room: dict[int, int]) -> Counter[object]:
    found: Counter[object] = Counter()
    for n, amount in room.items():
        found[domain(instance.cluster, level, n)] += amount
    return found
