"""What the flows of a program leave free on the servers of every region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from models.occupancy import Room
from models.program.linear_program import Linear
from models.program.packing_flows import RegionFlow
from models.program.regions import Region, RegionSet


@dataclass(frozen=True)
class FreeServers:
    """What the flows leave free on the servers of every region; all other nodes stay as they are."""

    region_set: RegionSet
    rooms: Sequence[Room]
    flows: Sequence[RegionFlow]

    @cached_property
    def region_of(self) -> dict[int, Region]:
        return {n: region for region in self.region_set.regions for n in region.nodes}

    def whole(self, members: Sequence[int], largest: int) -> Linear:
        """How many of these nodes, which fill whole regions, are left with so many free GPUs."""
        total = Linear()
        seen: set[int] = set()
        for n in members:
            region = self.region_of.get(n)
            if region is None:
                total.constant += int(self.rooms[n].free_gpus == largest)
            elif region.number not in seen:
                seen.add(region.number)
                for state, rest in self.flows[region.number].rests.items():
                    if region.packing.size(state) == largest:
                        total.add(rest)
        return total
