"""Shapes: equal shares over domains (contract 2.19), domains of one gang (2.20), and nodes kept free (2.21).

Equal shares: for every option that places pods with GPUs, with p[D] all its pods with GPUs in domain D, those
that stay included, n their number, an integer s and booleans u:
    p[D] <= n u[D],   p[D] <= s + 1,   p[D] >= s - n (1 - u[D])
Exclusive domains: for every level at which a gang is exclusive and every domain D of it: come, the pieces
that are placed there, and all, the same with the pods that stay. For each gang g that is exclusive there,
with a boolean y, and M a bound on the left side:
    come of g <= M y,   all - all of g <= M (1 - y)
    come - come of g <= M (1 - [a pod of g stays in D])
come and all are variables, so that a row has the pieces of one gang only.
Nodes kept free, domain by domain: servers whose GPUs are all left >= those asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from models.program.linear_program import Linear, check
from models.program.rules.gpus import FreeServers
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, Model, staying
from models.rules.shape import exclusive_levels, may_be_uneven, spare_nodes


def add_balance(model: Model, gang: GangVariables, _topology: Topology) -> None:
    level, demand = gang.gang.balance, gang.demand
    if level is None or not may_be_uneven(gang.gang) or not demand.gpu_roles:
        return
    of = model.instance.cluster.domain_of[level]
    stays = (pod for pod in demand.stays if gang.gang.roles[pod.role].gpus)
    standing = Counter(of[pod.node] for pod in stays if pod.node is not None)
    pods = {d: Linear().add(gang.admit, count) for d, count in standing.items()}
    for n in gang.by_node:
        here = pods.setdefault(of[n], Linear())
        for role in demand.gpu_roles:
            here.add_linear(gang.pods(role, (n,)))
    count = sum(role.count for role in demand.gpu_roles) + standing.total()
    program, share = model.program, model.program.integer(0, count)
    for d, here in sorted(pods.items()):
        used = gang.admit if d in standing else program.boolean()
        most = min(count, program.bound_above(here))
        program.at_most(Linear().add_linear(here).add(used, -most))
        program.at_most(Linear().add_linear(here).add(share, -1), 1)
        program.at_least(Linear().add_linear(here).add(share, -1).add(used, -count), -count)


def keep_spares(model: Model) -> None:
    free = FreeServers(model)
    for rule in spare_nodes(model.instance):
        model.program.at_least(free.whole(rule.nodes), rule.least)


@dataclass
class _Place:
    """In a domain: pieces that come, and pods with GPUs that stay."""

    come: Linear = field(default_factory=Linear)
    stay: Linear = field(default_factory=Linear)


Places = dict[int, dict[int, _Place]]
"""By domain and gang."""


def keep_domains(model: Model) -> None:
    for level in exclusive_levels(model.instance):
        alone = {g for g, gang in enumerate(model.instance.gangs) if gang.exclusive == level}
        for _, gangs in sorted(_places(model, level).items()):
            check(model.program.interrupted)
            if not alone.isdisjoint(gangs):
                _keep_apart(model, gangs, sorted(alone & gangs.keys()))


def _places(model: Model, level: int) -> Places:
    """What may come to every domain of the level, and what may stay there."""
    of = model.instance.cluster.domain_of[level]
    found: Places = defaultdict(lambda: defaultdict(_Place))
    for owner in model.variables.gangs:
        for piece in owner.pieces:
            found[of[piece.n]][owner.demand.gang].come.add(piece.variable)
    gangs = model.instance.gangs
    for index, role, n, stays in model.once(staying):
        if gangs[index].roles[role].gpus:
            found[of[n]][index].stay.add_linear(stays)
    return found


def _keep_apart(model: Model, gangs: dict[int, _Place], alone: list[int]) -> None:
    """The rows of one domain. ``alone``: the gangs that are exclusive at its level and may be there."""
    program = model.program
    come = Linear.total(place.come for place in gangs.values())
    stay = Linear.total(place.stay for place in gangs.values())
    coming = program.integer(0, program.bound_above(come))
    staying = program.integer(0, program.bound_above(stay))
    program.equal(come.add(coming, -1))
    program.equal(stay.add(staying, -1))
    for gang in alone:
        own = gangs[gang]
        others = Linear().add(coming).add_linear(own.come, -1)
        if own.stay.terms or own.stay.constant:
            most, ways = program.upper[coming], () if own.stay.constant else own.stay.terms
            stands = Linear(constant=int(not ways)).add_all(ways)
            program.at_most(Linear().add_linear(others).add_linear(stands, most), most)
        if own.come.terms:
            here = program.boolean()
            program.at_most(Linear().add_linear(own.come).add(here, -program.bound_above(own.come)))
            most = program.upper[coming] + program.upper[staying]
            others.add(staying).add_linear(own.stay, -1)
            program.at_most(others.add(here, most), most)
