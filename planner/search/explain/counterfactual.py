"""Whether a gang can start beside a plan if some of the causes against it did not hold.

Yes with a placement that obeys every rule; no with a proof: by the small program of the gang, by counts, or
by the full formulation of the gang alone. Otherwise unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from models.documents.policy import MAX_BUDGET, SolveLimits
from models.instance.solution import PodPlacement
from models.program.formulation import formulate
from models.program.interruption import Interrupted, Question
from models.program.linear_program import Linear
from models.rules.nodes import HOLD
from planner.search.budget import Budget
from planner.search.engines.assumptions import AssumptionSolver
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.explain.causes import Cause, World, causes_of, relaxed
from planner.search.explain.rule_reasons import without_joint_rules
from planner.search.explain.shortage import FreeCounts, shortage
from planner.search.explain.start_program import start_program
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import admit, missing_demand, permitted

CORE_EFFORT = 0.5
"""Effort of one question to the small program: a thousandth is usual."""

PROOF_EFFORT = 4.0
"""Effort of one proof with the full formulation of the gang."""

Kept = frozenset[Cause]


@dataclass(frozen=True, slots=True)
class Answer:
    """``pods``: of the gang after the plan if it can start. ``core``: causes that keep it from that, if not.

    Both None: not known.
    """

    pods: tuple[PodPlacement, ...] | None = None
    core: Kept | None = None

    @property
    def starts(self) -> bool:
        return self.pods is not None

    @property
    def blocked(self) -> bool:
        return self.core is not None


UNKNOWN = Answer()


class Counterfactual:
    """Answers about one gang.

    ``causes``: all there are; ``hold``: the one because of which it must not start, room or not. ``budget``:
    of all questions together.
    """

    def __init__(self, world: World, budget: Budget) -> None:
        self.world = world
        self.budget = budget
        self.causes = causes_of(world)
        self._answers: dict[Kept, Answer] = {}
        self.hold = next((one for one in self.causes if one.kind == HOLD.name), None)

    @property
    def all(self) -> Kept:
        return frozenset(self.causes)

    def interrupted(self) -> bool:
        """Whether the time is up or a signal came."""
        return self.budget.stop.is_set() or self.budget.seconds_left() <= 0

    def world_with(self, kept: Collection[Cause]) -> World:
        """The world in which only these causes hold."""
        held = frozenset(kept)
        return relaxed(self.world, [one for one in self.causes if one not in held])

    def counted(self, kept: Iterable[Cause]) -> Answer:
        """What the small program says: impossible, or nothing."""
        held = frozenset(kept)
        if self.hold is not None and self.hold in held:
            return Answer(core=frozenset({self.hold}))
        if self.interrupted() or self._small is None:
            return UNKNOWN
        literals, solver = self._small
        by_literal = {literals[one]: one for one in held}
        found = solver.solve(sorted(by_literal))
        if found.status is not Status.INFEASIBLE:
            return UNKNOWN
        return Answer(core=frozenset(by_literal[literal] for literal in found.core))

    @cached_property
    def _small(self) -> tuple[dict[Cause, int], AssumptionSolver] | None:
        try:
            small = start_program(self.world, self.causes, self.interrupted)
        except Interrupted:
            return None
        solver = AssumptionSolver(small.program, self.budget, CORE_EFFORT)
        return small.literals, solver

    def start(self, kept: Iterable[Cause]) -> Answer:
        """Whether the gang can start if only these causes hold."""
        held = frozenset(kept)
        if held not in self._answers:
            found = self._exactly(held)
            if not (found.starts or found.blocked):
                return found  # with more time it may be known
            self._answers[held] = found
        return self._answers[held]

    def _exactly(self, kept: Kept) -> Answer:
        if self.hold is not None and self.hold in kept:
            return Answer(core=frozenset({self.hold}))
        world = self.world_with(kept)
        pods = placement(world)
        if pods is not None:
            return Answer(pods=pods)
        if self.interrupted():
            return UNKNOWN
        if self._short(world):
            return Answer(core=kept)
        counted = self.counted(
            kept
        )  # after counts: with thousands of gangs the program is slow to build
        return counted if counted.blocked else self._proven(world, kept)

    def _short(self, world: World) -> bool:
        """Whether a count shows that the gang does not fit."""
        instance = without_joint_rules(world.instance)
        space = FreeSpace(instance, world.decisions)
        demand = missing_demand(space, world.gang)
        if not demand.possible or any(not role.nodes for role in demand.roles):
            return True
        return shortage(FreeCounts.of(space), demand) is not None

    def _proven(self, world: World, kept: Kept) -> Answer:
        """What the full formulation of the gang alone says."""
        answer = exact_answer(world, self.budget, self.interrupted)
        return replace(answer, core=kept) if answer.blocked else answer


def exact_answer(world: World, budget: Budget, interrupted: Question) -> Answer:
    """The answer of the formulation of the gang with all others as planned; ``core`` empty if impossible."""
    try:
        alone = formulate(
            world.instance,
            only=frozenset({world.gang}),
            base=world.decisions,
            interrupted=interrupted,
        )
    except Interrupted:
        return UNKNOWN
    admits = Linear().add_all(g.admit for g in alone.variables.gangs)
    admits.add_all(a for group in alone.variables.groups for a in group.admits)
    goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
    answer = solve_exactly(alone.program, goal, budget, PROOF_EFFORT)
    if answer.status is Status.INFEASIBLE and alone.complete:
        return Answer(core=frozenset())
    if answer.values:
        pods = alone.decode(answer.values)[world.gang].pods
        if obeys(world, pods):
            return Answer(pods=pods)
    return UNKNOWN


def placement(world: World) -> tuple[PodPlacement, ...] | None:
    """A place for all pods of the gang with everything else as planned, if one is found."""
    space = FreeSpace(world.instance, world.decisions)
    return placed_in(space, world.gang)


def placed_in(space: FreeSpace, gang: int) -> tuple[PodPlacement, ...] | None:
    """The same in some free space, which stays as it is."""
    mark = space.mark()
    demand = missing_demand(space, gang)
    if not demand.possible or any(not role.nodes for role in demand.roles):
        return None
    if demand.gpus > space.arrays.idle_gpus or not admit(space, demand):
        return None
    pods = space.pods[gang]
    space.undo(mark)
    return pods


def obeys(world: World, pods: tuple[PodPlacement, ...]) -> bool:
    """Whether the gang may have these pods with everything else as planned."""
    space = FreeSpace(world.instance, world.decisions)
    before = space.pods[world.gang]
    if not pods or set(before) - set(pods):
        return False
    new = tuple(pod for pod in pods if pod not in before)
    if not permitted(space, world.gang, new):
        return False
    space.set(world.gang, pods)
    return all(space.is_valid(n) for n in {pod.node for pod in new})


def budget_of(seconds: float, stop: threading.Event) -> Budget:
    """A budget of so many seconds on one worker, whose effort never ends it."""
    return Budget(SolveLimits(workers=1, budget=MAX_BUDGET), stop, seconds=seconds)
