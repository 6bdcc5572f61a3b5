"""Why a gang waits, stays incomplete or is stopped: a code and one sentence with numbers.

A reason says that a gang can never start only if a count proves it, or an exact search in which
every gang that may give way is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

from models.instance import Instance
from models.policy import SolveLimits
from models.program.demand_builder import identity
from models.program.demands import Demand
from models.program.formulation import formulate
from models.program.linear_program import Linear
from models.solution import GangDecision, Reason
from models.tier_values import admitted
from models.tiers import family
from models.units import plural
from planner.search.budget import Budget
from planner.search.engines.cpsat import solve_exactly
from planner.search.engines.interface import Goal, Status
from planner.search.free_space import FreeSpace, MaximalSpace
from planner.search.greedy import missing_demand, place
from planner.search.shortage import shortage, unselected

ALONE_EFFORT = 1.0
"""Effort for the proof that a kind of gang cannot start even alone."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried."""

MAX_NAMED = 3
"""Gangs named in one reason."""


def with_reasons(
    instance: Instance,
    decisions: Sequence[GangDecision],
    budget: Budget,
    proven: Collection[int] = (),
    immovable: Collection[int] = (),
) -> tuple[GangDecision, ...]:
    """The decisions, with a reason for each gang that waits, is stopped or lacks pods.

    ``proven``: priorities for which no plan that keeps the earlier tiers admits more. ``immovable``:
    gangs that must not move in those plans.
    """
    finder = _ReasonFinder(instance, decisions, budget, proven, immovable)
    result = list(decisions)
    for index in sorted(range(len(decisions)), key=lambda i: (-instance.gangs[i].priority, i)):
        reason = finder.reason(index)
        if reason is not None:
            result[index] = replace(decisions[index], reason=reason)
    return tuple(result)


class _ReasonFinder:
    """``_known``: why a kind of gang can never start, None if it may."""

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
        self._proven = frozenset(proven)
        self._immovable = sorted(immovable)
        self._maximal = MaximalSpace(instance)
        self._after = FreeSpace(instance, decisions)
        self._known: dict[object, Reason | None] = {}
        self._proofs = 0

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
        waiting = self._waiting(index)
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

    def _waiting(self, index: int) -> Reason:
        """The first reason that applies to a gang that lacks pods."""
        self._maximal.exempt(index)
        demand = missing_demand(self._maximal.space, index)
        if not demand.possible:
            return Reason(
                "RequiredTopology",
                "its running pods already violate its required topology or GPU model",
            )
        kind = identity(self._instance, demand)
        if kind not in self._known:
            self._known[kind] = self._never(demand)
        return self._known[kind] or self._after_others(demand)

    def _never(self, demand: Demand) -> Reason | None:
        """Why it can never start; None if it may or if that is unknown."""
        reason = unselected(self._instance, demand)
        if reason is not None:
            return reason
        space = self._maximal.space
        short = shortage(space, demand)
        if short is not None:
            return Reason(short.code, self._if_all_left() + short.message)
        if place(space, demand) is not None or self._budget.stop.is_set():
            return None
        self._proofs += 1
        return None if self._proofs > ALONE_PROOFS else self._proof(demand)

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
        """Whether CP-SAT proves that the gang cannot be admitted alone."""
        alone = formulate(instance, only=frozenset({demand.gang}))
        admits = Linear().add_all(g.admit for g in alone.variables.gangs)
        admits.add_all(a for group in alone.variables.groups for a in group.admits)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        budget = Budget(SolveLimits(time_limit_s=5), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return alone.complete and answer.status is Status.INFEASIBLE

    def _after_others(self, demand: Demand) -> Reason:
        """The gang could fit without the others: what remains after those that start and stay."""
        space = self._after
        after_others, outranked = self._others(demand.gang)
        after = missing_demand(space, demand.gang)
        short = shortage(space, after)
        if short is not None:
            text = f"{after_others}: {short.message}"
        elif place(space, after) is not None:
            return Reason("Outranked", self._fitting(demand, after_others))
        else:
            free = sum(space.by_node[n].free for n in demand.nodes)
            text = (
                f"needs {plural(demand.gpus, 'GPU')}; {after_others} {plural(free, 'GPU')} are free on the "
                "eligible nodes, and no placement was found on them"
            )
        text += self._reclaiming(demand.gang)
        return Reason("Outranked" if outranked else "NoRoom" if short is None else short.code, text)

    def _others(self, index: int) -> tuple[str, bool]:
        """The gangs that start, in words, and whether some of them precede this gang."""
        instance, gang = self._instance, self._instance.gangs[index]
        starts = [
            other
            for other, decision in zip(instance.gangs, self._decisions, strict=True)
            if decision.decision in ("place", "complete")
        ]
        higher = sum(1 for other in starts if other.priority > gang.priority)
        aged = 0
        if not instance.aged(gang):
            aged = sum(1 for o in starts if o.priority == gang.priority and instance.aged(o))
        if not starts:
            return "after the running gangs", False
        count = len(starts)
        text = f"after the {count} gangs that start" if count > 1 else "after the gang that starts"
        bands = [f"{higher} of higher priority"] if higher else []
        bands += [f"{aged} of its priority that waited too long"] if aged else []
        return f"{text} ({', '.join(bands)})" if bands else text, bool(bands)

    def _fitting(self, demand: Demand, after_others: str) -> str:
        """The gang would fit but waits, because earlier tiers or the end of the search decide so."""
        listed = [objective.name for objective in self._instance.policy.objectives]
        rewarding = [n for n, name in enumerate(listed) if family(name).fused]
        text = f"needs {plural(demand.gpus, 'GPU')} and would fit {after_others}, but "
        if not rewarding:
            return f"{text}no objective rewards it: the policy lists neither admission nor waiting"
        earlier = listed[: min(rewarding)]
        if not earlier:
            return f"{text}the search ended before it was placed"
        text += f"{', '.join(earlier)} {'comes' if len(earlier) == 1 else 'come'} first"
        proven = self._instance.gangs[demand.gang].priority in self._proven
        return text + (self._reclaiming(demand.gang) if proven else "")

    def _reclaiming(self, index: int) -> str:
        """What is known about making room for the gang by moving or stopping others."""
        gang, candidates = self._instance.gangs[index], self._candidates(index)
        peers = [
            admitted(self._instance, other, decision)
            for other, decision in enumerate(self._decisions)
            if self._instance.gangs[other].priority == gang.priority and other != index
        ]
        if gang.priority in self._proven:
            if not peers:
                return f"; no plan that keeps the earlier tiers admits it (proven{self._restriction()})"
            return (
                "; starting it would displace gangs of the same or higher priority "
                f"(proven{self._restriction()})"
            )
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

    def _candidates(self, winner: int) -> int:
        """Number of running gangs that keep their place and could give way."""
        gangs, priority = self._instance.gangs, self._instance.gangs[winner].priority
        return sum(
            1
            for index in self._maximal.removed
            if index != winner
            and self._decisions[index].decision in ("keep", "resize")
            and (gangs[index].movable or gangs[index].priority < priority)
        )

    def _if_all_left(self) -> str:
        removed = len(self._maximal.removed)
        return f"even if {_running(removed)} that may stop or move left: " if removed else ""


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
