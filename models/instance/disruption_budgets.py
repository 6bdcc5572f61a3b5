"""Disruption budgets: how many evictions each allows, and what that leaves of the freedom of running gangs.

As the API server decides, but for all pods at once: its dry runs do not count together. A gang that is
stopped, or of which any pod moves, takes from each budget as many evictions as it has running pods that name
it; a pod that names several is never evicted. Shrinking evicts nothing: its controller removes the pods.
Budgets count for the plan as a whole, whatever the order of its steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from models.documents.cluster import DisruptionBudget
from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.run_times import protected
from models.instance.solution import GangDecision

Key = tuple[str, str]

Takings = tuple[tuple[int, int], ...]
"""(index in Cluster.budgets, evictions) of a gang that is stopped or moves."""


@dataclass(frozen=True, slots=True)
class DisruptionBudgets:
    """Budgets by namespace and name.

    ``allowed``: the evictions that each allows now. ``guards``: by namespace and name of a pod, the names of
    the budgets that count its eviction; with more than one it can never be evicted. Every other pod may go.
    ``forbids``: likewise of pods that wait to start, the budgets that would not let them go again.
    """

    allowed: Mapping[Key, int] = field(default_factory=dict)
    guards: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    forbids: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)

    def refusal(self, pods: Iterable[Key]) -> str | None:
        """Why these pods, each given once, may not all be evicted; None if they may."""
        wanted: Counter[Key] = Counter()
        for namespace, name in pods:
            budgets = self.guards.get((namespace, name), ())
            if len(budgets) > 1:
                return (
                    f"pod {namespace}/{name} is in the disruption budgets {' and '.join(budgets[:2])}:"
                    " a pod in more than one cannot be evicted"
                )
            wanted.update((namespace, budget) for budget in budgets)
        for (namespace, budget), evictions in sorted(wanted.items()):
            allowed = self.allowed.get((namespace, budget), 0)
            if evictions > allowed:
                return (
                    f"the disruption budget {namespace}/{budget} allows {allowed} of"
                    f" {evictions} evictions"
                )
        return None


@dataclass(frozen=True, slots=True)
class Guards:
    """``takings``: of each gang of which running pods name a budget. ``fixed``: those never evicted."""

    takings: Mapping[int, Takings]
    fixed: frozenset[int]


@once
def guards(instance: Instance) -> Guards:
    """What the budgets say of each gang by itself."""
    budgets = instance.cluster.budgets
    if not budgets:
        return Guards({}, frozenset())
    position = {budget.key: i for i, budget in enumerate(budgets)}
    takings: dict[int, Takings] = {}
    fixed = set()
    for index, gang in enumerate(instance.gangs):
        counts = Counter(
            position[gang.namespace, name] for pod in gang.running_pods for name in pod.budgets
        )
        if counts:
            takings[index] = tuple(sorted(counts.items()))
            if two_budgets(gang) or any(n > budgets[b].allowed for b, n in takings[index]):
                fixed.add(index)
    return Guards(takings, frozenset(fixed))


def two_budgets(gang: Gang) -> tuple[str, ...]:
    """The budgets of a running pod that names several; empty if there is none."""
    return next((pod.budgets for pod in gang.running_pods if len(pod.budgets) > 1), ())


def fixed(instance: Instance) -> frozenset[int]:
    """Running gangs that are neither stopped nor moved now, by budgets or their minimum run time."""
    return guards(instance).fixed | protected(instance)


def may_stop(instance: Instance, index: int) -> bool:
    """Whether some plan may stop the gang, for one of higher priority."""
    return instance.gangs[index].preemptible and _free(instance, index)


def may_move(instance: Instance, index: int) -> bool:
    """Whether some plan may move the gang."""
    return instance.gangs[index].movable and _free(instance, index)


def _free(instance: Instance, index: int) -> bool:
    return index not in guards(instance).fixed and index not in protected(instance)


def may_shrink(instance: Instance, index: int) -> bool:
    """Whether some plan may take pods of the gang away and leave others; budgets do not count that."""
    gang = instance.gangs[index]
    return (gang.movable or gang.preemptible) and index not in protected(instance)


def evicting(decision: GangDecision) -> bool:
    """Whether a running gang is stopped or moves."""
    return decision.decision in ("preempt", "move")


def beyond_budgets(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that the budgets do not let stop or move beside the gangs before them, ascending."""
    if not instance.cluster.budgets:
        return []
    budgets, known = instance.cluster.budgets, guards(instance)
    found, used = [], Counter[int]()
    for index, own in known.takings.items():
        if not evicting(decisions[index]):
            continue
        if index in known.fixed or any(used[b] + n > budgets[b].allowed for b, n in own):
            found.append(index)
        else:
            used.update(dict(own))
    return found


def leaving_early(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs of which a pod leaves or moves before their minimum run time is over, ascending."""
    found = []
    for index in sorted(protected(instance)):
        there = {(pod.role, pod.index) for pod in decisions[index].pods}
        gone = any((pod.role, pod.index) not in there for pod in instance.gangs[index].running_pods)
        if gone or evicting(decisions[index]):
            found.append(index)
    return found


def takings_by_budget(
    instance: Instance, gangs: Iterable[int]
) -> Iterator[tuple[int, Mapping[int, int]]]:
    """(index, evictions by gang) of every budget that one of these gangs would take from."""
    known = guards(instance)
    by_budget: dict[int, dict[int, int]] = {}
    for index in gangs:
        for budget, evictions in known.takings.get(index, ()):
            by_budget.setdefault(budget, {})[index] = evictions
    yield from sorted(by_budget.items())


def without(
    budgets: Sequence[DisruptionBudget], used: Mapping[int, int]
) -> tuple[DisruptionBudget, ...]:
    """The budgets with what is left of them."""
    return tuple(
        DisruptionBudget(one.namespace, one.name, one.allowed - used.get(i, 0))
        if i in used
        else one
        for i, one in enumerate(budgets)
    )
