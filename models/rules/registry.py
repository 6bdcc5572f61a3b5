"""Every rule, one entry each, and what all of them together say of a gang, a node or a plan.

A rule is a file here with its entry, rows in ``models.program.rules``, and a check of the judge's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rules import bandwidth, nodes, pod_rules, queue_rules, services, shape, topology
from models.rules.declaration import (
    Declaration,
    Pods,
    Requirement,
    Space,
    undemanding,
)

DECLARED: tuple[Declaration, ...] = (
    nodes.HOLDS,
    *topology.DECLARED,
    *nodes.DECLARED,
    topology.ONE_MODEL,
    pod_rules.DECLARED,
    *shape.DECLARED,
    services.DECLARED,
    bandwidth.DECLARED,
    bandwidth.NEAR,
    nodes.RESOURCES,
    *queue_rules.DECLARED,
    shape.WHOLE_DOMAINS,
)
"""In the order in which repair looks at rules about several gangs, and causes are tried.

Rules that concern every gang alike (GPUs) declare nothing.
"""


def requirements() -> tuple[Requirement, ...]:
    """All that anybody may ask for."""
    return tuple(one for declared in DECLARED for one in declared.requirements)


def joint_requirements() -> tuple[Requirement, ...]:
    """What counts of room leave aside: rules about pods next to others, and about whole domains."""
    return tuple(one for one in requirements() if one.concerns is not None)


def named(name: str) -> Requirement | None:
    """The requirement of this name."""
    return next((one for one in requirements() if one.name == name), None)


def relaxable() -> dict[str, str]:
    """What of a gang can be relaxed besides the levels of the cluster, by word of ``--relax``."""
    found: dict[str, str] = {}
    for one in requirements():
        if one.word is not None and not found.get(one.word):
            found[one.word] = one.relaxes
    return found


def relaxed(instance: Instance, gang: Gang, word: str) -> Gang:
    """The gang without what the word stands for; an equal one if it does not ask for that."""
    for one in requirements():
        if one.word == word:
            gang = _relaxed(instance, gang, one)
    return gang


def _relaxed(instance: Instance, gang: Gang, one: Requirement) -> Gang:
    if one.relax_role is not None:
        return replace(gang, roles=tuple(map(one.relax_role, gang.roles)))
    if one.relax_gang is not None:
        return one.relax_gang(instance, gang)
    return undemanding(instance, gang, (one,))


# Of nodes, gangs and their roles


def eligible_nodes(instance: Instance, gang: Gang, role: Role) -> frozenset[int]:
    """Nodes that every rule lets pods of the role use, room aside."""
    sets = (d.eligible(instance, gang, role) for d in DECLARED if d.eligible is not None)
    found = [nodes for nodes in sets if nodes is not None]
    # an intersection of one would be a copy, without the hash that the set has computed
    return found[0] if len(found) == 1 else frozenset.intersection(*found)


def gang_key(instance: Instance, gang: Gang) -> tuple[Hashable, ...]:
    """What the rules distinguish of a waiting gang."""
    return tuple(d.gang_key(instance, gang) for d in DECLARED if d.gang_key is not None)


def own_variables(instance: Instance, gang: Gang) -> bool:
    """Whether some rule has rows for the gang, however few pods it has."""
    return any(d.own_variables(instance, gang) for d in DECLARED if d.own_variables is not None)


def node_sets(instance: Instance, gang: Gang, within: frozenset[int]) -> Iterator[frozenset[int]]:
    """The parts of a node set in which the whole gang may be."""
    found = [within]
    for declared in DECLARED:
        sets = declared.node_sets(instance, gang) if declared.node_sets is not None else None
        if sets is not None:
            found = [part & nodes for part in found for nodes in sets if part & nodes]
    yield from found


def allows(instance: Instance, gang: Gang, pods: Pods) -> bool:
    """Whether every rule lets the gang have these pods."""
    return all(d.allows(instance, gang, pods) for d in DECLARED if d.allows is not None)


# Of several gangs


def joint_rules() -> tuple[Declaration, ...]:
    """The rules about several gangs (section 2, 2.11 to 2.21), in the order in which repair looks at them."""
    return tuple(declared for declared in DECLARED if declared.joint)


def admitted(space: Space, gang: int, pods: tuple[PodPlacement, ...]) -> bool:
    """Whether the rules about several gangs let a gang have these pods too."""
    return all(d.admits(space, gang, pods) for d in DECLARED if d.admits is not None)


def breaking_on_empty(instance: Instance, pods: Sequence[Pods]) -> set[int]:
    """Gangs that break a rule about several which holds on the empty cluster, too."""
    found = set[int]()
    for declared in DECLARED:
        if declared.on_empty and declared.breaking is not None:
            found.update(declared.breaking(instance, pods))
    return found
