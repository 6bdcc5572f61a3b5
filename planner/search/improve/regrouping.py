"""Place gangs in groups once more, so that whole groups of ranks share a domain (section 3).

The programs bound the bandwidth of groups by servers and by the levels that are crossed; how many pods are on
which side, they do not see. Two stages of two servers each are faster than three servers and one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from models.instance.gang import Role
from models.instance.instance import Instance
from models.instance.solution import STARTS, GangDecision
from models.rates.gang_bandwidth import FULL_SHARE
from models.rates.group_bandwidth import role_kinds
from models.rules.demands import Demand
from models.values.tier_values import Evaluation
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.improve.rearranging import starting_demand
from planner.search.start.greedy import placements, value_of

PLACEMENTS = 3
"""Placements that are compared for each size of the groups."""


def regroup(
    instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget
) -> tuple[GangDecision, ...]:
    """The plan with gangs that start and lose bandwidth placed by groups where that is faster."""
    found = list(decisions)
    lines = Evaluation(instance, decisions).lines
    slow = [
        ((line.value.share - FULL_SHARE) * line.gang.weight_gpus, index)
        for index, line in enumerate(lines)
        if line.gang.by_rank
        and line.decision.decision in STARTS
        and line.value is not None
        and line.value.share is not None
        and line.value.share < FULL_SHARE
    ]
    space = FreeSpace(instance, decisions) if slow else None
    for _, index in sorted(slow):
        if budget.exhausted():
            break
        assert space is not None
        demand, mark = starting_demand(space, decisions, index), space.mark()
        now = lines[index].value
        space.set(index, space.original[index])
        best = now.share if now is not None and now.share is not None else 0
        chosen = None
        for roles in _grouped(instance, demand):
            for pods in islice(placements(space, demand, roles=roles), PLACEMENTS):
                share = value_of(space, index, pods).share
                if share is not None and share > best:
                    best, chosen = share, pods
        if chosen is None:
            space.undo(mark)
        else:
            space.set(index, (*space.pods[index], *chosen))
            found[index] = space.decision(index)
    return tuple(found)


def _grouped(instance: Instance, demand: Demand) -> Iterator[tuple[Role, ...]]:
    """The roles of a gang with whole groups of ranks as slices: large groups in wide domains first."""
    gang = instance.gangs[demand.gang]
    levels = instance.cluster.counted_levels
    for number, role in enumerate(gang.roles):
        count = demand.counts[number] if demand.counts else role.min
        kinds = role_kinds(gang, role, count) or ()
        sizes = {kind.size * kind.stride // role.gpus for kind in kinds}
        for size in sorted(sizes, reverse=True):
            for level in levels if 1 < size < count and not role.first_index % size else ():
                layers = sorted({*role.slice_layers, (size, level)})
                if all(b % a == 0 and wide < narrow for (a, narrow), (b, wide) in pairwise(layers)):
                    (inner, within), *outer = layers
                    sliced = replace(
                        role, slice_size=inner, slice_level=within, outer_slices=tuple(outer)
                    )
                    yield (*gang.roles[:number], sliced, *gang.roles[number + 1 :])
