"""Why a gang waits, stays incomplete or is stopped: a code and its facts.

They are what the gang needs, what the plan leaves of it, and who would have to go. ``Never`` is proven by
counting on the empty cluster; that no plan starts the gang now by a count, or an exact search, in which every
gang is removed that may give way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from models.documents.policy import SolveLimits
from models.documents.reason import MAX_NAMED
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.run_times import starts_again
from models.instance.solution import (
    BACKOFF,
    NEVER,
    QUEUE_LIMIT,
    QUEUE_ORDER,
    GangDecision,
    Reason,
)
from models.program.demand_builder import identity
from models.program.formulation import formulate
from models.program.interruption import Interrupted
from models.program.linear_program import Linear
from models.queues.queue_order import behind
from models.rules.declaration import Requirement
from models.rules.demands import Demand
from models.starts.empty_starts import Answer, EmptyStarts, not_claiming
from models.units import time_text
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.explain.precedence import LeftByAbove, Starting
from planner.search.explain.reason_holders import ReasonHolders
from planner.search.explain.replan import Replan
from planner.search.explain.rule_reasons import RuleReasons, without_joint_rules
from planner.search.explain.shortage import EmptyCluster, FreeCounts, Shortage, shortage, unselected
from planner.search.free_space import FreeSpace, MaximalSpace
from planner.search.start.greedy import missing_demand, place

GRACE_S = 1.0
"""Seconds that reasons may take after the search was stopped or its time is up."""


def with_reasons(
    instance: Instance,
    decisions: Sequence[GangDecision],
    budget: Budget,
    proven: Collection[int] = (),
    replan: Replan | None = None,
) -> tuple[GangDecision, ...]:
    """The decisions, with a reason for each gang that waits, is stopped or lacks pods.

    ``proven``: priorities for which no plan that keeps the earlier tiers admits more, or has more goodput
    where the policy lists that. Once the budget's time is up, the gangs left get a reason without a cause.
    """
    finder = _ReasonFinder(instance, decisions, budget, replan or Replan(), proven)
    result = list(decisions)
    for index in sorted(range(len(decisions)), key=lambda i: (-instance.gangs[i].priority, i)):
        reason = finder.reason(index)
        if reason is not None:
            result[index] = replace(decisions[index], reason=reason)
    return tuple(result)


class _Clock:
    """Ends GRACE_S after the budget's time is up or its search was stopped."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._until: float | None = None
        self.is_over()

    def in_grace(self) -> bool:
        """Whether the budget is over: no search may start."""
        return self._budget.stop.is_set() or self._budget.seconds_left() <= 0

    def is_over(self) -> bool:
        """Whether no more causes are established."""
        now = time.monotonic()
        if self._until is None and self.in_grace():
            self._until = now + GRACE_S
        return self._until is not None and now >= self._until


@dataclass(frozen=True, slots=True)
class _Left:
    """What those that come first leave for a kind of gang: a shortage, or whether a placement was found.

    ``barred``: the rule about pods or whole domains without which there would be one. ``cells``: that every
    placement found would take cells of a queue away.
    """

    short: Shortage | None
    fits: bool
    barred: Requirement | None
    cells: Reason | None


