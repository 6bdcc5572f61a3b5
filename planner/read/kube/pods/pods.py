"""Pods: what each requests, where it runs or waits, what it holds, and whether gangplan places it.

Nothing raises; what a pod holds is never forgotten; a malformed pod does not change others. What gangplan
added to the spec of a pod that it started is no wish of its gang; what the pod itself asked for stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from models.documents.gang import NodeExpression
from models.instance.policy import KubernetesPolicy
from models.mig import RESOURCE
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import IMPLICIT, ClaimedGpus, Claims, Sort
from planner.read.kube.devices.wants import unallocatable
from planner.read.kube.dialect_registry import gpu_systems
from planner.read.kube.dialects.gpus import MALFORMED, PART, Ask, GpuSystem
from planner.read.kube.lookup import flag, mapping, text, whole
from planner.read.kube.nodes.gpus import names_parts
from planner.read.kube.pods.asks import A_FRACTION, TWO_NAMES, gpu_ask
from planner.read.kube.pods.constraints import Constraints
from planner.read.kube.pods.holdings import drop_part, group_shares, read_holding, settle
from planner.read.kube.pods.placement import (
    DEFAULT_SCHEDULER,
    FINISHED,
    Places,
    read_placement,
)
from planner.read.kube.pods.requests import (
    CONTAINERS,
    OF_SPEC,
    OF_STATUS,
    effective_requests,
    is_about_gpus,
    is_gpu_name,
    is_resource,
)
from planner.read.kube.pods.room import NO_CLAIM, UNREADABLE, settle_room
from planner.read.kube.pods.volumes import read_volumes
from planner.read.kube.records import Group, Holding, KubeNode, KubeObject, KubePod, Objects

MAX_PRIORITY = 2_000_000_000
"""Largest priority, either sign; Kubernetes' own two classes lie at and above it."""

MAX_RESOURCES = 100
"""Most different resources that a waiting pod may request."""

NOT_OFFERED = "requests GPUs by a name that its node does not offer; it holds none"

UNREADABLE_PART = (
    "asks for a part of a GPU that cannot be read; it waits, and counts as a GPU where it runs"
)


def read_pods(
    found: Objects,
    nodes: Sequence[KubeNode],
    policy: KubernetesPolicy,
    remarks: Remarks,
    expected: Sequence[KubeObject] = (),
    *,
    held: bool = False,
) -> list[KubePod]:
    """Every pod, sorted by namespace and name, with its holdings settled against all others.

    ``expected``: pods that do not exist yet and are read like any others. ``held``: of pods with a node only
    what they hold there is read, not where else they may be or in which order they wait.
    """
    objects = [*found.of("Pod", ""), *expected]
    reader = _Reader(found, nodes, policy, remarks)
    reader.held = held
    reader.reserved = _reserved(objects, frozenset(policy.gpu_resources), reader.systems)
    pods = [reader.read(one) for one in sorted(objects, key=lambda pod: (pod.namespace, pod.name))]
    read_volumes([pod for pod in pods if not (held and pod.bound)], found, policy, remarks)
    settle_room(pods, found, reader.places.nodes, policy.other_schedulers, remarks)
    by_node: dict[str, list[Holding]] = {}
    for pod in pods:
        holding, pod.holding = pod.holding, None  # settled below
        if holding is not None and pod.node is not None and pod.holds_room:
            by_node.setdefault(pod.node, []).append(holding)
    for name in sorted(by_node):
        settle(reader.places.nodes[name], by_node[name], remarks)
    return pods


def _reserved(
    pods: Sequence[KubeObject], names: frozenset[str], systems: Mapping[str, GpuSystem]
) -> dict[str, set[Group]]:
    """By node the groups for which a pod there has a GPU, by a name that its kubelet counts."""
    found: dict[str, set[Group]] = {}
    for pod in pods:
        if (node := text(pod.tree, "spec", "nodeName")) is None:
            continue
        groups = group_shares(pod, systems)
        if not groups or text(pod.tree, "status", "phase") in FINISHED:
            continue
        if not names.isdisjoint(effective_requests(pod.tree)[0]):
            found.setdefault(node, set()).update(groups)
    return found


