"""Which gangs are within the guarantee of a queue: constants of the input (section 4).

Gangs use guarantees up in turn; one that is within goes before all that borrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.queues.pins import guest_of


class Turn(NamedTuple):
    """A gang uses up guarantees of queues that it is in. ``gpus``: of each GPU model, None for all.

    ``within``: whether it fits into what is left; else it holds its GPUs whatever the plan does, or is aged.
    """

    gang: int
    gpus: Mapping[str | None, int]
    within: bool
    queues: tuple[int, ...]


def turns(
    instance: Instance,
    named: Sequence[int | None],
    paths: Sequence[tuple[int, ...]],
    guarantees: Mapping[str | None, Sequence[int]],
    models: Sequence[str | None],
    can_start: Callable[[int], bool],
) -> Iterator[Turn]:
    """The gangs that use up guarantees, one after another.

    ``named``: the queue that each gang names. ``paths``: of each queue, itself and all above it.
    ``guarantees``: by GPU model, None for all, of each queue. ``models``: GPU model of each node.
    ``can_start``: whether a gang is known to be able to, as the nodes are; one that waits and is not uses
    nothing up.
    """
    left, found = {gpu: list(own) for gpu, own in guarantees.items()}, set[int]()
    models_of = _Models(instance, models)
    for _, index, tested in sorted(_turns(instance, named, paths)):
        gang, queue = instance.gangs[index], named[index]
        gpus = gang.least_units
        if queue is None or not gpus or index in found:
            continue
        fitting = [gpu for gpu, own in left.items() if any(own[q] >= gpus for q in tested)]
        suited = sorted(gpu for gpu in fitting if gpu is not None and models_of.have(gang, gpu))
        within = (None in fitting or bool(suited)) and (gang.running or can_start(index))
        if not within and not _stays(gang):
            # Else younger gangs, which fit, would be within and pass a larger one for ever.
            if instance.aged(gang) and can_start(index):
                yield Turn(index, _use_up(left, tested), within=False, queues=tested)
            continue
        found.add(index)
        used = {None, *suited[:1]} & left.keys()
        for gpu in used:
            for q in paths[queue]:
                left[gpu][q] -= gpus
        yield Turn(index, dict.fromkeys(used, gpus), within, paths[queue])


def _use_up(left: Mapping[str | None, list[int]], queues: Iterable[int]) -> dict[str | None, int]:
    """Leave nothing of what the queues are promised; what that was."""
    used = {gpu: sum(max(0, own[q]) for q in queues) for gpu, own in left.items()}
    for own in left.values():
        for q in queues:
            own[q] = min(own[q], 0)
    return used


def _turns(
    instance: Instance, named: Sequence[int | None], paths: Sequence[tuple[int, ...]]
) -> Iterator[tuple[tuple[object, ...], int, tuple[int, ...]]]:
    """(sort key, gang, queues whose guarantees it may use then).

    Those that keep their GPUs come first. Then queues are used up by what is in them, those below others
    first: what a queue is promised is not taken by its sisters, or by its parent.
    """
    for index, (gang, queue) in enumerate(zip(instance.gangs, named, strict=True)):
        if queue is None or (gang.hold is not None and not gang.running):
            continue
        if not _stays(gang) and guest_of(instance, index):
            continue  # it borrows the place where it runs
        dated = (since := gang.queued_at) is None, since or 0
        turn = -gang.priority, not gang.running, dated, gang.key
        if _stays(gang):
            yield (0, turn), index, paths[queue]
        else:
            yield from (((1, -len(paths[q]), turn), index, (q,)) for q in paths[queue])


def _stays(gang: Gang) -> bool:
    """Whether it holds its GPUs whatever the plan does."""
    return gang.running and not gang.preemptible


class _Models:
    """The GPU models that gangs may run on. Many gangs share their eligible nodes."""

    def __init__(self, instance: Instance, models: Sequence[str | None]) -> None:
        self._instance = instance
        self._models = models
        self._known: dict[frozenset[int], set[str | None]] = {}

    def have(self, gang: Gang, gpu: str) -> bool:
        """Whether each role with GPUs has an eligible node of the GPU model."""
        return all(gpu in self._of(role) for role in gang.roles if role.uses_gpus)

    def _of(self, role: Role) -> set[str | None]:
        nodes = self._instance.eligible_nodes(role)
        if nodes not in self._known:
            self._known[nodes] = {self._models[n] for n in nodes}
        return self._known[nodes]
