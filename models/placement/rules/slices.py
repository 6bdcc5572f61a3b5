"""Slices (contract 2.4): pods with equal floor(index / size) share one domain.

Pods of a role are interchangeable, so for a waiting gang with count = h + q x size + t only numbers
matter (h: a short first slice, where indices start inside one; t: a short last one; 0: there is none):
for every domain D of the slice's level, pods in D == size x m[D] + h x a[D] + t x b[D], sum over D of
a[D] == admit, of b[D] == admit (no a where h = 0, no b where t = 0). For an incomplete gang every slice j
with missing pods is told apart: pods in D == sum over j of missing[j] x d[j, D], sum over D of d[j, D] ==
admit, d fixed where pods stand.
At the node level the pieces of GPU roles carry whole slices already; only those with short ones are
counted. With n(r) the pieces that have r pods beside whole slices:
    one short slice of r pods:  n(r) == admit
    two, h + t < or > size:     n(h) + n(h + t) == n(t) + n(h + t) == admit; h = t: n(h) + 2 n(2h) == 2 admit
    two, h + t = size:          n(h) == n(t) <= admit (together they look whole); h = t: n(h) in {0, 2 admit}
"""

from __future__ import annotations

from collections.abc import Callable

from models.gang import Role
from models.instance import Instance
from models.placement.demands import RoleDemand
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.rules.topology import Topology
from models.placement.slicing import Cut
from models.placement.variables import GangVariables

Placed = Callable[[list[int]], Linear]


def add(
    program: Program, instance: Instance, pools: Pools, gang: GangVariables, topology: Topology
) -> None:
    node_level = instance.cluster.node_level
    for position, role in enumerate(gang.demand.gpu_roles):
        spec = gang.gang.roles[role.role]
        if spec.slice_size is None or spec.slice_level is None:
            continue
        if spec.slice_level == node_level and not role.groups:
            _short_pieces(program, gang, position, role.cut(spec.slice_size))
        else:
            placed = _of(gang.gpu_pods, position)
            _domains(program, instance, pools, gang, topology, role, spec, placed)
    if gang.rides:
        return
    for position, role in enumerate(gang.demand.zero_roles):
        spec = gang.gang.roles[role.role]
        if spec.slice_size is not None and spec.slice_level is not None:
            placed = _of(gang.zero_pods, position)
            _domains(program, instance, pools, gang, topology, role, spec, placed)


def _of(pods: Callable[[int, list[int]], Linear], position: int) -> Placed:
    return lambda regions: pods(position, regions)


def _short_pieces(program: Program, gang: GangVariables, position: int, cut: Cut) -> None:
    def over(pods: int) -> Linear:
        """Pieces with so many pods beside whole slices."""
        return Linear().add_all(
            piece.variable
            for piece in gang.pieces
            if piece.pods[position] >= pods and (piece.pods[position] - pods) % cut.size == 0
        )

    head, tail, both = cut.head, cut.tail, cut.head + cut.tail
    if len(cut.shorts) < 2:  # at most one is short
        for short in cut.shorts:
            program.equal(over(short).add(gang.admit, -1))
    elif both == cut.size and head == tail:
        apart = program.boolean()
        program.equal(over(head).add(apart, -2))
        program.at_most(Linear().add(apart).add(gang.admit, -1))
    elif both == cut.size:
        program.equal(over(head).add_linear(over(tail), -1))
        program.at_most(over(head).add(gang.admit, -1))
    elif head == tail:
        program.equal(over(head).add_linear(over(both), 2).add(gang.admit, -2))
    else:
        for short in cut.shorts:
            program.equal(over(short).add_linear(over(both)).add(gang.admit, -1))


def _domains(
    program: Program,
    instance: Instance,
    pools: Pools,
    gang: GangVariables,
    topology: Topology,
    role: RoleDemand,
    spec: Role,
    placed: Placed,
) -> None:
    level = spec.slice_level
    assert level is not None
    assert spec.slice_size is not None
    by_domain = topology.regions_by_domain(level)
    if role.groups:
        _told_apart(program, instance, pools, gang, role, level, by_domain, placed)
        return
    cut = role.cut(spec.slice_size)
    ends = [Linear() for _ in cut.shorts]
    for regions in by_domain.values():
        here = placed(regions)
        here.add(program.integer(0, cut.whole), -spec.slice_size)
        for short, total in zip(cut.shorts, ends, strict=True):
            end = program.boolean()
            here.add(end, -short)
            total.add(end)
        program.equal(here)
    for total in ends:
        program.equal(total.add(gang.admit, -1))


def _told_apart(
    program: Program,
    instance: Instance,
    pools: Pools,
    gang: GangVariables,
    role: RoleDemand,
    level: int,
    by_domain: dict[int, list[int]],
    placed: Placed,
) -> None:
    rows = {domain: placed(regions) for domain, regions in by_domain.items()}
    of = instance.cluster.domain_of[level]
    for indices, fixed in role.groups:
        somewhere = Linear()
        for domain, regions in by_domain.items():
            actual = domain
            if level == instance.cluster.node_level:
                actual = of[pools.regions[regions[0]].nodes[0]]
            if fixed is not None and actual != fixed:
                continue
            chosen = program.boolean()
            rows[domain].add(chosen, -len(indices))
            somewhere.add(chosen)
        program.equal(somewhere.add(gang.admit, -1))
    for row in rows.values():
        program.equal(row)
