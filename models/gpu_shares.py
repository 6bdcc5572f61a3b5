"""Parts of GPUs that several pods share: how large they are, and on how few GPUs they fit.

A part is a fraction of a GPU, or GPU memory and cores. It lies on one GPU, beside others as long as
the memory, the cores and the number of pods suffice. Nothing of a GPU that is shared is given whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import le

SHARE = "share.gangplan.dev/"
"""Begins the names under which parts are requested: ``0.25``, ``0.5-30``, ``12288Mi`` or ``12288Mi-30``.

``x2`` at the end: each pod has one on each of two GPUs.
"""

CORES = 1000
"""Permille of the cores of a GPU."""

MOST_TURNS = 12
"""Orders of parts in which GPUs are filled up one after another."""

MOST_SETS = 3_000
"""Sets of parts that are tried on one GPU."""

MOST_SEARCHED = 120
"""Parts for which fewer GPUs are looked for than greedy ways need."""

MOST_FILLINGS = 4_000
"""Sets of parts that fill a GPU, of which more are not listed."""

MOST_TRIED = 50_000
"""Steps in which these are listed, or fewer GPUs for parts are looked for."""

MOST_GPUS = 128
"""GPUs of which one pod has parts."""

SEVERAL = frozenset(map(str, range(2, MOST_GPUS + 1)))
"""How the number is written."""

MOST_TIMES = 1 << 20
"""More pods than share a GPU."""

Size = tuple[int, ...]
"""Memory, in what ``GpuSharing.room`` counts, permille of the cores, and pods.

While GPUs are packed also, for each kind of which a pod has several, how many parts of the kind: a GPU has
at most one for each pod.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """What a pod asks of a GPU, or of each of several ``gpus`` of one server.

    ``permille``: of its memory, 0 where ``memory_MiB`` counts.
    """

    permille: int
    memory_MiB: int  # noqa: N815  # a unit
    cores_permille: int
    gpus: int = 1

    @classmethod
    def fraction(cls, permille: int, cores_percent: int | None = None) -> Part:
        """A fraction of the memory, and cores in percent; None: the same fraction of them."""
        return cls(permille, 0, permille if cores_percent is None else 10 * cores_percent)

    @classmethod
    def memory(cls, memory_MiB: int, cores_percent: int) -> Part:  # noqa: N803  # a unit
        """So much memory, and cores in percent; 0: whatever is left."""
        return cls(0, memory_MiB, 10 * cores_percent)

    @property
    def resource(self) -> str:
        """``share.gangplan.dev/0.25``; ``-30``: other cores than a fraction of as much, or than 0 of them."""
        cores, gpus = f"-{self.cores_permille // 10}", f"x{self.gpus}" * (self.gpus > 1)
        if self.permille:
            fraction = f"{SHARE}0.{self.permille:03}".rstrip("0")
            return fraction + cores * (self.cores_permille != self.permille) + gpus
        cores *= bool(self.cores_permille)
        return f"{SHARE}{self.memory_MiB}Mi{cores}{gpus}"


@lru_cache(maxsize=4096)
def part_of(resource: str) -> Part | None:
    """The part of which this is the resource; None of other resources."""
    if not resource.startswith(SHARE):
        return None
    name, _, gpus = resource.removeprefix(SHARE).partition("x")
    amount, _, cores = name.partition("-")
    percent = int(cores) if cores.isdecimal() else None
    digits, memory = amount.removeprefix("0."), amount.removesuffix("Mi")
    found = None
    if amount != digits and digits.isdecimal():
        found = Part.fraction(int(digits.ljust(3, "0")), percent)
    elif amount != memory and memory.isdecimal():
        found = Part.memory(int(memory), percent or 0)
    if found is not None and gpus in SEVERAL:
        found = replace(found, gpus=int(gpus))
    return found if found is not None and found.resource == resource else None


def share_in(requests: Iterable[str]) -> str | None:
    """The resource of the part of a GPU among these; None if there is none."""
    return next((resource for resource in requests if resource.startswith(SHARE)), None)


def amount_of(resource: str) -> int:
    """How many parts a pod has that requests some of this resource; 1 of any other resource."""
    part = part_of(resource)
    return 1 if part is None else part.gpus


