"""Grow elastic gangs into idle space, highest priority first, without loss in an earlier tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.demand_builder import remaining_demand
from models.rules.registry import eligible_nodes
from models.tiers import family, sign
from models.values.tier_values import PLACEMENT_VALUES, Evaluation, tiers_of
from planner.search.budget import Budget
from planner.search.free_arrays import Kind
from planner.search.free_space import Counts, Decisions, FreeSpace, Pods, counts_of
from planner.search.start.greedy import place, value_with

ATTEMPTS = 12
"""Sizes tried for one role of one gang."""

UNAFFECTED = ("admission", "disruption")
"""Subjects of tiers that growth cannot change."""


def grow(
    instance: Instance, decisions: Sequence[GangDecision], *, budget: Budget | None = None
) -> Decisions:
    """The plan with more pods for elastic gangs that run or start, until the budget is used up."""
    listed = [objective.name for objective in instance.policy.objectives]
    if "growth" not in listed or not any(gang.elastic for gang in instance.gangs):
        return tuple(decisions)
    grower = _Grower(FreeSpace(instance, decisions), tuple(listed[: listed.index("growth")]))
    order = sorted(range(len(instance.gangs)), key=lambda i: (-instance.gangs[i].priority, i))
    able = [i for i in order if grower.may(i, decisions[i])]
    grown = set()
    # pods without GPUs come after the GPUs of all gangs, as their tiers do
    for index, gpus in ((i, gpus) for gpus in (True, False) for i in able):
        if budget is not None and budget.exhausted():
            break
        if grower.grow(index, gpus=gpus):
            grown.add(index)
    return tuple(
        grower.space.decision(index) if index in grown else decision
        for index, decision in enumerate(decisions)
    )


class _Grower:
    """``before``: names of the objectives that come before growth."""

    def __init__(self, space: FreeSpace, before: tuple[str, ...]) -> None:
        self.space = space
        self._instance = space.instance
        self._own = tuple(
            (PLACEMENT_VALUES[name], sign(family(name).sense))
            for name in before
            if name in PLACEMENT_VALUES
        )
        others = {
            name
            for name in before
            if name not in PLACEMENT_VALUES and family(name).subject not in UNAFFECTED
        }
        self._whole = tuple(t for t in tiers_of(space.instance) if t.family in others)

    def may(self, index: int, decision: GangDecision) -> bool:
        """Whether the gang is elastic, admitted by this plan, and free to change its size."""
        gang = self._instance.gangs[index]
        if not gang.elastic or not decision.pods or gang.hold is not None:
            return False
        kept = {(pod.role, pod.index) for pod in decision.pods}
        if any((pod.role, pod.index) not in kept for pod in self.space.original[index]):
            return False  # it is shrunk: a pod it dropped would come back as a move
        return not self._instance.size_held(gang) and (
            decision.decision != "keep" or index not in self._instance.incomplete
        )

    def grow(self, index: int, *, gpus: bool) -> bool:
        """One role with or without GPUs after another to the largest size found; whether any grew."""
        grown = False
        for number, role in enumerate(self._instance.gangs[index].roles):
            if role.elastic and gpus == (role.gpus > 0):
                grown |= any(self._grow_to(index, counts) for counts in self._sizes(index, number))
        return grown

    def _sizes(self, index: int, number: int) -> Iterator[Counts]:
        """Larger counts of one role that may find room, largest first."""
        gang = self._instance.gangs[index]
        now = counts_of(gang, self.space.pods[index])
        role = gang.roles[number]
        room, fitting = role.max - now[number], 0
        if role.gpus:
            kind: Kind = (role.gpus, (), eligible_nodes(self._instance, gang, role), None)
            room = min(room, self.space.arrays.capacity(kind).total)
            used = (self.space.by_node[n] for n in {pod.node for pod in self.space.pods[index]})
            fitting = now[number] + sum(node.free // role.gpus for node in used)
        larger = [c for c in role.allowed_counts() if now[number] < c <= now[number] + room]
        fits = [c for c in larger if c <= fitting]
        tried = [*larger[::-1][: ATTEMPTS // 2], *fits[::-1], *larger]
        for count in sorted(dict.fromkeys(tried[:ATTEMPTS]), reverse=True):
            yield (*now[:number], count, *now[number + 1 :])

    def _grow_to(self, index: int, counts: Counts) -> bool:
        """Grow to these counts if no earlier tier gets worse."""
        space, held = self.space, self.space.pods[index]
        demand = remaining_demand(self._instance, index, counts, held)
        bound = space.decision(index).decision in ("place", "move", "complete")
        pods = place(space, demand, bound=bound)
        if pods is None:
            return False
        before, mark = self._worth(index, held), space.mark()
        space.set(index, (*held, *pods))
        after = self._worth(index, space.pods[index])
        if all(new >= old for new, old in zip(after, before, strict=True)):
            return True
        space.undo(mark)
        return False

    def _worth(self, index: int, pods: Pods) -> tuple[int, ...]:
        """Values of the tiers before growth, of the gang and of the plan; larger is better."""
        instance, gang = self._instance, self._instance.gangs[index]
        value = value_with(self.space, index, pods)
        found = [worth(instance, gang, pods, value) * factor for worth, factor in self._own]
        if self._whole:
            decisions = [self.space.decision(i) for i in range(len(instance.gangs))]
            evaluation = Evaluation(instance, decisions)
            found += [evaluation.tier(tier) * sign(tier.sense) for tier in self._whole]
        return tuple(found)
