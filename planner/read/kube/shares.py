"""What gangs may take of what a plan bounds: namespaces share it evenly, and the oldest gangs go first.

So what one tenant writes takes nothing from the others. Who is beyond the share of its namespace is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from planner.read.kube.pods.constraints import IMPOSSIBLE
from planner.read.kube.records import KubeGang

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
