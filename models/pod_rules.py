"""Rules about the pods of sets (contract 2.11 to 2.13): anti-affinity, affinity, spread.

A rule binds the new pods of its *owners* and is about the pods of its *members*, the set. Roles with
equal rules share one. Everything is counted by node; what holds of a domain follows from these counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from models.gang import Gang, NextTo, Role, Spread, matches
from models.instance import Instance
from models.solution import GangDecision, PodPlacement, placed

RoleKey = tuple[int, int]
"""(gang, role)."""


class Kind(Enum):
    """What a rule asks for; the value is the code of a reason."""

    APART = "AntiAffinity"
    TOGETHER = "Affinity"
    SPREAD = "Spread"


@dataclass(frozen=True, eq=False)
class Rule:
    """``fixed``: pods of the set in no gang, by node. ``of``: the domain of every node at the level.

    ``nodes``: those that new pods of the owners may be on, as far as the levels are concerned. Of a spread
    only pods on these count, in ``domains``; ``least_counts`` False: the least is 0.
    """

    kind: Kind
    stated: NextTo | Spread
    owners: frozenset[RoleKey]
    members: frozenset[RoleKey]
    fixed: Mapping[int, int]
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

    def counts(self, node: int) -> bool:
        """Whether pods on the node count."""
        return self.kind is not Kind.SPREAD or node in self.nodes

    @cached_property
    def roles(self) -> frozenset[RoleKey]:
        return self.owners | self.members

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
    owners = _owners(instance)
    if not owners:
        return
    joined: dict[str, list[RoleKey]] = {}
    for gang, spec in enumerate(instance.gangs):
        for number, role in enumerate(spec.roles):
            for name in role.pod_sets:
                joined.setdefault(name, []).append((gang, number))
    members = {name: frozenset(keys) for name, keys in joined.items()}
    fixed: dict[str, dict[int, int]] = {}
    for n, node in enumerate(instance.cluster.nodes):
        for name, pods in node.pod_sets:
            fixed.setdefault(name, {})[n] = pods
    for having in owners.values():
        own, kind, stated = having[0]
        about = stated.pod_set
        rule = Rule(
            kind,
            stated,
            frozenset(key for key, _, _ in having),
            frozenset({own}) if about is None else members.get(about, frozenset()),
            {} if about is None else fixed.get(about, {}),
            instance.cluster.domain_of[stated.level],
            named_nodes(instance, () if kind is Kind.APART else (stated.level,)),
        )
        yield _spread(instance, rule, own, stated) if isinstance(stated, Spread) else rule


def _owners(
    instance: Instance,
) -> dict[tuple[object, ...], list[tuple[RoleKey, Kind, NextTo | Spread]]]:
    """The roles that state each rule."""
    found: dict[tuple[object, ...], list[tuple[RoleKey, Kind, NextTo | Spread]]] = {}
    for gang, spec in enumerate(instance.gangs):
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
    nodes = instance.cluster.nodes
    labels = {n: instance.labels_of(nodes[n]) for n in found}
    return frozenset(
        n
        for n in found
        if all(labels[n].get(key) == value for key, value in role.node_selector)
        and matches(role.node_affinity, labels[n], nodes[n].name)
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
    alone = len(roles) == 1 and not rule.fixed and all(role.max == 1 for role in roles.values())
    if rule.kind is Kind.TOGETHER:
        return not (alone and rule.both)
    if rule.kind is Kind.SPREAD:
        pods = sum(roles[key].max for key in rule.members) + sum(rule.fixed.values())
        return pods > rule.max_skew
    if alone or not (rule.members or rule.fixed):
        return False
    if rule.level < instance.cluster.node_level or rule.fixed:
        return True
    largest = max((node.gpus for node in instance.cluster.nodes), default=0)
    # GPUs keep such pods apart already
    return any(2 * role.gpus <= largest for role in roles.values())


class Tally:
    """Pods of one rule in one domain: [owners, members, both], all and new ones."""

    __slots__ = ("all", "new")

    def __init__(self) -> None:
        self.all = [0, 0, 0]
        self.new = [0, 0, 0]


class _Counted:
    """Of one rule: ``here``, the domains with pods; of a spread only on nodes that count.

    ``having``: domains with pods of the owners, and of the set. ``meeting``: domains in which new pods break
    an anti-affinity. ``stray``: new pods of the owners on nodes that they may not be on, by domain.
    """

    __slots__ = ("having", "here", "meeting", "rule", "stray")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.here: dict[int, Tally] = {}
        self.having: tuple[dict[int, None], dict[int, None]] = ({}, {})
        self.meeting: dict[int, None] = {}
        self.stray: Counter[int] = Counter()
        for node, pods in rule.fixed.items():
            self.add(node, (False, True, False), pods, 0)

    def add(self, node: int, kinds: Sequence[bool], pods: int, new: int) -> None:
        """Count so many pods on a node, some of them new. ``kinds``: owners, members, both."""
        d = self.rule.of[node]
        if kinds[0] and node not in self.rule.nodes:
            self.stray[d] += new
        if self.rule.counts(node):
            self.add_to_domain(d, kinds, pods, new)

    def add_to_domain(self, d: int, kinds: Sequence[bool], pods: int, new: int) -> None:
        """The same for pods on nodes of a domain that all count, and where owners may be."""
        tally = self.here.setdefault(d, Tally())
        for i, counts in enumerate(kinds):
            if counts:
                tally.all[i] += pods
                tally.new[i] += new
                if i < len(self.having):
                    _keep(self.having[i], d, tally.all[i] > 0)
        if self.rule.kind is Kind.APART:
            _keep(self.meeting, d, _meet(tally))
        if not any(tally.all):
            del self.here[d]


def _keep(domains: dict[int, None], domain: int, holds: bool) -> None:  # noqa: FBT001
    if holds:
        domains[domain] = None
    else:
        domains.pop(domain, None)


def _by_domain(
    rule: Rule, nodes: Iterable[tuple[int, bool]], sign: int
) -> list[tuple[int, int, int]]:
    """(domain, pods, new pods) of pods on these nodes."""
    found: dict[int, tuple[int, int]] = {}
    for node, new in nodes:
        pods, new_pods = found.get(rule.of[node], (0, 0))
        found[rule.of[node]] = (pods + sign, new_pods + sign * new)
    return [(d, *counts) for d, counts in found.items()]


class PodCounts:
    """The pods of every rule, by domain, while a plan is built."""

    def __init__(self, rules: PodRules) -> None:
        self._rules = rules
        self._by_rule = {rule: _Counted(rule) for rule in rules.rules}

    def add(self, gang: int, pods: Iterable[tuple[PodPlacement, bool]], sign: int = 1) -> None:
        """Count pods, each with whether it is new, or with ``sign`` -1 no longer."""
        by_role: dict[int, list[tuple[int, bool]]] = {}
        for pod, new in pods:
            by_role.setdefault(pod.role, []).append((pod.node, new))
        for role, nodes in by_role.items():
            key = (gang, role)
            by_level: dict[int, list[tuple[int, int, int]]] = {}
            for rule in self._rules.by_role.get(key, ()):
                counted = self._by_rule[rule]
                kinds = (key in rule.owners, key in rule.members, key in rule.both)
                if rule.kind is not Kind.APART:
                    for node, new in nodes:
                        counted.add(node, kinds, sign, sign * new)
                    continue
                if (
                    rule.level not in by_level
                ):  # jobs that keep apart have as many rules as there are jobs
                    by_level[rule.level] = _by_domain(rule, nodes, sign)
                for d, all_pods, new_pods in by_level[rule.level]:
                    counted.add_to_domain(d, kinds, all_pods, new_pods)

    def by_domain(self, rule: Rule) -> Mapping[int, Tally]:
        """The tallies of domains with pods; of a spread only on nodes that count."""
        return self._by_rule[rule].here

    def closed(self, rule: Rule, key: RoleKey) -> list[int]:
        """Domains that an anti-affinity closes to a role by the pods there."""
        owners, members = self._by_rule[rule].having
        found = members if key in rule.owners else {}
        return sorted(found | owners if key in rule.members else found)

    def least(self, rule: Rule, here: Mapping[int, Tally]) -> int:
        """The fewest pods of the set in a domain of a spread."""
        if not rule.least_counts or not rule.domains <= here.keys():
            return 0
        return min(here[d].all[1] for d in rule.domains)

    def broken(self, rule: Rule) -> list[Collection[int]]:
        """Sets of domains; in each set some new pod has to go."""
        counted = self._by_rule[rule]
        here, stray = counted.here, sorted(d for d, pods in counted.stray.items() if pods)
        if stray:
            return [(d,) for d in stray]
        if rule.kind is Kind.APART:
            return [(d,) for d in counted.meeting]
        if rule.kind is Kind.SPREAD:
            most = self.least(rule, here) + rule.max_skew
            return [(d,) for d, t in here.items() if t.new[0] and t.all[1] > most]
        new = [d for d, tally in here.items() if tally.new[0]]
        if any(map(bases, here.values())):
            return [(d,) for d in new if not bases(here[d])]
        joined = len(new) == 1 and here[new[0]].new[2] > 0
        return [tuple(new)] if new and not joined else []


def bases(tally: Tally) -> int:
    """Pods that pods of the owners may join: those of the set, but for new ones of the owners."""
    return tally.all[1] - tally.new[2]


def _meet(tally: Tally) -> bool:
    """Whether an owner and another pod of the set are there, of which one is new."""
    owners, members, both = tally.all
    new_owners, new_members, new_both = tally.new
    staying = (owners - new_owners) * (members - new_members) - (both - new_both)
    return owners * members - both > staying


def conflicting(
    rules: PodRules, counts: PodCounts, new: Mapping[int, Sequence[PodPlacement]]
) -> list[tuple[int, ...]]:
    """Sets of gangs, of each of which one has to give way for a rule to hold. ``new``: pods by gang."""
    found: dict[tuple[int, ...], None] = {}
    for rule in rules.rules:
        binding = rule.owners if rule.kind is Kind.TOGETHER else rule.roles
        for domains in counts.broken(rule):
            there = {
                gang
                for gang, role in binding
                for pod in new[gang]
                if pod.role == role and rule.of[pod.node] in domains
                if rule.counts(pod.node) or (gang, role) in rule.owners
            }
            found[tuple(sorted(there))] = None
    return list(found)


def conflicts(instance: Instance, decisions: Sequence[GangDecision]) -> list[tuple[int, ...]]:
    """The same for a plan."""
    rules = pod_rules(instance)
    if not rules.rules:
        return []
    counts = PodCounts(rules)
    new: dict[int, list[PodPlacement]] = {}
    for gang in rules.of:
        spec = instance.gangs[gang]
        stood = set(placed(spec, spec.running_pods))
        new[gang] = [pod for pod in decisions[gang].pods if pod not in stood]
        counts.add(gang, [(pod, pod not in stood) for pod in decisions[gang].pods])
    return conflicting(rules, counts, new)


def rule_key(instance: Instance, gang: Gang) -> tuple[object, ...] | None:
    """What the rules distinguish of a waiting gang."""
    if not pod_rules(instance).rules:
        return None
    return tuple(
        (role.pod_sets, role.anti_affinity, role.affinity, role.spread) for role in gang.roles
    )


def about(instance: Instance, gang: int) -> list[Kind]:
    """Kinds of rules that the gang states or whose sets it is in."""
    spec = instance.gangs[gang]
    stated = {kind for role in spec.roles for kind, _ in _stated(role)}
    stated.update(rule.kind for rule in pod_rules(instance).of.get(gang, ()))
    return [kind for kind in Kind if kind in stated]


def without(instance: Instance, kinds: Collection[Kind] = tuple(Kind)) -> Instance:
    """The instance without rules of these kinds; itself if there are none."""
    names = {Kind.APART: "anti_affinity", Kind.TOGETHER: "affinity", Kind.SPREAD: "spread"}
    nothing: dict[str, Any] = {names[kind]: () for kind in kinds}
    roles = (role for gang in instance.gangs for role in gang.roles)
    if not any(getattr(role, name) for role in roles for name in nothing):
        return instance
    gangs = (
        replace(gang, roles=tuple(replace(role, **nothing) for role in gang.roles))
        for gang in instance.gangs
    )
    return replace(instance, gangs=tuple(gangs))


def suitable_nodes(instance: Instance, _gang: Gang, role: Role) -> frozenset[int] | None:
    """Nodes named at the levels that rules of the role ask for, away from pods of no gang; None for all."""
    if not (role.anti_affinity or role.affinity or role.spread):
        return None
    found = named_nodes(
        instance, (*(one.level for one in role.affinity), *(one.level for one in role.spread))
    )
    for rule in role.anti_affinity:
        found -= _closed_nodes(instance, rule)
    return None if len(found) == len(instance.cluster.nodes) else found


def _closed_nodes(instance: Instance, rule: NextTo) -> frozenset[int]:
    """Nodes of the domains in which pods of the set are that are in no gang."""
    known = instance.once(_closed)
    if rule not in known:
        cluster = instance.cluster
        of = cluster.domain_of[rule.level]
        having = (n for n, node in enumerate(cluster.nodes) if rule.pod_set in dict(node.pod_sets))
        domains = {of[n] for n in having} if rule.pod_set is not None else ()
        known[rule] = frozenset(n for d in domains for n in cluster.domains[rule.level][d].nodes)
    return known[rule]


def _closed(_instance: Instance) -> dict[NextTo, frozenset[int]]:
    return {}


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


def standing_exempt(instance: Instance) -> frozenset[tuple[int, int, int]]:
    """(gang, role, node) of pods that run and may break a rule only as long as they stay."""
    return instance.once(_standing_exempt)


def _standing_exempt(instance: Instance) -> frozenset[tuple[int, int, int]]:
    rules = pod_rules(instance)
    if not rules.rules:
        return frozenset()
    standing = [
        (gang, pod) for gang in sorted(rules.of) for pod in instance.gangs[gang].running_pods
    ]
    counts, found = PodCounts(rules), set[tuple[int, int, int]]()
    for gang, pod in standing:
        assert pod.node is not None
        counts.add(gang, [(PodPlacement(pod.role, pod.index, pod.node, None), True)])
    for rule in rules.rules:
        broken = {d for domains in counts.broken(rule) for d in domains}
        for gang, pod in standing:
            if pod.node is None or (gang, pod.role) not in rule.roles:
                continue
            # what others do may break a rule about the pods near a pod, or mend it
            changes = rule.kind is not Kind.APART and (gang, pod.role) in rule.owners
            if changes or (rule.kind is Kind.APART and rule.of[pod.node] in broken):
                found.add((gang, pod.role, pod.node))
    return frozenset(found)
