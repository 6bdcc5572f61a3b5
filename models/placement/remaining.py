"""Which pods of a gang stay where they are while the others are placed anew (contract 2.6, 2.8).

A pod placed where it stands is as good as one that stays, so only two things make a difference: pods that
could not be placed there again, and roles or slices that break a rule as they stand, which they may do
only as a whole. Promises: every set that some best plan may need; pods that nothing tells apart are told
by their number. ``complete`` False: there would be too many. Called by ``options``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from models.gang import Role, StandingPod
from models.instance import Instance
from models.occupancy import Room
from models.placement.packing import by_count

MOST_SETS = 256
"""Sets of pods that stay of one gang at one size; of more only none and all of the odd ones."""

Pods = tuple[StandingPod, ...]


class Remaining:
    """The pods of one gang. ``rooms``: beside all that runs."""

    def __init__(self, instance: Instance, rooms: Sequence[Room], index: int) -> None:
        self._instance = instance
        self._rooms = rooms
        self._gang = instance.gangs[index]

    def sets(self, there: Sequence[StandingPod]) -> tuple[list[Pods], bool]:
        """Sets of these pods that stay, never all; False if some were left out.

        Beside them those with all GPUs in place: moving pods without GPUs disturbs nothing.
        """
        units = self._units(there)
        number = 1
        for unit in units:
            number *= len(unit)
        complete = number <= MOST_SETS
        if not complete:
            units = [[(), tuple(p for unit in units for p in unit[-1])]]
        with_gpus = [p for p in there if self._gang.roles[p.role].gpus]
        found: dict[Pods, None] = {}
        for chosen in product(*units):
            some = [p for part in chosen for p in part]
            for stays in ([], with_gpus):
                pods = tuple(p for p in there if p in some or p in stays)
                if len(pods) < len(there):
                    found[pods] = None
        return list(found), complete

    def _units(self, there: Sequence[StandingPod]) -> list[list[Pods]]:
        """What may stay or not, each by itself: as many of some alike pods, or a whole group or none."""
        units: list[list[Pods]] = [[(), group] for group in self._broken(there)]
        alike: dict[object, list[StandingPod]] = {}
        for pod in there:
            if not self._placeable(pod):
                alike.setdefault(self._kind(pod, there), []).append(pod)
        return units + [[tuple(pods[:n]) for n in range(len(pods) + 1)] for pods in alike.values()]

    def _broken(self, there: Sequence[StandingPod]) -> list[Pods]:
        """Roles and slices that break a rule as they stand."""
        found: dict[Pods, None] = {}
        for number, role in enumerate(self._gang.roles):
            own = tuple(p for p in there if p.role == number)
            groups: list[tuple[int | None, Pods]] = [(role.required, own)]
            for size, level in role.slice_layers:
                numbers = sorted({p.index // size for p in own})
                groups += [(level, tuple(p for p in own if p.index // size == n)) for n in numbers]
            for within, pods in groups:
                if within is not None and self._several(within, pods):
                    found[pods] = None
            if self._mixed(role, own):
                found[own] = None
        return list(found)

    def _several(self, level: int, pods: Sequence[StandingPod]) -> bool:
        """Whether the pods stand in several domains of the level."""
        of = self._instance.cluster.domain_of[level]
        return len({of[p.node] for p in pods if p.node is not None}) > 1

    def _mixed(self, role: Role, own: Sequence[StandingPod]) -> bool:
        """Whether the role stands on several GPU models although it must not."""
        if not role.gpus or role.mix_models:
            return False
        nodes = self._instance.cluster.nodes
        models = [nodes[p.node].model for p in own if p.node is not None]
        return len({model.gpu for model in models if model is not None}) > 1

    def _placeable(self, pod: StandingPod) -> bool:
        """Whether the pod, taken away, could be put where it stands."""
        instance, role = self._instance, self._gang.roles[pod.role]
        assert pod.node is not None
        node, room = instance.cluster.nodes[pod.node], self._rooms[pod.node]
        if pod.node not in instance.eligible_nodes(role) or (pod.gpus or 0) & ~node.healthy:
            return False
        hidden = room.blind and node.model and not by_count(node.model, node.effective_nics)
        if hidden and pod.gpus:
            return False  # its GPUs are known as long as it stays, those of a new pod would not be
        # where what stands is too much already it may stay, but nothing may be added
        return room.mask.bit_count() >= room.unknown and all(left >= 0 for _, left in room.left)

    def _kind(self, pod: StandingPod, there: Sequence[StandingPod]) -> object:
        """Equal for pods of which it does not matter which stay."""
        assert pod.node is not None
        role, node = self._gang.roles[pod.role], self._instance.cluster.nodes[pod.node]
        where: object = pod.node
        gpus: object = pod.gpus
        if node.model is None or by_count(node.model, node.effective_nics):
            # what is free of a node that takes no pods is worth nothing, wherever it is
            alone = sum(p.node == pod.node for p in there) == 1
            if alone and not self._instance.schedulable(node):
                of = self._instance.cluster.domain_of[:-1]
                where = (node.model, node.nics, tuple(level[pod.node] for level in of))
                gpus = None
            elif pod.gpus is not None:
                gpus = (pod.gpus & node.healthy).bit_count()
        slices = tuple(pod.index // size for size, _ in role.slice_layers)
        planned = tuple(
            p.node for p in self._gang.planned if (p.role, p.index) == (pod.role, pod.index)
        )
        return pod.role, where, gpus, slices, planned
