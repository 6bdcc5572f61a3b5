"""Rules about the pods of sets in tiny instances: which may be together, which must, and how evenly spread.

Promises: the words of rules 2.11 to 2.13, pod by pod and pair by pair; own code.
Called by the exhaustive planner alone.

Gangs are taken one after another, so a rule is settled once no gang that it is about is yet to come. Until
then its new pods are remembered; those that stay are known before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from exhaustive_nodes import NAME, attracted
from exhaustive_prices import domain, labels_of

from models.instance.gang import NextTo, Role, Spread
from models.instance.instance import Instance
from models.instance.solution import PodPlacement

Owner = tuple[int, int]
"""A role: (gang, number)."""

Place = tuple[str, ...]
"""A domain."""

Mark = tuple[Place, bool, bool]
"""A pod: its domain, whether its role has the rule, whether it is in the set."""

Marks = tuple[tuple[Mark, ...], ...]
"""Pods that each rule is about, in the order of ``PodRules.rules``."""

ENOUGH = {"apart": 2, "join": 1}
"""Of like pods so many are as good as more: a pair that may not be, somebody to join."""


@dataclass(frozen=True)
class PodRule:
    """A rule that some roles have in common. ``counted``: nodes whose pods matter; ``named``: has a set."""

    kind: Literal["apart", "join", "spread"]
    level: int
    named: str | None
    ruled: frozenset[Owner]
    members: frozenset[Owner]
    counted: frozenset[int]
    domains: frozenset[Place]
    max_skew: int = 0
    min_domains: int = 0

    def about(self, gang: int) -> bool:
        return any(g == gang for g, _ in self.ruled | self.members)

    def holds(self, stay: Sequence[Mark], new: Sequence[Mark]) -> bool:
        """Whether the plan with these pods keeps the rule."""
        starting = [place for place, ruled, _ in new if ruled]
        there = [place for place, _, member in (*stay, *new) if member]
        if self.kind == "apart":
            pods = [*((mark, False) for mark in stay), *((mark, True) for mark in new)]
            return not any(
                mine[0] == other[0] and mine[1] and other[2] and (mine_new or other_new)
                for (mine, mine_new), (other, other_new) in permutations(pods, 2)
            )
        if self.kind == "join":
            base = [place for place, _, member in stay if member]
            base += [place for place, ruled, member in new if member and not ruled]
            if base:
                return all(place in base for place in starting)
            return len(set(starting)) <= 1 and (not starting or bool(there))
        least = min((there.count(place) for place in self.domains), default=0)
        if len(self.domains) < self.min_domains:
            least = 0
        return all(there.count(place) - least <= self.max_skew for place in starting)

    def kept(self, marks: Collection[Mark]) -> tuple[Mark, ...]:
        """What is worth remembering of new pods."""
        most = ENOUGH.get(self.kind, len(marks))
        counts = sorted(Counter(marks).items())
        return tuple(mark for mark, count in counts for _ in range(min(count, most)))


class PodRules:
    """The rules of all roles of an instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.cluster = instance.cluster
        self.rules = tuple(self._rules())

    @property
    def named(self) -> bool:
        """Whether a rule is about a set, not about the pods of its role alone."""
        return any(rule.named is not None for rule in self.rules)

    def marks(self, gang: int, pods: Collection[tuple[int, int, int]]) -> Marks | None:
        """New pods (role, index, node) of a gang; None where a node has no value at the level of a rule."""
        for rule in self.rules:
            for r, _, n in pods:
                if (
                    rule.kind != "apart"
                    and (gang, r) in rule.ruled
                    and not self._has(rule.level, n)
                ):
                    return None
        return tuple(
            rule.kept([mark for r, _, n in pods for mark in self._mark(rule, (gang, r), n)])
            for rule in self.rules
        )

    def standing(self, stays: Sequence[Sequence[PodPlacement]]) -> Marks:
        """Pods that stay, those of no gang among them."""
        found = []
        for rule in self.rules:
            marks = [
                mark
                for g, pods in enumerate(stays)
                for pod in pods
                for mark in self._mark(rule, (g, pod.role), pod.node)
            ]
            for n, node in enumerate(self.cluster.nodes):
                others = dict(node.pod_sets).get(rule.named or "", 0) if n in rule.counted else 0
                marks += [(domain(self.cluster, rule.level, n), False, True)] * others
            found.append(tuple(sorted(marks)))
        return tuple(found)

    def after(
        self, standing: Marks, before: Marks, more: Marks, rest: Collection[int]
    ) -> Marks | None:
        """What is remembered with the pods of one more gang; None where a rule is broken.

        ``rest``: the gangs that are yet to come.
        """
        found = []
        for rule, stay, known, new in zip(self.rules, standing, before, more, strict=True):
            marks = rule.kept([*known, *new])
            open_still = any(rule.about(g) for g in rest)
            if (rule.kind == "apart" or not open_still) and not rule.holds(stay, marks):
                return None
            found.append(marks if open_still else ())
        return tuple(found)

    def hold(self, standing: Marks, new: Marks) -> bool:
        """Whether no rule is broken if nobody else comes."""
        rules = zip(self.rules, standing, new, strict=True)
        return all(rule.holds(stay, marks) for rule, stay, marks in rules)

    @property
    def nobody(self) -> Marks:
        return ((),) * len(self.rules)

    def _rules(self) -> Iterator[PodRule]:
        """Of anti-affinities and affinities that are the same, one; each spread by itself."""
        everywhere = frozenset(range(len(self.cluster.nodes)))
        together: dict[tuple[Literal["apart", "join"], NextTo, Owner | None], set[Owner]] = {}
        for owner, role in self._roles():
            for one in role.anti_affinity:
                mine = owner if one.pod_set is None else None
                together.setdefault(("apart", one, mine), set()).add(owner)
            for one in role.affinity:
                mine = owner if one.pod_set is None else None
                together.setdefault(("join", one, mine), set()).add(owner)
            for spread in role.spread:
                nodes = frozenset(n for n in everywhere if self._counts(role, n))
                places = frozenset(domain(self.cluster, spread.level, n) for n in nodes)
                members = self._members(spread, owner)
                yield PodRule(
                    "spread", spread.level, spread.pod_set, frozenset([owner]), members, nodes,
                    places, spread.max_skew, spread.min_domains,
                )  # fmt: skip
        for (kind, one, mine), ruled in together.items():
            members = self._members(one, mine)
            yield PodRule(
                kind, one.level, one.pod_set, frozenset(ruled), members, everywhere, frozenset()
            )

    def _roles(self) -> Iterator[tuple[Owner, Role]]:
        for g, gang in enumerate(self.instance.gangs):
            for r, role in enumerate(gang.roles):
                yield (g, r), role

    def _members(self, rule: NextTo | Spread, owner: Owner | None) -> frozenset[Owner]:
        if rule.pod_set is None:
            assert owner is not None
            return frozenset([owner])
        return frozenset(one for one, role in self._roles() if rule.pod_set in role.pod_sets)

    def _mark(self, rule: PodRule, owner: Owner, n: int) -> Iterator[Mark]:
        ruled, member = owner in rule.ruled, owner in rule.members
        if (ruled or member) and n in rule.counted:
            yield domain(self.cluster, rule.level, n), ruled, member

    def _has(self, level: int, n: int) -> bool:
        """Whether the node has a value at the level, and at all around it."""
        names = self.cluster.nodes[n].domains[: level + 1]
        return level == self.cluster.node_level or None not in names

    def _counts(self, role: Role, n: int) -> bool:
        """Whether pods on the node count for the spreads of the role, and its domains."""
        node = self.cluster.nodes[n]
        labels = labels_of(self.cluster, node)
        return (
            all(self._has(spread.level, n) for spread in role.spread)
            and all(labels.get(key) == value for key, value in role.node_selector)
            and attracted(role, {**labels, NAME: node.name})
        )
