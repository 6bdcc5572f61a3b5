"""Random partitioned GPUs (MIG) for tiny instances, and roles whose pods ask for an instance of one.

Promises: deterministic by the draws; nothing unless "instances" is asked for; no GPU that a pod holds is
partitioned. Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from tiny_draws import Draws

from models.documents.cluster import MigGpus
from models.hardware import bits
from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance

INSTANCES = ("instances", "launchers", "cpu_gangs")
"""Features of instances with partitioned GPUs, and with many pods that may ask for a part."""

MAX_PODS = 6
SMALL, LARGE = "1g.10gb", "3g.40gb"
SETS = ((SMALL,), (SMALL, SMALL), (LARGE, SMALL), (LARGE, LARGE), (SMALL, SMALL, SMALL))


def with_instances(draws: Draws, instance: Instance) -> Instance:
    """The instance, perhaps with partitioned GPUs and gangs that ask for their instances."""
    if not draws.asked("instances"):
        return instance
    gangs = tuple(_asking(draws, gang) for gang in instance.gangs)
    asked = {name for gang in gangs for role in gang.roles for name, _ in role.requests}
    nodes = (
        _stating(asked, _partitioned(draws, n, instance))
        for n in range(len(instance.cluster.nodes))
    )
    return replace(instance, gangs=gangs, cluster=replace(instance.cluster, nodes=tuple(nodes)))


def _asking(draws: Draws, gang: Gang) -> Gang:
    """The gang; pods without GPUs often ask for an instance, and there are perhaps more of them."""
    r = draws.random(f"instances/{gang.name}")
    pods, more = r.randint(1, 2), r.random() < 0.5
    roles = [role if role.gpus else _with_instance(r, role) for role in gang.roles]
    if more and all(role.gpus for role in roles):
        left = MAX_PODS - sum(role.max for role in roles)
        part = _with_instance(r, Role("part", min(pods, left), min(pods, left), 1, 0), 1.0)
        roles += [part] if left > 0 and not gang.running else []
    return replace(gang, roles=tuple(roles))


def _with_instance(r: Random, role: Role, chance: float = 0.7) -> Role:
    name, asks = f"nvidia.com/mig-{r.choice((SMALL, SMALL, LARGE))}", r.random() < chance
    requests = tuple(sorted({**dict(role.requests), name: 1}.items()))
    return replace(role, requests=requests) if asks else role


def _partitioned(draws: Draws, n: int, instance: Instance) -> Node:
    """The node with some of its healthy GPUs partitioned that no pod holds, as far as one knows."""
    r, node = draws.random(f"partitioned/{n}"), instance.cluster.nodes[n]
    known, unknown = 0, node.unknown_unhealthy
    for gang in instance.gangs:
        for pod in gang.pods:
            if pod.node == n:
                known |= pod.gpus or 0
                unknown += gang.roles[pod.role].gpus if pod.gpus is None else 0
    free = bits(node.healthy & ~known)
    chosen = sorted(r.sample(free, max(0, min(r.choice((0, 1, 1, 2)), len(free) - unknown))))
    mig = tuple(MigGpus((gpu,), r.choice(SETS)) for gpu in chosen)
    there = Counter(f"nvidia.com/mig-{name}" for one in mig for name in one.profiles)
    held = {name: 1 for name in sorted(there) if r.random() < 0.1}
    mask, spare = sum(1 << gpu for gpu in chosen), len(free) - len(chosen) - unknown
    more = 1 if r.random() < 0.15 and spare > 0 else 0  # partitioned, and nobody knows which
    left = {name: count - held.get(name, 0) for name, count in there.items()}
    return replace(
        node,
        mig=mig,
        unhealthy=node.unhealthy | mask,
        unknown_unhealthy=node.unknown_unhealthy + more,
        unknown_partitioned=more,
        allocatable=tuple(sorted({**dict(node.allocatable), **left}.items())),
        held=tuple(sorted({**dict(node.held), **held}.items())),
    )


def _stating(asked: set[str], node: Node) -> Node:
    """The node; of instances that it lacks it has none."""
    none = dict.fromkeys((name for name in asked if name.startswith("nvidia.com/mig-")), 0)
    return replace(node, allocatable=tuple(sorted({**none, **dict(node.allocatable)}.items())))