class _ReasonFinder:
    """Causes are established once a kind of gang; gangs must come by falling priority.

    ``_empty``: why a kind can never start; ``_known``: why it cannot start now whoever gives way, None if
    it may; ``_left``: what is left for it. ``_plain``: the instance without the rules about several gangs,
    which all counts leave aside.
    """

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        budget: Budget,
        replan: Replan,
        proven: Collection[int],
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._clock = _Clock(budget)
        self._replan = replan
        self._proven = frozenset(proven)
        self._plain = without_joint_rules(instance)
        self._pods = [decision.pods for decision in decisions]
        self._maximal = MaximalSpace(self._plain)
        self._proofs = AloneProofs(self._maximal, budget, self._clock.in_grace)
        self._most = FreeCounts.of(self._maximal.space)
        self._removable = frozenset(self._maximal.removed)
        self._starting = Starting(instance, decisions)
        self._rules = RuleReasons(instance, decisions, self._plain)
        self._empty: dict[object, Reason | None] = {}
        self._known: dict[object, Shortage | Reason | None] = {}
        self._left: dict[object, _Left] = {}
        self._nowhere: set[object] = set()

    def reason(self, index: int) -> Reason | None:
        """The reason for one gang, None if it needs none."""
        gang, decision = self._instance.gangs[index], self._decisions[index].decision
        if decision == "preempt":
            return self._preempted(index)
        incomplete = decision == "keep" and index in self._instance.incomplete
        if decision != "wait" and not incomplete:
            return None
        if gang.hold is not None:
            return self._held(gang)
        beyond = None if gang.running else self._rules.never(index)
        beyond = beyond or self._unable(index)
        if beyond is not None:
            return beyond
        waiting = self._unexplained(index) if self._clock.is_over() else self._waiting(index)
        return waiting.with_fields("Incomplete", cause=waiting.code) if incomplete else waiting

    def _held(self, gang: Gang) -> Reason:
        """What the reader found, or what the policy says of gangs like it."""
        policy, hold = self._instance.policy, gang.hold
        assert hold is not None, "asked before"
        if hold.code == QUEUE_LIMIT:
            return Reason.of(hold.code, limit=policy.queue_limit)
        if hold.code == BACKOFF:
            again = starts_again(policy, gang, self._instance.now)
            assert again is not None, "why it is held"
            return Reason.of(hold.code, until=time_text(again))
        return Reason.of(hold.code, text=hold.message)

    def _preempted(self, index: int) -> Reason:
        """The gangs that take the nodes it leaves."""
        gangs, space = self._instance.gangs, self._after
        arrivals = {
            other for pod in space.original[index] for other in space.arrivals(pod.node, index)
        }
        ordered = sorted(arrivals, key=lambda other: (-gangs[other].priority, other))
        by = [
            {"gang": "/".join(gangs[o].key), "priority": gangs[o].shown_priority}
            for o in ordered[:MAX_NAMED]
        ]
        return Reason.of("Preempted", by=by)

    def _unexplained(self, index: int) -> Reason:
        """For a gang whose cause of waiting is not known when the time is up."""
        gang = self._instance.gangs[index]
        gpus = sum(gang.roles[role].gpus for role, _ in gang.missing())
        return Reason.of("Outranked" if self._starting.outranks(gang) else "NoRoom", gpus=gpus)

    def _waiting(self, index: int) -> Reason:
        """The first reason that applies to a gang that lacks pods."""
        gang = self._instance.gangs[index]
        self._exempt(index)
        demand = missing_demand(self._maximal.space, index)
        if (
            not demand.possible
        ):  # its running pods violate its topology, or are of several GPU models
            return Reason.of("RequiredTopology", proven=True)
        kind = (identity(self._instance, demand), gang.roles)
        if kind not in self._known:
            self._known[kind] = self._not_now(demand, kind[0])
        known = self._known[kind]
        if isinstance(known, Shortage):
            never = None if gang.running else self._never(index, kind)
            if never is not None:
                return never
            if self._rules.above_limit(demand):
                refused = self._rules.beyond_queues(demand)
                return refused or self._short(demand, kind, known, proven=True)
            return self._short(demand, kind, known, proven=True)
        return known or self._for_queues(demand, kind) or self._after_others(demand, kind)

    def _for_queues(self, demand: Demand, kind: object) -> Reason | None:
        """That its queues are full; None if only lower gangs that start fill them, and room lacks."""
        limited = self._rules.beyond_queues(demand)
        if limited is None or self._rules.beyond_without_lower(demand):
            return limited
        return limited if self._left_for(demand, kind).fits else None

    def _never(self, index: int, kind: object) -> Reason | None:
        """Why a waiting gang, for which a count finds no space now, could not start on the empty cluster."""
        if kind not in self._empty:
            self._empty[kind] = self._best.never(self._best.demand(index))
        return self._empty[kind]

    def _unable(self, index: int) -> Reason | None:
        """That no placement on the empty cluster keeps every rule, where counts leave one possible."""
        if not_claiming(self._instance).get(index) is not Answer.NEVER:
            return None
        starts, gang = self._instance.once(EmptyStarts), self._instance.gangs[index]
        if not starts.counted(index):
            return None
        gpus = sum(role.min * role.gpus for role in gang.roles)
        return Reason.of(NEVER, gpus=gpus, cause=starts.rule(index))

    @cached_property
    def _after(self) -> FreeSpace:
        return FreeSpace(self._plain, self._decisions)

    @cached_property
    def _above(self) -> LeftByAbove:
        return LeftByAbove(self._plain, self._decisions)

    @cached_property
    def _best(self) -> EmptyCluster:
        return EmptyCluster(self._plain)

    @cached_property
    def _holders(self) -> ReasonHolders:
        return ReasonHolders(self._instance, self._decisions, self._replan, self._clock.in_grace)

    def _short(
        self, demand: Demand, kind: object, short: Shortage | None, *, proven: bool, code: str = ""
    ) -> Reason:
        """What it lacks of what the plan leaves, and who would have to go."""
        counts = FreeCounts.of(self._after)
        if short is not None and short.code == "Selector":
            return short.reason(short.code)
        by = [] if self._clock.in_grace() else self._holders.of(demand.gang, kind)
        alike = None if short is None or short.code == "Resources" else short  # GPUs may lack, too
        now = None if short is None else shortage(counts, demand, alike)
        if now is not None:
            return now.reason(code or now.code, by=by, proven=proven)
        room = counts.on(demand.nodes)
        needs = {"gpus": demand.gpus, "room_gpus": room, "by": by, "proven": proven}
        return Reason.of(code or "NoRoom", **needs)

    def _exempt(self, index: int) -> None:
        """Let this gang, and only this one, keep its pods in the most space it could find."""
        if index in self._removable or len(self._maximal.removed) < len(self._removable):
            self._maximal.exempt(index)
            self._most = FreeCounts.of(self._maximal.space)

    def _not_now(self, demand: Demand, kind: object) -> Shortage | Reason | None:
        """Why it cannot start now, whoever gives way; None if it may or if that is unknown."""
        short = unselected(self._instance, demand)
        short = short or shortage(self._most, demand)
        if short is not None:
            return short
        if self._clock.in_grace() or place(self._maximal.space, demand) is not None:
            return None
        return self._proofs.reason(demand, kind)

    def _after_others(self, demand: Demand, kind: object) -> Reason:
        """The gang could fit without the others: what those leave that start first."""
        reserved = self._rules.reserved(demand, kind)
        if reserved is not None:
            return reserved
        left, gang = self._left_for(demand, kind), self._instance.gangs[demand.gang]
        proven = gang.priority in self._proven
        if left.barred is not None:
            assert left.barred.code is not None, "a rule that counts leave aside has one"
            return Reason.of(left.barred.code, gpus=demand.gpus, proven=proven)
        if left.cells is not None:
            return left.cells.with_fields(gpus=demand.gpus)
        if left.fits:
            before = behind(self._instance, self._pods, demand.gang)
            if before is None:  # earlier tiers, or the end of the search, decide so
                return Reason.of("Outranked", gpus=demand.gpus, proven=proven)
            other = self._instance.gangs[before]
            by = [{"gang": "/".join(other.key), "priority": other.shown_priority}]
            return Reason.of(QUEUE_ORDER, queue=other.queue, by=by)
        code = "Outranked" if self._starting.outranks(gang) else ""
        return self._short(demand, kind, left.short, proven=proven, code=code)

    def _left_for(self, demand: Demand, kind: object) -> _Left:
        """Counted once for all gangs of a kind that the same gangs precede."""
        above = self._above
        above.lower_to(self._instance.gangs[demand.gang].priority)
        key = (kind, above.stage)
        if key not in self._left:
            short = shortage(above.counts, demand)
            fits = short is None and kind not in self._nowhere
            pods = place(above.space, demand) if fits else None
            fits = pods is not None
            if not fits:
                self._nowhere.add(kind)  # less is left for lower priorities
            barred = self._rules.barred(demand.gang) if fits else None
            cells = None
            if pods is not None and barred is None:
                cells = self._rules.taken_away(demand.gang, above.space.pods, pods)
            self._left[key] = _Left(short, fits, barred, cells)
        return self._left[key]


