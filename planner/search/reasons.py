"""Why a gang waits, stays incomplete or is stopped: a code and one sentence with numbers.

A reason says that a gang can never start only if a count proves it, or an exact search in which
every gang that may give way is removed.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from models.disruption_budgets import held_by_budgets
from models.instance import Instance
from models.pod_rules import Kind, about, without
from models.policy import SolveLimits
from models.program.demand_builder import identity
from models.program.demands import Demand
from models.program.formulation import formulate
from models.program.interruption import Interrupted
from models.program.linear_program import Linear
from models.solution import STARTS, GangDecision, Reason
from models.tiers import MAINS, family
from models.units import plural
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.free_space import FreeSpace, MaximalSpace
from planner.search.greedy import missing_demand, place
from planner.search.shortage import FreeCounts, shortage, unselected

ALONE_EFFORT = 1.0
"""Effort for the proof that a kind of gang cannot start even alone."""

ALONE_SECONDS = 5
"""Most seconds for that proof."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried."""

MAX_NAMED = 3
"""Gangs named in one reason."""


_RULES = {Kind.APART: "anti-affinity", Kind.TOGETHER: "affinity", Kind.SPREAD: "even spread"}

GRACE_S = 1.0
"""Seconds that reasons may take after the search was stopped or its time is up."""


def with_reasons(
    instance: Instance,
    decisions: Sequence[GangDecision],
    budget: Budget,
    proven: Collection[int] = (),
    immovable: Collection[int] = (),
) -> tuple[GangDecision, ...]:
    """The decisions, with a reason for each gang that waits, is stopped or lacks pods.

    ``proven``: priorities for which no plan that keeps the earlier tiers admits more, or has more goodput
    where the policy lists that. ``immovable``:
    gangs that must not move in those plans. Once the budget's time is up, the gangs left get a
    reason that names no cause.
    """
    finder = _ReasonFinder(instance, decisions, budget, proven, immovable)
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
class _After:
    """What is left for a kind of gang after the plan: a shortage, or whether a placement was found.

    ``barred``: the rule about pods without which there would be one.
    """

    short: Reason | None
    fits: bool
    free: int
    barred: Kind | None


