"""The value of every tier for a given plan, as exact integers, without a solver.

The search scores with these functions and the plan states their results. The judge has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.hardware import ServerModel
from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance, once, once_each
from models.instance.occupancy import PODS, free_after, free_on
from models.instance.queue import QueueUse
from models.instance.reshaping import reshaping, taken_gpus
from models.instance.solution import ADMITTED, GangDecision, PodPlacement, standing_of
from models.instance.speed import speed_permille
from models.queues.queue_shares import add_use, shares, stated_shares, within_guarantee
from models.rates.gang_bandwidth import share_permille
from models.rates.gang_rates import KnownMasks, gang_rates, own_sets
from models.tiers import Condition, Tier, stated_tiers
from models.values.leftover import defragment, gpu_shares, stranded, suspects, usable_gpus
from models.values.nearness import companions, near_gpus, suitors


@dataclass(frozen=True, slots=True)
class GangValue:
    """What the plan states of one gang. ``domains``: used a level, widest first, the node level last.

    ``speed``: permille, with these pods; what counts for a gang that runs is in ``Evaluation``.
    """

    bandwidth: Fraction | None
    share: int | None
    meets_min_share: bool
    domains: tuple[int, ...]
    speed: int


CONDITIONS: dict[Condition, Callable[[Instance, Gang], bool]] = {
    "guaranteed": within_guarantee,
    "may_lose_gpus": lambda _instance, gang: (
        gang.running and (gang.preemptible or (gang.movable and _above_min(gang)))
    ),
    "aged": lambda instance, gang: instance.aged(gang),
    "elastic": lambda _instance, gang: gang.elastic,
    "elastic_without_gpus": lambda _instance, gang: any(
        role.elastic and not role.units for role in gang.roles
    ),
}
"""Whether a gang meets the condition of a tier."""


@once
def tiers_of(instance: Instance) -> tuple[Tier, ...]:
    """The tiers a plan of this instance states, in order (contract, sections 4 and 7)."""
    met: dict[int, set[str]] = {}
    for gang in instance.gangs:
        own = met.setdefault(gang.priority, set())
        for name, meets in CONDITIONS.items():
            if name not in own and meets(instance, gang):
                own.add(name)
    listed = ((objective.name, objective.tolerance) for objective in instance.policy.objectives)
    known = shares(instance)
    return tuple(stated_tiers(listed, met, 0 if known is None else len(known.parts)))


def _above_min(gang: Gang) -> bool:
    counts = [sum(1 for p in gang.running_pods if p.role == i) for i in range(len(gang.roles))]
    return any(r.elastic and n > r.min for r, n in zip(gang.roles, counts, strict=True))


def admitted(instance: Instance, index: int, decision: GangDecision) -> bool:
    """Whether the gang runs whole after the plan; a kept gang with pods missing does not."""
    if decision.decision == "keep":
        return index not in instance.incomplete
    return decision.decision in ADMITTED


def speed_before(instance: Instance, index: int) -> int | None:
    """Speed of a gang that runs whole before the plan, permille; None for any other."""
    if not instance.gangs[index].running or index in instance.incomplete:
        return None
    return _value_before(instance, index).speed


def standing_value(instance: Instance, index: int) -> GangValue | None:
    """The value that a gang has in every plan in which it runs; None if that is not known before."""
    gang = instance.gangs[index]
    if not gang.stands or any(pod.gpus is None for pod in gang.running_pods):
        return None
    return _value_before(instance, index)


@once_each
def _value_before(instance: Instance, index: int) -> GangValue:
    gang = instance.gangs[index]
    pods = standing_of(gang)
    known = known_value(instance, index, pods)
    return known or gang_value(instance, gang, pods, instance.once(_known_before))


def most_speed(instance: Instance, index: int) -> int | None:
    """The most that the speed of a gang counts after the plan, permille; None for no limit.

    A gang that runs whole counts at most its speed before the plan, so that nothing moves for speed alone,
    unless restarts are free.
    """
    return None if instance.restarts_free else speed_before(instance, index)


def _known_before(instance: Instance) -> list[int]:
    """Mask of GPUs known to be held before the plan, a node."""
    known = [0] * len(instance.cluster.nodes)
    for gang in instance.gangs:
        for pod in gang.pods:
            # who has a part of a GPU does not hold it
            if pod.node is not None and gang.roles[pod.role].gpus:
                known[pod.node] |= pod.gpus or 0
    return known


def known_masks(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Mask of GPUs known to be held after the plan, a node."""
    known = [0] * len(instance.cluster.nodes)
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        for pod in decision.pods:
            role = gang.roles[pod.role]
            known[pod.node] |= role.keeps_on(pod.node) | ((pod.gpus or 0) if role.gpus else 0)
    return known


