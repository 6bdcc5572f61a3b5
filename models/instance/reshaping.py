"""GPUs whose MIG geometry a plan may change: which of them pods with instances take from whole GPUs.

On a node with ``dynamic_mig`` an idle GPU is given whole or partitioned. Instances of one profile are alike:
the pods of a node take the fewest GPUs that have what is wanted beyond the instances that are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from models.hardware import bits
from models.instance.cluster import Node
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.mig import RESOURCE, Board, board_named, resource_of

NONE_HAS = 1 << 20
"""GPUs that more instances take than any number of GPUs has."""


@dataclass(frozen=True, slots=True)
class Reshaping:
    """What a node's GPUs may become. ``resources``: of the ``profiles``, the largest first.

    ``there``: instances that no change is needed for.
    """

    board: Board
    resources: tuple[str, ...]
    profiles: tuple[str, ...]
    there: tuple[int, ...]

    @property
    def geometries(self) -> tuple[tuple[int, ...], ...]:
        """Sets of instances that a GPU may have, as numbers of each profile."""
        return self.board.geometries(self.profiles)

    def cover(self, used: Mapping[str, int]) -> tuple[tuple[int, ...], ...] | None:
        """A geometry for each GPU that pods with these requests take; None if no GPUs have them."""
        wanted = tuple(
            max(0, used.get(r, 0) - t) for r, t in zip(self.resources, self.there, strict=True)
        )
        return self.board.cover(tuple(zip(self.profiles, wanted, strict=True)))

    def taken(self, used: Mapping[str, int]) -> int:
        """GPUs that pods with these requests take."""
        found = self.cover(used)
        return NONE_HAS if found is None else len(found)

    def left(self, idle: int, used: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """Whole GPUs, and instances of each profile, that are left of so many idle GPUs; below 0: too few."""
        left = {resource: self.more(used, resource, idle) for resource in self.resources}
        return idle - self.taken(used), left

    def more(self, used: Mapping[str, int], resource: str, gpus: int) -> int:
        """How many more instances of a profile the node has for pods if they take at most so many GPUs."""
        if self.taken(used) > gpus:
            return -1
        least, most = 0, NONE_HAS
        mine = dict(used)
        while most - least > 1:
            middle = (least + most) // 2 if most < NONE_HAS else 2 * least + 1
            mine[resource] = used.get(resource, 0) + middle
            if self.taken(mine) <= gpus:
                least = middle
            else:
                most = middle
        return least


def reshaping(instance: Instance) -> Mapping[int, Reshaping]:
    """By node, for the profiles that roles request."""
    return instance.once(_reshaping)


def _reshaping(instance: Instance) -> dict[int, Reshaping]:
    found = {}
    for n, node in enumerate(instance.cluster.nodes):
        if not node.reshapable or node.dynamic_mig is None:
            continue
        board = board_named(node.dynamic_mig)
        assert board is not None, "reading has refused unknown boards"
        could, offered = dict(node.reshapable), dict(node.allocatable)
        sizes = {
            r: max(p.size for p in board.profiles if r in map(resource_of, p.names)) for r in could
        }
        resources = sorted(could, key=lambda r: (-sizes[r], r))
        found[n] = Reshaping(
            board,
            tuple(resources),
            tuple(_profile(board, r) for r in resources),
            tuple(offered[r] - could[r] for r in resources),
        )
    return found


def _profile(board: Board, resource: str) -> str:
    """The profile of the board that a resource counts."""
    return next(n for p in board.profiles for n in p.names if resource_of(n) == resource)


def with_reshapable(instance: Instance) -> Instance:
    """The instance whose nodes say what their GPUs could have of what roles request.

    Nothing where GPUs are not told apart, or pods hold instances that the node does not state: nobody could
    say which GPU to partition.
    """
    if not any(node.dynamic_mig for node in instance.cluster.nodes):
        return instance
    roles = (role for gang in instance.gangs for role in gang.roles)
    requested = {r for role in roles for r, _ in role.requests if r.startswith(RESOURCE)}
    unclear, held = set[int](), dict[int, Counter[str]]()
    for gang in instance.gangs:
        for pod in gang.running_pods:
            assert pod.node is not None, "it runs"
            held.setdefault(pod.node, Counter()).update(dict(gang.roles[pod.role].requests))
            if pod.gpus is None and gang.roles[pod.role].gpus:
                unclear.add(pod.node)
    for n, amounts in held.items():
        offered = dict(instance.cluster.nodes[n].allocatable)
        if any(amounts[r] > offered.get(r, 0) for r in requested):
            unclear.add(n)
    nodes = tuple(
        node if n in unclear else _with_reshapable(instance, node, requested)
        for n, node in enumerate(instance.cluster.nodes)
    )
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes))


def _with_reshapable(instance: Instance, node: Node, requested: Iterable[str]) -> Node:
    board = None if node.dynamic_mig is None else board_named(node.dynamic_mig)
    blind = instance.policy.gpu_binding == "none" and node.model and not node.model.switched
    if board is None or blind or node.unknown_unhealthy:
        return node
    gpus = node.healthy.bit_count()
    most = {
        resource_of(name): p.most * gpus for p in board.profiles for name in p.names if p.starts
    }
    could = {r: most[r] for r in sorted(requested) if most.get(r)}
    offered = dict(node.allocatable)
    return replace(
        node,
        allocatable=tuple(
            sorted({**offered, **{r: offered.get(r, 0) + m for r, m in could.items()}}.items())
        ),
        reshapable=tuple(could.items()),
    )


class Uses(Protocol):
    """What a pod uses: a role is one."""

    @property
    def gpus(self) -> int: ...

    @property
    def requests(self) -> tuple[tuple[str, int], ...]: ...


def taken_gpus(
    instance: Instance, pods: Iterable[tuple[Uses, PodPlacement]], nodes: Iterable[int]
) -> dict[int, int]:
    """GPUs that pods with instances take on each of these nodes where they take some."""
    known = reshaping(instance)
    if not known:
        return {}
    wanted = {n: Counter[str]() for n in nodes if n in known}
    for role, pod in pods:
        if pod.node in wanted:
            wanted[pod.node].update(dict(role.requests))
    found = {n: known[n].taken(used) for n, used in wanted.items()}
    return {n: gpus for n, gpus in found.items() if gpus}


def partitions(
    instance: Instance, pods: Sequence[tuple[Uses, PodPlacement]]
) -> list[tuple[int, int, tuple[str, ...]]]:
    """(node, GPU, profiles of its instances) of all GPUs to partition, given all pods after a plan.

    Of the GPUs that no pod holds those with the highest indices.
    """
    known, found = reshaping(instance), []
    for n in sorted({pod.node for _, pod in pods if pod.node in known}):
        here = [(role, pod) for role, pod in pods if pod.node == n]
        used = Counter[str]()
        for role, _ in here:
            used.update(dict(role.requests))
        one, free = known[n], instance.cluster.nodes[n].healthy
        for _, pod in here:
            free &= ~(pod.gpus or 0)
        geometries = one.cover(used)
        assert geometries is not None, "the pods fit"
        for gpu, geometry in zip(sorted(bits(free), reverse=True), geometries, strict=False):
            profiles = (p for p, c in zip(one.profiles, geometry, strict=True) for _ in range(c))
            found.append((n, gpu, tuple(profiles)))
    return sorted(found)
