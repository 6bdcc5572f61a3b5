"""What makes a waiting gang start: each change is done, and planned again, before it is said.

Of each kind there is one: the smallest change that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from models.instance.gang import Role, label_texts
from models.instance.queue import Amount
from models.instance.solution import GangDecision
from models.mig import RESOURCE
from models.program.linear_program import Question
from models.queues.queue_shares import gpus_held, queue_counts
from models.queues.reservations import LAST_TIME, end_of, yields
from models.rules.bandwidth import SHARE
from models.rules.nodes import HOLD, REQUEST, SELECTOR, TAINT
from models.rules.queue_rules import QUEUE
from models.rules.registry import requirements
from models.rules.topology import REQUIRED
from models.units import in_bytes, quantity_text
from planner.search.explain.reason_holders import ReasonHolders
from planner.search.explain.trial import NodeRemedies, Remedy, Trial, Way, size_of
from planner.search.explain.world import Replan, World, needed_away, placed
from planner.search.free_space import FreeSpace
from planner.search.improve.rearranging import ways
from planner.search.start.greedy import demand_like, missing_demand, place, value_of

MAX_MOVED = 16
"""Movable gangs of which it is tried to move one, those with fewest GPUs first."""

MAX_STOPPED = 12
"""Gangs that one remedy stops."""

ROOM = ("NoRoom", "Resources", "RequiredTopology", "Outranked")
"""Codes whose gangs are those without which there would be room."""

GI = 2**30


@dataclass(frozen=True, slots=True)
class Wish:
    """Something that the policy, the gang or one of its roles asks for. ``loose``: the world without it."""

    kind: str
    name: str
    role: int | None
    loose: World


def wishes(world: World) -> Iterator[Wish]:
    """All of them but holds: of the policy and queues, then of the gang, then of each role."""
    instance, spec = world.instance, world.spec
    pods = [one.pods for one in world.decisions]
    asked = [one for one in requirements() if one is not HOLD]
    for one in asked:
        for wish in one.of_all(instance, pods, world.gang) if one.of_all else ():
            yield Wish(one.name, wish.name, None, replace(world, instance=wish.change(instance)))
    for one in asked:
        for own in one.of_gang(instance, spec) if one.of_gang else ():
            yield Wish(one.name, own.name, None, world.with_gang(own.change(spec)))
    for number, role in enumerate(spec.roles):
        for one in asked:
            for of_it in one.of_role(instance, role) if one.of_role else ():
                loose = world.with_role(number, of_it.change(role))
                yield Wish(one.name, of_it.name, number, loose)


class RemedyFinder:
    """``late``: whether no further question is to be asked."""

    def __init__(self, world: World, replan: Replan, late: Question) -> None:
        self._world, self._replan, self._late = world, replan, late
        self._gangs = world.instance.gangs
        self._space = FreeSpace(world.instance, world.decisions)
        self._trial = Trial(world, late, turns=replan.turns > 0)
        self._of_nodes = NodeRemedies(self._trial, self._space)

    def remedies(self) -> tuple[Remedy, ...]:
        """Those that are found, in the order in which a person would try them."""
        found: list[Remedy] = []
        ways: tuple[Callable[[], Iterator[Remedy]], ...] = (
            self._others,
            self._of_nodes.back_in_order,
            self._made_preemptible,
            self._wishes,
            self._waiting,
            self._of_nodes.more,
            self._fewer_pods,
        )
        for way in ways:
            if not self._late():
                found += way()
        found.sort(key=lambda one: one.rank)
        planned = (self._planned(one) for one in found)
        return tuple(sorted((one for one in planned if one), key=lambda one: one.rank))

    def _planned(self, one: Remedy) -> Remedy | None:
        """As a new plan has it, where a search is affordable; None if the gang waits there all the same."""
        if one.kind == "wait":
            return one
        for other in self._counts(one) if one.kind == "addNode" else (one,):
            new = None if self._late() else self._replan.search(other.world)
            if new is None:
                return one if one.pods else None
            if pods := new[other.world.gang].pods:
                return replace(other, pods=pods, first=(), replanned=True)
        return None

    def _counts(self, one: Remedy) -> Iterator[Remedy]:
        """Nodes that are added, a few fewer and more of them: others may move, or come first."""
        count, nodes = int(str(one.change["count"])), self._world.instance.cluster.nodes
        like = next(node for node in nodes if node.name == one.change["like"])
        for number in range(max(1, count - 2), count + 4):
            change = {**one.change, **size_of(like, number)}
            yield replace(one, world=self._of_nodes.with_new(like, number), change=change)

    # Other gangs

    def _others(self) -> Iterator[Remedy]:
        """One gang that finds another place, and the cheapest ones that would have to go."""
        world = self._world
        demand = missing_demand(self._space, world.gang)
        if not demand.possible or not all(role.nodes for role in demand.roles):
            return
        holders = ReasonHolders(world.instance, world.decisions, self._replan, self._late)
        cheapest = self._stated() or holders.cheapest(world.gang, MAX_STOPPED)
        here = [i for i in self._on(demand.nodes) if self._gangs[i].movable and i != world.gang]
        here = sorted(here, key=lambda i: (self._size(i), i))[:MAX_MOVED]
        tried = dict.fromkeys([*here, *(cheapest if len(cheapest) == 1 else ())])
        moves = (self._both(index) for index in tried if not self._late())
        yield from islice((one for one in moves if one is not None), 1)
        if cheapest:
            yield from self._stopped(cheapest)

    def _stated(self) -> tuple[int, ...]:
        """Those without which it could start, as the plan has it."""
        reason = self._world.decisions[self._world.gang].reason
        if reason is None or reason.code not in ROOM:
            return ()
        number = {"/".join(gang.key): i for i, gang in enumerate(self._gangs)}
        return tuple(number[one.gang] for one in reason.fields.by if one.gang in number)

    def _size(self, index: int) -> int:
        roles = self._gangs[index].roles
        return sum(roles[pod.role].gpus for pod in self._world.decisions[index].pods)

    def _both(self, index: int) -> Remedy | None:
        """The gang where another was, and that one elsewhere."""
        gang, gone = self._gangs[index], self._world.without([index])
        pods = gone.placement()
        if pods is None:
            return None
        decisions = list(gone.decisions)
        decisions[gone.gang] = GangDecision("place", pods)
        other = replace(gone, gang=index, decisions=tuple(decisions))
        other = other.with_gang(replace(gang, pods=(), planned=()))
        space = FreeSpace(other.instance, other.decisions)
        elsewhere = place(space, demand_like(space, index, self._world.decisions[index].pods))
        if elsewhere is None:
            return None
        there = {(pod.role, pod.index): pod for pod in elsewhere}
        running = ((pod, there.get((pod.role, pod.index))) for pod in gang.pods)
        moved = tuple(replace(pod, node=new.node, gpus=new.gpus) for pod, new in running if new)
        decisions[index] = GangDecision("keep" if gang.running else "place", elsewhere)
        other = other.with_gang(replace(gang, pods=moved, planned=()))
        return Remedy(
            "move",
            World(other.instance, tuple(decisions), gone.gang),
            pods,
            gangs=(gang.key,),
            moved=elsewhere,
            change={
                "gpus": self._size(index),
                "running": gang.running,
                "movable": gang.movable,
                "lower": gang.priority < gone.spec.priority,
            },
            by_hand=gang.running and not gang.movable,
        )

    def _stopped(self, gone: Sequence[int]) -> Iterator[Remedy]:
        gangs = [self._gangs[index] for index in gone]
        own = self._world.spec.priority
        running = [gang for gang in gangs if gang.running]
        firm = sum(not gang.preemptible for gang in running)
        higher = sum(gang.preemptible and gang.priority >= own for gang in running)
        change: dict[str, object] = {
            "gpus": sum(map(self._size, gone)),
            "notRunning": len(gangs) - len(running),
            "notPreemptible": firm,
            "notLower": higher,
            "lower": all(gang.priority < own for gang in gangs),
        }
        yield from self._trial.tried(
            "stop",
            self._world.without(gone),
            gangs=tuple(gang.key for gang in gangs),
            change=change,
            by_hand=bool(firm or higher or len(running) < len(gangs)),
        )

    def _waiting(self) -> Iterator[Remedy]:
        """When so many gangs have ended as expected that it starts, or what is reserved for it begins."""
        world, space = self._world, self._space
        ends = sorted(
            (end, index)
            for index, one in enumerate(world.decisions)
            if one.pods and index != world.gang
            if (end := end_of(world.instance, index, one)) is not None and end <= LAST_TIME
        )
        for one in world.instance.reserved:
            if one.gang == world.spec.key:
                gone = [index for end, index in ends if end <= one.start]
                there = self._on(frozenset(one.nodes))
                later = (index for index in there if index not in gone)
                gone += [i for i in later if yields(world.instance, self._gangs[i], one.place)]
                there = [index for index in gone if index in there]
                yield from self._waited(gone, there, one.start, reserved=True)
                return
        gone, mark, demand = [], space.mark(), missing_demand(space, world.gang)
        at = expected = world.decisions[world.gang].expected_start
        for end, index in ends:
            if self._late() or (expected is not None and end > expected):
                break
            gone.append(index)
            space.set(index, ())
            if expected is None and placed(space, demand) is not None:
                at = end
                break
        awaited = needed_away(space, demand, gone, world.decisions, self._late)
        space.undo(mark)
        if at is not None and awaited:
            yield from self._waited(gone, awaited, at)

    def _on(self, nodes: frozenset[int]) -> list[int]:
        found = enumerate(self._world.decisions)
        return [index for index, one in found if any(pod.node in nodes for pod in one.pods)]

    def _waited(
        self, gone: Sequence[int], awaited: Sequence[int], at: int, **change: object
    ) -> Iterator[Remedy]:
        """``gone``: gangs that have ended by then; ``awaited``: those that it waits for."""
        keys = tuple(self._gangs[index].key for index in awaited)
        world = self._world.without(gone)
        pods = world.placement()
        if pods is not None:
            yield Remedy("wait", world, pods, at=at, gangs=keys, change=change)

    # Wishes of the gang and rules of the policy

    def _wishes(self) -> Iterator[Remedy]:
        for asked in wishes(self._world):
            if self._late():
                return
            way = self._trial.way(asked.loose)
            if way is not None:
                yield from self._without(asked, way)

    def _made_preemptible(self) -> Iterator[Remedy]:
        """It may then use what queues are promised, until they want it."""
        spec = self._world.spec
        changed = self._world.with_gang(replace(spec, preemptible=True))
        if self._world.instance.queues and not spec.preemptible and self._trial.starts(changed):
            yield from self._trial.tried("preemptible", changed)

    def _without(self, asked: Wish, way: Way) -> Iterator[Remedy]:
        """As little as is needed of what it no longer asks."""
        if asked.kind in (TAINT.name, SELECTOR.name):
            return self._fewer_of_role(asked, way)
        if asked.kind == REQUIRED.name:
            return self._wider(asked)
        if asked.kind == SHARE.name:
            return self._slower(asked)
        if asked.kind == REQUEST.name:
            return self._less(asked.name, way)
        limits = list(self._higher_limits()) if asked.kind == QUEUE.name else []
        return iter(limits) if limits else self._dropped(asked, asked.loose, asked.name)

    def _dropped(self, asked: Wish, world: World, name: str) -> Iterator[Remedy]:
        change = {"drop": asked.kind, "name": name, **self._role(asked)}
        return self._trial.tried(asked.kind, world, change=change)

    def _role(self, asked: Wish) -> dict[str, str]:
        roles = self._world.spec.roles
        return {} if asked.role is None else {"role": roles[asked.role].name}

    def _fewer_of_role(self, asked: Wish, way: Way) -> Iterator[Remedy]:
        """The fewest taints that have to be tolerated, or labels that have to be dropped."""
        number = asked.role
        assert number is not None, "pods of a role ask for it"
        role, loose = self._world.spec.roles[number], asked.loose.spec.roles[number]
        added = tuple(one for one in loose.tolerations if one not in role.tolerations)
        dropped = tuple(one for one in role.node_selector if one not in loose.node_selector)

        def with_these(changes: Collection[object]) -> World:
            changed = replace(
                role,
                tolerations=(*role.tolerations, *(one for one in added if one in changes)),
                node_selector=tuple(one for one in role.node_selector if one not in changes),
            )
            return self._world.with_role(number, changed)

        few = self._trial.fewest((*added, *dropped), with_these, way)
        names = [one.key for one in added if one in few]
        names += label_texts([one for one in dropped if one in few])
        return self._dropped(asked, with_these(few), ", ".join(names))

    def _wider(self, asked: Wish) -> Iterator[Remedy]:
        """The next wider level that will do, or none."""
        world, spec, number = self._world, self._world.spec, asked.role
        level = spec.required if number is None else spec.roles[number].required
        assert level is not None, "it requires one"
        for wider in [*range(level - 1, -1, -1), None]:
            changed = (
                world.with_gang(replace(spec, required=wider))
                if number is None
                else world.with_role(number, replace(spec.roles[number], required=wider))
            )
            name = None if wider is None else world.instance.cluster.level_name(wider)
            change = {"required": name, "from": asked.name, **self._role(asked)}
            if found := list(self._trial.tried("required", changed, change=change)):
                return iter(found)
        return iter(())

    def _slower(self, asked: Wish) -> Iterator[Remedy]:
        """The largest share of its bandwidth that is found."""
        loose = asked.loose
        space = FreeSpace(loose.instance, loose.decisions)
        found = ways(space, missing_demand(space, loose.gang), bound=False)
        best = max((value_of(space, loose.gang, pods).share or 0 for pods in found), default=None)
        if best is not None:
            share = Fraction(best, 1000)
            world = loose.with_gang(replace(loose.spec, min_bandwidth_share=share))
            change = {"minBandwidthShare": float(share)}
            yield from self._trial.tried(asked.kind, world, change=change)

    def _less(self, resource: str, way: Way) -> Iterator[Remedy]:
        """The largest request a pod with which it starts, in units that people write: 1m of cpu, Gi or Mi.

        None for instances of GPUs: a pod that asks for one cannot do without.
        """
        if resource.startswith(RESOURCE):
            return
        roles = self._world.spec.roles
        most = max(dict(role.requests).get(resource, 0) for role in roles)
        unit = (GI if most >= 4 * GI else GI // 1024) if in_bytes(resource) else 1

        def at_most(units: int) -> World:
            """The world in which no pod of the gang requests more."""
            top, fewer = units * unit, list[Role]()
            for role in roles:
                own = ((k, min(n, top) if k == resource else n) for k, n in role.requests)
                fewer.append(replace(role, requests=tuple(own)))
            return self._world.with_gang(replace(self._world.spec, roles=tuple(fewer)))

        too_much = self._trial.least(1, -(-most // unit), lambda units: not way(at_most(units)))
        if too_much is not None:
            largest = quantity_text(resource, (too_much - 1) * unit)
            before = quantity_text(resource, most)
            change = {"request": resource, "most": largest, "from": before}
            yield from self._trial.tried("request", at_most(too_much - 1), change=change)

    def _higher_limits(self) -> Iterator[Remedy]:
        """The least limits of the queues of the gang under which it starts where it would without them."""
        world, queues = self._world, self._world.instance.queues
        counts = queue_counts(world.instance, [one.pods for one in world.decisions])
        assert counts is not None, "there are queues"
        path = counts.shares.path(counts.shares.number(world.spec.queue))
        free = _with_limits(world, {q: Amount() for q in path})
        pods = self._trial.in_turn(free)[world.gang].pods or free.placement()
        if pods is None:
            return
        asked = gpus_held(world.instance, world.spec, pods)
        limits, raised = dict[int, Amount](), []
        for q in path:
            total, models = queues[q].limit.gpus, dict(queues[q].limit.models)
            for gpu in (None, *sorted(model for model in asked if model is not None)):
                if gpu not in counts.shares.most:
                    continue  # no queue names the model
                most, needs = counts.shares.most[gpu][q], counts.held[gpu][q] + asked[gpu]
                if most is None or most >= needs:
                    continue
                stated = world.instance.in_gpus(needs)
                raised.append({"queue": queues[q].name, "gpus": stated, "model": gpu})
                if gpu is None:
                    total = needs
                else:
                    models[gpu] = needs
            limits[q] = Amount(total, tuple(sorted(models.items())))
        if raised:
            yield from self._trial.tried(
                "queue", _with_limits(world, limits), change={"limits": raised}
            )

    def _fewer_pods(self) -> Iterator[Remedy]:
        """The most pods of its largest role that start."""
        roles = self._world.spec.roles
        if self._world.spec.running or not roles:
            return
        number = max(range(len(roles)), key=lambda r: roles[r].min * roles[r].gpus)
        role = roles[number]

        def changed(pods: int) -> World:
            return self._world.with_role(number, replace(role, min=pods, max=pods, step=1))

        too_many = self._trial.least(
            1, role.min, lambda pods: not self._trial.starts(changed(pods))
        )
        if too_many is not None and too_many > 1:
            change = {"role": role.name, "pods": too_many - 1, "from": role.min}
            yield from self._trial.tried("smaller", changed(too_many - 1), change=change)


def _with_limits(world: World, limits: Mapping[int, Amount]) -> World:
    """The world with other limits of some queues, by number, which may then borrow up to them."""
    queues = tuple(
        replace(queue, limit=limits[q], borrowing=True) if q in limits else queue
        for q, queue in enumerate(world.instance.queues)
    )
    return replace(world, instance=replace(world.instance, queues=queues))
