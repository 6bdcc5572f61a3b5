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

from collections.abc import Iterable
from dataclasses import dataclass, field

from models.hardware import bits
from models.instance.occupancy import Room, beside_parts
from models.program.linear_program import Linear, Program
from models.program.packing import SetType
from models.program.servers import Supply
from models.program.variables import Model, Piece
from models.values.leftover import gpu_shares, usable_gpus


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
        for own in () if gang.group else gang.by_node.values():
            here = Linear().add_all(piece.variable for piece in own)
            program.at_most(here.add(gang.admit, -1))


def pieces_by_node(model: Model) -> dict[int, list[Piece]]:
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


@dataclass(frozen=True)
class FreeServers:
    """What is left free on every server; all other nodes stay as they are."""

    model: Model
    _usable: dict[int, Linear] = field(default_factory=dict)
    _whole: dict[tuple[int, bool], Linear] = field(default_factory=dict)

    def left(self, n: int) -> Linear:
        if n in self.model.servers:
            return left(self.model, n)
        return Linear(constant=self.outside(n).free_gpus)

    def outside(self, n: int) -> Room:
        """The room of a node on which nothing is decided."""
        return beside_parts(self.model.instance, n, self.model.state.rooms[n])

    def usable(self, n: int) -> Linear:
        """GPUs left free that have their share of the other resources, at least."""
        if n not in self._usable:
            self._usable[n] = self._find_usable(n)
        return self._usable[n]

    def _find_usable(self, n: int) -> Linear:
        model = self.model
        if n not in model.servers:
            room = self.outside(n)
            return Linear(constant=usable_gpus(model.instance, room.free_gpus, dict(room.left)))
        shares = gpu_shares(model.instance)
        if not any((n, name) in model.loads for name in shares):
            return self.left(n)
        # a variable u: u <= free GPUs, and where u > 0: share x u + load <= what is left
        program, room = model.program, model.servers[n].room
        usable, some = program.integer(0, room.free_gpus), program.boolean()
        program.at_most(Linear().add(usable).add(some, -room.free_gpus))
        program.at_least(self.left(n).add(usable, -1))
        for name, share in shares.items():
            load, amount = model.loads.get((n, name)), room.left_of(name)
            if load is not None and amount is not None:
                # pods that stay may overfill the node
                beyond = max(0, program.bound_above(load) - amount)
                row = Linear().add_linear(load).add(usable, share).add(some, beyond)
                program.at_most(row, amount + beyond)
        return Linear().add(usable)

    def requests(self, n: int, size: int) -> Linear:
        """Requests of so many GPUs that fit on the node."""
        usable, program = self.usable(n), self.model.program
        if not usable.terms or size == 1:
            return Linear({}, usable.constant // size) if size > 1 else usable
        most = program.bound_above(usable) // size
        if not most:
            return Linear()
        fits = program.integer(0, most)
        program.at_least(Linear().add_linear(usable).add(fits, -size))
        program.at_least(slots_left(self.model, n, size).add(fits, -1))
        return Linear().add(fits)

    def whole(self, nodes: Iterable[int], *, usable: bool = False) -> Linear:
        """How many of these nodes are left with all their GPUs free. ``usable``: and of use."""
        total = Linear()
        for n in nodes:
            if (n, usable) not in self._whole:
                self._whole[n, usable] = self._find_whole(n, usable=usable)
            total.add_linear(self._whole[n, usable])
        return total

    def _find_whole(self, n: int, *, usable: bool) -> Linear:
        free, program = self.usable(n) if usable else self.left(n), self.model.program
        gpus = self.model.instance.cluster.nodes[n].gpus
        if not free.terms:
            return Linear(constant=int(free.constant == gpus))
        if program.bound_above(free) < gpus:
            return Linear()
        idle = program.boolean()
        program.at_least(Linear().add_linear(free).add(idle, -gpus))
        return Linear().add(idle)
