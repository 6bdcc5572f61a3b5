"""Pods of a role that moves, told apart by where they stand and where an earlier plan had them.

Needed only where both matter: one pod may have to come to a node (contract 2.7) that another was planned on.
For a role of GPU pods and its pods k of one home and one planned node: t[k, r] pods of k in region r,
    sum over k of t[k, r] == pods of the role placed in r, sum over r of t[k, r] == pods of k x admit.
"""

from __future__ import annotations

from models.instance import Instance
from models.placement.program import Linear, Program
from models.placement.variables import GangVariables


def tell_apart(program: Program, instance: Instance, gang: GangVariables) -> None:
    """Fills ``gang.exchange`` where the tier of stickiness is asked for."""
    if not gang.effect.moved or not any(o.name == "stability" for o in instance.policy.objectives):
        return
    for position, role in enumerate(gang.demand.gpu_roles):
        planned = {p.index: p.node for p in gang.gang.planned if p.role == role.role}
        home = {p.index: p.node for p in gang.gang.standing if p.role == role.role}
        if gang.gang.roles[role.role].slice_layers or not planned.keys() & set(role.indices):
            continue
        alike: dict[tuple[int | None, int | None], list[int]] = {}
        for index in role.indices:
            alike.setdefault((home.get(index), planned.get(index)), []).append(index)
        regions = [r for r in gang.gpu_regions if gang.gpu_pods(position, [r]).terms]
        placed = {r: gang.gpu_pods(position, [r]) for r in regions}
        found = gang.exchange[role.role] = []
        for indices in alike.values():
            here = {r: program.integer(0, len(indices)) for r in regions}
            found.append((tuple(indices), here))
            program.equal(Linear().add_all(here.values()).add(gang.admit, -len(indices)))
            for r, variable in here.items():
                placed[r].add(variable, -1)
        for row in placed.values():
            program.equal(row)
