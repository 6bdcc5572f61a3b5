"""What keeps a gang from starting beside a plan: what must change so that it starts, and no more than that.

Either each cause by itself: the gang starts if that alone changes. Or a few together: it starts if all of
them change, and waits while one of them stays. Everything else is as planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from models.instance.solution import PodPlacement
from models.rules.nodes import TAINT
from planner.search.explain.causes import GANG, NODE, SIZE, Cause, relaxed
from planner.search.explain.counterfactual import Counterfactual, placement
from planner.search.explain.holders import Holders, needed


class Standing(Enum):
    """What is known of the causes."""

    EACH = "each"
    TOGETHER = "together"
    ENOUGH = "enough"
    SIZE = "size"
    HOLD = "hold"
    FITS = "fits"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Blocking:
    """``causes``: all but of ``FITS`` and ``UNKNOWN`` have some. ``pods``: where it fits.

    ``EACH``: a place was found without any one of them. ``TOGETHER``: without all of them, and it is proven
    that none is superfluous. ``ENOUGH``: the same without that proof.
    """

    standing: Standing
    causes: tuple[Cause, ...] = ()
    pods: tuple[PodPlacement, ...] = ()


def blocking(questions: Counterfactual, holders: Holders) -> Blocking:
    """The causes against the gang, as far as the time of ``holders`` goes."""
    first = questions.start(questions.all)
    if first.pods is not None:
        return Blocking(Standing.FITS, pods=first.pods)
    if questions.hold is not None:
        return Blocking(Standing.HOLD, (questions.hold,))
    if first.core is None:
        return Blocking(Standing.UNKNOWN)
    if questions.start(()).blocked:
        size = Cause(SIZE, "/".join(questions.world.spec.key))
        return Blocking(Standing.SIZE, (size,))
    return _Search(questions, holders).run()


class _Search:
    def __init__(self, questions: Counterfactual, holders: Holders) -> None:
        self._questions = questions
        self._world = questions.world
        self._holders = holders
        self._by_gang = {one.gang: one for one in questions.causes if one.gang is not None}
        self._nodes = [one for one in questions.causes if one.kind == NODE]
        self._rules = [one for one in questions.causes if one.kind not in (GANG, NODE)]
        self._rules.sort(key=lambda one: one.kind != TAINT.name)

    def run(self) -> Blocking:
        """Each that is enough by itself, or else a few together."""
        each = tuple(self.each())
        if each:
            return Blocking(Standing.EACH, each)
        few, proven = self.proven(self.together())
        if not few:
            return Blocking(Standing.UNKNOWN)
        few = tuple(sorted(few, key=lambda one: (one.kind == GANG, -one.weight)))
        return Blocking(Standing.TOGETHER if proven else Standing.ENOUGH, few)

    def each(self) -> list[Cause]:
        """Causes without each of which alone it starts: what is asked for, nodes, gangs.

        Gangs are asked before nodes: one free space answers for all of them, each node needs its own.
        """
        rules = [one for one in reversed(self._rules) if self._alone(one)]
        single = (self._by_gang[index] for index in self._holders.single)
        gangs = [one for one in single if not self._changes_rules or self._alone(one)]
        nodes = self._nodes if self._nodes and self._starts(self._nodes) else []
        return [*rules, *(one for one in nodes if self._alone(one)), *gangs]

    def _alone(self, one: Cause) -> bool:
        return self._starts((one,))

    def _starts(self, dropped: Sequence[Cause]) -> bool:
        return not self._holders.late() and placement(relaxed(self._world, dropped)) is not None

    @property
    def _changes_rules(self) -> bool:
        """Whether rules may ask for more once a gang does not run: spare nodes, or limits of queues."""
        instance = self._world.instance
        return bool(instance.queues or instance.policy.spares)

    def together(self) -> tuple[Cause, ...]:
        """A few without which it starts: nodes or gangs if they are enough, else with rules."""
        holders = self._holders
        by_size = sorted(holders.order, key=lambda index: (holders.size(index), index))

        def cost(gone: Sequence[int]) -> tuple[int, int]:
            return len(gone), holders.sizes(gone)

        found = (holders.few(order, cost) for order in (by_size, by_size[::-1]))
        few = min(filter(None, found), key=cost, default=())
        gangs = [self._by_gang[index] for index in few]
        ways = [self._needed(self._nodes), tuple(gangs) if gangs and self._starts(gangs) else ()]
        best = min(filter(None, ways), key=_cost, default=())
        held = sorted(self._by_gang.values(), key=lambda one: (one.weight, one.name))
        asked = [one for one in self._rules if one.kind != TAINT.name]
        for rules in ([*self._nodes], asked, [*self._rules, *self._nodes]):
            if best or self._holders.late():
                break
            with_gangs = [] if rules is asked else [held, held[::-1]]
            tries = [self._needed([*rules, *gangs]) for gangs in with_gangs or [[]]]
            best = min(filter(None, tries), key=_cost, default=())
        return best

    def _needed(self, causes: Sequence[Cause]) -> tuple[Cause, ...]:
        """Of these those that must go, last ones rather than first; none if all are too few."""
        if not causes or not self._starts(causes):
            return ()
        dropped = set(causes)

        def put_back(chunk: Sequence[Cause]) -> bool:
            rest = [one for one in causes if one in dropped.difference(chunk)]
            if not self._starts(rest):
                return False
            dropped.intersection_update(rest)
            return True

        return needed(causes, put_back, self._holders.late)

    def proven(self, few: tuple[Cause, ...]) -> tuple[tuple[Cause, ...], bool]:
        """The same without what is superfluous after all, and whether each is proven to be needed."""
        proven = True
        for one in few:
            rest = tuple(other for other in few if other is not one)
            if self._holders.late():
                return few, False
            answer = self._questions.start(self._questions.all.difference(rest))
            if answer.starts:
                return self.proven(rest)
            proven = proven and answer.blocked
        return few, proven


def _cost(causes: Sequence[Cause]) -> tuple[int, int]:
    return len(causes), sum(one.weight for one in causes)
