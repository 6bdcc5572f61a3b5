"""Priority of a pod: its own, else its class's, else the default class's.

Promises: labels and annotations never give priority; results lie within the documents' bounds.
Called by ``pods``.

Pods: what each asks, where it stands or waits, what it holds, and whether it is ours to place.

Promises: never raises; what a pod holds is never forgotten; one broken pod changes no other.
Called by ``planner.read.kube.assembly``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from models.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.devices.requests import (
    A_FRACTION,
    IMPLICIT,
    KOORDINATOR,
    TWO_NAMES,
    Asking,
    Sort,
    is_gpu_name,
    read_asking,
)
from planner.read.kube.dialects import hived
from planner.read.kube.lookup import at, flag, text, whole
from planner.read.kube.pods.claims import Claimed, Claims
from planner.read.kube.pods.constraints import Volumes, kept_apart, read_constraints
from planner.read.kube.pods.holdings import Holder, read_holder, settle
from planner.read.kube.pods.placement import Places, Standing, read_standing
from planner.read.kube.pods.resources import CONTAINERS, Asked, effective_requests
from planner.read.kube.records import KubeNode, KubeObject, KubePod, Objects

MOST = 2_000_000_000
"""Largest priority, either sign; Kubernetes' own two classes lie at and above it."""

_GROUP = "scheduling.k8s.io"
_SYSTEM = {"system-node-critical": MOST, "system-cluster-critical": MOST}


@dataclass(frozen=True, slots=True)
class Priorities:
    """Priority classes by name, and the value where a pod names none."""

    classes: dict[str, int]
    default: int

    @classmethod
    def of(cls, found: Objects) -> Priorities:
        classes: dict[str, int] = dict(_SYSTEM)
        defaults = []
        for one in found.of("PriorityClass", _GROUP):
            value = whole(one.tree, "value")
            if value is not None:
                classes[one.name] = _bounded(value)
                if flag(one.tree, "globalDefault"):
                    defaults.append(_bounded(value))
        # of several defaults Kubernetes takes the lowest
        return cls(classes, min(defaults, default=0))

    def named(self, name: str | None) -> int | None:
        """Priority of a class; the default without a name; None for a class nobody described."""
        return self.default if name is None else self.classes.get(name)

    def of_pod(self, pod: KubeObject) -> int | None:
        """Priority of a pod; None where it names a class nobody described."""
        own = whole(pod.tree, "spec", "priority")
        if own is not None:
            return _bounded(own)
        return self.named(text(pod.tree, "spec", "priorityClassName"))


def _bounded(value: int) -> int:
    return max(-MOST, min(value, MOST))


ACK_TOPOLOGY = "gpu-topology"
"""Label of pods that ACK schedules by topology; its value is the name of their gang."""

_UNSCHEDULED = ("pods",)
"""Resources that nobody asks for by name: every pod takes one pod slot."""


def read_pods(
    found: Objects, nodes: Sequence[KubeNode], policy: KubernetesPolicy, remarks: Remarks
) -> list[KubePod]:
    """Every pod, by (namespace, name), with its holdings settled against all the others."""
    reader = _Reader(found, nodes, policy, remarks)
    pods = sorted(found.of("Pod", ""), key=lambda pod: (pod.namespace, pod.name))
    drafts = [reader.draft(pod) for pod in pods]
    by_node: dict[str, list[Holder]] = {}
    for pod, holder in drafts:
        if holder is not None and pod.node is not None:
            by_node.setdefault(pod.node, []).append(holder)
    for name in sorted(by_node):
        settle(reader.places.nodes[name], by_node[name], remarks)
    settled = [
        pod if holder is None else replace(pod, gpus=holder.count, indices=holder.indices)
        for pod, holder in drafts
    ]
    apart = kept_apart(settled, nodes, found, policy.ignore, remarks)
    return [apart.get(pod.key, pod) for pod in settled]


