"""Pods by key, and by the node whose room they take: kept together while pods change.

Promises: a dict in every way; ``at`` costs what stands there, not what the cluster holds.
Called by ``room`` and the desk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from models.applying.orders import Key
from models.applying.seen import PodSeen, View


class Roster(dict[Key, PodSeen]):
    """Pods by (namespace, name). Changed by assignment and by ``pop`` alone."""

    def __init__(self, pods: Mapping[Key, PodSeen]) -> None:
        super().__init__(pods)
        self._places: dict[str, dict[Key, PodSeen]] = {}
        for key, pod in pods.items():
            self._add(key, pod)

    def __setitem__(self, key: Key, pod: PodSeen) -> None:
        self._drop(key)
        super().__setitem__(key, pod)
        self._add(key, pod)

    def pop(self, key: Key, default: PodSeen | None = None) -> PodSeen | None:  # type: ignore[override]  # the one form used
        self._drop(key)
        return super().pop(key, default)

    def at(self, node: str) -> Iterable[PodSeen]:
        """Pods that take room on the node."""
        return self._places.get(node, {}).values()

    def _add(self, key: Key, pod: PodSeen) -> None:
        if pod.place is not None:
            self._places.setdefault(pod.place, {})[key] = pod

    def _drop(self, key: Key) -> None:
        old = self.get(key)
        if old is not None and old.place is not None:
            self._places[old.place].pop(key, None)


def pods_at(view: View, nodes: Iterable[str]) -> Iterable[PodSeen]:
    """Pods that take room on any of the nodes."""
    if isinstance(view.pods, Roster):
        return [pod for node in nodes for pod in view.pods.at(node)]
    wanted = frozenset(nodes)
    return [pod for pod in view.pods.values() if pod.place in wanted]
