"""What a program leaves free on the servers of every region, and what of that is of use to a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.instance.occupancy import Room, beside_parts
from models.program.linear_program import Linear
from models.program.regions import Region
from models.program.variables import Model
from models.values.leftover import gpu_shares, usable_gpus


@dataclass(frozen=True)
class FreeServers:
    """What the flows leave free on the servers of every region; all other nodes stay as they are."""

    model: Model

    @cached_property
    def region_of(self) -> dict[int, Region]:
        return {n: region for region in self.model.region_set.regions for n in region.nodes}

    def rests(self, region: Region) -> list[tuple[int, int]]:
        """(free GPUs, variable that counts servers or slots with so many) of a region."""
        rests = self.model.variables.flows[region.number].rests
        return [(region.packing.size(state), rest) for state, rest in rests.items()]

    def left(self, members: Iterable[int]) -> Linear:
        """GPUs left free on these nodes, which fill whole regions."""
        total = Linear()
        regions: dict[int, Region] = {}
        for n in members:
            region = self.region_of.get(n)
            if region is None:
                total.constant += self.outside(n).free_gpus
            else:
                regions[region.number] = region
        for region in regions.values():
            for gpus, rest in self.rests(region):
                total.add(rest, gpus)
        return total

    def outside(self, n: int) -> Room:
        """The room of a node in no region, where nothing is decided."""
        return beside_parts(self.model.instance, n, self.model.rooms[n])

    def usable_outside(self, n: int) -> int:
        """Usable GPUs of a node in no region."""
        room = self.outside(n)
        return usable_gpus(self.model.instance, room.free_gpus, dict(room.left))

    @cached_property
    def limited(self) -> dict[int, list[tuple[int, int]]]:
        """By tight region on which free GPUs may lack their share: (usable GPUs, boolean), of which one is 1.

        With u the usable GPUs: u <= free GPUs, and where u > 0: share x u + load <= what is left.
        """
        return {
            region.number: self._limited(region)
            for region in self.model.region_set.regions
            if any((region.number, name) in self.model.loads for name in self._shares)
        }

    @cached_property
    def _shares(self) -> dict[str, int]:
        return gpu_shares(self.model.instance)

    def _limited(self, region: Region) -> list[tuple[int, int]]:
        program, room = self.model.program, self.model.rooms[region.nodes[0]]
        sizes = [(gpus, program.boolean()) for gpus in range(1, room.free_gpus + 1)]
        some, usable = Linear(), Linear()
        for gpus, chosen in sizes:
            some.add(chosen)
            usable.add(chosen, gpus)
        program.at_most(Linear().add_linear(some), 1)
        free = Linear().add_linear(usable)
        for gpus, rest in self.rests(region):
            free.add(rest, -gpus)
        program.at_most(free)
        for name, share in self._shares.items():
            load, left = self.model.loads.get((region.number, name)), room.left_of(name)
            if load is None or left is None:
                continue
            beyond = max(
                0, program.bound_above(load) - left
            )  # pods that stay may overfill the node
            row = Linear().add_linear(load).add_linear(usable, share).add_linear(some, beyond)
            program.at_most(row, left + beyond)
        return sizes

    def whole(self, members: Sequence[int], largest: int, *, usable: bool = False) -> Linear:
        """How many of these nodes, which fill whole regions, are left with so many free GPUs.

        ``usable``: with so many that are of use.
        """
        total = Linear()
        seen: set[int] = set()
        for n in members:
            region = self.region_of.get(n)
            if region is None:
                free = self.usable_outside(n) if usable else self.outside(n).free_gpus
                total.constant += int(free == largest)
            elif region.number not in seen:
                seen.add(region.number)
                limited = self.limited.get(region.number) if usable else None
                for gpus, rest in self.rests(region) if limited is None else limited:
                    if gpus == largest:
                        total.add(rest)
        return total
