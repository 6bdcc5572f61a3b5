"""The best plan of a tiny instance in which exactly these standing pods stay as they are.

Promises: every way of every gang, one gang after another; drops only what a known plan is as good as.
Called by the exhaustive planner alone.

What is worth remembering of the gangs taken so far is which room they left, who came where, and what they
used up of the limits of moves: of two that are the same in all of it the one with the better sum of tiers
is better whatever follows, because every tier but those of what is left over is a sum over gangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from exhaustive_beside import beside
from exhaustive_choosing import Choosing
from exhaustive_ground import Ground
from exhaustive_holding import Turns
from exhaustive_options import Key
from exhaustive_prices import Prices
from exhaustive_queues import NOTHING, Part, together
from exhaustive_reserving import Kept
from exhaustive_sameness import Sameness, State
from exhaustive_services import Settled, service_of, settled
from exhaustive_shape import Claims, Exclusion, Spares
from exhaustive_spreads import Room
from exhaustive_values import of_use
from exhaustive_ways import Left, Vector, Way, Ways, summed

Arrivals = tuple[tuple[int, int], ...]
"""(node, highest priority of those who came), where someone of lower priority may yet have to give way."""


@dataclass(frozen=True)
class Step:
    """One gang gone on with, and the GPUs taken on each node (a mask or a number)."""

    gang: int
    way: Way
    taken: tuple[int, ...]
    before: Step | None


@dataclass(frozen=True)
class Entry:
    """The best way found to leave a room; ``moved``: gangs and GPUs that count against the limits;
    ``evicted``: pods that count against each disruption budget;
    ``settled``: GPU models of services of which gangs are yet to come; ``marks``: new pods of rules
    about pods that are not settled; ``part``: what all gangs so far add for queues; ``claims``: domains
    into which pods came, where gangs want to be alone; ``kept``: what is known of reservations.
    """

    value: Vector
    state: State
    arrivals: Arrivals
    moved: tuple[int, int]
    evicted: tuple[int, ...]
    settled: Settled
    part: Part
    claims: Claims
    kept: Kept
    step: Step | None


class Footing:
    """``stays``: the pods of each gang that stay."""

    def __init__(
        self,
        ways: Ways,
        stays: Sequence[tuple[Key, ...]],
        prices: Mapping[bool, Prices] | None = None,
    ) -> None:
        self.all = ways
        self.scale = ways.scale
        self.instance = ways.scale.instance
        self.ways = [of[left] for of, left in zip(ways.of, stays, strict=True)]
        self.most = [of[left] for of, left in zip(ways.most, stays, strict=True)]
        pods = [ways.staying(g, left) for g, left in enumerate(stays)]
        self.ground = Ground(self.instance, pods)
        self.promises = ways.promises
        self.parts = [self._most_part(of) for of in self.ways]
        self.turns = Turns(self.instance)
        self.exclusion, self.spares = Exclusion(self.instance), Spares(self.instance)
        held = self.ground.standing
        self.claimed = [self.exclusion.claims(g, held[g]) for g in range(len(held))]
        room = ways.spreading.room(pods)
        self.start: State = tuple(zip(self.ground.free, room, strict=True))
        self.order = sorted(
            range(len(self.ways)), key=lambda g: (-self.instance.gangs[g].priority, g)
        )

    def bound(self) -> Vector:
        """No plan on this footing is worth more."""
        ceiling = self.scale.ceiling(self._counts(self.start))
        return summed(ceiling, self._of_queues(together(*self.parts)), *self.most)

    def _most_part(self, ways: Sequence[Way]) -> Part:
        """Of each thing that a gang adds for queues the most."""
        found: dict[tuple[object, ...], int] = {}
        for way in ways:
            for key, count in way.part:
                found[key] = max(count, found.get(key, 0))
        return frozenset(found.items())

    def _of_queues(self, part: Part) -> Vector:
        """The tiers about queues, and what gangs beside each other prefer."""
        near = self.scale.vector({"preference": beside(self.instance, part)})
        if not self.promises.queues:
            return near
        return summed(near, self.scale.vector(self.promises.values(part)))

    def best(self, known: Vector | None) -> tuple[Vector, Step | None] | None:
        """The best plan worth more than ``known``, None if there is none."""
        ground = self.ground
        extended = [g for g, ways in enumerate(self.ways) if any(w.option.new for w in ways)]
        reserving = self.all.reserving
        self.sameness = Sameness(
            ground,
            self.all.spreading.limits,
            extended,
            nodes_differ=bool(self.exclusion.levels)
            or self.promises.nodes_matter
            or any(gang.near is not None for gang in self.instance.gangs),
            gpus_differ=bool(reserving.all),
        )
        prices = {j: Prices(self.instance, ground.known, joins=j) for j in (True, False)}
        self.choosing = Choosing(ground, self.sameness, prices)
        self.least = [self._least(g) for g in range(len(self.ways))]
        self.idle = [next((way.part for way in of if way.idle), NOTHING) for of in self.ways]
        nobody = (0,) * len(self.instance.cluster.budgets)
        first = Entry(
            *(self.scale.zero, self.start, (), (0, 0), nobody, ()),
            part=NOTHING,
            claims=frozenset(),
            kept=reserving.nothing,
            step=None,
        )
        entries = [first]
        for position, g in enumerate(self.order):
            rest = self.order[position + 1 :]
            entries = self._leaders(self._extend(g, entries, rest), rest, known)
        able = [e for e in entries if self._allowed(e.part) and reserving.hold(e.kept)]
        winner = max(able, key=self._final, default=None)
        if winner is None or (known is not None and self._final(winner) <= known):
            return None
        return self._final(winner), winner.step

    def _least(self, g: int) -> Vector | None:
        """What the best way adds that can always be taken, None where there is none."""
        return max(
            (
                self._gain(g, way, share)
                for way in self.ways[g]
                if way.idle
                for _, share in self.choosing.takings(
                    g, way.option, way.spread, self.start, last=True
                )
            ),
            default=None,
        )

    def _gain(self, g: int, way: Way, share: int | None) -> Vector:
        """What a way adds once the gang has GPUs of this share."""
        if not way.option.admitted:
            return way.value
        return summed(way.value, self.scale.performance(g, share, way.relative))

    def _extend(self, g: int, entries: Sequence[Entry], rest: Sequence[int]) -> list[Entry]:
        """Every entry gone on with in every way of gang g; the best of those that leave the same."""
        found: dict[object, Entry] = {}
        for entry in entries:
            for after in self._after(g, entry, rest):
                room = self.sameness.key(after.state) if rest else self._last_key(after.state)
                limits = (after.moved, after.evicted)
                others = (after.settled, after.claims, after.kept, after.part)
                key = (room, after.arrivals, limits, others)
                if key not in found or after.value > found[key].value:
                    found[key] = after
        return list(found.values())

    def _last_key(self, state: State) -> tuple[object, ...]:
        """After the last gang a room is worth what it leaves: the numbers of free GPUs."""
        return self._counts(state)

    def _after(self, g: int, entry: Entry, rest: Sequence[int]) -> Iterator[Entry]:
        gang = self.instance.gangs[g]
        room = [
            (self.ground.count(n, left), amounts) for n, (left, amounts) in enumerate(entry.state)
        ]
        watched = self._watched(rest)
        awaited = {service_of(self.instance.gangs[other]) for other in rest}
        for way in self.ways[g]:
            self.all.effort.one()
            moved = self._moved(g, way, entry.moved)
            evicted = self._evicted(g, way, entry.evicted)
            if moved is None or evicted is None:
                continue
            part = together(entry.part, way.part)
            if not self._excused(gang.priority, way, entry.arrivals):
                if not self.promises.comers[g]:
                    continue
                part = together(part, self.promises.owing(g, way.option.excuse))
            if not self.promises.within_limits(part):
                continue
            models = settled(entry.settled, service_of(gang), way.spread.served)
            if models is None or not self.all.spreading.fits(room, way.spread):
                continue
            claims = self._claims(g, way, entry)
            if claims is None or not self._spares(room, way):
                continue
            models = tuple(one for one in models if one[0] in awaited)
            arrivals = _arrived(entry.arrivals, way.spread.arrivals, gang.priority, watched)
            last = not rest and not self.all.reserving.all
            takings = self.choosing.takings(g, way.option, way.spread, entry.state, last=last)
            for taken, share in takings:
                self.all.effort.one()
                value = summed(entry.value, self._gain(g, way, share))
                state = self._left(entry.state, way, taken)
                step = Step(g, way, taken, entry.step)
                kept = self.all.reserving.with_gang(
                    g, way.option, way.spread.pods, taken, entry.kept, way.part
                )
                yield Entry(
                    *(value, state, arrivals, moved, evicted, models),
                    part=part,
                    claims=claims,
                    kept=kept,
                    step=step,
                )

    def _allowed(self, part: Part) -> bool:
        """Whether the rules about queues let all gangs do this."""
        starts = (key[1] for key, _ in part if key[0] == "starts")
        return self.promises.allow(part) and self.turns.kept(
            g for g in starts if isinstance(g, int)
        )

    def _claims(self, g: int, way: Way, entry: Entry) -> Claims | None:
        """Where pods came with those of this gang, None where one comes that may not."""
        own = self.exclusion.claims(g, [n for n, gpus in enumerate(way.spread.gpus) if gpus])
        others = [claims for other, claims in enumerate(self.claimed) if other != g]
        if any(self.exclusion.clash(own, claims) for claims in (entry.claims, *others)):
            return None
        return entry.claims | own

    def _spares(self, room: Sequence[Room], way: Way) -> bool:
        """Whether enough nodes keep all their GPUs."""
        asked = zip(self.ground.nodes, room, way.spread.gpus, strict=True)
        idle = {n for n, (node, (free, _), gpus) in enumerate(asked) if free - gpus == node.gpus}
        return self.spares.kept(idle)

    def _moved(self, g: int, way: Way, before: tuple[int, int]) -> tuple[int, int] | None:
        """What counts against the limits of moves, None where it is too much; only what is limited."""
        limits = self.instance.policy.moves
        if limits is None or not way.option.moved:
            return before
        gangs, gpus = before[0] + 1, before[1] + self.all.standing_gpus(g)
        if limits.max_gangs is not None and gangs > limits.max_gangs:
            return None
        if limits.max_gpus is not None and gpus > limits.max_gpus:
            return None
        return (
            0 if limits.max_gangs is None else gangs,
            0 if limits.max_gpus is None else gpus,
        )

    def _evicted(self, g: int, way: Way, before: tuple[int, ...]) -> tuple[int, ...] | None:
        """Pods that go of each disruption budget, None where one of them may not."""
        gang = self.instance.gangs[g]
        if not (way.option.moved or way.option.stopped):
            return before
        named = [pod.budgets for pod in gang.pods if pod.node is not None]
        if any(len(names) > 1 for names in named):
            return None
        budgets = self.instance.cluster.budgets
        own = [
            sum(budget.name in names for names in named) * (budget.namespace == gang.namespace)
            for budget in budgets
        ]
        after = tuple(a + b for a, b in zip(before, own, strict=True))
        if any(
            n > budget.allowed for n, budget, more in zip(after, budgets, own, strict=True) if more
        ):
            return None
        return after

    def _excused(self, priority: int, way: Way, arrivals: Arrivals) -> bool:
        """2.7: somebody higher has come to a node on which the gang gives room; all higher ones have."""
        return not way.option.excuse or any(
            n in way.option.excuse and highest > priority for n, highest in arrivals
        )

    def _watched(self, rest: Sequence[int]) -> dict[int, int]:
        """Per node the lowest priority of a gang yet to come that may have to be excused there."""
        watched: dict[int, int] = {}
        for g in rest:
            priority = self.instance.gangs[g].priority
            for n in {n for way in self.ways[g] for n in way.option.excuse}:
                watched[n] = min(priority, watched.get(n, priority))
        return watched

    def _leaders(
        self, entries: list[Entry], rest: Sequence[int], known: Vector | None
    ) -> list[Entry]:
        """Drops entries that ``rest`` cannot lift above a plan: the one known, or the best of these with
        the rest left as it is, where that can be.
        """
        most = [self.most[g] for g in rest]
        idle = [value for g in rest if (value := self.least[g]) is not None]
        front: Vector | None = None
        if len(idle) == len(rest) and not self.all.reserving.all:
            standing = [self.idle[g] for g in rest]
            ends = ((e, together(e.part, *standing)) for e in entries)
            front = max(
                (
                    summed(self._room(e), self._of_queues(part), *idle)
                    for e, part in ends
                    if self._allowed(part)
                ),
                default=None,
            )
        kept = []
        for entry in entries:
            ceiling = self.scale.ceiling(self._counts(entry.state))
            queues = self._of_queues(together(entry.part, *(self.parts[g] for g in rest)))
            top = summed(entry.value, ceiling, queues, *most)
            if (known is None or top > known) and (front is None or top >= front):
                kept.append(entry)
        return kept

    def _counts(self, state: State) -> tuple[Left, ...]:
        """Number of GPUs free on every node, and of those with their share of it."""
        free = [self.ground.count(n, left) for n, (left, _) in enumerate(state)]
        named = zip(self.all.spreading.limits, state, strict=True)
        left = [dict(zip(names, amounts, strict=True)) for names, (_, amounts) in named]
        return tuple(zip(free, of_use(self.instance, free, left), strict=True))

    def _final(self, entry: Entry) -> Vector:
        """The entry's value with that of the room it leaves, and of what queues have."""
        return summed(self._room(entry), self._of_queues(entry.part))

    def _room(self, entry: Entry) -> Vector:
        """The entry's value with that of the room it leaves."""
        return summed(entry.value, self.scale.room(self._counts(entry.state)))

    def _left(self, state: State, way: Way, taken: Sequence[int]) -> State:
        return tuple(
            (
                left - gpus if self.ground.blind[n] else left & ~gpus,
                tuple(a - b for a, b in zip(amounts, way.spread.needs[n], strict=True)),
            )
            for n, ((left, amounts), gpus) in enumerate(zip(state, taken, strict=True))
        )


def _arrived(
    before: Arrivals, nodes: frozenset[int], priority: int, watched: Mapping[int, int]
) -> Arrivals:
    """Who came where, as far as a gang yet to come could be excused by it."""
    highest = dict(before)
    for n in nodes:
        highest[n] = max(priority, highest.get(n, priority))
    return tuple(sorted((n, p) for n, p in highest.items() if n in watched and p > watched[n]))