def gang_value(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: KnownMasks
) -> GangValue:
    """Bandwidth, share and domains of one gang's pods."""
    cluster = instance.cluster
    sets = own_sets(instance, gang, pods, known)
    bandwidth, ideal = gang_rates(instance, gang, pods, known)
    share, meets = None, True
    if bandwidth is not None and ideal is not None:
        share = share_permille(bandwidth, ideal)
        meets = bandwidth >= instance.min_share(gang) * ideal
    nodes = {pod.node for pod in pods}
    domains = tuple(len({of[n] for n in nodes}) for of in cluster.domain_of)
    models = (m for n in sets if (m := cluster.nodes[n].model) is not None)
    return GangValue(bandwidth, share, meets, domains, gang_speed(instance, gang, share, models))


def gang_speed(
    instance: Instance, gang: Gang, share: int | None, models: Iterable[ServerModel]
) -> int:
    """Permille of the speed of the gang on ideal links and the fastest GPUs (contract, section 8).

    ``models``: of the servers that hold GPUs of it.
    """
    relative = instance.relative_speeds.of(models if gang.counts_speed else ())
    return speed_permille(None if gang.pattern == "none" else share, gang.fraction, relative)


def known_value(instance: Instance, index: int, pods: Sequence[PodPlacement]) -> GangValue | None:
    """The value of GPUs of known index, once for equal GPUs of like servers in as many domains.

    None where more decides: GPUs of unknown index, groups of GPUs, NVLink between servers, pods without GPUs
    elsewhere.
    """
    kind = instance.once(_kinds)[index]
    if kind is None:
        return None
    servers, domains, masks = instance.once(_server_kinds), tuple[int, ...](), dict[int, int]()
    for pod in pods:
        if pod.gpus is None:
            return None
        masks[pod.node] = masks.get(pod.node, 0) | pod.gpus
    key = [(servers[n], mask) for n, mask in masks.items()]
    if len(masks) > 1:
        if 0 in masks.values() or any(number < 0 for number, _ in key):
            return None
        domains = tuple(len({of[n] for n in masks}) for of in instance.cluster.domain_of)
        key.sort()
    known, at = instance.once(_known_values), (kind, domains, *key)
    if at not in known:
        known[at] = gang_value(instance, instance.gangs[index], pods, ())
    return known[at]


def _server_kinds(instance: Instance) -> list[int]:
    """By node, the number of its server model and NICs; negative with NVLink between servers."""
    kinds: dict[tuple[int, int], int] = {}

    def kind(node: Node) -> int:
        number = kinds.setdefault((id(node.model), id(node.effective_nics)), len(kinds))
        return (
            -1 - number if node.model is not None and node.model.nvlink_domain_nodes > 1 else number
        )

    return list(map(kind, instance.cluster.nodes))


def _kinds(instance: Instance) -> list[int | None]:
    """By gang, the number of its kind: equal GPUs of a server are worth the same. None if in groups."""
    kinds: dict[tuple[object, ...], int] = {}

    def kind(gang: Gang) -> int | None:
        if gang.in_groups:
            return None
        key = (
            gang.nvlink_across_nodes,
            instance.min_share(gang).as_integer_ratio(),  # whose hash takes less time
            gang.fraction.as_integer_ratio(),
            gang.pattern == "none",
            gang.counts_speed,
        )
        return kinds.setdefault(key, len(kinds))

    return [kind(gang) for gang in instance.gangs]


