"""GPUs: the sets carved out of the servers of a region are those that the gangs use (contract 2.1, 2.9).

For every region and packing state s: start[s] + sum of arcs into s == sum of arcs out of s + rest[s]. For
every set type t: sum of arcs of type t == pieces of type t + sets of pods that stay. For every size s of
slots: slots of s that the arcs leave + parts of splits == splits of s + pieces of s GPUs + sets that stay +
rest[s]. For every gang: sum of its pieces <= servers of the region. A region that is one mesh server has its
sets as booleans: each GPU is in at most one set or in one that stays. With cases, a set lies in the free GPUs
of the case that holds, if that case gives indices, and sets of unknown GPUs fit into what is free. An integer
flow splits into one path a server.
"""

from __future__ import annotations

from models.hardware import bits
from models.program.linear_program import Linear, Program
from models.program.packing import SetType
from models.program.packing_flows import RegionFlow, Slots
from models.program.variables import Model


def add(model: Model) -> None:
    program, variables, region_set = model.program, model.variables, model.region_set
    placed: list[Placed] = [{} for _ in region_set.regions]
    owned = [gang.pieces for gang in variables.gangs]
    owned += [group.pieces for group in variables.groups]
    owned += [partition.pieces for partition in variables.partitions]
    for pieces in owned:
        for piece in pieces:
            _terms(placed[piece.region], piece.kind)[piece.variable] = 1
    for region, flow in zip(region_set.regions, variables.flows, strict=True):
        if flow.meshed:
            _disjoint_sets(program, flow, placed[region.number])
            continue
        ends = flow.rests if flow.slots is None else flow.slots.ends
        _flow(program, flow, ends, placed[region.number])
        if flow.slots is not None:
            _slots(program, flow, flow.slots, placed[region.number])
    for gang in variables.gangs:
        for number, own in gang.by_region.items():
            if len(own) > 1:
                total = Linear({piece.variable: 1 for piece in own})
                program.at_most(total, len(region_set.regions[number].nodes))


Placed = dict[SetType, dict[int, int]]
"""In one region, by type: the variables of pieces, each once."""


def _terms(rows: Placed, kind: SetType) -> dict[int, int]:
    terms = rows.get(kind)
    if terms is None:
        terms = rows[kind] = {}
    return terms


def _flow(program: Program, flow: RegionFlow, ends: dict[int, int], placed: Placed) -> None:
    balance = {state: {end: -1} for state, end in ends.items()}
    carved: Placed = {}
    for arc, variable in flow.arcs:
        balance[arc.source][variable] = -1
        balance[arc.target][variable] = 1
        _terms(carved, arc.kind)[variable] = 1
    nothing = Linear()
    for state, terms in balance.items():
        program.equal(Linear(terms).add_linear(flow.starts.get(state, nothing)))
    for kind, terms in carved.items():
        expression = Linear(terms)
        for _, gpus, stays in flow.held:
            if gpus == kind.gpus:
                expression.add_linear(stays, -1)
        program.equal(expression.add_all(placed.get(kind, ()), -1))


def _slots(program: Program, flow: RegionFlow, slots: Slots, placed: Placed) -> None:
    rows = {size: Linear().add(rest, -1) for size, rest in flow.rests.items()}
    for source, part, variable in slots.splits:
        rows[source].add(variable, -1)
        rows[part].add(variable, source // part)
    for size, kind in slots.kinds.items():
        rows[size].add_all(placed.get(kind, ()), -1)
    for _, gpus, stays in flow.held:
        if gpus in slots.kinds:
            rows[gpus].add_linear(stays, -1)
    for size, row in rows.items():
        program.equal(row.add_linear(slots.starts[size]))


def _disjoint_sets(program: Program, flow: RegionFlow, placed: Placed) -> None:
    carved: dict[SetType, Linear] = {}
    by_gpu: dict[int, Linear] = {}
    left = Linear()
    for mask, kind, variable in flow.sets:
        carved.setdefault(kind, Linear()).add(variable)
        left.add(variable, kind.gpus)
        for gpu in bits(mask):
            by_gpu.setdefault(gpu, Linear()).add(variable)
    for mask, gpus, stays in flow.held:
        left.add_linear(stays, gpus)
        for gpu in bits(mask):
            by_gpu.setdefault(gpu, Linear()).add_linear(stays)
    for gpu, expression in by_gpu.items():
        indexed = (v for case, v in flow.cases if not case.hidden and case.mask >> gpu & 1)
        program.at_most(expression.add_all(indexed, -1), 0 if flow.cases else 1)
    _unknown_sets(program, flow, carved, left)
    for kind, expression in carved.items():
        program.equal(expression.add_all(placed.get(kind, ()), -1))
    program.equal(Linear().add_all(flow.rests.values()), 1)
    for state, rest in flow.rests.items():
        left.add(rest, state.bit_count())
    most = max(state.bit_count() for state in flow.rests)
    program.equal(left, 0 if flow.cases else most)


def _unknown_sets(
    program: Program, flow: RegionFlow, carved: dict[SetType, Linear], left: Linear
) -> None:
    rows = [Linear().add(variable, -case.free) for case, variable in flow.cases]
    for case, variable in flow.cases:
        left.add(variable, -case.free)
    for position, kind, variable in flow.hidden:
        carved.setdefault(kind, Linear()).add(variable)
        rows[position].add(variable, kind.gpus)
        left.add(variable, kind.gpus)
    for (case, _), row in zip(flow.cases, rows, strict=True):
        if case.hidden:
            program.at_most(row)
