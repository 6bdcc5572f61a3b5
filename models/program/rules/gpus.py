"""GPUs: no server gives more than it has (contract 2.1, 2.9).

With f the GPUs of a server that are free without those of pods that stay: GPUs of its pieces <= f; and, of
what may be free at most, for every size g of a piece
    sum over pieces of floor(GPUs / g) + sum over sets that stay of floor(GPUs / g) <= floor(most / g).
A gang has at most one piece on a server. Where it matters which GPUs a set has: for every type t of sets,
sets of type t == pieces of type t, and each GPU is in at most one set or in one that stays. With cases, a set
lies in the free GPUs of the case that holds, if that case gives indices, and sets of unknown GPUs fit into
what is free there.
"""

from __future__ import annotations

from models.hardware import bits
from models.program.linear_program import Linear, Program
from models.program.packing import SetType
from models.program.servers import Supply
from models.program.variables import Model, Piece


def add(model: Model) -> None:
    program = model.program
    for n, supply in model.variables.supplies.items():
        pieces = model.once(pieces_by_node).get(n, [])
        if (free := left(model, n)).terms:
            program.at_least(free)
        for size in {piece.kind.gpus for piece in pieces} - {1}:
            program.at_least(slots_left(model, n, size), 0)
        if supply.sets or supply.cases:
            _disjoint_sets(program, supply, pieces)
    for gang in model.variables.gangs:
        for own in gang.by_node.values():
            here = Linear().add_all(piece.variable for piece in own)
            program.at_most(here.add(gang.admit, -1))


def pieces_by_node(model: Model) -> dict[int, list[Piece]]:
    """All pieces on each server."""
    found: dict[int, list[Piece]] = {}
    for piece in model.variables.pieces:
        found.setdefault(piece.n, []).append(piece)
    return found


def left(model: Model, n: int) -> Linear:
    """GPUs of a server that nobody has."""
    total = Linear().add_linear(model.variables.supplies[n].free)
    for piece in model.once(pieces_by_node).get(n, ()):
        total.add(piece.variable, -piece.kind.gpus)
    return total


def slots_left(model: Model, n: int, size: int) -> Linear:
    """The most sets of so many GPUs that there is room for beside all others; a bound."""
    supply = model.variables.supplies[n]
    total = Linear(constant=supply.most // size)
    for piece in model.once(pieces_by_node).get(n, ()):
        total.add(piece.variable, -(piece.kind.gpus // size))
    for _, gpus, stays in supply.held:
        total.add_linear(stays, -(gpus // size))
    return total


def _disjoint_sets(program: Program, supply: Supply, pieces: list[Piece]) -> None:
    by_gpu: dict[int, Linear] = {}
    given = [(mask, Linear({variable: 1})) for mask, _, variable in supply.sets]
    for mask, chosen in given + [(mask, stays) for mask, _, stays in supply.held]:
        for gpu in bits(mask):
            by_gpu.setdefault(gpu, Linear()).add_linear(chosen)
    for gpu, expression in by_gpu.items():
        indexed = (v for case, v in supply.cases if not case.hidden and case.mask >> gpu & 1)
        program.at_most(expression.add_all(indexed, -1), 0 if supply.cases else 1)
    for position, (case, holds) in enumerate(supply.cases):
        if case.hidden:
            own = ((kind.gpus, v) for at, kind, v in supply.hidden if at == position)
            program.at_most(Linear({v: gpus for gpus, v in own}).add(holds, -case.free))
    carved: dict[SetType, Linear] = {}
    for _, kind, variable in (*supply.sets, *supply.hidden):
        carved.setdefault(kind, Linear()).add(variable)
    for piece in pieces:
        carved[piece.kind].add(piece.variable, -1)
    for expression in carved.values():
        program.equal(expression)