def _known_values(_instance: Instance) -> dict[tuple[object, ...], GangValue]:
    return {}


def _other_values(_instance: Instance) -> dict[tuple[int, tuple[PodPlacement, ...]], GangValue]:
    """By index and pods, where every GPU index is known: then nothing else matters."""
    return {}


@dataclass(frozen=True, slots=True)
class Line:
    """One gang of a plan. ``value``: None without pods. ``admitted``: it runs whole after the plan.

    ``speed``: permille; of a gang that runs whole before the plan at most ``most_speed``.
    """

    gang: Gang
    decision: GangDecision
    value: GangValue | None
    admitted: bool
    speed: int | None = None


class Evaluation:
    """Every value of one plan, in order of the gangs; read by tier.

    What the plan valued before it has in common with it is taken from there.
    """

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self.instance = instance
        self.decisions = tuple(decisions)
        self._known: list[int] | None = None
        self._totals: dict[str, tuple[Tier, int]] = {}
        self._near: dict[int, int] | None = None
        self._free: list[int] | None = None
        self._queue_use: QueueUse | None = None
        self._usable: list[int] | None = None
        self._blind: set[int] = set()
        latest = instance.once(_Latest)
        last = latest.evaluation
        if last is None:
            self.lines = [self._line(index) for index in range(len(instance.gangs))]
        else:
            self._follow(last)
        latest.evaluation = self

    @property
    def values(self) -> list[GangValue | None]:
        """The value of every gang."""
        return [line.value for line in self.lines]

    def _follow(self, last: Evaluation) -> None:
        """Take over what another plan has in common with this one."""
        pairs = enumerate(zip(last.decisions, self.decisions, strict=True))
        changed = {i for i, (old, new) in pairs if old is not new and old != new}
        nodes = {
            pod.node for i in changed for plan in (last, self) for pod in plan.decisions[i].pods
        }
        # what GPUs of unknown index are worth depends on what others hold
        changed |= {
            i for i in last._blind if any(pod.node in nodes for pod in self.decisions[i].pods)
        }
        self._blind = last._blind - changed
        self.lines = list(last.lines)
        for index in sorted(changed):
            self.lines[index] = self._line(index)
        for name, (tier, total) in list(last._totals.items()):
            worth = self._worth(tier)
            gained = (worth(self.lines[i]) - worth(last.lines[i]) for i in changed)
            self._totals[name] = (tier, total + sum(gained))
        if last._near is not None:
            self._near = dict(last._near)
            named = suitors(self.instance)
            self._near.update(
                self._near_of({*changed, *(i for c in changed for i in named.get(c, ()))})
            )
        if last._queue_use is not None:
            self._queue_use = last._queue_use.copy()
            for line, index, sign in (
                (plan.lines[i], i, sign) for plan, sign in ((last, -1), (self, 1)) for i in changed
            ):
                add_use(self.instance, self._queue_use, index, line.decision.pods, sign)
        if last._free is not None:
            self._free = list(last._free)
            for n, free in free_on(self.instance, self._pods(nodes), nodes).items():
                self._free[n] = free
            if last._usable is not None:
                self._usable = list(last._usable)
                for n, usable in self._usable_on(nodes):
                    self._usable[n] = usable

    def _line(self, index: int) -> Line:
        gang, decision = self.instance.gangs[index], self.decisions[index]
        if not decision.pods:
            return Line(gang, decision, None, admitted=False)
        value = self._value(index)
        most = most_speed(self.instance, index)
        speed = value.speed if most is None else min(most, value.speed)
        return Line(gang, decision, value, admitted(self.instance, index, decision), speed)

    def _value(self, index: int) -> GangValue:
        gang, pods = self.instance.gangs[index], self.decisions[index].pods
        known = known_value(self.instance, index, pods)
        if known is not None:
            return known
        if any(pod.gpus is None for pod in pods):
            self._blind.add(index)
            if self._known is None:
                self._known = known_masks(self.instance, self.decisions)
            return gang_value(self.instance, gang, pods, self._known)
        others = self.instance.once(_other_values)
        if (index, pods) not in others:
            others[index, pods] = gang_value(self.instance, gang, pods, ())
        return others[index, pods]

    def tier(self, tier: Tier) -> int:
        """Value of one tier."""
        if tier.family in PLAN_VALUES:
            value = PLAN_VALUES[tier.family](self.instance, self.free, self.usable)
            return value + self._taken() if tier.family == "stranded" else value
        if tier.family == "fair":
            return stated_shares(self.instance).fairness(tier.rank or 0, self.queue_use.fair)
        if tier.name not in self._totals:
            lines = self.lines
            if tier.priority is not None:
                lines = [lines[i] for i in self.instance.once(_by_priority)[tier.priority]]
            self._totals[tier.name] = (tier, sum(map(self._worth(tier), lines)))
        joint = sum(self.near.values()) if tier.family == "preference" else 0
        return self._totals[tier.name][1] + joint

    @property
    def near(self) -> dict[int, int]:
        """Of every gang with ``near``, what it adds to ``preference`` by being beside another one."""
        if self._near is None:
            self._near = self._near_of(companions(self.instance))
        return self._near

    def _near_of(self, gangs: Iterable[int]) -> dict[int, int]:
        """The same of those of some gangs that have it."""
        own = [index for index in gangs if index in companions(self.instance)]
        if not own:
            return {}
        whole = [line.decision.pods if line.admitted else () for line in self.lines]
        return {index: near_gpus(self.instance, index, whole) for index in own}

    def _worth(self, tier: Tier) -> Callable[[Line], int]:
        """What one gang adds to a tier."""
        instance, placement = self.instance, PLACEMENT_VALUES.get(tier.family)
        if placement is None:
            own = GANG_VALUES[tier.family]
            if tier.priority is None:
                return lambda line: own(instance, line)
            return lambda line: own(instance, line) if line.gang.priority == tier.priority else 0

        def worth(line: Line) -> int:
            if not line.admitted or line.value is None:
                return 0
            return placement(instance, line.gang, line.decision.pods, line.value)

        return worth

    @property
    def queue_use(self) -> QueueUse:
        """What gangs in queues hold after the plan."""
        if self._queue_use is None:
            self._queue_use = QueueUse()
            for index, decision in enumerate(self.decisions):
                add_use(self.instance, self._queue_use, index, decision.pods)
        return self._queue_use

    def vector(self) -> tuple[int, ...]:
        """Values of all tiers, in order."""
        return tuple(self.tier(tier) for tier in tiers_of(self.instance))

    @property
    def free(self) -> list[int]:
        """Free GPUs of every node after the plan."""
        if self._free is None:
            self._free = free_after(self.instance, self._pods(None))
        return self._free

    def _taken(self) -> int:
        """Permille-GPU that instances and parts take from whole GPUs: of no use to requests of the mix."""
        taken = sum(self._taken_gpus().values())
        return sum(permille for _, permille in self.instance.policy.mix) * taken

    def _taken_gpus(self) -> dict[int, int]:
        nodes = reshaping(self.instance)
        return taken_gpus(self.instance, self._pods(nodes), nodes) if nodes else {}

    @property
    def has_gpus_for_parts(self) -> bool:
        """Whether idle GPUs are found for all instances and parts: a program may pack them more tightly."""
        nodes, could = self.instance.cluster.nodes, reshaping(self.instance)
        left, given = {n: -gpus for n, gpus in self._taken_gpus().items()}, Counter[int]()
        kept, asked = Counter[int](), {n for n in could if n in left or nodes[n].releasable}
        for role, pod in self._pods(asked) if asked else ():
            kept[pod.node] |= role.keeps_on(pod.node)
            given[pod.node] |= pod.gpus or 0
            if pod.node in left and pod.gpus is None:
                left[pod.node] -= role.gpus
        if any(given[n] & mask for n, mask in kept.items()):
            return False  # a GPU that stays shared is given whole
        for n in left:
            idle = nodes[n].givable & ~(kept[n] | given[n])
            left[n] += idle.bit_count() - nodes[n].unknown_unhealthy
        return all(gpus >= 0 for gpus in left.values())

    @property
    def usable(self) -> list[int]:
        """Free GPUs of every node that have their share of its resources."""
        if not gpu_shares(self.instance):
            return self.free
        if self._usable is None:
            every = range(len(self.instance.cluster.nodes))
            self._usable = [usable for _, usable in self._usable_on(every)]
        return self._usable

    def _usable_on(self, nodes: Collection[int]) -> Iterator[tuple[int, int]]:
        """The same of some nodes, in their order."""
        left = {n: dict(self.instance.cluster.nodes[n].allocatable) for n in nodes}
        for role, pod in self._pods(nodes):
            for resource, amount in ((PODS, 1), *role.requests):
                if resource in left[pod.node]:
                    left[pod.node][resource] -= amount
        free = self.free
        return ((n, usable_gpus(self.instance, free[n], own)) for n, own in left.items())

    def _pods(self, nodes: Collection[int] | None) -> list[tuple[Role, PodPlacement]]:
        """Role and place of every pod on these nodes; None: on all."""
        gangs = self.instance.gangs
        return [
            (gangs[index].roles[pod.role], pod)
            for index, decision in enumerate(self.decisions)
            for pod in decision.pods
            if nodes is None or pod.node in nodes
        ]


