"""Random groups of roles that should share a domain, for tiny instances.

Promises: deterministic by the draws; nothing unless a feature is asked for.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_draws import Draws

from models.instance.cluster import Cluster
from models.instance.gang import Gang, Together

BESIDE = {
    "preferred groups": ("preferred_groups", "roles", "levels", "gaps", "launchers", "running"),
    "groups and levels": ("preferred_groups", "preferred", "roles", "wide", "cpu_gangs", "movable"),
}
"""Series of instances, and what each has three times as much of."""


def with_wishes(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps with groups."""
    return [_wishing(draws, gang, cluster) for gang in gangs]


def _wishing(draws: Draws, gang: Gang, cluster: Cluster) -> Gang:
    r = draws.random(f"beside/{gang.name}")
    levels = range(len(cluster.levels) + 1)
    roles = tuple(sorted(r.sample(range(len(gang.roles)), r.randint(1, len(gang.roles)))))
    group = Together("group", roles, r.choice(levels))
    grouped = draws.on("preferred_groups", r, 0.25) and draws.asked("preferred_groups")
    heavy = any(gang.roles[number].gpus for number in roles)
    return replace(gang, together=(group,) if grouped and heavy else ())
