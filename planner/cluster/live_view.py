"""Reads the live cluster for applying: nodes and pods, and the records of starts.

Reads only. What a pod holds is read as planning reads it; one odd object affects no other.
Raises UnavailableError and NotPermittedError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.notes import RunNotes
from models.apply.plan_actions import Key
from models.documents.cluster import HOSTNAME_LABEL
from models.instance.policy import KubernetesPolicy
from planner.cluster.pages import BUDGETS, DEVICES, get, list_kind, read_list
from planner.cluster.placement_requests import RequestLists
from planner.cluster.start_records import StartRecords, meant
from planner.cluster.store import Store, without_gc
from planner.cluster.transport import Transport, Tree, core
from planner.read.findings import Remarks
from planner.read.kube.kinds import NODES, PODS, Kind
from planner.read.kube.lookup import Known, at, mapping, objects, text, texts
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.objects import Gatherer
from planner.read.kube.pods.budgets import read_budgets
from planner.read.kube.pods.constraints import read_tolerations
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER, EXPECTED
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.records import KubeNode, KubePod, Objects
from planner.read.kube.templates.waiting import requested_pods

THE_CLUSTER = "the cluster"
"""Where its objects come from, in remarks."""

_REPELLING = ("NoSchedule", "NoExecute")
_MAX_WORDS = 1000
"""Characters kept of a scheduler's message."""


@dataclass(slots=True)
class ClusterReader:
    """Reads one cluster repeatedly; ``view``, ``nodes`` and ``pods`` are of the last reading.

    ``nodes``, ``pods``: objects as the server sent them, by name and by (namespace, name). ``date``: the
    server's clock in seconds since the epoch, if known. ``records``: of starts. ``notes``: in the lock.
    ``evicting``: whether to read disruption budgets.
    ``store``: what was read, kept for the next reading and for planning.
    """

    wire: Transport
    settings: KubernetesPolicy
    records: StartRecords
    view: ClusterView | None = None
    nodes: dict[str, Tree] = field(default_factory=dict)
    pods: dict[Key, Tree] = field(default_factory=dict)
    date: float | None = None
    notes: RunNotes = field(default_factory=RunNotes)
    evicting: bool = False
    store: Store = field(default_factory=Store)
    requests: RequestLists = field(init=False)
    _cluster: str | None = None
    _read: tuple[KubeNode, ...] = ()
    _others: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        self.requests = RequestLists(self.wire)

    @without_gc()
    def read_view(self) -> ClusterView:
        """Read records, then nodes, then pods, then the claims that pods refer to."""
        if self._cluster is None:
            self._cluster = self.identity()
        self.records.read()
        nodes, pods = self._listed(NODES), self._listed(PODS)
        lists = (list_kind(self.wire, one) for one in DEVICES)
        self._others = tuple(one for one in lists if one is not None)
        budgets = list_kind(self.wire, BUDGETS) if self.evicting else None
        lists_now = [*([] if budgets is None else [budgets]), *self.requests.read()]
        found = self._objects(nodes, pods, lists_now)
        self._read = tuple(read_nodes(found, self.settings, Remarks()))
        self.nodes = {_name(tree): tree for tree in nodes}
        self.pods = {_key(tree): tree for tree in pods}
        self.view = ClusterView(
            cluster=self._cluster,
            nodes={node.name: node for node in self._nodes()},
            pods={pod.key: pod for pod in self._pods(found)},
            budgets=None if budgets is None else read_budgets(found, Remarks()),
            notes=self.notes,
            now=None if self.date is None else int(self.date),
            requests=self.requests.live(found),
            records=dict(self.records.known),
        )
        return self.view

    def _listed(self, kind: Kind) -> list[Tree]:
        """Every object of a kind, as far as it is read; whole where it is not what most are."""
        found = read_list(self.wire, core(kind.plural), self.store.reader(kind))
        self.store.listed[kind] = found
        return [tree for tree, _ in found if _name(tree)]

    def identity(self) -> str:
        """The uid of the namespace kube-system, which identifies the cluster."""
        reply = get(self.wire, core("namespaces", name="kube-system"))
        self.date = reply.date or self.date
        return text(reply.body, "metadata", "uid") or ""

    def one(self, tree: Tree) -> LivePod | None:
        """The pod of an answer; None if it is no pod.

        Requests of a pod never change while its uid is the same, so they are read once.
        """
        if not _name(tree) or text(tree, "metadata", "uid") is None:
            return None
        key = _key(tree)
        before = None if self.view is None else self.view.pods.get(key)
        self.pods[key] = tree
        if before is None or before.uid != text(tree, "metadata", "uid"):
            return next(iter(self._pods(self._objects((), [tree]))), None)
        return self._again(tree, before)

    def _again(self, tree: Tree, before: LivePod) -> LivePod:
        """A known pod with everything that can change read again."""
        found = structs.replace(before, **_seen(tree, Known()))
        start = self.records.starts.get(found.uid)
        if start is not None or before.start is not None:
            return found.meant(start)
        unbound = found.node is None and found.stays
        return structs.replace(found, held_at=before.held_at if unbound else None)

    def _objects(
        self,
        nodes: Sequence[Tree],
        pods: Sequence[Tree],
        lists: Sequence[Tree] = (),
    ) -> Objects:
        gatherer = Gatherer(Remarks(), made=self.store.made)
        for tree in nodes:
            gatherer.add_reduced(tree, "Node", "v1", THE_CLUSTER)
        for tree in pods:
            gatherer.add_reduced(meant(tree, self.records.starts), "Pod", "v1", THE_CLUSTER)
        for tree in (*self._others, *lists):
            gatherer.add(tree, THE_CLUSTER)
        return gatherer.objects

    def _nodes(self) -> Iterator[LiveNode]:
        hosts: dict[str, int] = {}
        for node in self._read:
            name = node.labels.get(HOSTNAME_LABEL, "")
            hosts[name] = hosts.get(name, 0) + 1
        for node in self._read:
            host = node.labels.get(HOSTNAME_LABEL)
            taints = ((taint.key, taint.value, taint.effect) for taint in node.taints)
            yield LiveNode(
                name=node.name,
                ready=node.ready,
                unschedulable=node.unschedulable,
                gpus=0 if node.shared is not None else node.gpus + len(node.mig_mode),
                allocatable=tuple(sorted(node.allocatable.items())),
                taints=tuple(sorted(one for one in taints if one[-1] in _REPELLING)),
                labels=tuple(sorted(node.labels.items())),
                hostname=host if host and hosts[host] == 1 else None,
            )

    def _pods(self, found: Objects) -> Iterator[LivePod]:
        known = Known()
        expected = requested_pods(found, self.settings, Remarks())
        for pod in read_pods(found, self._read, self.settings, Remarks(), expected, held=True):
            made, seen = EXPECTED in pod.object.tree, _seen(pod.object.tree, known)
            yield LivePod(**seen, **_holdings(pod), start=pod.start, expected=made)


