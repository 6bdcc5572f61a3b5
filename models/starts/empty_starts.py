"""Could a gang start on the empty cluster, within its limits? One answer for all that promise it room.

The empty cluster has no pod of a gang, every node is ready, uncordoned and healthy, and pods of no gang stay
only where rules about pods count them; guarantees ask once more with nodes as they are. Counts refute; a
placement that keeps every rule proves. A gang of which neither is known claims nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from models.hardware import slug
from models.instance.cluster import Node
from models.instance.eligibility import without_conditions
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.reshaping import unshared
from models.queues.pins import beside_pins
from models.queues.queue_order import lines
from models.queues.queue_shares import QueueCounts, empty_shares, shares

if TYPE_CHECKING:
    from models.rules.declaration import Requirement
    from models.starts.empty_counts import EmptyCounts

SIZES_TRIED = 8
"""Sizes above the least of a gang that has a minBandwidthShare."""

STEPS = 400_000
"""Steps of all searches for one input, shared evenly among the namespaces whose gangs wait.

So no tenant uses up what is needed to find places for the gangs of another one.
"""

MOST_STEPS = 40_000
"""Steps of one search."""

SPARE_STEPS = 100
"""Each search has a step for each of its pods, and so many more, whatever its namespace has used."""


class Answer(Enum):
    """``UNKNOWN``: no placement was found, and it is not proven that there is none.

    ``NOT_NOW``, ``UNKNOWN_NOW``: the same of gangs that could start if every node were in order.
    """

    CAN = "can"
    NEVER = "never"
    UNKNOWN = "unknown"
    NOT_NOW = "not now"
    UNKNOWN_NOW = "unknown now"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``rule``: code of the rule without which it could start; None if no single one is known."""

    answer: Answer
    rule: str | None = None


CAN = Verdict(Answer.CAN)


def not_claiming(instance: Instance) -> dict[int, Answer]:
    """Gangs that are promised nothing since they are not known to be able to start; ascending.

    They would use up a guarantee, or keep those behind them in a strict queue waiting.
    """
    lines(instance)
    shares(instance)
    return dict(sorted(instance.once(EmptyStarts).refused.items()))


