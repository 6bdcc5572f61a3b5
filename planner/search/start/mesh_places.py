"""Sets of GPUs for gangs on servers on which not only their number counts, as the slots have them.

Each pattern of a class is given to as many of its nodes as a solution says, those first that have pods left
whose GPUs it needs. A gang gets the sets that are worth least of those that suffice, in a domain as narrow as
in the solution, if there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
        self._vacated = {
            pod.node
            for gang, pods in zip(model.instance.gangs, space.pods, strict=True)
            for pod in (() if pods else gang.running_pods)
        }
        self._left = [
            GpuSet(mesh, n, own)
            for mesh in model.meshes
            for one in mesh.classes
            for n, own in _chosen(mesh, one, values, space)
        ]
        self._values = list(values)

    def take(self, mode: Mode, space: FreeSpace, demand: Demand) -> tuple[PodPlacement, ...] | None:
        """Pods of a gang on sets that suffice, which are then taken; None if there are none."""
        values, last, shares = self._values, mode.level, dict[int, int]()
        if (scattered := self._model.scattered(mode)) is not None:
            mesh, (last, gpus, _, least, over) = scattered
            homes = mesh.homes[scattered[1]]
            if (domain := next((d for d, home in homes.items() if values[home]), -1)) < 0:
                return None
            values[homes[domain]] -= 1
            found = mesh.shares[(last, domain), gpus, least, over]
            shares = {own * gpus: variable for own, variable in found.items()}
            if last >= 0:
                domains = self._model.instance.cluster.domains[last]
                demand = demand.on_gpus(frozenset(domains[domain].nodes))
        for level in range(mode.level, last - 1, -1):
            for sets in self._domains(mode, level, space, demand):
                limits = {size: values[variable] for size, variable in shares.items()}
                chosen = _adding_up(_by_size(sets, limits), demand.gpus)
                pods = None if chosen is None else _pods_on(space, demand, chosen)
                if chosen is not None and pods is not None:
                    self._left = [own for own in self._left if own not in chosen]
                    for own in chosen if shares else ():
                        values[shares[own.mask.bit_count()]] -= 1
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


def _by_size(sets: Sequence[GpuSet], limits: Mapping[int, int]) -> list[list[GpuSet]]:
    """The sets of each size, the largest first; of each so many, if limited."""
    sizes = sorted(limits or {own.mask.bit_count() for own in sets}, reverse=True)
    every = [[own for own in sets if own.mask.bit_count() == size] for size in sizes]
    return [own[: limits.get(own[0].mask.bit_count())] for own in every if own]


def _adding_up(sets: Sequence[Sequence[GpuSet]], gpus: int) -> list[GpuSet] | None:
    """Some of the sets with so many GPUs in all, as many of the first size as possible."""
    if not gpus or not sets:
        return None if gpus else []
    size = max((own.mask.bit_count() for own in sets[0]), default=1)
    for count in range(min(len(sets[0]), gpus // size), -1, -1):
        rest = _adding_up(sets[1:], gpus - count * size)
        if rest is not None:
            return [*sets[0][:count], *rest]
    return None


def _chosen(
    mesh: SlotMeshes, one: MeshClass, values: Sequence[int], space: FreeSpace
) -> list[tuple[int, int]]:
    """(node, mask) of the sets of the patterns of a class."""
    found, open_ = list[tuple[int, int]](), [n for n, _ in one.nodes]
    for own in sorted((o for o in one.patterns if o.taken), key=lambda own: -len(own.gone)):
        for _ in range(values[own.variable]):
            # a node from which nobody left that had to is not among them
            order = sorted(open_, key=lambda n: space.by_node[n].free if own.gone else n)
            sets = ((n, mesh.patterns.choose(space.by_node[n].mask, own.pattern)) for n in order)
            n, chosen = next(((n, masks) for n, masks in sets if masks is not None), (-1, []))
            if n >= 0:
                open_.remove(n)
                found += ((n, mask) for mask in chosen)
    return found


def _pods_on(
    space: FreeSpace, demand: Demand, sets: Sequence[GpuSet]
) -> tuple[PodPlacement, ...] | None:
    """Pods on all GPUs of these sets; None if a rule forbids that."""
    parts = [demand] if len(sets) == 1 else _parts(demand, sets)
    found = list[PodPlacement]()
    for part, one in zip(parts, sets, strict=True):
        left = list(bits(one.mask))
        for pod in place(space, part.on_gpus(frozenset({one.node})), bound=False) or ():
            own = [left.pop(0) for _ in bits(pod.gpus or 0)]
            found.append(replace(pod, gpus=sum(1 << gpu for gpu in own)) if own else pod)
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
