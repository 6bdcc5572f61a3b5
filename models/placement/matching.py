"""How many GPUs of a gang may be on the nodes an earlier plan had for them (tier ``stability``).

For a role of GPU pods and a region: matched <= pods placed there, matched <= pods planned there before.
Exact where a region is one node and no slice ties indices together; otherwise no plan does better.
Called by ``tiers``.
"""

from __future__ import annotations

from models.placement.demands import RoleDemand
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.variables import GangVariables, GroupVariables


def matched(program: Program, pools: Pools, gang: GangVariables) -> Linear:
    """GPUs of pods to place that may go where they were planned."""
    total = Linear()
    if not gang.gang.planned:
        return total
    region_of = {n: region.number for region in pools.regions for n in region.nodes}
    for position, role in enumerate(gang.demand.gpu_roles):
        wanted: dict[int, int] = {}
        for n, count in _planned(gang, role).items():
            if n in region_of:
                wanted[region_of[n]] = wanted.get(region_of[n], 0) + count
        for number, count in sorted(wanted.items()):
            placed = gang.gpu_pods(position, [number])
            if placed.terms:
                here = program.integer(0, count)
                program.at_least(placed.add(here, -1))
                total.add(here, role.gpus)
    return total


def matched_alone(pools: Pools, group: GroupVariables) -> Linear:
    """The same for a gang on one node: a gang that was planned before is a group by itself."""
    total = Linear()
    if not group.gangs[0].planned:
        return total
    demand = group.demands[0]
    for piece in group.pieces:
        gpus = [
            sum(
                role.gpus
                for role in demand.gpu_roles
                for pod in group.gangs[0].planned
                if pod.role == role.role and pod.index in role.indices and pod.node == n
            )
            for n in pools.regions[piece.region].nodes
        ]
        total.add(piece.variable, max(gpus))
    return total


def _planned(gang: GangVariables, role: RoleDemand) -> dict[int, int]:
    """Pods of the role to be placed, by the node where they were planned."""
    found: dict[int, int] = {}
    for pod in gang.gang.planned:
        if pod.role == role.role and pod.index in role.indices:
            found[pod.node] = found.get(pod.node, 0) + 1
    return found