class _Template(Struct, frozen=True):
    """What pods ask that state the same. ``known``: the parts that state it, kept for their identity.

    ``amounts``, ``unreadable``: see ``effective_requests``; ``others``: amounts without GPUs. ``ask``: with
    shares of GPUs; ``planned``: with what they are. ``odd``: names of devices that may be no plan's.
    """

    known: tuple[object, ...]
    amounts: dict[str, int]
    unreadable: tuple[str, ...]
    others: dict[str, int]
    ask: Ask
    planned: Ask
    odd: tuple[str, ...]


class _Reader:
    """Everything of the input that a single pod is read against."""

    held = False

    def __init__(
        self, found: Objects, nodes: Sequence[KubeNode], policy: KubernetesPolicy, remarks: Remarks
    ) -> None:
        self.places = Places(nodes)
        self.policy = policy
        self.remarks = remarks
        self.claims = Claims(found, nodes)
        self.priorities = _Priorities(found)
        self.constraints = Constraints(found, policy.ignore)
        self.known = frozenset({"cpu", "memory"}.union(*(node.allocatable for node in nodes)))
        self.mig_kinds = {node.mig_kinds for node in nodes if node.mig_kinds}
        self.systems = {one.name: one for one in gpu_systems()}
        self.asking = [key for one in self.systems.values() for key in one.annotations]
        self.parts = {name for one in self.systems.values() for name in one.parts}
        self.reserved: dict[str, set[Group]] = {}
        self._templates: dict[tuple[object, ...], _Template] = {}
        self.largest = max((node.gpus for node in nodes if node.shared is None), default=0)

    def read(self, object_: KubeObject) -> KubePod:
        """The pod read by itself, with what it claims to hold."""
        template, claimed = self._template(object_), self.claims.of(object_)
        pod = KubePod(object_, fabric=claimed.fabric)
        wishes = not (self.held and text(object_.tree, "spec", "nodeName"))
        if wishes:
            self.constraints.read(pod, None)
        read_placement(pod, claimed, self.places, self.policy, self.remarks)
        pod.made = tuple(claimed.made) if pod.node == claimed.node else ()
        node = self.places.nodes.get(pod.node or "")
        ask = self._planned(pod, node, template)
        parts = ask.part or ask.counted or ask.gpus != template.ask.gpus
        others = template.others.items()
        if (why := self._ungranted(pod, ask, template.amounts)) is not None:
            self.remarks.add(pod.subject, *why)
            ask = Ask()
        if node is not None and PART in node.allocatable:
            ask = ask.in_parts()
        holding = pod.holding = self._holding(pod, template, ask, claimed)
        if template.unreadable:
            what = "requests an amount that cannot be read; it counts as 0"
            self.remarks.add(pod.subject, what)
        if wishes and pod.start is not None:  # without what a run added to pin it
            self.constraints.read(pod, node)
        if pod.node is None and selects_parts(pod.selector, pod.affinity):
            ask = ask.in_parts()
        pod.requests = {
            **{name: amount for name, amount in others if not (parts and name in self.parts)},
            **claimed.instances,
            **ask.in_requests,
        }
        if holding is not None and ask.shares:
            drop_part(pod, holding.part)
        pod.gpu_resource = ask.resource or claimed.driver
        pod.gpus = self._requested_gpus(pod, ask, claimed)
        pod.wants_gpus = bool(
            pod.gpus or ask.shares or ask.by or claimed or claimed.part or claimed.instances
        ) or any(map(is_about_gpus, template.amounts))
        pod.indices = None if pod.gpus else ()
        if wishes:
            pod.unsupported = self._unsupported(pod, template, ask, claimed)
            pod.priority = self.priorities.of(object_, self.remarks)
        return pod

    def _template(self, object_: KubeObject) -> _Template:
        spec, status = mapping(object_.tree, "spec"), mapping(object_.tree, "status")
        known = (*map(spec.get, OF_SPEC), *map(status.get, OF_STATUS))
        scheduler = text(spec, "schedulerName") or DEFAULT_SCHEDULER
        same = (*map(id, known), scheduler, *map(object_.annotations.get, self.asking))
        if same not in self._templates:
            amounts, unreadable = effective_requests(object_.tree)
            names, classes = self.policy.gpu_resources, self.claims.classes.extended_resources
            systems = tuple(self.systems.values())
            ask = gpu_ask(amounts, object_.annotations, names, classes, systems)
            meant = (one.part(ask, object_, scheduler) for one in systems if ask.shares)
            self._templates[same] = _Template(
                known,
                amounts,
                unreadable,
                self._others(amounts),
                ask,
                next(filter(None, meant), ask),
                tuple(
                    name
                    for name in amounts
                    if (name not in names and (is_gpu_name(name) or name.startswith(RESOURCE)))
                    or self._is_of_class(name)
                    or not is_resource(name)
                ),
            )
        return self._templates[same]

    def _planned(self, pod: KubePod, node: KubeNode | None, template: _Template) -> Ask:
        """What the pod asks, with the part of a GPU, or the instance, that it is."""
        if node is not None and node.shared is not None:
            return template.ask  # none of its GPUs is planned
        for one in self.systems.values() if self.mig_kinds else ():
            found = one.instance(template.ask, pod, node, self.mig_kinds, self.remarks)
            if found is not None:
                return found
        if MALFORMED in template.planned.problems:
            hint = "a part is more than 0 and less than a GPU"
            more = (one.hints.items() for one in self.systems.values())
            added = [own for hints in more for key, own in hints if key in pod.annotations]
            hint = "; ".join((hint, *added))
            self.remarks.add(pod.subject, UNREADABLE_PART, hint)
        return template.planned

    def _holding(
        self, pod: KubePod, template: _Template, ask: Ask, claimed: ClaimedGpus
    ) -> Holding | None:
        if pod.node is None or pod.finished is not None:
            return None
        node, names = self.places.nodes[pod.node], (CONTAINERS, *self.policy.gpu_resources)
        unreadable = any(name in names for name in template.unreadable)
        if unreadable and not pod.bound:
            return None  # no API server accepts such a pod, so no scheduler starts it
        return read_holding(
            pod, node, ask, claimed, self.systems, self.remarks, unreadable=unreadable
        )

    def _ungranted(
        self, pod: KubePod, ask: Ask, amounts: Collection[str]
    ) -> tuple[str, ...] | None:
        """Why a bound pod has none of the GPUs, or the shares, that it requests; None if it has them.

        A pod that somebody binds by hand starts even if its node lacks an extended resource: the kubelet
        leaves such names out. Nor does it look at annotations.
        """
        if pod.node is None or not pod.bound or pod.finished is not None:
            return None
        if (by := self.systems.get(ask.by or "")) is not None:
            why = by.missing(pod, ask, self.reserved.get(pod.node, ()), self.policy)
            if why is not None:
                return why or None
        return None if self._is_offered(pod.node, ask, amounts) else (NOT_OFFERED,)

    def _is_offered(self, name: str, ask: Ask, amounts: Collection[str]) -> bool:
        """Whether a node offers what is requested, of a share something of it."""
        node, asked = self.places.nodes[name], [one for one in amounts if is_about_gpus(one)]
        if not node.gpus or node.shared is not None or not (ask.gpus or ask.shares):
            return True
        names = node.gpu_names if ask.gpus else (*node.gpu_names, *node.allocatable)
        if ask.gpus and ask.resource is not None:
            asked = [ask.resource]
        return any(name in names or self._is_of_class(name) for name in asked)

    def _requested_gpus(self, pod: KubePod, ask: Ask, claimed: ClaimedGpus) -> int:
        if ask.gpus:
            return ask.gpus
        if (by := self.systems.get(ask.by or "")) is not None and by.number is not None:
            return by.number(pod, None)
        every = self.largest if claimed.every and not claimed.own else 0
        return claimed.own + claimed.gpus + every

    def _others(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Requests without GPUs; native resources that no node has are left out, of many any such."""
        many = len(amounts) > MAX_RESOURCES
        return {
            name: amount
            for name, amount in sorted(amounts.items())
            if (name in self.known or ("/" in name and not many and not self._is_of_class(name)))
            and name not in self.policy.gpu_resources
            and name != "pods"  # every pod takes one pod slot
            and not is_gpu_name(name)
            and is_resource(name)
        }

    def _is_of_class(self, name: str) -> bool:
        return name in self.claims.classes.extended_resources or name.startswith(IMPLICIT)

    def _unsupported(
        self, pod: KubePod, template: _Template, ask: Ask, claimed: ClaimedGpus
    ) -> tuple[str, ...]:
        if len(template.amounts) > MAX_RESOURCES:
            return (f"requests of more than {MAX_RESOURCES} different resources",)
        found = [*pod.unsupported, *ask.problems]
        if claimed.part or (ask.shares and ask.part is None and not ask.problems):
            found.append(A_FRACTION)
        found += claimed.problems
        if claimed.every:
            found.append("all GPUs of a node (allocationMode All)")
        if claimed.missing:
            found.append(NO_CLAIM)
        if claimed.allocated and pod.planned:
            found.append("a resource claim that is allocated already")
        if template.unreadable:
            found.append(UNREADABLE)
        for name in template.odd:
            found += self._unknown_name(name, ask)
        if self.policy.gpu_backend == "dra" and pod.to_place and pod.mode is not None:
            found += unallocatable(pod.object, self.claims)
        return tuple(dict.fromkeys(found))

    def _unknown_name(self, name: str, ask: Ask) -> Iterator[str]:
        if name == ask.resource:
            return
        if not is_resource(name):
            yield "a resource whose name cannot be read"
        elif self.claims.give_instances and name.startswith(RESOURCE):
            yield f"{name}, which its nodes give only to claims"
        elif is_gpu_name(name):
            yield f"GPUs requested as {name}, which is not in kubernetes.gpuResources"
        elif self._is_of_class(name) and name not in self.known:
            sort = self.claims.classes.extended_resources.get(name, Sort.OTHER)
            if sort is Sort.OTHER:
                yield f"devices requested as {name}"
            elif sort is Sort.WHOLE:
                yield TWO_NAMES


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


class _Priorities:
    """Priority classes by name, and the value for pods that name none."""

    def __init__(self, found: Objects) -> None:
        stated = found.of("PriorityClass", "scheduling.k8s.io")
        values = ((one.name, whole(one.tree, "value")) for one in stated)
        named = {name: bounded_priority(value) for name, value in values if value is not None}
        defaults = [one.name for one in stated if flag(one.tree, "globalDefault")]
        # Of several defaults Kubernetes takes the lowest.
        self.default = min((named[name] for name in defaults if name in named), default=0)
        system = ("system-node-critical", "system-cluster-critical")
        self.classes = {**dict.fromkeys(system, MAX_PRIORITY), **named}

    def of(self, pod: KubeObject, remarks: Remarks) -> int:
        """Its own, else that of its class."""
        spec = mapping(pod.tree, "spec")
        own, name = whole(spec, "priority"), text(spec, "priorityClassName")
        if own is not None:
            return bounded_priority(own)
        if spec.get("priority") is not None:
            remarks.add(pod.subject, "its priority is not an integer; its class counts")
        found = self.default if name is None else self.classes.get(name)
        if found is None:
            what = "its PriorityClass is not in the input; its priority counts as 0"
            remarks.add(pod.subject, what, "add the PriorityClasses to the input")
        return found or 0


def bounded_priority(value: int) -> int:
    return max(-MAX_PRIORITY, min(value, MAX_PRIORITY))
