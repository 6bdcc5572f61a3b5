"""Sets of GPUs of one server, what they are worth, and on which servers only their number counts.

Elsewhere a pattern says how many disjoint sets a free mask has of each kind that is asked for; one that has
less of everything than another is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

from models.hardware import Nic, ServerModel, bits
from models.instance.cluster import Node
from models.rates.gang_bandwidth import ServerSet, set_inside_MBps, set_nics_MBps
from models.rates.gpu_sets import UnknownRate
from models.rates.nic_bandwidth import extreme_nics_MBps, nics_MBps
from models.rates.server_bandwidth import best_inside_MBps, inside_MBps, link_count, pair_MBps

LARGEST_MESH_STATE = 9
"""Free masks with more GPUs than this are relaxed to counts: 2^16 sets are too many."""


@dataclass(frozen=True, slots=True)
class SetType:
    """What a set of GPUs is worth: its size, inside(S) and N(S) in MB/s.

    ``inside`` None: unlimited (one GPU). ``network`` None: a NIC speed is not known.
    ``with_standing``: (inside, N) of the set together with the standing GPUs of each incomplete gang there.
    """

    gpus: int
    inside: Fraction | None
    network: Fraction | None
    with_standing: tuple[tuple[Fraction | None, Fraction | None], ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = (self.gpus, self.inside, self.network, self.with_standing)
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        # that of a fraction takes as long as ten others, and types are looked up for every piece
        return self._hash


Rate = Callable[[SetType], tuple[Fraction, ...] | Fraction | float]
"""How fast a set is."""


def inside_known_MBps(node: Node, chosen: ServerSet) -> Fraction | None:
    """inside(S); 0 where a link rate is unknown (the readers refuse that for gangs to be placed)."""
    try:
        return set_inside_MBps(node, chosen)
    except UnknownRate:
        return Fraction(0)


def network_MBps(node: Node, chosen: ServerSet) -> Fraction | None:
    """N(S), None where a speed it needs is unknown (the readers refuse that where it matters)."""
    try:
        return set_nics_MBps(node, chosen)
    except UnknownRate:
        return None


class CountSets:
    """Only the number of GPUs counts: switched servers, servers with unknown GPU indices, relaxed meshes.

    ``exact`` False: a relaxation.
    """

    def __init__(
        self,
        node: Node,
        candidates: int,
        *,
        blind: bool,
        relaxed: bool,
        with_standing: tuple[ServerSet, ...] = (),
    ) -> None:
        self._node = node
        self._candidates = candidates
        self.blind = blind
        self._relaxed = relaxed
        self._with_standing = with_standing
        self._kinds: dict[int, SetType] = {}
        self.exact = not relaxed

    def fastest(self, mask: int, gpus: int, _rate: Rate | None = None) -> int | None:
        """The indices given: None if unknown, the best set found if relaxed, otherwise the lowest."""
        if self.blind:
            return None
        if self._relaxed:
            return _good_set(self._node, mask, gpus)
        return sum(1 << i for i in bits(mask)[:gpus])

    def kind(self, gpus: int) -> SetType:
        """What so many GPUs are worth."""
        if gpus not in self._kinds:
            self._kinds[gpus] = self._make(gpus)
        return self._kinds[gpus]

    def _make(self, gpus: int) -> SetType:
        node = self._node
        if self._relaxed:
            model, network = node.model, None
            assert model is not None
            network = network_MBps(node, ServerSet(model.all_gpus))  # every NIC of the node
            with_standing = tuple(
                (best_inside_MBps(model, min(model.gpus, base.count + gpus)), network)
                for base in self._with_standing
            )
            return SetType(gpus, best_inside_MBps(model, gpus), network, with_standing)
        # only the number counts: any set of the size will do
        known = 0 if self.blind else (1 << gpus) - 1
        chosen = ServerSet(known, gpus if self.blind else 0, self._candidates)
        with_standing = tuple(self._with(base, gpus) for base in self._with_standing)
        return SetType(
            gpus, inside_known_MBps(node, chosen), network_MBps(node, chosen), with_standing
        )

    def _with(self, base: ServerSet, gpus: int) -> tuple[Fraction | None, Fraction | None]:
        node, count = self._node, base.count + gpus
        if count > node.gpus:
            return Fraction(0), Fraction(0)  # never both: the pods that stay hold these GPUs
        both = ServerSet(base.known, base.blind + gpus, self._candidates)
        if node.model is not None and by_count(node.model, node.effective_nics):
            both = ServerSet((1 << count) - 1)
        elif (both.candidates & ~both.known).bit_count() < both.blind:
            return Fraction(0), Fraction(0)
        return inside_known_MBps(node, both), network_MBps(node, both)


def _good_set(node: Node, mask: int, gpus: int) -> int:
    """A good set by growing from every GPU along the fastest paths; for relaxed meshes only."""
    best: tuple[Fraction, int] | None = None
    for first in bits(mask):
        chosen = 1 << first
        while chosen.bit_count() < gpus:
            grown = [chosen | 1 << i for i in bits(mask & ~chosen)]
            chosen = max(
                grown, key=lambda m: (inside_known_MBps(node, ServerSet(m)) or Fraction(0), -m)
            )
        value = inside_known_MBps(node, ServerSet(chosen)) or Fraction(0)
        if best is None or (value, -chosen) > (best[0], -best[1]):
            best = (value, chosen)
    assert best is not None
    return best[1]


class MaskSets:
    """Every set has a worth of its own. ``with_standing``: GPUs that stand there."""

    exact = True

    def __init__(self, node: Node, with_standing: tuple[ServerSet, ...] = ()) -> None:
        self._node = node
        self._with_standing = with_standing
        self._kinds: dict[int, SetType] = {}

    def fastest(self, mask: int, gpus: int, rate: Rate) -> int:
        """The first of the fastest sets of so many GPUs."""
        return max(subsets(mask, gpus), key=lambda chosen: rate(self.kind(chosen)))

    def kind(self, chosen: int) -> SetType:
        if chosen not in self._kinds:
            node, own = self._node, ServerSet(chosen)
            # next to unknown GPUs pods get no indices: this set is never given
            with_standing = tuple(
                (Fraction(0), Fraction(0))
                if base.blind
                else (inside_known_MBps(node, both), network_MBps(node, both))
                for base in self._with_standing
                for both in (ServerSet(base.known | chosen),)
            )
            self._kinds[chosen] = SetType(
                chosen.bit_count(),
                inside_known_MBps(node, own),
                network_MBps(node, own),
                with_standing,
            )
        return self._kinds[chosen]


def subsets(mask: int, size: int) -> list[int]:
    """Every set of so many GPUs of a mask, in a fixed order."""
    return [sum(1 << i for i in chosen) for chosen in combinations(bits(mask), size)]


def by_count(model: ServerModel, nics: tuple[Nic, ...]) -> bool:
    """Whether only the number of GPUs matters; False also where a NIC speed it needs is unknown."""
    try:
        return count_only(model, nics)
    except UnknownRate:
        return model.switched


@lru_cache(maxsize=1024)
def count_only(model: ServerModel, nics: tuple[Nic, ...]) -> bool:
    """Whether bandwidth inside and out depends on the number of GPUs alone.

    Raises UnknownRate if the speed of a NIC it needs is not known.
    """
    # Where pairs differ, sets of two do. (A link and a PCIe path of one rate are not alike.)
    pairs = combinations(range(model.gpus), 2)
    if not model.switched and len({_path(model, a, b) for a, b in pairs}) > 1:
        return False
    every = (extreme_nics_MBps(model, nics, model.all_gpus, k) for k in range(1, model.gpus + 1))
    return all(least == most for least, most in every)


def _path(model: ServerModel, a: int, b: int) -> tuple[int, Fraction]:
    """The links between two GPUs and, where there are none, the rate of their path."""
    if model.matrix is None:
        return (0, Fraction(0))  # pricing two of the GPUs raises UnknownRate
    links = link_count(model.matrix[a][b])
    return (links, Fraction(0)) if links else (0, pair_MBps(model, a, b))


Masks = frozenset[int]
"""Sets of as many GPUs each that will do."""

Pattern = tuple[int, ...]
"""For all masks that are asked for, the number of disjoint sets among them; last the GPUs that are left."""


def mesh_sets(node: Node) -> MeshSets | None:
    """The sets of such a node; None if only their number counts, a rate is unknown, or there are too many."""
    model = node.model
    if model is None or model.gpus > LARGEST_MESH_STATE or by_count(model, node.effective_nics):
        return None
    return _mesh_sets(model, node.effective_nics)


@lru_cache(maxsize=64)
def _mesh_sets(model: ServerModel, nics: tuple[Nic, ...]) -> MeshSets | None:
    try:
        return MeshSets(model, nics)
    except UnknownRate:
        return None


class MeshSets:
    """The sets of one kind of server, rates in MB/s. Raises UnknownRate where one is unknown.

    ``gpus``: of a server. ``connected``: whether it has NICs.
    """

    def __init__(self, model: ServerModel, nics: tuple[Nic, ...]) -> None:
        every = range(1, model.all_gpus + 1)
        self.gpus, self.connected = model.gpus, bool(nics)
        self._inside = {mask: inside_MBps(model, mask) for mask in every}
        self._network = {mask: nics_MBps(model, nics, mask) for mask in every} if nics else {}
        self._masks: dict[tuple[int, Fraction, Fraction | None], Masks] = {}

    def rates(self, sizes: Iterable[int], over: Fraction | None) -> list[Fraction]:
        """What sets of these sizes give, each value once, the best first. ``over``: see ``rate``."""
        wanted = set(sizes)
        own = (mask for mask in self._inside if mask.bit_count() in wanted)
        return sorted({self.rate(mask, over) for mask in own}, reverse=True)

    def rate(self, mask: int, over: Fraction | None) -> Fraction:
        """What these GPUs give: alone, 0 of one; a gang on several servers whose network shares ``over``."""
        inside = self._inside[mask]
        if over is None:
            return inside or Fraction(0)
        network = self._network[mask] / over
        return network if inside is None else min(inside, network)

    def masks(self, gpus: int, least: Fraction, over: Fraction | None) -> Masks:
        """The sets of so many GPUs that give as much or more."""
        key = gpus, least, over
        if key not in self._masks:
            own = (mask for mask in self._inside if mask.bit_count() == gpus)
            self._masks[key] = frozenset(mask for mask in own if self.rate(mask, over) >= least)
        return self._masks[key]


@dataclass(frozen=True)
class MeshKind:
    nodes: frozenset[int]
    sets: MeshSets


class MeshPatterns:
    """The patterns of every mask. ``wanted``: what is asked for."""

    def __init__(self, wanted: Sequence[Masks]) -> None:
        self._wanted = tuple(wanted)
        self._sizes = sorted({next(iter(own)).bit_count() for own in wanted})
        self._found: dict[int, list[Pattern]] = {0: [(0,) * (len(wanted) + 1)]}

    def of(self, mask: int) -> list[Pattern]:
        """The patterns of a free mask, none of which has less than another one."""
        if mask not in self._found:
            lowest = mask & -mask
            found = {(*one[:-1], one[-1] + 1): None for one in self.of(mask ^ lowest)}
            for chosen in self._with(lowest, mask):
                worth = self._worth(chosen)
                for pattern in self.of(mask ^ chosen):
                    found[tuple(map(sum, zip(pattern, worth, strict=True)))] = None
            self._found[mask] = _most(found)
        return self._found[mask]

    def choose(self, mask: int, pattern: Pattern) -> list[int] | None:
        """Disjoint sets of a free mask that make up a pattern, or more; None if there are none."""
        pattern = (*pattern[:-1], 0)
        if not any(pattern):
            return []
        if not any(covers(one, pattern) for one in self.of(mask)):
            return None
        lowest = mask & -mask
        for chosen in self._with(lowest, mask):
            worth = self._worth(chosen)
            left = tuple(max(0, a - b) for a, b in zip(pattern, worth, strict=True))
            if left != pattern and (found := self.choose(mask ^ chosen, left)) is not None:
                return [chosen, *found]
        return self.choose(mask ^ lowest, pattern)

    def _with(self, gpu: int, mask: int) -> Iterable[int]:
        """Sets of a mask with that GPU, of the sizes that are asked for."""
        return (gpu | own for size in self._sizes for own in subsets(mask ^ gpu, size - 1))

    def _worth(self, chosen: int) -> Pattern:
        return (*(int(chosen in own) for own in self._wanted), 0)


def _most(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Those of which no other one has as much of everything."""
    found: list[Pattern] = []
    for pattern in sorted(patterns, key=sum, reverse=True):
        if not any(covers(other, pattern) for other in found):
            found.append(pattern)
    return found


def covers(pattern: Pattern, other: Pattern) -> bool:
    """Whether a pattern has as much of everything as another one."""
    return all(a >= b for a, b in zip(pattern, other, strict=True))
