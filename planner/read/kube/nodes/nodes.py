"""Nodes: what they offer, whether they take pods, and what is known about their GPUs.

Promises: never raises; a node that cannot be understood offers nothing rather than too much, and
never changes another. Called by ``assembling``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from models.cluster import Taint
from models.policy import KubernetesPolicy
from models.units import InvalidValueError, offered, quantity
from planner.read.findings import Remarks
from planner.read.kube.devices.requests import KOORDINATOR, DeviceClasses, is_gpu_name
from planner.read.kube.devices.slices import NodeDevices, read_slices, resource_of
from planner.read.kube.dialects.hami import read_cards
from planner.read.kube.lookup import Tree, at, mapping, objects, text
from planner.read.kube.nodes.gpus import ACK_MODE, Told, node_gpus
from planner.read.kube.records import KubeNode, KubeObject, Objects

_EFFECTS = frozenset({"NoSchedule", "NoExecute", "PreferNoSchedule"})
_EVERY_POD_TAKES = ("cpu", "memory", "pods")


def read_nodes(objects_: Objects, policy: KubernetesPolicy, remarks: Remarks) -> list[KubeNode]:
    """Every Node, sorted by name."""
    nodes = sorted(objects_.of("Node", ""), key=lambda one: one.name)
    slices = read_slices(objects_, remarks)
    reader = _NodeReader(
        resources=policy.gpu_resources,
        slices=slices,
        health={one.name: one for one in objects_.of("Device", "scheduling.koordinator.sh")},
        extended=DeviceClasses(
            objects_, frozenset(entry.driver for found in slices.values() for entry in found)
        ).names_by_driver(),
        doubled=frozenset(
            entry.driver
            for one in nodes
            for entry in slices.get(one.name, ())
            if resource_of(entry.driver) in mapping(one.tree, "status", "capacity")
        ),
        hami=policy.gpu_backend == "hami",
        remarks=remarks,
    )
    return [reader.read(one) for one in nodes]


@dataclass(frozen=True, slots=True)
class _NodeReader:
    """Reads nodes of one input; fields as in ``Told``, by node name where they differ.

    ``hami``: whether HAMi is told which cards to give, so that its nodes give them whole.
    """

    resources: Sequence[str]
    slices: Mapping[str, Sequence[NodeDevices]]
    health: Mapping[str, KubeObject]
    extended: Mapping[str, tuple[str, ...]]
    doubled: Collection[str]
    hami: bool
    remarks: Remarks

    def read(self, node: KubeObject) -> KubeNode:
        capacity = _amounts(node, mapping(node.tree, "status", "capacity"), self.remarks)
        allocatable = self._allocatable(node, capacity)
        offers = {name: allocatable.pop(name) for name in self.resources if name in allocatable}
        told = Told(
            node=node,
            capacity={name: capacity[name] for name in self.resources if name in capacity},
            allocatable=offers,
            others=allocatable,
            slices=self.slices.get(node.name, ()),
            health=self.health.get(node.name),
            extended=self.extended,
            doubled=self.doubled,
            cards=read_cards(node.annotations) if self.hami else None,
        )
        self._tell_of_others(node, allocatable)
        gpus = node_gpus(told, self.resources, self.remarks)
        taints = _taints(node)
        return KubeNode(
            object=node,
            allocatable=allocatable,
            gpus=gpus.gpus,
            installed=gpus.installed,
            gpu_resource=gpus.resource,
            ready=_ready(node),
            unschedulable=_closed(node, taints, self.remarks),
            taints=taints or (),
            devices=gpus.devices,
            asked_by=gpus.asked_by,
            shared=gpus.shared,
            topology_only=node.labels.get(ACK_MODE) == "topology",
            sick=gpus.sick,
        )

    def _tell_of_others(self, node: KubeObject, allocatable: Mapping[str, int]) -> None:
        """Say which GPUs do not count because the Policy leaves their name out."""
        for name, amount in sorted(allocatable.items()):
            if is_gpu_name(name) and amount and not name.startswith(KOORDINATOR):
                self.remarks.add(
                    node.where,
                    f"offers GPUs as {name}, which the Policy does not list; they are not counted",
                    "list the name under kubernetes.gpuResources",
                )

    def _allocatable(self, node: KubeObject, capacity: dict[str, int]) -> dict[str, int]:
        written = at(node.tree, "status", "allocatable")
        # The API server itself takes the capacity where no allocatable is set.
        found = dict(capacity)
        if isinstance(written, dict):
            found = _amounts(node, written, self.remarks)
        for resource in _EVERY_POD_TAKES:
            if resource not in found:
                self.remarks.add(node.where, f"tells of no {resource}; it has none to give")
                found[resource] = 0
        return found


@lru_cache(maxsize=65536)
def _units(resource: str, written: str) -> int:
    """Units a node offers of a resource. Raises InvalidValueError."""
    return offered(resource, quantity(written))


def _amounts(node: KubeObject, written: Tree, remarks: Remarks) -> dict[str, int]:
    """Amounts by resource; one that cannot be read is 0, for an absent one would not limit."""
    found = {}
    for resource, value in written.items():
        try:
            found[resource] = _amount(resource, value)
        except InvalidValueError:
            remarks.add(node.where, "tells an amount that is no quantity; it counts as 0")
            found[resource] = 0
    return found


def _amount(resource: str, value: object) -> int:
    if isinstance(value, str):
        return _units(resource, value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise InvalidValueError("not a quantity")
    if -(2**53) < value < 2**53:
        return _units(resource, str(value))
    raise InvalidValueError("not a quantity")


def _ready(node: KubeObject) -> bool:
    """Whether every Ready condition says True; a node without one has never been heard of."""
    said = [
        condition.get("status")
        for condition in objects(node.tree, "status", "conditions")
        if condition.get("type") == "Ready"
    ]
    return bool(said) and all(status == "True" for status in said)


def _taints(node: KubeObject) -> tuple[Taint, ...] | None:
    """Its taints; None if there is one that cannot be read."""
    written = at(node.tree, "spec", "taints")
    if written is None:
        return ()
    found = [_taint(entry) for entry in written] if isinstance(written, list) else [None]
    taints = tuple(taint for taint in found if taint is not None)
    return taints if len(taints) == len(found) else None


def _taint(entry: object) -> Taint | None:
    key, effect = text(entry, "key"), text(entry, "effect")
    value = at(entry, "value")
    if key is None or effect not in _EFFECTS or not isinstance(value, str | None):
        return None
    return Taint(key, value or "", effect)


def _closed(node: KubeObject, taints: tuple[Taint, ...] | None, remarks: Remarks) -> bool:
    """Whether nothing new may go there: cordoned, or no one can tell that it may."""
    cordon = at(node.tree, "spec", "unschedulable")
    if taints is None:
        remarks.add(node.where, "has a taint that cannot be read; nothing is placed on it")
        return True
    if at(node.tree, "metadata", "deletionTimestamp") is not None:
        remarks.add(node.where, "is being deleted; nothing is placed on it")
        return True
    if cordon is not None and not isinstance(cordon, bool):
        remarks.add(node.where, "does not say clearly whether it is cordoned; it counts as such")
        return True
    return cordon is True
