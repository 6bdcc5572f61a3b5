"""What the plan does to every gang and to every node, from existing and planned pods alone.

The stated decisions are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, overload

from models.verify.facts import Facts, Gang, Node, Pod, PodKey
from models.verify.violation import Violation

T = TypeVar("T")


class Overlay(Sequence[T]):
    """A sequence of which a few entries, by their positions, are others."""

    def __init__(self, base: Sequence[T], own: Mapping[int, T]) -> None:
        self._base = base
        self._own = own

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [*self][at]
        return self._own[at] if at in self._own else self._base[at]

    def __iter__(self) -> Iterator[T]:
        found = [*self._base]
        for position, one in self._own.items():
            found[position] = one
        return iter(found)

    def __len__(self) -> int:
        return len(self._base)


@dataclass(frozen=True)
class Change:
    """One gang before (``gang.running_pods``) and after (``pods``) the plan. ``label``: namespace/name.

    ``moved``: running pods that change node or GPUs. ``binding``: pods placed or moved, which the
    rules of placement bind. ``incomplete``: running with pods missing before the plan. ``kind``: the
    decision that describes the change. ``admitted``: it has pods after the plan, and none is missing.
    """

    gang: Gang
    label: str
    pods: Mapping[PodKey, Pod]
    binding: tuple[Pod, ...]
    moved: tuple[PodKey, ...]
    added: tuple[PodKey, ...]
    dropped: tuple[PodKey, ...]
    incomplete: bool
    kind: str
    admitted: bool

    @classmethod
    def of(cls, gang: Gang, label: str, pods: Mapping[PodKey, Pod]) -> Change:
        """The change to these pods."""
        before = gang.running_pods
        incomplete = gang.running and not gang.whole
        if pods and pods == before:
            return cls(gang, label, pods, (), (), (), (), incomplete, "keep", not incomplete)
        binding = tuple(pod for key, pod in pods.items() if before.get(key) != pod)
        moved = tuple(key for key, pod in pods.items() if key in before and before[key] != pod)
        added = tuple(key for key in pods if key not in before)
        dropped = tuple(key for key in before if key not in pods)
        if not before:
            kind = "place" if pods else "wait"
        elif not pods:
            kind = "preempt"
        elif moved:
            kind = "move"
        else:
            kind = "complete" if incomplete and not dropped else "resize"
        return cls(
            gang, label, pods, binding, moved, added, dropped, incomplete, kind, bool(pods)
        )  # fmt: skip

    def violation(self, rule: str, message: str) -> Violation:
        return Violation(rule, self.label, message)

    @property
    def held_back(self) -> bool:
        """Held, and not running whole: no pod of it may be placed."""
        return self.gang.hold is not None and not (self.gang.running and self.gang.whole)

    @property
    def evicts(self) -> bool:
        """Whether its running pods are evicted: it stops, or one of them moves."""
        return bool(self.moved) or (self.gang.running and not self.pods)

    @cached_property
    def by_role(self) -> tuple[tuple[Pod, ...], ...]:
        """Pods after the plan, by role."""
        found: list[list[Pod]] = [[] for _ in self.gang.roles]
        for pod in self.pods.values():
            found[pod.role].append(pod)
        return tuple(tuple(pods) for pods in found)

    @cached_property
    def gpus(self) -> int:
        """What the gang counts after the plan."""
        return self.gang.counted(self.pods.values())

    @cached_property
    def running_gpus(self) -> int:
        """What the gang counts before the plan."""
        return self.gang.counted(self.gang.running_pods.values())


Arrivals = Mapping[int, Sequence[Change]]
"""By node, the gangs that get a pod there which does not run there now."""


def arrivals_of(changes: Iterable[Change]) -> Arrivals:
    found: dict[int, dict[int, Change]] = {}
    for position, change in enumerate(changes):
        running_pods = change.gang.running_pods
        for pod in change.binding:
            key = pod.role, pod.index
            if key not in running_pods or running_pods[key].node != pod.node:
                found.setdefault(pod.node, {})[position] = change
    return {node: tuple(gangs.values()) for node, gangs in found.items()}


@dataclass(slots=True)
class NodeUse:
    """One node after the plan. Masks: GPUs ``known`` to be held, held by ``staying`` pods, ``shared``.

    ``unknown_staying``: GPUs of unknown index of pods that stay; ``given_unknown``: of pods placed
    with ``gpus: null``. ``tenants``: (gang position, pod, whether it is placed or moved); ``comers``: how
    many are.
    """

    known: int = 0
    staying: int = 0
    shared: int = 0
    unknown_staying: int = 0
    given_unknown: int = 0
    comers: int = 0
    tenants: list[tuple[int, Pod, bool]] = field(default_factory=list)

    def add(self, gang: Gang, position: int, pod: Pod, *, placed: bool) -> None:
        """One more pod. ``position``: of its gang; ``placed``: or moved."""
        self.tenants.append((position, pod, placed))
        self.comers += placed
        if pod.gpus is None:
            if placed:
                self.given_unknown += gang.held(pod)
            else:
                self.unknown_staying += gang.held(pod)
            return
        self.shared |= self.known & pod.gpus
        self.known |= pod.gpus
        if not placed:
            self.staying |= pod.gpus

    def unaccounted(self, node: Node) -> int:
        """k: GPUs held or unhealthy of unknown index."""
        return self.unknown_staying + node.unknown_unhealthy

    def left(self, node: Node) -> int:
        """Healthy GPUs in no pod; negative where more are held or given than there are."""
        healthy = node.healthy
        return (
            healthy.bit_count()
            - (self.known & healthy).bit_count()
            - self.unaccounted(node)
            - self.given_unknown
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """``nodes[n]``: use of node n; nodes without pods share an empty one."""

    nodes: Sequence[NodeUse]

    def free(self, position: int, node: Node) -> int:
        """Healthy GPUs in no pod after the plan, 0 if the node is not usable."""
        return max(0, self.nodes[position].left(node)) if node.usable else 0


def usage_of(facts: Facts, changes: Sequence[Change]) -> Usage:
    """Count every pod of the plan on its node."""
    empty = NodeUse()
    nodes = [empty] * len(facts.nodes)
    for position, change in enumerate(changes):
        running_pods = change.gang.running_pods
        for key, pod in change.pods.items():
            use = nodes[pod.node]
            if use is empty:
                use = nodes[pod.node] = NodeUse()
            placed = change.kind != "keep" and running_pods.get(key) != pod
            use.add(change.gang, position, pod, placed=placed)
    return Usage(tuple(nodes))


def usage_with(
    usage: Usage, changes: Sequence[Change], altered: Mapping[int, Change]
) -> tuple[Usage, set[int]]:
    """The use of every node if these gangs, by their positions, change so instead; and which nodes differ."""
    touched = {pod.node for i in altered for pod in changes[i].pods.values()}
    touched |= {pod.node for change in altered.values() for pod in change.pods.values()}
    nodes: dict[int, NodeUse] = {}
    for n in touched:
        use = nodes[n] = NodeUse()
        for position, pod, placed in usage.nodes[n].tenants:
            if position not in altered:
                use.add(changes[position].gang, position, pod, placed=placed)
    for position, change in altered.items():
        for key, pod in change.pods.items():
            placed = change.gang.running_pods.get(key) != pod
            nodes[pod.node].add(change.gang, position, pod, placed=placed)
    return Usage(Overlay(usage.nodes, nodes)), touched
