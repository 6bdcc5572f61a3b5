"""Rules about the pods of one gang (contract 2.11 to 2.13): anti-affinity, affinity, spread.

A rule binds the new pods of its *owners* and is about the pods of its *members*, the set: roles of one gang.
Roles with equal rules share one. Whether they hold is a matter of counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from operator import attrgetter

from models.instance.gang import Gang, NextTo, Role, Spread, selects
from models.instance.instance import Instance, once
from models.instance.solution import PodPlacement, placed
from models.rules.declaration import Asked, Declaration, Pods, Requirement, dropping
from models.units import first_of

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


@once
def pod_rules(instance: Instance) -> PodRules:
    """The rules of an instance."""
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


_ruled = attrgetter("ruled")


def _rules(instance: Instance) -> Iterator[Rule]:
    """Every rule, roles with equal ones together."""
    for gang in (i for i, ruled in enumerate(instance.of_gangs(_ruled)) if ruled):
        spec = instance.gangs[gang]
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


def most_on_a_node(instance: Instance, gang: int, role: int) -> int | None:
    """The most new pods of the role on one node, None if no rule says so."""
    node_level = instance.cluster.node_level
    rules = pod_rules(instance).by_role.get((gang, role), ())
    apart = (r for r in rules if r.kind is Kind.APART and r.level == node_level)
    return 1 if any((gang, role) in rule.both for rule in apart) else None


# Whether rules hold: pods counted by domain while a plan is built


class SetCounts:
    """Pods of one set, on nodes that count, by domain of one level: ``all`` of them, and ``new`` ones.

    Rules about the same set, level and nodes share it.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._least: int | None = None
        self.all: dict[int, int] = {}
        self.new: dict[int, int] = {}
        self.total = 0

    def add(self, n: int, pods: int, *, new: bool) -> None:
        if self._rule.counts(n):
            d = self._rule.of[n]
            self.all[d] = self.all.get(d, 0) + pods
            self.new[d] = self.new.get(d, 0) + (pods if new else 0)
            self.total += pods
            self._least = None

    def least(self) -> int:
        """The fewest in one of the domains of a spread."""
        if self._least is None:
            self._least = min((self.all.get(d, 0) for d in self._rule.domains), default=0)
        return self._least


@dataclass(slots=True)
class OwnerCounts:
    """Pods of the owners of a rule in a domain: all and new ones, and those of them that are of the set.

    ``stray``: new ones on nodes that they may not be on.
    """

    all: int = 0
    new: int = 0
    all_both: int = 0
    new_both: int = 0
    stray: int = 0


class PodCounts:
    """The pods that rules are about, by domain, while a plan is built."""

    def __init__(self, rules: PodRules) -> None:
        self._rules = rules
        self._owners: dict[Rule, dict[int, OwnerCounts]] = {rule: {} for rule in rules.rules}
        shared: dict[tuple[object, ...], SetCounts] = {}
        self._sets: dict[Rule, SetCounts] = {}
        for rule in rules.rules:
            key = (rule.members, rule.level, rule.counted)
            self._sets[rule] = shared.setdefault(key, SetCounts(rule))
        self._of_role = {key: self._counting(key) for key in rules.by_role}

    def _counting(self, key: RoleKey) -> tuple[tuple[Rule, ...], tuple[SetCounts, ...]]:
        """The rules that a role owns, and what counts its pods as those of a set."""
        rules = self._rules.by_role[key]
        sets = dict.fromkeys(self._sets[rule] for rule in rules if key in rule.members)
        return tuple(rule for rule in rules if key in rule.owners), tuple(sets)

    def add(self, gang: int, pod: PodPlacement, *, new: bool, pods: int = 1) -> None:
        """Count a pod, or with ``pods`` -1 no longer."""
        key = (gang, pod.role)
        owned, sets = self._of_role.get(key, ((), ()))
        for one in sets:
            one.add(pod.node, pods, new=new)
        for rule in owned:
            own = self._owners[rule].setdefault(rule.of[pod.node], OwnerCounts())
            own.all += pods
            own.all_both += pods if key in rule.members else 0
            if new:
                own.new += pods
                own.new_both += pods if key in rule.members else 0
                own.stray += pods if pod.node not in rule.nodes else 0

    def owners(self, rule: Rule) -> Mapping[int, OwnerCounts]:
        """Pods of the owners by domain."""
        return self._owners[rule]

    def members(self, rule: Rule) -> Mapping[int, int]:
        """Pods of the set by domain, as far as they count."""
        return self._sets[rule].all

    def bases(self, rule: Rule) -> dict[int, int]:
        """By domain, pods that owners may join: those of the set, but for new ones of the owners."""
        own = self._owners[rule]
        return {
            d: pods - (own[d].new_both if d in own else 0)
            for d, pods in self._sets[rule].all.items()
        }

    def least(self, rule: Rule) -> int:
        """The fewest pods of the set in a domain of a spread."""
        return self._sets[rule].least() if rule.least_counts else 0

    def broken(self, rule: Rule) -> list[Collection[int]]:
        """Sets of domains; in each set some new pod has to go."""
        own, pods = self._owners[rule], self._sets[rule]
        stray = [d for d, here in own.items() if here.stray]
        if stray:
            return [(d,) for d in stray]
        if rule.kind is Kind.APART:
            return [(d,) for d, here in own.items() if here.all and _meet(here, pods, d)]
        new = [d for d, here in own.items() if here.new]
        if rule.kind is Kind.SPREAD:
            most = self.least(rule) + rule.max_skew if new else 0
            return [(d,) for d in new if pods.all.get(d, 0) > most]
        if pods.total > sum(own[d].new_both for d in new):
            return [(d,) for d in new if pods.all.get(d, 0) <= own[d].new_both]
        joined = len(new) == 1 and own[new[0]].new_both > 0
        return [tuple(new)] if new and not joined else []


