"""Pods: what each requests, where it runs or waits, what it holds, and whether gangplan places it.

Nothing raises; what a pod holds is never forgotten; a malformed pod does not change others. What gangplan
added to the spec of a pod that it started is no wish of its gang; what the pod itself asked for stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.apply.intents import PLAN, read_intent
from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression
from models.instance.policy import KubernetesPolicy
from models.mig import RESOURCE
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import IMPLICIT, ClaimedGpus, Claims, Sort
from planner.read.kube.devices.wants import unallocatable
from planner.read.kube.dialects import hami, hived, kai, kueue
from planner.read.kube.lookup import Tree, at, flag, items, mapping, text, whole
from planner.read.kube.nodes.gpus import NVIDIA, names_parts
from planner.read.kube.pods.constraints import Constraints
from planner.read.kube.pods.holdings import (
    Group,
    Holding,
    group_shares,
    is_taken,
    read_holding,
    settle,
)
from planner.read.kube.pods.parts import OF_PARTS, drop_part, with_instance, with_part
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER, FINISHED, Places, read_placement
from planner.read.kube.pods.pod_rules import REQUIRED
from planner.read.kube.pods.requests import (
    A_FRACTION,
    CONTAINERS,
    NO_CLAIM,
    PART,
    TWO_NAMES,
    UNREADABLE,
    GpuRequest,
    PodRequests,
    effective_requests,
    gpu_request,
    is_about_gpus,
    is_gpu_name,
    what_requests,
)
from planner.read.kube.pods.room import settle_room
from planner.read.kube.pods.volumes import read_volumes
from planner.read.kube.records import KubeNode, KubeObject, KubePod, Objects

MAX_PRIORITY = 2_000_000_000
"""Largest priority, either sign; Kubernetes' own two classes lie at and above it."""

MAX_RESOURCES = 100
"""Most different resources that a waiting pod may request."""

TOO_MANY_RESOURCES = f"requests of more than {MAX_RESOURCES} different resources"

NOT_OFFERED = "requests GPUs by a name that its node does not offer; it holds none"

NO_RESERVATION = (
    "requests a part of a GPU from KAI, and no pod reserves one for it on its node; it holds none"
)
NO_HIVED = "requests GPUs from HiveD, which is not its scheduler; it holds none"
HIVED_HINT = "list HiveD's scheduler under kubernetes.otherSchedulers in a Policy"

ACK_TOPOLOGY = "gpu-topology"
"""Label of pods that ACK schedules by topology; its value is the name of their gang."""


def read_pods(
    found: Objects,
    nodes: Sequence[KubeNode],
    policy: KubernetesPolicy,
    remarks: Remarks,
    expected: Sequence[KubeObject] = (),
) -> list[KubePod]:
    """Every pod, sorted by namespace and name, with its holdings settled against all others.

    ``expected``: pods that do not exist yet and are read like any others.
    """
    objects = [*found.of("Pod", ""), *expected]
    reader = _Reader(found, nodes, policy, remarks)
    reader.reserved = _reserved(objects, frozenset(policy.gpu_resources))
    pods: list[KubePod] = []
    holdings: dict[tuple[str, str], Holding] = {}
    for one in sorted(objects, key=lambda pod: (pod.namespace, pod.name)):
        pod, holding = reader.read(one)
        pods.append(pod)
        if holding is not None:
            holdings[pod.key] = holding
    read_volumes(pods, found, policy, remarks)
    settle_room(pods, holdings, found, reader.places.nodes, policy.other_schedulers, remarks)
    by_node: dict[str, list[Holding]] = {}
    for holding in holdings.values():
        if holding.pod.node is not None and holding.pod.holds_room:
            by_node.setdefault(holding.pod.node, []).append(holding)
    for name in sorted(by_node):
        settle(reader.places.nodes[name], by_node[name], remarks)
    return pods


def _reserved(pods: Sequence[KubeObject], names: frozenset[str]) -> dict[str, set[Group]]:
    """By node the groups of KAI for which a pod there has a GPU, by a name that its kubelet counts."""
    found: dict[str, set[Group]] = {}
    for pod in pods:
        node, groups = text(pod.tree, "spec", "nodeName"), group_shares(pod)
        if not (node and groups) or text(pod.tree, "status", "phase") in FINISHED:
            continue
        if not names.isdisjoint(effective_requests(pod.tree).amounts):
            found.setdefault(node, set()).update(groups)
    return found


