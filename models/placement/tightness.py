"""On which nodes cpu, memory, the number of pods or another resource may bind at all.

Promises: a node that is not tight needs no row of its own: nothing that its free GPUs admit reaches a limit.
Called by ``regions``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.occupancy import PODS, Room
from models.placement.contents import Contents, Left
from models.placement.demands import Demand


def tight_nodes(
    demands: Sequence[Demand],
    rooms: Sequence[Room],
    contents: Contents,
    signatures: dict[int, tuple[int, ...]],
    placed: Sequence[bool],
) -> tuple[frozenset[int], tuple[bool, ...]]:
    """Nodes where some resource may bind, and which demands' pods without GPUs ride along.

    A node is safe when the worst set of GPU pods its free GPUs admit beside what may be left there, the
    riders of the gangs those pods belong to, and every pod that does not ride, fit together. Riders of
    a gang that may use a tight node stop riding, which may make more nodes tight: repeated until nothing
    changes. ``placed``: demands of which no pod rides.
    """
    riding = [
        _may_ride(demand) and not (by_itself and demand.zero_roles)
        for demand, by_itself in zip(demands, placed, strict=True)
    ]
    keys: dict[int, object] = {
        n: (signature, rooms[n].free_gpus, rooms[n].left, tuple(contents.get(n, {}).items()))
        for n, signature in signatures.items()
    }
    while True:
        known: dict[object, bool] = {}
        for n, key in keys.items():
            if key not in known:
                lefts = list(contents.get(n, {}).values())
                known[key] = _may_bind(demands, rooms[n], lefts, riding, n)
        tight = frozenset(n for n, key in keys.items() if known[key])
        again = [
            rides and not any(n in tight for role in demand.gpu_roles for n in role.nodes)
            for rides, demand in zip(riding, demands, strict=True)
        ]
        again = [
            rides or not demand.zero_roles for rides, demand in zip(again, demands, strict=True)
        ]
        if again == riding:
            return tight, tuple(riding)
        riding = again


def _may_ride(demand: Demand) -> bool:
    if not demand.zero_roles:
        return True
    if not demand.gpu_roles or demand.stays:
        return False
    gpu_nodes = frozenset().union(*(role.nodes for role in demand.gpu_roles))
    return all(gpu_nodes <= role.nodes for role in demand.zero_roles)


def _gpus(left: Left) -> int:
    return left.known.bit_count() + left.blind


def _stood(lefts: Sequence[tuple[Left, ...]], resource: str, most: int) -> list[int]:
    """The most of a resource that may be left on a node together with so many GPUs or fewer."""
    worst = [0] * (most + 1)
    for options in lefts:
        uses = [(_gpus(left), dict(left.use).get(resource, 0)) for left in options]
        worst = [
            max([worst[g]] + [worst[g - gpus] + use for gpus, use in uses if gpus <= g])
            for g in range(most + 1)
        ]
    return worst


def _may_bind(
    demands: Sequence[Demand],
    room: Room,
    lefts: Sequence[tuple[Left, ...]],
    riding: Sequence[bool],
    n: int,
) -> bool:
    if sum(max(_gpus(left) for left in options) for options in lefts) > room.free_gpus:
        return True  # what stands there is too much already
    for resource, left in room.left:
        worst = _stood(lefts, resource, room.free_gpus)
        riders: dict[int, int] = {}
        loose: dict[int, int] = {}
        by_size: dict[int, int] = {}
        for demand, rides in zip(demands, riding, strict=True):
            zero = 0
            for role in demand.roles:
                if n not in role.nodes:
                    continue
                amount = 1 if resource == PODS else dict(role.requests).get(resource, 0)
                if role.gpus:
                    by_size[role.gpus] = max(by_size.get(role.gpus, 0), amount)
                else:
                    zero += amount * role.count
            if zero:
                # of one gang's options only one comes true
                where = riders if rides else loose
                where[demand.gang] = max(where.get(demand.gang, 0), zero)
        for gpus in range(1, room.free_gpus + 1):
            worst[gpus] = max(
                [worst[gpus], worst[gpus - 1]]
                + [worst[gpus - size] + need for size, need in by_size.items() if size <= gpus]
            )
        most = sorted(riders.values(), reverse=True)[: room.free_gpus]
        if worst[room.free_gpus] + sum(most) + sum(loose.values()) > left:
            return True
    return False
