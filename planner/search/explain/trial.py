"""Ways to make a waiting gang start: whether a changed world lets it in, and the smallest such change.

Changes of nodes are here: some that are back in order, or more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from models.instance.cluster import Node
from models.program.linear_program import Question
from models.rules.registry import named
from models.starts.empty_starts import in_order
from planner.search.explain.world import One, World, in_turn, needed, node_faults
from planner.search.free_space import Decisions, FreeSpace, Pods

Way = Callable[[World], object]
"""Whether the gang starts, or has a place, in a world."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """``world``: as it is then. ``change``: what is to be done, as fields of its kind. ``pods``: its place.

    ``at``: when, in seconds since the epoch, if it has to wait. ``first``: gangs that wait, come before it
    and would take the room. ``gangs``: keys of those that stop, move or end; ``moved``: where one of them
    goes. ``by_hand``: no plan would do it. ``replanned``: a new plan starts it, with everything else free.
    ``rank``: the least first.
    """

    kind: str
    world: World
    pods: Pods
    at: int | None = None
    first: tuple[tuple[str, str], ...] = ()
    gangs: tuple[tuple[str, str], ...] = ()
    moved: Pods = ()
    change: Mapping[str, object] = field(default_factory=dict)
    by_hand: bool = False
    replanned: bool = False

    @property
    def rank(self) -> tuple[bool, int]:
        """What a person would do first: see docs/explain.md. What others would profit from comes last."""
        if self.at is not None and self.at - self.world.instance.now <= SOON_S:
            return bool(self.first), _ORDER.index("soon")
        own = sum(role.min * role.gpus for role in self.world.spec.roles)
        dear = self.by_hand and 2 * int(self.change.get("gpus", 0)) > own  # type: ignore[call-overload]  # a count
        kind = f"{self.kind}ByHand" if dear or not self.change.get("lower", True) else self.kind
        if kind not in _ORDER:
            asked = named(self.kind)
            kind = "rule" if asked is not None and asked.operator else "wish"
        return bool(self.first), _ORDER.index(kind)


SOON_S = 3600
"""Seconds that are better waited than spent on changes."""

_ORDER = (
    "soon",
    "node",
    "move",
    "stop",
    "wish",
    "request",
    "rule",
    "moveByHand",
    "stopByHand",
    "wait",
    "addNode",
    "smaller",
)
"""Kinds of remedies, the cheapest first; ``wish``, ``rule``: what the gang, or the policy, no longer asks.

``ByHand``: to gangs that are not of lower priority, or by hand to more than half as many GPUs as it needs.
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """``world``: that of the plan. ``late``: whether no further question is to be asked.

    ``turns``: whether the gangs that come first take their turns, too.
    """

    world: World
    late: Question
    turns: bool

    def starts(self, world: World) -> bool:
        """Whether the gang starts there once those that come first took what they can."""
        return bool(self.in_turn(world)[world.gang].pods)

    def in_turn(self, world: World) -> Decisions:
        """What those that come first, and then it, take; in large clusters the plan as it is."""
        return in_turn(world) if self.turns else world.decisions

    def way(self, world: World) -> Way | None:
        """What to ask of smaller changes than this one: that it starts, or finds a place beside the plan.

        None if neither holds.
        """
        if self.starts(world):
            return self.starts
        return World.placement if world.placement() else None

    def tried(self, kind: str, world: World, **more: Any) -> Iterator[Remedy]:  # noqa: ANN401  # fields
        """The remedy if the gang has a place in the world; with those that would take it first."""
        decisions = self.in_turn(world)
        own, place = decisions[world.gang].pods, world.placement()
        if own or place or kind == "stop":  # those who start in the plan may go elsewhere
            gangs = zip(self.world.instance.gangs, self.world.decisions, decisions, strict=True)
            started = tuple(one.key for one, old, new in gangs if len(new.pods) > len(old.pods))
            yield Remedy(kind, world, own or place or (), first=() if own else started, **more)

    def least(self, low: int, high: int, enough: Callable[[int], object]) -> int | None:
        """The least number that is enough; ``high`` is. None if it is late."""
        while low < high and not self.late():
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle + 1, high)
        return high if low == high else None

    def fewest(
        self, every: Sequence[One], world_with: Callable[[Collection[One]], World], way: Way
    ) -> tuple[One, ...]:
        """Those of a set of changes, all of which are enough, that are needed."""
        left = set(every)

        def put_back(chunk: Sequence[One]) -> bool:
            if not way(world_with(left.difference(chunk))):
                return False
            left.difference_update(chunk)
            return True

        return needed(every, put_back, self.late)


MAX_NODES = 256
"""Nodes more that are tried at most."""

MAX_TEMPLATES = 12
"""Pairs of a shape of nodes and a domain of which more are tried: those with fewest GPUs, most room first."""

MAX_DOMAINS = 4
"""Domains in which more of one shape are tried, those with most free GPUs first."""