class _Reader:
    """Everything of the input that a single pod is read against."""

    def __init__(
        self, found: Objects, nodes: Sequence[KubeNode], policy: KubernetesPolicy, remarks: Remarks
    ) -> None:
        self.places = Places.of(nodes)
        self.policy = policy
        self.remarks = remarks
        self.claims = Claims(found, nodes)
        self.priorities = _Priorities.of(found)
        self.constraints = Constraints(found, policy.ignore, remarks)
        self.known = frozenset({"cpu", "memory"}.union(*(node.allocatable for node in nodes)))
        self.mig_kinds = {node.mig_kinds for node in nodes if node.mig_kinds}
        self.reserved: dict[str, set[Group]] = {}
        self._asked: dict[tuple[int, ...], tuple[object, PodRequests]] = {}
        self._others: dict[int, dict[str, int]] = {}
        self.largest = max((node.gpus for node in nodes if node.shared is None), default=0)

    def read(self, object_: KubeObject) -> tuple[KubePod, Holding | None]:
        """The pod read by itself, and what it claims to hold."""
        requests = self._effective(object_)
        claimed = self.claims.of(object_)
        request = gpu_request(
            requests.amounts,
            object_.annotations,
            self.policy.gpu_resources,
            self.claims.classes.extended_resources,
        )
        pod = KubePod(
            object_,
            gpu_resource=request.resource or claimed.driver,
            requests={**self._requests(requests), **claimed.instances},
            fabric=claimed.fabric,
            topology_scheduled=bool(object_.labels.get(ACK_TOPOLOGY)),
        )
        read_placement(pod, claimed, self.places, self.policy, self.remarks)
        pod.made = tuple(claimed.made) if pod.node == claimed.node else ()
        request = self._shared(pod, request)
        if (why := self._ungranted(pod, request, requests.amounts)) is not None:
            self.remarks.add(pod.subject, why, HIVED_HINT if why == NO_HIVED else None)
            request = GpuRequest()
            drop_part(pod)
        node = self.places.nodes.get(pod.node or "")
        if node is not None and PART in node.allocatable:
            request = _as_part(pod, request)
        holding = self._holding(pod, requests, request, claimed)
        if requests.unreadable:
            what = "requests an amount that cannot be read; it counts as 0"
            self.remarks.add(pod.subject, what)
        spec = mapping(pod.object.tree, "spec") if node is None else unpinned_spec(pod, node)
        self.constraints.read(pod, spec)
        if pod.node is None and selects_parts(pod.selector, pod.affinity):
            request = _as_part(pod, request)
        pod.gpus = self._requested_gpus(pod, request, claimed)
        pod.wants_gpus = bool(
            pod.gpus
            or request.fraction
            or request.hived
            or claimed
            or claimed.part
            or claimed.instances
        ) or any(map(is_about_gpus, requests.amounts))
        pod.indices = None if pod.gpus else ()
        problems = [
            *pod.unsupported,
            *_problems(requests, request, claimed, planned=pod.planned),
        ]
        problems += self._unknown_names(requests, request)
        if self.policy.gpu_backend == "dra" and pod.to_place and pod.mode is not None:
            problems += unallocatable(object_, self.claims)
        if len(requests.amounts) > MAX_RESOURCES:
            problems = [TOO_MANY_RESOURCES]
        pod.unsupported = tuple(dict.fromkeys(problems))
        pod.priority = self._priority(object_, queued=kueue.GATE in pod.gates)
        return pod, holding

    def _effective(self, object_: KubeObject) -> PodRequests:
        """Its effective requests; pods share the trees that say the same, which are kept for that."""
        parts = what_requests(object_.tree)
        same = tuple(map(id, parts))
        if same not in self._asked:
            self._asked[same] = (parts, effective_requests(object_.tree))
        return self._asked[same][1]

    def _shared(self, pod: KubePod, request: GpuRequest) -> GpuRequest:
        """The request with the part of a GPU that it is, which is among the pod's other requests."""
        node = self.places.nodes.get(pod.node or "")
        if node is not None and node.shared is not None:
            return request  # none of its GPUs is planned
        if self.mig_kinds and hami.wants_instance(pod.annotations):
            return with_instance(request, pod, self.places.nodes, self.mig_kinds, self.remarks)
        found = with_part(request, pod.object, pod.scheduler, self.remarks)
        if found.part is not None or found.gpus != request.gpus:
            pod.requests = {k: v for k, v in pod.requests.items() if k not in OF_PARTS}
            pod.gpu_resource = found.resource
        if found.part is not None:
            pod.requests[found.part.resource] = found.part.gpus
        return found

    def _holding(
        self, pod: KubePod, requests: PodRequests, request: GpuRequest, claimed: ClaimedGpus
    ) -> Holding | None:
        if pod.node is None or pod.finished is not None:
            return None
        node, names = self.places.nodes[pod.node], (CONTAINERS, *self.policy.gpu_resources)
        unreadable = any(name in names for name in requests.unreadable)
        if unreadable and not pod.bound:
            return None  # no API server accepts such a pod, so no scheduler starts it
        return read_holding(pod, node, request, claimed, self.remarks, unreadable=unreadable)

    def _ungranted(self, pod: KubePod, request: GpuRequest, amounts: Collection[str]) -> str | None:
        """Why a bound pod has none of the GPUs, or the shares, that it requests; None if it has them.

        A pod that somebody binds by hand starts even if its node lacks an extended resource: the kubelet
        leaves such names out. Nor does it look at annotations.
        """
        if pod.node is None or not pod.bound or pod.finished is not None:
            return None
        if request.hived:
            listed = self.policy.other_schedulers
            works = (
                pod.scheduler != DEFAULT_SCHEDULER if listed is None else pod.scheduler in listed
            )
            return None if works else NO_HIVED
        if request.kai and pod.scheduler in kai.SCHEDULERS:
            groups, there = group_shares(pod.object), self.reserved.get(pod.node, ())
            granted = len(groups) == request.shares and all(is_taken(one, there) for one in groups)
            return None if granted else NO_RESERVATION
        return None if self._is_offered(pod.node, request, amounts) else NOT_OFFERED

    def _is_offered(self, name: str, request: GpuRequest, amounts: Collection[str]) -> bool:
        """Whether a node offers what is requested, of a share something of it."""
        node, asked = self.places.nodes[name], [one for one in amounts if is_about_gpus(one)]
        if not node.gpus or node.shared is not None or not (request.gpus or request.fraction):
            return True
        names = node.gpu_names if request.gpus else (*node.gpu_names, *node.allocatable)
        if request.gpus and request.resource is not None:
            asked = [request.resource]
        return any(name in names or self._is_of_class(name) for name in asked)

    def _requested_gpus(self, pod: KubePod, request: GpuRequest, claimed: ClaimedGpus) -> int:
        """Whole GPUs of a pod that holds nothing here."""
        if request.gpus:
            return request.gpus
        if request.hived:
            return hived.requested_cells(pod.annotations) or 0
        every = self.largest if claimed.every and not claimed.own else 0
        return claimed.own + claimed.gpus + every

    def _requests(self, requests: PodRequests) -> dict[str, int]:
        """Requests without GPUs; native resources that no node has are left out, of many any such."""
        if (known := self._others.get(id(requests))) is not None:
            return known
        many = len(requests.amounts) > MAX_RESOURCES
        self._others[id(requests)] = found = {
            name: amount
            for name, amount in sorted(requests.amounts.items())
            if (name in self.known or ("/" in name and not many and not self._is_of_class(name)))
            and name not in self.policy.gpu_resources
            and name != "pods"  # every pod takes one pod slot
            and not is_gpu_name(name)
        }
        return found

    def _is_of_class(self, name: str) -> bool:
        """Whether a resource stands for devices of a DRA class."""
        return name in self.claims.classes.extended_resources or name.startswith(IMPLICIT)

    def _unknown_names(self, requests: PodRequests, request: GpuRequest) -> Iterator[str]:
        """Devices requested under names that cannot be planned, in words."""
        for name in requests.amounts:
            if name == request.resource or name in self.policy.gpu_resources:
                continue
            if self.claims.give_instances and name.startswith(RESOURCE):
                yield f"{name}, which its nodes give only to claims"
            elif is_gpu_name(name):
                yield f"GPUs requested as {name}, which is not in kubernetes.gpuResources"
            elif self._is_of_class(name) and name not in self.known:
                sort = self.claims.classes.extended_resources.get(name, Sort.OTHER)
                if sort is Sort.OTHER:
                    yield f"devices requested as {name}"
                elif sort is Sort.WHOLE:
                    yield TWO_NAMES

    def _priority(self, pod: KubeObject, *, queued: bool) -> int:
        """``queued``: Kueue holds the pod back, and its order counts."""
        own = self.priorities.queued.get(pod.labels.get(kueue.PRIORITY, "")) if queued else None
        if own is not None:
            return own
        found = self.priorities.of_pod(pod)
        written = at(pod.tree, "spec", "priority")
        if written is not None and whole(pod.tree, "spec", "priority") is None:
            self.remarks.add(pod.subject, "its priority is not an integer; its class counts")
        if found is None:
            what = "its PriorityClass is not in the input; its priority counts as 0"
            self.remarks.add(pod.subject, what, "add the PriorityClasses to the input")
        return found or 0


