"""Instance -> Formulation: demands, regions, variables, rules and tiers, put together.

Promises: the program's optimum, tier by tier, is the best plan (exact) or no worse than it (bound);
``exact`` says which. Called by ``planner.search``; knows no solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.instance import Instance
from models.occupancy import Room
from models.program.base_state import Asked, Ground, ground_of, yielding
from models.program.decoder import decode
from models.program.demands import Demand
from models.program.linear_program import Linear, Program
from models.program.regions import Pools, local, pools_of
from models.program.rules.bandwidth import standing_claims
from models.program.rules.rows import Model, add_rows
from models.program.tiers import TierExpressions
from models.program.variables import Variables, create
from models.solution import GangDecision
from models.tier_values import Evaluation, ValueCache
from models.tiers import Tier

SPLIT_NODES = 16
"""Up to so many nodes every node is a region of its own: exact on any hardware, and still small."""


@dataclass
class Formulation:
    """The program of one instance. ``tiers``: expressions on demand; ``exact``: no relaxation in it.

    ``complete``: every plan is among its assignments, so that its bounds hold. ``settles``: those of
    who runs hold in any case.
    """

    instance: Instance
    program: Program
    asks: Asked
    rooms: tuple[Room, ...]
    pools: Pools
    variables: Variables
    tiers: TierExpressions
    base: tuple[GangDecision, ...]
    exact: bool
    complete: bool
    settles: bool
    _expressions: dict[Tier, Linear] = field(default_factory=dict)

    def expression(self, tier: Tier) -> Linear:
        if tier not in self._expressions:
            self._expressions[tier] = self.tiers.expression(tier)
        return self._expressions[tier]

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """The plan an assignment stands for; waiting gangs carry no reason yet."""
        return decode(self.instance, self.asks, self.pools, self.variables, values, self.base)


def formulate(
    instance: Instance,
    *,
    split: bool | None = None,
    only: frozenset[int] | None = None,
    base: tuple[GangDecision, ...] | None = None,
    within: frozenset[int] | None = None,
    still: frozenset[int] = frozenset(),
    cache: ValueCache | None = None,
) -> Formulation:
    """The whole formulation. ``split``: every node on its own; by default where there are few.

    The others as in ``ground_of``: about which gangs it decides, and what is given.
    """
    ground = ground_of(instance, base=base, only=only, within=within, still=still)
    asks, room = ground.asks, ground.rooms
    if split is None:
        split = len(instance.cluster.nodes) <= SPLIT_NODES
    split = split or slices_by_node(instance, asks.demands)
    pools = _pools(instance, ground, split=split)
    program = Program()
    variables = create(instance, program, asks, room, pools)
    model = Model(program, instance, asks, room, pools, variables, moved=ground.moved)
    add_rows(model)
    case_claims = standing_claims(program, instance, pools, room, variables.stays, model.cases)
    tiers = TierExpressions(
        program,
        instance,
        variables,
        pools,
        room,
        model.topologies,
        model.claims,
        case_claims,
        Evaluation(instance, ground.base, cache),
    )
    exact = pools.exact and all(claim.exact for claim in (*model.claims, *case_claims.values()))
    complete = all(choice.complete for choice in asks.choices)
    settles = all(choice.settles for choice in asks.choices)
    return Formulation(
        instance,
        program,
        asks,
        room,
        pools,
        variables,
        tiers,
        ground.base,
        exact,
        complete,
        settles,
    )


def _pools(instance: Instance, ground: Ground, *, split: bool) -> Pools:
    # a launcher may be all that comes to a node that is given up: told where nodes are told apart
    least = yielding(instance, ground.asks.choices) if split else None
    return pools_of(
        instance,
        ground.asks.demands,
        ground.rooms,
        ground.contents,
        split=split,
        held=ground.held,
        yielding=least,
    )


def pairs(instance: Instance) -> int:
    """(option, region) pairs the full formulation would hold: what its size grows with."""
    ground = ground_of(instance)
    demands = ground.asks.demands
    split = len(instance.cluster.nodes) <= SPLIT_NODES
    pools = _pools(instance, ground, split=split)
    single = sum(
        1
        for d, rides in zip(demands, pools.riding, strict=True)
        if not local(instance, d, rides=rides)
    )
    return single * len(pools.regions)


def slices_by_node(instance: Instance, demands: Sequence[Demand]) -> bool:
    """Whether an incomplete gang has slices that must share a node: then nodes are told apart."""
    node_level = instance.cluster.node_level
    return any(
        role.groups and instance.gangs[demand.gang].roles[role.role].slice_level == node_level
        for demand in demands
        for role in demand.roles
    )
