"""Servers on which not only the number of GPUs counts: rows for the sets of GPUs that gangs have there.

Nodes of a domain with the same free GPUs, and GPUs of pods that may leave them, are one class. It has an
integer for each pattern of disjoint sets, of so many of its nodes; a pattern with GPUs of a pod needs one
that left. Of all sets that will do for some gangs, these have at most as many as patterns have, also in each
domain that some of them have. A gang on several servers has sets of any sizes in its domain, as many GPUs
together as it asks for; single GPUs are counted with the slots of nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import or_

from models.hardware import bits
from models.program.linear_program import Linear
from models.program.packing import MeshKind, MeshPatterns, Pattern
from models.program.slots.slot_rooms import Mode
from models.program.slots.slot_state import Slots

MAX_DOMAINS = 64
"""Sets are counted in so many innermost domains, and those around them, or else over all nodes."""

MAX_LEAVING = 3
"""Pods of a node that may leave it and are told apart; others count as gone."""

Place = tuple[int, int]
"""A level, and a domain of it."""

EVERYWHERE: Place = (-1, 0)

Asked = dict[frozenset[int], Linear]
"""By the sets of GPUs that will do, how many are taken."""

Scattered = tuple[int, int, int, Fraction, Fraction]
"""Level at which a gang is whole, GPUs of a pod, pods, least rate, oversubscription between servers."""

What = tuple[int, Fraction, Fraction | None]
"""GPUs, rate, oversubscription."""

Shared = tuple[Place, int, Fraction, Fraction]
"""A domain, and what gangs of equal pods need there."""


@dataclass(frozen=True, slots=True)
class NodePattern:
    """What so many nodes of a class have as ``variable`` says.

    ``gone``: positions of the pods that left them. ``free``: GPUs before anything comes; ``taken``: sets, by
    their size; ``left``: GPUs that are in none of them.
    """

    variable: int
    pattern: Pattern
    gone: frozenset[int]
    free: int
    taken: tuple[tuple[int, int], ...]
    left: int


@dataclass
class MeshClass:
    """Nodes that are alike, each with its pods that may leave it in the same order: 1 where one leaves.

    ``free``: GPUs of one while they stay.
    """

    free: int
    nodes: list[tuple[int, list[Linear]]]
    patterns: list[NodePattern]


class SlotMeshes:
    """The rows of one kind of server. ``classes``, ``patterns``: with them a plan finds its sets.

    ``homes``: of gangs on several servers, by domain of their level, a variable; ``shares``: of the sets of
    such gangs, by the pods of one.
    """

    def __init__(self, kind: MeshKind, model: Slots) -> None:
        self.kind, self._model, self._program = kind, model, model.program
        self._cluster = model.instance.cluster
        inner = self._cluster.node_level - 1
        few = inner >= 0 and len(self._cluster.domains[inner]) <= MAX_DOMAINS
        self.level = inner if few else -1
        self.homes: dict[Scattered, dict[int, int]] = {}
        self.shares: dict[Shared, dict[int, int]] = {}
        self._asked = defaultdict[Place, Asked](dict)
        self._ask_all()
        by_size = dict[int, frozenset[int]]()
        every = dict.fromkeys(masks for asked in self._asked.values() for masks in asked)
        for own in every:
            size = next(iter(own)).bit_count()
            by_size[size] = by_size.get(size, frozenset()) | own
        wanted = list(dict.fromkeys((*every, *by_size.values())))
        self._by_size = [(size, wanted.index(own)) for size, own in by_size.items()]
        self.patterns = MeshPatterns(wanted)
        self.classes = list(self._classes()) if wanted else []
        self._hold(wanted)

    def holds(self, mode: Mode) -> bool:
        """Whether what comes of a gang can only be on these nodes: all but single GPUs are in patterns."""
        return mode.option.demand.gpu_nodes <= self.kind.nodes

    def scattered(self, mode: Mode) -> Scattered | None:
        """What a gang on several servers needs there; None of others, and where each pod alone will do."""
        shape, sets, demand = mode.shape, self.kind.sets, mode.option.demand
        several = mode.level < self._cluster.node_level and self.holds(mode)
        if shape is None or shape.inside is None or not several:
            return None
        (role,), over = demand.gpu_roles, self._model.shapes.bounds.over(mode.level)
        if sets.masks(role.gpus, shape.inside, over) == sets.masks(role.gpus, Fraction(0), None):
            return None
        return min(mode.level, self.level), role.gpus, role.count, shape.inside, over

    def singles(self) -> Iterator[tuple[frozenset[int], int]]:
        """(nodes, how many come to them) of single GPUs of gangs on several servers."""
        for ((level, domain), gpus, *_), own in self.shares.items():
            if gpus == 1 and 1 in own:
                domains = self._cluster.domains[level] if level >= 0 else ()
                nodes = domains[domain].nodes if domains else self.kind.nodes
                yield self.kind.nodes.intersection(nodes), own[1]

    def _ask_all(self) -> None:
        scattered = defaultdict[Scattered, Linear](Linear)
        for mode in self._model.modes:
            shape, roles = mode.shape, mode.option.demand.gpu_roles
            if not roles or not self.holds(mode):
                continue
            alone = mode.level == self._cluster.node_level
            if key := self.scattered(mode):
                scattered[key].add(mode.variable)
            elif alone and shape is not None and shape.inside is not None:
                gpus = sum(role.gpus * role.count for role in roles)
                self._ask(EVERYWHERE, (gpus, shape.inside, None), mode.variable)
            else:
                for role in roles:
                    self._ask(EVERYWHERE, (role.gpus, Fraction(0), None), mode.variable, role.count)
        shared = defaultdict[Shared, list[tuple[int, int]]](list)
        for key, gangs in scattered.items():
            level, gpus, pods, least, over = key
            homes, every = self.homes.setdefault(key, {}), self._program.bound_above(gangs)
            for domain, most in self._fitting(key):
                homes[domain] = self._program.integer(0, min(every, most))
                shared[(level, domain), gpus, least, over].append((homes[domain], pods))
            self._program.equal(Linear().add_all(homes.values()).add_linear(gangs, -1))
        for key_here, homes_here in shared.items():
            self._scatter(key_here, homes_here)

    def _ask(self, place: Place, what: What, variable: int, count: int = 1) -> None:
        """So many sets, each of these GPUs, of a rate or a better one with an oversubscription."""
        if what[0] > 1 and (masks := self.kind.sets.masks(*what)):
            self._asked[place].setdefault(masks, Linear()).add(variable, count)

    def _fitting(self, key: Scattered) -> Iterator[tuple[int, int]]:
        """(domain, most gangs that it may have), of those with sets for one gang on two servers or more."""
        level, gpus, pods, least, over = key
        fits = defaultdict[int, list[tuple[int, int]]](list)
        for n in self.kind.nodes:
            mask, leaving = self._model.room.free_masks(n)
            free = reduce(or_, (gone for gone, _ in leaving), mask)
            for own in range(min(pods - 1, free.bit_count() // gpus), 0, -1):
                if any(not one & ~free for one in self.kind.sets.masks(own * gpus, least, over)):
                    fits[self._place(n, level)[1]].append((own, free.bit_count()))
                    break
        for domain, nodes in sorted(fits.items()):
            if sum(own for own, _ in nodes) >= pods:
                yield domain, sum(free for _, free in nodes) // (gpus * pods)

    def _scatter(self, key: Shared, homes: Iterable[tuple[int, int]]) -> None:
        """Sets for the pods of gangs, (variable, pods), that have a rate in a domain: two each or more."""
        program, (place, gpus, least, over) = self._program, key
        total, count, shares = Linear(), Linear(), self.shares.setdefault(key, {})
        for home, pods in homes:
            total.add(home, -pods)
            count.add(home, -2)
        most = -program.bound_below(total)
        for own in range(1, self.kind.sets.gpus // gpus + 1):
            if self.kind.sets.masks(own * gpus, least, over):
                shares[own] = program.integer(0, most // own)
                total.add(shares[own], own)
                count.add(shares[own])
                self._ask(place, (own * gpus, least, over), shares[own])
        program.equal(total)
        program.at_least(count, 0)

    def _place(self, n: int, level: int) -> Place:
        return (level, self._cluster.domain_of[level][n]) if level >= 0 else EVERYWHERE

    def _hold(self, wanted: Sequence[frozenset[int]]) -> None:
        """What is taken in a domain, and in those within it, is among the sets of its nodes."""
        supply = defaultdict[Place, list[NodePattern]](list)
        taken = defaultdict[Place, list[tuple[frozenset[int], Linear]]](list)
        for alike, level in product(self.classes, range(-1, self.level + 1)):
            supply[self._place(alike.nodes[0][0], level)] += alike.patterns
        for (last, domain), asked in self._asked.items():
            n = self._cluster.domains[last][domain].nodes[0] if last >= 0 else 0
            for level in range(-1, last + 1):
                taken[self._place(n, level)] += asked.items()
        for place, (at, own) in product(self._asked, enumerate(wanted)):
            row = Linear()
            for masks, gangs in taken[place]:
                if masks <= own:
                    row.add_linear(gangs)
            if row.terms:
                for one in supply[place]:
                    row.add(one.variable, -one.pattern[at])
                self._program.at_most(row)

    def _classes(self) -> Iterator[MeshClass]:
        found: dict[tuple[Place, int, tuple[int, ...]], MeshClass] = {}
        for n in sorted(self.kind.nodes):
            mask, leaving = self._model.room.free_masks(n)
            some = leaving[:MAX_LEAVING]
            mask = reduce(or_, (gone for gone, _ in leaving[MAX_LEAVING:]), mask)
            free = min(mask.bit_count(), self._model.room.most(n))  # less if it is unknown which
            key = self._place(n, self.level), free, (mask, *(own for own, _ in some))
            one = found.setdefault(key, MeshClass(free, [], []))
            one.nodes.append((n, [left for _, left in some]))
        for (*_, masks), one in found.items():
            self._choose(masks, one)
            yield one

    def _choose(self, key: tuple[int, ...], one: MeshClass) -> None:
        """Variables of the patterns of a class: at most one a node, and none with GPUs of who stays."""
        every, using = Linear(), [Linear() for _ in key[1:]]
        for pattern, gone in self._patterns(*key):
            taken = tuple((size, pattern[at]) for size, at in self._by_size if pattern[at])
            free = one.free + sum(key[1 + at].bit_count() for at in gone)
            left = free - sum(size * count for size, count in taken)
            if left < 0:
                continue
            variable = self._program.integer(0, len(one.nodes))
            one.patterns.append(NodePattern(variable, pattern, gone, free, taken, left))
            every.add(variable)
            for at in gone:
                using[at].add(variable)
        if every.terms:
            self._program.at_most(every, len(one.nodes))
        for at, own in enumerate(using):
            if own.terms:
                for _, leaving in one.nodes:
                    own.add_linear(leaving[at], -1)
                self._program.at_most(own)

    def _patterns(self, mask: int, *others: int) -> list[tuple[Pattern, frozenset[int]]]:
        """The patterns of a mask, and of those of pods that are gone."""
        found: list[tuple[Pattern, frozenset[int]]] = []
        for number in range(1 << len(others)):
            gone, free = frozenset(bits(number)), mask
            for at in gone:
                free |= others[at]
            own = self.patterns.of(free)
            found += ((pattern, gone) for pattern in own if gone or any(pattern[:-1]))
        return found