class NodeRemedies:
    """``space``: of the plan of the trial."""

    def __init__(self, trial: Trial, space: FreeSpace) -> None:
        self._trial, self._space, self._world, self._late = trial, space, trial.world, trial.late
        self._nodes = trial.world.instance.cluster.nodes

    def back_in_order(self) -> Iterator[Remedy]:
        """One node that is back in order, a cordoned one if it will do, or as few as are needed."""
        nodes = self._nodes
        broken = [n for n, node in enumerate(nodes) if node_faults(node)]
        # to uncordon is easiest, then what has a taint, then what is broken
        easy = ("Cordoned",), ("Tainted",)
        broken.sort(key=lambda n: ([node_faults(nodes[n]) != one for one in easy], n), reverse=True)
        way = self._trial.way(self._with_healed(broken)) if broken else None
        few = [] if way is None else self._trial.fewest(broken, self._with_healed, way)
        if few and not self._late():  # else some may be superfluous
            group = sorted(few)
            faults = sorted({fault for n in group for fault in node_faults(nodes[n])})
            change = {"nodes": [nodes[n].name for n in group], "faults": faults}
            yield from self._trial.tried("node", self._with_healed(group), change=change)

    def _with_healed(self, group: Collection[int]) -> World:
        nodes = enumerate(self._nodes)
        return self._world.with_nodes([in_order(one) if n in group else one for n, one in nodes])

    def more(self) -> Iterator[Remedy]:
        """The cheapest nodes more, empty and in order: the fewest GPUs, then nodes, then speed."""
        best: tuple[tuple[int, int, bool, Fraction], Node, Mapping[str, str]] | None = None
        for node, where in self._templates():
            if self._late():
                break
            most = MAX_NODES if best is None or not node.gpus else best[0][0] // node.gpus
            count = self._enough(node, most)
            if count is None:
                continue
            speed = None if node.model is None else node.model.relative_speed
            cost = (count * node.gpus, count, speed is None, speed or Fraction(0))
            if best is None or cost < best[0]:
                best = cost, node, where
        if best is not None:
            (_, count, _, _), node, where = best
            model = None if node.model is None else node.model.name
            change = {"like": node.name, "model": model, **size_of(node, count), **where}
            yield from self._trial.tried("addNode", self.with_new(node, count), change=change)

    def with_new(self, node: Node, count: int) -> World:
        """The world with so many nodes more like this one, empty and in order."""
        like = in_order(node)
        new = (replace(like, name=f"~new-{number}") for number in range(1, count + 1))
        return self._world.with_nodes((*self._nodes, *new))

    def _enough(self, node: Node, most: int) -> int | None:
        """The fewest nodes like this one that are enough; None if ``most`` are not, or the time is up.

        A pod needs one node at most, so that more nodes than pods are rarely of use.
        """
        most = min(most, 2 * len(self._world.spec.missing))
        way = self._trial.way(self.with_new(node, most)) if most >= 1 else None
        if way is None:
            return None
        return self._trial.least(1, most, lambda count: way(self.with_new(node, count)))

    def _templates(self) -> Iterator[tuple[Node, Mapping[str, str]]]:
        """Nodes like which more could be: of each shape, in the domains with most free GPUs."""
        instance, spec, nodes = self._world.instance, self._world.spec, self._nodes
        cluster, free = instance.cluster, self._space.arrays.free
        suited = {
            n
            for role in spec.roles
            for n in instance.matching_nodes(role)
            if nodes[n].whole_gpus >= role.gpus
        }
        levels = [spec.required, *(role.required for role in spec.roles)]
        if instance.min_share(spec):
            levels.append(cluster.node_level - 1)  # bandwidth depends on where they are
        inner = [level for level in levels if level is not None and 0 <= level < cluster.node_level]
        level = max(inner, default=None)
        of = cluster.domain_of[level] if level is not None else [0] * len(nodes)
        room: Counter[int] = Counter()
        for n in suited:
            room[of[n]] += int(free[n])
        seen, domains = set[tuple[object, int]](), Counter[object]()
        for n in sorted(suited, key=lambda n: (nodes[n].gpus, -room[of[n]], n)):
            shape = (nodes[n].model, nodes[n].allocatable)
            if (shape, of[n]) in seen or domains[shape] == MAX_DOMAINS:
                continue
            seen.add((shape, of[n]))
            domains[shape] += 1
            if len(seen) > MAX_TEMPLATES:
                return
            where = {}
            if level is not None:
                path = "/".join(cluster.domains[level][of[n]].path)
                where = {"level": cluster.level_name(level), "domain": path}
            yield nodes[n], where


def size_of(node: Node, count: int) -> dict[str, object]:
    """So many nodes like this one, as fields of a change."""
    parts = {"partitioned": count * (node.gpus - node.whole_gpus)} if node.mig else {}
    return {"count": count, "gpus": count * node.gpus, **parts}
