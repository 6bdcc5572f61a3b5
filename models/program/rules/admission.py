"""All or nothing (contract 2.3), one GPU model a role or service (2.5), and the order of identical gangs.

For each gang and role, pods placed == count x admit. Identical gangs (equal but for name, priority, submit
time) start in the order of priority, age, name: admit[i] >= admit[i+1]. Exchanging two of them changes no
other tier; if a tolerance lets admission or waiting slip, only gangs of one priority are ordered. Unless
mixModels, for each GPU role and GPU model m: pods on nodes of m == count x u[m], sum over m of u[m] ==
admit.
For a service of which no gang runs: pods of its gangs on nodes of m <= their number x u[m]; sum of u[m] <= 1.
Where gangs of a service run, its nodes are restricted instead (``declarations``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from models.instance.gang import Gang
from models.program.linear_program import Linear
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, Model
from models.rules.services import Service, bound, open_service


def add(model: Model) -> None:
    program, instance, variables = model.program, model.instance, model.variables
    for gang in variables.gangs:
        for role in gang.roles.values():
            program.equal(gang.pods(role, gang.nodes).add_all(gang.admits, -role.count))
    listed = {objective.name: objective.tolerance for objective in instance.policy.objectives}
    # the tiers put a higher priority first, without tolerance
    across = listed.get("admission") == 0 and listed.get("waiting", 0) == 0
    gangs = instance.gangs
    for (first, before), (second, after) in chain.from_iterable(map(pairwise, variables.siblings)):
        if across or gangs[first.gang].priority == gangs[second.gang].priority:
            program.at_least(Linear().add(before).add(after, -1))


def one_model(model: Model, gang: GangVariables, _topology: Topology) -> None:
    """Pods of a role run on one GPU model."""
    program, by_model = model.program, nodes_by_model(model, gang)
    if len(by_model) < 2:
        return
    for role in gang.demand.gpu_roles:
        if gang.gang.roles[role.role].mix_models:
            continue
        chosen = Linear()
        for nodes in by_model.values():
            used = program.boolean()
            chosen.add(used)
            program.equal(gang.pods(role, nodes).add(used, -role.count))
        program.equal(chosen.add(gang.admit, -1))


def nodes_by_model(model: Model, owner: GangVariables) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for piece in owner.pieces:
        server = model.servers[piece.n].node.model
        if server is not None:
            found.setdefault(server.gpu, set()).add(piece.n)
    return found


def one_model_a_service(model: Model) -> None:
    used: dict[Service, dict[str, list[tuple[Linear, int]]]] = {}
    for gang, name, pods, most in _bound_pods(model):
        key = open_service(model.instance, gang)
        if key is not None:
            used.setdefault(key, {}).setdefault(name, []).append((pods, most))
    program = model.program
    for _, by_model in sorted(used.items()):
        if len(by_model) < 2:
            continue
        one = Linear()
        for _, rows in sorted(by_model.items()):
            chosen = program.boolean()
            one.add(chosen)
            for pods, most in rows:
                program.at_most(pods.add(chosen, -most))
        program.at_most(one, 1)


def _bound_pods(model: Model) -> Iterator[tuple[Gang, str, Linear, int]]:
    """Pods of gangs, and of those that share pieces, by GPU model, and the most that there can be."""
    for gang in model.variables.gangs:
        for name, nodes in nodes_by_model(model, gang).items():
            for role in gang.demand.gpu_roles:
                if bound(gang.gang.roles[role.role]):
                    yield gang.gang, name, gang.pods(role, nodes), role.count * len(gang.admits)
