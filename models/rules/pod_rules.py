"""Rules about the pods of one gang (contract 2.11 to 2.13): anti-affinity, affinity, spread.

A rule binds the new pods of its *owners* and is about the pods of its *members*, the set: roles of one gang.
Roles with equal rules share one. Whether they hold is a matter of counts (``pod_counts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from models.instance.gang import Gang, NextTo, Role, Spread, selects
from models.instance.instance import Instance

RoleKey = tuple[int, int]
"""(gang, role)."""


class Kind(Enum):
    """What a rule asks for; the value is the code of a reason."""

    APART = "AntiAffinity"
    TOGETHER = "Affinity"
    SPREAD = "Spread"


@dataclass(frozen=True, eq=False)
class Rule:
    """``of``: the domain of every node at the level.

    ``nodes``: those that new pods of the owners may be on, as far as the levels are concerned. Of a spread
    only pods on these count, in ``domains``; ``least_counts`` False: the least is 0.
    """

    kind: Kind
    stated: NextTo | Spread
    owners: frozenset[RoleKey]
    members: frozenset[RoleKey]
    of: Sequence[int]
    nodes: frozenset[int] = frozenset()
    domains: frozenset[int] = frozenset()
    least_counts: bool = True

    @property
    def level(self) -> int:
        return self.stated.level

    @property
    def max_skew(self) -> int:
        return self.stated.max_skew if isinstance(self.stated, Spread) else 0

    @property
    def counted(self) -> frozenset[int] | None:
        """Nodes whose pods count; None for all."""
        return self.nodes if self.kind is Kind.SPREAD else None

    def counts(self, node: int) -> bool:
        """Whether pods on the node count."""
        return self.kind is not Kind.SPREAD or node in self.nodes

    @cached_property
    def roles(self) -> frozenset[RoleKey]:
        return self.members if self.owners <= self.members else self.owners | self.members

    @cached_property
    def both(self) -> frozenset[RoleKey]:
        """Owners that are of the set themselves."""
        return self.owners & self.members


@dataclass(frozen=True)
class PodRules:
    """The rules that can be broken. ``of``, ``by_role``: those about a gang or role, as owner or of the set.

    ``gangs``: keys of the gangs that some rule is about.
    """

    rules: tuple[Rule, ...]
    of: Mapping[int, tuple[Rule, ...]]
    by_role: Mapping[RoleKey, tuple[Rule, ...]]
    gangs: frozenset[tuple[str, str]]


def pod_rules(instance: Instance) -> PodRules:
    """The rules of an instance."""
    return instance.once(_pod_rules)


def _pod_rules(instance: Instance) -> PodRules:
    found = tuple(rule for rule in _rules(instance) if _can_break(instance, rule))
    of: dict[int, dict[Rule, None]] = {}
    by_role: dict[RoleKey, list[Rule]] = {}
    for rule in found:
        for key in sorted(rule.roles):
            of.setdefault(key[0], {})[rule] = None
            by_role.setdefault(key, []).append(rule)
    return PodRules(
        found,
        {gang: tuple(rules) for gang, rules in of.items()},
        {key: tuple(rules) for key, rules in by_role.items()},
        frozenset(instance.gangs[gang].key for gang in of),
    )


def _rules(instance: Instance) -> Iterator[Rule]:
    """Every rule, roles with equal ones together."""
    for gang, spec in enumerate(instance.gangs):
        for having in _owners(gang, spec).values():
            own, kind, stated = having[0]
            about = stated.pod_set
            members = (n for n, role in enumerate(spec.roles) if about in role.pod_sets)
            rule = Rule(
                kind,
                stated,
                frozenset(key for key, _, _ in having),
                frozenset({own} if about is None else {(gang, number) for number in members}),
                instance.cluster.domain_of[stated.level],
                named_nodes(instance, () if kind is Kind.APART else (stated.level,)),
            )
            yield _spread(instance, rule, own, stated) if isinstance(stated, Spread) else rule


def _owners(
    gang: int, spec: Gang
) -> dict[tuple[object, ...], list[tuple[RoleKey, Kind, NextTo | Spread]]]:
    """The roles of a gang that state each rule."""
    found: dict[tuple[object, ...], list[tuple[RoleKey, Kind, NextTo | Spread]]] = {}
    for number, role in enumerate(spec.roles):
        own = (gang, number)
        for kind, stated in _stated(role):
            about: object = own if stated.pod_set is None else stated.pod_set
            key: tuple[object, ...] = (kind, stated.level, about)
            if isinstance(stated, Spread):
                levels = tuple(sorted({one.level for one in role.spread}))
                matched = (role.node_selector, role.node_affinity)
                key = (*key, stated.max_skew, stated.min_domains, levels, matched)
            found.setdefault(key, []).append((own, kind, stated))
    return found


def _stated(role: Role) -> Iterator[tuple[Kind, NextTo | Spread]]:
    yield from ((Kind.APART, rule) for rule in role.anti_affinity)
    yield from ((Kind.TOGETHER, rule) for rule in role.affinity)
    yield from ((Kind.SPREAD, rule) for rule in role.spread)


def _spread(instance: Instance, rule: Rule, own: RoleKey, spread: Spread) -> Rule:
    role = instance.gangs[own[0]].roles[own[1]]
    nodes = counted_nodes(instance, role)
    domains = frozenset(rule.of[n] for n in nodes)
    enough = len(domains) >= spread.min_domains
    return replace(rule, nodes=nodes, domains=domains, least_counts=enough)


def counted_nodes(instance: Instance, role: Role) -> frozenset[int]:
    """Nodes on which a spread of the role counts pods: those that it selects, named at all its levels."""
    found = named_nodes(instance, (one.level for one in role.spread))
    if not role.node_selector and not role.node_affinity:
        return found
    nodes = ((n, instance.cluster.nodes[n]) for n in found)
    return frozenset(
        n
        for n, node in nodes
        if selects(role.node_selector, role.node_affinity, instance.labels_of(node), node.name)
    )


def named_nodes(instance: Instance, levels: Iterable[int]) -> frozenset[int]:
    """Nodes with a value at all of these levels; ``node`` has one everywhere."""
    cluster = instance.cluster
    depth = max((level for level in levels if level < cluster.node_level), default=-1)
    return instance.once(_named_nodes)[depth + 1]


def _named_nodes(instance: Instance) -> tuple[frozenset[int], ...]:
    """For each depth: the nodes with a value at so many levels from the widest."""
    cluster = instance.cluster
    return tuple(
        frozenset(n for n, node in enumerate(cluster.nodes) if None not in node.domains[:depth])
        for depth in range(len(cluster.levels) + 1)
    )


def _can_break(instance: Instance, rule: Rule) -> bool:
    """Whether some pods could break the rule."""
    if len(rule.nodes) < len(instance.cluster.nodes):
        return True
    roles = {key: instance.gangs[key[0]].roles[key[1]] for key in rule.roles}
    alone = len(roles) == 1 and all(role.max == 1 for role in roles.values())
    if rule.kind is Kind.TOGETHER:
        return not (alone and rule.both)
    if rule.kind is Kind.SPREAD:
        pods = sum(roles[key].max for key in rule.members)
        return pods > rule.max_skew
    if alone or not rule.members:
        return False
    if rule.level < instance.cluster.node_level:
        return True
    largest = max((node.gpus for node in instance.cluster.nodes), default=0)
    # GPUs keep such pods apart already
    return any(2 * role.gpus <= largest for role in roles.values())


def rule_key(instance: Instance, gang: Gang) -> tuple[object, ...] | None:
    """What the rules distinguish of a waiting gang."""
    if not pod_rules(instance).rules:
        return None
    return tuple(
        (role.pod_sets, role.anti_affinity, role.affinity, role.spread) for role in gang.roles
    )


def about(instance: Instance, gang: int) -> list[Kind]:
    """Kinds of rules that the gang states."""
    stated = {kind for role in instance.gangs[gang].roles for kind, _ in _stated(role)}
    return [kind for kind in Kind if kind in stated]


def suitable_nodes(instance: Instance, _gang: Gang, role: Role) -> frozenset[int] | None:
    """Nodes named at the levels that rules of the role ask for; None for all."""
    if not (role.affinity or role.spread):
        return None
    found = named_nodes(
        instance, (*(one.level for one in role.affinity), *(one.level for one in role.spread))
    )
    return None if len(found) == len(instance.cluster.nodes) else found


def counted_at(instance: Instance, node: int) -> tuple[bool, ...]:
    """Which spreads count pods on the node."""
    rules = pod_rules(instance).rules
    return tuple(node in rule.nodes for rule in rules if rule.kind is Kind.SPREAD)


def most_on_a_node(instance: Instance, gang: int, role: int) -> int | None:
    """The most new pods of the role on one node, None if no rule says so."""
    node_level = instance.cluster.node_level
    rules = pod_rules(instance).by_role.get((gang, role), ())
    apart = (r for r in rules if r.kind is Kind.APART and r.level == node_level)
    return 1 if any((gang, role) in rule.both for rule in apart) else None


def nodes_apart(instance: Instance) -> frozenset[int]:
    """Nodes that rules at the node level tell apart: where pods that they are about may be placed."""
    node_level, found = instance.cluster.node_level, frozenset[int]()
    for rule in pod_rules(instance).rules:
        if rule.level == node_level:
            for gang, role in rule.roles:
                found |= instance.eligible_nodes(instance.gangs[gang].roles[role])
    return found
