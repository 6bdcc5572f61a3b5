"""In which order gangs and their pods are started, so that stopping anywhere strands least.

Promises: pure and total: ties end with keys. Called by the machine in this package.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.applying.orders import GangOrder, Key, PodOrder
from models.applying.room import taken
from models.applying.seen import View

_NEVER = 2**62


def by_rank(gangs: Iterable[GangOrder]) -> list[GangOrder]:
    """Higher priority first, then who waits longer, then by name."""
    return sorted(gangs, key=rank)


def rank(gang: GangOrder) -> tuple[int, int, Key]:
    submitted = _NEVER if gang.submitted_at is None else gang.submitted_at
    return (-gang.priority, submitted, gang.key)


def scarcest_first(view: View, orders: Iterable[PodOrder]) -> list[PodOrder]:
    """Pods of the node with the fewest GPUs left after them first: there a rival would hurt most."""
    pods = list(orders)
    asked: dict[str, int] = {}
    for order in pods:
        asked[order.node] = asked.get(order.node, 0) + order.gpu_count
    used = taken(view, asked, without={order.uid for order in pods})
    left = {
        name: (view.nodes[name].gpus if name in view.nodes else 0) - used[name].gpus - asked[name]
        for name in asked
    }
    return sorted(pods, key=lambda order: (left[order.node], order.node, order.key))
