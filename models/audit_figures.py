"""Figures of an audit that need no search: what gangs could reach at best, and what no re-plan exceeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.effective_gpus import counted_gpus
from models.instance import Instance
from models.occupancy import free_after
from models.program.base_state import base_decisions
from models.rates.speed import FULL_SPEED
from models.solution import GangDecision, Solution
from models.stranded_gpus import whole_by_level
from models.tier_values import Evaluation
from models.tiers import MAINS
from models.units import plural


def fixed_gangs(instance: Instance) -> dict[int, str]:
    """Why running gangs cannot be moved by any plan."""
    found = {}
    for index, gang in enumerate(instance.gangs):
        if gang.running and index in instance.incomplete:
            found[index] = f"{plural(len(gang.missing()), 'pod')} missing"
        elif gang.running and gang.hold is not None:
            found[index] = gang.hold.message
    return found


def best_speeds(instance: Instance) -> dict[int, int]:
    """The speed of every gang on ideal links and the fastest GPUs that it may use, permille.

    At least the one that it has now.
    """
    lines = Evaluation(instance, base_decisions(instance)).lines
    known: dict[frozenset[int], int] = {}

    def fastest(nodes: frozenset[int]) -> int:
        if nodes not in known:
            models = {instance.cluster.nodes[n].model for n in nodes}
            speeds = (instance.relative_speeds.of((m,)) for m in models if m is not None)
            known[nodes] = max(speeds, default=FULL_SPEED)
        return known[nodes]

    found = {}
    for index, (gang, line) in enumerate(zip(instance.gangs, lines, strict=True)):
        speeds = [fastest(instance.eligible_nodes(r)) for r in gang.roles if r.gpus]
        best = min(speeds) if speeds and gang.counts_speed else FULL_SPEED
        found[index] = max(best, line.speed or 0)
    return found


def wholly_free(
    instance: Instance, decisions: Sequence[GangDecision]
) -> Mapping[str, tuple[int, int]]:
    """Wholly free domains and all domains with GPUs, by level."""
    pods = (
        (gang.roles[pod.role].gpus, pod)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        for pod in decision.pods
    )
    return whole_by_level(instance, free_after(instance, pods))


def effective_bound(free: Instance, solution: Solution, best: Mapping[int, int]) -> int:
    """Permille-GPU that no plan exceeds which is at least as good in the policy's tiers.

    ``best``: speeds that gangs could reach at most. The bound of a tier counts while all tiers before it are
    proven: a better plan may be worse in those after the first gap.
    """
    main = next((name for name in MAINS if free.policy.lists(name)), None)
    settled, bounds = True, dict[int, int]()
    for tier in solution.tiers:
        name, _, priority = tier.name.partition("/")
        if settled and name == main:
            bounds[int(priority)] = tier.bound
        settled = settled and tier.bound == tier.best
    running: dict[int, int] = {}
    others: dict[int, int] = {}
    least: dict[int, int] = {}
    by_gpus = 1 if main == "goodput" else FULL_SPEED
    for index, gang in enumerate(free.gangs):
        most = counted_gpus(gang) * best.get(index, FULL_SPEED)
        whole = gang.running and index not in free.incomplete
        sums = running if whole else others
        sums[gang.priority] = sums.get(gang.priority, 0) + most
        if whole and not counted_gpus(gang):  # counts as one GPU in the tier, and nothing here
            least[gang.priority] = least.get(gang.priority, 0) + FULL_SPEED
    total = 0
    for number in sorted({*running, *others}):
        most = running.get(number, 0) + others.get(number, 0)
        if number in bounds:
            most = min(most, bounds[number] * by_gpus - least.get(number, 0))
        total += most
    return min(total, FULL_SPEED * sum(node.gpus for node in free.cluster.nodes))
