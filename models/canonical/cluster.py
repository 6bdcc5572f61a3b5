"""The Cluster as a canonical document: nodes by name, exactly the server models in use.

Promises: one entry a node, ranges expanded. Called by ``models.canonical``.
"""

from __future__ import annotations

from models.canonical.forms import Json, gpu_indices, level_document, present, quantities
from models.cluster import Cluster, Level, Node
from models.documents.base import API_VERSION
from models.hardware import Nic, ServerModel
from models.quantities import exact, number


def cluster_document(cluster: Cluster) -> Json:
    """One Cluster: nodes by name, the server models in use by name."""
    used = {node.model.name: node.model for node in cluster.nodes if node.model is not None}
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name, **present(uid=cluster.uid)},
        "spec": {
            "levels": [level_document(level) for level in cluster.levels],
            "serverModels": [server_model_document(used[name]) for name in sorted(used)],
            "nodes": [_node(node, cluster.levels) for node in cluster.nodes],
        },
    }


def _node(node: Node, levels: tuple[Level, ...]) -> Json:
    return {
        "name": node.name,
        **present(model=node.model.name if node.model else None),
        "domains": {
            level.name: value
            for level, value in zip(levels, node.domains, strict=True)
            if value is not None
        },
        "allocatable": quantities(node.allocatable),
        "unschedulable": node.unschedulable,
        "ready": node.ready,
        "unhealthyGpus": gpu_indices(node.unhealthy),
        "unknownUnhealthy": node.unknown_unhealthy,
        "labels": dict(node.labels),
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
        **present(nics=None if node.nics is None else [_nic(nic) for nic in node.nics]),
    }


def _nic(nic: Nic) -> Json:
    gbps = None if nic.megabits is None else number(exact(nic.megabits) / 1000)
    near = None if nic.gpus is None else list(nic.gpus)
    return {"name": nic.name, "gbps": gbps, **present(gpus=near)}


def server_model_document(model: ServerModel) -> Json:
    """A server model in full."""
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "vendor": model.vendor,
        "gpu": model.gpu,
        "gpus": model.gpus,
        "fabric": model.fabric,
        **present(
            matrix=None if model.matrix is None else [list(row) for row in model.matrix],
            linkMBps=model.link_MBps,
            linksPerGpu=model.links_per_gpu,
        ),
        "pcieMBps": model.pcie_MBps,
        "sysMBps": model.sys_MBps,
        **present(
            numa=None if model.numa is None else list(model.numa),
            pcieSwitch=None if model.pcie_switch is None else list(model.pcie_switch),
        ),
        "nics": [_nic(nic) for nic in model.nics],
        "nvlinkDomainNodes": model.nvlink_domain_nodes,
        "sources": list(model.sources),
        "confidence": model.confidence,
    }
