"""What a plan orders: pods to start and to stop, sizes to change, and what it assumes of nodes.

A plan without the identity of its cluster or of a pod cannot be ordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from models.apply.part_orders import Instances, NewInstance, Shares, needing_an_administrator
from models.apply.terms import Terms
from models.documents.cluster import HOSTNAME_LABEL, ClusterSpec
from models.documents.gang import GangDocument, PodDocument, RoleDocument
from models.documents.plan import PlanDocument, PlanGang, PlanPod
from models.instance.gang import OFFERS
from models.instance.policy import SLURM
from models.instance.solution import STARTS
from models.mig import RESOURCE
from models.units import shown

Key = tuple[str, str]
"""(namespace, name) of a pod or a gang."""


@dataclass(frozen=True, slots=True)
class PodStart:
    """A pod to start on ``node``. ``gpus``: ascending indices; None if the node chooses.

    ``gpu_count``: whole GPUs it requests. ``requests``: other resources (cpu in millicores, others in
    whole units), sorted. ``rank``: of its first GPU.
    ``terms``: that its gang starts under. ``shares``: the GPUs of which it gets parts, by index or name;
    empty: no part, or nobody knows of which. ``instances``: those that its claims make of GPUs.
    """

    namespace: str
    name: str
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
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def parted(self) -> tuple[int | str, ...]:
        """GPUs of which it gets parts, as far as they are known."""
        return (*self.shares, *(gpu for _, gpu, _ in self.instances))


@dataclass(frozen=True, slots=True)
class PodStop:
    """A running pod to evict: its gang is stopped, shrinks or moves."""

    namespace: str
    name: str
    uid: str
    role: str
    index: int
    node: str
    gpu_count: int

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Resize:
    """A role whose controller is to have ``after`` pods in place of ``before``, those that wait included."""

    role: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class GangActions:
    """What the plan does with one gang.

    ``decision``: place, complete, move, resize or preempt (keep and wait order nothing).
    ``starts``: pods to start together, by (role, index); ``stops``: pods to evict before; ``stays``: uids
    of its running pods that it keeps meanwhile.
    ``submitted_at``: seconds since the epoch; None if unknown.
    ``members``: for every resized role, one running pod, whose controller has the scale.
    ``known``: uids of all its pods that exist.
    """

    namespace: str
    name: str
    decision: str
    priority: int
    submitted_at: int | None = None
    starts: tuple[PodStart, ...] = ()
    stops: tuple[PodStop, ...] = ()
    stays: tuple[str, ...] = ()
    resizes: tuple[Resize, ...] = ()
    members: tuple[tuple[str, Key], ...] = ()
    known: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def grows(self) -> bool:
        """Whether its controller has yet to create pods."""
        return any(not order.uid for order in self.starts)


@dataclass(frozen=True, slots=True)
class NodeAssumptions:
    """What the plan assumes of a node it starts pods on.

    ``gpus``: healthy. ``domains``: (level label, value) of the topology levels that have a label.
    ``labels``: the node's labels that its pods select on; ``absent``: those it does not have.
    ``taints``: (key, value, effect).
    """

    name: str
    gpus: int
    domains: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    absent: tuple[str, ...] = ()


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
    partitioned first.
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

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods to start or stop, sorted."""
        return tuple(sorted({gang.namespace for gang in self.gangs if gang.starts or gang.stops}))


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
        if instance.changes is not None:
            raise InapplicablePlanError(
                f"the plan is a what-if {instance.what_if}: it is about other nodes or gangs than there are",
                "plan without --add, --drain, --without and --relax",
            )
        if any(gang.status.scheduler == SLURM for gang in instance.gangs):
            raise InapplicablePlanError(
                f"the plan is a what-if {instance.what_if}: Slurm starts its jobs itself",
                "docs/with-slurm.md says how to move a queue over",
            )
        raise InapplicablePlanError(
            f"the plan is a what-if {instance.what_if}: gangplan starts only what waits for it",
            "plan without schedulerNames, with --scheduler mine; docs/with-kueue.md, with-volcano.md,"
            " with-kai.md and with-slurm.md say how to move a queue over",
        )
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
    unpartitioned, shares = _needing_partitions(plan), Shares(plan)
    instances = Instances(plan)
    for decided in plan.spec.gangs:
        if decided.key in unpartitioned:
            continue
        now = plan.metadata.created_at
        orders = _GangOrders(decided, gangs[decided.key], now, shares, instances)
        ordered.append(orders.order())
        if (whole := orders.kept()) is not None:
            kept[decided.key] = whole
        for pod in ordered[-1].starts:
            labels = selected.setdefault(pod.node, set(instance.policy.spec.node_selector))
            labels.update(_selected_labels(orders.roles[pod.role]))
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
    )


