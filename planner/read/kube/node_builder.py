"""Nodes as an instance has them: model, domains, what gangs may use, unhealthy GPUs.

Pods are kept to nodes that offer GPUs by the name they request, through labels that exist in the plan only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from models.documents.cluster import HOSTNAME_LABEL, MigGpus, Taint
from models.gpu_shares import part_of
from models.hardware import FindModel, ServerModel, mask_of
from models.instance.cluster import Node
from models.instance.gang import OFFERS
from models.instance.policy import KubernetesPolicy
from models.mig import Board, board_named, boards_of, instance_in, resource_of
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import planned_profile
from planner.read.kube.dialects.gpus import Mark
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import SHORT, clean, is_label_key, is_label_value
from planner.read.kube.nodes.products import PRODUCT, mig_boards
from planner.read.kube.nodes.servers import own_nics, server_model, unknown_model
from planner.read.kube.pods.requests import is_gpu_name, is_resource
from planner.read.kube.records import Device, KubeGang, KubeNode, KubeObject, KubePod, Objects

DYNAMIC_MIG = "gangplan.dev/dynamic-mig"
"""Annotation of a node: the board of its GPUs, which plans may partition while they are idle."""

_VENDORS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel", "habana": "intel", "gaudi": "intel"}
"""Words in names of resources and drivers, and the vendor of their GPUs."""


def partial_gpu_names(nodes: Sequence[KubeNode], gangs: Sequence[KubeGang]) -> frozenset[str]:
    """Names by which gangs request GPUs and that some node with GPUs does not offer."""
    requested = {pod.gpu_resource for gang in gangs for pod in gang.pods() if pod.gpus or pod.part}
    offered = {node.gpu_names for node in nodes if node.gpus}
    return frozenset(
        name for name in requested if name is not None and not all(name in one for one in offered)
    )


def gpu_label(name: str) -> str:
    """The label of nodes whose GPUs are requested by this name."""
    return OFFERS + clean(name.replace("/", "-"), SHORT)


def gpu_labels(names: Collection[str], partial: Collection[str]) -> dict[str, str]:
    """Labels of a node that offers its GPUs by these names."""
    return {gpu_label(name): "true" for name in names if name in partial}


def assumed_gpu_labels(vendor: str, partial: Collection[str]) -> dict[str, str]:
    """Labels of a node written by hand: its GPUs are offered by all names its vendor may have."""
    known = vendor.lower() in _VENDORS.values()
    names = []
    for name in sorted(partial):
        vendors = {of for word, of in _VENDORS.items() if word in name}
        if not known or not vendors or vendor.lower() in vendors:
            names.append(name)
    return gpu_labels(names, partial)


class Use(Struct):
    """What pods use of one node.

    ``resources``, ``pods``, ``lost_gpus``: by pods of no gang; ``resources`` also holds what a pod of a
    gang requests beyond what its role counts for. ``lasting``: what of it is there as long as the node: of
    DaemonSets and static pods. ``in_gangs``, ``gang_gpus``: by gangs. ``made``: by GPU, the instances that
    claims made of it; ``closed``: GPUs beside whose instances no others may come, as a plan cannot state
    of each which pod of a gang has it, and nothing else. ``hidden``: pods have instances of its GPUs that
    were not made for them.
    """

    resources: Counter[str] = msgspec.field(default_factory=Counter)
    lasting: Counter[str] = msgspec.field(default_factory=Counter)
    in_gangs: Counter[str] = msgspec.field(default_factory=Counter)
    pods: int = 0
    gang_gpus: int = 0
    lost_gpus: int = 0
    made: dict[int, list[Device]] = {}
    closed: set[int] = set()
    hidden: bool = False

    def add_made(self, pod: KubePod, counted: Mapping[str, int]) -> None:
        alone = pod.instance is not None and instance_in(counted) is not None
        for one in pod.made:
            own = self.made.setdefault(one.index, [])
            if not alone or one in own:
                self.closed.add(one.index)
            own.append(one)

    @property
    def fixed(self) -> dict[int, set[Device]]:
        """The instances of closed GPUs."""
        return {index: set(self.made[index]) for index in self.closed}


def _lasts(pod: KubeObject, api: Objects) -> bool:
    """Whether the pod is there as long as its node, as others can see: a tenant may name any owner."""
    owner = api.owner_of(pod)
    if owner is None or owner.kind != "Node":
        return owner is not None and owner.kind == "DaemonSet"
    return pod.namespace == "kube-system"


def node_uses(
    nodes: Sequence[KubeNode],
    pods: Sequence[KubePod],
    members: Mapping[tuple[str, str], Mapping[str, int]],
    api: Objects,
) -> Mapping[str, Use]:
    """What pods use of each node, by node name.

    ``members``: pods that are in a gang, with the requests that each pod of their role counts for.
    """
    found = {node.name: Use() for node in nodes}
    lost = set[tuple[str, int | str]]()
    by_hami = {node.name for node in nodes if node.mig_kinds}
    for pod in pods:
        if pod.node is None or pod.finished is not None or pod.node not in found:
            continue
        use, counted = found[pod.node], members.get(pod.key)
        use.hidden |= pod.node in by_hami and pod.wants_gpus and pod.holds_room and not pod.made
        use.add_made(pod, counted or {})
        part = pod.part
        for gpu in pod.shares if part not in (counted or ()) else ():
            # Nobody can say what is left of its GPU.
            use.lost_gpus += (pod.node, gpu) not in lost
            lost.add((pod.node, gpu))
        requests = pod.requests
        if part is not None:
            requests = {name: amount for name, amount in requests.items() if name != part}
        if counted is None:
            use.lost_gpus += pod.gpus
            use.resources.update(requests)
            use.pods += 1
            if _lasts(pod.object, api):
                use.lasting.update({"pods": 1, **requests})
            continue
        use.gang_gpus += pod.gpus
        use.in_gangs["pods"] += 1
        for name, amount in requests.items():
            inside = min(amount, counted.get(name, 0))
            use.in_gangs[name] += inside
            if amount > inside:
                use.resources[name] += amount - inside
    for use in found.values():
        use.lost_gpus += len(use.closed)
    return found


class NodeBuilder(Struct):
    """Makes nodes of the instance.

    ``keys``: label keys that some selector uses; other labels are left out. ``requested``: resources
    that some gang requests: a node without one offers 0. ``partial``: see ``partial_gpu_names``.
    ``marks``: of pods that nodes refuse without them. ``failures``: whether it matters
    when nodes failed. ``by_claims``: only claims partition GPUs. ``joined``: nodes that NVLink joins.
    """

    levels: Levels
    policy: KubernetesPolicy
    find: FindModel
    keys: Collection[str]
    requested: Collection[str]
    partial: Collection[str]
    marks: Sequence[Mark]
    remarks: Remarks
    failures: bool = False
    joined: set[str] = set()

    def node(self, node: KubeNode, use: Use, remarks: Remarks) -> Node:
        """What the instance has of a node. ``remarks``: on its server model."""
        model = server_model(node, self.policy, self.find, remarks)
        if model is None and use.gang_gpus:
            self.remarks.add(
                node.object.where,
                "reports no GPUs, but pods hold some; these count as all it has",
            )
            model = unknown_model("unknown", use.gang_gpus)
        allocatable, held = self._amounts(node, use)
        gpus: dict[str, Any] = {} if model is None else self._gpus(node, model, use)
        if instances := gpus.get("mig"):
            found = Counter(resource_of(name) for one in instances for name in one.profiles)
            allocatable = {**(found - Counter(held)), **allocatable}
        return Node(
            node.name,
            model,
            self.levels.domain(node.name),
            tuple(sorted(allocatable.items())),
            tuple(sorted(self._labels(node).items())),
            self._taints(node),
            unschedulable=node.unschedulable,
            ready=node.ready,
            held=tuple(sorted(held.items())),
            last_failure=node.failed_at if self.failures else None,
            **gpus,
        )

    def _gpus(self, node: KubeNode, model: ServerModel, use: Use) -> dict[str, Any]:
        if model.nvlink_domain_nodes > 1:
            self.joined.add(node.name)
        sick = {gpu for gpu in node.sick if gpu < model.gpus}
        unusable = _unusable(node, model, len(sick), use)
        found: dict[str, Any] = {"nics": own_nics(model)}
        mig = _mig(node, model, use)
        if mig and len(mig) <= unusable:
            found["mig"] = tuple(MigGpus((gpu,), tuple(mig[gpu])) for gpu in sorted(mig))
            unusable -= len(mig)
            sick |= mig.keys()
        partitioned = model.gpus - len(sick) - (0 if node.shared else node.gpus)
        if node.partitioned:
            found["unknown_partitioned"] = min(unusable, max(0, partitioned))
        if (board := self._board(node, model, use)) is not None:
            found["dynamic_mig"] = board
        elif node.sharing is not None:
            found["sharing"] = node.sharing
        return {**found, "unhealthy": mask_of(sick), "unknown_unhealthy": unusable}

    def _board(self, node: KubeNode, model: ServerModel, use: Use) -> str | None:
        """The board of GPUs that plans may partition, as devices or the administrator's annotation say."""
        if node.mig_mode and use.hidden:
            return None
        by_claims = self.policy.gpu_backend == "dra"
        stated = None if by_claims else node.object.annotations.get(DYNAMIC_MIG)
        if stated is None:
            return node.board
        board, known = board_named(stated), [one for one in _boards(node, model) if one.placed]
        if board is not None and board in known:
            return board.name
        names = " or ".join(one.name for one in known)
        what = (
            "names no board of its GPUs" if names else "is of no use: no board of its GPUs is known"
        )
        hint = f"write {names}" if names else None
        self.remarks.add(node.object.where, f"annotation {DYNAMIC_MIG} {what}; ignored", hint)
        return None

    def _amounts(self, node: KubeNode, use: Use) -> tuple[dict[str, int], dict[str, int]]:
        """What is left for gangs: allocatable less pods of no gang; and what may come back to them."""
        left = {**dict.fromkeys(node.withheld, 0), **node.allocatable}
        for one in (one for made in use.fixed.values() for one in made):
            if planned_profile(node, one):
                resource = resource_of(one.profile or "")
                left[resource] = left.get(resource, 0) + 1
        for resource in self.requested:
            if "/" in resource and part_of(resource) is None:
                left.setdefault(resource, 0)
        taken = use.resources + Counter({"pods": use.pods})
        for resource, amount in sorted((taken + use.in_gangs).items()):
            if node.allocatable.get(resource, amount) < amount:
                what = f"its pods request more {resource} than it has; none is free there"
                self.remarks.add(node.object.where, what)
        held = Counter(node.withheld)
        for resource, amount in taken.items():
            if resource in left and (less := min(amount, left[resource])) > 0:
                left[resource] -= less
                held[resource] += max(0, less - use.lasting[resource])
        kept = {
            name: amount
            for name, amount in left.items()
            if is_resource(name) and not is_gpu_name(name)
        }
        return kept, {name: held[name] for name in kept if held[name]}

    def _labels(self, node: KubeNode) -> dict[str, str]:
        kept = {}
        for key in sorted(node.labels):
            value = node.labels[key]
            if key in self.keys and (key != HOSTNAME_LABEL or value != node.name):
                if is_label_key(key) and is_label_value(value):
                    kept[key] = value
                else:
                    self.remarks.add(node.object.where, "has a malformed label; ignored")
        return kept | gpu_labels(node.gpu_names, self.partial)

    def _taints(self, node: KubeNode) -> tuple[Taint, ...]:
        return (*node.taints, *(one.taint for one in self.marks if one.refuses(node)))


