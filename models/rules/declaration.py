"""What one rule declares to all parts that have to know of it, and what somebody asks for by it.

``registry`` lists the rules. Rows are in ``models.program.rows``; the judge shares nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.queues.cells import Reach
from models.queues.queue_shares import QueueCounts
from models.values.tier_values import Evaluation

Pods = Sequence[PodPlacement]

One = TypeVar("One", Gang, Role, Instance)


class Space(Protocol):
    """A plan while it is built: ``planner.search.free_space``, which says what its parts are."""

    instance: Instance
    pods: list[tuple[PodPlacement, ...]]
    original: Sequence[tuple[PodPlacement, ...]]
    queues: QueueCounts | None
    reach: Reach | None

    def set(self, gang: int, pods: Iterable[PodPlacement]) -> None: ...
    def mark(self) -> int: ...
    def undo(self, mark: int) -> None: ...
    def new_pods(self, gang: int) -> tuple[PodPlacement, ...]: ...
    def keeps_queue_rules(self, gang: int, pods: tuple[PodPlacement, ...]) -> bool: ...
    def keeps_pod_rules(self, gang: int, pods: tuple[PodPlacement, ...]) -> bool: ...


@dataclass(frozen=True, slots=True)
class Asked(Generic[One]):
    """One thing that a gang, a role or the policy asks for.

    ``name``: its level, label, queue or whatever tells it from others of its kind. ``change``: the same gang,
    role or instance without it.
    """

    name: str
    change: Callable[[One], One]


@dataclass(frozen=True, slots=True)
class Requirement:
    """What is asked for by a rule. ``explain`` drops it to find causes and remedies, ``--relax`` on demand.

    ``name``: in what ``explain`` states. ``asks``: what it asks for, as a clause with the place for the name
    of what is asked; tables of words may say it better. ``of_role``, ``of_gang``, ``of_all``: what a role, a
    gang, or the policy and queues ask for; the last beside the pods of a plan, of a gang by index.
    ``drop``: the instance without what ``of_all`` finds, whatever the plan.

    ``code``: of the reason of a gang that would fit but for it. ``concerns``: of a rule about several gangs,
    which counts of room leave aside, whether it may keep a gang (by index) from a place next to these pods.
    ``on_empty``: whether it may keep a gang from starting on the empty cluster.

    ``word``, ``relaxes``: of ``--relax``, and what is relaxed; ``relax_role``, ``relax_gang``: where that is
    more than to drop what is asked for. ``operator``: whether only an operator can drop it.
    """

    name: str
    asks: str
    of_role: Callable[[Instance, Role], Iterable[Asked[Role]]] | None = None
    of_gang: Callable[[Instance, Gang], Iterable[Asked[Gang]]] | None = None
    of_all: Callable[[Instance, Sequence[Pods], int], Iterable[Asked[Instance]]] | None = None
    drop: Callable[[Instance], Instance] | None = None
    code: str | None = None
    concerns: Callable[[Instance, int, Sequence[Pods]], bool] | None = None
    on_empty: bool = False
    word: str | None = None
    relaxes: str = ""
    relax_role: Callable[[Role], Role] | None = None
    relax_gang: Callable[[Instance, Gang], Gang] | None = None
    operator: bool = False


@dataclass(frozen=True, slots=True)
class Declaration:
    """What one rule declares; a hook that is absent declares nothing.

    ``requirements``: what is asked for by it. Of single gangs:
    ``eligible``: nodes that pods of a role may be placed on, room aside; None for all.
    ``gang_key``: waiting gangs with different keys are not identical.
    ``own_variables``: whether the rule has rows for the gang, which is then not grouped.
    ``node_sets``: the gang must be within one of these sets; the greedy start tries them in turn.
    ``allows``: whether the gang may have these pods; the greedy start drops a placement otherwise.
    ``shortage``: why the gang cannot be placed on so many free GPUs a node, None if it may.

    Of several gangs, whose rows a program may leave out: the ledger looks at every plan, and repair takes
    back what breaks it; what breaks it even then is no plan:
    ``breaking``: gangs of a plan that go back so that the rule holds, the lowest that help; ``broken`` and
    ``back``: where a plan, or a free space, says it sooner.
    ``admits``: whether a gang may have these pods too, None where the start asks earlier.
    ``on_empty``: whether ``breaking`` holds on the empty cluster, too, where nothing is promised to anybody.
    ``elsewhere``: whether a gang that has to go back may start elsewhere.
    """

    rule: str
    requirements: tuple[Requirement, ...] = ()
    eligible: Callable[[Instance, Gang, Role], frozenset[int] | None] | None = None
    gang_key: Callable[[Instance, Gang], Hashable] | None = None
    own_variables: Callable[[Instance, Gang], bool] | None = None
    node_sets: Callable[[Instance, Gang], Sequence[frozenset[int]] | None] | None = None
    allows: Callable[[Instance, Gang, Pods], bool] | None = None
    breaking: Callable[[Instance, Sequence[Pods]], list[int]] | None = None
    broken: Callable[[Evaluation], bool] | None = None
    back: Callable[[Space], list[int]] | None = None
    admits: Callable[[Space, int, tuple[PodPlacement, ...]], bool] | None = None
    on_empty: bool = False
    elsewhere: bool = False

    @property
    def joint(self) -> bool:
        """Whether it is about several gangs."""
        return self.breaking is not None or self.back is not None

    def is_broken(self, plan: Evaluation) -> bool:
        """Whether a plan breaks a rule about several gangs."""
        if self.broken is not None:
            return self.broken(plan)
        pods = [decision.pods for decision in plan.decisions]
        return self.breaking is not None and bool(self.breaking(plan.instance, pods))

    def going_back(self, space: Space) -> list[int]:
        """Gangs that have to go back so that a rule about several gangs holds."""
        if self.back is not None:
            return self.back(space)
        return [] if self.breaking is None else self.breaking(space.instance, space.pods)


def dropping(**changes: Any) -> Callable[[Any], Any]:  # noqa: ANN401  # fields of a gang or role
    """The gang or role with these fields instead."""
    return lambda one: replace(one, **changes)


def asked_level(field: str) -> Callable[[Instance, Any], Iterable[Asked[Any]]]:
    """What a gang or role asks for by a field that is a level, or None."""
    without = dropping(**{field: None})

    def asked(instance: Instance, one: Any) -> Iterable[Asked[Any]]:  # noqa: ANN401
        level = getattr(one, field)
        return () if level is None else (Asked(instance.cluster.level_name(level), without),)

    return asked


def without(
    instance: Instance, dropped: Collection[Requirement], gangs: Collection[int] | None = None
) -> Instance:
    """The instance in which nobody, or none of these gangs, asks for it; itself if none does."""
    found = instance
    for one in dropped if gangs is None else ():
        if one.drop is not None:
            found = one.drop(found)
    changed = {
        index: other
        for index in (range(len(found.gangs)) if gangs is None else gangs)
        if (other := undemanding(instance, found.gangs[index], dropped)) is not found.gangs[index]
    }
    if changed:
        every = enumerate(found.gangs)
        found = replace(found, gangs=tuple(changed.get(i, gang) for i, gang in every))
    return found


def undemanding(instance: Instance, gang: Gang, dropped: Collection[Requirement]) -> Gang:
    """The gang without what it asks for; itself if it asks for none of it."""
    roles = list(gang.roles)
    for one in dropped:
        if one.of_role is not None:
            for number, role in enumerate(gang.roles):
                for asked in one.of_role(instance, role):
                    roles[number] = asked.change(roles[number])
        if one.of_gang is not None:
            for wish in one.of_gang(instance, gang):
                gang = wish.change(gang)
    if any(new is not old for new, old in zip(roles, gang.roles, strict=True)):
        return replace(gang, roles=tuple(roles))
    return gang