def _as_part(pod: KubePod, request: GpuRequest) -> GpuRequest:
    """The request without GPUs that are parts, which go to the pod's other requests."""
    if not request.gpus or request.resource != NVIDIA:
        return request
    pod.requests, pod.gpu_resource = {**pod.requests, PART: request.gpus}, None
    return GpuRequest()


def selects_parts(
    selector: Mapping[str, str], affinity: Sequence[Sequence[NodeExpression]]
) -> bool:
    """Whether only nodes can match whose GPUs are parts, all alike on a node, by the labels that say so."""
    return names_parts(selector) or (
        bool(affinity)
        and all(
            any(
                one.operator == "In"
                and not one.field
                and one.values
                and all(names_parts({one.key: value}) for value in one.values)
                for one in term
            )
            for term in affinity
        )
    )


def _problems(
    requests: PodRequests, request: GpuRequest, claimed: ClaimedGpus, *, planned: bool
) -> list[str]:
    """What of its requests cannot be planned, in words."""
    found = list(request.problems)
    if claimed.part or (request.fraction and request.part is None and not found):
        found.append(A_FRACTION)
    found.extend(claimed.problems)
    if claimed.every:
        found.append("all GPUs of a node (allocationMode All)")
    if claimed.missing:
        found.append(NO_CLAIM)
    if claimed.allocated and planned:
        found.append("a resource claim that is allocated already")
    if requests.unreadable:
        found.append(UNREADABLE)
    return found