ALONE_EFFORT = 1.0
"""Effort for the proof that a kind of gang cannot start even alone."""

ALONE_SECONDS = 5
"""Most seconds for that proof."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried."""


class AloneProofs:
    """Made once for each kind of gang. ``interrupted``: whether no proof may go on."""

    def __init__(
        self, maximal: MaximalSpace, budget: Budget, interrupted: Callable[[], bool]
    ) -> None:
        self._maximal = maximal
        self._budget = budget
        self._interrupted = interrupted
        self._known: dict[object, Reason | None] = {}

    def reason(self, demand: Demand, kind: object) -> Reason | None:
        """Why the gang cannot start, whoever gives way; None if that is not proven."""
        if kind not in self._known:
            if len(self._known) >= ALONE_PROOFS:
                return None
            self._known[kind] = self._proof(demand)
        return self._known[kind]

    def _proof(self, demand: Demand) -> Reason | None:
        """Place this gang alone, then without minBandwidthShare."""
        instance = self._maximal.alone()
        gang = instance.gangs[demand.gang]
        share = instance.min_share(gang)
        if not self._impossible(demand, instance):
            return None
        if share and not self._impossible(demand, _without_min_share(instance, demand.gang)):
            return Reason.of("Bandwidth", gpus=demand.gpus, proven=True)
        level = gang.required
        if level is not None or any(r.required is not None or r.slice_size for r in gang.roles):
            name = None if level is None else instance.cluster.level_name(level)
            return Reason.of("RequiredTopology", level=name, gpus=demand.gpus, proven=True)
        return Reason.of("NoRoom", gpus=demand.gpus, proven=True)

    def _impossible(self, demand: Demand, instance: Instance) -> bool:
        """Whether CP-SAT proves that the gang cannot be admitted alone, in the time there is."""
        only = frozenset({demand.gang})
        try:
            alone = formulate(instance, only=only, interrupted=self._interrupted)
        except Interrupted:
            return False
        admits = Linear().add_all(g.admit for g in alone.variables.gangs)
        admits.add_all(a for group in alone.variables.groups for a in group.admits)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        seconds = min(ALONE_SECONDS, max(1, int(self._budget.seconds_left())))
        budget = Budget(SolveLimits(time_limit_s=seconds), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return alone.complete and answer.status is Status.INFEASIBLE


def _without_min_share(instance: Instance, index: int) -> Instance:
    """The instance without the gang's minBandwidthShare."""
    gang = replace(instance.gangs[index], min_bandwidth_share=Fraction(0))
    return replace(instance, gangs=(*instance.gangs[:index], gang, *instance.gangs[index + 1 :]))
