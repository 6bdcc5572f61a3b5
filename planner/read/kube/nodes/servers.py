"""The server model of a node: as annotated or mapped, else by its devices and labels.

A model has known link rates, at least as many GPUs as the node offers, and never better links than the node
shows. An unknown server counts as PCIe only, with a remark that names the fix.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from models.hardware import MAX_MESH_GPUS, FindModel, Nic, ServerModel
from models.instance.policy import KubernetesPolicy
from models.rates.catalogue import relative_speed
from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.devices.slices import resource_of
from planner.read.kube.lookup import LONGEST
from planner.read.kube.nodes import products
from planner.read.kube.nodes.products import NO_INSTANCE, PRODUCT, Product, gpu_name, product
from planner.read.kube.records import MAX_GPUS, KubeNode

KEY = "gangplan.dev/server-model"
"""Annotation or label by which an operator names the server model of a node."""

FIX = (
    f"annotate the node with {KEY}, or map it in the Policy under kubernetes.serverModels; "
    "gangplan topo lists the models"
)
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


def server_model(
    node: KubeNode, policy: KubernetesPolicy, find: FindModel, remarks: Remarks
) -> ServerModel | None:
    """The server model of a node with GPUs. ``find``: a model by name or alias."""
    return _Server(node, find, remarks).model(policy) if node.largest_gpus else None


def own_nics(model: ServerModel) -> tuple[Nic, ...] | None:
    """The NICs of known speed, if the model has others too; else None."""
    known = tuple(nic for nic in model.nics if nic.megabits is not None)
    return None if len(known) == len(model.nics) else known


@lru_cache(maxsize=4096)
def unknown_model(gpu: str, gpus: int) -> ServerModel:
    """A server of unknown links: any two GPUs are connected by the slowest path. Known GPUs have a speed.

    Above 16 GPUs a matrix is not allowed; a switch with one link a GPU at the same rate gives every
    set of two or more GPUs the same bandwidth.
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
        link_MBps=None if meshed else 10000,  # as between sockets
        links_per_gpu=None if meshed else 1,
        relative_speed=relative_speed(name),
        confidence="assumed",
    )


