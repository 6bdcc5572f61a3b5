"""The server model of a Slurm node: as the Policy names it, else by its instance type, GPU type and features.

Slurm says how many GPUs of which type a node has, not how they are linked: what is assumed is a remark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from models.documents.cluster import HOSTNAME_LABEL
from models.hardware import FindModel, ServerModel
from models.instance.policy import KubernetesPolicy
from models.units import shown
from planner.read.findings import Remarks
from planner.read.kube.lookup import LONGEST
from planner.read.kube.nodes.products import Product, board, instance, plain_instance, product
from planner.read.kube.nodes.servers import unknown_model
from planner.read.slurm.nodes import SlurmNode

GPU_LABEL = "slurm/gpu"
"""Label of the type of GPUs of a node, as Slurm names it."""


def server_of(
    node: SlurmNode,
    kind: str | None,
    gpus: int,
    labels: Mapping[str, str],
    policy: KubernetesPolicy,
    find: FindModel,
    remarks: Remarks,
    *,
    alone: bool,
) -> ServerModel:
    """The server model of a node with so many GPUs.

    ``kind``: their type, as Slurm names it; ``alone``: whether all are of that type.
    """
    subject = f"node {node.name}"
    what = _product(kind, node)
    fix = _fix(labels)
    named = {HOSTNAME_LABEL: node.name, **labels}
    for selector, name in policy.server_models:
        if all(named.get(key) == value for key, value in selector):
            model = find(name) if len(name) <= LONGEST else None
            if model is None:
                remarks.add(
                    subject, f"server model {shown(name)} (Policy) is unknown; ignored", fix
                )
            elif _fits(model, gpus, subject, remarks, fix):
                return model
            break
    plain = plain_instance(node.instance_type)
    model = find(instance(plain) or plain) if plain else None
    if model is not None and model.gpu == what.gpu and _fits(model, gpus, subject, remarks, fix):
        return model
    for one in _forms(what) if alone else ():
        name_ = board(one, gpus, cloud=False)
        model = None if name_ is None else find(name_)
        if model is not None and model.gpus >= gpus:
            of_type = (
                "" if what.form != "open" else f", though {kind or what.gpu} may be another board"
            )
            remarks.add(subject, f"links and NICs of {shown(model.name)} are assumed{of_type}", fix)
            return model
    model = unknown_model(what.gpu, gpus)
    told = (
        f"server with {model.gpus} x {model.gpu}" if what.known else f"{model.gpus} GPUs of a type"
    )
    remarks.add(subject, f"{told} unknown, treated as PCIe-only without NICs", fix)
    return model


def _fix(labels: Mapping[str, str]) -> str:
    """How an operator names the servers with these GPUs."""
    selector = f"{GPU_LABEL}: {labels[GPU_LABEL]}" if GPU_LABEL in labels else ""
    return (
        f"name the servers in a Policy: kubernetes: {{serverModels: [{{nodeSelector: {{{selector}}},"
        " model: NAME}]}; gangplan topo lists the models"
    )


def _product(kind: str | None, node: SlurmNode) -> Product:
    """Its GPUs: by their type, else by a feature that is the name of a GPU."""
    found = product(kind or "GPU")
    if found.known and found.form != "open":
        return found
    named = [one for one in map(product, node.features) if one.known]
    for one in named:
        if not found.known or (one.gpu == found.gpu and one.form != "open"):
            return one
    return found


def _forms(what: Product) -> Iterator[Product]:
    """The product; one of unknown form also as on the board that most servers of it have."""
    yield what
    if what.form == "open":
        yield replace(what, form="board")


def _fits(model: ServerModel, gpus: int, subject: str, remarks: Remarks, fix: str) -> bool:
    name = shown(model.name)
    if model.gpus < gpus:
        remarks.add(subject, f"has more GPUs than {name}; that model is not used", fix)
        return False
    if model.matrix is None and (
        model.fabric != "nvswitch" or None in (model.link_MBps, model.links_per_gpu)
    ):
        remarks.add(subject, f"links of {name} are unknown; that model is not used", fix)
        return False
    if model.gpus > gpus:
        remarks.add(subject, f"has fewer GPUs than {name}; the missing ones count as unhealthy")
    return True
