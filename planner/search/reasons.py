"""Why a gang waits, stays incomplete or is stopped: a code and one sentence.

It says what the gang needs, what those that come first leave of it, who holds the rest and what would
help. ``Never`` is proven by counting on the empty cluster; "even if ... left" by a count, or an exact
search, in which every gang that may give way is removed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from models.cells import Reach, cells_by_model, is_firm
from models.disruption_budgets import held_by_budgets
from models.hardware import slug
from models.instance import Instance
from models.pod_rules import Kind, about, without
from models.program.demand_builder import identity
from models.program.demands import Demand
from models.queue_shares import Gpu, QueueCounts, queue_counts, queue_of, shares
from models.reservations import closes
from models.room_holding import barred_by
from models.shape import ShapeRule, shapes_about, without_shape
from models.solution import (
    HELD_ROOM,
    NEVER,
    QUOTA,
    RESERVED,
    GangDecision,
    PodPlacement,
    Reason,
    Reserved,
)
from models.tier_values import tiers_of
from models.tiers import MAINS, family
from models.units import first_of, plural, shown, time_text
from planner.search.alone_proofs import AloneProofs, if_all_left, running_gangs
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace, MaximalSpace
from planner.search.greedy import missing_demand, place, placements, value_of
from planner.search.precedence import LeftByAbove, Others, WithoutBelow
from planner.search.shortage import (
    MAX_NAMED,
    EmptyCluster,
    FreeCounts,
    Shortage,
    shortage,
    unselected,
)

_RULES: dict[Kind | ShapeRule, str] = {
    Kind.APART: "that keeps the anti-affinity of its pods",
    Kind.TOGETHER: "that keeps the affinity of its pods",
    Kind.SPREAD: "that keeps the even spread of its pods",
    ShapeRule.BALANCE: "with equal shares over the domains that it uses (balance)",
    ShapeRule.EXCLUSIVE: "that keeps the exclusive domains of gangs",
    ShapeRule.SPARES: "that leaves enough nodes free for failures (spares)",
}

WAYS = 16
"""Places that are compared for a gang that waits for a better one."""

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


def _unbound(instance: Instance) -> Instance:
    """The instance in which no room is held or reserved, and queues have no cells and may hold everything."""
    known = shares(instance)
    if instance.policy.hold_room_from is not None:
        instance = replace(instance, policy=replace(instance.policy, hold_room_from=None))
    if cells_by_model(instance):
        instance = replace(instance, closed={})
    if instance.reserved:
        instance = replace(instance, reserved=())
    return instance if known is None else replace(instance, shares=known.unlimited())


def _gpus(count: int, gpu: Gpu) -> str:
    """So many GPUs, of one model or of all."""
    return plural(count, "GPU" if gpu is None else f"{shown(gpu)} GPU")


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

    ``beside``: whether one was found beside the gangs of lower priority too. ``barred``: the rule about
    pods or whole domains without which there would be one. ``cells``: of a queue, that every placement
    found would take away.
    """

    short: Shortage | None
    fits: bool
    beside: bool
    free: int
    barred: Kind | ShapeRule | None
    cells: str | None


