"""All or nothing (contract 2.3), one GPU model a role (contract 2.5), and the order of identical gangs.

For each gang and role, pods placed == count x admit. Identical gangs (equal but for name, priority, submit
time) start in the order of priority, age, name: admit[i] >= admit[i+1]. Exchanging two of them changes no
other tier; if a tolerance lets admission or waiting slip, only gangs of one priority are ordered. Unless
mixModels, for each GPU role and GPU model m: pods on nodes of m == count x u[m], sum over m of u[m] ==
admit.
"""

from __future__ import annotations

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.program.linear_program import Linear, Program
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, GroupVariables, Model


def add(model: Model) -> None:
    program, instance, variables = model.program, model.instance, model.variables
    for gang in variables.gangs:
        for role in gang.roles.values():
            program.equal(gang.pods(role, gang.nodes).add(gang.admit, -role.count))
    for group in variables.groups:
        total = Linear().add_all(piece.variable for piece in group.pieces)
        program.equal(total.add_all(group.admits, -1))
        in_order(program, instance, list(zip(group.gangs, group.admits, strict=True)))
    for siblings in variables.siblings:
        members = [(variables.gangs[i].gang, variables.gangs[i].admit) for i in siblings]
        in_order(program, instance, members)


def in_order(program: Program, instance: Instance, members: list[tuple[Gang, int]]) -> None:
    """Identical gangs start in the order given."""
    across = _priorities_exchange(instance)
    for (first, before), (second, after) in zip(members, members[1:], strict=False):
        if across or first.priority == second.priority:
            program.at_least(Linear().add(before).add(after, -1))


def _priorities_exchange(instance: Instance) -> bool:
    """Whether the tiers put a higher priority first, without tolerance."""
    listed = {objective.name: objective.tolerance for objective in instance.policy.objectives}
    return listed.get("admission") == 0 and listed.get("waiting", 0) == 0


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


def nodes_by_model(model: Model, owner: GangVariables | GroupVariables) -> dict[str, set[int]]:
    """The nodes of its pieces by GPU model."""
    found: dict[str, set[int]] = {}
    for piece in owner.pieces:
        name = model.servers[piece.n].gpu_name
        if name is not None:
            found.setdefault(name, set()).add(piece.n)
    return found
