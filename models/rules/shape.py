"""Rules 2.19 to 2.21: equal shares of a gang over domains, domains of one gang, and nodes kept free.

What each rule asks for, and which gangs of a plan break one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.solution import PodPlacement, standing_of
from models.rules.declaration import Asked, Declaration, Pods, Requirement, asked_level


@dataclass(frozen=True, slots=True)
class SpareNodes:
    """At least ``least`` of these nodes stay without pods with GPUs. ``nodes``: ascending."""

    nodes: tuple[int, ...]
    least: int


def breaking(instance: Instance, pods: Sequence[Pods]) -> list[int]:
    """Gangs of a plan that go back so that the rules hold: of each breach the lowest. ``pods``: by gang.

    Each has a pod with GPUs that is placed or moved.
    """
    even = instance.once(_even_gangs)
    unbalanced = [gang for gang in even if not balanced(instance, gang, pods[gang])]
    return sorted({*unbalanced, *_intruders(instance, pods), *_on_spares(instance, pods)})


def new_pods(instance: Instance, gang: int, pods: Pods) -> list[PodPlacement]:
    """Pods with GPUs of the gang that are placed or moved."""
    standing, roles = set(standing_of(instance.gangs[gang])), instance.gangs[gang].roles
    return [pod for pod in pods if roles[pod.role].gpus and pod not in standing]


def _gpu_pods(gang: Gang, pods: Pods) -> Iterator[PodPlacement]:
    return (pod for pod in pods if gang.roles[pod.role].gpus)


def _lowest(instance: Instance, gangs: Iterable[int]) -> int:
    """The gang that gives way: of the lowest priority, the last one."""
    return min(gangs, key=lambda gang: (instance.gangs[gang].priority, -gang))


# Equal shares


ALWAYS_EVEN = 3
"""So many pods are balanced wherever they are: 2 + 1 at worst."""


def may_be_uneven(gang: Gang) -> bool:
    """Whether some places of its pods break its balance."""
    if gang.balance is None or (gang.required is not None and gang.required >= gang.balance):
        return False
    return sum(role.max for role in gang.roles if role.gpus) > ALWAYS_EVEN


def _even_gangs(instance: Instance) -> tuple[int, ...]:
    return tuple(i for i, gang in enumerate(instance.gangs) if may_be_uneven(gang))


def balanced(instance: Instance, gang: int, pods: Pods) -> bool:
    """Whether the gang may have these pods under rule 2.19."""
    spec = instance.gangs[gang]
    if spec.balance is None or not new_pods(instance, gang, pods):
        return True
    of = instance.cluster.domain_of[spec.balance]
    shares = Counter(of[pod.node] for pod in _gpu_pods(spec, pods)).values()
    return max(shares) - min(shares) <= 1


# Domains of one gang


_exclusive = attrgetter("exclusive")


@once
def exclusive_levels(instance: Instance) -> tuple[int, ...]:
    """The levels at which a gang is exclusive, ascending."""
    levels = instance.of_gangs(_exclusive)
    return tuple(sorted({level for level in levels if level is not None}))


Tenants = dict[int, dict[int, set[int]]]
"""Gangs with pods with GPUs, by level and domain."""


def tenants(instance: Instance, pods: Sequence[Pods]) -> Tenants:
    """The gangs in each domain of the levels at which some gang is exclusive."""
    found: Tenants = {level: defaultdict(set) for level in exclusive_levels(instance)}
    for level, domains in found.items():
        of = instance.cluster.domain_of[level]
        for gang, own in enumerate(pods):
            # few have any, at times
            for pod in _gpu_pods(instance.gangs[gang], own) if own else ():
                domains[of[pod.node]].add(gang)
    return found


def apart(instance: Instance, gangs: Collection[int], level: int, gang: int) -> bool:
    """Whether a new pod of the gang must stay out of a domain of the level in which these gangs are."""
    if instance.gangs[gang].exclusive == level:
        return any(other != gang for other in gangs)
    return any(other != gang and instance.gangs[other].exclusive == level for other in gangs)


def _intruders(instance: Instance, pods: Sequence[Pods]) -> set[int]:
    """Gangs with new pods in a domain that a gang has for itself: of each such domain the lowest."""
    found = set[int]()
    new: dict[int, list[PodPlacement]] = {}
    for level, domains in tenants(instance, pods).items():
        of = instance.cluster.domain_of[level]
        for d, gangs in domains.items():
            if len(gangs) < 2 or all(instance.gangs[g].exclusive != level for g in gangs):
                continue
            for gang in gangs - new.keys():
                new[gang] = new_pods(instance, gang, pods[gang])
            came = [g for g in gangs if any(of[pod.node] == d for pod in new[g])]
            came = [g for g in came if apart(instance, gangs, level, g)]
            if came and found.isdisjoint(came):
                found.add(_lowest(instance, came))
    return found


def closed_to(instance: Instance, gang: Gang) -> frozenset[int]:
    """Nodes to which no pod with GPUs of the gang may come, whatever is decided about the others."""
    return instance.once(_FixedTenants).closed(gang) if exclusive_levels(instance) else frozenset()


def _kept_out(instance: Instance, there: Tenants, gang: int) -> frozenset[int]:
    """The nodes of domains in which a new pod of the gang must not be beside these gangs."""
    return frozenset(
        n
        for level, domains in there.items()
        for d, gangs in domains.items()
        if apart(instance, gangs, level, gang)
        for n in instance.cluster.domains[level][d].nodes
    )


class _FixedTenants:
    """The gangs whose pods stay in any plan, by domain, and what they close to others."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._numbers = {gang.key: number for number, gang in enumerate(instance.gangs)}
        standing = zip(instance.gangs, instance.standing, strict=True)
        self._there = tenants(
            instance, [() if gang.preemptible or gang.movable else pods for gang, pods in standing]
        )
        self._known: dict[object, frozenset[int]] = {}

    def closed(self, gang: Gang) -> frozenset[int]:
        number = self._numbers[gang.key]
        own = gang.running and gang.exclusive is not None
        key = number if own else (gang.exclusive, None)  # others have no domain of their own there
        if key not in self._known:
            self._known[key] = _kept_out(self._instance, self._there, number)
        return self._known[key]


