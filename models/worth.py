"""What a plan is worth to those who must pay for its moves, and what a set of moves bought.

Promises: exact integers, no solver: the figures of ``status.moves``.
Called by ``planner.solving.moving``; ``models.plan`` writes the result down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.evaluating import Evaluation, admitted
from models.instance import Instance
from models.leftover import whole_domains, whole_nodes
from models.occupancy import free_after
from models.solution import GangDecision, MoveSet


@dataclass(frozen=True, slots=True)
class Worth:
    """``admitted``: indices of the gangs that run whole. ``gpus``: their w.

    ``bandwidth``: w x share of those that count in the bandwidth tier, whatever their weight, in
    permille-GPU. ``whole_nodes``: nodes whose free GPUs are as many as the largest node of their GPU
    model has; ``whole_gpus``: the GPUs of these. ``whole_domains``: domains of the innermost level with
    two or more nodes with GPUs, all of them whole.
    """

    admitted: frozenset[int]
    gpus: int
    bandwidth: int
    whole_nodes: int
    whole_gpus: int
    whole_domains: int


def worth(instance: Instance, decisions: Sequence[GangDecision]) -> Worth:
    """What one plan is worth. Shape of ``decisions``: one a gang."""
    values = Evaluation(instance, decisions).values
    runs = [i for i, decision in enumerate(decisions) if admitted(instance, i, decision)]
    bandwidth = 0
    for index in runs:
        gang, value = instance.gangs[index], values[index]
        if value is not None and value.share is not None and gang.pattern != "none":
            bandwidth += gang.weight_gpus * value.share
    whole = wholly_free(instance, decisions)
    return Worth(
        admitted=frozenset(runs),
        gpus=sum(instance.gangs[index].weight_gpus for index in runs),
        bandwidth=bandwidth,
        whole_nodes=len(whole),
        whole_gpus=sum(whole.values()),
        whole_domains=len(whole_domains(instance, whole)),
    )


def wholly_free(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """Nodes that are wholly free after the plan, with their GPUs."""
    pods = (
        (gang.roles[pod.role].gpus, pod)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        for pod in decision.pods
    )
    return whole_nodes(instance, free_after(instance, pods))


def bought(instance: Instance, gangs: Sequence[int], plan: Worth, without: Worth) -> MoveSet:
    """The set of moves of ``gangs``: what ``plan`` has beyond ``without``, the best plan without them.

    Gangs that hold no GPU count as one GPU moved in the gain.
    """
    moved = sum(
        instance.gangs[gang].roles[pod.role].gpus
        for gang in gangs
        for pod in instance.gangs[gang].standing
    )
    gpus = plan.gpus - without.gpus
    bandwidth = plan.bandwidth - without.bandwidth
    freed = plan.whole_gpus - without.whole_gpus
    return MoveSet(
        gangs=tuple(sorted(gangs)),
        moved_gpus=moved,
        admitted=tuple(sorted(plan.admitted - without.admitted)),
        gpus=gpus,
        bandwidth=bandwidth,
        whole_nodes=plan.whole_nodes - without.whole_nodes,
        whole_domains=plan.whole_domains - without.whole_domains,
        gain=(1000 * (gpus + freed) + bandwidth) // max(1, moved),
    )
