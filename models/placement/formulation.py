"""Instance -> Formulation: demands, regions, variables, rules and tiers, put together.

Promises: the program's optimum, tier by tier, is the best plan (exact) or no worse than it (bound);
``exact`` says which. Called by ``planner.solving``; knows no solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.evaluating import Evaluation, Tier, ValueCache, known_masks
from models.instance import Instance
from models.occupancy import Room, rooms
from models.placement.decoding import decode
from models.placement.demands import Demand, demands_of
from models.placement.program import Linear, Program
from models.placement.regions import Pools, local, pools_of
from models.placement.rules import (
    admission,
    bandwidth,
    local_share,
    models,
    packing,
    resources,
    slices,
)
from models.placement.rules.topology import Topology
from models.placement.tiers import Tiers
from models.placement.variables import Variables, create
from models.solution import GangDecision, PodPlacement, Reason

SPLIT_NODES = 16
"""Up to so many nodes every node is a region of its own: exact on any hardware, and still small."""


@dataclass
class Formulation:
    """The program of one instance. ``tiers``: expressions on demand; ``exact``: no relaxation in it."""

    instance: Instance
    program: Program
    demands: tuple[Demand, ...]
    rooms: tuple[Room, ...]
    pools: Pools
    variables: Variables
    tiers: Tiers
    base: tuple[GangDecision, ...]
    exact: bool

    def expression(self, tier: Tier) -> Linear:
        return self.tiers.expression(tier)

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """The plan an assignment stands for; waiting gangs carry no reason yet."""
        return decode(self.instance, self.pools, self.rooms, self.variables, values, self.base)


def base_decisions(instance: Instance) -> tuple[GangDecision, ...]:
    """The plan that changes nothing: running gangs kept as they are, the others wait.

    Held gangs have their reason already: no plan does more for them.
    """
    decisions = []
    for gang in instance.gangs:
        held = None if gang.hold is None else Reason(gang.hold.code, gang.hold.message)
        if not gang.running:
            decisions.append(GangDecision("wait", (), held))
            continue
        pods = tuple(
            PodPlacement(
                pod.role, pod.index, pod.node, pod.gpus if gang.roles[pod.role].gpus else 0
            )
            for pod in gang.standing
            if pod.node is not None
        )
        reason = None
        if gang.missing():
            reason = held or Reason("Incomplete", f"{len(gang.missing())} of its pods are missing")
        decisions.append(GangDecision("keep", pods, reason))
    return tuple(decisions)


def formulate(
    instance: Instance,
    *,
    split: bool | None = None,
    only: frozenset[int] | None = None,
    base: tuple[GangDecision, ...] | None = None,
    within: frozenset[int] | None = None,
    cache: ValueCache | None = None,
) -> Formulation:
    """The whole formulation. ``split``: every node on its own; by default where there are few.

    ``only``: indices of the gangs to place or complete; the others stay as ``base`` has them, which is
    by default the plan that changes nothing. ``within``: nodes those gangs may use.
    """
    base = base or base_decisions(instance)
    room = rooms(instance, base)
    demands = tuple(
        demand if within is None else demand.within(within)
        for demand in demands_of(instance, known_masks(instance, base))
        if only is None or demand.gang in only
    )
    if split is None:
        split = len(instance.cluster.nodes) <= SPLIT_NODES
    split = split or slices_by_node(instance, demands)
    pools = pools_of(instance, demands, room, split=split)
    program = Program()
    variables = create(instance, program, demands, room, pools)
    packing.add(program, variables, pools)
    resources.add(program, variables, pools, room)
    admission.add(program, instance, variables)
    topologies, claims = [], []
    for gang in variables.gangs:
        topology = Topology(program, instance, pools, room, gang)
        topologies.append(topology)
        slices.add(program, instance, pools, gang, topology)
        models.add(program, pools, gang)
        claims.append(bandwidth.Claims(program, instance, pools, gang, topology))
    local_share.add(program, instance, pools, variables)
    tiers = Tiers(
        program,
        instance,
        variables,
        pools,
        room,
        topologies,
        claims,
        Evaluation(instance, base, cache),
    )
    exact = pools.exact and all(claim.exact for claim in claims)
    return Formulation(instance, program, demands, room, pools, variables, tiers, base, exact)


def pairs(instance: Instance) -> int:
    """(gang, region) pairs the full formulation would hold: what its size grows with."""
    base = base_decisions(instance)
    demands = demands_of(instance, known_masks(instance, base))
    split = len(instance.cluster.nodes) <= SPLIT_NODES
    pools = pools_of(instance, demands, rooms(instance, base), split=split)
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
