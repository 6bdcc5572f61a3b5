"""The cheapest sets of moves: plans with moves, less those that can be taken back without losing a gain.

A gain is a gang that starts, or runs faster, than in the best plan in which nothing moves. In a step every
gang is as in one of both plans; only which GPUs of a switched node a pod gets may be others.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.linear_program import Question
from models.program.options import standing_gpus
from models.tiers import larger_is_better
from models.values.effective_gpus import gpus_at_speed
from models.values.tier_values import Evaluation, tiers_of
from planner.search.free_space import Decisions, FreeSpace, Pods
from planner.search.ledger import Ledger

LEAST_FASTER = 10
"""Permille of speed by which a gang has to be faster to count as such."""

Cost = tuple[int, int, int, int]
"""Restarts, lost work times GPUs (where it is not known, the cap of the policy's ``disruption``), GPUs, and
the highest priority of a gang that restarts."""

Changes = Mapping[int, Pods]
"""Gangs (indices) that are elsewhere, start or wait, with their pods then."""


Good = tuple[int, ...]
"""GPUs of gangs that start, by priority, the highest first, without the lowest; then permille-GPU beyond the
plan in which nothing moves."""


@dataclass(frozen=True, slots=True)
class Step:
    """A plan with moves. ``gains``, ``moved``: gangs (indices). ``good``: larger is better."""

    decisions: Decisions
    gains: frozenset[int]
    moved: tuple[int, ...]
    cost: Cost
    good: Good

    @property
    def regained(self) -> int:
        """Permille-GPU beyond the plan in which nothing moves."""
        return self.good[-1]

    def outdoes(self, other: Step) -> bool:
        """Whether as many run and as much is regained: with fewer restarts, or for less.

        For less: for the same gangs, or for higher ones.
        """
        (*starts, regained), (*others, less) = self.good, other.good
        fewer = len(self.moved) < len(other.moved)
        cheaper = self.cost <= other.cost and (self.gains >= other.gains or starts > others)
        return starts >= others and regained >= less and (fewer or cheaper)


def undominated(steps: Iterable[Step]) -> list[Step]:
    """Steps that no other one outdoes, the cheapest first."""
    found: list[Step] = []
    for step in sorted(steps, key=lambda one: (one.cost, [-value for value in one.good])):
        if not any(one.outdoes(step) for one in found):
            found.append(step)
    return found


class FewestRestarts:
    """Looks for cheap steps beside ``unmoved``, a plan in which nothing moves, until ``ended``."""

    def __init__(
        self, instance: Instance, unmoved: Sequence[GangDecision], ended: Question
    ) -> None:
        self.instance = instance
        self.unmoved = tuple(unmoved)
        self.ended = ended
        self.space = FreeSpace(instance, unmoved)
        self._ledger = Ledger(instance, unmoved)
        self.before = self._ledger.evaluate(unmoved)
        self.worth = larger_is_better(tiers_of(instance), self.before.vector())

    def of_plan(self, plan: Sequence[GangDecision]) -> Iterator[Step]:
        """The cheapest steps of a plan: for all that it regains, and for each of its gains."""
        pairs = enumerate(zip(self.unmoved, plan, strict=True))
        changes = {i: new.pods for i, (old, new) in pairs if old.pods != new.pods}
        after = self._ledger.evaluate(plan)
        gains = [i for i in sorted(changes) if self.gains(i, after)]
        whole = [] if self.ended() else [self.cheapest(changes, frozenset(), self.good_of(after))]
        each = (self.cheapest(changes, frozenset([i])) for i in gains if not self.ended())
        yield from (step for step in (*whole, *each) if step is not None)

    def together(self, steps: Iterable[Step]) -> Decisions:
        """The plan with as many of these steps as concern different gangs and fit, the cheapest first."""
        plan, good = self.unmoved, self.good_of(self.before)
        for step in sorted(steps, key=lambda one: one.cost):
            changed = {
                i: one for i, one in enumerate(step.decisions) if one.pods != self.unmoved[i].pods
            }
            if all(plan[i] is self.unmoved[i] for i in changed):
                changes = {i: one.pods for i, one in enumerate(plan) if one is not self.unmoved[i]}
                more = {i: one.pods for i, one in changed.items()}
                tried = self._tried({**changes, **more}, ()) or plan
                after = self.good_of(self._ledger.evaluate(tried))
                if after > good:
                    plan, good = tried, after
        return plan

    def good_of(self, plan: Evaluation) -> Good:
        starts = dict.fromkeys(sorted({-gang.priority for gang in self.instance.gangs})[:-1], 0)
        for line in plan.lines:
            if line.admitted and not line.gang.running and -line.gang.priority in starts:
                starts[-line.gang.priority] += line.gang.least_units
        regained = sum(gpus_at_speed(plan)) - sum(gpus_at_speed(self.before))
        return *starts.values(), regained

    def gains(self, index: int, after: Evaluation) -> bool:
        """Whether the gang starts, or is faster, than if nothing moves."""
        old, new = self.before.lines[index], after.lines[index]
        if not new.admitted or not old.admitted:
            return new.admitted and not old.admitted
        return (new.speed or 0) >= (old.speed or 0) + LEAST_FASTER

    def cost(self, chosen: Iterable[int]) -> Cost:
        """Of restarting those of the gangs that run."""
        gangs, unknown = self.instance.gangs, self.instance.policy.disruption.cap_s
        moved = [i for i in chosen if gangs[i].running and i not in self.instance.incomplete]
        gpus = [standing_gpus(self.instance, i) for i in moved]
        lost = [self.instance.lost_work_s(gangs[i]) for i in moved]
        work = [max(0, unknown if one is None else one) for one in lost]
        highest = max((gangs[i].priority for i in moved), default=0)
        return len(moved), sum(map(operator.mul, gpus, work)), sum(gpus), highest

    def cheapest(self, changes: Changes, goals: frozenset[int], least: Good = ()) -> Step | None:
        """The plan with all changes but those of gangs that can return, with those who are in their place.

        ``least``: as good as this it stays.
        """
        chosen, kept = dict(changes), self._tried(changes, goals, least)
        if kept is None:
            return None
        comes = defaultdict[int, set[int]](set)
        for gang, pods in changes.items():
            for pod in pods:
                comes[pod.node].add(gang)
        for gang in sorted(changes.keys() - goals, key=lambda i: self.cost([i]), reverse=True):
            if self.ended():
                break
            for back in ({gang}, self._in_place_of(gang, comes) - goals):
                if gang not in chosen:
                    break
                less = {i: pods for i, pods in chosen.items() if i not in back}
                plan = self._tried(less, goals, least)
                if plan is not None:
                    chosen, kept = less, plan
        after = self._ledger.evaluate(kept)
        moved = tuple(i for i, one in enumerate(kept) if one.decision == "move")
        gains = frozenset(i for i in range(len(kept)) if self.gains(i, after))
        return Step(kept, gains, moved, self.cost(moved), self.good_of(after))

    def _in_place_of(self, gang: int, comes: Mapping[int, set[int]]) -> set[int]:
        """The gang, gangs that come to nodes that it leaves, those that come to nodes of these, and so on."""
        found, ahead = {gang}, [gang]
        while ahead:
            nodes = {pod.node for pod in self.unmoved[ahead.pop()].pods}
            new = set[int]().union(*(comes[n] for n in nodes if n in comes)) - found
            found |= new
            ahead += new
        return found

    def _tried(self, changes: Changes, goals: Iterable[int], least: Good = ()) -> Decisions | None:
        """The plan with these changes; None if a node is too full then, or it breaks other rules."""
        space, mark = self.space, self.space.mark()
        for gang in changes:
            space.set(gang, ())
        for gang in sorted(changes):
            self._put(gang, changes[gang])
        pods = (pod for i in changes for pod in (*changes[i], *self.unmoved[i].pods))
        nodes = sorted({pod.node for pod in pods})
        for n in nodes:
            for gang in space.stale_indices(n):
                self._put(gang, space.pods[gang])
        fits = all(space.is_valid(n) for n in nodes)
        plan = tuple(
            space.decision(i) if space.pods[i] != one.pods else one
            for i, one in enumerate(self.unmoved)
        )
        space.undo(mark)
        return plan if fits and self._is_better(plan, goals, least) else None

    def _is_better(self, plan: Decisions, goals: Iterable[int], least: Good) -> bool:
        """Whether a plan that fits keeps all rules, has these gains, and is better than the unmoved one."""
        if not self._ledger.keeps_rules(plan):
            return False
        after = self._ledger.evaluate(plan)
        return (
            larger_is_better(tiers_of(self.instance), after.vector()) > self.worth
            and self.good_of(after) >= least
            and all(self.gains(i, after) for i in goals)
        )

    def _put(self, gang: int, pods: Sequence[PodPlacement]) -> None:
        """Set the pods of a gang, on other GPUs where these are held and any will do."""
        taken: list[PodPlacement] = []
        self.space.set(gang, ())
        for pod in pods:
            taken.append(replace(pod, gpus=self._gpus(gang, pod)))
            self.space.set(gang, taken)

    def _gpus(self, gang: int, pod: PodPlacement) -> int | None:
        role = self.instance.gangs[gang].roles[pod.role]
        model, here = self.instance.cluster.nodes[pod.node].model, self.space.by_node[pod.node]
        if not role.gpus or pod in self.space.original[gang]:
            return pod.gpus
        if here.blind:
            return None
        any_will_do = model is None or model.switched
        if pod.gpus is not None and not (any_will_do and pod.gpus & ~here.mask):
            return pod.gpus
        picked = self.space.pick(pod.node, role.gpus) if here.free >= role.gpus else None
        return pod.gpus if picked is None else sum(1 << gpu for gpu in picked)
