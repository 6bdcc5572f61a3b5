"""Objects that define levels by node labels: Kueue's and KAI's Topology.

Of several Topologies one is used, and a remark names the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.documents.cluster import HOSTNAME_LABEL
from planner.read.findings import Remarks
from planner.read.kube.levels.label_families import family_of
from planner.read.kube.levels.node_domains import Found, labelled
from planner.read.kube.lookup import objects, text, texts
from planner.read.kube.records import KubeNode, KubeObject, Objects

KUEUE = "kueue.x-k8s.io"
KAI = "kai.scheduler"
_MAX_KEYS = 16

Named = tuple[str, tuple[str, ...]]
"""A level as an object defines it: its name, and its labels, of which the first counts."""


def from_topologies(gathered: Objects, nodes: Sequence[KubeNode], remarks: Remarks) -> Found | None:
    """The levels of the Topology that most GPU nodes follow; None if there is none to use."""
    found = gathered.of("Topology", KUEUE, KAI)
    if not found:
        return None
    flavored = _flavored(gathered, nodes)
    having = {one: _having(one, nodes) for one in found}
    usable = [one for one in found if having[one]]
    for one in found:
        if one not in usable:
            remarks.add(_title(one), "no node has a label of its levels; not used")
    if not usable:
        return None
    chosen = min(usable, key=lambda one: (-flavored.get(one.name, 0), -having[one], _order(one)))
    for one in usable:
        if one is not chosen:
            remarks.add(
                _title(one),
                f"not used; the levels are those of {_title(chosen)}",
                "state `levels` in the Policy to use others",
            )
    columns = [labelled(name, keys, nodes, remarks) for name, keys in _levels(chosen)]
    return Found(_title(chosen), tuple(columns))


def _title(topology: KubeObject) -> str:
    maker = "Kueue" if topology.group == KUEUE else "KAI"
    return f"{maker} Topology {topology.name}"


def _order(topology: KubeObject) -> tuple[bool, str]:
    return topology.group != KUEUE, topology.name


def _levels(topology: KubeObject) -> list[Named]:
    """Names and labels of its levels, each label once, widest first."""
    result: dict[str, Named] = {}
    for level in objects(topology.tree, "spec", "levels")[:_MAX_KEYS]:
        key = text(level, "nodeLabel")
        if key is not None:
            result.setdefault(key, (text(level, "alias") or family_of(key).name, (key,)))
    return list(result.values())


def _having(topology: KubeObject, nodes: Sequence[KubeNode]) -> int:
    """How many nodes have a label of its levels other than the hostname."""
    keys = {key for _, keys in _levels(topology) for key in keys if key != HOSTNAME_LABEL}
    return sum(1 for node in nodes if any(node.labels.get(key) for key in keys))


def _flavored(gathered: Objects, nodes: Sequence[KubeNode]) -> dict[str, int]:
    """GPU nodes of the ResourceFlavors that name a Topology, by its name."""
    result: dict[str, int] = {}
    for flavor in gathered.of("ResourceFlavor", KUEUE):
        name = text(flavor.tree, "spec", "topologyName")
        if name is None:
            continue
        wanted = texts(flavor.tree, "spec", "nodeLabels").items()
        covered = sum(1 for node in nodes if node.gpus and wanted <= node.labels.items())
        result[name] = result.get(name, 0) + covered
    return result