def shared_by(
    gpus: Sequence[int], group: str | None, name: str, resource: str
) -> Sequence[int | str]:
    """The GPUs of which a pod has these parts: their indices, or names where they are not known.

    ``name``: of the pod; ``group``: the names, with commas between them, as far as they are known.
    """
    if gpus:
        return gpus
    amount = amount_of(resource)
    if amount == 1:
        return (group or name,)
    known = group.split(",")[:amount] if group else []
    return (*known, *(f"{name}#{k}" for k in range(len(known), amount)))


def size_on(part: Part, memory_MiB: int | None) -> Size | None:  # noqa: N803  # a unit
    """The size of a part on GPUs of so much memory; None if it asks for memory and theirs is not known.

    Memory counts in 1/1000 MiB; where it is not known a GPU has 1000 of it.
    """
    if part.permille:
        return part.permille * (memory_MiB or 1), part.cores_permille, 1
    return None if memory_MiB is None else (1000 * part.memory_MiB, part.cores_permille, 1)


def whole(memory_MiB: int | None, pods: int) -> Size:  # noqa: N803  # a unit
    """What one GPU has of each."""
    return 1000 * (memory_MiB or 1), CORES, pods


def less(room: Size, size: Size, times: int = 1) -> Size:
    """What is left of the room beside so many parts of a size; none of it is negative."""
    return (
        max(0, room[0] - times * size[0]),
        max(0, room[1] - times * size[1]),
        max(0, room[2] - times * size[2]),
        *(r - times * s for r, s in zip(room[3:], size[3:], strict=True)),
    )


