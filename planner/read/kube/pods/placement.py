"""Where a pod that is not bound yet will stand: pinned, nominated, or labelled with our plan.

Promises: names nodes of the input only; what a tenant writes counts only for pods that are ours to
place. Called by ``pods``.

Where a pod stands or waits, and whether it is ours to place.

Promises: a pod bound to a node stands there whatever else it says; room planned for a pod is kept
until it is bound or gone. Called by ``pods``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from models.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, at, items, mapping, objects, text
from planner.read.kube.pods.claims import Claimed
from planner.read.kube.pods.constraints import HOSTNAME, REQUIRED
from planner.read.kube.records import KubeNode, KubeObject

PLAN = "gangplan.dev/plan"
NODE = "gangplan.dev/node"


@dataclass(frozen=True, slots=True)
class Places:
    """Nodes by name, and by hostname label where that is one node's alone."""

    nodes: dict[str, KubeNode]
    hosts: dict[str, str]

    @classmethod
    def of(cls, nodes: Iterable[KubeNode]) -> Places:
        by_name = {node.name: node for node in nodes}
        hosts: dict[str, str] = {}
        twice = set()
        for node in by_name.values():
            host = node.labels.get(HOSTNAME, node.name)
            if hosts.setdefault(host, node.name) != node.name:
                twice.add(host)
        return cls(by_name, {host: name for host, name in hosts.items() if host not in twice})

    def pinned(self, spec: Tree) -> str | None:
        """The one node the spec allows: by hostname or, with required affinity, by name."""
        host = text(spec, "nodeSelector", HOSTNAME)
        if host is not None:
            return self.hosts.get(host)
        if "affinity" not in spec:
            return None
        required = mapping(spec, "affinity", "nodeAffinity", REQUIRED)
        found = {self._term(term) for term in objects(required, "nodeSelectorTerms")}
        return found.pop() if len(found) == 1 else None

    def _term(self, term: Tree) -> str | None:
        for entry in objects(term, "matchFields"):
            name = _only(entry, "metadata.name")
            if name is not None:
                return name if name in self.nodes else None
        for entry in objects(term, "matchExpressions"):
            host = _only(entry, HOSTNAME)
            if host is not None:
                return self.hosts.get(host)
        return None


def nominated(pod: KubeObject) -> str | None:
    return text(pod.tree, "status", "nominatedNodeName")


def planned(pod: KubeObject, places: Places) -> str | None:
    """The node our own plan names or pins it to, for a pod that is ours to place."""
    if PLAN not in pod.labels:
        return None
    return pod.annotations.get(NODE) or places.pinned(mapping(pod.tree, "spec"))


def _only(entry: Tree, key: str) -> str | None:
    """The one value an In requirement on a key allows."""
    values = items(entry, "values")
    if entry.get("key") != key or entry.get("operator") != "In" or len(values) != 1:
        return None
    return values[0] if isinstance(values[0], str) else None


FINISHED = ("Succeeded", "Failed")
DEFAULT_SCHEDULER = "default-scheduler"

_WAITING = (None, "Pending", "Unknown")


@dataclass(frozen=True, slots=True)
class Standing:
    """See ``KubePod``: the fields of the same names."""

    node: str | None
    bound: bool
    finished: str | None
    terminating: bool
    mode: str | None
    gates: tuple[str, ...]
    scheduler: str


def read_standing(
    pod: KubeObject, claimed: Claimed, places: Places, policy: KubernetesPolicy, remarks: Remarks
) -> Standing:
    """Where the pod is, or will be; ``mode`` only if it waits and is ours to place."""
    spec = mapping(pod.tree, "spec")
    phase = text(pod.tree, "status", "phase")
    finished = phase if phase in FINISHED else None
    terminating = at(pod.tree, "metadata", "deletionTimestamp") is not None
    scheduler = text(spec, "schedulerName") or DEFAULT_SCHEDULER
    gates = _gates(spec)
    node, bound = _bound(spec, places)
    mode = None
    if finished is not None:
        bound = False
    elif bound:
        if node is None:
            what = "bound to a node that is not there: it counts as missing"
            remarks.add(pod.subject, what)
    elif phase not in _WAITING:
        remarks.add(pod.subject, "runs, but on no node; it is left aside")
    elif not terminating:
        mode = _mode(scheduler, gates, policy)
        node = _planned(pod, spec, mode, claimed, places, remarks)
    return Standing(
        node=node,
        bound=bound,
        finished=finished,
        terminating=terminating,
        mode=mode if node is None else None,
        gates=gates,
        scheduler=scheduler,
    )


def _gates(spec: Tree) -> tuple[str, ...]:
    if "schedulingGates" not in spec:
        return ()
    return tuple(
        name
        for gate in objects(spec, "schedulingGates")
        if (name := text(gate, "name")) is not None
    )


def _bound(spec: Tree, places: Places) -> tuple[str | None, bool]:
    """(node, whether the pod is bound); the node is None where the input does not have it."""
    written = spec.get("nodeName")
    if written is None or written == "":
        return None, False
    return (written if isinstance(written, str) and written in places.nodes else None), True


def _mode(scheduler: str, gates: tuple[str, ...], policy: KubernetesPolicy) -> str | None:
    """How a waiting pod of ours is started; None if it is not ours."""
    if policy.scheduling_gate in gates:
        return "gate"
    return "binding" if scheduler == policy.scheduler_name else None


def _planned(
    pod: KubeObject,
    spec: Tree,
    mode: str | None,
    claimed: Claimed,
    places: Places,
    remarks: Remarks,
) -> str | None:
    """The node a waiting pod will go to whatever we plan; None if that is open."""
    found = [planned(pod, places) if mode is not None else None, nominated(pod)]
    if claimed.held and claimed.exclusive:
        found.append(claimed.node)
    # a pod of ours that is pinned still waits for us to bind it
    if mode is None and not items(spec, "schedulingGates"):
        found.append(places.pinned(spec))
    for name in found:
        if name is not None and name in places.nodes:
            return name
    if any(name is not None for name in found):
        remarks.add(pod.subject, "planned on a node that is not there; it waits")
    return None
