"""A plan of an instance in which something is otherwise, and whether a gang finds a place in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from models.instance.cluster import Node
from models.instance.eligibility import without_conditions
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.rules.demands import Demand
from planner.search.explain.shortage import FreeCounts, shortage
from planner.search.free_space import SET_ASIDE, FreeSpace
from planner.search.start.greedy import admit, missing_demand

Pods = tuple[PodPlacement, ...]


@dataclass(frozen=True, slots=True)
class World:
    """A plan of an instance, and the gang of it that is asked about. ``gang``: its index."""

    instance: Instance
    decisions: tuple[GangDecision, ...]
    gang: int

    @property
    def spec(self) -> Gang:
        return self.instance.gangs[self.gang]

    def with_gang(self, gang: Gang) -> World:
        """The same with another description of the gang."""
        return replace(self, instance=self.instance.with_changed({self.gang: gang}))

    def with_role(self, number: int, role: Role) -> World:
        """The same with another description of one role of the gang."""
        roles = list(self.spec.roles)
        roles[number] = role
        return self.with_gang(replace(self.spec, roles=tuple(roles)))

    def without(self, gone: Collection[int]) -> World:
        """The same without the pods of these gangs, which do not come back."""
        gangs, decisions = self.instance.gangs, list(self.decisions)
        for index in gone:
            decisions[index] = GangDecision("wait")
        aside = {index: replace(gangs[index], pods=(), hold=SET_ASIDE) for index in gone}
        instance = self.instance.with_changed(aside)
        return replace(self, instance=instance, decisions=tuple(decisions))

    def with_nodes(self, nodes: Sequence[Node]) -> World:
        """The same with other descriptions of the nodes; more of them may follow."""
        cluster = replace(self.instance.cluster, nodes=tuple(nodes))
        return replace(self, instance=replace(self.instance, cluster=cluster))

    def placement(self) -> Pods | None:
        """A place for all pods of the gang with everything else as planned, if one is found."""
        space = FreeSpace(self.instance, self.decisions)
        return placed(space, missing_demand(space, self.gang))


def placed(space: FreeSpace, demand: Demand) -> Pods | None:
    """All pods of a gang with those that it lacks; None if a count denies them room, or none is found.

    The space stays as it is.
    """
    if not demand.possible or shortage(FreeCounts.of(space), demand) is not None:
        return None
    mark = space.mark()
    pods = space.pods[demand.gang] if admit(space, demand) else None
    space.undo(mark)
    return pods


def named(gang: Gang, **more: object) -> dict[str, object]:
    """A gang as a reason states it."""
    return {"gang": "/".join(gang.key), "priority": gang.shown_priority, **more}


def in_order(node: Node) -> Node:
    """The node ready, uncordoned, without the taints of a condition, and with healthy GPUs."""
    return replace(
        without_conditions(node),
        ready=True,
        unschedulable=False,
        unhealthy=node.partitioned,
        unknown_unhealthy=node.unknown_partitioned,
    )


def node_faults(node: Node) -> tuple[str, ...]:
    """Codes of what is wrong with a node; none if nothing is."""
    tainted = len(without_conditions(node).taints) < len(node.taints)
    found = (
        ("NotReady", not node.ready),
        ("Cordoned", node.unschedulable),
        ("Tainted", tainted and node.ready and not node.unschedulable),
        ("UnhealthyGpus", node.healthy_gpus < node.whole_gpus - len(node.shared)),
    )
    return tuple(code for code, wrong in found if wrong)


One = TypeVar("One")


def needed(
    gone: Sequence[One], put_back: Callable[[Sequence[One]], bool], late: Callable[[], bool]
) -> tuple[One, ...]:
    """Those that cannot be put back, tried in order: whole chunks at first, since most can.

    ``put_back``: whether the gang starts with these, too; they then stay. All that is left when it is late
    counts as needed.
    """
    left, kept, size = list(gone), list[One](), max(1, len(gone) // 2)
    while left and not late():
        size = min(size, len(left))
        if put_back(left[:size]):
            left, size = left[size:], 2 * size
        elif size == 1:
            kept.append(left.pop(0))
        else:
            size //= 2
    return (*kept, *left)


def needed_away(
    space: FreeSpace,
    demand: Demand,
    gone: Sequence[int],
    decisions: Sequence[GangDecision],
    late: Callable[[], bool],
) -> tuple[int, ...]:
    """Of gangs that have no pods in the space those that must have none there, tried in order.

    None if the demand has no place even without all of them. ``decisions``: the pods that they had.
    """

    def put_back(chunk: Sequence[int]) -> bool:
        mark = space.mark()
        for index in chunk:
            space.set(index, decisions[index].pods)
        if placed(space, demand) is not None:
            return True
        space.undo(mark)
        return False

    return () if placed(space, demand) is None else needed(gone, put_back, late)
