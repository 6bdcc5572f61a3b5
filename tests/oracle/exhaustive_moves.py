"""What the moves of a tiny plan bought: all of them as one set, against the best plan in which nobody moves.

Promises: both plans are best, found by trying every plan; differences in the words of the plan document.
Called by the comparison with the search, and by tests that judge whole plan documents.
"""

from __future__ import annotations

from collections.abc import Sequence

from exhaustive import Best, plan
from exhaustive_counts import least_counts, pod_counts, whole_gpu
from exhaustive_leftover import whole_domains, whole_nodes
from exhaustive_values import admitted, free_after, shares, standing, tier_values, weight

from models.instance.instance import Instance
from models.instance.solution import GangDecision, MoveSet


def moves_of(instance: Instance, best: Best) -> tuple[MoveSet, ...]:
    """One set of all gangs that move; none where none does."""
    movers = frozenset(g for g, d in enumerate(best.decisions) if d.decision == "move")
    if not movers:
        return ()
    without = plan(instance, immovable=frozenset(range(len(instance.gangs)))).decisions
    mine, other = _worth(instance, best.decisions), _worth(instance, without)
    gpus, bandwidth, freed, nodes, domains = (a - b for a, b in zip(mine, other, strict=True))
    effective = None
    if any(objective.name == "goodput" for objective in instance.policy.objectives):
        effective = _goodput(instance, best.decisions) - _goodput(instance, without)
    moved = sum(
        pod_counts(instance.gangs[g].roles[pod.role])
        for g in movers
        for pod in standing(instance.gangs[g])
    )
    return (
        MoveSet(
            gangs=tuple(sorted(movers)),
            moved_gpus=moved,
            admitted=tuple(
                g
                for g, gang in enumerate(instance.gangs)
                if admitted(gang, best.decisions[g]) and not admitted(gang, without[g])
            ),
            gpus=gpus,
            bandwidth=bandwidth,
            whole_nodes=nodes,
            whole_domains=domains,
            gain=(
                (1000 * gpus if effective is None else effective)
                + 1000 * whole_gpu(instance) * freed
                + bandwidth
            )
            // (moved or whole_gpu(instance)),
            effective=effective,
        ),
    )


def _goodput(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """w x speed of the admitted gangs of every priority; those without GPUs, which weigh one, buy nothing."""
    values = tier_values(instance, decisions)
    total = sum(value for name, value in values if name.startswith("goodput/"))
    return total - 1000 * without_gpus(instance, decisions)


def without_gpus(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """Admitted gangs that ask for no GPU."""
    pairs = zip(instance.gangs, decisions, strict=True)
    return sum(admitted(gang, decision) and not least_counts(gang) for gang, decision in pairs)


def _worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """GPUs admitted, w x share, GPUs of whole nodes, how many these are, and whole domains."""
    runs = [
        (gang, share)
        for gang, decision, share in zip(
            instance.gangs, decisions, shares(instance, decisions), strict=True
        )
        if admitted(gang, decision)
    ]
    counted = [(gang, share) for gang, share in runs if gang.pattern != "none"]
    free = free_after(instance, decisions)
    nodes = whole_nodes(instance.cluster, free)
    return (
        sum(weight(gang) for gang, _ in runs) - without_gpus(instance, decisions),
        sum(weight(gang) * (share or 0) for gang, share in counted),
        sum(nodes.values()),
        len(nodes),
        len(whole_domains(instance.cluster, free)),
    )
