"""Rules about the pods of a gang (contract 2.11 to 2.13), domain by domain.

A rule (L, A) has owners, the roles that state it, and members, the roles of A. For every domain D of L, of
pods that are owners only, members only, or both: new[o], new[m], new[b], and with those that stay (linear in
the options) all[o], all[m], all[b]. M: a bound on the left side. y, z, u, f, v: booleans.
Anti-affinity, unless both pods of a pair stay:
    new[b] <= 1,    the others in D <= M (1 - new[b])
    new[o] <= M y,  all[m] + all[b] <= M (1 - y);    new[m] <= M z,  all[o] + all[b] <= M (1 - z)
Affinity, base(D) = all[m] + those of all[b] that stay:
    pods of an option in D <= its pods x u[D],    u[D] <= base(D) + f[D]
    f[D] <= new[b],  sum of f <= 1,  sum of base <= M (1 - sum of f)
Spread, n(D) = all[m] + all[b] on nodes that count, t the least, a constant 0 with too few domains:
    t <= n(D) for every D that counts
    pods of an option in D <= its pods x v[D],    n(D) <= t + maxSkew + M (1 - v[D])
    where all[m] and those of all[b] that stay are 0:  new[b] <= t + maxSkew
Pods of a *loose* demand that come to where some stand already count as pods that stay, but hinder no f: that
allows more than the rules do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from models.program.linear_program import Linear, check
from models.program.variables import GangVariables, Model, staying
from models.rules.pod_rules import Kind, RoleKey, Rule, pod_rules

OWNER, MEMBER, BOTH = range(3)


@dataclass
class _Place:
    """Pods of one rule in a domain, by ``OWNER``, ``MEMBER`` and ``BOTH``.

    ``new``, ``stays``: how many; ``arriving``: of each option and role that owns the rule, the pods placed
    there, and its pods in all. ``loose``: pods that arrive or stay, and count as those that stay.
    """

    new: list[Linear] = field(default_factory=lambda: [Linear() for _ in range(3)])
    stays: list[Linear] = field(default_factory=lambda: [Linear() for _ in range(3)])
    loose: Linear = field(default_factory=Linear)
    arriving: list[tuple[Linear, int]] = field(default_factory=list)

    def all(self, *kinds: int) -> Linear:
        total = Linear()
        for kind in kinds:
            total.add_linear(self.new[kind]).add_linear(self.stays[kind])
        return total

    def arrive(self, *kinds: int) -> bool:
        return any(self.new[kind].terms for kind in kinds)


def add(model: Model) -> None:
    for rule in pod_rules(model.instance).rules:
        places, rows = _places(model, rule), _Rows(model, rule)
        if rule.kind is Kind.APART:
            for place in places.values():
                rows.apart(place)
        elif rule.kind is Kind.TOGETHER:
            rows.together(places)
        else:
            rows.spread(places)


def _places(model: Model, rule: Rule) -> dict[int, _Place]:
    """By domain."""
    found: dict[int, _Place] = {}
    for gang, role, n, stays in model.once(staying):
        if (gang, role) in rule.roles and rule.counts(n):
            place = found.setdefault(rule.of[n], _Place())
            place.stays[_kind(rule, (gang, role))].add_linear(stays)
    gangs = {gang for gang, _ in rule.roles}
    for own in (own for own in model.variables.gangs if own.demand.gang in gangs):
        check(model.program.interrupted)
        stand = {(pod.role, pod.node) for pod in own.gang.running_pods if own.demand.loose}
        for role, n, pods, count in _arrivals(own):
            key = (own.demand.gang, role)
            if key in rule.roles and rule.counts(n):
                kind, place = _kind(rule, key), found.setdefault(rule.of[n], _Place())
                loose = (role, n) in stand
                (place.stays if loose else place.new)[kind].add_linear(pods)
                if loose and kind == BOTH:
                    place.loose.add_linear(pods)
                if not loose and key in rule.owners:
                    place.arriving.append((pods, count))
    return found


def _kind(rule: Rule, key: RoleKey) -> int:
    if key in rule.both:
        return BOTH
    return OWNER if key in rule.owners else MEMBER


def _arrivals(gang: GangVariables) -> Iterator[tuple[int, int, Linear, int]]:
    """(role, node, pods placed there, pods in all) of an option."""
    for role in gang.roles.values():
        for n in gang.nodes:
            pods = gang.pods(role, (n,))
            if pods.terms:
                yield role.role, n, pods, role.count


class _Rows:
    def __init__(self, model: Model, rule: Rule) -> None:
        self._program = model.program
        self._rule = rule
        self._pods = {
            key: model.instance.gangs[key[0]].roles[key[1]].max for key in sorted(rule.roles)
        }
        self._total = sum(self._pods.values())

    def _most(self, pods: Linear) -> int:
        """The most that so many pods of the rule can be."""
        return min(self._program.bound_above(pods), self._total)

    def apart(self, place: _Place) -> None:
        if place.arrive(BOTH):
            others = place.all(OWNER, MEMBER).add_linear(place.stays[BOTH])
            self._excluded(place.new[BOTH], others, binary=True)
        if place.arrive(OWNER):
            self._excluded(place.new[OWNER], place.all(MEMBER, BOTH))
        if place.arrive(MEMBER):
            # those with new owners are excluded already
            others = Linear().add_linear(place.stays[OWNER]).add_linear(place.stays[BOTH])
            self._excluded(place.new[MEMBER], others)

    def _excluded(self, new: Linear, others: Linear, *, binary: bool = False) -> None:
        """New pods only where none of the others are. ``binary``: and one at most."""
        program, most = self._program, self._most(others)
        if program.bound_below(others) > 0:
            for variable in new.terms:
                program.fix(variable, 0)
            return
        if binary:
            program.at_most(Linear().add_linear(new), 1)
            present = new
        elif most > 0:
            present = Linear().add(program.boolean())
            program.at_most(Linear().add_linear(new).add_linear(present, -self._most(new)))
        if most > 0:
            program.at_most(Linear().add_linear(others).add_linear(present, most), most)

    def together(self, places: dict[int, _Place]) -> None:
        program = self._program
        bases = {
            d: Linear().add_linear(place.all(MEMBER)).add_linear(place.stays[BOTH])
            for d, place in places.items()
        }
        total, first = Linear(), dict[int, int]()
        for d, place in places.items():
            # loose pods may be the first ones themselves
            total.add_linear(bases[d]).add_linear(place.loose, -1)
        if program.bound_below(total) <= 0:
            for d, place in places.items():
                if place.arrive(BOTH):
                    first[d] = program.boolean()
                    program.at_most(Linear().add(first[d]).add_linear(place.new[BOTH], -1))
        if first:
            chosen, most = Linear().add_all(first.values()), self._most(total)
            program.at_most(Linear().add_linear(chosen), 1)
            if most > 0:
                program.at_most(total.add_linear(chosen, most), most)
        for d, place in places.items():
            if not place.arriving or program.bound_below(bases[d]) > 0:
                continue
            used = program.boolean()
            self._only_if(place, used)
            row = Linear().add(used).add_linear(bases[d], -1)
            program.at_most(row.add(first[d], -1) if d in first else row)

    def _only_if(self, place: _Place, used: int) -> None:
        """New pods of the owners in a domain only if it is used."""
        for pods, count in place.arriving:
            most = min(count, self._program.bound_above(pods))
            self._program.at_most(Linear().add_linear(pods).add(used, -most))

    def spread(self, places: dict[int, _Place]) -> None:
        program, rule = self._program, self._rule
        pods = {d: places[d].all(MEMBER, BOTH) if d in places else Linear() for d in rule.domains}
        most = min((self._most(here) for here in pods.values()), default=0)
        least = Linear()
        if rule.least_counts and most > 0:
            least.add(program.integer(0, most))
            for d in sorted(pods):
                program.at_most(Linear().add_linear(least).add_linear(pods[d], -1))
        for d, place in sorted(places.items()):
            beyond = self._most(pods[d]) - rule.max_skew
            if not place.arriving or beyond <= 0:
                continue
            row = Linear().add_linear(pods[d]).add_linear(least, -1)
            if pods[d].terms.keys() <= place.new[BOTH].terms.keys() and not pods[d].constant:
                program.at_most(row, rule.max_skew)  # those that count are those that are bound
                continue
            used = program.boolean()
            self._only_if(place, used)
            program.at_most(row.add(used, beyond), rule.max_skew + beyond)