@dataclass(slots=True)
class _Reader:
    """Everything of the input that a single pod is read against."""

    places: Places
    policy: KubernetesPolicy
    remarks: Remarks
    claims: Claims
    priorities: Priorities
    volumes: Volumes
    known: frozenset[str]
    largest: int

    def __init__(
        self,
        found: Objects,
        nodes: Sequence[KubeNode],
        policy: KubernetesPolicy,
        remarks: Remarks,
    ) -> None:
        self.places = Places.of(nodes)
        self.policy = policy
        self.remarks = remarks
        self.claims = Claims(found, nodes)
        self.priorities = Priorities.of(found)
        self.volumes = Volumes(found)
        self.known = frozenset({"cpu", "memory"}.union(*(node.allocatable for node in nodes)))
        self.largest = max((node.gpus for node in nodes if node.shared is None), default=0)

    def draft(self, pod: KubeObject) -> tuple[KubePod, Holder | None]:
        """The pod as it is read alone, and what it says it holds."""
        asked = effective_requests(pod.tree)
        claimed = self.claims.of(pod)
        standing = read_standing(pod, claimed, self.places, self.policy, self.remarks)
        asking = read_asking(
            asked.amounts,
            pod.annotations,
            self.policy.gpu_resources,
            self.claims.classes.extended_resources,
        )
        holder = None
        if standing.node is not None and standing.finished is None:
            holder = read_holder(
                pod,
                self.places.nodes[standing.node],
                asking,
                claimed,
                standing.scheduler,
                self.remarks,
                unreadable=any(
                    name == CONTAINERS or name in self.policy.gpu_resources
                    for name in asked.unreadable
                ),
            )
        if asked.unreadable:
            what = "asks an amount that cannot be read; the amount counts as 0"
            self.remarks.add(pod.subject, what)
        return self._pod(pod, standing, asked, asking, claimed), holder

    def _pod(
        self,
        pod: KubeObject,
        standing: Standing,
        asked: Asked,
        asking: Asking,
        claimed: Claimed,
    ) -> KubePod:
        constraints = read_constraints(pod, self.policy.ignore, self.volumes)
        ours = standing.mode is not None
        if ours and constraints.unknown_volumes:
            what = "its volumes are not in the input; they are taken to be reached from every node"
            self.remarks.add(pod.subject, what)
        gpus = self._asked_gpus(pod, asking, claimed)
        problems = [*constraints.unsupported, *_problems(asked, asking, claimed, waits=ours)]
        problems += self._strange(asked, asking)
        return KubePod(
            object=pod,
            node=standing.node,
            bound=standing.bound,
            finished=standing.finished,
            terminating=standing.terminating,
            ours=ours,
            mode=standing.mode,
            gates=standing.gates,
            scheduler=standing.scheduler,
            priority=self._priority(pod),
            gpus=gpus,
            gpu_resource=asking.resource or claimed.driver,
            requests=self._requests(asked),
            indices=None if gpus else (),
            selector=constraints.selector,
            affinity=constraints.affinity,
            tolerations=constraints.tolerations,
            unsupported=tuple(dict.fromkeys(problems)),
            fabric=claimed.fabric,
            topology_scheduled=bool(pod.labels.get(ACK_TOPOLOGY)),
        )

    def _asked_gpus(self, pod: KubeObject, asking: Asking, claimed: Claimed) -> int:
        """Whole GPUs of a pod that holds nothing here."""
        if asking.gpus:
            return asking.gpus
        if asking.hived:
            return hived.cells_asked(pod.annotations) or 0
        held = sum(not one.shared for one in claimed.held)
        return held + claimed.gpus + (self.largest if claimed.every and not held else 0)

    def _requests(self, asked: Asked) -> dict[str, int]:
        """Without GPUs; native resources that no node states are left out."""
        return {
            name: amount
            for name, amount in sorted(asked.amounts.items())
            if (name in self.known or ("/" in name and not self._by_class(name)))
            and name not in self.policy.gpu_resources
            and name not in _UNSCHEDULED
            and not is_gpu_name(name)
        }

    def _by_class(self, name: str) -> bool:
        """Whether a resource stands for devices of a DRA class."""
        return name in self.claims.classes.extended_resources or name.startswith(IMPLICIT)

    def _strange(self, asked: Asked, asking: Asking) -> Iterator[str]:
        """What it asks under names that nobody can place, in words."""
        for name in asked.amounts:
            if name == asking.resource or name in self.policy.gpu_resources:
                continue
            if is_gpu_name(name) and not name.startswith(KOORDINATOR):
                yield f"GPUs asked as {name}, which kubernetes.gpuResources of the Policy lacks"
            elif self._by_class(name) and name not in self.known:
                sort = self.claims.classes.extended_resources.get(name, Sort.OTHER)
                if sort is Sort.OTHER:
                    yield f"devices asked as {name}"
                elif sort is Sort.WHOLE:
                    yield TWO_NAMES

    def _priority(self, pod: KubeObject) -> int:
        found = self.priorities.of_pod(pod)
        written = at(pod.tree, "spec", "priority")
        if written is not None and whole(pod.tree, "spec", "priority") is None:
            what = "its priority is no whole number; its class counts"
            self.remarks.add(pod.subject, what)
        if found is None:
            what = "its PriorityClass is not in the input; its priority counts as 0"
            self.remarks.add(pod.subject, what, "add the PriorityClasses to the input")
        return found or 0


def _problems(asked: Asked, asking: Asking, claimed: Claimed, *, waits: bool) -> tuple[str, ...]:
    """What of its requests cannot be planned, in words."""
    found = list(asking.problems)
    if asking.part or claimed.part:
        found.append(A_FRACTION)
    found.extend(claimed.problems)
    if claimed.every:
        found.append("all GPUs of a node (allocationMode All)")
    if claimed.missing:
        found.append("a resource claim that is not in the input")
    if claimed.held and waits:
        found.append("a resource claim that is allocated already")
    if asked.unreadable:
        found.append("an amount that cannot be read")
    return tuple(dict.fromkeys(found))
