"""Place gangs that start once more, now that it is known which they are.

Each that starts in the best place that is left, or together with a gang that it should be near. In the end a
plan gets better by single steps: gangs go back to where they run, start, or go elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from models.instance.instance import Instance
from models.instance.solution import STARTS, GangDecision, PodPlacement
from models.instance.speed import FULL_SPEED
from models.program.formulation import formulate
from models.program.linear_program import Interrupted, Linear
from models.queues.queue_order import must_wait
from models.rates.gang_bandwidth import FULL_SHARE
from models.rules.demands import Demand
from models.rules.giving_way import unjustified_victims
from models.rules.registry import own_variables
from models.tiers import family, larger_is_better, sign
from models.values.nearness import anchored, companions, home, suitors
from models.values.tier_values import PLACEMENT_VALUES, Evaluation, tiers_of
from planner.search.budget import Budget
from planner.search.engines.highs import branch
from planner.search.engines.interface import Goal
from planner.search.free_space import Decisions, FreeSpace, Pods
from planner.search.improve.growth import grow
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.ledger import Ledger
from planner.search.start.greedy import demand_like, greedy, place, placements, value_with

PLACEMENTS = 6
"""Placements of one gang that are compared.

Of a gang that should be beside another one as many partners are tried, and domains for both.
"""

ALONE_SHARE = 0.05
"""Share of what is left of the budget for all gangs that a program of one places."""

ALONE_NODES = 200
"""Branch-and-bound nodes for one of them."""


def ways(space: FreeSpace, demand: Demand, *, bound: bool = True) -> Iterator[Pods]:
    """Some placements of a gang. ``bound``: as in ``place``."""
    return islice(placements(space, demand, bound=bound), PLACEMENTS)


def beside(instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget) -> Decisions:
    """The plan with all that start placed anew, beside gangs that they should be near, if it is better."""
    if not companions(instance) or budget.exhausted():
        return tuple(decisions)
    space, found = FreeSpace(instance, decisions), list(decisions)
    starting = [index for index, one in enumerate(decisions) if one.decision in STARTS]
    for index in starting:
        space.set(index, space.original[index])
    demands = [starting_demand(space, decisions, index) for index in starting]
    if not Pairs(space, sorted(demands, key=partial(_order, instance)), budget).place():
        return tuple(decisions)
    for index in starting:
        found[index] = space.decision(index)
    if unjustified_victims(instance, found):
        return tuple(decisions)
    return better(instance, tuple(decisions), tuple(found))


def better(instance: Instance, one: Decisions, other: Decisions | None) -> Decisions:
    """The better of two plans, the first where they are equal."""
    return one if other is None or _worth(instance, other) <= _worth(instance, one) else other


def settle(instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget) -> Decisions:
    """The plan with each gang that starts in the best place left for it, what is lost most first.

    Best: faster, then better in the tiers about placements, in the order of the policy.
    """
    found, lines = list(decisions), Evaluation(instance, decisions).lines
    lost = [
        (-(FULL_SPEED - (line.speed or 0)) * line.gang.weight_gpus, -line.gang.weight_gpus, index)
        for index, line in enumerate(lines)
        if line.decision.decision in STARTS and line.value is not None
        # no placement is better: at full speed in one domain of each level
        if line.speed != FULL_SPEED
        or line.value.share not in (None, FULL_SHARE)
        or max(line.value.domains) > 1
    ]
    if not lost:
        return tuple(decisions)
    space = FreeSpace(instance, decisions)
    for _, _, index in sorted(lost):
        if budget.exhausted():
            break
        mark, now = space.mark(), space.pods[index]
        demand = starting_demand(space, decisions, index)
        if must_wait(instance, space.pods, index):
            continue
        held = space.original[index]
        space.set(index, held)
        worth = partial(_placement_worth, instance, index)
        best = max(ways(space, demand), key=lambda pods: worth(space, (*held, *pods)), default=None)
        if best is None or worth(space, (*held, *best)) <= worth(space, now):
            space.undo(mark)
        else:
            space.set(index, (*held, *best))
            found[index] = space.decision(index)
    return tuple(found)


def _placement_worth(
    instance: Instance, index: int, space: FreeSpace, pods: Pods
) -> tuple[int, ...]:
    """Speed, and what the gang adds to the tiers about placements, with just these pods; larger is better."""
    gang = instance.gangs[index]
    value = value_with(space, index, pods)
    listed = (objective.name for objective in instance.policy.objectives)
    tiers = (family(name) for name in listed if name in PLACEMENT_VALUES)
    worth = (sign(t.sense) * PLACEMENT_VALUES[t.name](instance, gang, pods, value) for t in tiers)
    return (value.speed if instance.by_speed else 0, *worth)


def starting_demand(space: FreeSpace, decisions: Sequence[GangDecision], gang: int) -> Demand:
    """All pods that the plan adds for the gang."""
    return demand_like(space, gang, decisions[gang].pods, space.original[gang])


def _order(instance: Instance, demand: Demand) -> tuple[int, ...]:
    """Large pods first, for which room is scarce; then narrow levels, required before wished."""
    gang = instance.gangs[demand.gang]
    largest = max((role.gpus for role in demand.roles), default=0)
    required = -1 if gang.required is None else gang.required
    levels = (gang.preferred, *(role.preferred for role in gang.roles))
    preferred = max(-1 if level is None else level for level in levels)
    return -largest, -required, -preferred, -demand.gpus, demand.gang


def _worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    return larger_is_better(tiers_of(instance), Evaluation(instance, decisions).vector())


def start_alone(instance: Instance, decisions: Sequence[GangDecision], budget: Budget) -> Decisions:
    """The plan with gangs of several roles with rules between them that fit beside all others.

    The full program of one finds what no trial does, which places role after role: the first may take the
    domain that only the second one could have. Nothing else changes, and nothing is proven.
    """
    waiting = list[int]()
    for index, (gang, one) in enumerate(zip(instance.gangs, decisions, strict=True)):
        if one.decision == "wait" and gang.hold is None and len(gang.roles) > 1:
            required = any(role.required is not None for role in gang.roles)
            waiting += [index] if required or own_variables(instance, gang) else []
    gangs, plan, over = instance.gangs, tuple(decisions), budget.used(ALONE_SHARE)
    for index in sorted(waiting, key=lambda i: (-gangs[i].priority, -instance.age(gangs[i]), i)):
        if over() or budget.exhausted():
            break
        plan = _placed(instance, plan, index, budget) or plan
    return plan


def _placed(instance: Instance, plan: Decisions, index: int, budget: Budget) -> Decisions | None:
    """The plan with this gang; None if it finds no place."""
    try:
        program = formulate(
            instance, only=frozenset({index}), base=plan, interrupted=budget.exhausted
        )
    except Interrupted:
        return None
    (admits,) = program.model.variables.admits
    goal = Goal(Linear().add_all(admits), maximize=True)
    seconds = budget.seconds_left() * ALONE_SHARE
    values = branch(program.program, goal, budget, nodes=ALONE_NODES, seconds=seconds).values
    return program.decode(values) if values and goal.objective.value(values) else None


class Pairs:
    """Places gangs of ``demands`` in turn, in the free space; ``place`` says whether all have a place."""

    def __init__(self, space: FreeSpace, demands: Sequence[Demand], budget: Budget) -> None:
        self._space = space
        self._instance = space.instance
        self._pending = {demand.gang: demand for demand in demands}
        self._budget = budget

    def place(self) -> bool:
        """Give every gang its pods; False if one finds no place or the budget ends."""
        for gang in list(self._pending):
            if gang not in self._pending:
                continue
            if self._budget.exhausted():
                return False
            if not self._beside(gang):
                pods = place(self._space, self._pending[gang])
                if pods is None:
                    return False
                self._settle(gang, pods)
        return True

    def _settle(self, gang: int, pods: Sequence[PodPlacement]) -> None:
        self._space.set(gang, (*self._space.pods[gang], *pods))
        del self._pending[gang]

    def _beside(self, gang: int) -> bool:
        """Place a gang beside one that it should be near, or with one that should be near it."""
        if gang in companions(self._instance):
            for nodes in self._homes(gang):
                pods = place(self._space, self._held(gang, nodes))
                if pods is not None:
                    self._settle(gang, pods)
                    return True
        pairs = [(gang, other) for other in companions(self._instance).get(gang, ())]
        pairs += [(other, gang) for other in suitors(self._instance).get(gang, ())]
        waiting = (pair for pair in pairs if self._pending.keys() >= {*pair})
        return any(self._together(*pair) for pair in islice(waiting, PLACEMENTS))

    def _homes(self, gang: int) -> Iterator[frozenset[int]]:
        """Nodes of the domains in which gangs are that it should be near, each once."""
        near = self._instance.gangs[gang].near
        assert near is not None, "only gangs with near have companions"
        found = dict.fromkeys(sorted(anchored(self._instance, gang)))
        for other in companions(self._instance)[gang]:
            if other not in self._pending:
                pods = self._space.pods[other]
                own = home(self._instance, self._instance.gangs[other], pods, near.level)
                found |= {} if own is None else {own: None}
        for domain in found:
            yield frozenset(self._space.arrays.tree.nodes(near.level, domain).tolist())

    def _together(self, gang: int, other: int) -> bool:
        """Place two gangs in the tightest domain that holds both."""
        near, arrays = self._instance.gangs[gang].near, self._space.arrays
        assert near is not None, "only gangs with near have companions"
        if self._space.pods[gang] or self._space.pods[other]:
            return False  # pods that stand hold them where they are
        gpus = self._pending[gang].gpus + self._pending[other].gpus
        of, size = arrays.tree.domain_of[near.level], arrays.tree.sizes[near.level]
        free = np.bincount(of, arrays.free, size).astype(np.int64)
        fitting = np.flatnonzero(free >= gpus)
        for domain in fitting[np.argsort(free[fitting], kind="stable")][:PLACEMENTS].tolist():
            nodes = frozenset(arrays.tree.nodes(near.level, domain).tolist())
            mark = self._space.mark()
            first, second = sorted((gang, other), key=lambda i: (-self._pending[i].gpus, i))
            pods = place(self._space, self._held(first, nodes))
            if pods is None:
                continue
            self._space.set(first, pods)
            more = place(self._space, self._held(second, nodes))
            if more is not None:
                self._space.set(second, more)
                del self._pending[first], self._pending[second]
                return True
            self._space.undo(mark)
        return False

    def _held(self, gang: int, nodes: frozenset[int]) -> Demand:
        """What the gang asks for, its pods that count on these nodes."""
        demand = self._pending[gang]
        return demand.on_gpus(nodes) if demand.gpu_roles else demand.within(nodes)


def polish(ledger: Ledger, budget: Budget) -> None:
    """Better the incumbent by single steps, until none is found or the budget ends.

    The last word of a search without a proof; ``gangplan verify`` tries steps too, with code of its own.
    """
    while True:
        before = ledger.incumbent
        for steps in (_undone, _filled):
            steps(ledger, budget)
            if budget.exhausted():
                return
        if ledger.incumbent is before:
            return


def _undone(ledger: Ledger, budget: Budget) -> None:
    """Gangs that run and change stay as they are: all to whose place nobody came, then one at a time."""
    ledger.offer(needless_undone(ledger.instance, ledger.incumbent.decisions))
    for index, gang in enumerate(ledger.instance.gangs):
        decision = ledger.incumbent.decisions[index].decision
        if gang.running and decision in ("preempt", "move", "resize"):
            if budget.exhausted():
                return
            ledger.offer(back_in_place(ledger.instance, ledger.incumbent.decisions, [index]))


def _filled(ledger: Ledger, budget: Budget) -> None:
    """What fits beside the plan starts, elastic gangs grow, and who starts goes to the best place left."""
    instance = ledger.instance
    ledger.offer(greedy(instance, ledger.incumbent.decisions, ended=budget.exhausted))
    ledger.offer(grow(instance, ledger.incumbent.decisions, budget=budget))
    ledger.offer(settle(instance, ledger.incumbent.decisions, budget=budget))
