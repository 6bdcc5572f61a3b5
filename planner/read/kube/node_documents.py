"""Nodes as entries of a compact Cluster document: model, domains, what gangs may use, what is sick.

Promises: an entry that its own rules refuse becomes a remark and the node is left out, which gives
nothing away. Called by ``assembling``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from models.hardware import Nic, ServerModel, slug
from models.units import exact, number
from planner.read.findings import Remarks
from planner.read.kube import gang_documents as offering
from planner.read.kube.devices.requests import is_gpu_name
from planner.read.kube.gang_documents import ACK_SCHEDULE, Json, amounts
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import is_label_key, is_label_value
from planner.read.kube.nodes.servers import Find, own_nics, unknown_model
from planner.read.kube.records import KubeNode, KubePod

HOSTNAME = "kubernetes.io/hostname"


@dataclass(slots=True)
class Use:
    """What pods take of one node: ``resources``, ``pods`` and ``lost_gpus`` those of no gang.

    ``in_gangs``, ``gang_gpus``: what gangs use and hold there.
    """

    resources: Counter[str] = field(default_factory=Counter)
    in_gangs: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    gang_gpus: int = 0
    lost_gpus: int = 0

    def take(self, pod: KubePod) -> None:
        """Take a pod that is in no gang off the node."""
        self.resources.update(pod.requests)
        self.pods += 1
        self.lost_gpus += pod.gpus


@dataclass(slots=True)
class NodeTrees:
    """Turns nodes into entries.

    ``keys``: label keys that some selector asks for; other labels decide nothing and are left out.
    ``asked``: resources that some gang asks for: where a node does not have one, it offers 0.
    ``telling``: as in ``GangTrees``. ``marked_only``: topology-only nodes refuse GPU
    pods without the mark.
    """

    levels: Levels
    find: Find
    keys: Collection[str]
    asked: Collection[str]
    telling: Collection[str]
    marked_only: bool
    remarks: Remarks
    models: dict[str, ServerModel] = field(default_factory=dict)

    def tree(self, node: KubeNode, model: ServerModel | None, use: Use) -> Json:
        """The entry of a node."""
        if model is None and use.gang_gpus:
            self.remarks.add(
                node.object.where,
                "has no GPUs by its own account, but pods hold some; they count as all it has",
            )
            model = unknown_model("unknown", use.gang_gpus)
        tree: Json = {
            "name": node.name,
            "domains": self._domains(node),
            "allocatable": self._allocatable(node, use),
            "unschedulable": node.unschedulable,
            "ready": node.ready,
            "labels": self._labels(node),
            "taints": self._taints(node),
        }
        if model is not None:
            self.models[slug(model.name)] = model
            tree["model"] = model.name
            sick = [gpu for gpu in sorted(set(node.sick)) if gpu < model.gpus]
            tree["unhealthyGpus"] = sick
            tree["unknownUnhealthy"] = self._unknown_sick(node, model, len(sick), use)
            if (nics := own_nics(model)) is not None:
                tree["nics"] = [_nic(nic) for nic in nics]
        return tree

    def _unknown_sick(self, node: KubeNode, model: ServerModel, sick: int, use: Use) -> int:
        """GPUs never to be given, which ones nobody knows: sick, shared out, or lost."""
        given = 0 if node.shared is not None else max(0, node.gpus - use.lost_gpus)
        if node.installed == 0 and node.gpus == 0 and use.gang_gpus:
            given = model.gpus  # a model made up for what pods hold: nothing of it is sick
        return max(0, model.gpus - sick - given)

    def _domains(self, node: KubeNode) -> Json:
        values = self.levels.domain(node.name)
        return {
            level.name: value
            for level, value in zip(self.levels.levels, values, strict=True)
            if value is not None
        }

    def _allocatable(self, node: KubeNode, use: Use) -> Json:
        """What is left for gangs: allocatable less pods of no gang."""
        left = dict(node.allocatable)
        for resource in self.asked:
            if "/" in resource:
                left.setdefault(resource, 0)
        taken = use.resources + Counter({"pods": use.pods})
        for resource, amount in sorted((taken + use.in_gangs).items()):
            if node.allocatable.get(resource, amount) < amount:
                what = f"its pods ask for more {resource} than it has; no other that asks is added"
                self.remarks.add(node.object.where, what)
        for resource, amount in taken.items():
            if resource in left:
                left[resource] = max(0, left[resource] - amount)
        kept = (name for name in left if is_label_key(name) and not is_gpu_name(name))
        return amounts({name: left[name] for name in kept})

    def _labels(self, node: KubeNode) -> Json:
        kept = {}
        for key in sorted(node.labels):
            value = node.labels[key]
            if key in self.keys and (key != HOSTNAME or value != node.name):
                if is_label_key(key) and is_label_value(value):
                    kept[key] = value
                else:
                    self.remarks.add(node.object.where, "has a malformed label; it is ignored")
        return kept | offering.labels(node.asked_by, self.telling)

    def _taints(self, node: KubeNode) -> list[Json]:
        taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
        if node.topology_only and self.marked_only:
            taints.append({"key": ACK_SCHEDULE, "value": "topology", "effect": "NoSchedule"})
        return taints


def uses(
    nodes: Sequence[KubeNode], pods: Sequence[KubePod], members: Collection[tuple[str, str]]
) -> Mapping[str, Use]:
    """What pods take of each node, by node name; ``members``: pods that are in a gang."""
    found = {node.name: Use() for node in nodes}
    for pod in pods:
        if pod.node is None or pod.finished is not None or pod.node not in found:
            continue
        if pod.key in members:
            found[pod.node].gang_gpus += pod.gpus
            found[pod.node].in_gangs.update(pod.requests)
            found[pod.node].in_gangs["pods"] += 1
        else:
            found[pod.node].take(pod)
    return found


def _nic(nic: Nic) -> Json:
    tree: Json = {
        "name": nic.name,
        "gbps": None if nic.megabits is None else number(exact(nic.megabits) / 1000),
    }
    if nic.gpus is not None:
        tree["gpus"] = list(nic.gpus)
    return tree