def standing_beside(instance: Instance, gang: int, n: int) -> bool:
    """Whether rule 2.20 lets a pod with GPUs of the gang be on this node only where it stands now."""
    now = instance.once(_standing_tenants)
    of = instance.cluster.domain_of
    return any(apart(instance, d.get(of[level][n], ()), level, gang) for level, d in now.items())


def _standing_tenants(instance: Instance) -> Tenants:
    return tenants(instance, instance.standing)


# Nodes kept free


@once
def spare_nodes(instance: Instance) -> tuple[SpareNodes, ...]:
    """The nodes of which some stay free, domain by domain, where the rule asks for any."""
    if not instance.policy.spares:
        return ()
    cluster = instance.cluster
    names = [level.name for level in cluster.levels]
    held = held_nodes(instance, instance.standing)
    found = []
    for name, wanted in instance.policy.spares:
        level = names.index(name)
        for domain in cluster.domains[level]:
            if None in cluster.nodes[domain.nodes[0]].domains[: level + 1]:
                continue  # a node without a name at the level
            own = [n for n in domain.nodes if cluster.nodes[n].gpus]
            own = [n for n in own if instance.ours(cluster.nodes[n])]
            intact = tuple(n for n in own if instance.intact(cluster.nodes[n]))
            idle = sum(n not in held for n in intact)
            failed = sum(instance.failed(cluster.nodes[n]) for n in own)
            least = min(wanted - failed, idle)
            if least > 0:
                found.append(SpareNodes(intact, least))
    return tuple(found)


@once
def spare_domains(instance: Instance) -> Mapping[int, tuple[int, ...]]:
    """For every node of them, which of ``spare_nodes`` it is in."""
    found: dict[int, tuple[int, ...]] = {}
    for number, rule in enumerate(spare_nodes(instance)):
        for n in rule.nodes:
            found[n] = (*found.get(n, ()), number)
    return found


