"""Every way in which a gang may run after the plan, and what each costs.

A running gang has one option for each number of pods and set of pods that stay (contract 2.7, 2.8); no option
means that it is stopped. Options beyond a limit are left out: the choice is then not ``complete``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from models.instance.cluster import Node
from models.instance.disruption_budgets import may_move, may_shrink, may_stop
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.occupancy import Room
from models.program.demand_builder import demand_for
from models.program.linear_program import Question, check, never
from models.program.packing import by_count
from models.queues.queue_shares import counts_sizes
from models.queues.reservations import due
from models.rules.demands import Demand
from models.rules.pod_rules import pod_rules, standing_exempt
from models.rules.registry import eligible_nodes
from models.rules.shape import standing_beside

MAX_COUNTS = 32
"""Numbers of pods of one gang that become options; beyond it the smallest, the largest and some between."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an option does to a gang.

    ``kept``: GPUs of standing pods that run after the plan, wherever. ``lost``: GPUs that the disruption
    tier counts. ``moved``: whether a standing pod may change its place; ``vacates``: nodes whose room only a
    gang of higher priority may take.
    """

    kept: int
    lost: int
    moved: bool = False
    vacates: tuple[int, ...] = ()
    admitted: bool = True


PLACED = Effect(0, 0)
"""A waiting gang that starts."""


@dataclass(frozen=True, slots=True)
class Option:
    demand: Demand
    effect: Effect


@dataclass(frozen=True, slots=True)
class Choice:
    """A gang and its options, of which at most one is chosen, or exactly one if it ``must``.

    ``vacates``: nodes that it leaves if none is chosen. ``complete`` False: options are left out.
    ``covers_admission``: none of those changes which gangs run: each has a smaller size of the same gang.
    """

    gang: int
    options: tuple[Option, ...]
    must: bool
    vacates: tuple[int, ...] = ()
    complete: bool = True
    covers_admission: bool = True

    @property
    def yields(self) -> bool:
        """Whether the gang may vacate nodes for one of higher priority."""
        ways = not self.must or any(option.effect.vacates for option in self.options)
        return bool(self.vacates) and ways

    @property
    def always(self) -> tuple[ExistingPod, ...]:
        """Pods that stay whatever is chosen."""
        if not self.must:
            return ()
        first = self.options[0].demand.stays
        return tuple(p for p in first if all(p in o.demand.stays for o in self.options[1:]))


def indices_matter(node: Node) -> bool:
    """Whether it matters which GPUs of the node a pod has, not only how many."""
    return node.model is not None and not by_count(node.model, node.effective_nics)


def standing_gpus(instance: Instance, index: int) -> int:
    """What the gang holds now."""
    gang = instance.gangs[index]
    return gang.units_of(gang.running_pods)


def choices_of(
    instance: Instance,
    known: Sequence[int],
    rooms: Sequence[Room],
    *,
    only: Collection[int] | None = None,
    immovable: Collection[int] = (),
    interrupted: Question = never,
) -> tuple[Choice, ...]:
    """Every gang with something to decide, in instance order.

    ``known``: mask of GPUs known to be held, a node. ``rooms``: next to all that runs. ``only``: indices of
    the gangs to decide about. ``immovable``: gangs that must not move.
    """

    def running(index: int) -> Choice:
        return _Running(instance, known, rooms, index, movable=index not in immovable).choice()

    found, unchanging = [], []
    for index in range(len(instance.gangs)) if only is None else sorted(only):
        check(interrupted)
        gang = instance.gangs[index]
        if not gang.running:
            if gang.hold is None:
                found.append(_waiting(instance, known, index))
            continue
        choice = None if _stays_whole(instance, index, immovable) else running(index)
        if choice is not None and (len(choice.options) > 1 or not choice.must):
            found.append(choice)
        else:
            unchanging.append(index)
    found += [running(index) for index in _with_unknown_gpus(instance, found, unchanging)]
    return tuple(sorted(found, key=lambda choice: choice.gang))


def _stays_whole(instance: Instance, index: int, immovable: Collection[int]) -> bool:
    """Whether a running gang has no other option than to stay as it is."""
    gang = instance.gangs[index]
    changes = may_stop(instance, index) or (may_move(instance, index) and index not in immovable)
    resizes = gang.elastic and not instance.size_held(gang)
    return not (changes or resizes or index in instance.incomplete)


def _with_unknown_gpus(
    instance: Instance, found: Sequence[Choice], unchanging: Sequence[int]
) -> Iterator[int]:
    """Gangs that stay in any case, but whose unknown GPUs have a worth that depends on other gangs.

    Where only the number of GPUs counts, their worth is the same.
    """
    unknown: dict[int, list[int]] = {}
    for index in unchanging:
        gang = instance.gangs[index]
        for p in gang.pods:
            hidden = p.gpus is None and gang.roles[p.role].gpus > 0
            if hidden and p.node is not None and indices_matter(instance.cluster.nodes[p.node]):
                unknown.setdefault(index, []).append(p.node)
    if not unknown:
        return
    known_elsewhere: set[int | None] = set()
    for choice in found:  # none of their pods is in the base, also those that stay in any case
        pods = instance.gangs[choice.gang].running_pods
        known_elsewhere.update(p.node for p in pods if p.gpus)
    for index, nodes in unknown.items():
        if not known_elsewhere.isdisjoint(nodes):
            yield index


def _waiting(instance: Instance, known: Sequence[int], index: int) -> Choice:
    gang = instance.gangs[index]
    counts, complete = _counts(gang, None)
    demands = (demand_for(instance, index, count, (), known) for count in counts)
    only = len(counts) == 1
    options = tuple(Option(replace(demand, only_option=only), PLACED) for demand in demands)
    # fewer pods fit wherever more do, but may be too slow there, and tiers of queues may count them
    by_size = instance.min_share(gang) or counts_sizes(instance)
    return Choice(index, options, gang.key in due(instance), (), complete, complete or not by_size)


def _counts(gang: Gang, near: tuple[int, ...] | None) -> tuple[list[tuple[int, ...]], bool]:
    """Allowed numbers of pods a role, ``near`` among them; False if some were left out."""
    allowed = [role.allowed_counts() for role in gang.roles]
    if prod(map(len, allowed)) <= MAX_COUNTS:
        return list(product(*allowed)), True
    chosen = set() if near is None else {near}
    for part in range(MAX_COUNTS - 1):  # from the smallest to the largest
        chosen.add(tuple(own[(len(own) - 1) * part // (MAX_COUNTS - 2)] for own in allowed))
    return sorted(chosen), False


MAX_WAYS = 256
"""Sets of pods of one gang and size that may stay, beyond it only none and all; also cases of a server,
and network rates of an NVLink domain."""

Pods = tuple[ExistingPod, ...]


class StayingSets:
    """Which pods of a running gang may stay while the others are placed anew (contract 2.6, 2.8).

    A pod placed where it stands is as good as one that stays. So only two things make a difference: pods
    that could not be placed there again, and roles or slices that break a rule as they stand, which they
    may do only as a whole. ``rooms``: room of every node next to all that runs.
    """

    def __init__(self, instance: Instance, rooms: Sequence[Room], index: int) -> None:
        self._instance = instance
        self._rooms = rooms
        self._index = index
        self._gang = instance.gangs[index]

    def sets(self, there: Sequence[ExistingPod]) -> tuple[list[Pods], bool, bool]:
        """Sets of these pods that stay, never all; False if some are left out; and whether pods are *loose*.

        Loose pods are those that only rules about pods set apart, where there are too many: one that is
        placed where it stands may be one that stays.
        """
        units = self._units(there)
        loose = prod(map(len, units)) > MAX_WAYS and self._ruled
        if loose:
            units = self._units(there, loose=True)
        complete = prod(map(len, units)) <= MAX_WAYS
        if not complete:
            units = [[(), tuple(p for unit in units for p in unit[-1])]]
        found: dict[Pods, None] = {}
        for chosen in product(*units):
            some = [p for part in chosen for p in part]
            pods = tuple(p for p in there if p in some)
            if len(pods) < len(there):
                found[pods] = None
        return list(found), complete, loose

    @property
    def _ruled(self) -> bool:
        """Whether some rule about pods is about the gang."""
        return self._gang.key in pod_rules(self._instance).gangs

    def _units(self, there: Sequence[ExistingPod], *, loose: bool = False) -> list[list[Pods]]:
        """Independent decisions: how many of identical pods stay, or whether a whole group does."""
        units: list[list[Pods]] = [[(), group] for group in self._broken(there)]
        alike: dict[object, list[ExistingPod]] = {}
        for pod in there:
            if not self._placeable(pod) or not (loose or self._free_of_rules(pod)):
                alike.setdefault(self._kind(pod, there), []).append(pod)
        return units + [[tuple(pods[:n]) for n in range(len(pods) + 1)] for pods in alike.values()]

    def _broken(self, there: Sequence[ExistingPod]) -> list[Pods]:
        """Roles and slices that break a rule as they stand."""
        found: dict[Pods, None] = {}
        for number, role in enumerate(self._gang.roles):
            own = tuple(p for p in there if p.role == number)
            groups: list[tuple[int | None, Pods]] = [(role.required, own)]
            for size, level in role.slice_layers:
                numbers = sorted({p.index // size for p in own})
                groups += [(level, tuple(p for p in own if p.index // size == n)) for n in numbers]
            for within, pods in groups:
                of = () if within is None else self._instance.cluster.domain_of[within]
                if of and len({of[p.node] for p in pods if p.node is not None}) > 1:
                    found[pods] = None
            if self._mixed(role, own):
                found[own] = None
        return list(found)

    def _mixed(self, role: Role, own: Sequence[ExistingPod]) -> bool:
        """Whether the role stands on several GPU models although it must not."""
        if not role.gpus or role.mix_models:
            return False
        nodes = self._instance.cluster.nodes
        models = [nodes[p.node].model for p in own if p.node is not None]
        return len({model.gpu for model in models if model is not None}) > 1

    def _placeable(self, pod: ExistingPod) -> bool:
        """Whether the pod could be placed where it stands."""
        instance, role = self._instance, self._gang.roles[pod.role]
        assert pod.node is not None
        node, room = instance.cluster.nodes[pod.node], self._rooms[pod.node]
        eligible = pod.node in eligible_nodes(instance, self._gang, role)
        if not eligible or (pod.gpus or 0) & ~node.givable:
            return False
        if room.blind and indices_matter(node) and pod.gpus:
            return False  # the GPUs of a pod that stays are known, those of a new pod would not be
        # standing pods may stay on an overfull node, but nothing may be added
        return room.mask.bit_count() >= room.unknown and all(left >= 0 for _, left in room.left)

    def _free_of_rules(self, pod: ExistingPod) -> bool:
        """Whether rules about pods let the pod be placed where it stands, whatever others do."""
        assert pod.node is not None
        gpus = self._gang.roles[pod.role].gpus
        exempt = (self._index, pod.role, pod.node) in standing_exempt(self._instance)
        return not (exempt or (gpus and standing_beside(self._instance, self._index, pod.node)))

    def _kind(self, pod: ExistingPod, there: Sequence[ExistingPod]) -> object:
        """Equal for pods of which any may stay in place of any other."""
        assert pod.node is not None
        role, node = self._gang.roles[pod.role], self._instance.cluster.nodes[pod.node]
        where: object = pod.node
        gpus: object = pod.gpus
        if not indices_matter(node):
            # free GPUs of a node that takes no pods are worth nothing
            alone = sum(p.node == pod.node for p in there) == 1
            if alone and not self._ruled and not self._instance.schedulable(node):
                of = self._instance.cluster.domain_of[:-1]
                where = (node.model, node.nics, tuple(level[pod.node] for level in of))
                gpus = None
            elif pod.gpus is not None:
                gpus = (pod.gpus & node.healthy).bit_count()
        slices = tuple(pod.index // size for size, _ in role.slice_layers)
        key = (pod.role, pod.index)
        planned = tuple(p.node for p in self._gang.planned if (p.role, p.index) == key)
        return pod.role, where, gpus, slices, planned


class _Running:
    def __init__(
        self,
        instance: Instance,
        known: Sequence[int],
        rooms: Sequence[Room],
        index: int,
        *,
        movable: bool,
    ) -> None:
        self._instance = instance
        self._staying = StayingSets(instance, rooms, index)
        self._known = known
        self._index = index
        self._gang = instance.gangs[index]
        self._movable = movable and may_move(instance, index)
        stand = Counter(pod.role for pod in self._gang.running_pods)
        self._now = tuple(stand[number] for number in range(len(self._gang.roles)))
        self._gpus = standing_gpus(instance, index)

    def choice(self) -> Choice:
        gang = self._gang
        vacates = tuple(sorted({p.node for p in gang.running_pods if p.node is not None}))
        lacks = self._index in self._instance.incomplete
        options, complete = self._completions() if lacks else self._sizes()
        must = not may_stop(self._instance, self._index)
        return Choice(self._index, tuple(options), must, vacates, complete, complete)

    def _option(
        self, counts: Sequence[int], stays: Sequence[ExistingPod], effect: Effect
    ) -> Option:
        demand = demand_for(self._instance, self._index, counts, stays, self._known)
        return Option(replace(demand, only_option=False), effect)

    def _completions(self) -> tuple[list[Option], bool]:
        """As it is, or completed: its standing pods stay, the others come all at once."""
        gang = self._gang
        as_it_is = self._option(self._now, gang.running_pods, Effect(self._gpus, 0, admitted=False))
        nothing = replace(as_it_is.demand, roles=(), possible=True)
        options = [replace(as_it_is, demand=nothing)]
        if gang.hold is not None:
            return options, True
        least = gang.target_counts
        counts, complete = [least], True
        if not self._instance.size_held(gang):
            every, complete = _counts(gang, least)
            counts = [c for c in every if all(a >= b for a, b in zip(c, least, strict=True))]
        for count in counts:
            option = self._option(count, gang.running_pods, Effect(self._gpus, 0))
            if option.demand.possible:
                options.append(option)
        return options, complete

    def _sizes(self) -> tuple[list[Option], bool]:
        """Kept, shrunk, grown, and moved, at every size it may have."""
        gang = self._gang
        counts, complete = [self._now], True
        if gang.elastic and not self._instance.size_held(gang):
            counts, complete = _counts(gang, self._now)
        options: list[Option] = []
        for count in sorted(counts, key=lambda c: (c != self._now, c)):
            shrinks = any(a < b for a, b in zip(count, self._now, strict=True))
            # a movable gang may shrink even if it does not move
            if not shrinks or may_shrink(self._instance, self._index):
                options.append(self._in_place(count, shrinks=shrinks))
            if self._movable:
                there = [p for p in gang.running_pods if self._has(count, p)]
                sets, every, loose = self._staying.sets(there)
                effect = Effect(gang.units_of(there), self._gpus, moved=True)
                placed = (self._option(count, stays, effect) for stays in sets)
                options += [replace(o, demand=replace(o.demand, loose=loose)) for o in placed]
                complete &= every
        return [o for o in options if o.demand.possible], complete

    def _in_place(self, counts: tuple[int, ...], *, shrinks: bool) -> Option:
        stays = [p for p in self._gang.running_pods if self._has(counts, p)]
        gone = [p for p in self._gang.running_pods if not self._has(counts, p)]
        left = {p.node for p in gone if p.node is not None}
        vacates = tuple(sorted(left)) if shrinks and not self._gang.movable else ()
        lost = self._gang.units_of(gone)
        return self._option(counts, stays, Effect(self._gpus - lost, lost, vacates=vacates))

    def _has(self, counts: tuple[int, ...], pod: ExistingPod) -> bool:
        """Whether the pod exists at that size: the highest indices go first."""
        return pod.index in self._gang.roles[pod.role].indices(counts[pod.role])