class EmptyStarts:
    """Answers by class of gangs. ``refused``: gangs that were asked about and are not known to be able to.

    ``in_order``: as if every node were. ``spent``: steps of searches so far.
    """

    def __init__(self, instance: Instance, *, in_order: bool = True) -> None:
        self._instance = instance
        self._in_order = in_order
        self._known: dict[object, Answer] = {}
        self._steps: dict[str, int] = {}
        self.spent = 0
        self.refused: dict[int, Answer] = {}

    def can(self, index: int) -> bool:
        """Whether it is known that the gang could start."""
        answer = self.answer(index)
        if answer is not Answer.CAN:
            self.refused[index] = answer
        return answer is Answer.CAN

    def can_now(self, index: int) -> bool:
        """The same on nodes as they are: cordoned, with sick GPUs, beside pods of no gang."""
        if not self.can(index):
            return False
        answer = self._as_nodes_are.answer(index)
        if answer is not Answer.CAN:
            proven = answer is Answer.NEVER
            self.refused.setdefault(index, Answer.NOT_NOW if proven else Answer.UNKNOWN_NOW)
        return answer is Answer.CAN

    @cached_property
    def _as_nodes_are(self) -> EmptyStarts:
        """Answers on nodes as they are; these, if all of them are in order."""
        instance = self._instance
        every = all(map(_is_in_order, instance.cluster.nodes))
        return self if every else EmptyStarts(instance, in_order=False)

    def answer(self, index: int) -> Answer:
        """Found once for each class of gangs; what one namespace did not find another one looks for."""
        gang = self._instance.gangs[index]
        key = self._class(gang)
        unknown = (key, gang.namespace)
        if key in self._known:
            return self._known[key]
        if unknown not in self._known:
            found = self._find(index)
            self._known[unknown if found is Answer.UNKNOWN else key] = found
            return found
        return self._known[unknown]

    def counted(self, index: int) -> bool:
        """Whether counts leave it possible."""
        return self._counts.fits(self._instance.gangs[index])

    def rule(self, index: int) -> str | None:
        """Code of the rule but for which a placement is found; None if there is no single one."""
        from models.rules.declaration import without  # readers relax nothing

        empty, gang = self._empty, self._instance.gangs[index]
        codes: dict[str, list[Requirement]] = {}
        for one in self._single:
            if one.code is not None and self._asks(gang, one):
                codes.setdefault(one.code, []).append(one)
        for code, dropped in codes.items():
            own = None if any(one.of_gang is None for one in dropped) else (index,)
            loose = without(empty, dropped, own)
            if loose is not empty and self._search(loose, index) is Answer.CAN:
                return code
        return None

    @cached_property
    def _single(self) -> tuple[Requirement, ...]:
        """What may keep a gang from starting on the empty cluster by itself."""
        from models.rules.registry import requirements

        return tuple(one for one in requirements() if one.on_empty)

    @cached_property
    def _joint(self) -> tuple[Requirement, ...]:
        from models.rules.registry import joint_requirements

        return joint_requirements()

    def _asks(self, gang: Gang, one: Requirement) -> bool:
        """Whether the gang asks for it; of a kind of rules about pods, for any such rule."""
        if one.of_gang is not None:
            return any(one.of_gang(self._empty, gang))
        if one.of_role is not None:
            kinds = [other.of_role for other in self._single if other.of_role is not None]
            return any(any(of(self._empty, role)) for of in kinds for role in gang.roles)
        return bool(self._empty.queues)

    @cached_property
    def _counts(self) -> EmptyCounts:
        from models.starts.empty_counts import EmptyCounts  # readers count nothing

        return EmptyCounts(self._instance, in_order=self._in_order)

    def _class(self, gang: Gang) -> object:
        """What the question distinguishes of a gang."""
        instance = self._instance
        roles = tuple(replace(role, name="", preferred=None) for role in gang.roles)
        shared = instance.min_share(gang)
        rate = (gang.pattern, gang.weight, gang.nvlink_across_nodes, gang.ordered) if shared else ()
        rules = tuple(
            (one.name, wish.name)
            for one in self._joint
            if one.of_gang is not None
            for wish in one.of_gang(instance, gang)
        )
        return roles, gang.required, rules, shared, rate, gang.queue, gang.firm

    def _find(self, index: int) -> Answer:
        if not self.counted(index) or self._against_pod_rules(index):
            return Answer.NEVER
        if self._plainly(index):
            return Answer.CAN
        return self._search(self._empty, index)

    def _against_pod_rules(self, index: int) -> bool:
        """Whether counts show that no place keeps its rules about pods: too few domains."""
        instance, gang = self._instance, self._instance.gangs[index]
        of = instance.cluster.domain_of
        for role, count in zip(gang.roles, gang.target_counts, strict=True):
            nodes = self._counts.nodes(role) if count else ()
            for apart in role.anti_affinity:
                mutual = apart.pod_set is None or apart.pod_set in role.pod_sets
                if mutual and count > len({of[apart.level][n] for n in nodes}):
                    return True
            for even in role.spread if count else ():
                inside = even.pod_set is None or even.pod_set in role.pod_sets
                domains = len({of[even.level][n] for n in nodes})
                few = len(set(of[even.level])) < even.min_domains
                if inside and few and count > even.max_skew * domains:
                    return True
        return False

    # One role without further rules: counts decide

    def _plainly(self, index: int) -> bool:
        """Whether counts alone prove that the gang could start."""
        instance, gang = self._instance, self._instance.gangs[index]
        sized = [(r, n) for r, n in zip(gang.roles, gang.target_counts, strict=True) if n]
        if len(sized) != 1 or not self._plain(gang, sized[0][0]):
            return False
        role, count = sized[0]
        levels = [level for level in (gang.required, role.required) if level is not None]
        level = max(levels, default=None)
        nodes = beside_pins(instance, gang, role, self._counts.nodes(role))
        if not role.units:
            return self._counts.room(role, count, nodes, level) >= count
        for name in sorted(instance.gpu_names(nodes)):
            own = instance.nodes_of_model(nodes, name)
            counts, gpus = self._queue_counts, count * role.units
            if self._counts.room(role, count, own, level) >= count and (
                counts is None or not counts.refusal(index, {None: gpus, slug(name): gpus})
            ):
                return True
        return False

    def _plain(self, gang: Gang, role: Role) -> bool:
        instance = self._instance
        return not (
            role.slice_layers
            or role.anti_affinity
            or role.affinity
            or role.spread
            or gang.balance is not None
            or instance.policy.spares
            or (instance.min_share(gang) and role.gpus)
            or (gang.firm_on_gpus and any(queue.cells for queue in instance.queues))
        )

    @cached_property
    def _queue_counts(self) -> QueueCounts | None:
        known = empty_shares(self._instance, in_order=self._in_order)
        return None if known is None else QueueCounts(self._instance, known)

    # Everything else: a placement

    @cached_property
    def _empty(self) -> Instance:
        """The instance in which no gang runs."""
        instance, nodes = self._instance, self._instance.cluster.nodes
        return replace(
            instance,
            cluster=replace(
                instance.cluster,
                nodes=tuple(
                    _empty(instance, node) if self._in_order else unshared(instance, node)
                    for node in nodes
                ),
            ),
            gangs=tuple(replace(gang, pods=(), planned=()) for gang in instance.gangs),
            policy=replace(instance.policy, now=instance.now),
            queues=tuple(replace(queue, strict=False) for queue in instance.queues),
            shares=empty_shares(instance, in_order=self._in_order),
            reserved=(),
        )

    def _search(self, empty: Instance, index: int) -> Answer:
        """Place the gang."""
        from models.starts.empty_search import Found, Search  # readers place nothing

        # where nodes are out of order fewer have to stay free, and cells are lost that gangs cannot take
        certain = not empty.policy.spares and not any(queue.cells for queue in empty.queues)
        namespace = self._instance.gangs[index].namespace
        for sizes in self._sizes(empty, index):
            for scope in _scopes(empty, index):
                search = Search(empty, index, sizes, scope)
                left = self._steps.get(namespace, self._share)
                found = search.run(max(search.pods + SPARE_STEPS, min(MOST_STEPS, left)))
                self._steps[namespace] = left - search.spent
                self.spent += search.spent
                if found is Found.PLACE:
                    return Answer.CAN
                certain = certain and found is Found.NONE
        # one that runs may be where it could not start
        return (
            Answer.NEVER if certain and not self._instance.gangs[index].running else Answer.UNKNOWN
        )

    @cached_property
    def _share(self) -> int:
        """Steps that each namespace has."""
        waiting = {gang.namespace for gang in self._instance.gangs if not gang.running}
        return STEPS // max(1, len(waiting))

    def _sizes(self, empty: Instance, index: int) -> Iterator[tuple[int, ...]]:
        """The least size; larger ones, one role at a time, if they may be what a bandwidth needs."""
        gang = empty.gangs[index]
        least = gang.target_counts
        yield least
        for number, role in enumerate(gang.roles if empty.min_share(gang) else ()):
            larger = (count for count in role.allowed_counts() if count > least[number])
            for count in islice(larger, SIZES_TRIED):
                yield (*least[:number], count, *least[number + 1 :])


def _is_in_order(node: Node) -> bool:
    return (
        node.ready
        and not (node.unschedulable or node.held or node.shared)
        and node.unhealthy == node.partitioned
        and node.unknown_unhealthy == node.unknown_partitioned
        and without_conditions(node) is node
    )


def in_order(node: Node, **more: object) -> Node:
    """The node ready, uncordoned, without the taints of a condition, and with healthy GPUs."""
    return replace(
        without_conditions(node),
        ready=True,
        unschedulable=False,
        unhealthy=node.partitioned,
        unknown_unhealthy=node.unknown_partitioned,
        **more,  # type: ignore[arg-type]
    )


def _empty(instance: Instance, node: Node) -> Node:
    """The node if it were in order, and no pod held anything of it."""
    node = unshared(instance, node, repaired=True)
    return in_order(node, allocatable=tuple(sorted(node.at_most.items())), held=())


def _scopes(empty: Instance, index: int) -> Iterator[int | None]:
    """Levels of one domain to which a search is limited; None for the whole cluster.

    Only a bandwidth asks for narrow ones.
    """
    if empty.min_share(empty.gangs[index]):
        yield from range(empty.cluster.node_level, -1, -1)
    yield None
