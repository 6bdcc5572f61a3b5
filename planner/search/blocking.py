"""The causes that keep a gang from starting: an irreducible set of them.

With these alone, and every other cause dropped, the gang cannot start: that is proven. Without any one of
them it can: a placement is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from models.solution import PodPlacement
from planner.search.causes import Cause, CauseKind, World
from planner.search.counterfactual import Counterfactual, Kept, placed_in
from planner.search.free_space import FreeSpace


class Standing(Enum):
    """What is known of a set of causes."""

    IRREDUCIBLE = "irreducible"
    ENOUGH = "enough"
    FITS = "fits"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Blocking:
    """``causes``: they alone keep the gang from starting; none if it fits or nothing is proven.

    ``ENOUGH``: they are proven to, but perhaps fewer would do. ``pods``: where it fits.
    """

    standing: Standing
    causes: tuple[Cause, ...] = ()
    pods: tuple[PodPlacement, ...] = ()

    @property
    def rank(self) -> tuple[bool, int]:
        """Sort key: irreducible sets first, then small ones."""
        return self.standing is not Standing.IRREDUCIBLE, len(self.causes)


@dataclass(frozen=True, slots=True)
class Order:
    """A way to look for a small set. ``key``: what is dropped first.

    ``rules_last``: gangs are dropped before anything else, so that what the gang and the policy ask for stays
    as long as it saves gangs.
    """

    key: Callable[[Cause], tuple[int, int, str]]
    rules_last: bool = False


def _large_gangs_first(one: Cause) -> tuple[int, int, str]:
    order, weight, name = one.drop_key
    return order, -weight, name


def _wishes_first(one: Cause) -> tuple[int, int, str]:
    order, weight, name = one.drop_key
    return -order, weight, name


ORDERS = (
    Order(lambda one: one.drop_key, rules_last=True),
    Order(_large_gangs_first, rules_last=True),
    Order(lambda one: one.drop_key),
    Order(_wishes_first),
)
"""The smallest set that is found counts, of equals the first."""

MANY = 64
"""Causes of a set beyond which it shrinks by cores."""

FEW = 2
"""Causes of a set beside which no smaller one is looked for."""


def blocking(questions: Counterfactual, seconds: float) -> Blocking:
    """The causes against the gang. ``seconds``: of the questions' budget that this may use."""
    first = questions.start(questions.all)
    if first.pods is not None:
        return Blocking(Standing.FITS, pods=first.pods)
    if first.core is None:
        return Blocking(Standing.UNKNOWN)
    alone = questions.start(())
    if alone.blocked:
        return Blocking(Standing.IRREDUCIBLE, (_size(questions),))
    if questions.hold is not None:
        standing = Standing.IRREDUCIBLE if alone.starts else Standing.ENOUGH
        return Blocking(standing, (questions.hold,))
    least = questions.budget.seconds_left() - seconds
    best: Blocking | None = None
    many = len(questions.all) > MANY  # then what is cheap to ask comes first
    for order in sorted(ORDERS, key=lambda one: many and one.rules_last):
        if best is not None:
            late = questions.budget.seconds_left() < least
            if late or len(best.causes) <= FEW or best.standing is not Standing.IRREDUCIBLE:
                break
        found = _Shrinking(questions, order, least).run()
        if best is None or found.rank < best.rank:
            best = found
    assert best is not None, "there is an order"
    return best


def _size(questions: Counterfactual) -> Cause:
    """What is left if nothing else is a cause."""
    return Cause(
        CauseKind.SIZE,
        "/".join(questions.world.spec.key),
        "its pods fit nowhere, even if every node were empty and in order and it asked for nothing else",
        "it has fewer or smaller pods, or the cluster more or larger nodes",
    )


def _standing(world: World) -> dict[int, set[int]]:
    """Gangs whose pods with GPUs run on each node before the plan."""
    found: dict[int, set[int]] = {}
    for index, gang in enumerate(world.instance.gangs):
        for pod in gang.running_pods if index != world.gang else ():
            if pod.node is not None and gang.roles[pod.role].gpus:
                found.setdefault(pod.node, set()).add(index)
    return found


