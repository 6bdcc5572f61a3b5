"""Why a gang waits, stays incomplete or is stopped: a code and its facts.

They are what the gang needs, what the plan leaves of it, and who would have to go. ``Never`` is proven by
counting on the empty cluster; that no plan starts the gang now by a count, or an exact search, in which every
gang is removed that may give way.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
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
    QUOTA,
    STARTS,
    GangDecision,
    Reason,
)
from models.program.demand_builder import identity
from models.program.formulation import formulate
from models.program.linear_program import Interrupted, Linear
from models.queues.queue_order import behind
from models.rules.demands import Demand
from models.starts.empty_starts import Answer, EmptyStarts, not_claiming
from models.units import time_text
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.explain.reason_holders import ReasonHolders
from planner.search.explain.rule_reasons import RuleReasons, without_joint_rules
from planner.search.explain.shortage import FreeCounts, Shortage, never, shortage, unselected
from planner.search.explain.world import Replan, named
from planner.search.free_space import Decisions, FreeSpace, MaximalSpace
from planner.search.start.greedy import missing_demand, place

GRACE_S = 1.0
"""Seconds that reasons may take after the search was stopped or its time is up."""

ALONE_EFFORT = 1.0
"""Effort for the proof that a kind of gang cannot start even alone."""

ALONE_SECONDS = 5
"""Most seconds for that proof."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried."""

LOWEST = (-(1 << 62), False)
"""Below every priority."""


def with_reasons(
    instance: Instance,
    decisions: Sequence[GangDecision],
    budget: Budget,
    proven: Collection[int] = (),
    replan: Replan | None = None,
) -> Decisions:
    """The decisions, with a reason for each gang that waits, is stopped or lacks pods.

    ``proven``: priorities for which no plan that keeps the earlier tiers admits more, or has more goodput
    where the policy lists that. Once the budget's time is up, the gangs left get a reason without a cause.
    """
    finder = _ReasonFinder(instance, decisions, budget, replan or Replan(), proven)
    result = list(decisions)
    for index in sorted(range(len(decisions)), key=lambda i: (-instance.gangs[i].priority, i)):
        if (reason := finder.reason(index)) is not None:
            result[index] = replace(decisions[index], reason=reason)
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Left:
    """What those that come first leave for a kind of gang: a shortage, or whether a placement was found.

    ``rule``: the one about pods, whole domains or cells of queues that bars it from every such placement.
    """

    short: Shortage | None
    fits: bool
    rule: Reason | None