def _meet(own: OwnerCounts, pods: SetCounts, d: int) -> bool:
    """Whether an owner and another pod of the set are in the domain, of which one is new."""
    members, stay = pods.all.get(d, 0), pods.all.get(d, 0) - pods.new.get(d, 0)
    pairs = own.all * members - own.all_both
    return pairs > (own.all - own.new) * stay - (own.all_both - own.new_both)


def breaking(instance: Instance, pods: Sequence[Pods]) -> list[int]:
    """Gangs whose rules do not hold in a plan. ``pods``: by gang."""
    rules = pod_rules(instance)
    counts = PodCounts(rules)
    for gang in rules.of:
        spec = instance.gangs[gang]
        stood = set(placed(spec, spec.running_pods))
        for pod in pods[gang]:
            counts.add(gang, pod, new=pod not in stood)
    return sorted(g for g, own in rules.of.items() if any(counts.broken(rule) for rule in own))


@once
def standing_exempt(instance: Instance) -> frozenset[tuple[int, int, int]]:
    """(gang, role, node) of pods that run and may break a rule only as long as they stay."""
    rules = pod_rules(instance)
    if not rules.rules:
        return frozenset()
    standing = [
        (gang, pod) for gang in sorted(rules.of) for pod in instance.gangs[gang].running_pods
    ]
    counts, found = PodCounts(rules), set[tuple[int, int, int]]()
    for gang, pod in standing:
        assert pod.node is not None
        counts.add(gang, PodPlacement(pod.role, pod.index, pod.node, None), new=True)
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


def _requirement(kind: Kind, name: str, field: str, asks: str) -> Requirement:
    """Rules of one kind. ``field``: of the roles that state them."""

    def asked(instance: Instance, role: Role) -> Iterator[Asked[Role]]:
        terms: Sequence[NextTo | Spread] = getattr(role, field)
        if terms:
            names = sorted({instance.cluster.level_name(one.level) for one in terms})
            yield Asked(first_of(names, 3, "level"), dropping(**{field: ()}))

    def concerns(instance: Instance, gang: int, _pods: Sequence[Pods]) -> bool:
        return kind in about(instance, gang)

    return Requirement(
        name,
        asks,
        of_role=asked,
        code=kind.value,
        concerns=concerns,
        on_empty=True,
        word="affinity",
        relaxes="rules about other pods: affinity, anti-affinity and spread",
    )


APART = _requirement(
    Kind.APART, "podAntiAffinity", "anti_affinity", "its pods keep apart from pods in one {}"
)
TOGETHER = _requirement(
    Kind.TOGETHER, "podAffinity", "affinity", "its pods must be next to pods in one {}"
)
SPREAD = _requirement(
    Kind.SPREAD, "topologySpread", "spread", "its pods must be spread evenly over each {}"
)


DECLARED = Declaration(
    "pods of the gang",
    (APART, TOGETHER, SPREAD),
    eligible=suitable_nodes,
    gang_key=rule_key,
    own_variables=lambda instance, gang: gang.key in pod_rules(instance).gangs,
    breaking=breaking,
    admits=lambda space, gang, pods: space.keeps_pod_rules(gang, pods),
)
