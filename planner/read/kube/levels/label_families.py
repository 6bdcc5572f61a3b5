"""Label families: the topology labels of clouds and tools, from the widest level to the nearest.

Two generations of one tool's keys are one level.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from planner.read.findings import Remarks
from planner.read.kube.levels.node_domains import Chain, Column, Found, labelled
from planner.read.kube.records import KubeNode


class Family(Struct, frozen=True):
    """Labels of one level: the first that a node has counts."""

    name: str
    keys: tuple[str, ...]
    wide: bool = False


_FAMILIES = """
region topology.kubernetes.io/region failure-domain.beta.kubernetes.io/region
zone topology.kubernetes.io/zone failure-domain.beta.kubernetes.io/zone
tier- fabric.topograph.run/tier-
core fabric.topograph.run/tier-2 network.topology.nvidia.com/core network.topology.nvidia.com/datacenter
spine fabric.topograph.run/tier-1 network.topology.nvidia.com/spine
leaf fabric.topograph.run/tier-0 network.topology.nvidia.com/leaf network.topology.nvidia.com/block
block cloud.google.com/gce-topology-block cloud.provider.com/topology-block
subblock cloud.google.com/gce-topology-subblock
rack cloud.provider.com/topology-rack
host cloud.google.com/gce-topology-host
layer- topology.k8s.aws/network-node-layer-
network-block oci.oraclecloud.com/host.network_block_id oci.oraclecloud.com/rdma.network_block_id
local-block oci.oraclecloud.com/host.local_block_id oci.oraclecloud.com/rdma.local_block_id
rack oci.oraclecloud.com/host.rack_id
fabric backend.coreweave.cloud/fabric ib.coreweave.cloud/fabric
superpod backend.coreweave.cloud/superpod ib.coreweave.cloud/superpod
leafgroup backend.coreweave.cloud/leafgroup ib.coreweave.cloud/leafgroup
rack node.coreweave.cloud/rack
tier- topologyconf.slurm.nebius.ai/tier-
nvlink-domain accelerator.topograph.run/domain network.topology.nvidia.com/accelerator
nvlink-subdomain accelerator.topograph.run/sub-domain
nvlink-domain ds.coreweave.com/nvlink.domain
ultraserver topology.k8s.aws/ultraserver-id
"""
"""Families widest first: name and labels, newer ones before older ones. Kueue's documentation has those of
cloud.provider.com. Where both end in ``-``, numbers follow: the nearest switch is the lowest tier and the
highest layer.
"""

_WIDE = ("region", "zone")
_DATACENTER = "network.topology.nvidia.com/datacenter"
CLIQUE = "nvidia.com/gpu.clique"
NVLINK_NAMES = ("clique", "nvlink-domain", "ultraserver")
_ACCELERATORS = ("nvlink-subdomain", *NVLINK_NAMES)
_NUMBER = re.compile(r"[0-9]{1,3}")

SOURCE = "node labels"
_MOST = 16  # levels of one numbered family

_TABLE = [
    Family(name, tuple(keys), name in _WIDE)
    for name, *keys in (row.split() for row in _FAMILIES.strip().splitlines())
]
_KNOWN = {key: family for family in (*_TABLE, Family("clique", (CLIQUE,))) for key in family.keys}
"""By label; of those that are numbered by what comes before the number."""

NVLINK = [Family("clique", (CLIQUE,)), *(one for one in _TABLE if one.name in NVLINK_NAMES)]
"""Labels of NVLink domains: the first of these that any node has counts for the cluster."""


def families(keys: set[str]) -> list[Family]:
    """The families of which the nodes have a key, widest first."""
    found = []
    for family in _TABLE:
        own: Sequence[Family] = [replace(family, keys=tuple(k for k in family.keys if k in keys))]
        if family.name.endswith("-"):
            (prefix,) = family.keys
            numbers = [key.removeprefix(prefix) for key in keys - _KNOWN.keys()]
            own = [
                Family(f"{family.name}{int(number)}", (prefix + number,))
                for number in sorted(filter(_NUMBER.fullmatch, numbers), key=lambda n: (int(n), n))
            ][:_MOST]
            own = own if family.name == "layer-" else own[::-1]
        found += [one for one in own if one.keys]
    return found


def family_of(key: str) -> Family:
    """The family of a label, with all keys that mean the same level; else one of its own."""
    prefix, dash, number = key.rpartition("-")
    if (known := _KNOWN.get(prefix + dash)) is not None and _NUMBER.fullmatch(number):
        return _KNOWN.get(key) or Family(f"{known.name}{number}", (key,))
    return _KNOWN.get(key) or Family(key.rpartition("/")[2], (key,))


def from_labels(nodes: Sequence[KubeNode], remarks: Remarks) -> Found:
    """The levels that the label families on the nodes give."""
    keys = {key for node in nodes for key in node.labels}
    chain = Chain(nodes)
    accelerators: list[Column] = []
    for family in families(keys):
        for one in _apart(family, nodes):
            column = replace(labelled(one.name, one.keys, nodes, remarks), wide=one.wide)
            if not column.values:
                continue
            if family.name in _ACCELERATORS:
                accelerators.append(column)
            elif one is not family:
                chain.insert(column)
            else:
                chain.set([*chain.columns, column])
    for column in accelerators:
        # A rack that switches and accelerators both name is one level.
        same = chain.same(column, nodes)
        if same is not None:
            chain.replace(same, replace(same, keys=(*same.keys, *column.keys)))
        else:
            chain.insert(column)
    # One region, zone or datacenter around every node decides nothing, and planned nodes need not name it.
    kept = (
        one
        for one in chain.columns
        if not (one.wide or one.keys == (_DATACENTER,))
        or len(one.values) < len(nodes)
        or len(set(one.values.values())) > 1
    )
    return Found(SOURCE, tuple(kept))


def family_on(key: str, nodes: Sequence[KubeNode]) -> Family:
    """The family of a label as the nodes have it: the label alone if its keys differ on one."""
    return next(one for one in _apart(family_of(key), nodes) if key in one.keys)


def _apart(family: Family, nodes: Sequence[KubeNode]) -> list[Family]:
    """The family, or one for each of its keys where a node has two that differ."""
    found = ({value for key in family.keys if (value := n.labels.get(key))} for n in nodes)
    if not any(len(values) > 1 for values in found):
        return [family]
    return [Family(key.rpartition("/")[2], (key,), family.wide) for key in family.keys]


def nvlink_column(nodes: Sequence[KubeNode], remarks: Remarks) -> Column | None:
    """The NVLink domains in labels; None if there are none."""
    for family in NVLINK:
        column = labelled(family.name, family.keys, nodes, remarks)
        if family.keys == (CLIQUE,):
            # Servers outside a rack fabric report a cluster of zeros.
            unreal = {
                name for name, one in column.values.items() if not one.partition(".")[0].strip("0-")
            }
            for node in nodes:
                if node.name in unreal:
                    what = f"{CLIQUE} names no NVLink cluster, only zeros; ignored"
                    remarks.add(node.object.subject, what)
            real = {name: one for name, one in column.values.items() if name not in unreal}
            column = replace(column, values=real)
        if column.values:
            present = {key for node in nodes for key in family.keys if key in node.labels}
            keys = tuple(key for key in family.keys if key in present)
            return replace(column, keys=keys, nvlink=True)
    return None
