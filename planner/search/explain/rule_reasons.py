"""Rules that keep a gang from room that is there.

They are about several gangs: what queues may hold and keep reachable, nodes that are reserved, and where the
pods of others are. A rule keeps a gang waiting if it finds a place without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from models.documents.reason import MAX_NAMED
from models.hardware import slug
from models.instance.instance import Instance, once
from models.instance.queue import Gpu
from models.instance.solution import (
    NEVER,
    QUOTA,
    RESERVED,
    GangDecision,
    PodPlacement,
    Reason,
    Reserved,
)
from models.queues.cells import Reach, cells_by_model, without_places
from models.queues.pins import closed_by_pins, trespassing
from models.queues.queue_shares import QueueCounts, beyond_limit, queue_counts, queue_of, shares
from models.queues.reservations import closes
from models.queues.reserved_quotas import Claim, claims_beside, hindered
from models.rules.declaration import Requirement, without
from models.rules.demands import Demand
from models.rules.registry import joint_requirements
from models.units import time_text
from planner.search.explain.world import named
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import missing_demand, place


class LeftByAbove:
    """What a plan leaves without its starts of lower priority, for falling priorities.

    Gangs of lower priority never count: in the order of the tiers they get what the higher ones leave.
    ``stage``: how many starts count now.
    """

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self._gangs = instance.gangs
        self._starts = {i: d.pods for i, d in enumerate(decisions) if d.decision == "place"}
        self._order = sorted(self._starts, key=lambda i: (-self._gangs[i].priority, i))
        running = (d if d.decision != "place" else GangDecision("wait") for d in decisions)
        self._space = FreeSpace(instance, tuple(running))
        self.stage = 0

    def down_to(self, priority: int) -> FreeSpace:
        """With the starts of this priority and above; priorities must not rise between calls."""
        for index in self._order[self.stage :]:
            if self._gangs[index].priority < priority:
                break
            self._space.set(index, self._starts[index])
            self.stage += 1
        return self._space


class RuleReasons:
    """``plain``: the instance as ``without_joint_rules`` has it. Gangs must come by falling priority.

    ``_closed``: whether reservations keep a kind of gang out; ``_without``: what those that come first leave
    where some rules do not count.
    """

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], plain: Instance
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._plain = plain
        self._pods = [decision.pods for decision in decisions]
        self._closed: dict[object, bool] = {}
        self._without: dict[tuple[str, ...], LeftByAbove] = {}
        self._counts: dict[int, QueueCounts | None] = {}

    @cached_property
    def above(self) -> LeftByAbove:
        """What running gangs and starts of its priority or higher leave."""
        return LeftByAbove(self._plain, self._decisions)

    @cached_property
    def _queues(self) -> QueueCounts | None:
        return queue_counts(self._instance, self._pods)

    def _counts_above(self, demand: Demand) -> QueueCounts | None:
        """What queues hold with the plan, without its starts of lower priority."""
        priority = self._instance.gangs[demand.gang].priority
        if priority not in self._counts:
            pods = self.above.down_to(priority).pods
            self._counts[priority] = queue_counts(self._instance, pods)
        return self._counts[priority]

    def beyond_queues(self, demand: Demand, fits: Callable[[], bool]) -> Reason | None:
        """The limit or the guarantee of a queue that keeps the gang from so many GPUs, if one does.

        A guarantee that refuses it without the starts of lower priority comes first. What only these starts
        fill is why it waits if it ``fits`` beside those that come first.
        """
        counts = self._queues
        if counts is None:
            return None
        asked = self._asked(demand, counts)
        first = counts.refusal(demand.gang, asked)
        if first is None:
            return None
        above = self._counts_above(demand)
        refusal = None if above is None else above.refusal(demand.gang, asked)
        if refusal is None and not fits():
            return None
        if above is not None and refusal is not None and refusal.queue is None:
            counts, first = above, refusal
        queue, gpu, kept, firm = first
        shares, gpus = counts.shares, self._instance.in_gpus
        needs: dict[str, object] = {"gpus": gpus(asked[gpu]), "model": gpu}
        if queue is not None:
            if firm:
                most, held = shares.most_firm[gpu][queue], counts.firm[gpu][queue]
            else:
                most, held = shares.most[gpu][queue], counts.held[gpu][queue]
                if most is None or held + asked[gpu] <= most:
                    most, held = shares.most_taken[gpu][queue], counts.taken(queue, gpu)
            held_and_limit = {"held": gpus(held), "limit": gpus(most or 0)}
            return Reason.of(QUOTA, queue=shares.names[queue], **held_and_limit, **needs)
        own = shares.path(queue_of(self._instance)[demand.gang])
        others = [q for q in range(len(shares.names)) if q not in own] or own
        others = [q for q in others if self._may_want(q, demand)] or others
        unused, promised = (
            (counts.unlent, shares.kept) if kept else (counts.unused, shares.guarantees)
        )
        owner = -max((unused(q, gpu), -q) for q in others)[1]
        most = promised[gpu][owner]
        return Reason.of(QUOTA, queue=shares.names[owner], limit=gpus(most), **needs)

    def _may_want(self, queue: int, demand: Demand) -> bool:
        """Whether the queue is promised GPUs of a model that the gang may use, or of any."""
        queues = self._instance.queues
        promised = queues[queue].guarantee if queue < len(queues) else None
        if promised is None or not promised.models:
            return True
        names = {slug(name) for name in self._instance.gpu_names(demand.nodes)}
        return any(gpu in names for gpu, _ in promised.models)

    def never(self, index: int) -> Reason | None:
        """That a gang asks for more than a queue may hold, whatever runs."""
        found = beyond_limit(self._instance, self._instance.gangs[index])
        if found is None or self._queues is None:
            return None
        name = self._queues.shares.names[found.queue]
        gpus = self._instance.in_gpus
        asked = {"gpus": gpus(found.asked), "model": found.gpu, "limit": gpus(found.limit)}
        return Reason.of(NEVER, queue=name, **asked)

    def _asked(self, demand: Demand, counts: QueueCounts) -> dict[Gpu, int]:
        """GPUs that it lacks, in all, and of each model on which a role of it has to be."""
        asked, gang = Counter[Gpu]({None: 0}), self._instance.gangs[demand.gang]
        for role in demand.roles:
            units = gang.roles[role.role].units * role.count
            asked[None] += units
            names = {slug(name) for name in self._instance.gpu_names(role.nodes) if units}
            if len(names) == 1 and counts.shares.models:
                asked[names.pop()] += units
        return asked

    @cached_property
    def _higher(self) -> LeftByAbove:
        """What running gangs and starts of higher priority leave."""
        return LeftByAbove(self._plain, self._decisions)

    @cached_property
    def _claims(self) -> list[Claim]:
        return claims_beside(self._instance, self._pods)

    def reserved(self, demand: Demand, kind: object) -> Reason | None:
        """Reservations but for which it fits beside gangs of higher priority; elsewhere it does not."""
        gang = self._instance.gangs[demand.gang]
        own = frozenset[int]().union(*(role.nodes for role in demand.roles))
        in_queues = hindered(self._instance, self._claims, demand.gang)
        closing = tuple(
            one
            for one in self._instance.reserved
            if closes(self._instance, one, gang) and not own.isdisjoint(one.nodes)
        )
        if not closing and not in_queues:
            return None
        space = self._higher.down_to(gang.priority + 1)
        if in_queues:
            fits = place(space, demand) is not None
            return self._reserved_for(in_queues) if fits else None
        key = (kind, self._higher.stage, closing)
        if key not in self._closed:
            free = demand.within(own.difference(*(one.nodes for one in closing)))
            elsewhere = place(space, free) is not None
            self._closed[key] = not elsewhere and place(space, demand) is not None
        return self._reserved_for(closing) if self._closed[key] else None

    def _reserved_for(self, holders: Sequence[Reserved]) -> Reason:
        """For whom the nodes, or what it would hold in its queues, are reserved."""
        gangs = {gang.key: gang for gang in self._instance.gangs}
        by = [named(gangs[one.gang], start=time_text(one.start)) for one in holders[:MAX_NAMED]]
        return Reason.of(RESERVED, by=by)

    def taken_away(
        self, gang: int, first: Sequence[Sequence[PodPlacement]], pods: Sequence[PodPlacement]
    ) -> Reason | None:
        """Whose cells a gang would take with these pods beside those that come first; None if it need not."""
        instance, spec = self._instance, self._instance.gangs[gang]
        if not spec.firm_on_gpus or not (
            cells_by_model(instance) or closed_by_pins(instance, spec)
        ):
            return None
        if self._placed_without((), gang):
            return None
        held = {pod.node for pod in pods if spec.roles[pod.role].gpus}
        closed = trespassing(instance, spec, held)
        if closed:
            name = min(closed, key=lambda name: (-closed[name], name))
            return Reason.of(QUOTA, queue=name)
        reach = Reach(instance, enumerate(first))
        reach.pack()
        known = {(name, kind): missing for name, kind, missing in reach.lacking()}
        reach.add(gang, pods)
        reach.pack()
        for name, kind, missing in reach.lacking():
            if missing > known.get((name, kind), 0):
                level = None
                if kind.level is not None:
                    level = instance.cluster.level_name(kind.level)
                return Reason.of(QUOTA, queue=name, level=level)
        return Reason.of(QUOTA)

    def barred(self, gang: int) -> Reason | None:
        """The rule that keeps a gang from the room that is left; None if it finds a place."""
        rules = [
            one
            for one in joint_requirements()
            if one.concerns is not None and one.concerns(self._instance, gang, self._pods)
        ]
        if not rules or self._placed_without((), gang):
            return None
        found = next((rule for rule in rules if self._placed_without((rule,), gang)), rules[0])
        assert found.code is not None, "a rule that counts leave aside has one"
        return Reason.of(found.code)

    def _placed_without(self, rules: tuple[Requirement, ...], gang: int) -> bool:
        """Whether a placement is found beside those that come first if no such rules count."""
        names = tuple(one.name for one in rules)
        if names not in self._without:
            self._without[names] = LeftByAbove(without(self._instance, rules), self._decisions)
        space = self._without[names].down_to(self._instance.gangs[gang].priority)
        return place(space, missing_demand(space, gang)) is not None


@once
def without_joint_rules(instance: Instance) -> Instance:
    """The instance without rules about pods, whole domains, queues, cells and reservations."""
    known = shares(instance)
    if instance.reserved:
        instance = replace(instance, reserved=())
    if known is not None:
        queues = tuple(replace(one, strict=False) for one in without_places(instance.queues))
        instance = replace(instance, queues=queues, shares=known.unlimited())
    return without(instance, joint_requirements())
