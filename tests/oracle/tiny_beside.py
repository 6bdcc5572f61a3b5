"""Random gangs that should be near each other, and groups that should share a domain, for tiny instances.

Promises: deterministic by the draws; nothing unless a feature is asked for.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_draws import Draws

from models.instance.cluster import Cluster
from models.instance.gang import Gang, Near, Together

BESIDE = {
    "near": ("near", "levels", "gaps", "running", "movable"),
    "near what runs": ("near", "levels", "running", "elastic", "incomplete", "preemptible"),
    "preferred groups": ("preferred_groups", "roles", "levels", "gaps", "launchers", "running"),
    "near and in groups": ("near", "preferred_groups", "preferred", "roles", "wide", "cpu_gangs"),
}
"""Series of instances, and what each has three times as much of."""


def with_wishes(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps near to others, some of which there are not, or with groups."""
    names = [*sorted(gang.name for gang in gangs), "nobody"]
    return [_wishing(draws, gang, names, cluster) for gang in gangs]


def _wishing(draws: Draws, gang: Gang, names: Sequence[str], cluster: Cluster) -> Gang:
    r = draws.random(f"beside/{gang.name}")
    levels = range(len(cluster.levels) + 1)
    others = [name for name in names if name != gang.name]
    near = Near(tuple(sorted(r.sample(others, r.choice((1, 1, 2))))), r.choice(levels))
    roles = tuple(sorted(r.sample(range(len(gang.roles)), r.randint(1, len(gang.roles)))))
    group = Together("group", roles, r.choice(levels))
    grouped = draws.on("preferred_groups", r, 0.25) and draws.asked("preferred_groups")
    heavy = any(gang.roles[number].gpus for number in roles)
    return replace(
        gang,
        near=near if draws.on("near", r, 0.2) and draws.asked("near") else None,
        together=(group,) if grouped and heavy else (),
    )
