"""Random rules about the pods of gangs for tiny instances: apart, together, evenly spread.

Promises: deterministic by the draws; nothing unless a feature is asked for; few sets, so that roles meet.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from tiny_draws import Draws

from models.instance.cluster import Cluster
from models.instance.gang import Gang, NextTo, Role, Spread

Rule = TypeVar("Rule", NextTo, Spread)

SETS = ("red", "blue")

POD_RULES = ("apart", "together", "even", "gaps")
"""Features of instances with such rules, and with nodes that have no value at a level."""


def with_pod_rules(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps in sets, and with rules about these or about their own pods."""
    found = []
    for gang in gangs:
        roles = [_ruled(draws, gang, role, cluster) for role in gang.roles]
        known = {name for role in roles for name in role.pod_sets}
        found.append(replace(gang, roles=tuple(_about(role, known) for role in roles)))
    return found


def _about(role: Role, known: set[str]) -> Role:
    """The role with rules about its own pods where no role of the gang is in a set."""

    def known_set(one: Rule) -> Rule:
        return one if one.pod_set in known else replace(one, pod_set=None)

    return replace(
        role,
        anti_affinity=tuple(map(known_set, role.anti_affinity)),
        affinity=tuple(map(known_set, role.affinity)),
        spread=tuple(map(known_set, role.spread)),
    )


def _ruled(draws: Draws, gang: Gang, role: Role, cluster: Cluster) -> Role:
    r = draws.random(f"pod rules/{gang.name}/{role.name}")
    sets = tuple(sorted(name for name in SETS if r.random() < 0.4))
    apart, join = _next_to(r, cluster), _next_to(r, cluster)
    spread = [
        Spread(one.level, r.choice((1, 1, 2)), one.pod_set, r.choice((1, 1, 2, 3)))
        for one in (_next_to(r, cluster), _next_to(r, cluster))[: r.choice((1, 1, 2))]
    ]
    wanted = {name: _on(draws, name, r, 0.15) for name in ("apart", "together", "even")}
    asked = any(draws.asked(name) for name in wanted)
    return replace(
        role,
        pod_sets=sets if asked else (),
        anti_affinity=(apart,) if wanted["apart"] else (),
        affinity=(join,) if wanted["together"] else (),
        spread=tuple(spread) if wanted["even"] else (),
    )


def _next_to(r: Random, cluster: Cluster) -> NextTo:
    level = r.choice(range(len(cluster.levels) + 1))
    return NextTo(level, r.choice((None, *SETS, *SETS)))


def _on(draws: Draws, feature: str, r: Random, chance: float) -> bool:
    return draws.on(feature, r, chance) and draws.asked(feature)
