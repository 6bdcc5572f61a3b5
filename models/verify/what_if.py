"""What-if: the nodes and gangs of the instance are as its ``whatIf`` says.

A drained node is cordoned and has no pods of gangs, a gang left out is gone, and a gang asks for nothing
that is relaxed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from models.documents.gang import GangDocument
from models.documents.plan import PlanInstance
from models.documents.policy import WhatIf
from models.verify.judged_rules import binds
from models.verify.rule import Binds


def wrong(instance: PlanInstance, stated: WhatIf) -> Iterator[str]:
    """Every difference, in a sentence."""
    relaxed = [(one.gang, one.what) for one in stated.relaxed]
    if not (stated.added or stated.drained or stated.without or relaxed):
        yield "it supposes nothing"
    pairs = [[(name, "") for name in names] for names in (stated.drained, stated.without)]
    if any(entries != sorted(set(entries)) for entries in (*pairs, relaxed)):
        yield "its entries are not sorted, or one is there twice"
    yield from _not_drained(instance, stated.drained)
    gangs = {"/".join(gang.key): gang for gang in instance.gangs}
    yield from (f"gang {name} is not left out" for name in stated.without if name in gangs)
    yield from _not_relaxed(instance, gangs, relaxed)


def _not_drained(instance: PlanInstance, drained: Sequence[str]) -> Iterator[str]:
    nodes = {node.name: node for node in instance.cluster.spec.nodes}
    taken = {pod.node for gang in instance.gangs for pod in gang.running_pods}
    for name in drained:
        if name not in nodes:
            yield f"drained node {name} does not exist"
        elif not nodes[name].unschedulable:
            yield f"drained node {name} is not cordoned"
        elif name in taken:
            yield f"drained node {name} has pods of gangs"


def _not_relaxed(
    instance: PlanInstance, gangs: Mapping[str, GangDocument], relaxed: Sequence[tuple[str, str]]
) -> Iterator[str]:
    known = {"required": lambda gang, _: bool(_required(gang)), **binds()}
    levels = {*(level.name for level in instance.cluster.spec.levels), "node"}
    for name, what in relaxed:
        own = _level_binds(what) if what in levels else known.get(what)
        if name not in gangs:
            yield f"gang {name}, which is relaxed, does not exist"
        elif own is None:
            yield f"nothing is called {what} that can be relaxed"
        elif own(gangs[name], instance.policy.spec):
            yield f"{what} of gang {name} is not relaxed"


def _level_binds(level: str) -> Binds:
    return lambda gang, _: level in _required(gang)


def _required(gang: GangDocument) -> set[str]:
    """The levels that it may not leave."""
    found = {gang.spec.topology.required, *(role.topology.required for role in gang.spec.roles)}
    for role in gang.spec.roles:
        found |= {one.required for one in (role.slice, *role.outer_slices) if one is not None}
    return {level for level in found if level is not None}