def held_nodes(instance: Instance, pods: Sequence[Pods]) -> set[int]:
    """Nodes with pods with GPUs, or with instances or parts of some."""
    gangs = zip(instance.gangs, pods, strict=True)
    return {pod.node for gang, own in gangs for pod in own if gang.roles[pod.role].uses_gpus}


def _on_spares(instance: Instance, pods: Sequence[Pods]) -> set[int]:
    """Gangs that came to nodes of which too few stay free: of each domain the lowest."""
    rules = spare_nodes(instance)
    if not rules:
        return set()
    held, found = held_nodes(instance, pods), set[int]()
    short = [r for r in rules if sum(n not in held for n in r.nodes) < r.least]
    came: dict[int, set[int]] = defaultdict(set)
    for gang in range(len(pods)) if short else ():
        standing, roles = set(standing_of(instance.gangs[gang])), instance.gangs[gang].roles
        for pod in pods[gang]:
            if roles[pod.role].uses_gpus and pod not in standing:
                came[pod.node].add(gang)
    for rule in short:
        gangs = set[int]().union(*(came[n] for n in rule.nodes if n in came))
        # a part may have too few with every gang where it runs
        if gangs and found.isdisjoint(gangs):
            found.add(_lowest(instance, gangs))
    return found


# What is declared


def _asks_for_spares(
    instance: Instance, _pods: Sequence[Pods], _gang: int
) -> Iterator[Asked[Instance]]:
    if instance.policy.spares:
        yield Asked("spares", _without_spares)


def _without_spares(instance: Instance) -> Instance:
    policy = instance.policy
    return replace(instance, policy=replace(policy, spares=())) if policy.spares else instance


def _some_alone(instance: Instance, gang: int, pods: Sequence[Pods]) -> bool:
    """Whether the gang is exclusive, or a gang that is has any of the pods."""
    gangs = instance.gangs
    if not exclusive_levels(instance) or gangs[gang].exclusive is not None:
        return gangs[gang].exclusive is not None
    return any(pods[other] for other in _exclusive_gangs(instance))


@once
def _exclusive_gangs(instance: Instance) -> tuple[int, ...]:
    return tuple(i for i, gang in enumerate(instance.gangs) if gang.exclusive is not None)


BALANCE = Requirement(
    "balance",
    "each {} must get equally many pods, or one more",
    of_gang=asked_level("balance"),
    code="Balance",
    concerns=lambda instance, gang, _pods: instance.gangs[gang].balance is not None,
    on_empty=True,
    word="balance",
    relaxes="equal shares over domains",
)

EXCLUSIVE = Requirement(
    "exclusive",
    "it must be alone in each {}",
    of_gang=asked_level("exclusive"),
    code="Exclusive",
    concerns=_some_alone,
    word="exclusive",
    relaxes="domains of its own",
)

SPARES = Requirement(
    "spares",
    "the Policy keeps nodes free for failures",
    of_all=_asks_for_spares,
    drop=_without_spares,
    code="Spares",
    concerns=lambda instance, _gang, _pods: bool(spare_nodes(instance)),
    operator=True,
)


DECLARED = (
    Declaration(
        "balance",
        (BALANCE,),
        gang_key=lambda _instance, gang: gang.balance,
        own_variables=lambda _instance, gang: may_be_uneven(gang),
    ),
    Declaration(
        "exclusive",
        (EXCLUSIVE,),
        gang_key=lambda _instance, gang: gang.exclusive,
        own_variables=lambda _instance, gang: gang.exclusive is not None,
    ),
    Declaration("spares", (SPARES,)),
)

WHOLE_DOMAINS = Declaration(
    "whole domains",
    breaking=breaking,
    admits=lambda space, gang, pods: balanced(space.instance, gang, (*space.pods[gang], *pods)),
    elsewhere=True,
    on_empty=True,
)
"""What breaks any of the three: together, since who goes back for one may be in the way of another."""
