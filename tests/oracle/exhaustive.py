"""The exhaustive planner: the best plan of a tiny instance, by trying every plan.

Promises: exact and deterministic; no solver, nothing of the formulation, of evaluating or of checking; prunes
only what cannot matter. Called by tests and by the sweep.

First it is chosen which standing pods stay exactly as they are, for all gangs at once: that settles which
GPUs and resources are there to be given, and what nobody knows about them. Then gangs are taken one after
another, highest priority first, so that those who may excuse a stop have come before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

from exhaustive_gangs import (
    Claims,
    Exclusion,
    Key,
    Option,
    Settled,
    Spares,
    least_counts,
    paused_until,
    places,
    pod_counts,
    running,
    service_of,
    settled,
    standing,
    whole,
    whole_gpu,
)
from exhaustive_queues import NOTHING, Part, Turns, arrived, promises, together
from exhaustive_rates import (
    Hold,
    Prices,
    best_rates,
    has_groups,
    holds_of,
    permille,
    subsets,
)
from exhaustive_reserving import Kept, Reserved, Reserving
from exhaustive_values import (
    MINIMISED,
    Tiers,
    admitted,
    beside,
    free_after,
    of_use,
    shares,
    tier_values,
    weight,
    whole_domains,
    whole_nodes,
)
from exhaustive_ways import (
    Left,
    Room,
    Scale,
    Spread,
    Spreading,
    Vector,
    Way,
    Ways,
    summed,
)

from models.hardware import Nic, ServerModel
from models.instance.gang import Gang
from models.instance.instance import Instance, once_each
from models.instance.solution import (
    Decision,
    GangDecision,
    MoveSet,
    PodPlacement,
    Reason,
    Solution,
    TierResult,
)
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import inside_MBps
from models.units import time_text

State = tuple[Room, ...]
"""Room of every node. The first entry is a mask of free GPUs, or their number on a blind node."""


class Ground:
    """The cluster with the pods of each gang that stay (``stays``), before any other is placed.

    ``standing``: the GPUs they hold. Per node, ``known``: GPUs known to be held; ``unknown``: how many are
    held or sick and not named; ``blind``: whether pods placed there get no GPU indices; ``free``: mask of
    the GPUs that may be given, on a blind node their number.
    """

    def __init__(
        self, instance: Instance, stays: Sequence[Sequence[PodPlacement]], *, gpus_differ: bool
    ) -> None:
        self.instance, self.nodes, self.stays = instance, instance.cluster.nodes, stays
        gangs = zip(instance.gangs, stays, strict=True)
        self.standing = [holds_of(gang.roles, pods) for gang, pods in gangs]
        known = [0] * len(self.nodes)
        unknown = [node.unknown_unhealthy for node in self.nodes]
        for holds in self.standing:
            for n, (mask, count) in holds.items():
                known[n] |= mask
                unknown[n] += count
        self.known, self.unknown = tuple(known), tuple(unknown)
        unbound = instance.policy.gpu_binding == "none"
        self.blind = tuple(
            unknown[n] > 0 or (unbound and node.model is not None and not node.model.switched)
            for n, node in enumerate(self.nodes)
        )
        masks = [node.healthy & ~held for node, held in zip(self.nodes, known, strict=True)]
        self.free = tuple(
            max(0, mask.bit_count() - unknown[n]) if self.blind[n] else mask
            for n, mask in enumerate(masks)
        )
        self.alike = tuple(
            not gpus_differ
            and node.model is not None
            and any_set_will_do(node.model, node.effective_nics)
            for node in self.nodes
        )

    def count(self, n: int, left: int) -> int:
        """Number of GPUs that ``left`` stands for on node n."""
        return left if self.blind[n] else left.bit_count()

    def left(self, n: int, left: int) -> int:
        """The same for sets of GPUs of which none is better than another."""
        return left.bit_count() if self.alike[n] and not self.blind[n] else left


@cache
def any_set_will_do(model: ServerModel, nics: tuple[Nic, ...]) -> bool:
    """Whether inside and N depend on the number of GPUs alone, tried on every set."""
    rates: dict[int, set[object]] = {}
    for chosen in range(1, 1 << model.gpus):
        rate = (inside_MBps(model, chosen), nics_MBps(model, nics, chosen))
        rates.setdefault(chosen.bit_count(), set()).add(rate)
    return all(len(seen) == 1 for seen in rates.values())


class Choosing:
    """Every choice of GPU sets for one spread of one gang, and the share it earns; rule 10 holds in each.

    Complete up to sets that price the same and leave the same room; which pod has which GPUs of a server is
    not tried: see ``covered``. What a blind node gives is a number, what another gives a mask.
    """

    def __init__(self, ground: Ground) -> None:
        self.ground, self.instance = ground, ground.instance
        self._prices = {j: Prices(self.instance, ground.known, joins=j) for j in (True, False)}
        self._choices: dict[tuple[object, ...], list[int]] = {}
        self._shares: dict[tuple[object, ...], int | None] = {}

    def takings(
        self, g: int, option: Option, spread: Spread, state: State, *, last: bool
    ) -> Iterator[tuple[tuple[int, ...], int | None]]:
        """(GPUs taken a node, share of the whole gang if it counts), rule 10 holding where it binds.

        After the ``last`` gang it does not matter which GPUs are left, only how many.
        """
        gang, base = self.instance.gangs[g], self.ground.standing[g]
        own = gang.min_bandwidth_share
        asked_of = self.instance.policy.min_bandwidth_share if own is None else own
        least = asked_of if option.bound else Fraction(0)
        used = sorted({n for n, gpus in enumerate(spread.gpus) if gpus} | set(base))
        total = sum(mask.bit_count() + blind for mask, blind in base.values()) + sum(spread.gpus)
        priced = option.admitted and total >= 2 and (gang.pattern != "none" or least > 0)
        prices = self._prices[gang.nvlink_across_nodes]
        several = len({prices.units[n] for n in used}) > 1
        asked = [n for n in used if spread.gpus[n]]
        sets = [
            self._sets(
                *(n, state[n][0], spread.gpus[n], base.get(n, (0, 0))[0]),
                (priced and not prices.fabric(n), priced and several, not last),
            )
            for n in asked
        ]
        for chosen in product(*sets):
            taken, holds = [0] * len(self.ground.nodes), dict(base)
            for n, gpus in zip(asked, chosen, strict=True):
                taken[n] = gpus
                mask, blind = base.get(n, (0, 0))
                holds[n] = (mask, blind + gpus) if self.ground.blind[n] else (mask | gpus, blind)
            share = None
            if priced:
                pods = self._pods(g, spread, taken) if has_groups(gang) else ()
                share = self._share(prices, gang, least, holds, pods)
            if share is not None or not priced:
                yield tuple(taken), share

    def _share(
        self,
        prices: Prices,
        gang: Gang,
        least: Fraction,
        holds: Mapping[int, Hold],
        pods: tuple[PodPlacement, ...],
    ) -> int | None:
        """share(gang), None where it is below the least that rule 10 asks for."""
        own = (gang.key, pods) if pods else tuple(sorted(holds.items()))
        key = (prices.joins, least, own)
        if key not in self._shares:
            if pods:
                found = best_rates(prices, gang, pods)
                assert found is not None
                rate, ideal = found
            else:
                bandwidth, ideal = prices.bandwidth(holds), prices.ideal(holds)
                assert bandwidth is not None
                rate = bandwidth
            self._shares[key] = None if rate < least * ideal else permille(rate, ideal)
        return self._shares[key]

    def _pods(self, g: int, spread: Spread, taken: Sequence[int]) -> tuple[PodPlacement, ...]:
        """The pods that stay, and the new ones with the lowest of the GPUs chosen on their node."""
        found, left = list(self.ground.stays[g]), list(taken)
        for role, index, n in spread.pods:
            count = self.instance.gangs[g].roles[role].gpus
            own: int | None = None
            if not self.ground.blind[n] or not count:
                own = next(subsets(left[n] if count else 0, count))
                left[n] &= ~own
            found.append(PodPlacement(role, index, n, own))
        return tuple(sorted(found))

    def _sets(
        self, n: int, free: int, count: int, own: int, matters: tuple[bool, bool, bool]
    ) -> list[int]:
        """GPU sets to try on a node: one of each (inside, N, room left) that matters."""
        if self.ground.blind[n]:
            return [count]
        key = (n, free, count, own, matters)
        if key not in self._choices:
            found: dict[tuple[object, ...], int] = {}
            for chosen in subsets(free, count):
                rates = self._prices[True].rates(n, (own | chosen, 0))
                worth = (*rates, self.ground.left(n, free & ~chosen))
                telling = tuple(v for v, counts in zip(worth, matters, strict=True) if counts)
                found.setdefault(telling, chosen)
            self._choices[key] = list(found.values())
        return self._choices[key]


# The best plan in which exactly these standing pods stay as they are: every way of every gang, one gang after
# another. What is worth remembering of the gangs taken so far is which room they left, who came where, and
# what they used up of limits: of two that are the same in all of it the one with the better sum of tiers is
# better whatever follows, because every tier but those of what is left over is a sum over gangs.

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
    ``evicted``: pods that count against each disruption budget; ``settled``: GPU models of services of which
    gangs are yet to come; ``part``: what all gangs so far add for queues; ``claims``: domains into which pods
    came, where gangs want to be alone; ``kept``: what is known of reservations.
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

    def __init__(self, ways: Ways, stays: Sequence[tuple[Key, ...]]) -> None:
        self.all, self.scale = ways, ways.scale
        self.instance, self.promises = ways.scale.instance, ways.promises
        self.ways = [of[left] for of, left in zip(ways.of, stays, strict=True)]
        self.most = [of[left] for of, left in zip(ways.most, stays, strict=True)]
        pods = [ways.staying(g, left) for g, left in enumerate(stays)]
        self.ground = Ground(self.instance, pods, gpus_differ=bool(ways.reserving.all))
        self.parts = [self._most_part(of) for of in self.ways]
        self.turns = Turns(self.instance)
        self.exclusion, self.spares = Exclusion(self.instance), Spares(self.instance)
        held = self.ground.standing
        self.claimed = [self.exclusion.claims(g, held[g]) for g in range(len(held))]
        room = ways.spreading.room(pods)
        self.start: State = tuple(zip(self.ground.free, room, strict=True))
        priorities = [-gang.priority for gang in self.instance.gangs]
        self.order = sorted(range(len(self.ways)), key=lambda g: (priorities[g], g))

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
        reserving = self.all.reserving
        self.choosing = Choosing(self.ground)
        self.least = [self._least(g) for g in range(len(self.ways))]
        self.idle = [next((way.part for way in of if way.idle), NOTHING) for of in self.ways]
        nobody = (0,) * len(self.instance.cluster.budgets)
        nothing = (NOTHING, frozenset[Any](), reserving.nothing, None)
        entries = [Entry(self.scale.zero, self.start, (), (0, 0), nobody, (), *nothing)]
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
        gains = (
            self._gain(g, way, share)
            for way in self.ways[g]
            if way.idle
            for _, share in self.choosing.takings(g, way.option, way.spread, self.start, last=True)
        )
        return max(gains, default=None)

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
                room: tuple[object, ...] = self._counts(after.state)  # all that counts in the end
                if rest:
                    left = enumerate(after.state)
                    room = tuple((self.ground.left(n, own), rest) for n, (own, rest) in left)
                limits = (after.moved, after.evicted)
                others = (after.settled, after.claims, after.kept, after.part)
                key = (room, after.arrivals, limits, others)
                if key not in found or after.value > found[key].value:
                    found[key] = after
        return list(found.values())

    def _after(self, g: int, entry: Entry, rest: Sequence[int]) -> Iterator[Entry]:
        gang, reserving = self.instance.gangs[g], self.all.reserving
        state = enumerate(entry.state)
        room = [(self.ground.count(n, left), amounts) for n, (left, amounts) in state]
        watched = self._watched(rest)
        awaited = {service_of(self.instance.gangs[other]) for other in rest}
        last = not rest and not reserving.all
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
            for taken, share in self.choosing.takings(
                g, way.option, way.spread, entry.state, last=last
            ):
                self.all.effort.one()
                value = summed(entry.value, self._gain(g, way, share))
                left, step = self._left(entry.state, way, taken), Step(g, way, taken, entry.step)
                kept = reserving.with_gang(
                    g, way.option, way.spread.pods, taken, entry.kept, way.part
                )
                limits = (moved, evicted, models, part, claims, kept)
                yield Entry(value, left, arrivals, *limits, step)

    def _allowed(self, part: Part) -> bool:
        """Whether the rules about queues let all gangs do this."""
        starts = [key[1] for key, _ in part if key[0] == "starts"]
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
        after = (before[0] + 1, before[1] + self.all.standing_gpus(g))
        pairs = list(zip(after, (limits.max_gangs, limits.max_gpus), strict=True))
        if any(most is not None and count > most for count, most in pairs):
            return None
        gangs, gpus = (0 if most is None else count for count, most in pairs)
        return gangs, gpus

    def _evicted(self, g: int, way: Way, before: tuple[int, ...]) -> tuple[int, ...] | None:
        """Pods that go of each disruption budget, None where one of them may not."""
        gang, budgets = self.instance.gangs[g], self.instance.cluster.budgets
        if not (way.option.moved or way.option.stopped):
            return before
        named = [pod.budgets for pod in gang.pods if pod.node is not None]
        own = [
            sum(budget.name in names for names in named) * (budget.namespace == gang.namespace)
            for budget in budgets
        ]
        after = tuple(a + b for a, b in zip(before, own, strict=True))
        spent = zip(after, budgets, own, strict=True)
        if any(len(names) > 1 for names in named) or any(
            n > budget.allowed for n, budget, more in spent if more
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
            able = [(e, part) for e, part in ends if self._allowed(part)]
            reached = (summed(self._room(e), self._of_queues(part), *idle) for e, part in able)
            front = max(reached, default=None)
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
        return summed(entry.value, self.scale.room(self._counts(entry.state)))

    def _left(self, state: State, way: Way, taken: Sequence[int]) -> State:
        found = []
        for n, ((left, amounts), gpus) in enumerate(zip(state, taken, strict=True)):
            rest = left - gpus if self.ground.blind[n] else left & ~gpus
            needs = zip(amounts, way.spread.needs[n], strict=True)
            found.append((rest, tuple(a - b for a, b in needs)))
        return tuple(found)


def _arrived(
    before: Arrivals, nodes: frozenset[int], priority: int, watched: Mapping[int, int]
) -> Arrivals:
    """Who came where, as far as a gang yet to come could be excused by it."""
    highest = dict(before)
    for n in nodes:
        highest[n] = max(priority, highest.get(n, priority))
    return tuple(sorted((n, p) for n, p in highest.items() if n in watched and p > watched[n]))


# From the choices of the exhaustive planner to decisions: pods with GPUs, what it is called, and why.


def decided(instance: Instance, ground: Ground, last: Step | None) -> tuple[GangDecision, ...]:
    """The plan that a chain of steps describes."""
    steps: dict[int, Step] = {}
    while last is not None:
        steps[last.gang] = last
        last = last.before
    pods = [
        tuple(sorted((*ground.stays[g], *_named(ground, gang, steps[g]))))
        for g, gang in enumerate(instance.gangs)
    ]
    return tuple(
        GangDecision(kind, pods[g], _reason(instance, pods, g, kind))
        for g, gang in enumerate(instance.gangs)
        for kind in (_kind(gang, pods[g]),)
    )


def _named(ground: Ground, gang: Gang, step: Step) -> Iterator[PodPlacement]:
    """The new pods with their GPUs: on each node the lowest go to the first pod."""
    left = list(step.taken)
    for r, index, n in step.way.spread.pods:
        count = gang.roles[r].gpus
        if count == 0:
            yield PodPlacement(r, index, n, 0)
        elif not ground.blind[n]:
            own = next(subsets(left[n], count))
            left[n] &= ~own
            yield PodPlacement(r, index, n, own)
        elif ground.unknown[n] == 0 and count == ground.nodes[n].gpus:
            yield PodPlacement(r, index, n, ground.nodes[n].healthy)
        else:
            yield PodPlacement(r, index, n, None)


def _kind(gang: Gang, pods: Sequence[PodPlacement]) -> Decision:
    before, after = places(standing(gang)), places(pods)
    if not running(gang):
        return "place" if after else "wait"
    if not after:
        return "preempt"
    if before == after:
        return "keep"
    if any(after.get(key, place) != place for key, place in before.items()):
        return "move"
    return "resize" if whole(gang, before) else "complete"


def _reason(
    instance: Instance, pods: Sequence[Sequence[PodPlacement]], g: int, kind: Decision
) -> Reason | None:
    gang = instance.gangs[g]
    if kind == "preempt":
        by = [
            {"gang": "/".join(instance.gangs[i].key), "priority": instance.gangs[i].priority}
            for i in _above(instance, pods, g)
        ]
        return Reason.of("Preempted", by=by)
    missing = not whole(gang, places(standing(gang)))
    if gang.hold is not None and (kind == "wait" or (kind == "keep" and missing)):
        if gang.hold.code == "Backoff" and (again := paused_until(instance, gang)) is not None:
            return Reason.of(gang.hold.code, until=time_text(again))
        return Reason.of(gang.hold.code, text=gang.hold.message)
    if kind == "wait":
        return Reason.of("NoRoom", text="it is left out")
    return Reason("Incomplete") if kind == "keep" and missing else None


def _above(instance: Instance, pods: Sequence[Sequence[PodPlacement]], g: int) -> list[int]:
    """The gangs that come to nodes of a gang that is stopped, of higher priority or to reclaim."""
    found = []
    nodes = {pod.node for pod in standing(instance.gangs[g])}
    for other, gang in enumerate(instance.gangs):
        stood: Mapping[tuple[int, int], tuple[int, int | None]] = places(standing(gang))
        come = {p.node for p in pods[other] if stood.get((p.role, p.index), (-1, 0))[0] != p.node}
        higher = gang.priority > instance.gangs[g].priority and bool(come & nodes)
        if higher or any(
            n in nodes and promises(instance).reclaims(g, other, n, gpus=gpus)
            for n, gpus in arrived(gang, [(p.role, p.index, p.node) for p in pods[other]])
        ):
            found.append(other)
    assert found, f"nobody comes for {instance.gangs[g].name}"
    return found


# The exhaustive planner: the best plan of a tiny instance, by trying every plan.


class NobodyAwayError(ValueError):
    """There is no plan in which all that are to be away are."""


@dataclass(frozen=True)
class Best:
    """``tiers``: the best values, in the order of the policy; ``decisions``: a plan that has them."""

    tiers: Tiers
    decisions: tuple[GangDecision, ...]

    def solution(self, moves: tuple[MoveSet, ...] = ()) -> Solution:
        """The plan in the form a search returns; ``moves``: what its moves bought."""
        return Solution(
            decisions=self.decisions,
            tiers=tuple(
                TierResult(name, "min" if name in MINIMISED else "max", v, v, v, "exact")
                for name, v in self.tiers
            ),
            stopped_by="proof",
            solver="exhaustive",
            moves=moves,
        )


def plan(
    instance: Instance,
    immovable: frozenset[int] = frozenset(),
    reserved: Sequence[Reserved] = (),
    away: frozenset[tuple[int, int, int]] = frozenset(),
) -> Best:
    """The lexicographically best plan in which the gangs ``immovable`` do not move.

    It keeps the reservations given. ``away``: (gang, role, node) of which no pod is there.

    Raises ValueError for what is no matter of one best plan: tolerances, and the least gain of moves.
    """
    return _plan(instance, immovable, tuple(reserved), away)


@once_each
def _plan(
    instance: Instance,
    immovable: frozenset[int],
    reserved: tuple[Reserved, ...],
    away: frozenset[tuple[int, int, int]],
) -> Best:
    if any(objective.tolerance for objective in instance.policy.objectives):
        raise ValueError("the exhaustive planner knows no tolerances")
    if instance.policy.moves is not None and instance.policy.moves.min_gain > 0:
        raise ValueError("the exhaustive planner knows no least gain of moves")
    scale, spreading = Scale(instance), Spreading(instance)
    ways = Ways(scale, spreading, immovable, Reserving(instance, reserved), away)
    best: tuple[Vector, Step | None, Footing] | None = None
    for bound, footing in _footings(ways):
        if best is not None and bound <= best[0]:
            break
        found = footing.best(best[0] if best else None)
        if found is not None:
            best = (*found, footing)
    if best is None and away:
        raise NobodyAwayError
    assert best is not None  # everything may stay as it is, unless that breaks a reservation
    value, last, footing = best
    decisions = decided(instance, footing.ground, last)
    tiers = tier_values(instance, decisions)
    assert ways.scale.vector(dict(tiers)) == value, (tiers, value)
    return Best(tiers, decisions)


def _footings(ways: Ways) -> list[tuple[Vector, Footing]]:
    """Every choice of the pods that stay, the most promising first."""
    choices = [list(of) for of in ways.of]
    found: list[tuple[Vector, Footing]] = []
    for stays in product(*choices):
        ways.effort.one()
        footing = Footing(ways, stays)
        found.append((footing.bound(), footing))
    return sorted(found, key=lambda one: one[0], reverse=True)


# What the moves of a tiny plan bought: all of them as one set, against the best plan in which nobody moves.


def moves_of(instance: Instance, best: Best) -> tuple[MoveSet, ...]:
    """One set of all gangs that move; none where none does."""
    movers = frozenset(g for g, d in enumerate(best.decisions) if d.decision == "move")
    if not movers:
        return ()
    without = plan(instance, immovable=frozenset(range(len(instance.gangs)))).decisions
    mine, other = _worth(instance, best.decisions), _worth(instance, without)
    gpus, bandwidth, freed, nodes, domains = (a - b for a, b in zip(mine, other, strict=True))
    effective = None
    if any(objective.name == "goodput" for objective in instance.policy.objectives):
        effective = _goodput(instance, best.decisions) - _goodput(instance, without)
    moved = sum(
        pod_counts(instance.gangs[g].roles[pod.role])
        for g in movers
        for pod in standing(instance.gangs[g])
    )
    return (
        MoveSet(
            gangs=tuple(sorted(movers)),
            moved_gpus=moved,
            admitted=tuple(
                g
                for g, gang in enumerate(instance.gangs)
                if admitted(gang, best.decisions[g]) and not admitted(gang, without[g])
            ),
            gpus=gpus,
            bandwidth=bandwidth,
            whole_nodes=nodes,
            whole_domains=domains,
            gain=(
                (1000 * gpus if effective is None else effective)
                + 1000 * whole_gpu(instance) * freed
                + bandwidth
            )
            // (moved or whole_gpu(instance)),
            effective=effective,
        ),
    )


def _goodput(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """w x speed of the admitted gangs of every priority; those without GPUs, which weigh one, buy nothing."""
    values = tier_values(instance, decisions)
    total = sum(value for name, value in values if name.startswith("goodput/"))
    return total - 1000 * without_gpus(instance, decisions)


def without_gpus(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """Admitted gangs that ask for no GPU."""
    pairs = zip(instance.gangs, decisions, strict=True)
    return sum(admitted(gang, decision) and not least_counts(gang) for gang, decision in pairs)


def _worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    """GPUs admitted, w x share, GPUs of whole nodes, how many these are, and whole domains."""
    runs = [
        (gang, share)
        for gang, decision, share in zip(
            instance.gangs, decisions, shares(instance, decisions), strict=True
        )
        if admitted(gang, decision)
    ]
    counted = [(gang, share) for gang, share in runs if gang.pattern != "none"]
    free = free_after(instance, decisions)
    nodes = whole_nodes(instance.cluster, free)
    return (
        sum(weight(gang) for gang, _ in runs) - without_gpus(instance, decisions),
        sum(weight(gang) * (share or 0) for gang, share in counted),
        sum(nodes.values()),
        len(nodes),
        len(whole_domains(instance.cluster, free)),
    )