def _boards(node: KubeNode, model: ServerModel) -> list[Board]:
    """The boards that its GPUs may be: of the server model, and of the product that a label names."""
    found, written = boards_of(model.gpu), node.labels.get(PRODUCT)
    own = found if written is None else mig_boards(written)
    return [one for one in found if one in own]


def _mig(node: KubeNode, model: ServerModel, use: Use) -> dict[int, list[str]]:
    """Profiles of the instances on each healthy GPU; {} if no board of the model is known to have them.

    And of those in use that claims made, where none may come besides.
    """
    found: dict[int, list[str]] = {}
    for one in node.instances:
        if one.profile is not None and one.index not in node.sick:
            found.setdefault(one.index, []).append(one.profile)
    for gpu, made in use.fixed.items():
        found[gpu] = sorted(one.profile or "" for one in made)
    for gpu in node.mig_mode if not use.hidden else ():
        found.setdefault(gpu, [])
    stated = board_named(node.board or node.object.annotations.get(DYNAMIC_MIG, ""))
    fits = any(
        stated in (None, board) and all(map(board.can_have, found.values()))
        for board in _boards(node, model)
    )
    return found if fits and all(gpu < model.gpus for gpu in found) else {}


def _unusable(node: KubeNode, model: ServerModel, sick: int, use: Use) -> int:
    """GPUs that cannot be given, indices unknown: unhealthy, shared, or held by pods of no gang."""
    usable = 0 if node.shared is not None else max(0, node.gpus - use.lost_gpus)
    if not node.largest_gpus and use.gang_gpus:
        usable = model.gpus  # a model made up for what pods hold: nothing of it is unhealthy
    return max(0, model.gpus - sick - usable)