def _by_priority(instance: Instance) -> dict[int, list[int]]:
    """The gangs of every priority."""
    found: dict[int, list[int]] = {}
    for index, gang in enumerate(instance.gangs):
        found.setdefault(gang.priority, []).append(index)
    return found


class _Latest:
    """The evaluation of an instance that was made last."""

    def __init__(self, _instance: Instance) -> None:
        self.evaluation: Evaluation | None = None


def preference(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], value: GangValue
) -> int:
    """GPUs of the gang, its roles and its groups that are within one domain of their preferred level.

    What it adds by being beside another gang: ``Evaluation.near``.
    """
    worth = 0
    if gang.preferred is not None and value.domains[gang.preferred] == 1:
        worth += gang.weight_gpus
    for number, role in enumerate(gang.roles):
        if role.preferred is not None:
            of = instance.cluster.domain_of[role.preferred]
            if len({of[pod.node] for pod in pods if pod.role == number}) == 1:
                worth += gang.gpus_of((number,))
    for one in gang.together:
        of, heavy = (
            instance.cluster.domain_of[one.level],
            {n for n in one.roles if gang.roles[n].gpus},
        )
        if len({of[pod.node] for pod in pods if pod.role in heavy}) == 1:
            worth += gang.gpus_of(one.roles)
    return worth


