"""How many GPUs of a gang may be on the nodes an earlier plan had for them (tier ``stability``).

For a role of GPU pods and a region: matched <= pods placed there, matched <= pods planned there before.
Where slices are told apart, for each of them: matched there <= its pods planned there x d[slice, domain].
Exact where a region is one node and slices, if any, are told apart; otherwise no plan does better.
Called by ``tiers``.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.placement.demands import RoleDemand
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.variables import Apart, GangVariables, GroupVariables


def matched(program: Program, pools: Pools, gang: GangVariables) -> Linear:
    """GPUs of pods to place that may go where they were planned."""
    total = Linear()
    if not gang.gang.planned:
        return total
    region_of = {n: region.number for region in pools.regions for n in region.nodes}
    for position, role in enumerate(gang.demand.gpu_roles):
        if role.role in gang.exchange:
            wanted = {
                p.index: region_of.get(p.node) for p in gang.gang.planned if p.role == role.role
            }
            for indices, places in gang.exchange[role.role]:
                total.add_all(
                    (v for r, v in places.items() if r == wanted.get(indices[0])), role.gpus
                )
            continue
        for number, rows in sorted(_wanted(gang, role, region_of).items()):
            placed = gang.gpu_pods(position, [number])
            if placed.terms:
                for count, chosen in rows:
                    here = program.integer(0, count)
                    placed.add(here, -1)
                    total.add(here, role.gpus)
                    if chosen is not None:
                        program.at_most(Linear().add(here).add(chosen, -count))
                program.at_least(placed)
    return total


def _wanted(
    gang: GangVariables, role: RoleDemand, region_of: Mapping[int, int]
) -> dict[int, list[tuple[int, int | None]]]:
    """By region, for each slice: pods planned there, and the boolean that allows it.

    None instead of the boolean where slices are not told apart.
    """
    slices: Apart = gang.apart.get(role.role, [[(role.indices, [])]])[0]
    found: dict[int, list[tuple[int, int | None]]] = {}
    for indices, options in slices:
        counts: dict[int, int] = {}
        for pod in gang.gang.planned:
            if pod.role == role.role and pod.index in indices and pod.node in region_of:
                number = region_of[pod.node]
                counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            chosen = next((variable for regions, variable in options if number in regions), None)
            if chosen is not None or not options:
                found.setdefault(number, []).append((count, chosen))
    return found


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
