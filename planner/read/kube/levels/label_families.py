"""Label families: the topology labels of clouds and tools, from the widest level to the nearest.

Two generations of one tool's keys are one level.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.read.findings import Remarks
from planner.read.kube.levels.node_domains import Chain, Column, Found, labelled
from planner.read.kube.records import KubeNode


@dataclass(frozen=True, slots=True)
class Family:
    """Labels of one level: the first that a node has counts."""

    name: str
    keys: tuple[str, ...]
    wide: bool = False


_GENERATIONS = ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
_WIDE = tuple(
    Family(name, tuple(f"{prefix}/{name}" for prefix in _GENERATIONS), wide=True)
    for name in ("region", "zone")
)
_OLD = "network.topology.nvidia.com"
_DATACENTER = f"{_OLD}/datacenter"
_COREWEAVE = ("backend.coreweave.cloud", "ib.coreweave.cloud")
_GOOGLE = "cloud.google.com/gce-topology"
_ORACLE = "oci.oraclecloud.com"
_KUEUE = "cloud.provider.com/topology"  # of Kueue's documentation, which people copy

# One family above another: what is nearer to the nodes comes later.
_BEFORE_AWS = (
    Family("block", (f"{_GOOGLE}-block", f"{_KUEUE}-block")),
    Family("subblock", (f"{_GOOGLE}-subblock",)),
    Family("rack", (f"{_KUEUE}-rack",)),
    Family("host", (f"{_GOOGLE}-host",)),
)
_AFTER_AWS = (
    *(
        Family(f"{name}-block", tuple(f"{_ORACLE}/{of}.{name}_block_id" for of in ("host", "rdma")))
        for name in ("network", "local")
    ),
    Family("rack", (f"{_ORACLE}/host.rack_id",)),
    *(
        Family(name, tuple(f"{prefix}/{name}" for prefix in _COREWEAVE))
        for name in ("fabric", "superpod", "leafgroup")
    ),
    Family("rack", ("node.coreweave.cloud/rack",)),
)

CLIQUE = "nvidia.com/gpu.clique"
_ACCELERATOR = Family("nvlink-domain", ("accelerator.topograph.run/domain", f"{_OLD}/accelerator"))
_SUBDOMAIN = Family("nvlink-subdomain", ("accelerator.topograph.run/sub-domain",))

NVLINK = (
    Family("clique", (CLIQUE,)),
    _ACCELERATOR,
    Family("nvlink-domain", ("ds.coreweave.com/nvlink.domain",)),
    Family("ultraserver", ("topology.k8s.aws/ultraserver-id",)),
)
"""Labels of NVLink domains: the first of these that any node has counts for the cluster."""

_ACCELERATORS = {family.name for family in (_SUBDOMAIN, *NVLINK)}

_TIER = re.compile(r"fabric\.topograph\.run/tier-([0-9]{1,3})")
_LAYER = re.compile(r"topology\.k8s\.aws/network-node-layer-([0-9]{1,3})")
_NEBIUS = re.compile(r"topologyconf\.slurm\.nebius\.ai/tier-([0-9]{1,3})")

SOURCE = "node labels"

_MOST = 16  # levels of one numbered family

# The older keys name the tiers that the newer ones number, the nearest switch being tier 0.
_OLDER: dict[int, tuple[str, tuple[str, ...]]] = {
    0: ("leaf", (f"{_OLD}/leaf", f"{_OLD}/block")),
    1: ("spine", (f"{_OLD}/spine",)),
    2: ("core", (f"{_OLD}/core", _DATACENTER)),
}


def families(keys: set[str]) -> list[Family]:
    """The families of which the nodes have a key, widest first."""
    order = [
        *_WIDE,
        *_topograph(keys),
        *_BEFORE_AWS,
        *_numbered(keys, _LAYER, "layer", widest_first=True),
        *_AFTER_AWS,
        *_numbered(keys, _NEBIUS, "tier", widest_first=False),
        _ACCELERATOR,
        _SUBDOMAIN,
        *NVLINK[2:],
    ]
    present = (
        replace(family, keys=tuple(key for key in family.keys if key in keys)) for family in order
    )
    return [family for family in present if family.keys]


def _topograph(keys: set[str]) -> list[Family]:
    """Tiers of the fabric, the farthest first."""
    numbers = {int(found[1]) for key in keys if (found := _TIER.fullmatch(key))}
    numbers.update(_OLDER)
    result = []
    for number in sorted(sorted(numbers)[:_MOST], reverse=True):
        name, older = _OLDER.get(number, (f"tier-{number}", ()))
        result.append(Family(name, (f"fabric.topograph.run/tier-{number}", *older)))
    return result


def _numbered(
    keys: set[str], form: re.Pattern[str], name: str, *, widest_first: bool
) -> list[Family]:
    """Families that are numbered, from the widest."""
    found = {(int(match[1]), key) for key in keys if (match := form.fullmatch(key))}
    ordered = sorted(found, reverse=not widest_first)
    return [Family(f"{name}-{number}", (key,)) for number, key in ordered[:_MOST]]


def family_of(key: str) -> Family:
    """The family of a label, with all keys that mean the same level; else one of its own."""
    if key in _KNOWN:
        return _KNOWN[key]
    if (layer := _LAYER.fullmatch(key)) is not None:
        return Family(f"layer-{layer[1]}", (key,))
    return Family(key.rpartition("/")[2], (key,))


_KNOWN = {
    key: family
    for family in (*_WIDE, *_topograph(set()), *_BEFORE_AWS, *_AFTER_AWS, *NVLINK, _SUBDOMAIN)
    for key in family.keys
}
"""Known label keys and their families, without numbered ones."""


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