def bandwidth(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], value: GangValue
) -> int:
    """Permille-GPU: the share of the ideal bandwidth times the gang's GPUs and weight."""
    del instance, pods
    counts = value.share is not None and gang.pattern != "none"
    return gang.weight * gang.weight_gpus * (value.share or 0) if counts else 0


def span(instance: Instance, gang: Gang, pods: Sequence[PodPlacement], value: GangValue) -> int:
    """Domains used beyond the first, a wider level four times as much as the next narrower one."""
    del pods
    weights = zip(value.domains, instance.cluster.span_weights, strict=True)
    beyond = sum((used - 1) * weight for used, weight in weights if used > 1)
    return gang.weight_gpus * beyond if beyond else 0


PlacementValue = Callable[[Instance, Gang, Sequence[PodPlacement], GangValue], int]

PLACEMENT_VALUES: dict[str, PlacementValue] = {
    "preference": preference,
    "bandwidth": bandwidth,
    "span": span,
}
"""Tiers that are a sum over admitted gangs of what one gang's placement is worth."""


def _aged(instance: Instance, line: Line) -> int:
    if not instance.aged(line.gang):
        return 0
    return _goodput(instance, line) if instance.by_speed else _admission(instance, line)


def _goodput(_instance: Instance, line: Line) -> int:
    return line.gang.weight_gpus * (line.speed or 0) if line.admitted else 0


