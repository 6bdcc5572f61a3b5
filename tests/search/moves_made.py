"""Plans with moves made by hand, for tests that need no search.

Promises: one decision a gang, valued as any plan is. Called by the tests of moves and of how they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from building import gang

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement, Solution, TierResult
from models.values.tier_values import Evaluation, tiers_of

Pods = Sequence[tuple[int, int]]
"""(node, mask) of the pods of one role, by index."""


def decide(instance: Instance, **pods: Pods | None) -> tuple[GangDecision, ...]:
    """One decision a gang: those named get these pods (None: stopped or waiting), others stay."""
    decisions = []
    for one in instance.gangs:
        standing = tuple(
            PodPlacement(p.role, p.index, p.node, p.gpus)
            for p in one.running_pods
            if p.node is not None
        )
        if one.name not in pods:
            decisions.append(GangDecision("keep" if one.running else "wait", standing))
            continue
        placed = tuple(PodPlacement(0, i, n, m) for i, (n, m) in enumerate(pods[one.name] or ()))
        moved = any(p in standing for p in placed) or len(placed) != len(standing)
        kind = "place" if placed else "wait"
        if one.running:
            kind = "preempt" if not placed else ("resize" if moved else "move")
        decisions.append(GangDecision(kind, placed))  # type: ignore[arg-type]
    return tuple(decisions)


def solved(
    instance: Instance, decisions: Sequence[GangDecision], *, slack: int = 0, note: str = ""
) -> Solution:
    """The solution of these decisions, each tier's bound ``slack`` better than its value."""
    values = Evaluation(instance, decisions).vector()
    tiers = tuple(
        TierResult(t.name, t.sense, v, v, v + (slack if t.sense == "max" else -slack), "exact")
        for t, v in zip(tiers_of(instance), values, strict=True)
    )
    notes = (note,) if note else ()
    return Solution(tuple(decisions), tiers, "budget" if slack else "proof", "made up", notes=notes)


def small(name: str, at: int, gpus: int, **other: object) -> Gang:
    """A movable gang of one pod that stands on a node on these GPUs (mask)."""
    return gang(name, 1, gpus.bit_count(), stands=[(0, 0, at, gpus)], movable=True, **other)  # type: ignore[arg-type]
