"""Whether placements are possible, counted from the data alone: without the rules and ``Space``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.openb.space import Placed
from benchmarks.openb.trace import Arrivals, Cluster


@dataclass(frozen=True, slots=True)
class Result:
    """1/1000 GPU that are allocated and that there are; dropped pods, and of them those without GPUs."""

    allocated: int
    whole: int
    dropped: int
    dropped_without_gpus: int

    @property
    def percent(self) -> float:
        """GPUs allocated, of the cluster's."""
        return 100 * self.allocated / self.whole


class ImpossibleError(Exception):
    """A placement that cannot be."""


def judged(cluster: Cluster, pods: Arrivals, placed: Iterable[Placed]) -> Result:
    """Each pod at most once, on GPUs that the node has and the pod may use, and nothing given twice."""
    seen = set[int]()
    used = defaultdict[int, Counter[str]](Counter)
    for one in placed:
        pod, kind = pods.classes[pods.order[one.arrival]], cluster.kinds[cluster.kind_of[one.node]]
        if one.arrival in seen:
            raise ImpossibleError(f"pod {one.arrival} is placed twice")
        seen.add(one.arrival)
        if len(set(one.gpus)) != pod.gpus or any(not 0 <= gpu < kind.gpus for gpu in one.gpus):
            raise ImpossibleError(f"pod {one.arrival} needs {pod.gpus} GPUs and has {one.gpus}")
        if pod.gpus and pod.models and kind.model not in pod.models:
            raise ImpossibleError(f"pod {one.arrival} may not be on {kind.model}")
        use = used[one.node]
        use["cpu"] += pod.cpu
        use["memory"] += pod.memory
        for gpu in one.gpus:
            use[f"gpu {gpu}"] += pod.milli
        for what, amount in use.items():
            if amount > (kind.cpu if what == "cpu" else kind.memory if what == "memory" else 1000):
                raise ImpossibleError(f"node {one.node} has less {what} than its pods")
    dropped = [pods.classes[c] for i, c in enumerate(pods.order) if i not in seen]
    return Result(
        sum(pods.classes[pods.order[i]].gpu_milli for i in seen),
        1000 * cluster.gpus,
        len(dropped),
        sum(not pod.gpus for pod in dropped),
    )
