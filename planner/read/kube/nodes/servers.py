"""The server model of a node: what it is told to be, else what its devices and labels show.

Promises: a model with a link rate that is known, at least as many GPUs as the node offers, and never
better links than the node shows; where nobody can tell, PCIe only, with a remark that names the fix.
Called by ``assembling``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from models.hardware import MAX_MESH_GPUS, Nic, ServerModel
from models.policy import KubernetesPolicy
from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.devices.slices import resource_of
from planner.read.kube.nodes.products import (
    AMD_DEVICES,
    GKE_ACCELERATORS,
    NO_INSTANCE,
    PRODUCT,
    Product,
    board,
    gpu_name,
    instance,
    plain_instance,
    product,
)
from planner.read.kube.records import MAX_GPUS, KubeNode

Find = Callable[[str], ServerModel | None]

KEY = "gangplan.dev/server-model"
"""Annotation or label by which an operator says what a node is."""

FIX = f"annotate the node with {KEY}, or map it in the Policy under kubernetes.serverModels"
DESCRIBE = "describe the server under serverModels of a Cluster, and map it to the node"

_GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
_MACHINE = "nvidia.com/gpu.machine"
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_PRODUCTS = (
    PRODUCT,
    "aliyun.accelerator/nvidia_name",
    _GKE_ACCELERATOR,
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "amd.com/gpu.product-name",
)
_AMD_IDS = ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id")
_BY_RESOURCE = {
    "nvidia.com/gpu": "NVIDIA GPU",
    "amd.com/gpu": "AMD GPU",
    "habana.ai/gaudi": "Gaudi",
}

_PCIE_MBPS, _SYS_MBPS = 20000, 10000


def server_model(
    node: KubeNode, policy: KubernetesPolicy, find: Find, remarks: Remarks
) -> ServerModel | None:
    """What a node with GPUs is; None without. ``find``: a model by name or alias."""
    if node.installed == 0 and node.gpus == 0:
        return None
    what = _product(node, remarks)
    model = (
        _as_told(node, policy, what, find, remarks)
        or _by_machine(node, what, find, remarks)
        or _by_board(node, what, find, remarks)
    )
    if model is None:
        model = unknown_model(what.gpu, _built_in(node))
        remarks.add(
            node.object.where,
            f"server with {model.gpus} x {model.gpu} unknown, treated as PCIe-only without NICs",
            FIX,
        )
    elif own_nics(model) is not None:
        remarks.add(
            node.object.where,
            f"NIC speeds of {shown(model.name)} are not known; those NICs are left out",
            DESCRIBE,
        )
    return model


def own_nics(model: ServerModel) -> tuple[Nic, ...] | None:
    """The NICs to give its nodes where the model leaves a speed open: those known; else None."""
    known = tuple(nic for nic in model.nics if nic.megabits is not None)
    return None if len(known) == len(model.nics) else known


@lru_cache(maxsize=4096)
def unknown_model(gpu: str, gpus: int) -> ServerModel:
    """A server of which only its GPUs are known: between any two of them goes the slowest path.

    Above 16 GPUs a matrix is not allowed; a switch with one link a GPU at the same rate prices
    every set of two or more GPUs just so.
    """
    gpus = min(max(gpus, 1), MAX_GPUS)
    found = product(gpu)
    name = found.gpu if found.known else gpu_name(gpu)
    meshed = gpus <= MAX_MESH_GPUS
    row = ["SYS"] * gpus
    return ServerModel(
        name=f"unknown {gpus}x {name}",
        gpu=name,
        gpus=gpus,
        fabric="pcie" if meshed else "nvswitch",
        matrix=tuple((*row[:i], "X", *row[i + 1 :]) for i in range(gpus)) if meshed else None,
        link_MBps=None if meshed else _SYS_MBPS,
        links_per_gpu=None if meshed else 1,
        pcie_MBps=_PCIE_MBPS,
        sys_MBps=_SYS_MBPS,
        confidence="assumed",
    )


def _product(node: KubeNode, remarks: Remarks) -> Product:
    """Which GPUs it has: by its devices, else by its labels, else only whose they are."""
    by_device = sorted({one.product for one in node.devices if one.product is not None})
    said = [product(name) for name in by_device]
    if len({one.gpu for one in said}) > 1:
        remarks.add(node.object.where, "has GPUs of several models; they are taken for one unknown")
        return Product(gpu_name("mixed " + " ".join(one.gpu for one in said)), "open", known=False)
    said += [product(node.labels[key]) for key in _PRODUCTS if node.labels.get(key)]
    for key in _AMD_IDS:
        identity = node.labels.get(key, "").lower().removeprefix("0x")
        said += [product(AMD_DEVICES[identity])] if identity in AMD_DEVICES else []
    known = [one for one in said if one.known]
    if len({one.gpu for one in known}) > 1:
        remarks.add(
            node.object.where, f"is labelled with several GPU models; {known[0].gpu} is believed"
        )
    same = [one for one in known if one.gpu == known[0].gpu]
    for one in (*(one for one in same if one.form != "open"), *same, *said):
        return one
    resource = resource_of(node.gpu_resource or "unknown")
    return product(_BY_RESOURCE.get(resource, resource))


def _as_told(
    node: KubeNode, policy: KubernetesPolicy, what: Product, find: Find, remarks: Remarks
) -> ServerModel | None:
    """The model that an annotation, a label or the Policy names."""
    for name, by in _names(node, policy):
        model = find(name) if len(name) <= 253 else None
        if model is None:
            remarks.add(
                node.object.where,
                f"server model {shown(name)} ({by}) is not known; it is ignored",
                "name one of the catalogue, or one under serverModels of a Cluster",
            )
        elif _fits(node, model, remarks):
            if what.known and what.gpu != model.gpu:
                remarks.add(
                    node.object.where,
                    f"is said to be {shown(model.name)} ({by}), but shows {what.gpu} GPUs",
                )
            return model
    return None


def _names(node: KubeNode, policy: KubernetesPolicy) -> Iterator[tuple[str, str]]:
    """(name, who says so), most trusted first."""
    for given, by in ((node.object.annotations, "annotation"), (node.labels, "label")):
        if given.get(KEY):
            yield given[KEY], by
    for selector, name in policy.server_models:
        if all(node.labels.get(key) == value for key, value in selector):
            yield name, "Policy"
            return


def _by_machine(node: KubeNode, what: Product, find: Find, remarks: Remarks) -> ServerModel | None:
    """The model of its instance type or machine name, if it has the GPUs that the node shows."""
    for key in (*_INSTANCE_TYPES, _MACHINE):
        name = node.labels.get(key, "")
        model = _machine(name, find)
        if model is None:
            continue
        if what.known and what.gpu != model.gpu:
            remarks.add(
                node.object.where,
                f"shows {what.gpu} GPUs, which {shown(model.name)} does not have;"
                f" its label {key} is not believed",
            )
        elif _fits(node, model, remarks):
            return model
    accelerator = GKE_ACCELERATORS.get(node.labels.get(_GKE_ACCELERATOR, ""))
    model = None if accelerator is None else find(accelerator)
    if model is not None and model.gpus == node.installed and what.gpu == model.gpu:
        return model if _fits(node, model, remarks) else None
    return None


def _machine(name: str, find: Find) -> ServerModel | None:
    """A model by the name of a machine: its own, an alias, or that of its equal."""
    plain = plain_instance(name)
    if not plain or plain in NO_INSTANCE:
        return None
    equal = instance(name)
    return find(plain) if equal is None else find(equal)


def _by_board(node: KubeNode, what: Product, find: Find, remarks: Remarks) -> ServerModel | None:
    """The model with the board that so many of these GPUs sit on."""
    cloud = any(node.labels.get(key, "") not in {"", *NO_INSTANCE} for key in _INSTANCE_TYPES)
    name = board(what, _built_in(node), cloud=cloud)
    model = None if name is None else find(name)
    if model is None or not _fits(node, model, remarks):
        return None
    if "dgx" not in node.labels.get(_MACHINE, "").lower() and model.nvlink_domain_nodes == 1:
        remarks.add(
            node.object.where,
            f"no server model is known for it; its links and NICs are taken to be those of"
            f" {shown(model.name)}",
            FIX,
        )
    return model


def _built_in(node: KubeNode) -> int:
    """GPUs of the server; what a node offers of shared ones are shares."""
    return node.installed if node.shared is not None else max(node.installed, node.gpus)


def _fits(node: KubeNode, model: ServerModel, remarks: Remarks) -> bool:
    """Whether the node can be this model; says what does not agree."""
    where, name = node.object.where, shown(model.name)
    offered = max(0 if node.shared is not None else node.gpus, len(node.devices))
    if model.gpus < offered:
        remarks.add(where, f"has more GPUs than {name}; that model is not used")
        return False
    if not _usable(model):
        remarks.add(where, f"links of {name} are not known; that model is not used", DESCRIBE)
        return False
    if model.gpus < node.installed:
        remarks.add(where, f"is said to have more GPUs than {name} has; that is not believed")
    elif model.gpus > node.installed and node.shared is None:
        remarks.add(where, f"has fewer GPUs than {name}; the missing ones count as sick")
    return True


def _usable(model: ServerModel) -> bool:
    """Whether its links can be priced: a matrix unless it is switched, and a rate where it has any."""
    if model.matrix is None:
        return model.fabric == "nvswitch" and None not in (model.link_MBps, model.links_per_gpu)
    linked = model.fabric == "nvswitch" or any(
        path.startswith("NV") for row in model.matrix for path in row
    )
    return not linked or model.link_MBps is not None
