"""The full formulation of an instance: demands, regions, variables, rules and tiers.

Tier by tier, its optimum is the best plan if ``exact``, and otherwise a bound on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.instance.solution import GangDecision
from models.program.base_state import BaseState, PlacementRequests, build_base_state, victims
from models.program.decoder import decode
from models.program.interruption import Question, never
from models.program.linear_program import Linear, Program
from models.program.regions import RegionSet, build_regions, is_single_piece
from models.program.rows import add_rows
from models.program.rules.running import may_come_alone
from models.program.tier_expressions import TierExpressions
from models.program.variables import Model, Variables, create
from models.rules.demands import Demand
from models.rules.pod_rules import nodes_apart
from models.rules.registry import eligible_nodes
from models.tiers import Tier
from models.values.leftover import gpu_shares
from models.values.tier_values import Evaluation

SPLIT_NODES = 16
"""Up to so many nodes every node is a region of its own: exact on any hardware, and still small."""


@dataclass
class Formulation:
    """The program of one instance. ``tiers``: expressions on demand; ``exact``: without relaxations.

    ``complete``: every plan is one of its assignments, so that its bounds hold. ``covers_admission``: the
    bounds on which gangs run hold in any case.
    """

    instance: Instance
    program: Program
    requests: PlacementRequests
    rooms: tuple[Room, ...]
    region_set: RegionSet
    variables: Variables
    tiers: TierExpressions
    base: tuple[GangDecision, ...]
    exact: bool
    complete: bool
    covers_admission: bool
    _expressions: dict[Tier, Linear] = field(default_factory=dict)

    def expression(self, tier: Tier) -> Linear:
        if tier not in self._expressions:
            self._expressions[tier] = self.tiers.expression(tier)
        return self._expressions[tier]

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """The plan that an assignment stands for; waiting gangs have no reason yet."""
        return decode(
            self.instance, self.requests, self.region_set, self.variables, values, self.base
        )


def formulate(
    instance: Instance,
    *,
    split: bool | None = None,
    only: frozenset[int] | None = None,
    base: tuple[GangDecision, ...] | None = None,
    immovable: frozenset[int] = frozenset(),
    interrupted: Question = never,
) -> Formulation:
    """``split``: every node is a region; by default in small clusters.

    The others as in ``build_base_state``: the gangs to decide about, and what is given. Raises Interrupted
    if ``interrupted`` says so while it builds.
    """
    base_state = build_base_state(
        instance, base=base, only=only, immovable=immovable, interrupted=interrupted
    )
    requests, room = base_state.requests, base_state.rooms
    if split is None:
        split = len(instance.cluster.nodes) <= SPLIT_NODES
    split = split or slices_by_node(instance, requests.demands)
    region_set = _pools(instance, base_state, split=split, interrupted=interrupted)
    program = Program(interrupted)
    variables = create(instance, program, requests, room, region_set)
    model = Model(
        program,
        instance,
        requests,
        room,
        region_set,
        variables,
        moved=base_state.moved,
        evicted=base_state.evicted,
        base=base_state.base,
    )
    topologies = add_rows(model)
    tiers = TierExpressions(model, topologies, Evaluation(instance, base_state.base))
    exact = region_set.exact and all(found.exact for found in model.bandwidth.values())
    exact &= not any(group.gangs[0].by_rank for group in variables.groups)
    program.interrupted = never
    counted = not may_come_alone(instance, requests, region_set.cpu_only_follow)
    complete = counted and all(choice.complete for choice in requests.choices)
    covers_admission = counted and all(choice.covers_admission for choice in requests.choices)
    return Formulation(
        instance,
        program,
        requests,
        room,
        region_set,
        variables,
        tiers,
        base_state.base,
        exact,
        complete,
        covers_admission,
    )


def _pools(
    instance: Instance, base_state: BaseState, *, split: bool, interrupted: Question = never
) -> RegionSet:
    # a pod without GPUs may be the only one that comes to a vacated node: needs a region a node
    stopped = victims(instance, base_state.requests.choices) if split else None
    return build_regions(
        instance,
        base_state.requests.demands,
        base_state.rooms,
        base_state.node_usages,
        split=split,
        apart=nodes_apart(instance),
        held=base_state.held,
        stopped=stopped,
        shares=gpu_shares(instance) if instance.policy.lists("stranded") else None,
        interrupted=interrupted,
    )


def pairs(instance: Instance, enough: int | None = None) -> int:
    """(option, region) pairs that the full formulation would hold: its size grows with them.

    If there are ``enough``, some lower bound on them that is as large, which costs next to nothing.
    """
    least = 0 if enough is None else _fewest_pairs(instance)
    if enough is not None and least >= enough:
        return least
    base_state = build_base_state(instance)
    demands = base_state.requests.demands
    split = len(instance.cluster.nodes) <= SPLIT_NODES
    region_set = _pools(instance, base_state, split=split)
    single = sum(
        1
        for d, cpu_only_follow in zip(demands, region_set.cpu_only_follow, strict=True)
        if not is_single_piece(instance, d, cpu_only_follow=cpu_only_follow)
    )
    return single * len(region_set.regions)


def _fewest_pairs(instance: Instance) -> int:
    """Waiting gangs that need several nodes or pieces, and the innermost domains in which they may be."""
    node_level, nodes, options = instance.cluster.node_level, set[frozenset[int]](), 0
    for gang in instance.gangs:
        gpu_roles = [role for role in gang.roles if role.gpus]
        waits = not gang.running and gang.hold is None and gang.required != node_level
        if waits and sum(role.min for role in gpu_roles) > 1:
            options += 1
            nodes.update(eligible_nodes(instance, gang, role) for role in gpu_roles)
    # no region reaches over several domains where gangs use several nodes
    levels = instance.cluster.domain_of[:node_level]
    used = frozenset[int]().union(*nodes)
    domains = len({levels[-1][n] for n in used}) if levels else min(1, len(used))
    return options * domains


def slices_by_node(instance: Instance, demands: Sequence[Demand]) -> bool:
    """Whether slices that must share a node have variables of their own: then every node is a region."""
    node_level = instance.cluster.node_level
    return any(
        role.groups and instance.gangs[demand.gang].roles[role.role].slice_level == node_level
        for demand in demands
        for role in demand.roles
    )
