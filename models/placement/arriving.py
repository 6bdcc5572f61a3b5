"""Who comes to the nodes that a stopped or shrunk gang gives up (contract 2.7), pod by pod.

Pods of a role are interchangeable until one of them has to come to a node where it does not stand now.
Promises: the same places, two pods of a gang that moves exchanged where only that brings someone there.
Called by ``decoding``; the rows that make it possible are in ``rules.running``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from models.instance import Instance
from models.placement.demands import Demand
from models.solution import GangDecision, PodPlacement

Key = tuple[int, int]


def with_arrivals(
    instance: Instance, decisions: Sequence[GangDecision], placing: Mapping[int, Demand]
) -> list[GangDecision]:
    """``placing``: of every gang that places pods, the demand whose pods may be exchanged."""
    found = list(decisions)
    given = given_up(instance, found)
    missing = _missing(instance, found, given)
    for index, demand in placing.items():
        if missing and instance.gangs[index].running:
            for pods in _exchanges(instance, demand, found[index].pods):
                other = [*found]
                other[index] = replace(found[index], decision="move", pods=pods)
                left = _missing(instance, other, given)
                if len(left) < len(missing):
                    found, missing = other, left
                    break
    return found


def given_up(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, set[int]]:
    """By gang that needs a higher one to come: the nodes on which it gives room."""
    found: dict[int, set[int]] = {}
    for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        there = {(pod.role, pod.index) for pod in decision.pods}
        gone = {p.node for p in gang.standing if (p.role, p.index) not in there}
        if gone and (not there or not gang.movable):
            found[index] = {n for n in gone if n is not None}
    return found


def _missing(
    instance: Instance, decisions: Sequence[GangDecision], given: Mapping[int, set[int]]
) -> list[int]:
    """Gangs that give room for nobody."""
    came: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        home = {(p.role, p.index): p.node for p in gang.standing}
        for pod in decision.pods:
            if home.get((pod.role, pod.index)) != pod.node:
                came[pod.node] = max(came.get(pod.node, gang.priority), gang.priority)
    return [
        index
        for index, nodes in given.items()
        if not any(n in came and came[n] > instance.gangs[index].priority for n in nodes)
    ]


def _exchanges(
    instance: Instance, demand: Demand, pods: Sequence[PodPlacement]
) -> list[tuple[PodPlacement, ...]]:
    """The pods with the places of two of one role, and of one slice if it has them, exchanged."""
    found = []
    for role in demand.roles:
        layers = instance.gangs[demand.gang].roles[role.role].slice_layers
        size = layers[0][0] if layers else role.indices[-1] + 1
        own = [p for p in pods if p.role == role.role and p.index in role.indices]
        for one, two in product(own, own):
            same = one.index // size == two.index // size
            if same and one.index < two.index and one.node != two.node:
                changed = {
                    one: replace(one, node=two.node, gpus=two.gpus),
                    two: replace(two, node=one.node, gpus=one.gpus),
                }
                found.append(tuple(changed.get(p, p) for p in pods))
    return found