def _needing_partitions(plan: PlanDocument) -> tuple[Key, ...]:
    """Gangs that start on GPUs which have to be partitioned first.

    Raises InapplicablePlanError if gangs are stopped or moved as well: perhaps for these.
    """
    nodes = needing_an_administrator(plan)
    anew = {(one.node, one.gpu) for one in plan.spec.partitions if one.anew and one.node in nodes}
    gangs = plan.instance.gangs_by_key()
    found = tuple(
        decided.key
        for decided in plan.spec.gangs
        if decided.decision in STARTS
        and any(
            (pod.node in nodes and _takes_part(gangs[decided.key], pod.role))
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


def _takes_part(gang: GangDocument, role: str) -> bool:
    """Whether pods of the role ask for an instance of a GPU."""
    own = (one.requests for one in gang.spec.roles if one.name == role)
    return any(name.startswith(RESOURCE) for requests in own for name in requests)


_GROWING = ("resize", "move")
"""Decisions that may add pods to a running gang."""


class _GangOrders:
    """The decision on one gang, against the pods that exist."""

    def __init__(
        self,
        decided: PlanGang,
        gang: GangDocument,
        now: int,
        shares: Shares,
        instances: Instances,
    ) -> None:
        self.decided = decided
        self.gang = gang
        self.terms = _terms(decided, gang, now)
        self.shares = shares
        self.instances = instances
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
        uid = planned.uid
        if uid is None and pod is not None:
            uid = pod.uid
        grows = pod is None and self.decided.decision in _GROWING
        if uid is None and not grows:
            hint = "plan from a snapshot of the cluster, in which all pods exist"
            raise self._unknown(f"starts the pod {shown(planned.name)}", hint)
        role = self.roles[planned.role]
        shares = self.shares.next(planned.node, role.all_requests)
        instances = self.instances.next(planned.node, role.all_requests)
        if not self.instances.exact:
            shares, instances = (*shares, *(gpu for _, gpu, _ in instances)), ()
        return PodStart(
            namespace=self.decided.namespace,
            name=planned.name,
            uid=uid or "",  # a gang that grows has pods that do not exist yet
            role=planned.role,
            index=planned.index,
            node=planned.node,
            gpus=planned.gpus,
            gpu_count=role.gpus,
            requests=tuple(sorted(role.requests.items())),
            rank=planned.rank,
            terms=self.terms,
            shares=shares,
            instances=instances,
        )

    def _stop(self, pod: PodDocument) -> PodStop:
        namespace, name = self._name(pod)
        assert pod.node is not None  # it runs
        if pod.uid is None:
            raise self._unknown(
                f"stops the pod {shown(name)}", "plan from a snapshot of the cluster"
            )
        return PodStop(
            namespace=namespace,
            name=name,
            uid=pod.uid,
            role=pod.role,
            index=pod.index,
            node=pod.node,
            gpu_count=self.roles[pod.role].gpus,
        )

    def _unknown(self, what: str, hint: str) -> InapplicablePlanError:
        gang = shown("/".join(self.decided.key))
        return InapplicablePlanError(
            f"the plan {what} of gang {gang} without knowing its uid", hint
        )


def _terms(decided: PlanGang, gang: GangDocument, now: int) -> Terms:
    """What the plan starts the gang under. ``now``: of the plan; a gang that runs on keeps start and end."""
    spec, status, begun, since = gang.spec, gang.status, now, None
    if decided.decision != "move" and gang.running_pods and status.started_at is not None:
        begun = status.started_at
        since = begun if status.runs_since is None else status.runs_since
    until = None if spec.expected_duration_s is None else begun + spec.expected_duration_s
    return Terms(spec.priority, spec.preemptible, spec.movable, until, spec.queue, since)


def _counts(slots: Iterable[Slot]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for role, _ in slots:
        counts[role] = counts.get(role, 0) + 1
    return counts


def _selected_labels(role: RoleDocument) -> set[str]:
    """Keys of the labels that a role's selector and affinity look at."""
    expressions = (one for term in role.node_affinity for one in term)
    return {*role.node_selector, *(one.key for one in expressions if not one.field)}


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
        yield NodeAssumptions(
            name=node.name,
            gpus=installed - node.unusable_gpus,
            domains=tuple(
                (label, node.domains[level])
                for level, label in level_labels.items()
                if level in node.domains
            ),
            labels=tuple(sorted((key, node.labels[key]) for key in wanted if key in node.labels)),
            taints=tuple(sorted((t.key, t.value, t.effect) for t in taints)),
            absent=tuple(sorted(wanted - node.labels.keys())),
        )
