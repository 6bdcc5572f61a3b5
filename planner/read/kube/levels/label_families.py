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


_WIDE = (
    Family(
        "region",
        ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
        wide=True,
    ),
    Family(
        "zone",
        ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
        wide=True,
    ),
)
_OLD = "network.topology.nvidia.com"
_DATACENTER = f"{_OLD}/datacenter"
_COREWEAVE = ("backend.coreweave.cloud", "ib.coreweave.cloud")
_GOOGLE = "cloud.google.com/gce-topology"
_ORACLE = "oci.oraclecloud.com"

# One family above another: what is nearer to the nodes comes later.
_BEFORE_AWS = (
    Family("block", (f"{_GOOGLE}-block",)),
    Family("subblock", (f"{_GOOGLE}-subblock",)),
    Family("host", (f"{_GOOGLE}-host",)),
)
_AFTER_AWS = (
    Family(
        "network-block", (f"{_ORACLE}/host.network_block_id", f"{_ORACLE}/rdma.network_block_id")
    ),
    Family("local-block", (f"{_ORACLE}/host.local_block_id", f"{_ORACLE}/rdma.local_block_id")),
    Family("rack", (f"{_ORACLE}/host.rack_id",)),
    Family("fabric", tuple(f"{name}/fabric" for name in _COREWEAVE)),
    Family("superpod", tuple(f"{name}/superpod" for name in _COREWEAVE)),
    Family("leafgroup", tuple(f"{name}/leafgroup" for name in _COREWEAVE)),
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


def is_known(key: str) -> bool:
    """Whether a label is of a family, used or not."""
    return key in _KNOWN or any(form.fullmatch(key) for form in (_TIER, _LAYER, _NEBIUS))


def _known() -> dict[str, Family]:
    """Known label keys and their families, without numbered ones."""
    known = (*_WIDE, *_topograph(set()), *_BEFORE_AWS, *_AFTER_AWS, *NVLINK, _SUBDOMAIN)
    return {key: family for family in known for key in family.keys}


_KNOWN = _known()


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
    kept = (one for one in chain.columns if not _is_trivial(one, nodes))
    return Found(SOURCE, tuple(kept))


def _is_trivial(column: Column, nodes: Sequence[KubeNode]) -> bool:
    """Whether it is one region, zone or datacenter around every node.

    Such a level decides nothing, and planned nodes need not name it.
    """
    if not (column.wide or column.keys == (_DATACENTER,)):
        return False
    return len(column.values) == len(nodes) and len(set(column.values.values())) == 1


def family_on(key: str, nodes: Sequence[KubeNode]) -> Family:
    """The family of a label as the nodes have it: the label alone if its keys differ on one."""
    family = family_of(key)
    apart = _apart(family, nodes)
    return next(one for one in apart if key in one.keys)


def _apart(family: Family, nodes: Sequence[KubeNode]) -> list[Family]:
    """The family, or one for each of its keys where a node has two that differ."""
    for node in nodes:
        values = {value for key in family.keys if (value := node.labels.get(key))}
        if len(values) > 1:
            return [Family(key.rpartition("/")[2], (key,), family.wide) for key in family.keys]
    return [family]


def nvlink_column(nodes: Sequence[KubeNode], remarks: Remarks) -> Column | None:
    """The NVLink domains in labels; None if there are none."""
    for family in NVLINK:
        column = labelled(family.name, family.keys, nodes, remarks)
        if family.keys == (CLIQUE,):
            column = _real_cliques(column, nodes, remarks)
        if column.values:
            present = {key for node in nodes for key in family.keys if key in node.labels}
            keys = tuple(key for key in family.keys if key in present)
            return replace(column, keys=keys, nvlink=True)
    return None


def _real_cliques(column: Column, nodes: Sequence[KubeNode], remarks: Remarks) -> Column:
    """Without the all-zero cluster that servers outside a rack fabric report."""
    unreal = {
        name for name, value in column.values.items() if not value.partition(".")[0].strip("0-")
    }
    for node in nodes:
        if node.name in unreal:
            what = f"{CLIQUE} names no NVLink cluster, only zeros; ignored"
            remarks.add(node.object.subject, what)
    values = {name: value for name, value in column.values.items() if name not in unreal}
    return replace(column, values=values)
