"""The pods that rules about the pods of a gang are about, counted by domain while a plan is built."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from models.instance.solution import PodPlacement, placed
from models.rules.declaration import Asked, Declaration, Pods, Requirement, dropping
from models.rules.pod_rules import (
    Kind,
    PodRules,
    RoleKey,
    Rule,
    about,
    counted_at,
    pod_rules,
    rule_key,
    suitable_nodes,
)
from models.units import first_of


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

    relaxes = "rules about other pods: affinity, anti-affinity and spread"
    return Requirement(
        name,
        asks,
        of_role=asked,
        code=kind.value,
        concerns=concerns,
        on_empty=True,
        word="affinity",
        relaxes=relaxes,
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


def _has_pod_rules(instance: Instance, gang: Gang) -> bool:
    return gang.key in pod_rules(instance).gangs


DECLARED = Declaration(
    "pods of the gang",
    (APART, TOGETHER, SPREAD),
    eligible=suitable_nodes,
    node_key=counted_at,
    gang_key=rule_key,
    own_variables=_has_pod_rules,
    breaking=breaking,
    admits=lambda space, gang, pods: space.keeps_pod_rules(gang, pods),
)