@dataclass(frozen=True, slots=True)
class _Priorities:
    """Priority classes by name, and the value for pods that name none.

    ``queued``: those of Kueue's queue, by name.
    """

    classes: dict[str, int]
    default: int
    queued: dict[str, int]

    @classmethod
    def of(cls, found: Objects) -> _Priorities:
        classes = {"system-node-critical": MAX_PRIORITY, "system-cluster-critical": MAX_PRIORITY}
        defaults = []
        for one in found.of("PriorityClass", "scheduling.k8s.io"):
            value = whole(one.tree, "value")
            if value is not None:
                classes[one.name] = bounded_priority(value)
                if flag(one.tree, "globalDefault"):
                    defaults.append(bounded_priority(value))
        values = [
            (one.name, whole(one.tree, "value"))
            for one in found.of("WorkloadPriorityClass", kueue.GROUP)
        ]
        queued = {name: bounded_priority(value) for name, value in values if value is not None}
        # Of several defaults Kubernetes takes the lowest.
        return cls(classes, min(defaults, default=0), queued)

    def of_pod(self, pod: KubeObject) -> int | None:
        """Its own priority, else that of its class; None if the class is unknown."""
        own = whole(pod.tree, "spec", "priority")
        if own is not None:
            return bounded_priority(own)
        name = text(pod.tree, "spec", "priorityClassName")
        return self.default if name is None else self.classes.get(name)


def bounded_priority(value: int) -> int:
    """The priority, at most MAX_PRIORITY either way."""
    return max(-MAX_PRIORITY, min(value, MAX_PRIORITY))


def unpinned_spec(pod: KubePod, node: KubeNode) -> Tree:
    """The spec of a pod with an intent for its node, without the pin that a run added."""
    spec = mapping(pod.object.tree, "spec")
    if pod.mode is not None or PLAN not in pod.labels:
        return spec
    intent = read_intent(pod.labels, pod.annotations)
    if intent is None or intent.node != node.name:
        return spec
    if intent.pin == "hostname":
        selector = mapping(spec, "nodeSelector")
        if HOSTNAME_LABEL not in selector or selector[HOSTNAME_LABEL] != node.labels.get(
            HOSTNAME_LABEL
        ):
            return spec
        return {**spec, "nodeSelector": {k: v for k, v in selector.items() if k != HOSTNAME_LABEL}}
    added = intent.pin.split()[1:]
    return _without_name(spec, node, {int(place) for place in added}) if added else spec


def _without_name(spec: Tree, node: KubeNode, places: set[int]) -> Tree:
    """``places``: the terms of its required node affinity that got the name of the node."""
    affinity = mapping(spec, "affinity")
    terms = items(affinity, "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    kept = [
        _own_term(term, node) if i in places and isinstance(term, dict) else term
        for i, term in enumerate(terms)
    ]
    # A term of nothing but the name is ours alone: the pod had no required affinity.
    required = {} if kept == [{}] else {REQUIRED: {"nodeSelectorTerms": kept}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": required}}


def _own_term(term: Tree, node: KubeNode) -> Tree:
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    fields = [one for one in items(term, "matchFields") if one != field]
    bare = {name: value for name, value in term.items() if name != "matchFields"}
    return {**bare, "matchFields": fields} if fields else bare
