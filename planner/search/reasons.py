"""Why a gang waits, stays incomplete or is stopped: a code and one sentence with numbers.

Promises: that a gang cannot start at all is said only where a count, or an exact search with everything
gone that may give way for it, proves it; names in messages are the input's. Called by ``solve`` at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

from models.instance import Instance
from models.policy import SolveLimits
from models.program.demands import Demand, identity
from models.program.formulation import formulate
from models.program.linear_program import Linear
from models.solution import GangDecision, Reason
from models.tier_values import admitted
from planner.search.budget import Budget
from planner.search.engines.common import Goal, Status
from planner.search.engines.cpsat import solve_exactly
from planner.search.free_space import Ground
from planner.search.greedy import lacking, place
from planner.search.shortage import Ceiling, counted, shortage, unselected
from planner.search.trial import wanted

ALONE_EFFORT = 1.0
"""Effort spent on proving that a kind of gang cannot start even alone."""

ALONE_PROOFS = 20
"""Kinds of gang for which that proof is tried; the others get what the counts say."""

NAMED = 3
"""Gangs named in a reason at most."""


def with_reasons(
    instance: Instance,
    decisions: Sequence[GangDecision],
    budget: Budget,
    proven: Collection[int] = (),
    still: Collection[int] = (),
) -> tuple[GangDecision, ...]:
    """The same decisions, each gang that waits, is stopped or lacks pods with its reason.

    ``proven``: priorities of which no plan that keeps the tiers before admits more, of the plans in
    which the gangs ``still`` do not move.
    """
    finder = _Finder(instance, decisions, budget, proven, still)
    result = list(decisions)
    for index in sorted(range(len(decisions)), key=lambda i: (-instance.gangs[i].priority, i)):
        reason = finder.of(index)
        if reason is not None:
            result[index] = replace(decisions[index], reason=reason)
    return tuple(result)


class _Finder:
    """``_known``: why a kind of gang can never start, None where it may."""

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        budget: Budget,
        proven: Collection[int],
        still: Collection[int],
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._budget = budget
        self._proven = frozenset(proven)
        self._still = sorted(still)
        self._ceiling = Ceiling(instance)
        self._after = Ground(instance, decisions)
        self._known: dict[object, Reason | None] = {}
        self._proofs = 0

    def of(self, index: int) -> Reason | None:
        """The reason of one gang, None if it needs none."""
        gang, decision = self._instance.gangs[index], self._decisions[index].decision
        if decision == "preempt":
            return Reason("Preempted", self._stopped(index))
        incomplete = decision == "keep" and index in self._instance.incomplete
        if decision != "wait" and not incomplete:
            return None
        if gang.hold is not None:
            return Reason(gang.hold.code, gang.hold.message)
        why = self._why(index)
        if not incomplete:
            return why
        missing = f"{counted(len(gang.missing()), 'pod')} missing, and so it stays"
        return Reason("Incomplete", f"{missing}: {why.message}")

    def _stopped(self, index: int) -> str:
        """Who comes to the nodes it leaves."""
        gangs, ground = self._instance.gangs, self._after
        comers = {
            other
            for pod in ground.stood[index]
            for (other, _, _), (placed, _) in ground.plots[pod.node].tenants.items()
            if gangs[other].priority > gangs[index].priority and ground.arrives(other, placed)
        }
        ordered = sorted(comers, key=lambda other: (-gangs[other].priority, other))
        names = [
            f"{gangs[o].namespace}/{gangs[o].name} (priority {gangs[o].priority})" for o in ordered
        ]
        more = f" and {counted(len(names) - NAMED, 'more gang')}" if len(names) > NAMED else ""
        return f"stopped to make room for {', '.join(names[:NAMED])}{more}"

    def _why(self, index: int) -> Reason:
        """The first reason that holds."""
        self._ceiling.spare(index)
        demand = lacking(self._ceiling.ground, index)
        if not demand.possible:
            return Reason(
                "RequiredTopology",
                "its standing pods already break a rule of its topology or GPU model",
            )
        kind = identity(self._instance, demand)
        if kind not in self._known:
            self._known[kind] = self._never(demand)
        return self._known[kind] or self._beside(demand)

    def _never(self, demand: Demand) -> Reason | None:
        """Why it cannot start whatever others do; None if it may, or nobody knows."""
        none = unselected(self._instance, demand)
        if none is not None:
            return none
        ground = self._ceiling.ground
        short = shortage(ground, demand)
        if short is not None:
            return Reason(short.code, self._even() + short.message)
        if place(ground, demand) is not None or self._budget.stop.is_set():
            return None
        self._proofs += 1
        return None if self._proofs > ALONE_PROOFS else self._proof(demand)

    def _proof(self, demand: Demand) -> Reason | None:
        """Exact: the instance with this gang alone to place, then without minBandwidthShare."""
        instance = self._ceiling.alone()
        gang = instance.gangs[demand.gang]
        share = instance.min_share(gang)
        if not self._impossible(demand, instance):
            return None
        if share and not self._impossible(demand, _unbound(instance, demand.gang)):
            return Reason(
                "Bandwidth",
                f"{self._even()}no placement on what is free reaches its minBandwidthShare of "
                f"{float(share):g}",
            )
        level = gang.required
        alone = self._even() if self._ceiling.gone else "even alone "
        if level is not None or any(r.required is not None or r.slice_size for r in gang.roles):
            name = "" if level is None else f" in one {instance.cluster.level_name(level)}"
            return Reason(
                "RequiredTopology",
                f"{alone}its {sum(r.count for r in demand.roles)} pods do not fit together{name} "
                "under its topology rules",
            )
        return Reason(
            "NoRoom",
            f"{alone}its pods do not fit together on what is free (GPUs, cpu, memory, pods)",
        )

    def _impossible(self, demand: Demand, instance: Instance) -> bool:
        """Whether CP-SAT refutes that the gang is admitted when it alone is placed."""
        alone = formulate(instance, only=frozenset({demand.gang}))
        admits = Linear().add_all(g.admit for g in alone.variables.gangs)
        admits.add_all(a for group in alone.variables.groups for a in group.admits)
        goal = Goal(Linear(), maximize=True, keep=((admits, 1, 1),))
        budget = Budget(SolveLimits(time_limit_s=5), self._budget.stop)
        answer = solve_exactly(alone.program, goal, budget, ALONE_EFFORT)
        return alone.complete and answer.status is Status.INFEASIBLE

    def _beside(self, demand: Demand) -> Reason:
        """It may fit if others did not: say what is left beside those that start and stay."""
        instance, ground = self._instance, self._after
        gang = instance.gangs[demand.gang]
        starts = [
            other
            for other, decision in zip(instance.gangs, self._decisions, strict=True)
            if decision.decision in ("place", "complete")
        ]
        higher = sum(1 for other in starts if other.priority > gang.priority)
        aged = 0
        if not instance.aged(gang):
            aged = sum(1 for o in starts if o.priority == gang.priority and instance.aged(o))
        beside = "beside what runs"
        if starts:
            bands = [f"{higher} of higher priority"] if higher or not aged else []
            bands += [f"{aged} of its own that waited too long"] if aged else []
            beside = f"beside what starts ({', '.join((counted(len(starts), 'gang'), *bands))})"
        after = wanted(instance, demand.gang, gang.target_counts(), ground.pods[demand.gang])
        short = shortage(ground, after)
        if short is not None:
            text = f"{beside}: {short.message}"
        elif place(ground, after) is not None:
            return Reason("Outranked", self._fits(demand, beside))
        else:
            allowed = frozenset().union(*(role.nodes for role in demand.roles))
            free = sum(ground.plots[n].free for n in allowed)
            text = (
                f"needs {counted(demand.gpus, 'GPU')}; {beside} {free} are left on the nodes it may "
                "use, and no placement was found on them"
            )
        text += self._more(demand.gang)
        return Reason(
            "Outranked" if higher or aged else "NoRoom" if short is None else short.code, text
        )

    def _fits(self, demand: Demand, beside: str) -> str:
        """It has room and waits all the same: for what is listed before those tiers that ask for gangs."""
        listed = [objective.name for objective in self._instance.policy.objectives]
        asking = [listed.index(name) for name in ("admission", "waiting") if name in listed]
        text = f"needs {counted(demand.gpus, 'GPU')} and would fit {beside}, but "
        if not asking:
            return f"{text}no objective asks for it: neither admission nor waiting is listed"
        more = listed[: min(asking)]
        if not more:
            return f"{text}the search ended before it was placed"
        text += f"{', '.join(more)} {'counts' if len(more) == 1 else 'count'} more"
        proven = self._instance.gangs[demand.gang].priority in self._proven
        return text + (self._more(demand.gang) if proven else "")

    def _more(self, index: int) -> str:
        """That nobody's giving way helps, as far as that is known."""
        gang, givers = self._instance.gangs[index], self._givers(index)
        peers = [
            admitted(self._instance, other, decision)
            for other, decision in enumerate(self._decisions)
            if self._instance.gangs[other].priority == gang.priority and other != index
        ]
        if gang.priority in self._proven:
            # in the place of a peer it might well start: proven is what all of them get together
            what = "more GPUs of its priority"
            if all(peers):
                what = "it beside all others of its priority" if peers else "it"
            return f"; proven{self._unmoved()}: no plan that keeps what counts more admits {what}"
        if not givers:
            return ""
        return (
            f"; no choice of {_running(givers)} that may move or stop for it was found "
            "that makes room"
        )

    def _unmoved(self) -> str:
        """Of which plans the proof is, where some gangs were held where they are."""
        if not self._still:
            return ""
        names = ", ".join("/".join(self._instance.gangs[i].key) for i in self._still[:NAMED])
        more = len(self._still) - NAMED
        others = f" and {counted(more, 'other gang')}" if more > 0 else ""
        return f" where {names}{others} may not move"

    def _givers(self, winner: int) -> int:
        """Running gangs that stay as they are and might give way for it."""
        gangs, priority = self._instance.gangs, self._instance.gangs[winner].priority
        return sum(
            1
            for index in self._ceiling.gone
            if index != winner
            and self._decisions[index].decision in ("keep", "resize")
            and (gangs[index].movable or gangs[index].priority < priority)
        )

    def _even(self) -> str:
        gone = len(self._ceiling.gone)
        return f"even without {_running(gone)} that may stop or move: " if gone else ""


def _unbound(instance: Instance, index: int) -> Instance:
    """The instance with the gang free of minBandwidthShare."""
    gang = replace(instance.gangs[index], min_bandwidth_share=Fraction(0))
    return replace(instance, gangs=(*instance.gangs[:index], gang, *instance.gangs[index + 1 :]))


def _running(count: int) -> str:
    return "the running gang" if count == 1 else f"the {count} running gangs"