class _Server:
    def __init__(self, node: KubeNode, find: FindModel, remarks: Remarks) -> None:
        self.node = node
        self.labels = node.labels
        self.find = find
        self.remarks = remarks
        # What a node offers of shared GPUs are shares.
        self.installed = node.installed if node.shared is not None else node.largest_gpus
        self.product = self._product()

    def model(self, policy: KubernetesPolicy) -> ServerModel:
        model = self._named(policy) or self._by_machine() or self._by_board()
        if model is None:
            model = unknown_model(self.product.gpu, self.installed)
            what = f"server with {model.gpus} x {model.gpu}"
            self._add(f"{what} unknown, treated as PCIe-only without NICs", FIX)
        elif own_nics(model) is not None:
            name = shown(model.name)
            self._add(f"NIC speeds of {name} are unknown; those NICs are ignored", DESCRIBE)
        return model

    def _add(self, what: str, hint: str | None = None) -> None:
        self.remarks.add(self.node.object.where, what, hint)

    def _product(self) -> Product:
        """Its GPUs: by its devices, else by its labels, else only by their vendor."""
        devices = (*self.node.devices, *self.node.instances, *self.node.possible)
        by_device = sorted({one.product for one in devices if one.product is not None})
        found = [product(name) for name in by_device]
        if len({one.gpu for one in found}) > 1:
            self._add("has GPUs of several models; they count as one unknown model")
            mixed = "mixed " + " ".join(one.gpu for one in found)
            return Product(gpu_name(mixed), "open", known=False)
        found += [product(self.labels[key]) for key in _PRODUCTS if self.labels.get(key)]
        for key in _AMD_IDS:
            identity = self.labels.get(key, "").lower().removeprefix("0x")
            found += (
                [product(products.AMD_DEVICES[identity])]
                if identity in products.AMD_DEVICES
                else []
            )
        known = [one for one in found if one.known]
        if len({one.gpu for one in known}) > 1:
            self._add(f"is labelled with several GPU models; {known[0].gpu} counts")
        same = [one for one in known if one.gpu == known[0].gpu]
        for one in (*(one for one in same if one.form != "open"), *same, *found):
            return one
        resource = resource_of(self.node.gpu_resource or "unknown")
        return product(_BY_RESOURCE.get(resource, resource))

    def _named(self, policy: KubernetesPolicy) -> ServerModel | None:
        for name, by in self._names(policy):
            model = self.find(name) if len(name) <= LONGEST else None
            if model is None:
                hint = "name one of the catalogue, or one under serverModels of a Cluster"
                self._add(f"server model {shown(name)} ({by}) is unknown; ignored", hint)
                continue
            what = f"is named {shown(model.name)} ({by}), but has {self.product.gpu} GPUs"
            differs = self.product.gpu != model.gpu
            if differs and self.node.board is not None:
                self._add(f"{what}; ignored")
            elif self._fits(model):
                if differs and self.product.known:
                    self._add(what)
                return model
        return None

    def _names(self, policy: KubernetesPolicy) -> Iterator[tuple[str, str]]:
        for given, by in ((self.node.object.annotations, "annotation"), (self.labels, "label")):
            if given.get(KEY):
                yield given[KEY], by
        if (name := policy.server_model_of(self.labels)) is not None:
            yield name, "Policy"

    def _by_machine(self) -> ServerModel | None:
        """The model of its instance type or machine name, if it has the node's GPUs.

        By the machine's own name, an alias, or that of an equal machine; one that is sold with several GPUs
        by its name and its GPU.
        """
        what = self.product
        for key in (*_INSTANCE_TYPES, _MACHINE):
            named = self.labels.get(key, "")
            plain = products.plain_instance(named)
            if not plain or plain in NO_INSTANCE:
                continue
            model = self.find(f"{plain} {what.gpu}") if what.known else None
            model = model or self.find(products.instance(named) or plain)
            if model is not None and what.known and what.gpu != model.gpu:
                name = shown(model.name)
                self._add(f"has {what.gpu} GPUs, but {name} does not; its label {key} is ignored")
            elif model is not None and self._fits(model):
                return model
        accelerator = products.GKE_ACCELERATORS.get(self.labels.get(_GKE_ACCELERATOR, ""))
        model = None if accelerator is None else self.find(accelerator)
        if model is not None and model.gpus == self.node.installed and what.gpu == model.gpu:
            return model if self._fits(model) else None
        return None

    def _by_board(self) -> ServerModel | None:
        cloud = any(self.labels.get(key, "") not in {"", *NO_INSTANCE} for key in _INSTANCE_TYPES)
        name = products.board(self.product, self.installed, cloud=cloud)
        model = None if name is None else self.find(name)
        if model is None or not self._fits(model):
            return None
        if "dgx" not in self.labels.get(_MACHINE, "").lower() and model.nvlink_domain_nodes == 1:
            name = shown(model.name)
            self._add(f"server model unknown; links and NICs of {name} are assumed", FIX)
        return model

    def _fits(self, model: ServerModel) -> bool:
        """Whether the node can be this model; reports differences."""
        node, name = self.node, shown(model.name)
        offered = max(0 if node.shared is not None else node.gpus, len(node.devices))
        if model.gpus < offered:
            self._add(f"has more GPUs than {name}; that model is not used")
            return False
        if not model.usable:
            self._add(f"links of {name} are unknown; that model is not used", DESCRIBE)
            return False
        if model.gpus < node.installed:
            self._add(f"claims more GPUs than {name} has; the claim is ignored")
        elif model.gpus > node.installed and node.shared is None:
            self._add(f"has fewer GPUs than {name}; the missing ones count as unhealthy")
        return True
