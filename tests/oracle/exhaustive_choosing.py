"""Every choice of GPU sets for one spread of one gang on a tiny cluster, and the share it earns.

Promises: complete up to sets that price the same and leave the same room; rule 10 holds in each. Which pod
has which GPUs of a server is not tried: see ``exhaustive_groups.covered``.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

from exhaustive_ground import Ground
from exhaustive_groups import best_rates, has_groups
from exhaustive_options import Option
from exhaustive_prices import Hold, Prices, permille, subsets
from exhaustive_sameness import Sameness, State
from exhaustive_spreads import Spread

from models.instance.gang import Gang
from models.instance.solution import PodPlacement


class Choosing:
    """Chooses GPUs; what a blind node gives is a number, what another gives a mask."""

    def __init__(self, ground: Ground, sameness: Sameness, prices: Mapping[bool, Prices]) -> None:
        self.ground = ground
        self.sameness = sameness
        self.policy = ground.instance.policy
        self._prices = prices
        self._choices: dict[tuple[object, ...], list[int]] = {}
        self._shares: dict[tuple[object, ...], int | None] = {}

    def takings(
        self, g: int, option: Option, spread: Spread, state: State, *, last: bool
    ) -> Iterator[tuple[tuple[int, ...], int | None]]:
        """(GPUs taken a node, share of the whole gang if it counts), rule 10 holding where it binds.

        After the ``last`` gang it does not matter which GPUs are left, only how many.
        """
        gang = self.ground.instance.gangs[g]
        base = self.ground.standing[g]
        least = self._least(gang) if option.bound else Fraction(0)
        used = sorted({n for n, gpus in enumerate(spread.gpus) if gpus} | set(base))
        total = sum(mask.bit_count() + blind for mask, blind in base.values()) + sum(spread.gpus)
        priced = option.admitted and total >= 2 and (gang.pattern != "none" or least > 0)
        prices = self._prices[gang.nvlink_across_nodes]
        several = len({prices.units[n] for n in used}) > 1
        asked = [n for n in used if spread.gpus[n]]
        options = [
            self._sets(
                n,
                state[n][0],
                spread.gpus[n],
                base.get(n, (0, 0))[0],
                (priced and not prices.fabric(n), priced and several, not last),
            )
            for n in asked
        ]
        for chosen in product(*options):
            taken = [0] * len(self.ground.nodes)
            holds = dict(base)
            for n, gpus in zip(asked, chosen, strict=True):
                taken[n] = gpus
                mask, blind = base.get(n, (0, 0))
                holds[n] = (mask, blind + gpus) if self.ground.blind[n] else (mask | gpus, blind)
            share = None
            if priced and has_groups(gang):
                pods = self._pods(g, spread, dict(zip(asked, chosen, strict=True)))
                share = self._best_share(prices, gang, pods, least)
            elif priced:
                share = self._share(prices, holds, least)
            if share is not None or not priced:
                yield tuple(taken), share

    def _share(self, prices: Prices, holds: Mapping[int, Hold], least: Fraction) -> int | None:
        """share(gang), None where it is below the least that rule 10 asks for."""
        key = (prices.joins, least, tuple(sorted(holds.items())))
        if key not in self._shares:
            rate, ideal = prices.bandwidth(holds), prices.ideal(holds)
            assert rate is not None
            self._shares[key] = None if rate < least * ideal else permille(rate, ideal)
        return self._shares[key]

    def _pods(self, g: int, spread: Spread, chosen: Mapping[int, int]) -> tuple[PodPlacement, ...]:
        """The pods that stay, and the new ones with the lowest of the GPUs chosen on their node."""
        found, left = list(self.ground.stays[g]), dict(chosen)
        for role, index, n in spread.pods:
            count = self.ground.instance.gangs[g].roles[role].gpus
            own: int | None = None
            if not self.ground.blind[n] or not count:
                own = next(subsets(left.get(n, 0), count))
                left[n] = left.get(n, 0) & ~own
            found.append(PodPlacement(role, index, n, own))
        return tuple(sorted(found))

    def _best_share(
        self, prices: Prices, gang: Gang, pods: tuple[PodPlacement, ...], least: Fraction
    ) -> int | None:
        key = (gang.key, least, pods)
        if key not in self._shares:
            found = best_rates(prices, gang, pods)
            assert found is not None
            rate, ideal = found
            self._shares[key] = None if rate < least * ideal else permille(rate, ideal)
        return self._shares[key]

    def _least(self, gang: Gang) -> Fraction:
        own = gang.min_bandwidth_share
        return self.policy.min_bandwidth_share if own is None else own

    def _rates(self, n: int, hold: Hold) -> tuple[Fraction | None, Fraction]:
        """(inside, N) on one node, the same for every gang."""
        return self._prices[True].rates(n, hold)

    def _sets(
        self, n: int, free: int, count: int, own: int, matters: tuple[bool, bool, bool]
    ) -> list[int]:
        """GPU sets to try on a node: one of each (inside, N, room left up to symmetry) that matters."""
        if self.ground.blind[n]:
            return [count]
        key = (n, free, count, own, matters)
        if key not in self._choices:
            found: dict[tuple[object, ...], int] = {}
            for chosen in subsets(free, count):
                rates = self._rates(n, (own | chosen, 0))
                worth = (*rates, self.sameness.left(n, free & ~chosen))
                telling = tuple(v for v, counts in zip(worth, matters, strict=True) if counts)
                found.setdefault(telling, chosen)
            self._choices[key] = list(found.values())
        return self._choices[key]