class _Shrinking:
    """Drops causes while the others are proven to block, whole chunks at first.

    ``least``: seconds of the budget to leave. ``_space``: what is free where only the kept causes hold, to
    look for places. ``_needed``: causes without which a place was found.
    """

    def __init__(self, questions: Counterfactual, order: Order, least: float) -> None:
        self._questions = questions
        self._order = order
        self._least = least
        self._kept = questions.all
        self._needed: set[Cause] = set()
        self._space: FreeSpace | None = None
        self._standing: dict[int, set[int]] = {}
        core = questions.start(questions.all).core
        assert core is not None, "all causes together are known to block"
        if order.rules_last:
            core |= {one for one in questions.all if one.kind is not CauseKind.GANG}
        self._keep(core if len(questions.all) > MANY else questions.all)

    def run(self) -> Blocking:
        """The set that is left: without all gangs if they may go, then without each rule, then each gang."""
        self._dropped(self._rest()[0])
        if self._order.rules_last:
            self._drop_gangs()
            self._drop_others()
        else:
            self._drop_others()
            self._drop_gangs()
        proven = self._needed >= self._kept and self._checked()
        standing = Standing.IRREDUCIBLE if proven else Standing.ENOUGH
        return Blocking(standing, tuple(sorted(self._kept, key=_telling)))

    def _drop_others(self) -> None:
        for one in self._rest()[1]:
            if self._late():
                return
            if one in self._kept and not self._dropped((one,)):
                self._needed.add(one)

    def _rest(self) -> tuple[list[Cause], list[Cause]]:
        """The gangs and the other causes that may go yet, in order."""
        rest = sorted(self._kept - self._needed, key=self._order.key)
        gangs = [one for one in rest if one.kind is CauseKind.GANG]
        return gangs, [one for one in rest if one.kind is not CauseKind.GANG]

    def _drop_gangs(self) -> None:
        size = len(self._rest()[0]) // 2
        while not self._late():
            gangs, _ = self._rest()
            if not gangs:
                return
            size = min(max(1, size), len(gangs))
            if self._dropped(gangs[:size]):
                size *= 2
            elif size == 1:
                self._needed.add(gangs[0])
            else:
                size //= 2

    def _dropped(self, chunk: Collection[Cause]) -> bool:
        """Drop these causes if the others are proven to block."""
        if not chunk or self._starts_without(chunk):
            return False
        kept = self._kept.difference(chunk)
        core = self._questions.start(kept).core
        if core is None:
            return False
        if self._order.rules_last:
            core |= {one for one in kept if one.kind is not CauseKind.GANG}
        # a core may be of many small gangs in the place of a large one, but saves a question for each
        self._keep(core if len(kept) > MANY else kept)
        return True

    def _keep(self, core: Kept) -> None:
        gone = self._kept - core
        self._kept, self._needed = core, self._needed & core
        gangs = [one.gang for one in gone if one.gang is not None]
        simple = all(one.kind is CauseKind.GANG for one in gone) and not self._changes_rules(gangs)
        if self._space is not None and simple:
            for one in gone:
                assert one.gang is not None
                self._space.set(one.gang, ())
            return
        world = self._questions.world_with(core)
        self._space = FreeSpace(world.instance, world.decisions)
        self._standing = _standing(world)

    def _starts_without(self, chunk: Collection[Cause]) -> bool:
        """Whether a place is found at once without some gangs; False says nothing."""
        space, gangs = self._space, [one.gang for one in chunk if one.kind is CauseKind.GANG]
        if space is None or len(gangs) < len(chunk):
            return False
        mark = space.mark()
        for gang in gangs:
            assert gang is not None
            space.set(gang, ())
        found = placed_in(space, self._questions.world.gang)
        space.undo(mark)
        return found is not None and not self._changes_rules(gangs)

    def _changes_rules(self, gone: Collection[int | None]) -> bool:
        """Whether rules ask for more once these gangs do not run: more spare nodes, or smaller limits."""
        kinds = {one.kind for one in self._kept}
        world = self._questions.world
        runs = any(index is not None and world.instance.gangs[index].running for index in gone)
        if runs and CauseKind.QUEUE in kinds:
            return True
        if not runs or CauseKind.SPARES not in kinds:
            return False
        left = {one.gang for one in self._kept if one.kind is CauseKind.GANG} - set(gone)
        return any(here.isdisjoint(left) for here in self._standing.values())

    def _checked(self) -> bool:
        """Whether each cause that is left is needed; one that is not after all is dropped."""
        for one in sorted(self._kept, key=self._order.key):
            if self._late():
                return False
            if self._starts_without((one,)):
                continue
            answer = self._questions.start(self._kept - {one})
            if answer.core is not None:  # few rules get stricter when something is gone
                self._keep(answer.core)
                return self._checked()
            if not answer.starts:
                return False
        return True

    def _late(self) -> bool:
        return self._questions.interrupted() or self._questions.budget.seconds_left() < self._least


def _telling(one: Cause) -> tuple[bool, int, int, str]:
    """Sort key: wishes and rules first, then large gangs."""
    order, weight, name = one.drop_key
    return one.kind is CauseKind.GANG, -order, -weight, name
