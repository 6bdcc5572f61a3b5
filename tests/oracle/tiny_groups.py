"""Random parallelism, patterns and ranks for tiny instances.

Promises: deterministic by the draws; nothing unless the feature is asked for.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tiny_draws import Draws

from models.documents.gang import Parallelism
from models.instance.gang import Gang, Role

PATTERNS = ("all-to-all", "parameter-server", "pipeline", "broadcast")

GROUPS = {
    "groups": ("parallelism", "levels", "oversubscription", "nics"),
    "groups that run": ("parallelism", "running", "movable", "elastic", "unknown_gpus", "levels"),
    "groups of two kinds": (
        "parallelism",
        "roles",
        "mixed",
        "mix_models",
        "network_only",
        "min_share",
    ),
}
"""Series of instances, and what each has three times as much of."""


def grouped(draws: Draws, gangs: Sequence[Gang]) -> list[Gang]:
    """The gangs, perhaps with groups, patterns, an order of their ranks, and ranks that they run with."""
    return [_grouped(draws, gang) for gang in gangs] if draws.asked("parallelism") else list(gangs)


def _grouped(draws: Draws, gang: Gang) -> Gang:
    r = draws.random(f"groups/{gang.name}")
    roles = [replace(role, parallelism=_degrees(r, role)) for role in gang.roles]
    pattern, in_order = r.choice(PATTERNS), r.random() < 0.3
    parallel, other = draws.on("parallelism", r, 0.2), draws.on("parallelism", r, 0.15)
    gang = replace(
        gang,
        roles=tuple(roles) if parallel else gang.roles,
        pattern=pattern if other and gang.pattern != "none" else gang.pattern,
        ordered=in_order,
    )
    return _with_ranks(r, gang)


def _degrees(r: Random, role: Role) -> Parallelism | None:
    """Degrees that divide the GPUs of the role at its least, in one of four roles none."""
    left = role.min * role.gpus
    if not left or r.random() < 0.25:
        return None
    found = {}
    for name in r.sample(("tensor", "pipeline", "context"), 3):
        found[name] = r.choice([d for d in range(1, left + 1) if left % d == 0])
        left //= found[name]
    experts = [d for d in range(1, left * found["context"] + 1) if left * found["context"] % d == 0]
    return Parallelism(**found, expert=r.choice(experts))


def _with_ranks(r: Random, gang: Gang) -> Gang:
    """Pods that stand with ranks of an earlier plan: all, some, or some that contradict each other."""
    missing, wrong = r.choice((0, 0, 0.3, 1)), r.random() < 0.15
    pods = []
    for number, role in enumerate(gang.roles):
        own = [pod for pod in gang.pods if pod.role == number]
        ranks = [role.gpus * place for place in range(len(own))]
        r.shuffle(ranks)
        for pod, rank in zip(own, ranks, strict=True):
            stated = role.gpus * r.randint(0, len(own)) if wrong else rank
            pods.append(pod if r.random() < missing else replace(pod, rank=stated))
    return replace(gang, pods=tuple(pods))
