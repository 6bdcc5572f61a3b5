"""Rules about the pods of a gang: anti-affinity, affinity and spread (2.11 to 2.13).

A set is all pods, after the plan, of the roles of the gang that list it; a rule without a set is about the
pods of its own role. A pod is new if it is placed or moved. Rules bind new pods, and anti-affinity every
pair of pods of which one is new, whichever of both has the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.verify.changes import Change
from models.verify.eligibility import labelled, selected
from models.verify.facts import Facts, PodRule, Role
from models.verify.outcome import Outcome
from models.verify.rule import Judged, role_binds
from models.verify.violation import Violation, quoted

Member = tuple[int, int]
"""Position of a gang, and number of a role of it."""

SetKey = tuple[int, str | int]
"""Position of a gang, and the name of a set of it, or the number of a role for its own pods."""

Tally = Mapping[int, tuple[int, int]]
"""By node or domain: (pods that stay, new pods)."""


def check(outcome: Outcome) -> Iterator[Violation]:
    for position, change in enumerate(outcome.changes):
        if change.pods and any(role.pod_rules for role in change.gang.roles):
            yield from _of_gang(outcome, change, position)


def _of_gang(outcome: Outcome, change: Change, position: int) -> Iterator[Violation]:
    found: list[dict[int, tuple[int, int]]] = [{} for _ in change.gang.roles]
    for pod in change.pods.values():
        _add(found[pod.role], {pod.node: (1, 0)})
    for pod in change.binding:
        _add(found[pod.role], {pod.node: (-1, 1)})
    tallies = found
    sets = _Sets(outcome, change, tallies)
    joined: dict[tuple[int, SetKey], list[_Ruled]] = {}
    for number, tally in enumerate(tallies):
        for rule in dict.fromkeys(change.gang.roles[number].pod_rules if tally else ()):
            one = _Ruled(outcome.facts, change, (position, number), tally, rule)
            if rule.rule == "affinity":
                joined.setdefault((rule.level, one.set), []).append(one)
            elif rule.rule == "spread":
                yield from _spread(one, sets)
            else:
                yield from _apart(one, sets)
    for together in joined.values():
        yield from _together(together, sets)


@dataclass(frozen=True)
class _Ruled:
    """One rule of one role that has pods after the plan. ``nodes``: its pods."""

    facts: Facts
    change: Change
    member: Member
    nodes: Tally
    rule: PodRule

    @property
    def role(self) -> Role:
        return self.change.gang.roles[self.member[1]]

    @property
    def set(self) -> SetKey:
        position, number = self.member
        return position, number if self.rule.pod_set is None else self.rule.pod_set

    @property
    def belongs(self) -> bool:
        """Whether its pods are in the set."""
        return self.rule.pod_set is None or self.rule.pod_set in self.role.pod_sets

    @cached_property
    def domains(self) -> Tally:
        return _by_domain(self.facts, self.nodes, self.rule.level)

    @cached_property
    def placed(self) -> dict[int, int]:
        """A node of every domain that gets a new pod, by domain."""
        new = sorted((n for n, (_, new) in self.nodes.items() if new), reverse=True)
        return {self.facts.nodes[n].domain[self.rule.level]: n for n in new}

    def homeless(self) -> Iterator[Violation]:
        """New pods on nodes that have no value at the level."""
        for n in sorted(self.placed.values()):
            if not self.facts.nodes[n].has(self.rule.level):
                level = self.facts.level_name(self.rule.level)
                yield self.violation(f"is placed on node {self.facts.nodes[n].name}, in no {level}")

    def where(self, n: int) -> str:
        """The domain of a node."""
        name = f"node {self.facts.nodes[n].name}"
        if self.rule.level == self.facts.node_level:
            return name
        return f"the {self.facts.level_name(self.rule.level)} of {name}"

    @property
    def whose(self) -> str:
        """The pods of the set."""
        if self.rule.pod_set is None:
            return f"role {self.role.name}"
        return f"the set {quoted(self.rule.pod_set)}"

    def violation(self, what: str) -> Violation:
        return self.change.violation(self.rule.rule, f"role {self.role.name}: {what}")


class _Sets:
    """Pods of the sets of a gang by node. ``tallies``: of its roles."""

    def __init__(self, outcome: Outcome, change: Change, tallies: Sequence[Tally]) -> None:
        self.outcome = outcome
        self.facts = outcome.facts
        self._named: dict[str, dict[int, tuple[int, int]]] = {}
        self._domains: dict[tuple[SetKey, int], Tally] = {}
        self._counts: dict[object, tuple[Mapping[int, int], int]] = {}
        for role, tally in zip(change.gang.roles, tallies, strict=True):
            for name in role.pod_sets:
                _add(self._named.setdefault(name, {}), tally)

    def nodes(self, one: _Ruled) -> Tally:
        """Pods of the set of a rule."""
        return one.nodes if one.rule.pod_set is None else self._named.get(one.rule.pod_set, {})

    def domains(self, one: _Ruled) -> Tally:
        """The same by domain of its level."""
        key = (one.set, one.rule.level)
        if key not in self._domains:
            self._domains[key] = _by_domain(self.facts, self.nodes(one), one.rule.level)
        return self._domains[key]

    def counts(self, one: _Ruled) -> tuple[Mapping[int, int], int]:
        """Of a spread: pods of the set by domain, on the nodes that count, and what counts as the least."""
        level, role = one.rule.level, one.role
        levels = {rule.level for rule in role.pod_rules if rule.rule == "spread"}
        deepest = max(levels - {self.facts.node_level}, default=-1)  # nodes have a value there
        match = (tuple(role.selector.items()), id(role.affinity), deepest)
        key = (match, level, one.set, one.rule.min_domains)
        if key not in self._counts:
            nodes, domains = self._counting(role, match, level)
            there, found = self.nodes(one), dict[int, int]()
            few, many = sorted((nodes, there), key=len)
            for n in few:
                if n in many:
                    domain = self.facts.nodes[n].domain[level]
                    found[domain] = found.get(domain, 0) + sum(there[n])
            empty = len(found) < domains or domains < one.rule.min_domains
            self._counts[key] = found, 0 if empty else min(found.values(), default=0)
        return self._counts[key]

    def _counting(
        self, role: Role, match: tuple[object, object, int], level: int
    ) -> tuple[Collection[int], int]:
        """Nodes that count for a spread of the role, and how many domains they are in.

        ``match``: what tells roles apart, and the innermost level at which a node must have a value.
        """
        known = self.outcome.counting
        if match not in known:
            nodes = self.facts.nodes
            known[match] = {
                n
                for n in labelled(nodes, role, known)
                if nodes[n].named > match[2] and selected(nodes[n], role)
            }
        if (match, level) not in known:
            known[match, level] = {self.facts.nodes[n].domain[level] for n in known[match]}
        return known[match], len(known[match, level])


def _apart(one: _Ruled, sets: _Sets) -> Iterator[Violation]:
    """2.11: of two different pods, one of the role and one of the set, in one domain none is new."""
    others = sets.domains(one)
    for domain, (stay, new) in sorted(one.domains.items()):
        their_stay, their_new = others.get(domain, (0, 0))
        pairs = (stay + new) * (their_stay + their_new)
        standing = stay * their_stay
        if one.belongs:  # a pod is not apart from itself
            pairs, standing = pairs - stay - new, standing - stay
        if pairs > standing:
            n = min(n for n in one.nodes if one.facts.nodes[n].domain[one.rule.level] == domain)
            yield one.violation(
                f"must be apart from the pods of {one.whose}, but there are {their_stay + their_new} "
                f"in {one.where(n)}"
            )


def _together(group: list[_Ruled], sets: _Sets) -> Iterator[Violation]:
    """2.12: the roles of a group want to join the same set at the same level."""
    starting: dict[int, tuple[int, int]] = {}  # new pods of the group that are in the set
    for one in group:
        if one.belongs:
            _add(starting, {d: (0, new) for d, (_, new) in one.domains.items() if new})
    there = sets.domains(group[0])
    base = {d for d, (stay, new) in there.items() if stay + new > starting.get(d, (0, 0))[1]}
    together = set[int]().union(*(one.placed for one in group))
    for one in group:
        yield from one.homeless()
        if base:
            for domain, n in sorted(one.placed.items()):
                if domain not in base:
                    yield one.violation(f"no pod of {one.whose} is in {one.where(n)}")
        elif one.placed and not starting:
            yield one.violation(f"there is no pod of {one.whose}")
        elif one.placed and len(together) > 1:
            n = min(one.placed.values())
            yield one.violation(
                f"there is no pod of {one.whose}: those that start must be in one domain, such as "
                f"{one.where(n)}, not in {len(together)}"
            )


def _spread(one: _Ruled, sets: _Sets) -> Iterator[Violation]:
    """2.13: no domain that gets a pod has more than maxSkew pods above the least."""
    yield from one.homeless()
    if not one.placed:
        return
    counts, least = sets.counts(one)
    for domain, n in sorted(one.placed.items()):
        there = counts.get(domain, 0)
        if there - least > one.rule.max_skew:
            yield one.violation(
                f"{there} pods of {one.whose} are in {one.where(n)}, more than {one.rule.max_skew} "
                f"above the least, {least}"
            )


def _by_domain(facts: Facts, nodes: Tally, level: int) -> Tally:
    found: dict[int, tuple[int, int]] = {}
    for n, count in nodes.items():
        _add(found, {facts.nodes[n].domain[level]: count})
    return found


def _add(tally: dict[int, tuple[int, int]], more: Tally) -> None:
    for where, (stay, new) in more.items():
        before = tally.get(where, (0, 0))
        tally[where] = (before[0] + stay, before[1] + new)


RULE = Judged(
    check,
    {
        "anti-affinity": "no placed pod is in one domain with a pod that must be apart from it",
        "affinity": "a placed pod is in one domain with a pod of the set that its role wants to join",
        "spread": "no domain gets more pods than maxSkew above the one with the fewest",
    },
    on_empty=True,
    binds={"affinity": role_binds(lambda role: role.affinity or role.anti_affinity or role.spread)},
)
