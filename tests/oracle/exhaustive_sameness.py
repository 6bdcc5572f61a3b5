"""Which rooms left on the nodes of a tiny instance are the same but for names.

Promises: two states with one key have the same future, term by term; symmetries are checked, not believed.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from itertools import permutations

from exhaustive_ground import Ground
from exhaustive_prices import usable
from exhaustive_spreads import Room
from exhaustive_values import standing

from models.hardware import Nic, ServerModel
from models.program.packing import automorphisms
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import inside_MBps

State = tuple[Room, ...]
"""Room of every node. The first entry is a mask of free GPUs, or their number on a blind node."""

HOSTNAME = "kubernetes.io/hostname"


class Sameness:
    """Keys of states; ``limits``: per node the names of the resources in its room.

    ``extended``: gangs that may get pods beside those that stay. Nodes where anything stands that may
    leave, or where an earlier plan wanted a pod, are like no other; none is if ``nodes_differ``.
    With ``gpus_differ`` no two GPUs are alike, either.
    """

    def __init__(
        self,
        ground: Ground,
        limits: Sequence[tuple[str, ...]],
        extended: Collection[int],
        *,
        nodes_differ: bool = False,
        gpus_differ: bool = False,
    ) -> None:
        self.nodes_differ = nodes_differ or gpus_differ
        self.gpus_differ = gpus_differ
        self.ground = ground
        self.limits = limits
        self.instance = ground.instance
        self.nodes = ground.nodes
        self.named = self._named()
        self.standing = self._standing(extended)
        kinds: dict[object, list[int]] = {}
        for n in range(len(self.nodes)):
            kinds.setdefault(self._kind(n), []).append(n)
        self.kinds = tuple(tuple(members) for members in kinds.values())
        self._left: dict[tuple[int, int], int] = {}

    def key(self, state: State) -> tuple[object, ...]:
        """Equal for states that differ only by the names of like nodes and of like GPUs."""
        rooms = [(self.left(n, left), amounts) for n, (left, amounts) in enumerate(state)]
        return tuple(tuple(sorted(rooms[n] for n in members)) for members in self.kinds)

    def left(self, n: int, left: int) -> int:
        """Stands for the free GPUs of node n, up to the symmetries of its hardware."""
        model = self.nodes[n].model
        if self.gpus_differ or self.ground.blind[n] or model is None:
            return left
        if (n, left) not in self._left:
            nics = self.nodes[n].effective_nics
            self._left[n, left] = least(model, nics, self.standing[n], left)
        return self._left[n, left]

    def _named(self) -> frozenset[int]:
        """Nodes that arrivals, moves or the plan of an earlier day speak of."""
        gangs = self.instance.gangs
        leaving = [p.node for g in gangs if g.movable or g.preemptible for p in standing(g)]
        return frozenset([*leaving, *(p.node for gang in gangs for p in gang.planned)])

    def _standing(self, extended: Collection[int]) -> list[tuple[int, ...]]:
        """Per node the pods of the gangs that could get more, by their GPUs: they tell GPUs apart."""
        masks: list[list[int]] = [[] for _ in self.nodes]
        for g in sorted(extended):
            for pod in self.ground.stays[g]:
                masks[pod.node].append(pod.gpus or 0)
        return [tuple(of_node) for of_node in masks]

    def _kind(self, n: int) -> object:
        """Nodes of one kind can change places: equal in all but name, room and standing gangs."""
        node, ground = self.nodes[n], self.ground
        selectors = [self.instance.policy.node_selector]
        roles = [role for gang in self.instance.gangs for role in gang.roles]
        selectors += [role.node_selector for role in roles]
        asked = [one for role in roles for term in role.node_affinity for one in term]
        if any(one.field or one.key == HOSTNAME for one in asked):
            return n
        if (
            self.nodes_differ
            or n in self.named
            or self.standing[n]
            or any(key == HOSTNAME for chosen in selectors for key, _ in chosen)
        ):
            return n
        return (
            node.model,
            node.domains,
            node.effective_nics,
            self.limits[n],
            node.labels,
            node.taints,
            usable(self.instance, node),
            (ground.unknown[n], ground.known[n], node.healthy) if ground.blind[n] else None,
        )


@cache
def any_set_will_do(model: ServerModel, nics: tuple[Nic, ...]) -> bool:
    """Whether inside and N depend on the number of GPUs alone, tried on every set."""
    rates: dict[int, set[object]] = {}
    for chosen in range(1, 1 << model.gpus):
        rate = (inside_MBps(model, chosen), nics_MBps(model, nics, chosen))
        rates.setdefault(chosen.bit_count(), set()).add(rate)
    return all(len(seen) == 1 for seen in rates.values())


@cache
def least(model: ServerModel, nics: tuple[Nic, ...], own: tuple[int, ...], left: int) -> int:
    """Equal for sets of GPUs that a symmetry of the hardware exchanges and that leaves ``own`` alone."""
    if any_set_will_do(model, nics):
        return left.bit_count()
    return min(
        permuted(p, left)
        for p in symmetries(model, nics)
        if all(permuted(p, mask) == mask for mask in own)
    )


@cache
def symmetries(model: ServerModel, nics: tuple[Nic, ...]) -> tuple[tuple[int, ...], ...]:
    """Permutations of the GPUs that change no inside and no N, each tried on every set."""
    rates = [
        (inside_MBps(model, chosen), nics_MBps(model, nics, chosen)) if chosen else None
        for chosen in range(1 << model.gpus)
    ]
    small = model.gpus <= 4
    candidates = permutations(range(model.gpus)) if small else automorphisms(model, nics)
    return tuple(
        p
        for p in candidates
        if all(rates[permuted(p, chosen)] == rate for chosen, rate in enumerate(rates))
    )


def permuted(permutation: Sequence[int], mask: int) -> int:
    """The mask with GPU i renamed to permutation[i]."""
    return sum(1 << image for i, image in enumerate(permutation) if mask >> i & 1)