class _ReasonFinder:
    """Causes are established once a kind of gang; gangs must come by falling priority.

    ``_empty``: why a kind can never start; ``_known``: why it cannot start now whoever gives way, None if
    it may; ``_left``: what is left for it; ``_helps``: whether it might fit if no disruption budget
    guarded a pod. ``_plain``: the instance without rules about pods, whole domains, held room, queues,
    cells and reservations, which all counts leave aside.
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
        self._clock = _Clock(budget)
        self._proven = frozenset(proven)
        self._immovable = sorted(immovable)
        self._plain = without_shape(without(_unbound(instance)))
        self._pods = [decision.pods for decision in decisions]
        self._maximal = MaximalSpace(self._plain)
        self._proofs = AloneProofs(self._maximal, budget, self._clock.in_grace)
        self._most = FreeCounts.of(self._maximal.space)
        self._removable = frozenset(self._maximal.removed)
        self._others = Others(instance, decisions, self._removable)
        self._empty: dict[object, str | None] = {}
        self._known: dict[object, Shortage | Reason | None] = {}
        self._left: dict[object, _Left] = {}
        self._nowhere: set[object] = set()
        self._closed: dict[object, bool] = {}
        self._short_at_best: dict[object, Shortage | None] = {}
        self._preemption_helps: dict[object, bool] = {}
        self._helps: dict[object, bool] = {}
        self._lowest: dict[object, int] = {}
        self._stay: dict[object, list[tuple[int, int]]] = {}
        self._spaces: dict[object, FreeSpace] = {}

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
            other for pod in space.original[index] for other in space.arrivals(pod.node, index)
        }
        ordered = sorted(arrivals, key=lambda other: (-gangs[other].priority, other))
        names = [f"{'/'.join(gangs[o].key)} (priority {gangs[o].priority})" for o in ordered]
        return f"stopped to make room for {first_of(names, MAX_NAMED, 'more gang')}"

    def _unexplained(self, index: int) -> Reason:
        """For a gang whose cause of waiting is not known when the time is up."""
        gang = self._instance.gangs[index]
        gpus = sum(gang.roles[role].gpus for role, _ in gang.missing())
        first, outranked = self._others.that_start_first(index)
        return Reason(
            "Outranked" if outranked else "NoRoom",
            f"needs {plural(gpus, 'GPU')}; no placement was found {first}, and the search ended "
            "before the cause was established",
        )

    def _waiting(self, index: int) -> Reason:
        """The first reason that applies to a gang that lacks pods."""
        gang = self._instance.gangs[index]
        self._exempt(index)
        demand = missing_demand(self._maximal.space, index)
        if not demand.possible:
            return Reason(
                "RequiredTopology",
                "its running pods already violate its required topology or GPU model",
            )
        kind = (identity(self._instance, demand), gang.roles)
        if kind not in self._known:
            self._known[kind] = self._not_now(demand, kind[0])
        known = self._known[kind]
        if isinstance(known, Shortage):
            never = None if gang.running else self._never(index, kind)
            if never is not None:
                return Reason(NEVER, never)
            if self._above_limit(demand):
                return self._beyond_queues(demand) or self._short_now(demand, kind, known)
            return self._short_now(demand, kind, known)
        if known is not None:
            return replace(known, message=known.message + self._guarded(demand, kind))
        return self._beyond_queues(demand) or self._after_others(demand, kind)

    @cached_property
    def _queues(self) -> QueueCounts | None:
        return queue_counts(self._instance, self._pods)

    def _beyond_queues(self, demand: Demand) -> Reason | None:
        """The limit or the guarantee of a queue that keeps the gang from so many GPUs, if one does."""
        counts = self._queues
        asked = {} if counts is None else self._asked(demand, counts)
        first = None if counts is None else counts.refusal(demand.gang, asked)
        if counts is None or first is None:
            return None
        queue, gpu = first
        needs = f"needs {_gpus(asked[gpu], gpu)}"
        if queue is not None:
            most = counts.shares.most[gpu][queue]
            named = shown(counts.shares.names[queue])
            held = counts.held[gpu][queue]
            return Reason(
                QUOTA, f"{needs}; queue {named} holds {held:,} of the {most:,} that it may hold"
            )
        unused, owner = max((counts.unused(q, gpu), -q) for q in range(len(counts.shares.names)))
        named, guarantee = shown(counts.shares.names[-owner]), counts.shares.guarantee(-owner, gpu)
        return Reason(
            QUOTA,
            f"{needs} and is not preemptible; so many would leave too few for what queues are guaranteed: "
            f"{named} may still take {unused:,} of its {guarantee:,}",
        )

    def _above_limit(self, demand: Demand) -> bool:
        """Whether it lacks more GPUs than a queue may hold, whatever the others in it hold."""
        counts = self._queues
        if counts is None:
            return False
        path = counts.shares.path(queue_of(self._instance)[demand.gang])
        most = counts.shares.most
        asked = self._asked(demand, counts).items()
        limits = [(n, most[gpu][q]) for gpu, n in asked if gpu in most for q in path]
        return any(limit is not None and n > limit for n, limit in limits)

    def _asked(self, demand: Demand, counts: QueueCounts) -> dict[Gpu, int]:
        """GPUs that it lacks, in all, and of each model on which a role of it has to be."""
        asked: dict[Gpu, int] = {None: demand.gpus}
        for role in demand.gpu_roles:
            names = {slug(name) for name in self._instance.gpu_names(role.nodes)}
            if len(names) == 1 and counts.shares.models:
                (name,) = names
                asked[name] = asked.get(name, 0) + role.gpus * role.count
        return asked

    def _never(self, index: int, kind: object) -> str | None:
        """Why a waiting gang, for which a count finds no space now, could not start on the empty cluster."""
        if kind not in self._empty:
            self._empty[kind] = self._best.never(self._best.demand(index))
        return self._empty[kind]

    @cached_property
    def _after(self) -> FreeSpace:
        return FreeSpace(self._plain, self._decisions)

    @cached_property
    def _above(self) -> LeftByAbove:
        return LeftByAbove(self._plain, self._decisions)

    @cached_property
    def _higher(self) -> LeftByAbove:
        """As ``_above``, for starts of higher priority alone."""
        return LeftByAbove(self._plain, self._decisions)

    @cached_property
    def _undercut(self) -> WithoutBelow:
        return WithoutBelow(self._plain, self._decisions)

    @cached_property
    def _best(self) -> EmptyCluster:
        return EmptyCluster(self._plain)

    def _short_now(self, demand: Demand, kind: object, short: Shortage) -> Reason:
        """A count says no, whoever gives way: who holds the rest, and what would help."""
        if short.code == "Selector":
            return Reason(short.code, short.said())
        text = short.said(if_all_left(self._maximal))
        held = "" if short.code == "Resources" else self._held_by(demand)
        helps = self._guarded(demand, kind) or self._would_help(demand, kind, named=bool(held))
        return Reason(short.code, text + held + helps)

    def _held_by(self, demand: Demand) -> str:
        """The running gangs that hold what it lacks."""
        gangs, holders = self._instance.gangs, self._staying(demand)
        if not holders:
            return ""
        largest, most = holders[0]
        name = "/".join(gangs[largest].key)
        if len(holders) == 1:
            return f"; {name} holds {plural(most, 'GPU')} there"
        gpus = plural(sum(gpus for _, gpus in holders), "GPU")
        return f"; {len(holders):,} running gangs hold {gpus} there, most {name} ({most:,})"

    def _would_help(self, demand: Demand, kind: object, *, named: bool) -> str:
        """What might let it start, by counts: nodes that are out, preemption, or only that gangs end.

        ``named``: the words before name a single gang that holds what it lacks.
        """
        if kind not in self._short_at_best:
            self._short_at_best[kind] = shortage(self._idle, demand)
        short = self._short_at_best[kind]
        if short is not None and short.code == "Resources":
            return "; smaller requests would help"
        if short is not None:
            return "; needs nodes or GPUs that are cordoned, not ready or unhealthy now"
        stay = self._staying(demand)
        may = self._preemption(demand, kind)
        if may or not stay:
            return may
        whose = "it ends" if len(stay) == 1 and named else "running gangs end"
        return f"; may start once {whose}"

    def _preemption(self, demand: Demand, kind: object) -> str:
        """Whether there would be room, by counts, if no gang of lower priority ran or started."""
        priority = self._instance.gangs[demand.gang].priority
        if self._lowest_staying(demand) >= priority:
            return ""
        self._undercut.lower_to(priority)
        key = (kind, self._undercut.stage)
        if key not in self._preemption_helps:
            self._preemption_helps[key] = shortage(self._undercut.counts, demand) is None
        helps = self._preemption_helps[key]
        return "; making running gangs of lower priority preemptible may help" if helps else ""

    def _staying(self, demand: Demand) -> list[tuple[int, int]]:
        """(gang, GPUs) of running gangs where it may run that no plan stops or moves for it, most first."""
        key = (demand.nodes, self._maximal.removed, self._instance.gangs[demand.gang].running)
        if key not in self._stay or key[2]:
            gone = {*self._maximal.removed, demand.gang}
            holders = self._others.holders(demand.nodes)
            self._stay[key] = [one for one in holders if one[0] not in gone]
        return self._stay[key]

    def _lowest_staying(self, demand: Demand) -> int:
        """The lowest priority among those; beyond all where there are none."""
        gangs = self._instance.gangs
        key = (demand.nodes, demand.gang if gangs[demand.gang].running else None)
        if key not in self._lowest:
            priorities = (gangs[i].priority for i, _ in self._staying(demand))
            self._lowest[key] = min(priorities, default=1 << 62)
        return self._lowest[key]

    @cached_property
    def _idle(self) -> FreeCounts:
        """The nodes as they are, without any pod of a gang."""
        return FreeCounts.without_pods(self._plain)

    def _guarded(self, demand: Demand, kind: object) -> str:
        """A running gang that only disruption budgets keep from giving way, if that might help."""
        if not self._instance.cluster.budgets:
            return ""
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
        return FreeCounts.of(MaximalSpace(replace(self._plain, cluster=cluster)).space)

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
        holders = self._kept_out(demand, kind)
        if holders:
            return Reason(RESERVED, self._reserved_for(demand.gang, holders))
        left = self._left_for(demand, kind)
        first, outranked = self._others.that_start_first(demand.gang)
        ruled_out = self._ruled_out(demand, left, first)
        if ruled_out is not None:
            return ruled_out
        if left.fits:
            return Reason("Outranked", self._fitting(demand, first, beside=left.beside))
        patient = self._patient(demand)
        if patient:
            return Reason("Bandwidth", patient)
        largest = self._others.largest_first(demand.gang, demand.nodes)
        if largest is not None:
            name = "/".join(self._instance.gangs[largest[0]].key)
            first += f" (most to {name}, {plural(largest[1], 'GPU')})"
        if left.short is not None:
            text = left.short.said(f"{first} ")
        else:
            free = f"{plural(left.free, 'GPU')} {'is' if left.free == 1 else 'are'} free"
            text = (
                f"needs {plural(demand.gpus, 'GPU')}; {first} {free} on its nodes, and no placement was "
                "found on them"
            )
        text += self._reclaiming(demand.gang)
        text += self._guarded(demand, kind) or self._preemption(demand, kind)
        code = "NoRoom" if left.short is None else left.short.code
        return Reason("Outranked" if outranked else code, text)

    def _ruled_out(self, demand: Demand, left: _Left, first: str) -> Reason | None:
        """The rule about several gangs that keeps it from room that is there."""
        needs = f"needs {plural(demand.gpus, 'GPU')}"
        if left.barred is not None:
            text = f"{needs}; {first} there is room, but none was found {_RULES[left.barred]}"
            return Reason(left.barred.value, text + self._reclaiming(demand.gang))
        if left.cells is not None:
            text = f"{needs} and is not preemptible; where there is room, {left.cells}"
            return Reason(QUOTA, text)
        above = barred_by(self._instance, self._pods, demand.gang) if left.fits else None
        if above is None:
            return None
        other = self._instance.gangs[above]
        named = f"{'/'.join(other.key)} (priority {other.priority})"
        return Reason(HELD_ROOM, f"room is held for {named}, which waits")

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
            beside = fits and place(self._after, demand) is not None
            barred = self._barred(demand.gang) if fits else None
            cells = None
            if pods is not None and barred is None:
                cells = self._taken_away(demand.gang, above.space.pods, pods)
            free = above.counts.on(demand.nodes)
            self._left[key] = _Left(short, fits, beside, free, barred, cells)
        return self._left[key]

    def _kept_out(self, demand: Demand, kind: object) -> tuple[Reserved, ...]:
        """Reservations but for which it fits beside gangs of higher priority; elsewhere it does not."""
        gang = self._instance.gangs[demand.gang]
        own = frozenset[int]().union(*(role.nodes for role in demand.roles))
        closing = tuple(
            one
            for one in self._instance.reserved
            if closes(self._instance, one, gang) and not own.isdisjoint(one.nodes)
        )
        if not closing:
            return ()
        self._higher.lower_to(gang.priority + 1)
        key, space = (kind, self._higher.stage, closing), self._higher.space
        if key not in self._closed:
            free = demand.within(own.difference(*(one.nodes for one in closing)))
            elsewhere = all(role.nodes for role in free.roles) and place(space, free) is not None
            self._closed[key] = not elsewhere and place(space, demand) is not None
        return closing if self._closed[key] else ()

    def _reserved_for(self, index: int, holders: Sequence[Reserved]) -> str:
        """For whom the nodes are reserved, and why the gang may not start there until then."""
        gang, nodes = self._instance.gangs[index], {n for one in holders for n in one.nodes}
        names = [
            f"{'/'.join(one.gang)} (priority {-one.place[0]}, start {time_text(one.start)})"
            for one in holders
        ]
        unknown = gang.expected_duration_s is None
        why = "how long it runs is not known" if unknown else "it would run beyond that"
        there = f"{plural(len(nodes), 'node')} {'is' if len(nodes) == 1 else 'are'}"
        return f"{there} reserved for {first_of(names, MAX_NAMED, 'other gang')}; {why}"

    def _patient(self, demand: Demand) -> str:
        """Until when it waits for a better place than there is; empty if that does not keep it waiting."""
        gang = self._instance.gangs[demand.gang]
        until = self._instance.patient_until(gang)
        if until is None:
            return ""
        ways = islice(placements(self._above.space, demand, bound=False), WAYS)
        least = self._instance.least_share(gang)
        shares = (value_of(self._above.space, demand.gang, pods).share for pods in ways)
        best = max((s for s in shares if s is not None and s >= 1000 * least), default=None)
        if best is None:
            return ""
        share = self._instance.min_share(gang)
        return (
            f"waits until {time_text(until)} for a place that reaches its minBandwidthShare of"
            f" {float(share):g}; the best that was found has {best / 1000:g}"
        )

    def _taken_away(
        self, gang: int, first: Sequence[Sequence[PodPlacement]], pods: Sequence[PodPlacement]
    ) -> str | None:
        """Whose cells a gang would take with these pods beside those that come first; None if it need not."""
        instance = self._instance
        if not cells_by_model(instance) or not is_firm(instance.gangs[gang]):
            return None
        if self._placed_without((), gang):
            return None
        reach = Reach(instance, enumerate(first))
        reach.pack()
        known = {(name, kind): missing for name, kind, missing in reach.lacking()}
        reach.add(gang, pods)
        reach.pack()
        for name, kind, missing in reach.lacking():
            lost = missing - known.get((name, kind), 0)
            if lost > 0:
                size = plural(kind.gpus, "GPU")
                if kind.level is not None:
                    size = f"the level {instance.cluster.level_name(kind.level)}"
                return f"it would take {plural(lost, 'cell')} of {size} from queue {shown(name)}"
        return "it would take cells from other queues"

    def _barred(self, gang: int) -> Kind | ShapeRule | None:
        """The rule that keeps a gang from the room that is left; None if it finds a place."""
        rules: list[Kind | ShapeRule] = list(about(self._instance, gang))
        shapes = shapes_about(self._instance, gang)
        if self._instance.gangs[gang].exclusive is None and not self._some_alone:
            shapes = [rule for rule in shapes if rule is not ShapeRule.EXCLUSIVE]
        rules += shapes
        if not rules or self._placed_without((), gang):
            return None
        return next((rule for rule in rules if self._placed_without((rule,), gang)), rules[0])

    @cached_property
    def _some_alone(self) -> bool:
        """Whether a gang that is alone in its domains has pods after the plan."""
        pairs = zip(self._instance.gangs, self._decisions, strict=True)
        return any(gang.exclusive is not None and one.pods for gang, one in pairs)

    def _placed_without(self, rules: tuple[Kind | ShapeRule, ...], gang: int) -> bool:
        """Whether a placement is found beside those that come first if no such rules count."""
        priority = self._instance.gangs[gang].priority
        if (rules, priority) not in self._spaces:
            pairs = zip(self._instance.gangs, self._decisions, strict=True)
            first = (
                GangDecision("wait") if d.decision == "place" and g.priority < priority else d
                for g, d in pairs
            )
            kinds = [rule for rule in rules if isinstance(rule, Kind)]
            shapes = [rule for rule in rules if isinstance(rule, ShapeRule)]
            loose = without_shape(without(self._instance, kinds), shapes)
            self._spaces[rules, priority] = FreeSpace(loose, tuple(first))
        space = self._spaces[rules, priority]
        return place(space, missing_demand(space, gang)) is not None

    def _fitting(self, demand: Demand, first: str, *, beside: bool) -> str:
        """The gang would fit but waits, because earlier tiers or the end of the search decide so."""
        listed = [objective.name for objective in self._instance.policy.objectives]
        rewarding = [n for n, name in enumerate(listed) if family(name).fused]
        where = "" if beside else " in place of gangs of lower priority"
        text = f"needs {plural(demand.gpus, 'GPU')} and would fit{where} {first}, but "
        if not rewarding:
            which = f"{', '.join(MAINS)} nor waiting"
            return f"{text}no objective rewards it: the policy lists neither {which}"
        earlier = listed[: min(rewarding)]
        if not beside and self._guarantees:
            earlier.insert(0, "what queues are guaranteed")
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
        if barred_by(self._instance, self._pods, index) is not None:
            return ""  # whatever room there were would be held
        if self._instance.gangs[index].priority in self._proven:
            by_speed, proof = self._instance.by_speed, f"(proven{self._restriction()})"
            if not self._others.has_peers(index):
                what = "gains by starting it" if by_speed else "admits it"
                return f"; no plan that keeps the earlier tiers {what} {proof}"
            peers = "gangs of its priority or higher"
            if self._guarantees:
                peers += " or some within their guarantees"
            if by_speed:
                return f"; starting it would slow or displace {peers}, or gain nothing {proof}"
            return f"; starting it would displace {peers} {proof}"
        candidates = self._others.candidates(index)
        if not candidates:
            return ""
        return (
            f"; no way was found to make room by moving or stopping {running_gangs(candidates)} "
            "that may give way"
        )

    @property
    def _guarantees(self) -> bool:
        """Whether guarantees of queues come before all other tiers."""
        return any(tier.row.first for tier in tiers_of(self._instance))

    def _restriction(self) -> str:
        """The restriction of a proof to plans in which some gangs do not move."""
        if not self._immovable:
            return ""
        names = ["/".join(self._instance.gangs[i].key) for i in self._immovable]
        return f" while {first_of(names, MAX_NAMED, 'other gang')} may not move"
