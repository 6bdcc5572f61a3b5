"""What a plan assumes or leaves alone, in sentences a user can act on.

Promises: says which decisions this version does not make, and where gangs share a NIC that each is
priced to have for itself. Called by ``solve``; printed by ``planner.showing``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.instance import Instance
from models.solution import GangDecision
from planner.solving.wording import counted


def notes_of(
    instance: Instance, decisions: Sequence[GangDecision], *, exact: bool
) -> tuple[str, ...]:
    """Notes in a fixed order; empty where nothing needs saying."""
    gangs = instance.gangs
    notes = []
    held = sum(1 for gang in gangs if gang.running and (gang.preemptible or gang.movable))
    if held:
        notes.append(
            f"preemptible or movable, and left where they are: {counted(held, 'running gang')}"
        )
    elastic = sum(1 for gang in gangs if gang.elastic and gang.running)
    if elastic:
        notes.append(f"elastic, and kept at their size: {counted(elastic, 'running gang')}")
    waiting = sum(1 for gang in gangs if gang.elastic and not gang.running)
    if waiting:
        notes.append(
            f"elastic, and started at their smallest size only: {counted(waiting, 'waiting gang')}"
        )
    shared = _shared_nics(instance, decisions)
    if shared:
        notes.append(
            f"on {counted(shared, 'node')} several gangs that span nodes share NICs; each is priced as "
            "if it had them to itself"
        )
    if not exact:
        notes.append(
            "some servers (no switch and more than 9 free GPUs, or NVLink domains of unlike servers) are "
            "planned by count: their GPU sets are good, not proven best"
        )
    return tuple(notes)


def _shared_nics(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """Nodes that carry GPUs of two or more gangs that each span several nodes."""
    spanning: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        nodes = {pod.node for pod in decision.pods if gang.roles[pod.role].gpus}
        if len(nodes) > 1 and gang.pattern != "none":
            for node in nodes:
                spanning[node] = spanning.get(node, 0) + 1
    return sum(1 for count in spanning.values() if count > 1)
