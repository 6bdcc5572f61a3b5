"""Slices (contract 2.4): pods with equal floor(index / size) share one domain.

Pods of a role are interchangeable, so for a waiting gang with count = h + q x size + t only numbers matter
(h, t: a short first and last slice, 0 if there is none): for every domain D of the slice's level,
pods in D == size x m[D] + h x a[D] + t x b[D], sum over D of a[D] == admit, of b[D] == admit.
For an incomplete gang every slice j with missing pods has variables of its own:
pods in D == sum over j of missing[j] x d[j, D], sum over D of d[j, D] == admit, d fixed where pods stand.
An outer layer has rows of the same form; in each of its domains the short inner slices that end in it are as
many as the outer slice that holds them.
At the node level the pieces of GPU roles carry whole slices; only those with short ones are counted. With
n(r) the pieces that have r pods besides whole slices:
    one short slice of r pods:  n(r) == admit
    two, h + t < or > size:     n(h) + n(h + t) == n(t) + n(h + t) == admit; h = t: n(h) + 2 n(2h) == 2 admit
    two, h + t = size:          n(h) == n(t) <= admit (together they look whole); h = t: n(h) in {0, 2 admit}
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from models.program.linear_program import Linear, Program
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, Model, Piece, SliceVariables
from models.rules.demands import RoleDemand, SliceCut

Placed = Callable[[list[int]], Linear]

Ends = dict[str, list[tuple[set[int], Linear]]]
"""The short slices, head and tail: on which nodes each may be, and when it is there."""


def add(model: Model, gang: GangVariables, topology: Topology) -> None:
    node_level = model.instance.cluster.node_level
    for position, role in enumerate(gang.roles.values()):
        placed = partial(gang.pods, role)
        layers = gang.gang.roles[role.role].slice_layers
        if role.layers:
            _separate_slices(model, gang, topology, role, placed)
        elif layers:
            inner: Ends | None = None
            for size, level in layers:
                if level == node_level and role.gpus:
                    inner = _short_pieces(model.program, gang, position, role.cut(size))
                else:
                    by_domain = topology.nodes_by_domain(level)
                    inner = _counted(model.program, gang, role.cut(size), by_domain, placed, inner)


def _short_pieces(program: Program, gang: GangVariables, position: int, cut: SliceCut) -> Ends:
    def over(pods: int) -> Linear:
        """Pieces with so many pods besides whole slices."""
        return Linear().add_all(piece.variable for piece in carrying(pods))

    def carrying(pods: int) -> list[Piece]:
        return [
            piece
            for piece in gang.pieces
            if piece.pods[position] >= pods and (piece.pods[position] - pods) % cut.size == 0
        ]

    head, tail, both = cut.head, cut.tail, cut.head + cut.tail
    if len(cut.shorts) < 2:  # at most one is short
        for short in cut.shorts:
            program.equal(over(short).add(gang.admit, -1))
    elif both == cut.size and head == tail:
        slices = program.boolean()
        program.equal(over(head).add(slices, -2))
        program.at_most(Linear().add(slices).add(gang.admit, -1))
    elif both == cut.size:
        program.equal(over(head).add_linear(over(tail), -1))
        program.at_most(over(head).add(gang.admit, -1))
    elif head == tail:
        program.equal(over(head).add_linear(over(both), 2).add(gang.admit, -2))
    else:
        for short in cut.shorts:
            program.equal(over(short).add_linear(over(both)).add(gang.admit, -1))
    return {
        which: [({p.n}, Linear().add(p.variable)) for p in carrying(short)]
        for which, short in (("head", head), ("tail", tail))
        if short
    }


def _counted(
    program: Program,
    gang: GangVariables,
    cut: SliceCut,
    by_domain: dict[int, list[int]],
    placed: Placed,
    inner: Ends | None,
) -> Ends:
    """Rows of one layer of a waiting gang. ``inner``: the short slices of the layer inside it."""
    shorts = {which: n for which, n in (("head", cut.head), ("tail", cut.tail)) if n}
    ends: Ends = {which: [] for which in shorts}
    for nodes in by_domain.values():
        here = placed(nodes)
        here.add(program.integer(0, cut.whole), -cut.size)
        own = {which: program.boolean() for which in shorts}
        for which, pods in shorts.items():
            here.add(own[which], -pods)
            ends[which].append((set(nodes), Linear().add(own[which])))
        program.equal(here)
        for which, parts in (inner or {}).items():
            inside = Linear.total(part for where, part in parts if where <= set(nodes))
            # a first slice that is the last one too has both ends
            program.equal(inside.add(own[which if which in own else "head"], -1))
    for parts in ends.values():
        program.equal(Linear.total(part for _, part in parts).add(gang.admit, -1))
    return ends


def _separate_slices(
    model: Model, gang: GangVariables, topology: Topology, role: RoleDemand, placed: Placed
) -> None:
    program, layers = model.program, gang.gang.roles[role.role].slice_layers
    inner: SliceVariables = []
    for groups, (_, level) in zip(role.layers, layers, strict=True):
        by_domain = topology.nodes_by_domain(level)
        rows = {domain: placed(nodes) for domain, nodes in by_domain.items()}
        chosen: SliceVariables = []
        for indices, fixed in groups:
            options = []
            for domain, nodes in by_domain.items():
                if fixed is not None and domain != fixed:
                    continue
                here = program.boolean()
                rows[domain].add(here, -len(indices))
                options.append((set(nodes), here))
            program.equal(Linear().add_all(v for _, v in options).add(gang.admit, -1))
            chosen.append((indices, options))
        for row in rows.values():
            program.equal(row)
        _inside(program, inner, chosen)
        gang.slices.setdefault(role.role, []).append(chosen)
        inner = chosen


def _inside(program: Program, inner: SliceVariables, outer: SliceVariables) -> None:
    """Every inner slice is in the domain of the outer slice around it."""
    for indices, options in outer:
        around = set(indices)
        for members, places in inner:
            if not around.issuperset(members):
                continue
            for nodes, variable in options:
                inside = Linear().add_all(v for where, v in places if where <= nodes)
                program.equal(inside.add(variable, -1))