def _admission(_instance: Instance, line: Line) -> int:
    return line.gang.weight_gpus if line.admitted else 0


def _waiting(instance: Instance, line: Line) -> int:
    if not line.admitted or line.gang.running:
        return 0
    return _admission(instance, line) * instance.age(line.gang)


def _growth(_instance: Instance, line: Line) -> int:
    gang = line.gang
    if not line.admitted or not gang.elastic:
        return 0
    return gang.units_of(line.decision.pods) - gang.least_units


def _growth_pods(_instance: Instance, line: Line) -> int:
    """Pods that count nothing above ``min``."""
    if not line.admitted:
        return 0
    roles = line.gang.roles
    pods = sum(not roles[pod.role].units for pod in line.decision.pods)
    return pods - sum(role.min for role in roles if not role.units)


def _kept(_instance: Instance, line: Line) -> int:
    """GPUs of standing pods that are there after the plan, wherever."""
    if not line.gang.running:
        return 0
    after = {(pod.role, pod.index) for pod in line.decision.pods}
    pods = (pod for pod in line.gang.pods if pod.node is not None)
    return line.gang.units_of(p for p in pods if (p.role, p.index) in after)


def _disruption(instance: Instance, line: Line) -> int:
    """GPUs taken from a running gang, times what its loss counts (``Instance.disruption_cost``)."""
    if line.decision.decision == "keep" or not line.gang.running:
        return 0
    return _gpus_lost(line.gang, line.decision) * instance.disruption_cost(line.gang)


def _stability(_instance: Instance, line: Line) -> int:
    """GPUs that pods ask for which are not on the node where an earlier plan wanted them."""
    if not line.gang.planned:
        return 0
    wanted = {(p.role, p.index): p.node for p in line.gang.planned}
    return line.gang.units_of(
        pod for pod in line.decision.pods if wanted.get((pod.role, pod.index), pod.node) != pod.node
    )


def _gpus_lost(gang: Gang, decision: GangDecision) -> int:
    """All standing GPUs of a gang that is stopped or moves, of one that only shrinks those dropped.

    A pod without GPUs that moves counts too: a launcher that restarts ends the job.
    """
    after = {(p.role, p.index): p for p in decision.pods}
    before = standing_of(gang)
    whole = not after or any(after.get((p.role, p.index), p) != p for p in before)
    return gang.units_of(p for p in before if whole or (p.role, p.index) not in after)


GANG_VALUES: dict[str, Callable[[Instance, Line], int]] = {
    "guarantee": lambda instance, line: (
        _admission(instance, line) if within_guarantee(instance, line.gang) else 0
    ),
    "kept": _kept,
    "aged": _aged,
    "aged-waiting": lambda instance, line: _aged(instance, line) * instance.age(line.gang),
    "goodput": _goodput,
    "admission": _admission,
    "waiting": _waiting,
    "disruption": _disruption,
    "growth": _growth,
    "growth-pods": _growth_pods,
    "stability": _stability,
}
"""What one gang adds to every other tier that is a sum over gangs, by its name in ``models.tiers``."""

PLAN_VALUES: dict[str, Callable[[Instance, Sequence[int], Sequence[int]], int]] = {
    "stranded": stranded,
    "defragment": lambda instance, free, _usable: defragment(instance, free),
    "suspect": lambda instance, free, _usable: sum(free[n] for n in suspects(instance)),
}
"""Tiers whose value depends on the free GPUs of every node, and on those of use to a request."""
