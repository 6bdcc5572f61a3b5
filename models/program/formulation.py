"""The full formulation of an instance: demands, servers, variables, rules and tiers.

Tier by tier, its optimum is the best plan if ``exact``, and otherwise a bound on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import build_base_state
from models.program.decoder import decode
from models.program.linear_program import Linear, Program, Question, never
from models.program.rules import (
    admission,
    bandwidth,
    cells,
    gpus,
    pod_affinity,
    queues,
    resources,
    running,
    shape,
    slices,
)
from models.program.rules.topology import Topology
from models.program.servers import build_servers
from models.program.tier_expressions import TierExpressions
from models.program.variables import Model, create, is_single_piece
from models.rules.registry import eligible_nodes
from models.tiers import Tier
from models.values.tier_values import Evaluation

ROWS = (
    gpus.add,
    resources.add,
    admission.add,
    running.add,
    admission.one_model_a_service,
    pod_affinity.add,
    queues.keep_order,
    queues.add,
    cells.add,
    shape.keep_domains,
    shape.keep_spares,
)
"""Added once."""

GANG_ROWS = (shape.add_balance, slices.add, admission.one_model, bandwidth.add_claims)
"""Added for every gang of several pieces."""


def add_rows(model: Model) -> list[Topology]:
    """Add the rows of every rule; returns the domains that the gangs with variables of their own use.

    The rows of required domains come first for each gang.
    """
    for add in ROWS:
        add(model)
    topologies = [Topology(model, gang) for gang in model.variables.gangs]
    for topology, gang in zip(topologies, model.variables.gangs, strict=True):
        for add_to in (bandwidth.add_rates,) if gang.group else GANG_ROWS:
            add_to(model, gang, topology)
    for stay in model.variables.stays:
        bandwidth.add_stay_claims(model, stay)
    return topologies


@dataclass
class Formulation:
    """The program of one instance. ``tiers``: expressions on demand; ``exact``: without relaxations.

    ``complete``: every plan is one of its assignments, so that its bounds hold. ``covers_admission``: the
    bounds on which gangs run hold in any case.
    """

    model: Model
    program: Program
    tiers: TierExpressions
    exact: bool
    complete: bool
    covers_admission: bool

    def expression(self, tier: Tier) -> Linear:
        return self.tiers.expression(tier)

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """The plan that an assignment stands for; waiting gangs have no reason yet."""
        return decode(self.model, values)


def formulate(
    instance: Instance,
    *,
    only: frozenset[int] | None = None,
    base: tuple[GangDecision, ...] | None = None,
    immovable: frozenset[int] = frozenset(),
    interrupted: Question = never,
) -> Formulation:
    """Arguments as in ``build_base_state``: the gangs to decide about, and what is given.

    Raises Interrupted if ``interrupted`` says so while it builds.
    """
    state = build_base_state(
        instance, base=base, only=only, immovable=immovable, interrupted=interrupted
    )
    servers = build_servers(instance, state, interrupted)
    program = Program(interrupted)
    model = Model(program, instance, state, servers, create(instance, program, state, servers))
    topologies = add_rows(model)
    exact = all(server.sets.exact for server in servers.values())
    program.interrupted = never
    return Formulation(
        model,
        program,
        TierExpressions(model, topologies, Evaluation(instance, state.base)),
        exact and all(found.exact for found in model.bandwidth.values()),
        complete=all(choice.complete for choice in state.choices),
        covers_admission=all(choice.covers_admission for choice in state.choices),
    )


def pairs(instance: Instance, enough: int | None = None) -> int:
    """(option, server) pairs that the full formulation would hold: its size grows with them.

    If there are ``enough``, some lower bound on them that is as large, which costs next to nothing.
    """
    least = 0 if enough is None else _fewest_pairs(instance)
    if enough is not None and least >= enough:
        return least
    state = build_base_state(instance)
    demands = state.demands
    nodes = frozenset(state.node_usages).union(*(role.nodes for d in demands for role in d.roles))
    return len(nodes) * sum(not is_single_piece(instance, demand) for demand in demands)


def _fewest_pairs(instance: Instance) -> int:
    """Waiting gangs that need several pieces, and the nodes on which they may be."""
    node_level, nodes, options = instance.cluster.node_level, set[frozenset[int]](), 0
    for gang in instance.gangs:
        gpu_roles = [role for role in gang.roles if role.gpus]
        waits = not gang.running and gang.hold is None and gang.required != node_level
        if waits and sum(role.min for role in gpu_roles) > 1:
            options += 1
            nodes.update(eligible_nodes(instance, gang, role) for role in gpu_roles)
    return options * len(frozenset[int]().union(*nodes))
