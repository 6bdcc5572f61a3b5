"""Where the pods of one gang could go on what a plan leaves: greedy placements, for the judge alone.

No placement proves nothing: there may be one. A placement that is found is checked by every rule
before it counts. Work is counted, so that the same plan is judged the same way everywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from heapq import nsmallest
from itertools import combinations, islice

from models.verify.eligibility import accepting, accepts
from models.verify.facts import Facts, Gang, Node, Pod, PodKey, Role
from models.verify.outcome import Outcome, Variant
from models.verify.rates import gpu_rates
from models.verify.rules.nodes import PODS, left_of

DOMAINS_TRIED = 3
"""Domains of one level that are tried for a gang or a slice: the fullest ones in which it fits."""

GPU_SETS_TRIED = 70
"""Sets of GPUs of one node that are compared: all 4 of 8."""

Left = tuple[int, Mapping[str, int]]
"""Free GPUs and resources of a node; a resource that is not listed has no limit."""

Caps = Mapping[int, int]
"""By node, how many pods of a role fit, nodes without room left out."""


class Work:
    """Work that is left of one part, and ``total`` of all parts, in visits of nodes, gangs or pods."""

    def __init__(self, total: int) -> None:
        self.begin(total)

    def begin(self, total: int) -> None:
        """Begin again with so much work."""
        self.left = self.total = total

    def part(self, most: int) -> None:
        """Begin a part of so much work."""
        self.left = min(most, self.total)

    def spend(self, visits: int) -> bool:
        """Whether there was any left before."""
        before = self.left
        self.left -= visits
        self.total -= visits
        return before > 0


class Grounds:
    """What is found once for all plans of an instance: nodes that roles may use, domains and GPU models."""

    def __init__(self, facts: Facts, work: Work) -> None:
        self.facts = facts
        self.work = work
        self._nodes: dict[object, dict[int, None]] = {}
        self._of_role: dict[int, Collection[int]] = {}
        self._numbers: dict[object, int] = {}
        self._alike: dict[int, int] = {}
        self._members: dict[int, dict[int, list[int]]] = {}

    def of(self, role: Role) -> Collection[int]:
        """Nodes that accept pods of the role, in order."""
        found = self._of_role.get(id(role))
        if found is None:
            key = accepting(role)
            if key not in self._nodes:
                self.work.spend(len(self.facts.nodes))
                nodes = enumerate(self.facts.nodes)
                self._nodes[key] = {n: None for n, node in nodes if accepts(node, role)}
            found = self._of_role[id(role)] = self._nodes[key]
        return found

    def alike(self, role: Role) -> int:
        """A number: roles of the same one fit equally often."""
        found = self._alike.get(id(role))
        if found is None:
            demand = (id(self.of(role)), role.gpus, tuple(role.requests.items()))
            found = self._alike[id(role)] = self._numbers.setdefault(demand, len(self._numbers))
        return found

    def members(self, level: int) -> Mapping[int, Sequence[int]]:
        """Nodes of every domain of a level."""
        if level not in self._members:
            found: dict[int, list[int]] = {}
            for n, node in enumerate(self.facts.nodes):
                found.setdefault(node.domain[level], []).append(n)
            self._members[level] = found
        return self._members[level]

    @cached_property
    def models(self) -> Mapping[str, Fraction]:
        """GPU models, the fastest first; 0 where the speed is not known."""
        speeds: dict[str, Fraction] = {}
        for node in self.facts.nodes:
            if node.model is not None:
                speed = node.model.relative_speed or Fraction(0)
                speeds[node.model.gpu] = max(speeds.get(node.model.gpu, speed), speed)
        return dict(sorted(speeds.items(), key=lambda one: (-one[1], one[0])))


class Room:
    """What one plan leaves on every node. ``base``: of the plan that ``outcome`` is a variant of."""

    def __init__(self, outcome: Outcome, grounds: Grounds, base: Room | None = None) -> None:
        self.outcome = outcome
        self.facts = outcome.facts
        self.grounds = grounds
        self._base = base
        self._left: dict[int, Left] = {}
        self._caps: dict[object, Caps] = {}
        self._sums: dict[object, dict[int, int]] = {}

    def beside(self, variant: Variant) -> Room:
        """What a variant of the plan leaves."""
        return Room(variant, self.grounds, self)

    @property
    def _touched(self) -> Collection[int]:
        return self.outcome.touched if isinstance(self.outcome, Variant) else ()

    def free(self, n: int) -> int:
        """The GPUs of what is left."""
        if self._base is not None and n not in self._touched:
            return self._base.free(n)
        return self.outcome.free_gpus[n]

    def left(self, n: int) -> Left:
        if self._base is not None and n not in self._touched:
            return self._base.left(n)
        if n not in self._left:
            node, use = self.facts.nodes[n], self.outcome.usage.nodes[n]
            self._left[n] = self.free(n), left_of(node, use, self.outcome.changes)
        return self._left[n]

    def caps(self, role: Role, model: str | None = None) -> Caps:
        """Pods of the role that fit, by node. ``model``: only nodes of this GPU model."""
        key = self.grounds.alike(role), model
        if key not in self._caps:
            nodes = self.grounds.of(role)
            if self._base is None:
                self.grounds.work.spend(len(nodes))
                found = {n: cap for n in nodes if (cap := self._cap(role, n, model))}
            else:
                found = dict(self._base.caps(role, model))
                for n in self._touched:
                    found.pop(n, None)
                    if n in nodes and (cap := self._cap(role, n, model)):
                        found[n] = cap
            self._caps[key] = found
        return self._caps[key]

    def sums(self, role: Role, level: int, model: str | None = None) -> Mapping[int, int]:
        """Pods of the role that fit, by domain of a level; level -1: all in domain 0."""
        key = (self.grounds.alike(role), model, level)
        if key not in self._sums:
            caps = self.caps(role, model)
            if self._base is None:
                found: dict[int, int] = {}
                for n, cap in caps.items():
                    domain = self._domain(n, level)
                    found[domain] = found.get(domain, 0) + cap
            else:
                found = dict(self._base.sums(role, level, model))
                before = self._base.caps(role, model)
                for n in self._touched:
                    domain = self._domain(n, level)
                    found[domain] = found.get(domain, 0) + caps.get(n, 0) - before.get(n, 0)
            self._sums[key] = found
        return self._sums[key]

    def _domain(self, n: int, level: int) -> int:
        return 0 if level < 0 else self.facts.nodes[n].domain[level]

    def _cap(self, role: Role, n: int, model: str | None) -> int:
        own = self.facts.nodes[n].model
        if model is not None and (own is None or own.gpu != model):
            return 0
        return fitting(role, self.left(n))


def fitting(role: Role, left: Left, most: int = 1 << 20) -> int:
    """Pods of the role that fit into what a node has left."""
    free, resources = left
    if role.gpus:
        most = min(most, free // role.gpus)
    if most and PODS in resources:
        most = min(most, int(resources[PODS]))
    for resource, amount in role.requests.items() if most else ():
        if amount and resource in resources:
            most = min(most, resources[resource] // amount)
    return max(0, most)


def placements(room: Room, gang: Gang) -> Iterator[dict[PodKey, Pod]]:
    """All pods of a gang at its least counts: a few ways, the narrowest first."""
    if all(room.sums(role, -1).get(0, 0) >= role.min for role in gang.roles):
        for model in _models(room, gang):
            yield from _on_model(room, gang, model)


def _models(room: Room, gang: Gang) -> Iterator[str | None]:
    """GPU models of which one is used alone, the fastest first; None: any, where the rules allow that."""
    roles, names = [role for role in gang.roles if role.gpus], room.grounds.models
    if roles and len(names) > 1:
        yield from names
    if len(names) < 2 or all(role.mix_models for role in roles):
        yield None


def _on_model(room: Room, gang: Gang, model: str | None) -> Iterator[dict[PodKey, Pod]]:
    facts, work, roles = room.facts, room.grounds.work, gang.roles
    own = [model if role.gpus else None for role in roles]
    caps = [room.caps(role, name) for role, name in zip(roles, own, strict=True)]
    for level in range(facts.node_level, (-1 if gang.required is None else gang.required) - 1, -1):
        sums = [room.sums(role, level, name) for role, name in zip(roles, own, strict=True)]
        if not work.spend(min(map(len, sums))):
            return
        for domain in _fullest(sums, roles):
            nodes = None if level < 0 else room.grounds.members(level)[domain]
            work.spend(10 + sum(map(len, caps if nodes is None else (nodes,))))
            pods = _Placing(room, gang, caps, nodes).all()
            if pods is not None:
                yield pods


def _fullest(sums: Sequence[Mapping[int, int]], roles: Sequence[Role]) -> list[int]:
    """Domains that hold every role by itself, the fullest first."""
    fit = [
        (sum(one[domain] for one in sums), domain)
        for domain in sums[0]
        if all(one.get(domain, 0) >= role.min for one, role in zip(sums, roles, strict=True))
    ]
    return [domain for _, domain in nsmallest(DOMAINS_TRIED, fit)]


class _Placing:
    """One attempt to place the pods of a gang. ``nodes``: on these alone; ``spent``: pods by node."""

    def __init__(
        self, room: Room, gang: Gang, caps: Sequence[Caps], nodes: Sequence[int] | None
    ) -> None:
        self.room = room
        self.facts = room.facts
        self.gang = gang
        self.caps = caps
        self.nodes = nodes
        self.spent: dict[int, list[PodKey]] = {}

    def all(self) -> dict[PodKey, Pod] | None:
        """All roles, those with the largest pods first, of equals those with least room; None: not found."""
        roles = self.gang.roles
        for number in sorted(
            range(len(roles)), key=lambda r: (-roles[r].gpus, sum(self.caps[r].values()), r)
        ):
            role, caps = roles[number], self.caps[number]
            nodes = [*caps] if self.nodes is None else [n for n in self.nodes if n in caps]
            layers = role.slices
            if role.required is not None:
                layers = (*layers, (1 << 30, role.required))
            keys = [(number, index) for index in range(role.first, role.first + role.min)]
            if not self._layered(keys, layers, nodes):
                return None
        return self._with_gpus()

    def _cap(self, number: int, n: int) -> int:
        """Pods of a role that still fit."""
        own = self.spent.get(n)
        if not own:
            return self.caps[number][n]
        free, resources = self.room.left(n)
        resources = dict(resources)
        for r, _ in own:
            role = self.gang.roles[r]
            free -= role.gpus
            if PODS in resources:
                resources[PODS] -= 1
            for resource, amount in role.requests.items():
                if resource in resources:
                    resources[resource] -= amount
        return fitting(self.gang.roles[number], (free, resources))

    def _layered(
        self, keys: Sequence[PodKey], layers: Sequence[tuple[int, int]], nodes: Sequence[int]
    ) -> bool:
        """Place pods of a role so that those of a slice share a domain; ``layers``: the outermost last."""
        if not layers:
            return self._fill(keys, nodes)
        groups: dict[int, list[PodKey]] = {}
        for key in keys:
            groups.setdefault(key[1] // layers[-1][0], []).append(key)
        return all(
            self._group(group, layers, nodes)
            for _, group in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
        )

    def _group(
        self, group: Sequence[PodKey], layers: Sequence[tuple[int, int]], nodes: Sequence[int]
    ) -> bool:
        """One slice, in the fullest domain that holds it."""
        domains: dict[int, list[int]] = {}
        for n in nodes:
            domains.setdefault(self.facts.nodes[n].domain[layers[-1][1]], []).append(n)
        rooms = {d: sum(self._cap(group[0][0], n) for n in own) for d, own in domains.items()}
        fit = sorted((room, domain) for domain, room in rooms.items() if room >= len(group))
        for _, domain in fit[:DOMAINS_TRIED]:
            before = {n: list(own) for n, own in self.spent.items()}
            if self._layered(group, layers[:-1], domains[domain]):
                return True
            self.spent = before
        return False

    def _fill(self, keys: Sequence[PodKey], nodes: Sequence[int]) -> bool:
        """Fill the roomiest nodes; the last pods go to the fullest node that holds them."""
        found = [(cap, n) for n in nodes if (cap := self._cap(keys[0][0], n))]
        if sum(cap for cap, _ in found) < len(keys):
            return False
        found.sort()
        left = list(keys)
        while left:
            at = min(bisect_left(found, (len(left), -1)), len(found) - 1)
            cap, n = found.pop(at)
            self.spent.setdefault(n, []).extend(left[:cap])
            left = left[cap:]
        return True

    def _with_gpus(self) -> dict[PodKey, Pod]:
        pods = {}
        for n, keys in self.spent.items():
            count = sum(self.gang.roles[r].gpus for r, _ in keys)
            mask = self._gpus(n, count) if count else 0
            for role, index in sorted(keys):
                each = self.gang.roles[role].gpus
                own = mask
                if mask is not None:
                    own, mask = _lowest(mask, each), mask & ~_lowest(mask, each)
                pods[role, index] = Pod(role, index, n, own if each else 0)
        return pods

    def _gpus(self, n: int, count: int) -> int | None:
        """GPUs for the new pods on a node, those that reach most; None where the plan must not name them."""
        node, use = self.facts.nodes[n], self.room.outcome.usage.nodes[n]
        assert node.model is not None, "a node without a model has no room for GPUs"
        exact = self.facts.policy.gpu_binding == "exact" or node.model.switched
        if use.unaccounted(node) or not exact:
            return None
        every = [1 << i for i in range(node.gpus) if (node.healthy & ~use.known) >> i & 1]
        if node.model.switched:
            return sum(every[:count])
        sets = (sum(one) for one in islice(combinations(every, count), GPU_SETS_TRIED))
        return max(sets, key=lambda mask: _inside(node, mask))


def _inside(node: Node, mask: int) -> Fraction:
    """What a set of GPUs of a node reaches at least; 0 where a rate is not known."""
    assert node.model is not None, "it has GPUs"
    try:
        found = gpu_rates.inside(node.model, mask)
    except gpu_rates.RateNotKnownError:
        return Fraction(0)
    return Fraction(0) if found is None else found.low


def _lowest(mask: int, count: int) -> int:
    """The lowest GPUs of a mask."""
    found = 0
    for _ in range(count):
        found |= (mask & ~found) & -(mask & ~found)
    return found
