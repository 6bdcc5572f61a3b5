"""What the options of a run and an earlier plan change in an instance before its search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from models.apply.notes import EvictNote
from models.documents.base import made
from models.documents.gang import NODE_NAME, NodeExpression
from models.documents.policy import NO_COST, Objective
from models.instance.gang import Gang, NodeAffinity, PlannedPod, Role
from models.instance.instance import EarlierPlan, Instance
from models.instance.policy import Moves, Policy
from models.instance.solution import BACKOFF, QUEUE_LIMIT, GangDecision
from models.tiers import family
from models.units import first_of, plural, time_text
from planner.errors import Fault, InputError
from planner.read.findings import Remarks
from planner.read.instance_builder import limit_queues, paused
from planner.untrusted_text import safe

if TYPE_CHECKING:
    from models.apply.notes import Promises, Seat
    from models.documents.plan import PlanDocument, PlanGang

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
    others.insert(_place([one.name for one in others]), own or Objective(DEFRAGMENT))
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


HOLDS = ("Unsupported", "Incomplete", "Gated", QUEUE_LIMIT, BACKOFF)
"""Codes of what holds a gang: it does not wait in turn."""

_SHOWN = 3
"""Names in a remark; the rest are counted."""


def with_previous(
    instance: Instance, previous: PlanDocument, file: str
) -> tuple[Instance, tuple[str, ...]]:
    """The instance with ``planned`` of every gang as the previous plan has it, what it promised, and remarks.

    Gangs are matched by namespace and name, pods by role and index. Raises InputError where both the
    plan and the instance name their cluster and these differ.
    """
    before, now = previous.instance.cluster.metadata.uid, instance.cluster.uid
    if before is not None and now is not None and before != now:
        what = f"a plan of another cluster: its uid is {safe(before)[:60]}, not {now}"
        raise InputError(Fault(what, "give a plan that was made for this cluster", file))
    nodes = {node.name: i for i, node in enumerate(instance.cluster.nodes)}
    decided: dict[tuple[str, str], PlanGang] = {}
    for one in previous.spec.gangs:
        decided.setdefault(one.key, one)
    gone = _Gone()
    gangs = tuple(
        made(Gang, gang, planned=_planned(gang, decided.get(gang.key), nodes, gone))
        for gang in instance.gangs
    )
    remarks = gone.remarks(file)
    if any(one.pods for one in decided.values()) and not any(gang.planned for gang in gangs):
        remarks.append(f"{safe(file)} places none of these gangs: no pod has a previous place")
    earlier = replace(_promised(instance, decided, gone), sound=_sound(previous))
    return replace(instance, gangs=gangs, earlier=earlier), tuple(remarks)


def with_promises(instance: Instance, noted: Promises) -> Instance:
    """The instance with what the last plan promised gangs that still wait, and ``planned`` of these alone."""
    nodes = {node.name: i for i, node in enumerate(instance.cluster.nodes)}
    gone = _Gone()
    promised = {one.gang: one for one in noted.starts}
    starts = {
        gang.key: promised[gang.key].start
        for gang in instance.gangs
        if not gang.running and gang.key in promised
    }
    gangs = tuple(
        replace(gang, planned=_places(gang, promised[gang.key].pods, nodes, gone))
        if gang.key in starts
        else gang
        for gang in instance.gangs
    )
    known = (gang.key for gang in instance.gangs if gang.key in starts or _was_known(gang, noted))
    missing = {key: frozenset(names) for key, names in gone.of.items()}
    return replace(instance, gangs=gangs, earlier=EarlierPlan(frozenset(known), starts, missing))


def _was_known(gang: Gang, noted: Promises) -> bool:
    """Whether the plan knew a gang, by the times of the gang: who was to start and waits has come since."""
    times = [gang.submitted_at]
    if gang.running:
        times += [gang.started_at, gang.runs_since]
    elif gang.key in noted.due:
        return False
    elif gang.evicted_at is not None and gang.evicted_at >= noted.at:
        return True  # by that plan
    return any(time is not None and time <= noted.at for time in times)


def _promised(
    instance: Instance, decided: Mapping[tuple[str, str], PlanGang], gone: _Gone
) -> EarlierPlan:
    """What the plan knew, and when those were to start that still wait.

    Who waits again after it ran, or was to start without such a promise, has come since.
    """
    starts = {
        gang.key: one.reserved.start
        for gang in instance.gangs
        if not gang.running
        if (one := decided.get(gang.key)) is not None and one.reserved is not None
    }
    missing = {key: frozenset(names) for key, names in gone.of.items() if key in starts}
    waits = {gang.key for gang in instance.gangs if not gang.running}
    known = (
        key
        for key, one in decided.items()
        if key not in waits or key in starts or one.decision in ("wait", "preempt")
    )
    waited = (
        key
        for key, one in decided.items()
        if one.decision == "wait" and (one.reason is None or one.reason.code not in HOLDS)
    )
    return EarlierPlan(frozenset(known), starts, missing, frozenset(waited))


def _sound(previous: PlanDocument) -> frozenset[str]:
    """Nodes that took pods on all of their GPUs."""
    return frozenset(
        node.name
        for node in previous.instance.cluster.spec.nodes
        if node.ready and not node.unschedulable
        if not node.unusable_gpus
    )


def evictions_of(previous: PlanDocument) -> list[EvictNote]:
    """Gangs that plans stopped or moved up to this one."""
    stopped = {
        one.key: one.decision == "move"
        for one in previous.spec.gangs
        if one.decision in ("preempt", "move")
    }
    found = []
    for gang in previous.instance.gangs:
        times, at, began = gang.status.evictions, gang.status.evicted_at, gang.status.started_at
        if at is not None:
            moved = bool(gang.running_pods) and (began is None or began < at)
            found.append(EvictNote(gang.key, at, max(1, times), moved))
        if gang.key in stopped:
            found.append(EvictNote(gang.key, previous.instance.now, times + 1, stopped[gang.key]))
    return found


@dataclass(slots=True)
class _Gone:
    """Pods of gangs that still exist, planned for a node or a seat that does not.

    ``of``: the nodes, by gang.
    """

    nodes: Counter[str] = field(default_factory=Counter)
    pods: list[str] = field(default_factory=list)
    of: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def remarks(self, file: str) -> list[str]:
        found = []
        if self.nodes:
            pods = plural(self.nodes.total(), "pod")
            found.append(
                f"{safe(file)} places {pods} on nodes that do not exist: {_some(self.nodes)}"
            )
        if self.pods:
            pods = plural(len(self.pods), "pod")
            found.append(
                f"{safe(file)} places {pods} that their gangs do not have: {_some(self.pods)}"
            )
        return found


def _some(names: Iterable[str]) -> str:
    return first_of([safe(name)[:80] for name in sorted(set(names))], _SHOWN)


def _planned(
    gang: Gang, decided: PlanGang | None, nodes: Mapping[str, int], gone: _Gone
) -> tuple[PlannedPod, ...]:
    """Previous places, reserved ones too, of the pods that the gang may still have, on nodes that exist."""
    held = None if decided is None else decided.reserved
    pods = () if decided is None else decided.pods or (() if held is None else held.pods)
    return _places(gang, [(pod.role, pod.index, pod.node) for pod in pods], nodes, gone)


def _places(
    gang: Gang, pods: Iterable[Seat], nodes: Mapping[str, int], gone: _Gone
) -> tuple[PlannedPod, ...]:
    roles = {role.name: i for i, role in enumerate(gang.roles)}
    places: dict[tuple[int, int], int] = {}
    for name, index, on in pods:
        role, node = roles.get(name), nodes.get(on)
        if role is None or index not in gang.roles[role].indices(gang.roles[role].max):
            gone.pods.append(f"{gang.namespace}/{gang.name} {name} {index}")
        elif node is None:
            gone.nodes[on] += 1
            gone.of.setdefault(gang.key, set()).add(on)
        else:
            places.setdefault((role, index), node)
    return tuple(PlannedPod(role, index, node) for (role, index), node in sorted(places.items()))