class _ReasonFinder:
    """Causes are established once a kind of gang.

    ``_known``: why a kind can never start, None if it may; ``_left``: what is left for it; ``_helps``:
    whether it might fit if no disruption budget guarded a pod. ``_plain``: the instance without rules about
    pods, which all counts leave aside.
    """

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        budget: Budget,
        proven: Collection[int],
        immovable: Collection[int],
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._budget = budget
        self._clock = _Clock(budget)
        self._proven = frozenset(proven)
        self._immovable = sorted(immovable)
        self._plain = without(instance)
        self._maximal = MaximalSpace(self._plain)
        self._most = FreeCounts(self._maximal.space)
        self._removable = frozenset(self._maximal.removed)
        self._after = FreeSpace(self._plain, decisions)
        self._remaining = FreeCounts(self._after)
        self._others = _Others(instance, decisions, self._removable)
        self._known: dict[object, Reason | None] = {}
        self._impossible_kinds: dict[object, Reason | None] = {}
        self._left: dict[object, _After] = {}
        self._helps: dict[object, bool] = {}
        self._spaces: dict[tuple[Kind, ...], FreeSpace] = {}

    def reason(self, index: int) -> Reason | None:
        """The reason for one gang, None if it needs none."""
        gang, decision = self._instance.gangs[index], self._decisions[index].decision
        if decision == "preempt":
            return Reason("Preempted", self._preemptors(index))
        incomplete = decision == "keep" and index in self._instance.incomplete
        if decision != "wait" and not incomplete:
            return None
        if gang.hold is not None:
            return Reason(gang.hold.code, gang.hold.message)
        waiting = self._unexplained(index) if self._clock.is_over() else self._waiting(index)
        if not incomplete:
            return waiting
        return Reason(
            "Incomplete", f"{plural(len(gang.missing()), 'pod')} missing: {waiting.message}"
        )

    def _preemptors(self, index: int) -> str:
        """The gangs that take the nodes it leaves."""
        gangs, space = self._instance.gangs, self._after
        arrivals = {
            other
            for pod in space.original[index]
            for other in space.arrivals(pod.node, gangs[index].priority)
        }
        ordered = sorted(arrivals, key=lambda other: (-gangs[other].priority, other))
        names = [f"{'/'.join(gangs[o].key)} (priority {gangs[o].priority})" for o in ordered]
        return f"stopped to make room for {_first(names, 'more gang')}"

    def _unexplained(self, index: int) -> Reason:
        """For a gang whose cause of waiting is not known when the time is up."""
        gang = self._instance.gangs[index]
        gpus = sum(gang.roles[role].gpus for role, _ in gang.missing())
        after_others, outranked = self._others.that_start(index)
        return Reason(
            "Outranked" if outranked else "NoRoom",
            f"needs {plural(gpus, 'GPU')}; no placement was found {after_others}, and the search ended "
            "before the cause was established",
        )

    def _waiting(self, index: int) -> Reason:
        """The first reason that applies to a gang that lacks pods."""
        self._exempt(index)
        demand = missing_demand(self._maximal.space, index)
        if not demand.possible:
            return Reason(
                "RequiredTopology",
                "its running pods already violate its required topology or GPU model",
            )
        kind = (identity(self._instance, demand), self._instance.gangs[index].roles)
        if kind not in self._known:
            self._known[kind] = self._never(demand, kind[0])
        reason = self._known[kind] or self._after_others(demand, kind)
        if self._instance.cluster.budgets and not (kind in self._left and self._left[kind].fits):
            return replace(reason, message=reason.message + self._guarded(demand, kind))
        return reason

    def _guarded(self, demand: Demand, kind: object) -> str:
        """A running gang that only disruption budgets keep from giving way, if that might help."""
        if kind not in self._helps:
            self._helps[kind] = shortage(self._unguarded, demand) is None
        for index, why in self._held if self._helps[kind] else ():
            other = self._instance.gangs[index]
            lower = other.priority < self._instance.gangs[demand.gang].priority
            gives_way = index != demand.gang and (other.movable or lower)
            if gives_way and self._stands_on(index, demand.nodes):
                return f"; {'/'.join(other.key)} may not stop or move: {why}"
        return ""

    def _stands_on(self, index: int, nodes: Collection[int]) -> bool:
        return any(pod.node in nodes for pod in self._instance.gangs[index].running_pods)

    @cached_property
    def _held(self) -> list[tuple[int, str]]:
        """Gangs that budgets keep from stopping or moving beside what the plan does, and why."""
        return list(held_by_budgets(self._instance, self._decisions))

    @cached_property
    def _unguarded(self) -> FreeCounts:
        """The most space there could be if no budget guarded a pod."""
        cluster = replace(self._plain.cluster, budgets=())
        return FreeCounts(MaximalSpace(replace(self._plain, cluster=cluster)).space)

    def _exempt(self, index: int) -> None:
        """Let this gang, and only this one, keep its pods in the most space it could find."""
        if index in self._removable or len(self._maximal.removed) < len(self._removable):
            self._maximal.exempt(index)
            self._most = FreeCounts(self._maximal.space)

    def _never(self, demand: Demand, kind: object) -> Reason | None:
        """Why it can never start; None if it may or if that is unknown."""
        reason = unselected(self._instance, demand)
        if reason is not None:
            return reason
        short = shortage(self._most, demand)
        if short is not None:
            return Reason(short.code, self._if_all_left() + short.message)
        if self._clock.in_grace() or place(self._maximal.space, demand) is not None:
            return None
        if kind not in self._impossible_kinds:
            if len(self._impossible_kinds) >= ALONE_PROOFS:
                return None
            self._impossible_kinds[kind] = self._proof(demand)
        return self._impossible_kinds[kind]

    def _proof(self, demand: Demand) -> Reason | None:
        """An exact proof: place this gang alone, then without minBandwidthShare."""
        instance = self._maximal.alone()
        gang = instance.gangs[demand.gang]
        share = instance.min_share(gang)
        if not self._impossible(demand, instance):
            return None
        if share and not self._impossible(demand, _without_min_share(instance, demand.gang)):
            return Reason(
                "Bandwidth",
                f"{self._if_all_left()}no placement on the free GPUs reaches its minBandwidthShare of "
                f"{float(share):g}",
            )
        level = gang.required
        alone = self._if_all_left() if self._maximal.removed else "even alone "
        if level is not None or any(r.required is not None or r.slice_size for r in gang.roles):
            name = "" if level is None else f" in one {instance.cluster.level_name(level)}"
            return Reason(
                "RequiredTopology",
                f"{alone}its {sum(r.count for r in demand.roles)} pods do not fit together{name} "
                "under its topology rules",
            )
        return Reason(
            "NoRoom",
            f"{alone}its pods do not fit together on the free GPUs, cpu, memory and pod slots",
        )

    def _impossible(self, demand: Demand, instance: Instance) -> bool:
        """Whether CP-SAT proves that the gang cannot be admitted alone, in the time there is."""
        only = frozenset({demand.gang})
        try:
            alone = formulate(instance, only=only, interrupted=self._clock.in_grace)
        except Interrupted:
            return False
        admits = Linear().add_all(g.admit for g in alone.variables.gangs)
        admits.add_all(a for group in alone.variables.groups for a in group.admits)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        seconds = min(ALONE_SECONDS, max(1, int(self._budget.seconds_left())))
        budget = Budget(SolveLimits(time_limit_s=seconds), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return alone.complete and answer.status is Status.INFEASIBLE

    def _after_others(self, demand: Demand, kind: object) -> Reason:
        """The gang could fit without the others: what remains after those that start and stay."""
        if kind not in self._left:
            short = shortage(self._remaining, demand)
            fits = short is None and place(self._after, demand) is not None
            free = self._remaining.on(demand.nodes)
            barred = self._barred(demand.gang) if fits else None
            self._left[kind] = _After(short, fits, free, barred)
        left = self._left[kind]
        after_others, outranked = self._others.that_start(demand.gang)
        if left.short is not None:
            text = f"{after_others}: {left.short.message}"
        elif left.barred is not None:
            text = (
                f"needs {plural(demand.gpus, 'GPU')}; {after_others} there is room, but none was found that "
                f"keeps the {_RULES[left.barred]} of its pods"
            )
            return Reason(left.barred.value, text + self._reclaiming(demand.gang))
        elif left.fits:
            return Reason("Outranked", self._fitting(demand, after_others))
        else:
            text = (
                f"needs {plural(demand.gpus, 'GPU')}; {after_others} {plural(left.free, 'GPU')} are free on "
                "the eligible nodes, and no placement was found on them"
            )
        text += self._reclaiming(demand.gang)
        code = "NoRoom" if left.short is None else left.short.code
        return Reason("Outranked" if outranked else code, text)

    def _barred(self, gang: int) -> Kind | None:
        """The rule about pods that keeps a gang from the room that is left; None if it finds a place."""
        kinds = about(self._instance, gang)
        if not kinds or self._placed_without((), gang):
            return None
        return next((kind for kind in kinds if self._placed_without((kind,), gang)), kinds[0])

    def _placed_without(self, kinds: tuple[Kind, ...], gang: int) -> bool:
        """Whether a placement is found if no rules of these kinds count."""
        if kinds not in self._spaces:
            self._spaces[kinds] = FreeSpace(without(self._instance, kinds), self._decisions)
        space = self._spaces[kinds]
        return place(space, missing_demand(space, gang)) is not None

    def _fitting(self, demand: Demand, after_others: str) -> str:
        """The gang would fit but waits, because earlier tiers or the end of the search decide so."""
        listed = [objective.name for objective in self._instance.policy.objectives]
        rewarding = [n for n, name in enumerate(listed) if family(name).fused]
        text = f"needs {plural(demand.gpus, 'GPU')} and would fit {after_others}, but "
        if not rewarding:
            which = f"{', '.join(MAINS)} nor waiting"
            return f"{text}no objective rewards it: the policy lists neither {which}"
        earlier = listed[: min(rewarding)]
        proven = self._instance.gangs[demand.gang].priority in self._proven
        if not earlier and proven and self._instance.by_speed:  # what fits adds w x speed
            return f"{text}its speed there would be 0"
        if not earlier:
            return f"{text}the search ended before it was placed"
        text += f"{', '.join(earlier)} {'comes' if len(earlier) == 1 else 'come'} first"
        return text + (self._reclaiming(demand.gang) if proven else "")

    def _reclaiming(self, index: int) -> str:
        """What is known about making room for the gang by moving or stopping others.

        Under goodput, starting it may also slow others down, and gains nothing at a speed of 0.
        """
        if self._instance.gangs[index].priority in self._proven:
            by_speed, proof = self._instance.by_speed, f"(proven{self._restriction()})"
            if not self._others.has_peers(index):
                what = "gains by starting it" if by_speed else "admits it"
                return f"; no plan that keeps the earlier tiers {what} {proof}"
            peers = "gangs of the same or higher priority"
            if by_speed:
                return f"; starting it would slow or displace {peers}, or gain nothing {proof}"
            return f"; starting it would displace {peers} {proof}"
        candidates = self._others.candidates(index)
        if not candidates:
            return ""
        return (
            f"; no way was found to make room by moving or stopping {_running(candidates)} "
            "that may give way"
        )

    def _restriction(self) -> str:
        """The restriction of a proof to plans in which some gangs do not move."""
        if not self._immovable:
            return ""
        names = ["/".join(self._instance.gangs[i].key) for i in self._immovable]
        return f" while {_first(names, 'other gang')} may not move"

    def _if_all_left(self) -> str:
        removed = len(self._maximal.removed)
        return f"even if {_running(removed)} that may stop or move left: " if removed else ""


class _Others:
    """What the other gangs of a plan do, counted once. ``removable``: gangs that some plan stops or moves."""

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], removable: Collection[int]
    ) -> None:
        self._instance = instance
        gangs = instance.gangs
        starts = [g for g, d in zip(gangs, decisions, strict=True) if d.decision in STARTS]
        self._starting = sorted(gang.priority for gang in starts)
        self._aged = Counter(gang.priority for gang in starts if instance.aged(gang))
        self._of_priority = Counter(gang.priority for gang in gangs)
        remaining = [i for i in removable if decisions[i].decision in ("keep", "resize")]
        self._movable = frozenset(i for i in remaining if gangs[i].movable)
        self._stoppable = sorted(gangs[i].priority for i in remaining if not gangs[i].movable)

    def that_start(self, index: int) -> tuple[str, bool]:
        """The gangs that start, in words, and whether some of them precede this gang."""
        gang, count = self._instance.gangs[index], len(self._starting)
        if not count:
            return "after the running gangs", False
        higher = count - bisect_right(self._starting, gang.priority)
        aged = 0 if self._instance.aged(gang) else self._aged[gang.priority]
        text = f"after the {count} gangs that start" if count > 1 else "after the gang that starts"
        bands = [f"{higher} of higher priority"] if higher else []
        bands += [f"{aged} of its priority that waited too long"] if aged else []
        return f"{text} ({', '.join(bands)})" if bands else text, bool(bands)

    def has_peers(self, index: int) -> bool:
        """Whether another gang has its priority."""
        return self._of_priority[self._instance.gangs[index].priority] > 1

    def candidates(self, winner: int) -> int:
        """Number of running gangs that keep their place and could give way."""
        movable = len(self._movable) - (winner in self._movable)
        return movable + bisect_left(self._stoppable, self._instance.gangs[winner].priority)


def _without_min_share(instance: Instance, index: int) -> Instance:
    """The instance with the gang's minBandwidthShare removed."""
    gang = replace(instance.gangs[index], min_bandwidth_share=Fraction(0))
    return replace(instance, gangs=(*instance.gangs[:index], gang, *instance.gangs[index + 1 :]))


def _first(names: Sequence[str], noun: str) -> str:
    """The first names, and how many follow."""
    rest = len(names) - MAX_NAMED
    more = f" and {plural(rest, noun)}" if rest > 0 else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _running(count: int) -> str:
    return "the running gang" if count == 1 else f"the {count} running gangs"
