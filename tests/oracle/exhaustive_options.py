"""Everything that may be done with one gang of a tiny instance, nodes and GPUs not yet chosen.

Promises: contract 2.3, 2.7, 2.8 and the sizes held until a checkpoint, each freedom in full; own code.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

from exhaustive_ages import harm, left_alone, size_held
from exhaustive_counts import counted
from exhaustive_values import running, standing, whole

from models.instance.gang import Gang
from models.instance.instance import Instance

Key = tuple[int, int]
"""(role, index) of a pod."""


@dataclass(frozen=True)
class Option:
    """``stays``: standing pods left as they are; ``new``: pods to be placed, moved ones among them.

    ``stopped``: whether no standing pod goes on.

    ``excuse``: nodes on one of which a gang of higher priority must arrive; empty: none needed.
    ``moved``: whether a standing pod is placed anew. ``bound``: whether rule 10 binds.
    ``kept``: GPUs of standing pods that are there afterwards; ``disruption``: as in the tier.
    A pod placed anew exactly where it stood would count as staying: such a plan is another option
    with a value no worse and no rule more, so it does no harm here, where it counts as moved.
    """

    stays: tuple[Key, ...]
    new: tuple[Key, ...] = ()
    excuse: frozenset[int] = frozenset()
    moved: bool = False
    stopped: bool = False
    bound: bool = False
    admitted: bool = False
    kept: int = 0
    disruption: int = 0


def options(instance: Instance, gang: Gang, *, immovable: bool = False) -> Iterator[Option]:
    """Every option of a gang; the first one leaves it as it is. ``immovable``: it may not move."""
    stand = {(p.role, p.index): p.node for p in standing(gang)}
    if not running(gang):
        yield Option(())
        if gang.hold is None:
            for counts in product(*(role.allowed_counts() for role in gang.roles)):
                yield Option((), _pods(gang, counts), bound=True, admitted=True)
        return
    gpus, alone = _gpus(gang, stand), left_alone(instance, gang)
    if whole(gang, stand):
        yield Option(tuple(sorted(stand)), admitted=True, kept=gpus)
        movable = gang.movable and not immovable and not alone
        yield from _resized(instance, gang, stand, movable=movable)
    else:
        yield Option(tuple(sorted(stand)), kept=gpus)
        if gang.hold is None:
            yield from _completed(instance, gang, stand)
    if gang.preemptible and not alone:
        lost = gpus * harm(instance, gang)
        yield Option((), excuse=frozenset(stand.values()), stopped=True, disruption=lost)


def _resized(
    instance: Instance, gang: Gang, stand: dict[Key, int], *, movable: bool
) -> Iterator[Option]:
    """A whole running gang with other numbers of pods, in other places, or both."""
    now = tuple(sum(r == number for r, _ in stand) for number in range(len(gang.roles)))
    held = size_held(instance, gang)
    allowed = [
        [n] if held else role.allowed_counts() for n, role in zip(now, gang.roles, strict=True)
    ]
    for counts in product(*allowed):
        pods = _pods(gang, counts)
        common = [key for key in pods if key in stand]
        added = [key for key in pods if key not in stand]
        dropped = [key for key in stand if key not in pods]
        if dropped and (left_alone(instance, gang) or not (gang.movable or gang.preemptible)):
            continue
        excuse = {stand[key] for key in dropped} if not gang.movable else set()
        for moved in _subsets(common) if movable else [()]:
            if not (added or dropped or moved):
                continue
            lost = _gpus(gang, stand if moved else dropped)
            yield Option(
                stays=tuple(key for key in common if key not in moved),
                new=tuple(sorted((*added, *moved))),
                excuse=frozenset(excuse),
                moved=bool(moved),
                bound=bool(moved),
                admitted=True,
                kept=_gpus(gang, common),
                disruption=lost * harm(instance, gang),
            )


def _completed(instance: Instance, gang: Gang, stand: dict[Key, int]) -> Iterator[Option]:
    """A gang with pods missing, made whole around all that stand."""
    allowed: list[Sequence[int]] = []
    for number, role in enumerate(gang.roles):
        reached = max((i + 1 for r, i in stand if r == number), default=role.first_index)
        enough = [n for n in role.allowed_counts() if n >= reached - role.first_index]
        allowed.append(enough[:1] if size_held(instance, gang) else enough)
    for counts in product(*allowed):
        new = tuple(key for key in _pods(gang, counts) if key not in stand)
        stays, gpus = tuple(sorted(stand)), _gpus(gang, stand)
        yield Option(stays, new, bound=True, admitted=True, kept=gpus)


def _pods(gang: Gang, counts: Sequence[int]) -> tuple[Key, ...]:
    """All pods of a gang that has so many a role."""
    sized = enumerate(zip(gang.roles, counts, strict=True))
    return tuple((number, i) for number, (role, n) in sized for i in role.indices(n))


def _gpus(gang: Gang, pods: Collection[Key]) -> int:
    return counted(gang, (r for r, _ in pods))


def _subsets(pods: Sequence[Key]) -> Iterator[tuple[Key, ...]]:
    return chain.from_iterable(combinations(pods, n) for n in range(len(pods) + 1))
