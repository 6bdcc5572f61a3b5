"""Whether a gang of a tiny instance could start if nothing ran and every node were in order.

Promises: exact: every plan of that cluster is tried, of the gang alone and of those that its pods must be
next to. Called by the exhaustive planner alone, and asks it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from models.documents.gang import Hold
from models.documents.policy import Objective
from models.instance.cluster import Node
from models.instance.instance import Instance

EMPTY = "nothing runs"
"""In the place of the cluster's uid: nobody is asked there who could start where nothing runs."""

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")

ASIDE = Hold("Unsupported", "set aside")


def could_start(instance: Instance, g: int) -> bool:
    """Whether some plan of the empty cluster starts the gang, were every node in order."""
    return _answer(instance, g, in_order=True)


def could_start_now(instance: Instance, g: int) -> bool:
    """Whether some plan of the empty cluster starts the gang with the nodes as they are, too."""
    return could_start(instance, g) and _answer(instance, g, in_order=False)


def settle(instance: Instance, like: Instance) -> None:
    """Let the same gangs be able to start as in another instance, whose GPUs are in no parts yet.

    There the product's word counts: a plan that settles the parts first would be about other GPUs.
    """
    known = cast("dict[tuple[int, bool], bool]", instance.once(_answers))
    starts = replace(like).could_start  # whoever is asked about here is stated of the other
    for g in range(len(like.gangs)):
        known[g, True], known[g, False] = starts.can(g), starts.can(g) and starts.can_now(g)


def _answer(instance: Instance, g: int, *, in_order: bool) -> bool:
    known = cast("dict[tuple[int, bool], bool]", instance.once(_answers))
    if (g, in_order) not in known:
        known[g, in_order] = _starts(instance, g, in_order=in_order)
    return known[g, in_order]


def _answers(_instance: Instance) -> dict[tuple[int, bool], bool]:
    return {}


def _starts(instance: Instance, g: int, *, in_order: bool) -> bool:
    from exhaustive import plan

    gangs = tuple(
        replace(
            gang,
            pods=(),
            planned=(),
            hold=None if i == g else ASIDE,
            priority=1_000_000 if i == g else 0,
            evicted_at=None,
        )
        for i, gang in enumerate(instance.gangs)
    )
    policy = replace(
        instance.policy,
        objectives=(Objective("admission"),),
        now=instance.now,
        reservations=None,
        moves=None,
    )
    nodes = instance.cluster.nodes
    if in_order:
        nodes = tuple(map(_in_order, nodes))
    empty = replace(
        instance,
        cluster=replace(instance.cluster, nodes=nodes, uid=EMPTY),
        gangs=gangs,
        policy=policy,
        queues=tuple(replace(queue, strict=False) for queue in instance.queues),
        shares=None,
        reserved=(),
    )
    return plan(empty).decisions[g].decision == "place"


def _in_order(node: Node) -> Node:
    """The node as it would be: ready, with all its whole GPUs, and what pods of no gang hold given back."""
    held = dict(node.held)
    return replace(
        node,
        ready=True,
        unschedulable=False,
        unhealthy=sum(1 << gpu for one in node.mig for gpu in one.gpus),
        unknown_unhealthy=node.unknown_partitioned,
        taints=tuple(t for t in node.taints if not t.key.startswith(PASSING)),
        allocatable=tuple((name, amount + held.get(name, 0)) for name, amount in node.allocatable),
        held=(),
    )
