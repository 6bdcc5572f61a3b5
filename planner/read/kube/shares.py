"""What gangs may take of what a plan bounds: namespaces share it evenly, and the oldest gangs go first.

So what one tenant writes takes nothing from the others. Who is beyond the share of its namespace is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from models.gpu_shares import part_of
from planner.read.kube.pods.constraints import IMPOSSIBLE
from planner.read.kube.records import KubeGang, KubeNode, KubePod

Taker = TypeVar("Taker")


def by_age(gang: KubeGang) -> tuple[bool, int, str, str]:
    """Order of gangs from the oldest."""
    return (gang.submitted_at is None, gang.submitted_at or 0, gang.namespace, gang.name)


def even_share(needs: Sequence[int], most: int) -> int:
    """The most that each may take so that all together take no more than ``most``."""
    left = most
    for i, need in enumerate(sorted(needs)):
        even = left // (len(needs) - i)
        if need > even:
            return even
        left -= need
    return most


def beyond_share(own: Mapping[str, Sequence[tuple[Taker, int]]], most: int) -> Iterator[Taker]:
    """Those beyond the share of their namespace. ``own``: by namespace, (who, its need), the oldest first."""
    share = even_share([sum(need for _, need in found) for found in own.values()], most)
    for found in own.values():
        taken = 0
        for one, need in found:
            taken += need
            if taken > share:
                yield one


def hold(gang: KubeGang, why: str) -> None:
    """Let a gang start nothing and go nowhere."""
    gang.problems += (why,)
    for pod in gang.pods():
        pod.affinity = (IMPOSSIBLE,)


# Resources that waiting gangs request and no node has: every node states that it has none of them

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
