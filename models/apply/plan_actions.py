"""What a plan orders: pods to start and to stop, sizes to change, and what it assumes of nodes.

A plan without the identity of its cluster or of a pod cannot be ordered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from models.apply.placement_requests import MODE, request_of
from models.apply.terms import Terms
from models.documents.base import made
from models.documents.cluster import HOSTNAME_LABEL, ClusterSpec
from models.documents.gang import GangDocument, PodDocument
from models.documents.plan import PlanDocument, PlanGang, PlanPod
from models.gpu_shares import SHARE, amount_of, share_in
from models.instance.gang import OFFERS
from models.instance.policy import SLURM
from models.instance.solution import STARTS
from models.mig import RESOURCE, board_named, instance_in, resource_of
from models.units import shown, time_text

NewInstance = tuple[str, int, int]
"""An instance that a claim makes: its resource, the GPU, and a mask of its memory slices."""


def needing_an_administrator(plan: PlanDocument) -> set[str]:
    """Nodes on which GPUs have to be partitioned before pods start.

    Claims that are allocated for pods make their instances, and so does HAMi on cards in MIG mode.
    """
    backend = plan.instance.policy.spec.kubernetes.gpu_backend
    if backend == "dra":
        return set()
    ready = set[tuple[str, int]]()
    if backend == "hami":
        for node in plan.instance.cluster.spec.nodes:
            ready.update((node.name, gpu) for m in node.mig if not m.profiles for gpu in m.gpus)
    return {one.node for one in plan.spec.partitions if (one.node, one.gpu) not in ready}


class Parts:
    """Deals parts of GPUs to the pods that start, in the order of the plan.

    ``exact``: instances in just these slices; HAMi chooses them itself. First come the places of pods that
    leave, then new ones: all that a GPU is to have, so that whichever pods start first they leave room for
    the others.
    """

    def __init__(self, plan: PlanDocument) -> None:
        self._shared: dict[tuple[str, str], list[int | str | None]] = {}
        for shared in plan.spec.shares:
            gpu = shared.gpu if shared.gpu_group is None else shared.gpu_group
            for part in shared.parts:
                self._shared.setdefault((shared.node, SHARE + part), []).append(gpu)
        self._left: dict[tuple[str, str], list[NewInstance]] = {}
        backend = plan.instance.policy.spec.kubernetes.gpu_backend
        self.exact = backend == "dra"
        if backend not in ("dra", "hami"):
            return
        nodes = plan.instance.cluster.spec.nodes
        self._boards = {one.name: board_named(one.dynamic_mig or "") for one in nodes}
        self._in_use: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._leaving(plan, {(one.node, one.gpu) for one in plan.spec.partitions if one.anew})
        for one in plan.spec.partitions:
            board = self._boards[one.node]
            assert board is not None, "its GPUs may be partitioned"
            room = board.in_use(self._in_use.get((one.node, one.gpu), ()))
            places = None if room is None else board.places(one.profiles, room[0])
            for name, start in places or ():
                self._add(one.node, (resource_of(name), one.gpu, board.slices(name, start)))

    def _leaving(self, plan: PlanDocument, anew: Collection[tuple[str, int]]) -> None:
        """The places of running pods, those that leave them among what is dealt; none of GPUs ``anew``."""
        decided = {one.key: one for one in plan.spec.gangs}
        for gang in plan.instance.gangs:
            roles = {role.name: role for role in gang.spec.roles}
            own = decided.get(gang.key)
            changes = own is not None and own.decision not in ("keep", "wait")
            stays = {(pod.role, pod.index, pod.node) for pod in own.pods} if own else set()
            for pod in gang.running_pods:
                board = self._boards.get(pod.node or "")
                resource = instance_in(roles[pod.role].all_requests)
                if pod.node is None or pod.start is None or not pod.gpus:
                    continue
                if board is None or resource is None:
                    continue
                gpu, name = pod.gpus[0], board.named(resource)
                if (pod.node, gpu) in anew:
                    continue
                self._in_use.setdefault((pod.node, gpu), []).append((name, pod.start))
                if changes and (pod.role, pod.index, pod.node) not in stays:
                    self._add(pod.node, (resource, gpu, board.slices(name, pod.start)))

    def _add(self, node: str, instance: NewInstance) -> None:
        self._left.setdefault((node, instance[0]), []).append(instance)

    def shares(self, node: str, requests: Mapping[str, int]) -> tuple[int | str, ...]:
        """The GPUs that a pod shares there, if all are known: those of which most parts are left."""
        resource = share_in(requests) or ""
        left = self._shared.get((node, resource), [])
        counts, amount = Counter(left), amount_of(resource)
        chosen = sorted(counts, key=lambda gpu: -counts[gpu])[:amount] if amount > 1 else left[:1]
        for gpu in chosen:
            left.remove(gpu)
        return tuple(gpu for gpu in chosen if gpu is not None) if None not in chosen else ()

    def instances(self, node: str, requests: Mapping[str, int]) -> tuple[NewInstance, ...]:
        """The instances that claims or HAMi make for a pod that starts there."""
        found = []
        for resource, amount in sorted(requests.items()):
            left = self._left.get((node, resource), [])
            found += [left.pop(0) for _ in range(min(amount, len(left)))]
        return tuple(found)


Key = tuple[str, str]
"""(namespace, name) of a pod or a gang."""


class Named(Struct, frozen=True):
    namespace: str
    name: str

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodStart(Named, frozen=True):
    """A pod to start on ``node``. ``gpus``: ascending indices; None if the node chooses.

    ``gpu_count``: whole GPUs it requests. ``requests``: other resources (cpu in millicores, others in
    whole units), sorted. ``rank``: of its first GPU.
    ``terms``: that its gang starts under. ``shares``: the GPUs of which it gets parts, by index or name;
    empty: no part, or not known of which. ``instances``: those that its claims make of GPUs.
    """

    uid: str
    role: str
    index: int
    node: str
    gpus: tuple[int, ...] | None
    gpu_count: int
    requests: tuple[tuple[str, int], ...] = ()
    rank: int | None = None
    terms: Terms | None = None
    shares: tuple[int | str, ...] = ()
    instances: tuple[NewInstance, ...] = ()

    @property
    def parted(self) -> tuple[int | str, ...]:
        """GPUs of which it gets parts, as far as they are known."""
        return (*self.shares, *(gpu for _, gpu, _ in self.instances))


class PodStop(Named, frozen=True):
    """A running pod to evict: its gang is stopped, shrinks or moves."""

    uid: str
    role: str
    index: int
    node: str
    gpu_count: int


class Resize(Struct, frozen=True):
    """A role whose controller is to have ``after`` pods in place of ``before``, those that wait included."""

    role: str
    before: int
    after: int


class GangActions(Named, frozen=True):
    """What the plan does with one gang.

    ``decision``: place, complete, move, resize or preempt (keep and wait order nothing).
    ``starts``: pods to start together, by (role, index); ``stops``: pods to evict before; ``stays``: uids
    of its running pods that it keeps meanwhile.
    ``submitted_at``: seconds since the epoch; None if unknown.
    ``members``: for every resized role, one running pod, whose controller has the scale.
    ``known``: uids of all its pods that exist. ``on_request``: its pods are made once a request is answered.
    """

    decision: str
    priority: int
    submitted_at: int | None = None
    starts: tuple[PodStart, ...] = ()
    stops: tuple[PodStop, ...] = ()
    stays: tuple[str, ...] = ()
    resizes: tuple[Resize, ...] = ()
    members: tuple[tuple[str, Key], ...] = ()
    known: frozenset[str] = frozenset()
    on_request: bool = False

    @property
    def grows(self) -> bool:
        """Whether its controller has yet to create pods."""
        return any(not order.uid for order in self.starts)


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request, by its uid, whose gang waits, and why it does."""

    request: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeAssumptions:
    """What the plan assumes of a node it starts pods on.

    ``gpus``: healthy. ``labels``: of the topology levels, and those that its pods select on, with None for
    one that it does not have. ``taints``: (key, value, effect).
    """

    name: str
    gpus: int
    labels: tuple[tuple[str, str | None], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KeptGang:
    """A gang that runs with all pods it needs and that the plan leaves as it is.

    ``uids``: of its running pods. ``elastic``: fewer of them may be enough.
    """

    uids: tuple[str, ...]
    elastic: bool


@dataclass(frozen=True, slots=True)
class PlanActions:
    """Everything a plan orders, by gang key. ``cluster``: uid of the namespace kube-system.

    ``created_at``: of the plan, seconds since the epoch. ``gate``, ``backend``: of its Policy.
    ``kept``: running gangs that lack no pod and stay. ``unpartitioned``: gangs left out, for GPUs have to be
    partitioned first. ``waiting``: requests of gangs that the plan does not start.
    """

    plan: str
    cluster: str
    created_at: int
    gate: str
    backend: str
    gangs: tuple[GangActions, ...]
    nodes: tuple[NodeAssumptions, ...]
    kept: Mapping[Key, KeptGang] = field(default_factory=dict)
    unpartitioned: tuple[Key, ...] = ()
    waiting: tuple[WaitingRequest, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods to start or stop, sorted."""
        own = (one for one in self.gangs if one.stops or (one.starts and not one.on_request))
        return tuple(sorted({gang.namespace for gang in own}))

    @property
    def answers(self) -> bool:
        """Whether it answers requests for a placement."""
        return bool(self.waiting) or any(gang.on_request for gang in self.gangs)


_ROUNDED_S = 600

Slot = tuple[str, int]
"""(role, index) of a pod in its gang."""


class InapplicablePlanError(ValueError):
    """A plan that lacks the identity of its cluster or of a pod, or is a what-if: why, and a hint."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def plan_id(plan: PlanDocument) -> str:
    """``gp-`` and 20 hex digits of sha256 over the plan's two digests: a valid label value."""
    digests = plan.status.digests
    text = f"{digests.instance}\n{digests.spec}"
    return f"gp-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def actions_of(plan: PlanDocument) -> PlanActions:
    """What a verified plan orders.

    Raises InapplicablePlanError where the uid of the cluster or of a pod is missing, and for a what-if.
    """
    instance = plan.instance
    if instance.what_if is not None:
        why = "gangplan starts only what waits for it"
        hint = (
            "plan without schedulerNames, with --scheduler mine; docs/beside-kueue.md, beside-volcano.md,"
            " beside-kai.md and beside-slurm.md say how to move a queue over"
        )
        if instance.changes is not None:
            why = "it is about other nodes or gangs than there are"
            hint = "plan without --add, --drain, --without and --relax"
        elif any(gang.status.scheduler == SLURM for gang in instance.gangs):
            why = "Slurm starts its jobs itself"
            hint = "docs/beside-slurm.md says how to move a queue over"
        raise InapplicablePlanError(f"the plan is a what-if {instance.what_if}: {why}", hint)
    cluster = instance.cluster.metadata.uid
    if cluster is None:
        raise InapplicablePlanError(
            "the plan does not say which cluster it is for",
            "plan from a snapshot, or from objects with the namespace kube-system",
        )
    gangs = instance.gangs_by_key()
    ordered = []
    kept: dict[Key, KeptGang] = {}
    selected: dict[str, set[str]] = {}
    unpartitioned, parts = _needing_partitions(plan), Parts(plan)
    for decided in plan.spec.gangs:
        if decided.key in unpartitioned:
            continue
        orders = _GangOrders(decided, gangs[decided.key], plan.metadata.created_at, parts)
        ordered.append(orders.order())
        if (whole := orders.kept()) is not None:
            kept[decided.key] = whole
        for pod in ordered[-1].starts:
            labels = selected.setdefault(pod.node, set(instance.policy.spec.node_selector))
            role = orders.roles[pod.role]
            expressions = (one for term in role.node_affinity for one in term)
            labels.update(role.node_selector, (one.key for one in expressions if not one.field))
    kubernetes = instance.policy.spec.kubernetes
    changed = (one for one in ordered if one.starts or one.stops or one.resizes)
    return PlanActions(
        plan=plan_id(plan),
        cluster=cluster,
        created_at=plan.metadata.created_at,
        gate=kubernetes.scheduling_gate,
        backend=kubernetes.gpu_backend,
        gangs=tuple(sorted(changed, key=lambda gang: gang.key)),
        nodes=tuple(_relied(instance.cluster.spec, selected)),
        kept=kept,
        unpartitioned=unpartitioned,
        waiting=tuple(_waiting(plan)),
    )


def _waiting(plan: PlanDocument) -> Iterator[WaitingRequest]:
    gangs = plan.instance.gangs_by_key()
    for decided in plan.spec.gangs:
        pod = next((pod for pod in gangs[decided.key].status.pods if pod.mode == MODE), None)
        if pod is None or pod.uid is None or decided.reason is None or decided.decision != "wait":
            continue
        message, reserved = decided.reason.message, decided.reserved
        start = decided.expected_start if reserved is None else reserved.start
        if start is not None:  # rounded up, for each change is a write
            start += -start % _ROUNDED_S
            message += f"; expected to start at {time_text(start)}"
        yield WaitingRequest(request_of(pod.uid), message)


def _needing_partitions(plan: PlanDocument) -> tuple[Key, ...]:
    """Gangs that start on GPUs which have to be partitioned first.

    Raises InapplicablePlanError if gangs are stopped or moved as well: perhaps for these.
    """
    nodes = needing_an_administrator(plan)
    anew = {(one.node, one.gpu) for one in plan.spec.partitions if one.anew and one.node in nodes}
    parted = {
        (gang.key, role.name)
        for gang in plan.instance.gangs
        for role in gang.spec.roles
        if any(name.startswith(RESOURCE) for name in role.requests)
    }
    found = tuple(
        decided.key
        for decided in plan.spec.gangs
        if decided.decision in STARTS
        and any(
            (pod.node in nodes and (decided.key, pod.role) in parted)
            or any((pod.node, gpu) in anew for gpu in pod.gpus or ())
            for pod in decided.pods
        )
    )
    if found and any(one.decision in ("preempt", "move") for one in plan.spec.gangs):
        raise InapplicablePlanError(
            "the plan partitions GPUs, and stops or moves gangs",
            "partition the GPUs that `gangplan show` lists, then plan again",
        )
    return found


_GROWING = ("resize", "move")
"""Decisions that may add pods to a running gang."""


class _GangOrders:
    """The decision on one gang, against the pods that exist."""

    def __init__(self, decided: PlanGang, gang: GangDocument, now: int, parts: Parts) -> None:
        self.decided = decided
        self.gang = gang
        self.terms = _terms(decided, gang, now)
        self.parts = parts
        self.roles = {role.name: role for role in gang.spec.roles}

    def order(self) -> GangActions:
        decided, gang = self.decided, self.gang
        existing = {(pod.role, pod.index): pod for pod in gang.status.pods}
        changes = decided.decision not in ("keep", "wait")
        running = {slot: pod for slot, pod in existing.items() if changes and pod.node is not None}
        planned = {(pod.role, pod.index): pod for pod in decided.pods if changes}
        stopped = [slot for slot, pod in running.items() if not self._stays(pod, planned.get(slot))]
        started = [slot for slot in planned if slot not in running or slot in stopped]
        resizes = self._resizes(_counts(running), _counts(existing), _counts(planned))
        members = {slot[0]: self._name(running[slot]) for slot in sorted(running, reverse=True)}
        return GangActions(
            namespace=decided.namespace,
            name=decided.name,
            decision=decided.decision,
            priority=gang.spec.priority,
            submitted_at=gang.queued_at,
            starts=tuple(self._start(planned[s], existing.get(s)) for s in sorted(started)),
            stops=tuple(self._stop(running[slot]) for slot in sorted(stopped)),
            stays=tuple(
                pod.uid
                for slot, pod in sorted(running.items())
                if pod.uid and stopped and slot not in stopped
            ),
            resizes=resizes,
            members=tuple((one.role, members[one.role]) for one in resizes if one.role in members),
            known=frozenset(pod.uid for pod in existing.values() if pod.uid is not None),
            on_request=any(pod.mode == MODE for pod in existing.values()),
        )

    def kept(self) -> KeptGang | None:
        """The gang if the plan keeps it and every role has the pods it needs."""
        running = self.gang.running_pods if self.decided.decision == "keep" else ()
        counts = _counts((pod.role, pod.index) for pod in running)
        spans = {role.name: role.span for role in self.gang.spec.roles}
        if not running or any(counts.get(name, 0) < span[0] for name, span in spans.items()):
            return None
        uids = tuple(pod.uid or "" for pod in running)
        return KeptGang(uids, any(least < most for least, most, _ in spans.values()))

    def _stays(self, pod: PodDocument, planned: PlanPod | None) -> bool:
        """Whether a running pod keeps its place; a gang that moves restarts only what moves."""
        if planned is None or planned.node != pod.node:
            return False
        known = pod.gpus is not None and planned.gpus is not None and self.roles[pod.role].gpus
        return self.decided.decision != "move" or not known or pod.gpus == planned.gpus

    def _resizes(
        self, running: Mapping[str, int], existing: Mapping[str, int], planned: Mapping[str, int]
    ) -> tuple[Resize, ...]:
        """Roles that shrink, or grow beyond the pods that exist: pods that wait are just started.

        A gang that moves with fewer pods needs none of that: those that come back too many wait.
        """
        if self.decided.decision not in _GROWING:
            return ()
        shrinks = self.decided.decision == "resize"
        return tuple(
            Resize(role, existing.get(role, 0), planned.get(role, 0))
            for role in self.roles
            if (shrinks and planned.get(role, 0) < running.get(role, 0))
            or planned.get(role, 0) > existing.get(role, 0)
        )

    def _name(self, pod: PodDocument) -> Key:
        return (self.decided.namespace, self.gang.pod_name(pod))

    def _start(self, planned: PlanPod, pod: PodDocument | None) -> PodStart:
        uid = pod.uid if planned.uid is None and pod is not None else planned.uid
        grows = pod is None and self.decided.decision in _GROWING
        if uid is None and not grows:
            hint = "plan from a snapshot of the cluster, in which all pods exist"
            raise self._unknown(f"starts the pod {shown(planned.name)}", hint)
        role = self.roles[planned.role]
        shares = self.parts.shares(planned.node, role.all_requests)
        instances = self.parts.instances(planned.node, role.all_requests)
        if not self.parts.exact:
            shares, instances = (*shares, *(gpu for _, gpu, _ in instances)), ()
        return made(
            PodStart,
            planned,
            namespace=self.decided.namespace,
            uid=uid or "",  # a gang that grows has pods that do not exist yet
            gpu_count=role.gpus,
            requests=tuple(sorted(role.requests.items())),
            terms=self.terms,
            shares=shares,
            instances=instances,
        )

    def _stop(self, pod: PodDocument) -> PodStop:
        namespace, name = self._name(pod)
        if pod.uid is None:
            hint = "plan from a snapshot of the cluster"
            raise self._unknown(f"stops the pod {shown(name)}", hint)
        gpus = self.roles[pod.role].gpus
        return made(PodStop, pod, namespace=namespace, name=name, gpu_count=gpus)

    def _unknown(self, what: str, hint: str) -> InapplicablePlanError:
        gang = shown("/".join(self.decided.key))
        what = f"the plan {what} of gang {gang} without knowing its uid"
        return InapplicablePlanError(what, hint)


def _terms(decided: PlanGang, gang: GangDocument, now: int) -> Terms:
    """What the plan starts the gang under. ``now``: of the plan; a gang that runs on keeps start and end."""
    spec, status, begun, since = gang.spec, gang.status, now, None
    if decided.decision != "move" and gang.running_pods and status.started_at is not None:
        begun = status.started_at
        since = begun if status.runs_since is None else status.runs_since
    until = None if spec.expected_duration_s is None else begun + spec.expected_duration_s
    return Terms(spec.priority, spec.preemptible, spec.movable, until, spec.queue, since)


def _counts(slots: Iterable[Slot]) -> Counter[str]:
    return Counter(role for role, _ in slots)


def _relied(cluster: ClusterSpec, selected: Mapping[str, set[str]]) -> Iterator[NodeAssumptions]:
    level_labels = {level.name: level.label for level in cluster.levels if level.label is not None}
    models = {model.name: model.gpus for model in cluster.server_models}
    for node in cluster.nodes:
        if node.name not in selected:
            continue
        wanted = {key for key in selected[node.name] if not key.startswith(OFFERS)}
        wanted -= {*level_labels.values(), HOSTNAME_LABEL}
        installed = 0 if node.model is None else models[node.model]
        taints = (t for t in node.taints if t.effect != "PreferNoSchedule")
        at = node.domains
        places = ((label, at[level]) for level, label in level_labels.items() if level in at)
        yield NodeAssumptions(
            name=node.name,
            gpus=installed - node.unusable_gpus,
            labels=(*places, *((key, node.labels.get(key)) for key in sorted(wanted))),
            taints=tuple(sorted((t.key, t.value, t.effect) for t in taints)),
        )