def _name(tree: Tree) -> str:
    return text(tree, "metadata", "name") or ""


def _key(tree: Tree) -> Key:
    return (text(tree, "metadata", "namespace") or "", _name(tree))


def _holdings(pod: KubePod) -> dict[str, Any]:
    """What a pod holds, or would."""
    bound = pod.bound or text(pod.object.tree, "spec", "nodeName") is not None
    part = pod.part
    return {
        "held_at": None if bound else pod.node,
        "gpus": pod.gpus,
        "requests": tuple(sorted(pod.requests.items())),
        "indices": () if part else pod.indices,
        "shares": tuple(pod.shares) if part and (pod.bound or pod.indices) else (),
        "made": tuple((one.index, one.slices) for one in pod.made) if pod.holds_room else (),
    }


def _seen(tree: Tree, known: Known) -> dict[str, Any]:
    """A pod as its own object describes it, without what it holds."""
    metadata, spec = mapping(tree, "metadata"), mapping(tree, "spec")
    status = mapping(tree, "status")
    gates = [text(one, "name") for one in objects(spec, "schedulingGates")]
    return {
        "namespace": text(metadata, "namespace") or "",
        "name": text(metadata, "name") or "",
        "uid": text(metadata, "uid") or "",
        "version": text(metadata, "resourceVersion") or "",
        "node": text(spec, "nodeName"),
        "gates": tuple(filter(None, gates)),
        "scheduler": text(spec, "schedulerName") or DEFAULT_SCHEDULER,
        "terminating": at(metadata, "deletionTimestamp") is not None,
        "finished": text(status, "phase") in ("Succeeded", "Failed"),
        "unschedulable": known.of(_unschedulable, status.get("conditions")),
        "selector": known.of(_selector, spec.get("nodeSelector")),
        "node_affinity": known.of(_node_affinity, spec.get("affinity")),
        "owner": known.of(_controller, metadata.get("ownerReferences")),
        "tolerations": known.of(read_tolerations, spec.get("tolerations")),
    }


def _unschedulable(conditions: object) -> str | None:
    for condition in objects(conditions):
        if (
            condition.get("type") == "PodScheduled"
            and condition.get("status") == "False"
            and (reason := text(condition, "reason") or "") != "SchedulingGated"
        ):
            return (text(condition, "message") or reason or "not scheduled")[:_MAX_WORDS]
    return None


def _selector(written: object) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(texts(written).items()))


def _node_affinity(affinity: object) -> str:
    return json.dumps(at(affinity, "nodeAffinity"), sort_keys=True, separators=(",", ":"))


def _controller(owners: object) -> str | None:
    found = (text(one, "uid") for one in objects(owners) if one.get("controller") is True)
    return next(found, None)
