"""What the options of a run change in the policy and in the instance, before the search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce

from models.apply.notes import EvictNote
from models.documents.gang import NODE_NAME, NodeExpression
from models.documents.policy import NO_COST, Objective
from models.instance.gang import Gang, NodeAffinity, PlannedPod, Role
from models.instance.instance import EarlierPlan, Instance
from models.instance.policy import Moves, Policy
from models.instance.solution import GangDecision
from models.tiers import family
from models.units import time_text
from planner.read.findings import Remarks
from planner.read.instance_builder import limit_queues, paused

DEFRAGMENT = "defragment"
STABILITY = "stability"


def with_defragment(policy: Policy) -> Policy:
    """The policy with ``defragment`` before ``disruption``, so that gangs move for it.

    Without ``disruption`` it follows the tiers about which gangs run, or comes first. An earlier position
    is kept.
    """
    names = [objective.name for objective in policy.objectives]
    own = next((one for one in policy.objectives if one.name == DEFRAGMENT), None)
    if own is not None and DEFRAGMENT not in names[_place(names) :]:
        return policy
    others = [one for one in policy.objectives if one.name != DEFRAGMENT]
    place = _place([one.name for one in others])
    others.insert(place, own or Objective(DEFRAGMENT))
    return replace(policy, objectives=tuple(others))


def _place(names: list[str]) -> int:
    if "disruption" in names:
        return names.index("disruption")
    return max((i + 1 for i, name in enumerate(names) if family(name).fused), default=0)


def with_stability(policy: Policy) -> Policy:
    """The policy with ``stability`` last, unless it is listed."""
    if any(objective.name == STABILITY for objective in policy.objectives):
        return policy
    return replace(policy, objectives=(*policy.objectives, Objective(STABILITY)))


def freeze_running(instance: Instance, namespaces: Collection[str] | None = None) -> Instance:
    """The instance with running gangs that cannot be stopped, moved or shrunk.

    ``namespaces``: only gangs of these; None: all. They may still be completed, and grow by pods that exist.
    """
    gangs = tuple(
        replace(_within_its_pods(gang), preemptible=False, movable=False)
        if gang.running and (namespaces is None or gang.namespace in namespaces)
        else gang
        for gang in instance.gangs
    )
    return replace(instance, gangs=gangs)


def _within_its_pods(gang: Gang) -> Gang:
    """The gang with roles that grow no further than its pods, so that no controller has to create any."""
    most = [role.min for role in gang.roles]
    for pod in gang.pods:
        most[pod.role] = max(most[pod.role], pod.index + 1 - gang.roles[pod.role].first_index)
    roles = zip(gang.roles, most, strict=True)
    return replace(gang, roles=tuple(replace(one, max=min(one.max, top)) for one, top in roles))


def at_no_price(instance: Instance, movable: Collection[int]) -> Instance:
    """The instance in which these running gangs (indices) move at no price, as an audit supposes.

    Only who runs, and how fast, counts: of the objectives goodput is left. No gang is stopped, and running
    gangs keep their numbers of pods. Reservations, limits on moves and disruption budgets are left out. Where
    GPUs of an unknown index matter, nodes decide about GPUs: a plan with indices would gain only by knowing
    them.
    """
    later = instance.now + 1
    gangs = tuple(
        replace(
            gang,
            movable=index in movable,
            preemptible=False,
            resize_after=max(later, gang.resize_after or later) if gang.elastic else None,
            pods=tuple(replace(pod, budgets=()) for pod in gang.pods),
        )
        if gang.running
        else gang
        for index, gang in enumerate(instance.gangs)
    )
    policy = instance.policy
    free = replace(
        policy,
        objectives=(Objective("goodput"),),
        disruption=replace(policy.disruption, weight=NO_COST),
        moves=None,
        reservations=None,
        gpu_binding="none" if _hides_gpus(instance) else policy.gpu_binding,
    )
    cluster = replace(instance.cluster, budgets=())
    return replace(instance, cluster=cluster, gangs=gangs, policy=free)


def starting_from(
    instance: Instance, plan: Sequence[GangDecision], *, max_gangs: int | None = None
) -> Instance:
    """The instance whose search begins with this plan. ``max_gangs``: that move at most."""
    gangs = tuple(
        replace(gang, planned=tuple(PlannedPod(pod.role, pod.index, pod.node) for pod in one.pods))
        for gang, one in zip(instance.gangs, plan, strict=True)
    )
    earlier = EarlierPlan(frozenset(gang.key for gang in gangs), {})
    policy = replace(instance.policy, moves=Moves(max_gangs).or_none)
    return replace(instance, gangs=gangs, earlier=earlier, policy=policy)


def _hides_gpus(instance: Instance) -> bool:
    """Whether some running pod holds GPUs of unknown index on a server where the index matters."""
    models = (
        instance.cluster.nodes[pod.node].model
        for gang in instance.gangs
        for pod in gang.pods
        if pod.node is not None and pod.gpus is None and gang.roles[pod.role].gpus
    )
    return any(model is not None and not model.switched for model in models)


def avoiding(
    instance: Instance, avoid: Iterable[tuple[tuple[str, str], str]]
) -> tuple[Instance, tuple[str, ...]]:
    """The instance with gangs kept off nodes on which they did not start, and remarks.

    ``avoid``: (gang, node). Nodes on which the gang has pods stay allowed.
    """
    known = {node.name for node in instance.cluster.nodes}
    by_gang: dict[tuple[str, str], list[str]] = {}
    for key, name in avoid:
        if name in known:
            by_gang.setdefault(key, []).append(name)
    gangs, remarks = list(instance.gangs), []
    for index, gang in enumerate(instance.gangs if by_gang else ()):
        nodes = [pod.node for pod in gang.running_pods if pod.node is not None]
        standing = {instance.cluster.nodes[node].name for node in nodes}
        names = tuple(sorted({*by_gang.get(gang.key, ())} - standing))
        if names:
            roles = tuple(replace(role, node_affinity=_off(role, names)) for role in gang.roles)
            gangs[index] = replace(gang, roles=roles)
            subject = f"Gang {gang.namespace}/{gang.name}"
            where = ", ".join(names)
            remarks.append(f"{subject}: avoids node {where}, where it did not start")
    return replace(instance, gangs=tuple(gangs)) if remarks else instance, tuple(remarks)


def _as_planned(gang: Gang) -> bool:
    """Whether each of its running pods stands where an earlier plan put it."""
    places = {(pod.role, pod.index, pod.node) for pod in gang.planned}
    return all((pod.role, pod.index, pod.node) in places for pod in gang.running_pods)


RETURNS_S = 600
"""So soon after an eviction its controller has made the pods of a gang again."""


def with_evictions(instance: Instance, evicted: Iterable[EvictNote]) -> Instance:
    """The instance with what is known of evictions and moves by plans.

    What the input states counts where that is later, or more. A gang that runs since before was not
    stopped, nor moved unless it stands where it should; one that was moved and waits does not pause. Whose
    pods were made again soon has waited since before.
    """
    known: dict[tuple[str, str], list[EvictNote]] = {}
    for one in evicted:
        known.setdefault(one.gang, []).append(one)
    if not known:
        return instance

    def stopped(gang: Gang) -> Gang:
        return reduce(_counted, known.get(gang.key, ()), gang)

    gangs = paused(replace(instance, gangs=tuple(map(stopped, instance.gangs))))
    return replace(instance, gangs=limit_queues(gangs, instance.policy.queue_limit, Remarks()))


def _counted(gang: Gang, one: EvictNote) -> Gang:
    first, at = gang.submitted_at, one.at
    if first is not None and one.since is not None and first <= at + RETURNS_S:
        gang = replace(gang, submitted_at=min(first, one.since))
    anew = gang.started_at is not None and gang.started_at >= at
    applied = anew or (one.moved and _as_planned(gang)) if gang.running else not one.moved
    if not applied:
        return gang
    last = max(at, gang.evicted_at or at)
    return replace(gang, evicted_at=last, evictions=max(one.times, gang.evictions))


def _off(role: Role, nodes: tuple[str, ...]) -> NodeAffinity:
    """The role's node affinity, with these nodes excluded."""
    off = NodeExpression(NODE_NAME, "NotIn", nodes, field=True)
    # A term without expressions matches no node, and must go on doing so.
    return tuple((*term, off) if term else term for term in role.node_affinity) or ((off,),)


def since_release(
    instance: Instance, held: Iterable[tuple[tuple[str, str], int]]
) -> tuple[Instance, tuple[str, ...]]:
    """The instance whose waiting gangs are no older than their release by a gate of others, and remarks.

    ``held``: (gang, last time at which such a gate was seen, seconds since the epoch); a gang without a name
    stands for all of its namespace. Who parks a gang behind his own gate collects no age there.
    """
    known = dict(held)
    if not known or instance.policy.kubernetes.trust_submitted_at:
        return instance, ()
    gangs, remarks = list(instance.gangs), []
    for index, gang in enumerate(gangs):
        seen = max(known.get(gang.key, 0), known.get((gang.namespace, ""), 0))
        if gang.running or gang.submitted_at is None or gang.submitted_at >= seen:
            continue
        gangs[index] = replace(gang, submitted_at=seen)
        subject, since = f"Gang {gang.namespace}/{gang.name}", time_text(seen)
        remarks.append(
            f"{subject}: waits since {since}, when another gate was last seen on its pods"
        )
    return replace(instance, gangs=tuple(gangs)) if remarks else instance, tuple(remarks)
