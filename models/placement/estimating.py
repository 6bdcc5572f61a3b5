"""The tiers where pods are pooled: exactly who runs and what that costs, and bounds on the rest.

Promises: for every plan its assignment's value is no worse than the plan's. Called by ``pooled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from models.evaluating import Evaluation, Tier
from models.instance import Instance
from models.occupancy import Room
from models.placement.admissions import PooledClass
from models.placement.asking import Asked
from models.placement.leaving import Rests, defragmented, unusable
from models.placement.matching import matched, matched_alone
from models.placement.optimism import Optimism
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.returning import Returning, elsewhere
from models.placement.rules.topology import Topology
from models.placement.shapes import Shaper
from models.placement.variables import Variables
from models.placement.wholeness import wholeness


@dataclass(frozen=True)
class Wholes:
    """What tells how narrow a domain gangs are whole in: shapes, and the rows of gangs by themselves."""

    shaper: Shaper
    topologies: Sequence[Topology]


@dataclass(frozen=True)
class Estimate:
    """``base``: the plan without the gangs decided about. ``wholes``: None where placement is not told.

    ``stable``: whether gangs that an earlier plan placed are told apart.
    """

    program: Program
    instance: Instance
    asks: Asked
    variables: Variables
    pools: Pools
    rooms: Sequence[Room]
    pooled: Sequence[PooledClass]
    base: Evaluation
    wholes: Wholes | None
    stable: bool

    def expression(self, tier: Tier) -> Linear:
        """Tiers of who runs, what it costs and leaves exactly; the others as no plan can be better than."""
        if tier.family in ("defragment", "stranded"):
            left = Rests(self.pools, self.rooms, self.variables.flows)
            build = defragmented if tier.family == "defragment" else unusable
            return build(self.program, self.instance, left)
        if tier.family == "stability":
            return self._stability(tier)
        apart: dict[int, Linear] = {}
        if tier.family in ("preference", "bandwidth", "span") and self.wholes is not None:
            apart = self._placement(self.wholes, tier.family)
        total = Linear(constant=self.base.tier(tier))
        for choice, admits in zip(self.asks.choices, self.variables.admits, strict=True):
            gang = self.instance.gangs[choice.gang]
            if tier.priority in (None, gang.priority):
                for option, admit in zip(choice.options, admits, strict=True):
                    if admit not in apart:
                        total.add(admit, self._optimism.of(choice.gang, option, tier))
        for own in {id(found): found for found in apart.values()}.values():
            total.add_linear(own)
        return total

    def _stability(self, tier: Tier) -> Linear:
        """GPUs planned before that are elsewhere; all may be back where it is not told what is where."""
        total = Linear(constant=self.base.tier(tier))
        back = Returning(self.program, self.pools, self.instance.cluster.node_level)
        if not self.stable:
            return total
        for choice, admits in zip(self.asks.choices, self.variables.admits, strict=True):
            gang = self.instance.gangs[choice.gang]
            for option, admit in zip(choice.options, admits, strict=True):
                total.add(admit, elsewhere(gang, option.demand))
        for own in self.pooled:
            gang = self.instance.gangs[own.demands[0].gang]
            if gang.planned:
                back.add(own, gang)
        for one in self.variables.gangs:
            total.add_linear(matched(self.program, self.pools, one), -1)
        for group in self.variables.groups:
            total.add_linear(matched_alone(self.pools, group), -1)
        return total.add_linear(back.close(), -1)

    def _placement(self, wholes: Wholes, family: str) -> dict[int, Linear]:
        """What options whose shape is told apart add to a tier, under their admit variables."""
        found: dict[int, Linear] = {}
        for own in self.pooled:
            if not own.demands[0].stays:
                worth = Linear()
                for shape, places in own.shapes:
                    worth.add_all(places.values(), int(getattr(shape, family)))
                found.update(dict.fromkeys(own.admits, worth))
        for gang, topology in zip(self.variables.gangs, wholes.topologies, strict=True):
            found[gang.admit] = wholeness(self.instance, wholes.shaper, gang, topology, family)
        return found

    @cached_property
    def _optimism(self) -> Optimism:
        return Optimism(self.instance)
