"""One GPU model for all gangs of a service of which none runs (contract 2.5).

For a service and GPU model m: pods of its gangs on nodes of m <= their number x u[m]; sum of u[m] <= 1.
Where gangs of a service run, its nodes are restricted instead (``declarations``).
"""

from __future__ import annotations

from collections.abc import Iterator

from models.instance.gang import Gang
from models.program.linear_program import Linear
from models.program.rules.admission import nodes_by_model
from models.program.variables import Model
from models.rules.services import Service, bound, open_service


def add(model: Model) -> None:
    used: dict[Service, dict[str, list[tuple[Linear, int]]]] = {}
    for gang, name, pods, most in _placed(model):
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


def _placed(model: Model) -> Iterator[tuple[Gang, str, Linear, int]]:
    """Pods of gangs with variables of their own by GPU model, and the most that there can be."""
    for gang in model.variables.gangs:
        for name, nodes in nodes_by_model(model, gang).items():
            for role in gang.demand.gpu_roles:
                if bound(gang.gang.roles[role.role]):
                    yield gang.gang, name, gang.pods(role, nodes), role.count
    for group in model.variables.groups:
        spec = group.gang
        if any(bound(role) for role in spec.roles):
            for name, nodes in nodes_by_model(model, group).items():
                pieces = (p.variable for p in group.pieces if p.n in nodes)
                yield spec, name, Linear().add_all(pieces), len(group.gangs)
