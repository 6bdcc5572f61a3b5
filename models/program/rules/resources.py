"""cpu, memory, pods and any other resource of a node (contract 2.2, 2.6).

For every tight region (one node) and limited resource: requests of pods placed <= what is left next to pods
that stay. Where pods that may stay can overfill the node: placed + staying <= left + M (1 - y), placed <= M
y, where y is 1 if anything is placed. Other nodes need no row (``regions``). Instances that GPUs of the node
could have are not left: what partitions supply is taken off, also for pods whose place is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance.occupancy import PODS
from models.program.interruption import check
from models.program.linear_program import CHECK_EVERY, Linear
from models.program.regions import Region
from models.program.variables import Model, PodPool, Variables
from models.rules.demands import RoleDemand


def add(model: Model) -> None:
    program, variables, region_set, rooms = (
        model.program,
        model.variables,
        model.region_set,
        model.rooms,
    )
    tight = {region.number: region.nodes[0] for region in region_set.regions if region.tight}
    rows: dict[tuple[int, str], Linear] = {
        (number, resource): Linear() for number, n in tight.items() for resource, _ in rooms[n].left
    }
    resources = sorted({resource for _, resource in rows})

    for count, (number, variable, role, pods) in enumerate(_loads(variables, model.pod_pools)):
        if not count % CHECK_EVERY:
            check(program.interrupted)
        for resource in resources:
            if (number, resource) in rows:
                rows[number, resource].add(variable, _request(role, resource) * pods)
    supplies = _supplies(variables)
    for (number, resource), placed in rows.items():
        n = tight[number]
        left = rooms[n].left_of(resource)
        assert left is not None
        stays, most = _staying(variables, region_set.regions[number], resource)
        used = Linear().add_linear(placed).add_linear(stays)
        model.loads[number, resource] = Linear().add_linear(used)
        if could := dict(model.instance.cluster.nodes[n].reshapable).get(resource, 0):
            used.add_linear(supplies.get((number, resource), Linear()), -1)
            program.at_most(used, left - could)
        elif most <= left:
            program.at_most(used, left)
        elif not stays.terms:
            program.at_most(placed, max(0, left))
        else:
            anything = program.boolean()
            program.at_most(used.add(anything, most - left), most)
            program.at_most(Linear().add_linear(placed).add(anything, -max(0, left)))


def _supplies(variables: Variables) -> dict[tuple[int, str], Linear]:
    """By region and resource, instances of the GPUs that are partitioned."""
    found: dict[tuple[int, str], Linear] = {}
    for partition in variables.partitions:
        for piece in partition.pieces:
            for resource, count in partition.supply:
                found.setdefault((piece.region, resource), Linear()).add(piece.variable, count)
    return found


def _staying(variables: Variables, region: Region, resource: str) -> tuple[Linear, int]:
    """What pods that may stay use of a resource, and the most that is."""
    total, most = Linear(), 0
    for number, options in region.node_usages.items():
        uses = [dict(left.use).get(resource, 0) for left in options]
        most += max(uses)
        for position, use in enumerate(uses):
            total.add(variables.admits[number][position], use)
    return total, most


def _loads(
    variables: Variables, pooled: Sequence[PodPool]
) -> Iterator[tuple[int, int, RoleDemand, int]]:
    """(region, variable, role, pods of the role a unit of the variable) of everything that may be placed."""
    for pool in pooled:
        for piece in pool.pieces:
            yield piece.region, piece.variable, pool.role, 1
    for group in variables.groups:
        for piece in group.pieces:
            for role in group.demands[0].roles:
                yield piece.region, piece.variable, role, role.count
    for gang in variables.gangs:
        for piece in gang.pieces:
            for role, pods in zip(gang.demand.gpu_roles, piece.pods, strict=True):
                yield piece.region, piece.variable, role, pods
        for (position, number), variable in gang.cpu_only_counts.items():
            yield number, variable, gang.demand.cpu_only_roles[position], 1


def _request(role: RoleDemand, resource: str) -> int:
    # the pods of a whole gang on one node are one piece with several pods
    return dict(role.requests).get(resource, int(resource == PODS))
