"""What stands on every node after the plan: GPUs known, GPUs unknown, resources, newcomers.

Promises: counted once, over every pod the plan keeps or places, in exact amounts.
Read by the rules, the bandwidth (GPUs nobody knows) and the tiers (free GPUs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.checking.changes import Change
from models.checking.facts import Facts, Gang, Node, Pod


@dataclass(slots=True)
class NodeUse:
    """After the plan. Masks: ``known`` by any pod, ``staying`` by pods that stay, ``shared`` by two pods.

    ``unknown_staying``: GPUs of pods that stay and do not know theirs; ``given_unknown``: of pods placed
    there with ``gpus: null``; ``given_known``: of pods placed there with indices.
    ``tenants``: (gang position, pod, whether it is placed or moved).
    """

    known: int = 0
    staying: int = 0
    shared: int = 0
    unknown_staying: int = 0
    given_unknown: int = 0
    given_known: int = 0
    tenants: list[tuple[int, Pod, bool]] = field(default_factory=list)

    def unaccounted(self, node: Node) -> int:
        """k: GPUs held or sick, and nobody knows which."""
        return self.unknown_staying + node.unknown_unhealthy

    def left(self, node: Node) -> int:
        """Healthy GPUs in no pod; negative where more is held or given than there is."""
        healthy = node.healthy
        return (
            healthy.bit_count()
            - (self.known & healthy).bit_count()
            - self.unaccounted(node)
            - self.given_unknown
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """``nodes[n]``: use of node n, one object a node; nodes without pods share an empty one."""

    nodes: tuple[NodeUse, ...]

    def free(self, position: int, node: Node) -> int:
        """Healthy GPUs in no pod after the plan, 0 where the node is not to be used."""
        return max(0, self.nodes[position].left(node)) if node.usable else 0


def usage_of(facts: Facts, changes: Sequence[Change]) -> Usage:
    """Count every pod of the plan on its node."""
    empty = NodeUse()
    nodes = [empty] * len(facts.nodes)
    for position, change in enumerate(changes):
        standing = change.gang.standing
        for key, pod in change.pods.items():
            use = nodes[pod.node]
            if use is empty:
                use = nodes[pod.node] = NodeUse()
            _add(use, change.gang, position, pod, placed=standing.get(key) != pod)
    return Usage(tuple(nodes))


def _add(use: NodeUse, gang: Gang, position: int, pod: Pod, *, placed: bool) -> None:
    use.tenants.append((position, pod, placed))
    if pod.gpus is None:
        if placed:
            use.given_unknown += gang.held(pod)
        else:
            use.unknown_staying += gang.held(pod)
        return
    use.shared |= use.known & pod.gpus
    use.known |= pod.gpus
    if placed:
        use.given_known += pod.gpus.bit_count()
    else:
        use.staying |= pod.gpus
