"""Rules about the pods of sets in a part of an instance: pods of other gangs become pods of no gang.

Every rule of the whole gets a set of its own in the part, since pods on nodes outside of it count in the
domains that it shares, and only there. What a part cannot know of other domains it takes for the worst.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from models.cluster import Node
from models.gang import Gang, NextTo, Role, Spread
from models.instance import Instance
from models.pod_rules import Kind, RoleKey, Rule, pod_rules
from models.solution import GangDecision

ALWAYS_EMPTY = 1 << 30
"""More domains than there are: the least counts as empty."""


@dataclass
class _Fixed:
    """Pods in no freed gang, by domain: of the set, and of the owners. ``elsewhere``: domains outside."""

    members: dict[int, int] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)
    elsewhere: bool = False


class PartRules:
    """The rules about some gangs on some nodes. ``nodes``: ascending; ``freed``: the gangs of the part."""

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        nodes: Sequence[int],
        freed: Collection[int],
    ) -> None:
        self._rules = pod_rules(instance)
        found = {rule: None for gang in sorted(freed) for rule in self._rules.of.get(gang, ())}
        about = [rule for rule in found if rule.stated.pod_set is not None]
        self._names = {rule: f"rule {number}" for number, rule in enumerate(about)}
        self._fixed = {rule: _fixed(decisions, rule, freed) for rule in about}
        self._sets: dict[int, dict[str, int]] = {}
        self._inside = {rule: {rule.of[n] for n in nodes if rule.counts(n)} for rule in found}
        for rule, fixed in self._fixed.items():
            first: dict[int, int] = {}
            for n in nodes:
                if rule.counts(n):
                    first.setdefault(rule.of[n], n)
            fixed.elsewhere = not fixed.members.keys() <= first.keys()
            for name, pods in (
                (self._names[rule], fixed.members),
                (_owners(self._names[rule]), fixed.owners),
            ):
                for d, count in pods.items():
                    if d in first:
                        self._sets.setdefault(first[d], {})[name] = count

    def node(self, n: int, node: Node) -> Node:
        """The node with the pods that rules of the part count."""
        if not self._rules.rules:
            return node
        return replace(node, pod_sets=tuple(sorted(self._sets.get(n, {}).items())))

    def gang(self, index: int, gang: Gang) -> Gang:
        """The gang with its rules about sets of the part."""
        if index not in self._rules.of:
            return gang
        roles = (self._role((index, number), role) for number, role in enumerate(gang.roles))
        return replace(gang, roles=tuple(roles))

    def _role(self, key: RoleKey, role: Role) -> Role:
        rules = self._rules.by_role.get(key, ())
        stated = {(rule.kind, rule.stated): rule for rule in rules if key in rule.owners}
        sets = (self._names[rule] for rule in rules if self._joins(key, rule))
        away = tuple(
            NextTo(rule.level, _owners(self._names[rule]))
            for rule in rules
            if key in rule.members and rule in self._fixed and self._fixed[rule].owners
            if rule.kind is Kind.APART
        )

        def next_to(kind: Kind, one: NextTo) -> NextTo:
            rule = stated.get((kind, one))
            return one if rule not in self._names else replace(one, pod_set=self._names[rule])

        return replace(
            role,
            pod_sets=(*role.pod_sets, *sets),
            anti_affinity=(*(next_to(Kind.APART, one) for one in role.anti_affinity), *away),
            affinity=tuple(next_to(Kind.TOGETHER, one) for one in role.affinity),
            spread=tuple(self._spread(stated.get((Kind.SPREAD, one)), one) for one in role.spread),
        )

    def _joins(self, key: RoleKey, rule: Rule) -> bool:
        """Whether the role is of the set in the part; not if it could be the first pod there only."""
        if key not in rule.members or rule not in self._names:
            return False
        alone = rule.kind is Kind.TOGETHER and key in rule.owners
        return not (alone and self._fixed[rule].elsewhere)

    def _spread(self, rule: Rule | None, one: Spread) -> Spread:
        if rule is None:
            return one
        whole = rule.least_counts and rule.domains <= self._inside[rule]
        return replace(
            one,
            pod_set=self._names.get(rule, one.pod_set),
            min_domains=1 if whole else ALWAYS_EMPTY,
        )


def _owners(name: str) -> str:
    return f"owners of {name}"


def _fixed(decisions: Sequence[GangDecision], rule: Rule, freed: Collection[int]) -> _Fixed:
    """The pods of gangs that are not freed, after the plan, and of no gang."""
    found = _Fixed()
    for n, pods in rule.fixed.items():
        if rule.counts(n):
            found.members[rule.of[n]] = found.members.get(rule.of[n], 0) + pods
    for gang, role in rule.roles:
        if gang in freed:
            continue
        for pod in decisions[gang].pods:
            if pod.role == role and rule.counts(pod.node):
                d = rule.of[pod.node]
                for keys, count in ((rule.members, found.members), (rule.owners, found.owners)):
                    if (gang, role) in keys:
                        count[d] = count.get(d, 0) + 1
    return found
