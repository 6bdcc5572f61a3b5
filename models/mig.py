"""MIG: the profiles of each board, and whether instances of them can stand on one GPU at once.

The data is in ``mig.yaml``. Which GPU of a node has which instances is the administrator's choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from operator import le

from models.hardware import slug

RESOURCE = "nvidia.com/mig-"
"""Begins the names by which NVIDIA's device plugin offers instances, a profile each."""


MAX_SLICES = 16
"""More memory slices than a GPU has."""


def instance_in(requests: Mapping[str, int]) -> str | None:
    """The resource of the only instance among these; None if there is none, or are several."""
    found = [(name, amount) for name, amount in requests.items() if name.startswith(RESOURCE)]
    return found[0][0] if [amount for _, amount in found] == [1] else None


def resource_of(profile: str) -> str:
    """The resource of a profile's instances: ``1g.10gb+me`` is ``nvidia.com/mig-1g.10gb.me``."""
    return RESOURCE + profile.replace("+", ".")


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of instance on a board. ``names``: one, or all that drivers have given it.

    ``starts``, ``size``: memory slices; no starts: unknown. ``most``: on one GPU. ``gib``: usable memory.
    """

    names: tuple[str, ...]
    most: int
    size: int = 0
    starts: tuple[int, ...] = ()
    gib: float | None = None
    sms: int | None = None

    @property
    def media(self) -> bool:
        """Whether it has the media engines that a GPU has once."""
        return "+" in self.names[0]

    @property
    def places(self) -> str:
        """``3g.40gb: at most 2, in memory slices 0-3, 4-7``."""
        ends = ((start, start + self.size - 1) for start in self.starts)
        slices = ", ".join(f"{a}-{b}" if a < b else str(a) for a, b in ends)
        inside = f"in memory slices {slices}" if slices else "where was not published"
        return f"{' or '.join(self.names)}: at most {self.most}, {inside}"

    def __str__(self) -> str:
        """``3g.40gb (39.5 GiB, 60 SMs, at most 2)``."""
        known = ((self.gib, "GiB"), (self.sms, "SMs"))
        parts = [f"{amount:g} {unit}" for amount, unit in known if amount is not None]
        return f"{' or '.join(self.names)} ({', '.join([*parts, f'at most {self.most}'])})"


def _compute(profile: Profile) -> int:
    """Compute slices: the first number of its names."""
    return int(profile.names[0].partition("g")[0])


InUse = tuple[int, tuple[str, ...]]
"""Slices of a GPU that instances have, as a mask, and profiles of which it can have only so many."""

IDLE: InUse = (0, ())

Geometry = tuple[int, ...]
"""How many instances of each profile."""


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU with its memory. ``gpus``: slugs of the GPU models that it may be.

    ``together``: first names of profiles that stand on one GPU, of a board whose places were not published.
    """

    name: str
    gpus: frozenset[str]
    profiles: tuple[Profile, ...]
    together: tuple[tuple[str, ...], ...] = ()

    @property
    def gigabytes(self) -> int:
        """Its memory, as the name of its largest profile has it: 80 of ``7g.80gb``."""
        return int(self.profiles[-1].names[0].partition(".")[2].removesuffix("gb"))

    @property
    def placed(self) -> bool:
        """Whether it was published where its instances may begin."""
        return all(one.starts for one in self.profiles)

    def profile(self, name: str) -> Profile | None:
        return next((one for one in self.profiles if name in one.names), None)

    def named(self, resource: str) -> str:
        """The name of the profile whose instances a resource counts. Raises KeyError if it has none."""
        return {resource_of(name): name for one in self.profiles for name in one.names}[resource]

    def thousandths(self, resource: str) -> int | None:
        """What an instance counts of a GPU: the larger share of its compute and memory slices, floored.

        None where the board has no such profile. Where nobody published memory slices, compute alone counts.
        """
        found = next((p for p in self.profiles if resource in map(resource_of, p.names)), None)
        if found is None:
            return None
        compute = max(map(_compute, self.profiles))
        memory = max(one.size for one in self.profiles)
        share = 1000 * found.size // memory if memory else 0
        return max(1000 * _compute(found) // compute, share)

    def slices(self, name: str, start: int) -> int:
        """The memory slices of an instance of a profile that the board has, as a mask."""
        profile = self.profile(name)
        return 0 if profile is None else (1 << profile.size) - 1 << start

    def can_have(self, names: Iterable[str], beside: InUse = IDLE) -> bool:
        """Whether instances of these profiles can stand on one GPU at once, and beside those in use.

        If and only if their slices are disjoint, each begins where its profile may, and no profile has more
        than its most, and one at most has media engines. Where nobody published the places, only instances
        of one profile are known to, and those within one set of ``together``.
        """
        wanted = [self.profile(name) for name in names]
        found = sorted((one for one in wanted if one), key=lambda one: (-one.size, one.names))
        kinds, taken = set(found), Counter(map(self.profile, beside[1]))
        if len(found) < len(wanted) or any(
            found.count(one) + taken[one] > one.most for one in kinds
        ):
            return False
        if all(one.starts for one in kinds):
            media = sum(one is not None and one.media for one in (*found, *taken))
            places = tuple((one.starts, one.size) for one in found)
            return media <= 1 and _placed(places, beside[0]) is not None
        counts = Counter(one.names[0] for one in found)
        return len(kinds) <= 1 or any(counts <= Counter(one) for one in self.together)

    def in_use(self, instances: Iterable[tuple[str, int]]) -> InUse | None:
        """What instances have of a GPU, given profiles and where they begin; None if that cannot be.

        Of the profiles only those are kept that a GPU has fewer of than slices for them.
        """
        mask, names = 0, list[str]()
        for name, start in instances:
            profile = self.profile(name)
            if profile is None or start not in profile.starts:
                return None
            slices = self.slices(name, start)
            if mask & slices or names.count(profile.names[0]) >= profile.most:
                return None
            if profile.media and any("+" in name for name in names):
                return None
            mask |= slices
            if profile.most < len(profile.starts):
                names.append(profile.names[0])
        return mask, tuple(names)

    def places(self, names: Iterable[str], taken: int = 0) -> tuple[tuple[str, int], ...] | None:
        """Where instances of these profiles can begin beside the slices that are taken; None if they cannot.

        Each is put as far back as it can be, the largest first: most large profiles begin in front.
        """
        found = [(one, name) for name in names if (one := self.profile(name)) is not None]
        found.sort(key=lambda pair: (-pair[0].size, pair[1]))
        starts = _placed(tuple((one.starts, one.size) for one, _ in found), taken)
        if starts is None:
            return None
        return tuple((name, start) for (_, name), start in zip(found, starts, strict=True))

    def geometries(
        self, wanted: tuple[str, ...], beside: InUse = IDLE
    ) -> tuple[tuple[int, ...], ...]:
        """Largest sets of instances that one GPU can have, as numbers of each wanted profile.

        None is contained in another, and each has an instance. Largest first. ``beside``: instances in use.
        """
        return _largest(self.name, wanted, beside)


@lru_cache(maxsize=4096)
def _largest(name: str, wanted: tuple[str, ...], beside: InUse) -> tuple[tuple[int, ...], ...]:
    board = board_named(name)
    assert board is not None, "it has the name"
    most = [0 if (one := board.profile(own)) is None else one.most for own in wanted]
    possible = [
        counts
        for counts in product(*(range(n + 1) for n in most))
        if any(counts)
        and board.can_have(
            [n for n, c in zip(wanted, counts, strict=True) for _ in range(c)], beside
        )
    ]
    found = [
        one for one in possible if not any(one != o and all(map(le, one, o)) for o in possible)
    ]
    return tuple(sorted(found, reverse=True))


@lru_cache(maxsize=1 << 16)
def cover(
    geometries: tuple[Geometry, ...],
    wanted: Geometry,
    rooms: tuple[tuple[Geometry, ...], ...] = (),
) -> tuple[tuple[Geometry | None, ...], tuple[Geometry, ...]] | None:
    """(geometry of each room, those of the fewest idle GPUs) that have so many instances of each.

    None if no GPUs have them. ``rooms``: the geometries that each GPU with instances in use can have besides;
    None of one that needs none. Some idle GPU has the first instance that is left: the best of the geometries
    that it may have.
    """
    first = next((i for i, amount in enumerate(wanted) if amount > 0), None)
    if first is None:
        return (None,) * len(rooms), ()
    best: tuple[tuple[Geometry | None, ...], tuple[Geometry, ...]] | None = None
    if rooms:
        own, *others = rooms
        for one in (*own, None):
            left = wanted if one is None else _less(wanted, one)
            if left == wanted and one is not None:
                continue
            rest = cover(geometries, left, tuple(others))
            if rest is not None and (best is None or len(rest[1]) < len(best[1])):
                best = (one, *rest[0]), rest[1]
                if not best[1]:
                    break
        return best
    for one in geometries:
        if one[first]:
            rest = cover(geometries, _less(wanted, one))
            if rest is not None and (best is None or len(rest[1]) + 1 < len(best[1])):
                best = (), (one, *rest[1])
    return best


NONE_HAS = 1 << 20
"""GPUs that more instances take than any number of GPUs has."""


@lru_cache(maxsize=1 << 17)
def fewest(
    geometries: tuple[Geometry, ...],
    wanted: Geometry,
    rooms: tuple[tuple[Geometry, ...], ...] = (),
) -> int:
    """The number of idle GPUs that ``cover`` finds, NONE_HAS for None; much faster."""
    first = next((i for i, amount in enumerate(wanted) if amount > 0), None)
    if first is None:
        return 0
    most = tuple([min(amount, MAX_SLICES) for amount in wanted])
    best = NONE_HAS
    if rooms:
        for one in _of_use(rooms[0], most, None) or (wanted,):
            left = wanted if one is wanted else _less(wanted, one)
            best = min(best, fewest(geometries, left, rooms[1:]))
            if not best:
                break
        return best
    for one in _of_use(geometries, most, first):
        best = min(best, 1 + fewest(geometries, _less(wanted, one)))
    return min(best, NONE_HAS)


@lru_cache(maxsize=1 << 16)
def _of_use(
    geometries: tuple[Geometry, ...], wanted: Geometry, first: int | None
) -> tuple[Geometry, ...]:
    """What GPUs may have of what is wanted, none within another; each with some of ``first``, or of any."""
    found = dict.fromkeys(tuple(map(min, one, wanted)) for one in geometries)
    own = [one for one in found if (any(one) if first is None else one[first])]
    return tuple(
        one for one in own if not any(one != other and all(map(le, one, other)) for other in own)
    )


def _less(wanted: Geometry, one: Geometry) -> Geometry:
    return tuple([max(0, amount - has) for amount, has in zip(wanted, one, strict=True)])


def _placed(left: Sequence[tuple[tuple[int, ...], int]], taken: int) -> tuple[int, ...] | None:
    """Where each of these (starts, size) begins; None if not all have places. ``taken``: mask of slices."""
    if not left:
        return ()
    starts, size = left[0]
    for start in reversed(starts):
        mask = (1 << size) - 1 << start
        if not mask & taken and (rest := _placed(left[1:], taken | mask)) is not None:
            return (start, *rest)
    return None


@lru_cache
def boards_of(gpu: str) -> tuple[Board, ...]:
    """The boards that a GPU model may be: an A100 has 40 or 80 GB. None: no MIG, or none that is known."""
    return tuple(board for board in boards() if slug(gpu) in board.gpus)


@lru_cache(maxsize=256)
def board_named(name: str) -> Board | None:
    """The board of this name, in any case."""
    return next((board for board in boards() if slug(board.name) == slug(name)), None)


@cache
def profile_names() -> frozenset[str]:
    """Names of all profiles of all boards."""
    return frozenset(n for board in boards() for one in board.profiles for n in one.names)


@cache
def boards() -> tuple[Board, ...]:
    """Every board that is known."""
    import yaml  # only inputs with MIG need the file

    text = files(__package__).joinpath("mig.yaml").read_text(encoding="utf-8")
    found = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
    made = []
    for board in found["boards"]:
        layout, kinds = found["layouts"][board["layout"]], board["profiles"]
        profiles = []
        for kind, place in layout.items():
            plain, _, media = kind.partition("+")
            entry = kinds[plain]
            names = tuple(f"{name}+{media}" if media else name for name in entry["names"])
            starts = tuple(place.get("starts", ()))
            size = place.get("size", 0)
            profiles.append(Profile(names, place["most"], size, starts, entry["gib"], entry["sms"]))
        gpus = frozenset(map(slug, board["gpus"]))
        together = tuple(
            tuple(kinds[kind]["names"][0] for kind in one) for one in board.get("together", ())
        )
        made.append(Board(board["name"], gpus, tuple(profiles), together))
    return tuple(made)
