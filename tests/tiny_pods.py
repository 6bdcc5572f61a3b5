"""Random rules about the pods of sets for tiny instances: apart, together, evenly spread.

Promises: deterministic by the draws; nothing unless a feature is asked for; few sets, so that gangs meet.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tiny_draws import Draws

from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, NextTo, Role, Spread

SETS = ("red", "blue")

POD_RULES = ("apart", "together", "even", "pods_of_no_gang", "gaps")
"""Features of instances with such rules, and with nodes that have no value at a level."""


def with_pod_rules(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps in sets, and with rules about these or about their own pods."""
    return [
        replace(gang, roles=tuple(_ruled(draws, gang, role, cluster) for role in gang.roles))
        for gang in gangs
    ]


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


def settled(draws: Draws, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, perhaps with pods of sets that are in no gang."""
    found = []
    for i, node in enumerate(nodes):
        r = draws.random(f"pods of no gang/{i}")
        pods = tuple(sorted((name, r.randint(1, 2)) for name in SETS if r.random() < 0.6))
        own = _on(draws, "pods_of_no_gang", r, 0.1)
        found.append(replace(node, pod_sets=pods) if own else node)
    return tuple(found)


def _on(draws: Draws, feature: str, r: Random, chance: float) -> bool:
    return draws.on(feature, r, chance) and draws.asked(feature)
