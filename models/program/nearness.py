"""What gangs beside each other add to ``preference``, as an expression.

For a gang g with ``near``, home(h, D) = 1 only if h runs whole with all its pods that count in the domain D:
y[g, D] <= home(g, D), y[g, D] <= sum over the gangs h that g names of home(h, D); g adds w(g) x sum of y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

from models.instance.gang import Gang
from models.instance.solution import placed
from models.program.linear_program import Linear
from models.program.rules.topology import Topology
from models.program.variables import Model
from models.values.nearness import anchored, companions, home
from models.values.tier_values import Evaluation

Homes = Mapping[int, Linear]
"""By domain, 1 only if a gang is in it."""


def anywhere(gang: Gang) -> int:
    """What a gang adds that counts as beside another one wherever it is, if it is whole there."""
    return gang.weight_gpus if gang.near is not None and gang.near.anywhere else 0


def near_gpus(model: Model, topologies: Sequence[Topology], base: Evaluation) -> Linear:
    """What gangs beside each other add beyond what they add in the base plan.

    ``topologies``: of the gangs with variables of their own. ``base``: the plan without the gangs that are
    decided about.
    """
    total, gangs = Linear(), model.instance.gangs
    homes_of = cache(partial(_homes, model, topologies, base))
    for index, others in companions(model.instance).items():
        gang = gangs[index]
        if gang.near is None or gang.near.anywhere or base.near[index]:
            continue
        level = gang.near.level
        anchors = anchored(model.instance, index)
        for domain, here in homes_of(index, level).items():
            if domain in anchors:
                total.add_linear(here, gang.weight_gpus)
                continue
            beside = Linear()
            for other in others:
                beside.add_linear(homes_of(other, level).get(domain, Linear()))
            if model.program.bound_above(here) and model.program.bound_above(beside):
                together = model.program.boolean()
                for one in (here, beside):
                    model.program.at_least(Linear().add_linear(one).add(together, -1))
                total.add(together, gang.weight_gpus)
    return total


def _homes(
    model: Model, topologies: Sequence[Topology], base: Evaluation, index: int, level: int
) -> Homes:
    """The domains in which a gang may be whole."""
    instance, found = model.instance, dict[int, Linear]()
    gang, line = instance.gangs[index], base.lines[index]
    light = not any(role.gpus for role in gang.roles)
    if line.admitted and (there := home(instance, gang, line.decision.pods, level)) is not None:
        found[there] = Linear({}, 1)
    for owner, topology in zip(model.variables.gangs, topologies, strict=True):
        if owner.demand.gang == index and owner.effect.admitted:
            for domain, own in topology.homes(level, gpus_only=not light).items():
                found.setdefault(domain, Linear()).add_linear(own)
    for stay in model.variables.stays:
        if stay.demand.gang == index and stay.effect.admitted:
            there = home(instance, gang, placed(gang, stay.demand.stays), level)
            if there is not None:
                found.setdefault(there, Linear()).add(stay.admit)
    return found
