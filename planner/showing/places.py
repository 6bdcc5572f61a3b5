"""Where pods are, in short: nodes, and the GPUs where they do not take the whole node.

Promises: pure, from views of a plan alone. Used by the tables of a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from planner.showing.hosts import nodes_and_gpus, ranges
from planner.showing.planview import AskView, PlanView, PodView, StandingView


def installed(plan: PlanView) -> dict[str, int]:
    """GPUs of every node."""
    spec = plan.instance.cluster.spec
    gpus = {model.name: model.gpus for model in spec.models}
    return {node.name: gpus.get(node.model or "", 0) for node in spec.nodes}


def places(pods: Iterable[PodView | StandingView], gpus_of: Mapping[str, int]) -> str:
    """``gpu-[01-16]``: whole nodes; ``v100-3:0-3``: these GPUs; ``:any``: the node decides.

    ``gpus_of``: GPUs of every node.
    """
    taken: dict[str, list[int]] = {}
    unknown: Counter[str] = Counter()
    for pod in pods:
        if pod.node is not None:
            taken.setdefault(pod.node, []).extend(pod.gpus or ())
            unknown[pod.node] += pod.gpus is None
    some = any(taken.values()) or any(unknown.values())
    used = {}
    for node, gpus in taken.items():
        if unknown[node]:
            used[node] = f"{ranges(gpus)}{'+' * bool(gpus)}any"
        elif len(gpus) == gpus_of.get(node) or not some:
            used[node] = ""
        else:
            used[node] = ranges(gpus) or "no-gpu"
    return nodes_and_gpus(used)


def standing_gpus(ask: AskView) -> int:
    """GPUs that the gang's running pods hold."""
    of = {role.name: role.gpus for role in ask.spec.roles}
    return sum(of.get(pod.role, 0) for pod in ask.standing)
