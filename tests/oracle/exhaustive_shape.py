"""Where whole gangs may be in tiny instances: rules 2.19 to 2.21.

Promises: the words of balance, exclusive domains and spare nodes; own code.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from exhaustive_prices import domain, labels_of
from exhaustive_values import Pods, standing

from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance

WHOLE = "all GPUs whole before the plan"
"""Labels a node of which a test partitions or shares GPUs beforehand, as a plan would."""

Claims = frozenset[tuple[int, tuple[str, ...], bool]]
"""Domains with pods with GPUs: level, domain, and whether a gang wants it for itself."""


def balanced(instance: Instance, gang: Gang, stays: Pods, new: Pods) -> bool:
    """Rule 2.19 for a gang with these pods."""
    if gang.balance is None or not any(gang.roles[r].gpus for r, _, _ in new):
        return True
    shares = Counter(
        domain(instance.cluster, gang.balance, n)
        for r, _, n in (*stays, *new)
        if gang.roles[r].gpus
    )
    return all(abs(a - b) <= 1 for a in shares.values() for b in shares.values())


class Exclusion:
    """Rule 2.20. Gangs are taken one after another; pods that stay are known before."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.levels = sorted({g.exclusive for g in instance.gangs if g.exclusive is not None})

    def claims(self, g: int, nodes: Iterable[int]) -> Claims:
        """Of a gang with pods with GPUs on these nodes."""
        gang, cluster = self.instance.gangs[g], self.instance.cluster
        return frozenset(
            (level, domain(cluster, level, n), gang.exclusive == level)
            for n in nodes
            for level in self.levels
        )

    @staticmethod
    def clash(one: Claims, other: Claims) -> bool:
        """Whether pods of two gangs meet where one of them wants to be alone."""
        return any(
            level == at and place == there and (alone or wanted)
            for level, place, alone in one
            for at, there, wanted in other
        )


class Spares:
    """Rule 2.21. ``owed``: nodes of a domain that could be idle, and how many of them must be.

    ``idle``: all nodes that are so while nobody comes.
    """

    def __init__(self, instance: Instance) -> None:
        cluster = instance.cluster
        levels = [level.name for level in cluster.levels]
        busy = {
            pod.node
            for gang in instance.gangs
            for pod in standing(gang)
            if gang.roles[pod.role].gpus or _parts(gang.roles[pod.role])
        }
        self.owed: list[tuple[tuple[int, ...], int]] = []
        self.idle = {n for n, node in enumerate(cluster.nodes) if _sound(node) and n not in busy}
        for name, spares in instance.policy.spares:
            number = levels.index(name)
            members: dict[tuple[str, ...], list[int]] = {}
            for n, node in enumerate(cluster.nodes):
                if node.model and None not in node.domains[: number + 1] and ours(instance, node):
                    members.setdefault(domain(cluster, number, n), []).append(n)
            for nodes in members.values():
                sound = [n for n in nodes if _sound(cluster.nodes[n])]
                made = [n for n in nodes if (WHOLE, "true") in cluster.nodes[n].labels]
                were = {*sound, *(n for n in made if not _failed(cluster.nodes[n]))}
                idle = [n for n in were if n not in busy]
                failed = sum(_failed(cluster.nodes[n]) for n in nodes)
                self.owed.append((tuple(sound), min(spares - failed, len(idle))))

    def kept(self, idle: Collection[int]) -> bool:
        """Whether these nodes without pods with GPUs are enough everywhere."""
        return all(sum(n in idle for n in nodes) >= owed for nodes, owed in self.owed)


def ours(instance: Instance, node: Node) -> bool:
    """Whether the policy selects the node."""
    labels = labels_of(instance.cluster, node)
    return all(labels.get(key) == value for key, value in instance.policy.node_selector)


def _parts(role: Role) -> bool:
    return any(name.startswith(("nvidia.com/mig-", "share.")) for name, _ in role.requests)


def _failed(node: Node) -> bool:
    sick = node.unhealthy & ~node.partitioned or node.unknown_unhealthy > node.unknown_partitioned
    return not node.ready or node.unschedulable or bool(sick)


def _sound(node: Node) -> bool:
    return (
        node.ready
        and not node.unschedulable
        and node.unhealthy == 0
        and node.unknown_unhealthy == 0
    )
