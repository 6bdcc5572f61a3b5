"""What a program leaves free on the servers, and what of that is of use to a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from models.instance.occupancy import Room, beside_parts
from models.program.linear_program import Linear
from models.program.rules.gpus import left, slots_left
from models.program.servers import Server
from models.program.variables import Model
from models.values.leftover import gpu_shares, usable_gpus


@dataclass(frozen=True)
class FreeServers:
    """What is left free on every server; all other nodes stay as they are."""

    model: Model
    _usable: dict[int, Linear] = field(default_factory=dict)
    _whole: dict[tuple[int, bool], Linear] = field(default_factory=dict)

    def left(self, n: int) -> Linear:
        """GPUs left free on a node."""
        if n in self.model.servers:
            return left(self.model, n)
        return Linear(constant=self.outside(n).free_gpus)

    def outside(self, n: int) -> Room:
        """The room of a node on which nothing is decided."""
        return beside_parts(self.model.instance, n, self.model.state.rooms[n])

    def usable(self, n: int) -> Linear:
        """GPUs left free that have their share of the other resources; a bound below on tight servers."""
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
        return self._limited(model.servers[n], shares)

    def _limited(self, server: Server, shares: dict[str, int]) -> Linear:
        """A variable u: u <= free GPUs, and where u > 0: share x u + load <= what is left."""
        program, room = self.model.program, server.room
        usable, some = program.integer(0, room.free_gpus), program.boolean()
        program.at_most(Linear().add(usable).add(some, -room.free_gpus))
        program.at_least(self.left(server.n).add(usable, -1))
        for name, share in shares.items():
            load, amount = self.model.loads.get((server.n, name)), room.left_of(name)
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
