"""Names by which GPUs are asked for, where not every node offers its own by all of them.

Promises: a pod is kept to nodes that offer GPUs by its name, through labels that nodes and roles
are given in the plan alone. Called by ``assembling``, the trees, and ``planner.reading.real``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from planner.reading.kubernetes.forms import KubeGang, KubeNode
from planner.reading.kubernetes.naming import SHORT, clean

_PREFIX = "offers.gangplan.dev/"
_MAKERS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel", "habana": "intel", "gaudi": "intel"}
"""Words in names of resources and drivers, and whose GPUs they mean."""


def telling(nodes: Sequence[KubeNode], gangs: Sequence[KubeGang]) -> frozenset[str]:
    """Names by which gangs ask for GPUs and some node with GPUs does not offer its own."""
    asked = {pod.gpu_resource for gang in gangs for pod in gang.pods() if pod.gpus}
    offered = {node.asked_by for node in nodes if node.gpus}
    return frozenset(
        name for name in asked if name is not None and not all(name in one for one in offered)
    )


def label(name: str) -> str:
    """The label of nodes whose GPUs are asked for by this name."""
    return _PREFIX + clean(name.replace("/", "-"), SHORT)


def labels(names: Collection[str], told: Collection[str]) -> dict[str, str]:
    """What a node is labelled with that offers its GPUs by these names."""
    return {label(name): "true" for name in names if name in told}


def imagined(vendor: str, told: Collection[str]) -> dict[str, str]:
    """What a node nobody recorded is labelled with: its GPUs go by all names its maker may have."""
    maker = vendor.lower()
    known = maker in _MAKERS.values()
    names = []
    for name in sorted(told):
        makers = {of for word, of in _MAKERS.items() if word in name}
        if not known or not makers or maker in makers:
            names.append(name)
    return labels(names, told)
