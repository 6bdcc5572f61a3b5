"""Nodes: what they offer, whether they take pods, and their GPUs.

Nothing raises; a malformed node offers nothing rather than too much, and does not change others.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from models.documents.cluster import Taint
from models.instance.policy import KubernetesPolicy
from models.mig import RESOURCE
from models.units import offered
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import DeviceClasses
from planner.read.kube.devices.slices import read_slices, resource_of
from planner.read.kube.dialect_registry import gpu_systems
from planner.read.kube.lookup import (
    Tree,
    amount,
    at,
    conditions,
    is_label_key,
    is_label_value,
    mapping,
    text,
    time_of,
)
from planner.read.kube.nodes.gpus import GpuReader, NodeInput
from planner.read.kube.pods.asks import sharers
from planner.read.kube.pods.requests import is_gpu_name
from planner.read.kube.records import KubeNode, KubeObject, Objects

_EFFECTS = frozenset({"NoSchedule", "NoExecute", "PreferNoSchedule"})
FAILURE = "gangplan.dev/last-failure"
"""Annotation of a Node: when it, or a link of it, last failed, as a tool that watches health has it."""

JOINING_S = 600
"""A node that is ready so soon after it was created has joined, not come back."""

_EVERY_POD_TAKES = ("cpu", "memory", "pods")


def read_nodes(
    objects_: Objects,
    policy: KubernetesPolicy,
    remarks: Remarks,
    expected: Sequence[KubeObject] = (),
) -> list[KubeNode]:
    """Every Node, sorted by name. ``expected``: pods that do not exist yet."""
    nodes = sorted(objects_.of("Node", ""), key=lambda one: one.name)
    slices = read_slices(objects_, remarks, possible=policy.gpu_backend == "dra")
    drivers = frozenset(entry.driver for found in slices.values() for entry in found)
    doubled = frozenset(
        entry.driver
        for one in nodes
        for entry in slices.get(one.name, ())
        if resource_of(entry.driver) in mapping(one.tree, "status", "capacity")
    )
    offered = (mapping(one.tree, "status", "allocatable").items() for one in nodes)
    systems = gpu_systems()
    reader = _NodeReader(
        NodeInput(
            policy,
            slices,
            DeviceClasses(objects_, drivers).names_by_driver(),
            doubled,
            any(name.startswith(RESOURCE) and n not in (0, "0") for o in offered for name, n in o),
            sharers((*objects_.of("Pod", ""), *expected), systems),
            systems,
            remarks,
        )
    )
    return [reader.read(one) for one in nodes]


class _NodeReader:
    def __init__(self, input_: NodeInput) -> None:
        self.input, self.remarks = input_, input_.remarks

    def read(self, object_: KubeObject) -> KubeNode:
        capacity = self._amounts(object_, mapping(object_.tree, "status", "capacity"))
        written = at(object_.tree, "status", "allocatable")
        # The API server takes the capacity if no allocatable is set.
        allocatable = dict(capacity)
        if isinstance(written, dict):
            allocatable = self._amounts(object_, written)
        for resource in (one for one in _EVERY_POD_TAKES if one not in allocatable):
            self.remarks.add(object_.where, f"has no {resource} in its status; it offers none")
            allocatable[resource] = 0
        names = self.input.policy.gpu_resources
        gpus = {name: allocatable.pop(name) for name in names if name in allocatable}
        node = KubeNode(
            object_,
            allocatable,
            # A node without the condition has never reported.
            ready=bool(ready := conditions(object_.tree, "Ready"))
            and all(one.get("status") == "True" for one in ready),
            failed_at=self._failed_at(object_),
        )
        for name, most in capacity.items():
            if name.startswith(RESOURCE) and most > allocatable.get(name, 0):
                node.withheld[name] = most - allocatable.get(name, 0)
        for name, most in sorted(allocatable.items()):
            if is_gpu_name(name) and most:
                self.remarks.add(
                    object_.where,
                    f"offers GPUs as {name}, which the Policy does not list; they are not counted",
                    "list the name under kubernetes.gpuResources",
                )
        installed = {name: capacity[name] for name in names if name in capacity}
        GpuReader(node, self.input, installed, gpus).read()
        taints = _taints(object_)
        node.unschedulable = self._is_closed(object_, readable=taints is not None)
        node.taints = taints or ()
        return node

    def _failed_at(self, object_: KubeObject) -> int | None:
        """When the node last failed: as its annotation says, or when it became ready again."""
        stated = object_.annotations.get(FAILURE)
        known = [] if stated is None else [time_of(stated)]
        if known == [None]:
            self.remarks.add(object_.subject, f"annotation {FAILURE} is not a time; ignored")
        created = object_.created
        for condition in conditions(object_.tree, "Ready") if created is not None else ():
            since = time_of(condition.get("lastTransitionTime"))
            known += [since] if since is not None and since - (created or 0) >= JOINING_S else []
        return max((one for one in known if one is not None), default=None)

    def _amounts(self, node: KubeObject, written: Tree) -> dict[str, int]:
        """Amounts by resource; a malformed one is 0, because an absent one would not limit."""
        found = {}
        for resource, value in written.items():
            stated = amount(value)
            if stated is None:
                self.remarks.add(node.where, "has an amount that is not a quantity; it counts as 0")
            found[resource] = offered(resource, stated or Fraction())
        return found

    def _is_closed(self, node: KubeObject, *, readable: bool) -> bool:
        """Whether nothing new may go there. ``readable``: its taints are."""
        cordon = at(node.tree, "spec", "unschedulable")
        if not readable:
            what = "has a malformed taint; nothing is placed on it"
        elif at(node.tree, "metadata", "deletionTimestamp") is not None:
            what = "is being deleted; nothing is placed on it"
        elif cordon is not None and not isinstance(cordon, bool):
            what = "has a malformed unschedulable field; it counts as cordoned"
        else:
            return cordon is True
        self.remarks.add(node.where, what)
        return True


def _taints(node: KubeObject) -> tuple[Taint, ...] | None:
    """Its taints; None if one is malformed."""
    written = at(node.tree, "spec", "taints")
    found = []
    for entry in written if isinstance(written, list) else () if written is None else (None,):
        key, effect, value = text(entry, "key"), text(entry, "effect"), at(entry, "value")
        if key is None or effect not in _EFFECTS or not isinstance(value, str | None):
            return None
        if not (is_label_key(key) and is_label_value(value or "")):
            return None
        found.append(Taint(key, value or "", effect))  # type: ignore[arg-type]
    return tuple(found)