def all_times_in(sizes: Sequence[Size], rooms: Sequence[Size], each: Sequence[int]) -> list[int]:
    """How many parts of each size fit into all of these rooms, if no others do.

    ``each``: so many of a pod are on GPUs of their own.
    """
    import numpy as np  # documents load this module, and most of them need no more than names

    if not rooms or not sizes:
        return [0] * len(sizes)
    needs = np.array(sizes, np.int64)[:, None, :]
    free = np.array(rooms, np.int64)[None, :, :]
    times = np.where(needs > 0, free // np.maximum(needs, 1), MOST_TIMES).min(axis=2)
    found: list[int] = times.sum(axis=1).tolist()
    for k, gpus in enumerate(each):
        if gpus > 1:
            pods = found[k] // gpus
            while pods and np.minimum(times[k], pods).sum() < pods * gpus:
                pods -= 1
            found[k] = pods * gpus
    return found


def fits(size: Size, room: Size) -> bool:
    """Whether a part of this size fits into the room of one GPU."""
    held = size[0] <= room[0] and size[1] <= room[1] and size[2] <= room[2]
    return held and all(map(le, size[3:], room[3:]))


def times_in(size: Size, room: Size) -> int:
    """How many parts of a size fit into the room of one GPU."""
    return min(r // s for r, s in zip(room, size, strict=True) if s)


Counts = tuple[int, ...]
"""Parts of each size on one GPU."""


@lru_cache(maxsize=1 << 12)
def fillings(sizes: tuple[Size, ...], room: Size) -> tuple[Counts, ...] | None:
    """Sets of parts beside which no other one fits into the room of a GPU, those of large parts first.

    None where there are more than MOST_FILLINGS, or they are not soon found.
    """
    found, tried = list[Counts](), 0

    def fill(k: int, room: Size, counts: Counts) -> bool:
        nonlocal tried
        tried += 1
        if k == len(sizes):
            if any(counts) and not any(fits(size, room) for size in sizes):
                found.append(counts)
        else:
            most = times_in(sizes[k], room)
            for count in range(most, -1 if k + 1 < len(sizes) else most - 1, -1):
                if not fill(k + 1, less(room, sizes[k], count), (*counts, count)):
                    return False
        return tried <= MOST_TRIED and len(found) <= MOST_FILLINGS

    return tuple(found) if fill(0, room, ()) else None


@lru_cache(maxsize=1 << 16)
def packed(
    rooms: tuple[Size, ...],
    empty: Size,
    sizes: tuple[Size, ...],
    wanted: Counts,
    enough: int = 0,
    *,
    each: Counts = (),
    roughly: bool = False,
) -> tuple[Counts, ...]:
    """Parts of each size on each GPU: first those with ``rooms`` left, then as few empty ones as suffice.

    The largest parts go first. Each fits on an empty GPU. ``enough``: so many empty ones are few enough.
    ``each``: so many of a pod are on GPUs of their own. If a GPU has at most one of them for each pod, all
    find such GPUs (Gale and Ryser). ``roughly``: with little effort, for starts that ask for each node again
    and again.
    """
    for k, gpus in enumerate(each):
        if gpus > 1 and wanted[k]:
            pods = wanted[k] // gpus
            rooms, empty = tuple((*room, pods) for room in rooms), (*empty, pods)
            sizes = tuple((*size, int(i == k)) for i, size in enumerate(sizes))
    asked = [i for i, count in enumerate(wanted) if count]
    order = sorted(asked, key=lambda i: (*(-s for s in sizes[i]), i))
    items = [i for i in order for _ in range(wanted[i])]
    parts = [sizes[i] for i in items]
    places = _best_fit(rooms, empty, parts)
    least = max(len(rooms) + enough, _least(rooms, empty, parts))
    for turn in range(1 if roughly else MOST_TURNS):
        if least >= _gpus(rooms, places):
            break
        filled = _filled_up(rooms, empty, parts, turn)
        places = min(places, filled, key=lambda own: _gpus(rooms, own))
    if not roughly and len(parts) <= MOST_SEARCHED:
        search = _Search(rooms, empty, parts)
        for gpus in range(least, _gpus(rooms, places)):
            fewer = search.on(gpus)
            if fewer is not None:
                places = fewer
                break
    counts = [[0] * len(sizes) for _ in range(_gpus(rooms, places))]
    for item, gpu in zip(items, places, strict=True):
        counts[gpu][item] += 1
    return tuple(map(tuple, counts))


def _least(rooms: Sequence[Size], empty: Size, parts: Sequence[Size]) -> int:
    """GPUs that are needed at least, those with rooms included.

    The bound L2 of Martello and Toth (Lower bounds and reduction procedures for the bin packing problem,
    1990), of memory, cores and pods each; what is used of a GPU with room is a part that is there.
    """
    least = len(rooms)
    for k, whole_ in enumerate(empty):
        sizes = sorted((*(part[k] for part in parts), *(whole_ - room[k] for room in rooms)))
        half = [size for size in sizes if 2 * size > whole_]
        small = [size for size in sizes if 2 * size <= whole_]
        for limit in {0, *small}:
            large = sum(size > whole_ - limit for size in half)
            middle = [size for size in half if size <= whole_ - limit]
            rest = sum(s for s in small if s >= limit) - len(middle) * whole_ + sum(middle)
            least = max(least, large + len(middle) + max(0, -(-rest // whole_)))
    return least


def _gpus(rooms: Sequence[Size], places: Sequence[int]) -> int:
    return max((len(rooms), *(gpu + 1 for gpu in places)))


def _best_fit(rooms: Sequence[Size], empty: Size, parts: Sequence[Size]) -> list[int]:
    """The GPU of each part: of those that have room the one with the least left, else another empty one."""
    left, places = list(rooms), list[int]()
    for size in parts:
        able = [(room, j) for j, room in enumerate(left) if fits(size, room)]
        gpu = min(able)[1] if able else len(left)
        left[gpu:] = left[gpu:] or [empty]
        left[gpu] = less(left[gpu], size)
        places.append(gpu)
    return places


def _filled_up(rooms: Sequence[Size], empty: Size, parts: Sequence[Size], turn: int) -> list[int]:
    """The GPU of each part: one GPU after another gets what fills its memory and cores best.

    Minimum bin slack (Gupta and Ho, A new heuristic algorithm for the one-dimensional bin-packing problem,
    1999): an empty GPU gets the largest part that is left, and then the best set in MOST_SETS. ``turn``: the
    kind of part that is tried first, of those in order.
    """
    amounts = Counter(parts)
    kinds = list(amounts)
    kinds = [*kinds[turn % len(kinds) :], *kinds[: turn % len(kinds)]]
    left = [amounts[kind] for kind in kinds]
    on: dict[Size, list[int]] = {size: [] for size in kinds}
    order, gpu = sorted(range(len(rooms)), key=lambda j: (rooms[j], j)), 0
    while any(left):
        given = gpu < len(rooms)
        j, room = (order[gpu], rooms[order[gpu]]) if given else (gpu, empty)
        chosen = [0] * len(kinds)
        if not given:
            first = max((k for k, count in enumerate(left) if count), key=lambda k: kinds[k])
            chosen[first], left[first] = 1, left[first] - 1
            room = less(room, kinds[first])
        for k, count in enumerate(_best_set(kinds, left, room)):
            left[k] -= count
            on[kinds[k]] += [j] * (count + chosen[k])
        gpu += 1
    taken = {size: iter(gpus) for size, gpus in on.items()}
    return [next(taken[size]) for size in parts]


def _best_set(kinds: Sequence[Size], left: Sequence[int], room: Size) -> list[int]:
    """How many parts of each kind leave the least of the room."""
    best: tuple[int, list[int]] = (sum(room[:2]), [0] * len(kinds))
    steps = 0

    def fill(k: int, room: Size, counts: list[int]) -> None:
        nonlocal best, steps
        steps += 1
        if sum(room[:2]) < best[0]:
            best = sum(room[:2]), list(counts)
        if k == len(kinds) or steps > MOST_SETS or not best[0]:
            return
        for count in range(min(left[k], times_in(kinds[k], room)), -1, -1):
            counts[k] = count
            fill(k + 1, less(room, kinds[k], count), counts)
        counts[k] = 0

    fill(0, room, [0] * len(kinds))
    return best[1]


class _Search:
    """Looks for the GPU of each part on so many GPUs, which get parts one after another.

    Those with room left come first; an empty one gets the largest part that is left. No part that is left
    fits beside what a GPU gets: one that is on a later GPU could as well be here.
    """

    def __init__(self, rooms: Sequence[Size], empty: Size, parts: Sequence[Size]) -> None:
        amounts = Counter(parts)
        self.kinds = sorted(amounts, reverse=True)
        self.amounts = tuple(amounts[kind] for kind in self.kinds)
        self.rooms, self.empty, self.parts, self.tried = rooms, empty, parts, 0
        self.order = sorted(range(len(rooms)), key=lambda j: (rooms[j], j))
        self.failed = set[tuple[int, Counts]]()

    def on(self, gpus: int) -> list[int] | None:
        """The GPU of each part on so many; None if no way is found."""
        self.order[len(self.rooms) :] = range(len(self.rooms), gpus)
        self.failed.clear()
        given = [sum(room[k] for room in self.rooms) for k in range(len(self.empty))]
        opened, used = gpus - len(self.rooms), [sum(own) for own in zip(*self.parts, strict=True)]
        spare = (r + opened * e - u for r, e, u in zip(given, self.empty, used, strict=True))
        found = self._rest(0, self.amounts, tuple(spare))
        if found is None:
            return None
        places = {
            size: iter([j for j, own in found for _ in range(own[k])])
            for k, size in enumerate(self.kinds)
        }
        return [next(places[size]) for size in self.parts]

    def _rest(self, at: int, left: Counts, spare: Size) -> list[tuple[int, Counts]] | None:
        """What the GPUs from here on get if no more than ``spare`` stays unused on them."""
        if not any(left):
            return []
        if at == len(self.order) or (at, left) in self.failed:
            return None
        gpu = self.order[at]
        for unused, own in sorted(self._sets(gpu, left)):
            if fits(unused, spare):
                others = tuple(a - b for a, b in zip(left, own, strict=True))
                rest = self._rest(at + 1, others, less(spare, unused))
                if rest is not None:
                    return [(gpu, own), *rest]
        self.failed.add((at, left))
        return None

    def _sets(self, gpu: int, left: Counts) -> list[tuple[Size, Counts]]:
        """What the GPU may get of what is left, and what that leaves unused."""
        found = list[tuple[Size, Counts]]()
        given = gpu < len(self.rooms)
        first = -1 if given else next(k for k, count in enumerate(left) if count)

        def fill(k: int, room: Size, own: Counts) -> None:
            self.tried += 1
            if self.tried > MOST_TRIED:
                return
            if k < len(left):
                size = self.kinds[k]
                for count in range(min(left[k], times_in(size, room)), int(k == first) - 1, -1):
                    fill(k + 1, less(room, size, count), (*own, count))
            elif not any(
                count > mine and fits(size, room)
                for size, count, mine in zip(self.kinds, left, own, strict=True)
            ):
                found.append((room, own))

        fill(0, self.rooms[gpu] if given else self.empty, ())
        return found
