"""Resources that waiting gangs request and no node has: every node states that it has none of them.

A tenant may request as many as it likes, and a document of a node has room for so many fields only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from models.gpu_shares import part_of
from planner.read.kube.records import KubeGang, KubeNode, KubePod
from planner.read.kube.shares import beyond_share, by_age, hold

MAX_ABSENT = 200
"""Such resources of all gangs. Namespaces share them evenly."""

BEYOND_SHARE = (
    "its namespace requests more resources that no node has than its share of the"
    f" {MAX_ABSENT} that a plan may state"
)


def hold_beyond_resources(gangs: Collection[KubeGang], nodes: Iterable[KubeNode]) -> None:
    """Hold the youngest gangs whose namespace requests too many of them, and forget these resources."""
    offered = set[str]().union(*(node.allocatable for node in nodes))
    own: dict[str, list[tuple[KubeGang, int]]] = defaultdict(list)
    charged: dict[str, set[str]] = defaultdict(set)
    for gang in sorted(gangs, key=by_age):
        pods = list(gang.pods())
        if any(pod.holds_room for pod in pods):
            continue
        absent = {name for pod in pods for name in _absent(pod, offered)}
        if absent:
            own[gang.namespace].append((gang, len(absent - charged[gang.namespace])))
            charged[gang.namespace] |= absent
    for gang in beyond_share(own, MAX_ABSENT):
        hold(gang, BEYOND_SHARE)
        for pod in gang.pods():
            for name in _absent(pod, offered):
                del pod.requests[name]


def _absent(pod: KubePod, offered: Collection[str]) -> list[str]:
    """The resources it requests that no node has; not those that stand for parts of GPUs."""
    asked = (name for name in pod.requests if name not in offered)
    return [name for name in asked if "/" in name and part_of(name) is None]