@dataclass
class _ReasonFinder:
    """Causes are established once a kind of gang; gangs must come by falling priority.

    ``_empty``: why a kind can never start; ``_known``: why it cannot start now whoever gives way, None if
    it may; ``_left``: what is left for it. ``_plain``: the instance without the rules about several gangs,
    which all counts leave aside.
    """

    _instance: Instance
    _decisions: Sequence[GangDecision]
    _budget: Budget
    _replan: Replan
    _proven: Collection[int]

    def __post_init__(self) -> None:
        self._until: float | None = None
        self._plain = without_joint_rules(self._instance)
        self._pods = [decision.pods for decision in self._decisions]
        self._maximal = MaximalSpace(self._plain)
        self._most = FreeCounts.of(self._maximal.space)
        self._proofs = 0
        self._rules = RuleReasons(self._instance, self._decisions, self._plain)
        self._empty: dict[object, Reason | None] = {}
        self._known: dict[object, Shortage | Reason | None] = {}
        self._left: dict[object, _Left] = {}
        self._nowhere: set[object] = set()
        self._first: dict[object, tuple[int, bool]] = {}

    def _late(self) -> bool:
        """Whether the budget's time is up or its search was stopped: no search may start."""
        return self._budget.stop.is_set() or self._budget.seconds_left() <= 0

    def _is_over(self) -> bool:
        """Whether no more causes are established: GRACE_S later."""
        now = time.monotonic()
        if self._until is None and self._late():
            self._until = now + GRACE_S
        return self._until is not None and now >= self._until

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
        waiting = self._unexplained(index) if self._is_over() else self._waiting(index)
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
        return Reason.of("Preempted", by=[named(gangs[other]) for other in ordered[:MAX_NAMED]])

    def _unexplained(self, index: int) -> Reason:
        """For a gang whose cause of waiting is not known when the time is up."""
        gang = self._instance.gangs[index]
        gpus = sum(gang.roles[role].gpus for role, _ in gang.missing)
        return Reason.of("Outranked" if self._outranked(gang) else "NoRoom", gpus=gpus)

    def _outranked(self, gang: Gang) -> bool:
        """Whether one of higher priority, or that waited too long where it has not, starts where it could."""
        roles = [role for role in gang.roles if role.gpus] or gang.roles
        sets = tuple(self._instance.eligible_nodes(role) for role in roles)
        if sets not in self._first:
            nodes = frozenset[int]().union(*sets)
            found = (rank for node, rank in self._first_on.items() if node in nodes)
            self._first[sets] = max(found, default=LOWEST)
        return self._first[sets] > (gang.priority, self._instance.aged(gang))

    @cached_property
    def _first_on(self) -> dict[int, tuple[int, bool]]:
        """By node, the first priority that starts there, and whether such a gang waited too long."""
        found: dict[int, tuple[int, bool]] = {}
        for gang, decision in zip(self._instance.gangs, self._decisions, strict=True):
            rank = gang.priority, self._instance.aged(gang)
            for pod in decision.pods if decision.decision in STARTS else ():
                found[pod.node] = max(rank, found.get(pod.node, LOWEST))
        return found

    def _waiting(self, index: int) -> Reason:
        """The first reason that applies to a gang that lacks pods."""
        gang = self._instance.gangs[index]
        self._maximal.exempt(index)
        demand = missing_demand(self._maximal.space, index)
        if not demand.possible:  # what runs violates its topology, or is of several GPU models
            return Reason.of("RequiredTopology", proven=True)
        kind = (identity(self._instance, demand), gang.roles)
        if kind not in self._known:
            self._known[kind] = self._not_now(demand)
        known = self._known[kind]
        if not isinstance(known, Shortage):
            limited = known or self._rules.beyond_queues(
                demand, lambda: self._left_for(demand, kind).fits
            )
            return limited or self._after_others(demand, kind)
        if not gang.running and kind not in self._empty:
            self._empty[kind] = never(self._best, demand)
        beyond = None if gang.running else self._empty[kind]
        return beyond or self._short(demand, kind, known, proven=True)

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
    def _best(self) -> FreeCounts:
        return FreeCounts.at_best(self._plain)

    @cached_property
    def _holders(self) -> ReasonHolders:
        return ReasonHolders(self._instance, self._decisions, self._replan, self._late)

    def _short(
        self, demand: Demand, kind: object, short: Shortage | None, *, proven: bool, code: str = ""
    ) -> Reason:
        """What it lacks of what the plan leaves, and who would have to go."""
        counts = FreeCounts.of(self._after)
        if short is not None and short.code == "Selector":
            return short.reason(short.code)
        by = [] if self._late() else self._holders.of(demand.gang, kind)
        alike = None if short is None or short.code == "Resources" else short  # GPUs may lack, too
        now = None if short is None else shortage(counts, demand, alike)
        if now is not None:
            return now.reason(code or now.code, by=by, proven=proven)
        room = counts.on(demand.nodes)
        needs = {"gpus": demand.gpus, "room_gpus": room, "by": by, "proven": proven}
        return Reason.of(code or "NoRoom", **needs)

    def _not_now(self, demand: Demand) -> Shortage | Reason | None:
        """Why it cannot start now, whoever gives way; None if it may or if that is unknown."""
        short = unselected(self._instance, demand)
        short = short or shortage(self._most, demand)
        if short is not None:
            return short
        if self._late() or place(self._maximal.space, demand) is not None:
            return None
        self._proofs += 1
        return self._proof(demand) if self._proofs <= ALONE_PROOFS else None

    def _proof(self, demand: Demand) -> Reason | None:
        """That it has no place alone, nor then without minBandwidthShare; None if that is not proven."""
        instance, index = self._maximal.alone(), demand.gang
        gang = instance.gangs[index]
        if not self._impossible(instance, index):
            return None
        if instance.min_share(gang):
            free = replace(gang, min_bandwidth_share=Fraction(0))
            gangs = (*instance.gangs[:index], free, *instance.gangs[index + 1 :])
            if not self._impossible(replace(instance, gangs=gangs), index):
                return Reason.of("Bandwidth", gpus=demand.gpus, proven=True)
        level = gang.required
        if level is not None or any(r.required is not None or r.slice_size for r in gang.roles):
            name = None if level is None else instance.cluster.level_name(level)
            return Reason.of("RequiredTopology", level=name, gpus=demand.gpus, proven=True)
        return Reason.of("NoRoom", gpus=demand.gpus, proven=True)

    def _impossible(self, instance: Instance, index: int) -> bool:
        """Whether CP-SAT proves that the gang cannot be admitted alone, in the time there is."""
        try:
            alone = formulate(instance, only=frozenset({index}), interrupted=self._late)
        except Interrupted:
            return False
        admits = Linear().add_all(a for own in alone.model.variables.admits for a in own)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        seconds = min(ALONE_SECONDS, max(1, int(self._budget.seconds_left())))
        budget = Budget(SolveLimits(time_limit_s=seconds), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return alone.complete and answer.status is Status.INFEASIBLE

    def _after_others(self, demand: Demand, kind: object) -> Reason:
        """The gang could fit without the others: what those leave that start first."""
        reserved = self._rules.reserved(demand, kind)
        if reserved is not None:
            return reserved
        left, gang = self._left_for(demand, kind), self._instance.gangs[demand.gang]
        proven = gang.priority in self._proven
        if left.rule is not None:
            stated = proven and left.rule.code != QUOTA
            return left.rule.with_fields(gpus=demand.gpus, proven=stated)
        if left.fits:
            before = behind(self._instance, self._pods, demand.gang)
            if before is None:  # earlier tiers, or the end of the search, decide so
                return Reason.of("Outranked", gpus=demand.gpus, proven=proven)
            other = self._instance.gangs[before]
            return Reason.of(QUEUE_ORDER, queue=other.queue, by=[named(other)])
        code = "Outranked" if self._outranked(gang) else ""
        return self._short(demand, kind, left.short, proven=proven, code=code)

    def _left_for(self, demand: Demand, kind: object) -> _Left:
        """Counted once for all gangs of a kind that the same gangs precede."""
        space = self._rules.above.down_to(self._instance.gangs[demand.gang].priority)
        key = (kind, self._rules.above.stage)
        if key not in self._left:
            short = shortage(FreeCounts.of(space), demand)
            fits = short is None and kind not in self._nowhere
            pods = place(space, demand) if fits else None
            rule = None
            if pods is None:
                self._nowhere.add(kind)  # less is left for lower priorities
            else:
                rule = self._rules.barred(demand.gang)
                rule = rule or self._rules.taken_away(demand.gang, space.pods, pods)
            self._left[key] = _Left(short, pods is not None, rule)
        return self._left[key]
