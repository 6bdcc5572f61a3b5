"""The exhaustive planner: the best plan of a tiny instance, by trying every plan.

Promises: exact and deterministic; no solver, nothing of the formulation, of evaluating or of checking;
prunes only what cannot matter (``Sameness``, ``Choosing``, ``_leaders``). Called by tests and by the sweep.

Gangs are taken one after another. What is worth remembering of the gangs taken so far is which room
they left: of two plans that leave the same room the one with the better sum of tiers is better whatever
follows, because every tier but ``stranded`` is a sum over gangs and ``stranded`` depends on the room alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from exhaustive_choosing import Choosing
from exhaustive_ground import Ground, standing
from exhaustive_prices import subsets
from exhaustive_sameness import Sameness, State
from exhaustive_spreads import Spread, Spreading
from exhaustive_values import (
    MINIMISED,
    Tiers,
    earnings,
    running,
    stranded,
    tier_names,
    tier_values,
    usable,
    weight,
)

from models.gang import Gang
from models.instance import Instance
from models.solution import GangDecision, PodPlacement, Reason, Solution, TierResult

Vector = tuple[int, ...]
"""One entry a tier, larger is better; ``stranded`` stays 0 until the end."""


@dataclass(frozen=True)
class Best:
    """``tiers``: the best values, in the order of the policy; ``decisions``: a plan that has them."""

    tiers: Tiers
    decisions: tuple[GangDecision, ...]

    def solution(self) -> Solution:
        """The plan in the form a search returns."""
        return Solution(
            decisions=self.decisions,
            tiers=tuple(
                TierResult(name, "min" if name in MINIMISED else "max", v, v, v, "exact")
                for name, v in self.tiers
            ),
            stopped_by="proof",
            solver="exhaustive",
        )


@dataclass(frozen=True)
class Step:
    """One gang started: the gang, its spread, and the GPUs taken on each node (a mask or a number)."""

    gang: int
    spread: Spread
    taken: tuple[int, ...]
    before: Step | None


@dataclass(frozen=True)
class Entry:
    """The best way found to leave a room."""

    value: Vector
    state: State
    step: Step | None


def plan(instance: Instance) -> Best:
    """The lexicographically best plan. Raises ValueError for tolerances, which it does not know."""
    if any(objective.tolerance for objective in instance.policy.objectives):
        raise ValueError("the exhaustive planner knows no tolerances")
    return _Search(instance).best()


class _Search:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.ground = ground = Ground(instance)
        self.names = tier_names(instance)
        self.spreading = Spreading(instance, ground.moving)
        self.sameness = Sameness(ground, self.spreading.limits)
        self.choosing = Choosing(ground, self.sameness)
        self._found: dict[int, list[tuple[Spread, Mapping[str, int]]]] = {}
        self.usable = tuple(usable(instance, node) for node in ground.nodes)
        self.start: State = tuple(zip(ground.free, self.spreading.room, strict=True))

    def best(self) -> Best:
        order = sorted(self.ground.moving, key=lambda g: (-self.instance.gangs[g].priority, g))
        entries = [Entry((0,) * len(self.names), self.start, None)]
        for position, g in enumerate(order):
            rest = order[position + 1 :]
            entries = self._leaders(self._extend(g, entries, last=not rest), rest)
        winner = max(entries, key=self._final)
        decisions = self._decisions(winner.step)
        tiers = tier_values(self.instance, decisions)
        summed = zip(self._final(winner), self._fixed(), strict=True)
        again = self._vector(dict(tiers))
        assert again == tuple(a + b for a, b in summed), (tiers, winner)
        return Best(tiers, decisions)

    def _fixed(self) -> Vector:
        """What running gangs add to every sum whatever is planned."""
        stay = dict(tier_values(self.instance, self._decisions(None)))
        return self._vector({**stay, "stranded": 0})

    def _extend(self, g: int, entries: Sequence[Entry], *, last: bool) -> list[Entry]:
        """Every entry with gang g left as it is, and with it started in every way; best per room.

        After the ``last`` gang a room is worth what it leaves stranded: the numbers of free GPUs.
        """
        found: dict[tuple[object, ...], Entry] = {}
        spreads = self._spreads(g)
        for entry in entries:
            for after in (entry, *self._started(g, spreads, entry, last=last)):
                key = self._last_key(after.state) if last else self.sameness.key(after.state)
                if key not in found or after.value > found[key].value:
                    found[key] = after
        return list(found.values())

    def _leaders(self, entries: list[Entry], rest: Sequence[int]) -> list[Entry]:
        """Drops entries that stay behind the best one even if ``rest`` adds all it ever could.

        Leaving ``rest`` as it is adds nothing; what it adds at most is the sum of the best that each
        gang could add on the untouched cluster. Compared up to ``stranded``, which is not a sum.
        """
        end = self.names.index("stranded") if "stranded" in self.names else len(self.names)
        front = max(entry.value[:end] for entry in entries)
        most = [self._most(g) for g in rest]
        return [
            entry
            for entry in entries
            if tuple(map(sum, zip(entry.value, *most, strict=True)))[:end] >= front
        ]

    def _most(self, g: int) -> Vector:
        """No way to start gang g adds more than this, tiers in order; bandwidth at its ideal."""
        gang = self.instance.gangs[g]
        ideal = 0 if gang.pattern == "none" else gang.weight * weight(gang) * 1000
        gains = [self._vector({**earned, "bandwidth": ideal}) for _, earned in self._spreads(g)]
        return max([(0,) * len(self.names), *gains])

    def _last_key(self, state: State) -> tuple[object, ...]:
        return self._counts(state)

    def _counts(self, state: State) -> tuple[int, ...]:
        """Number of GPUs free on every node."""
        return tuple(self.ground.count(n, left) for n, (left, _) in enumerate(state))

    def _final(self, entry: Entry) -> Vector:
        """The entry's vector with what its room leaves stranded."""
        counts = zip(self._counts(entry.state), self.usable, strict=True)
        lost = -stranded(self.instance, [count if ours else 0 for count, ours in counts])
        return tuple(
            lost if name == "stranded" else value
            for name, value in zip(self.names, entry.value, strict=True)
        )

    def _spreads(self, g: int) -> list[tuple[Spread, Mapping[str, int]]]:
        """Spreads with what they earn beside bandwidth; of those that ask the same, the best."""
        if g not in self._found:
            self._found[g] = self._find_spreads(g)
        return self._found[g]

    def _find_spreads(self, g: int) -> list[tuple[Spread, Mapping[str, int]]]:
        gang = self.instance.gangs[g]
        free = [self.ground.count(n, left) for n, left in enumerate(self.ground.free)]
        stand = [(p.role, p.node) for p in standing(gang)]
        kept: dict[object, tuple[Vector, Spread, Mapping[str, int]]] = {}
        for spread in self.spreading.of(g, free):
            pods = [*stand, *((r, n) for r, _, n in spread.pods)]
            earned = earnings(self.instance, gang, pods, None)
            value = self._vector(earned)
            key = (spread.gpus, spread.needs)
            if key not in kept or value > kept[key][0]:
                kept[key] = (value, spread, earned)
        return [(spread, earned) for _, spread, earned in kept.values()]

    def _vector(self, earned: Mapping[str, int]) -> Vector:
        return tuple(
            -earned.get(name, 0) if name in MINIMISED else earned.get(name, 0)
            for name in self.names
        )

    def _started(
        self,
        g: int,
        spreads: Sequence[tuple[Spread, Mapping[str, int]]],
        entry: Entry,
        *,
        last: bool,
    ) -> Iterator[Entry]:
        counts = [
            (self.ground.count(n, left), amounts) for n, (left, amounts) in enumerate(entry.state)
        ]
        for spread, earned in spreads:
            if self.spreading.fits(counts, spread):
                for taken, share in self.choosing.takings(g, spread, entry.state, last=last):
                    gang = self.instance.gangs[g]
                    bandwidth = gang.weight * weight(gang) * share if gang.pattern != "none" else 0
                    gain = self._vector({**earned, "bandwidth": bandwidth})
                    value = tuple(a + b for a, b in zip(entry.value, gain, strict=True))
                    state = self._after(entry.state, spread, taken)
                    yield Entry(value, state, Step(g, spread, taken, entry.step))

    def _after(self, state: State, spread: Spread, taken: Sequence[int]) -> State:
        return tuple(
            (
                left - gpus if self.ground.blind[n] else left & ~gpus,
                tuple(a - b for a, b in zip(amounts, spread.needs[n], strict=True)),
            )
            for n, ((left, amounts), gpus) in enumerate(zip(state, taken, strict=True))
        )

    def _decisions(self, last: Step | None) -> tuple[GangDecision, ...]:
        """The plan that a chain of steps describes."""
        started: dict[int, Step] = {}
        while last is not None:
            started[last.gang] = last
            last = last.before
        return tuple(
            self._decision(g, gang, started.get(g)) for g, gang in enumerate(self.instance.gangs)
        )

    def _decision(self, g: int, gang: Gang, step: Step | None) -> GangDecision:
        stand = standing(gang)
        held = None if gang.hold is None else Reason(gang.hold.code, gang.hold.message)
        if step is not None:
            pods = tuple(sorted((*stand, *self._named(gang, step))))
            return GangDecision("complete" if stand else "place", pods)
        if not running(gang):
            return GangDecision("wait", (), held or Reason("NoRoom", "not in the best plan"))
        missing = held or Reason("Incomplete", "pods are missing") if gang.missing() else None
        return GangDecision("keep", stand, missing)

    def _named(self, gang: Gang, step: Step) -> Iterator[PodPlacement]:
        """The new pods with their GPUs: on each node the lowest go to the first pod."""
        left = list(step.taken)
        for r, index, n in step.spread.pods:
            count = gang.roles[r].gpus
            if count == 0:
                yield PodPlacement(r, index, n, 0)
            elif not self.ground.blind[n]:
                own = next(subsets(left[n], count))
                left[n] &= ~own
                yield PodPlacement(r, index, n, own)
            elif self.ground.unknown[n] == 0 and count == self.ground.nodes[n].gpus:
                yield PodPlacement(r, index, n, self.ground.nodes[n].healthy)
            else:
                yield PodPlacement(r, index, n, None)
