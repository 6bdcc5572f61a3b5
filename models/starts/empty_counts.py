"""Counts on the cluster without any pod of a gang: they refute that a gang could start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.occupancy import PODS
from models.instance.reshaping import unshared
from models.queues.queue_shares import beyond_limit
from models.rules.demands import cut_of

T = TypeVar("T")


class EmptyCounts:
    """Counts on the cluster without any pod of a gang, and limits of queues.

    ``in_order``: as if every node were in order, and no pod of no gang held anything; else as nodes are.
    """

    def __init__(self, instance: Instance, *, in_order: bool = True) -> None:
        self._instance = instance
        self._in_order = in_order
        self._known: dict[object, object] = {}

    def fits(self, gang: Gang) -> bool:
        """Whether no count says that the gang could not start at its least size."""
        sizes = zip(gang.roles, gang.target_counts, strict=True)
        roles = [(role, count) for role, count in sizes if count]
        return (
            all(self._role_fits(gang, role, count) for role, count in roles)
            and self._all_fit(gang, roles)
            and beyond_limit(self._instance, gang) is None
        )

    def room(self, role: Role, count: int, nodes: frozenset[int], level: int | None) -> int:
        """Pods of a role for which one domain of a level, or the whole cluster, has room on these nodes."""
        return max(
            self._rooms(_Pods(nodes, role.gpus, role.requests, 0 if role.gpus else count), level)
        )

    def nodes(self, role: Role) -> frozenset[int]:
        """Nodes that pods of the role may be placed on."""
        found = self._instance.matching_nodes if self._in_order else self._instance.eligible_nodes
        return found(role)

    def _role_fits(self, gang: Gang, role: Role, count: int) -> bool:
        nodes = self.nodes(role)
        most = _Pods(nodes, role.gpus, role.requests, 0 if role.gpus else count)
        levels = [level for level in (gang.required, role.required) if level is not None]
        return (
            bool(nodes)
            and max(self._rooms(most, max(levels) if levels else None)) >= count
            and (not role.gpus or role.mix_models or self._of_best_model(most) >= count)
            and all(
                self._slices(most, level, size) >= cut_of(role.first_index, count, size).whole
                for size, level in role.slice_layers
            )
        )

    def _all_fit(self, gang: Gang, roles: Sequence[tuple[Role, int]]) -> bool:
        """The GPUs of all roles together, in one domain if the gang has to be in one."""
        gpus = sum(role.gpus * count for role, count in roles)
        sets = {self.nodes(role) for role, _ in roles if role.gpus}
        nodes = next(iter(sets)) if len(sets) == 1 else frozenset[int]().union(*sets)
        return not gpus or max(self._rooms(_Pods(nodes, 1, counted=False), gang.required)) >= gpus

    def _rooms(self, pods: _Pods, level: int | None) -> Collection[int]:
        """Pods for which there is room in each domain of a level, or in all."""

        def found() -> Collection[int]:
            cluster, sums = self._instance.cluster, defaultdict[int, int](int)
            sums[-1] = 0  # where there is no node at all
            for n in pods.nodes:
                domain = 0 if level is None else cluster.domain_of[level][n]
                sums[domain] += self._room(pods, n)
            return tuple(sums.values())

        return self._once(("rooms", pods, level), found)

    def _room(self, pods: _Pods, n: int) -> int:
        """Pods for which a node has room."""
        room = self._gpus[n] // pods.gpus if pods.gpus else pods.most
        offers = self._offers[n]
        for resource, amount in ((PODS, 1), *pods.requests) if offers and pods.counted else ():
            if amount and resource in offers:
                room = min(room, offers[resource] // amount)
        return room

    @cached_property
    def _nodes(self) -> tuple[Node, ...]:
        instance, repaired = self._instance, self._in_order
        return tuple(unshared(instance, n, repaired=repaired) for n in instance.cluster.nodes)

    @cached_property
    def _offers(self) -> tuple[dict[str, int], ...]:
        nodes = self._nodes
        return tuple(n.at_most if self._in_order else dict(n.allocatable) for n in nodes)

    @cached_property
    def _gpus(self) -> tuple[int, ...]:
        nodes = self._nodes
        return tuple(n.whole_gpus if self._in_order else n.healthy_gpus for n in nodes)

    def _of_best_model(self, pods: _Pods) -> int:
        def found() -> int:
            nodes, every = pods.nodes, self._instance.cluster.nodes
            of_model = (
                frozenset(n for n in nodes if (m := every[n].model) and m.gpu == name)
                for name in self._instance.gpu_names(nodes)
            )
            rooms = (max(self._rooms(pods._replace(nodes=own), None)) for own in of_model)
            return max(rooms, default=0)

        return self._once(("model", pods), found)

    def _slices(self, pods: _Pods, level: int, size: int) -> int:
        rooms = self._rooms(pods, level)
        return self._once(("slices", pods, level, size), lambda: sum(r // size for r in rooms))

    def _once(self, key: object, find: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = find()
        return cast("T", self._known[key])


class _Pods(NamedTuple):
    """Pods of one kind. ``most``: on one node, of those without GPUs. ``counted``: whether resources are."""

    nodes: frozenset[int]
    gpus: int
    requests: tuple[tuple[str, int], ...] = ()
    most: int = 0
    counted: bool = True
