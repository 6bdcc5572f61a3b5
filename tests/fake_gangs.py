"""kube-scheduler's gangs: the pods of a PodGroup go whole or not at all.

Promises: as measured: nothing while pods are missing, then all pods at once, in one domain where the
group asks for that; the group's condition says how it went. Called by ``fake_scheduler``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fake_groups import stated
from fake_kinds import NODE, POD, POD_GROUP
from fake_store import Store
from fake_trees import Tree

Key = tuple[str, str]
Taken = dict[str, dict[str, int]]
"""By node and resource, in thousandths: what pods take that are placed together."""

_WAITING = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


class Scheduling(Protocol):
    """What a gang needs of the scheduler."""

    store: Store
    pending: dict[Key, Tree]

    def choice(
        self, pod: Tree, taken: Taken, domain: frozenset[str] | None
    ) -> tuple[Tree | None, str]: ...

    def bound(self, pod: Tree, node: Tree) -> None: ...

    def refused(self, pod: Tree, why: str) -> None: ...

    def asks(self, pod: Tree) -> dict[str, int]: ...


def tried_group(scheduler: Scheduling, namespace: str, name: str, seen: set[Key]) -> int:
    """All of a gang, or nothing; how many pods were bound. ``seen``: gets its pods."""
    store = scheduler.store
    group = store.get(POD_GROUP, namespace, name)
    mine = [
        pod
        for (inside, _), pod in scheduler.pending.items()
        if inside == namespace and group_of(pod) == name
    ]
    seen.update((namespace, pod["metadata"]["name"]) for pod in mine)
    if group is None:
        return 0
    policy = (group["spec"].get("schedulingPolicy") or {}).get("gang")
    least = policy["minCount"] if policy else 1
    standing = sum(1 for _ in _standing(store, namespace, name))
    if standing + len(mine) < least:
        return 0
    mine.sort(key=lambda pod: pod["metadata"]["uid"])
    domains = _domains(store, group)
    best: list[tuple[Tree, Tree]] = []
    refusals: dict[str, str] = {}
    for domain in domains:
        chosen, refusals = _chosen(scheduler, mine, domain)
        if standing + len(chosen) >= least and len(chosen) > len(best):
            best = chosen
    for pod, node in best:
        scheduler.bound(pod, node)
    placed = {pod["metadata"]["name"] for pod, _ in best}
    for pod in mine:
        if (title := pod["metadata"]["name"]) not in placed:
            scheduler.refused(pod, refusals.get(title, _WAITING))
    now = stated(group, placed=bool(best), placements=len(domains), time=store.now())
    if now is not group:
        store.keep(POD_GROUP, now, manager="kube-scheduler", sub="status")
    return len(best)


def take(used: Taken, node: str, asks: dict[str, int], sign: int = 1) -> None:
    """Add what a pod asks for to what is taken of its node."""
    there = used.setdefault(node, {})
    for name, amount in asks.items():
        there[name] = there.get(name, 0) + sign * amount


def group_of(pod: Tree) -> str | None:
    """Name of the pod's PodGroup."""
    found: str | None = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return found


def _chosen(
    scheduler: Scheduling, pods: list[Tree], domain: frozenset[str] | None
) -> tuple[list[tuple[Tree, Tree]], dict[str, str]]:
    """(pod and node, for those that fit together; why the others do not)."""
    chosen: list[tuple[Tree, Tree]] = []
    refusals: dict[str, str] = {}
    taken: Taken = {}
    for pod in pods:
        node, why = scheduler.choice(pod, taken, domain)
        if node is None:
            refusals[pod["metadata"]["name"]] = why
            continue
        chosen.append((pod, node))
        take(taken, node["metadata"]["name"], scheduler.asks(pod))
    return chosen, refusals


def _standing(store: Store, namespace: str, name: str) -> Iterator[Tree]:
    for pod in store.all(POD, namespace):
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if group_of(pod) == name and pod["spec"].get("nodeName") and not ended:
            yield pod


def _domains(store: Store, group: Tree) -> list[frozenset[str] | None]:
    """Sets of nodes, one of which a gang has to stay in; None: all nodes."""
    keys = (group["spec"].get("schedulingConstraints") or {}).get("topology") or []
    if not keys:
        return [None]
    domains: dict[str, set[str]] = {}
    for node in store.all(NODE):
        value = (node["metadata"].get("labels") or {}).get(keys[0]["key"])
        if value is not None:
            domains.setdefault(value, set()).add(node["metadata"]["name"])
    return [frozenset(domains[value]) for value in sorted(domains)]
