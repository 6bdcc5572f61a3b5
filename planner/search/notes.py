"""What a plan assumes, in sentences a user can act on.

Promises: says what was not known and how it was counted, and where gangs share a NIC that each is
priced to have for itself. Called by ``solve``; printed by ``planner.show``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.gang import Gang
from models.instance import Instance
from models.policy import LOST_RUNTIME
from models.solution import GangDecision
from planner.search.shortage import counted


def notes_of(
    instance: Instance, decisions: Sequence[GangDecision], *, exact: bool
) -> tuple[str, ...]:
    """Notes in a fixed order; empty where nothing needs saying."""
    notes = [*_unknown_runtime(instance, decisions), *_ageless(instance)]
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


def _unknown_runtime(instance: Instance, decisions: Sequence[GangDecision]) -> list[str]:
    """Gangs disturbed whose lost runtime nobody can tell."""
    disruption = instance.policy.disruption
    if disruption.weight != LOST_RUNTIME:
        return []
    unknown = sum(
        1
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        if gang.running
        and gang.started_at is None
        and gang.last_checkpoint is None
        and (decision.decision in ("preempt", "move") or _shrinks(gang, decision))
    )
    if not unknown:
        return []
    note = (
        f"{counted(unknown, 'gang')} stopped, moved or shrunk without a known start or checkpoint: each "
        f"GPU counts as {disruption.cap_s} s of lost runtime, the most there is"
    )
    return [note]


def _shrinks(gang: Gang, decision: GangDecision) -> bool:
    """Whether it runs on with some of its pods gone; one that only grows loses nothing."""
    there = {(pod.role, pod.index) for pod in decision.pods}
    gone = any((pod.role, pod.index) not in there for pod in gang.standing)
    return decision.decision == "resize" and gone


def _ageless(instance: Instance) -> list[str]:
    """Gangs that can never be too old."""
    if instance.policy.starvation_after_s is None:
        return []
    ageless = sum(1 for g in instance.gangs if not g.running and g.submitted_at is None)
    if not ageless:
        return []
    note = (
        f"{counted(ageless, 'waiting gang')} without submittedAt: nobody knows how long they wait, so they "
        "do not age"
    )
    return [note]


def _shared_nics(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """Nodes that carry GPUs of two or more gangs that each span several nodes."""
    spanning: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        nodes = {pod.node for pod in decision.pods if gang.roles[pod.role].gpus}
        if len(nodes) > 1 and gang.pattern != "none":
            for node in nodes:
                spanning[node] = spanning.get(node, 0) + 1
    return sum(1 for count in spanning.values() if count > 1)
