"""One GPU model a role (contract 2.5), unless mixModels.

For each GPU role and GPU model m of the nodes it may use: pods on nodes of m == count x u[m],
sum over m of u[m] == admit. Roles of incomplete gangs are held to their standing pods' model before.
"""

from __future__ import annotations

from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.variables import GangVariables


def add(program: Program, pools: Pools, gang: GangVariables) -> None:
    by_model: dict[str, set[int]] = {}
    for number in gang.gpu_regions:
        name = pools.regions[number].gpu_name
        if name is not None:
            by_model.setdefault(name, set()).add(number)
    if len(by_model) < 2:
        return
    for position, role in enumerate(gang.demand.gpu_roles):
        if gang.gang.roles[role.role].mix_models:
            continue
        chosen = Linear()
        for regions in by_model.values():
            used = program.boolean()
            chosen.add(used)
            program.equal(gang.gpu_pods(position, regions).add(used, -role.count))
        program.equal(chosen.add(gang.admit, -1))
