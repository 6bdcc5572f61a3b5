"""Where gangs that no node can hold have their pods or slices, and how many domains they use.

For a class of identical gangs, x[r] counts its pods in the domain r of a level, u[D] those of its gangs that
use domain D of that level or a wider one. Rows: sum of x == pods x gangs; for a domain D with gangs that are
whole in it, the x within D >= their pods; x[r] <= room of r x u[r]; sum of x in D <= room of D x u[D];
u[r] <= u[D] for r in D; sum over a level of u >= the fewest domains of each shape.
Pods in slices that share a domain r are counted in slices: x[r] x pods of a slice take the place of x[r].
"""

from __future__ import annotations

from models.instance.instance import Instance
from models.program.aggregated.pools import Domain, PooledClass, ShapeBounds, Spread
from models.program.linear_program import Linear, Program


def span(instance: Instance, own: PooledClass) -> Linear:
    """What the class adds to ``span``: domains as counted, nodes as few as there can be."""
    spread = own.spread
    assert spread is not None, "the class is counted by domain"
    gang = instance.gangs[own.demands[0].gang]
    weights, total = instance.cluster.span_weights, Linear()
    for (level, _), variable in spread.uses.items():
        total.add(variable, gang.weight_gpus * weights[level])
    for level in range(spread.level + 1):
        total.add_linear(spread.gangs, -gang.weight_gpus * weights[level])
    for shape, places in own.shapes:
        narrow = range(spread.level + 1, len(weights))
        least = sum((shape.fewest[at] - 1) * weights[at] for at in narrow)
        total.add_all(places.values(), gang.weight_gpus * least)
    return total


def spreads(instance: Instance, own: PooledClass) -> bool:
    """Whether the gangs of the class use several nodes wherever they are."""
    demand = own.demands[0]
    return (
        len(own.pools) == 1
        and not demand.stays
        and bool(instance.cluster.levels)
        and all(shape.level != instance.cluster.node_level for shape, _ in own.shapes)
    )


def cost(instance: Instance, level: int) -> int:
    """Variables of one class that counts its pods at a level."""
    domains = instance.cluster.domains
    return len(domains[level]) + sum(len(domains[at]) for at in range(level + 1))


def add(
    program: Program,
    instance: Instance,
    bounds: ShapeBounds,
    own: PooledClass,
    level: int,
    *,
    unit: int = 1,
    uses: bool = True,
) -> None:
    """The variables and rows of one class, as ``own.spread``.

    ``level``: at which its pods are counted, in sets of ``unit``. ``uses``: whether the domains that its
    gangs use are counted, too.
    """
    cluster, levels = instance.cluster, range(level + 1)
    (role,) = own.demands[0].gpu_roles
    gangs = len(own.demands)
    everyone = Linear().add_all(v for _, places in own.shapes for v in places.values())
    room = {
        (at, d): min(pods, role.count)
        for at in levels
        for d, pods in bounds.capacity(role, at)
        if pods
    }
    used = {key: program.integer(0, gangs) for key in sorted(room)} if uses else {}
    pods = {
        key: program.integer(0, min(role.count * gangs, most) // unit)
        for key, most in sorted(bounds.room(role, level).items())
        if most >= unit
    }
    inside: dict[Domain, Linear] = {key: Linear() for key in sorted(room)}
    for key, variable in pods.items():
        n = cluster.domains[level][key[1]].nodes[0]
        for at in levels:
            around = (at, cluster.domain_of[at][n])
            inside[around].add(variable, unit)
            if at < level and uses:
                program.at_most(Linear().add(used[key]).add(used[around], -1))
    for key, variable in used.items():
        program.at_most(Linear().add_linear(inside[key]).add(variable, -room[key]))
    program.equal(Linear().add_all(pods.values(), unit).add_linear(everyone, -role.count))
    for key, whole in _whole(instance, own, level).items():
        program.at_least(Linear().add_linear(inside[key]).add_linear(whole, -role.count))
    own.spread = Spread(level, pods, used, everyone, unit)
    for at in levels if uses else ():
        row = Linear().add_all(v for (own_level, _), v in used.items() if own_level == at)
        for shape, places in own.shapes:
            row.add_all(places.values(), -shape.fewest[at])
        program.at_least(row)


def _whole(instance: Instance, own: PooledClass, narrowest: int) -> dict[Domain, Linear]:
    """By domain of a level up to the narrowest, the gangs that are whole in it or in one within it."""
    cluster = instance.cluster
    found: dict[Domain, Linear] = {}
    for shape, places in own.shapes:
        for domain, variable in places.items():
            if shape.level is None or domain is None:
                continue
            n = cluster.domains[shape.level][domain].nodes[0]
            for level in range(min(shape.level, narrowest) + 1):
                key = (level, cluster.domain_of[level][n])
                found.setdefault(key, Linear()).add(variable)
    return found
