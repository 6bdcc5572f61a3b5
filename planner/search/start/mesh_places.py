"""Sets of GPUs for gangs on servers on which not only their number counts, as the slots have them.

Each pattern of a class is given to as many of its nodes as a solution says, those first that have pods left
whose GPUs it needs. A gang gets the sets that are worth least of those that suffice, in a domain as narrow as
in the solution, if there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from models.hardware import bits
from models.instance.solution import PodPlacement
from models.program.slots.slot_meshes import MeshClass, SlotMeshes
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_rooms import Mode
from models.rules.demands import Demand
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import permitted, place


@dataclass(frozen=True)
class GpuSet:
    mesh: SlotMeshes
    node: int
    mask: int


class MeshPlaces:
    """The sets that are left. ``space``: with all that is placed before them."""

    def __init__(self, model: SlotModel, values: Sequence[int], space: FreeSpace) -> None:
        self._model = model
        gangs = model.instance.gangs
        self._vacated = {
            pod.node
            for gang, pods in enumerate(space.pods)
            if not pods
            for pod in gangs[gang].running_pods
        }
        self._left = [
            GpuSet(mesh, n, own)
            for mesh in model.meshes
            for one in mesh.classes
            for n, own in _chosen(mesh, one, values, space)
        ]

    def take(self, mode: Mode, space: FreeSpace, demand: Demand) -> tuple[PodPlacement, ...] | None:
        """Pods of a gang on sets that suffice, which are then taken; None if there are none."""
        levels = range(mode.level, -2, -1)
        if mode.level == self._model.instance.cluster.node_level:
            levels = range(mode.level, mode.level - 1, -1)
        for level in levels:
            for sets in self._domains(mode, level, space, demand):
                chosen = _adding_up(sets, demand.gpus)
                pods = None if chosen is None else _pods_on(space, demand, chosen)
                if chosen is not None and pods is not None:
                    self._left = [own for own in self._left if own not in chosen]
                    return pods
        return None

    def _domains(
        self, mode: Mode, level: int, space: FreeSpace, demand: Demand
    ) -> list[list[GpuSet]]:
        """By domain of a level, the sets that suffice, those worth least first; the tightest first."""
        cluster, nodes = self._model.instance.cluster, demand.nodes
        found: dict[int, list[GpuSet]] = {}
        alone = level == cluster.node_level
        over = None if alone else self._model.shapes.bounds.over(level)
        least = None if mode.shape is None else mode.shape.inside
        step, offered = demand.gpu_roles[0].gpus, Counter[int]()
        for own in self._left:
            here, gpus = space.by_node[own.node], own.mask.bit_count()
            free = own.node in nodes and not own.mask & ~here.mask
            filled = gpus == demand.gpus if alone else gpus % step == 0
            suffices = least is not None and own.mesh.kind.sets.rate(own.mask, over) >= least
            # beside GPUs of unknown index all others look free, and fewer are
            if free and filled and suffices and gpus <= here.raw - offered[own.node]:
                offered[own.node] += gpus
                domain = -1 if level < 0 else cluster.domain_of[level][own.node]
                found.setdefault(domain, []).append(own)
        for sets in found.values():
            # nobody stops for who does not come to his node: those of higher priority are served first
            sets.sort(key=lambda own: (own.mesh.kind.sets.rate(own.mask, over), own.node))
            sets.sort(key=lambda own: own.node not in self._vacated)
        return sorted(found.values(), key=len)


def _adding_up(sets: Iterable[GpuSet], gpus: int) -> list[GpuSet] | None:
    """Some of the sets with so many GPUs in all, the largest ones."""
    by_size: dict[int, list[GpuSet]] = {}
    for own in sets:
        by_size.setdefault(own.mask.bit_count(), []).append(own)
    counts = _counts(sorted(by_size, reverse=True), by_size, gpus)
    if counts is None:
        return None
    return [own for size, count in counts.items() for own in by_size[size][:count]]


def _counts(
    sizes: Sequence[int], sets: Mapping[int, Sequence[GpuSet]], gpus: int
) -> dict[int, int] | None:
    if not gpus:
        return {}
    if not sizes:
        return None
    for count in range(min(len(sets[sizes[0]]), gpus // sizes[0]), -1, -1):
        rest = _counts(sizes[1:], sets, gpus - count * sizes[0])
        if rest is not None:
            return {sizes[0]: count, **rest}
    return None


def _chosen(
    mesh: SlotMeshes, one: MeshClass, values: Sequence[int], space: FreeSpace
) -> list[tuple[int, int]]:
    """(node, mask) of the sets of the patterns of a class."""
    found, open_ = list[tuple[int, int]](), [n for n, _ in one.nodes]
    for variable, pattern, gone in sorted(one.patterns, key=lambda own: -len(own[2])):
        for _ in range(values[variable]):
            # a node from which nobody left that had to is not among them
            order = sorted(open_, key=lambda n: space.by_node[n].free if gone else n)
            sets = ((n, mesh.patterns.choose(space.by_node[n].mask, pattern)) for n in order)
            n, chosen = next(((n, own) for n, own in sets if own is not None), (-1, []))
            if n >= 0:
                open_.remove(n)
                found += ((n, own) for own in chosen)
    return found


def _pods_on(
    space: FreeSpace, demand: Demand, sets: Sequence[GpuSet]
) -> tuple[PodPlacement, ...] | None:
    """Pods on all GPUs of these sets; None if a rule forbids that."""
    parts = [demand] if len(sets) == 1 else _parts(demand, sets)
    found = list[PodPlacement]()
    for part, own in zip(parts, sets, strict=True):
        pods = place(space, part.on_gpus(frozenset({own.node})), bound=False)
        found += () if pods is None else _on(pods, own.mask)
    whole = len(found) == sum(role.count for role in demand.roles)
    return tuple(found) if whole and permitted(space, demand.gang, tuple(found)) else None


def _parts(demand: Demand, sets: Sequence[GpuSet]) -> list[Demand]:
    """The pods of a gang with one role with GPUs that fill each of these sets."""
    (role,), others, parts, first = demand.gpu_roles, demand.cpu_only_roles, list[Demand](), 0
    for own in sets:
        last = first + own.mask.bit_count() // role.gpus
        indices = role.indices[first:last]
        parts.append(replace(demand, roles=(replace(role, indices=indices), *others)))
        others, first = (), last
    return parts


def _on(pods: Sequence[PodPlacement], mask: int) -> list[PodPlacement]:
    """The same pods with the GPUs of a set, as many each as before."""
    left, found = list(bits(mask)), []
    for pod in pods:
        own = left[: pod.gpus.bit_count()] if pod.gpus else []
        del left[: len(own)]
        found.append(replace(pod, gpus=sum(1 << gpu for gpu in own)) if own else pod)
    return found
