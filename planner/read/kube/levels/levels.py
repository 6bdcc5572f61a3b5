"""The topology levels of a Kubernetes cluster, from the first source that has any.

Sources: the Policy, a topology file, a Topology or tiers of a dialect, label families. NVLink domains are
added, and the levels that gangs name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from models.documents.base import MAX_FIELDS, document_tree
from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL, PolicyLevel
from models.host_ranges import host_ranges
from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import DIALECTS
from planner.read.kube.levels.builder import LevelBuilder
from planner.read.kube.levels.label_families import SOURCE, family_of, from_labels
from planner.read.kube.levels.node_domains import Chain, Column, Found, Tiers, labelled
from planner.read.kube.lookup import is_name, objects, text
from planner.read.kube.records import KubeNode, KubeObject, LevelAsk, Objects
from planner.read.level_domains import Domains
from planner.read.sources import printable

if TYPE_CHECKING:
    from planner.read.slurm.levels import SlurmTopology

_MAX_KEYS = 16


def found_text(source: str, chain: Chain) -> str:
    """One sentence: ``levels from Kueue Topology gke: block (3 domains), subblock (9)``."""
    if not chain.columns:
        if source == "the Policy":
            return "no levels: the Policy states none"
        if source == SOURCE:
            return "no levels: no known topology label divides the nodes"
        return f"no levels above the nodes in {printable(source)}"
    parts = []
    for i, column in enumerate(chain.columns):
        inside = {
            number
            for node, number in zip(chain.nodes, chain.divisions[i], strict=True)
            if all(node.name in one.values for one in chain.columns[: i + 1])
        }
        domains = "" if i else " domain" if len(inside) == 1 else " domains"
        count = f"{len(inside)}{domains}"
        facts = [count, *(["NVLink"] if column.nvlink else []), *filter(None, [column.origin])]
        parts.append(f"{column.name} ({', '.join(facts)})")
    return printable(f"levels from {source}: {', '.join(parts)}")


_SILENT = (("oversubscription", 1), ("nvlink", False))
_TOO_MANY = f"""\
# A level without a label has more than {MAX_FIELDS:,} domains, too many for a Policy.
# Without `levels` here, all levels are found again from the same objects.
"""


@dataclass(frozen=True, slots=True)
class Levels(Domains):
    """Levels widest first, the domains of every node, and the levels that gangs may name.

    ``found``: one sentence on where they come from. ``labels``, ``tiers``: levels by label key and by tier,
    numbered from the widest; ``node``, what is no wider than a node, comes last. ``refused``: see
    ``LevelBuilder``.
    """

    found: str = ""
    labels: Mapping[str, int] = field(default_factory=dict)
    tiers: Mapping[int, int] = field(default_factory=dict)
    hypernodes: Tiers = field(default_factory=Tiers)
    refused: Mapping[LevelAsk, str] = field(default_factory=dict)

    def resolve(self, ask: LevelAsk | None) -> int | None:
        """The number of the level; None if there is no such level, or nothing is asked."""
        if ask is None or ask.label is not None:
            return None if ask is None else self.labels.get(str(ask.label))
        tier = self.hypernodes.tier(ask)
        return None if tier is None else self.tiers.get(tier)

    def why_not(self, ask: LevelAsk) -> str:
        """Why there is no such level, in words that follow its name."""
        return self.refused.get(ask, "which this cluster does not have")

    def name(self, depth: int) -> str:
        return self.levels[depth].name if depth < len(self.levels) else NODE_LEVEL

    def policy_text(self) -> str:
        """A Policy document in YAML that states the levels: by their label, else by their nodes.

        If a level has more domains than a Policy can hold, it states no levels and says why.
        """
        entries = [self._entry(depth) for depth in range(len(self.levels))]
        many = any(len(entry.get("domains", ())) > MAX_FIELDS for entry in entries)
        stated = {} if many else {"levels": entries}
        tree = document_tree("Policy", "levels-as-found", {"kubernetes": stated})
        # None: brackets for the innermost lists only
        text = yaml.safe_dump(tree, default_flow_style=None, sort_keys=False, width=110)
        return f"# {self.found}\n{_TOO_MANY if many else ''}{text}"

    def _entry(self, depth: int) -> dict[str, Any]:
        """A level; one without a label with the nodes of every domain, as host ranges."""
        level = self.levels[depth]
        entry = {key: one for key, one in level.to_json().items() if (key, one) not in _SILENT}
        if level.label is not None:
            return entry
        members: dict[str, list[str]] = {}
        for node, own in self.domains.items():
            domain = own[depth]
            if domain is not None and is_name(node):
                members.setdefault(domain, []).append(node)
        ranges = {domain: list(host_ranges(members[domain])) for domain in sorted(members)}
        return {**entry, "domains": ranges}


def read_levels(
    gathered: Objects,
    nodes: Sequence[KubeNode],
    policy: KubernetesPolicy,
    asks: Collection[LevelAsk],
    remarks: Remarks,
    topology: SlurmTopology | None = None,
) -> Levels:
    """The levels of the cluster. ``topology``: a topology file, which takes precedence over objects.

    ``asks``: what gangs name; of levels that cannot be together the first counts.
    """
    tiers = next((one.tiers for one in DIALECTS if one.tiers is not None), None)
    hypernodes = Tiers() if tiers is None else tiers(gathered, nodes, remarks)
    if policy.levels is not None:
        columns = [_stated(level, nodes, remarks) for level in policy.levels]
        found = Found("the Policy", tuple(columns))
    else:
        found = (
            (topology and _of_file(topology, nodes, remarks))
            or from_topologies(gathered, nodes, remarks)
            or hypernodes.found()
            or from_labels(nodes, remarks)
        )
    builder = LevelBuilder(nodes, hypernodes, remarks)
    builder.start(found)
    stated = policy.levels
    if stated is None or (stated and not any(level.nvlink for level in stated)):
        builder.add_nvlink()
    builder.limit()
    for ask in asks:
        builder.add_asked(ask)
    return _finished(builder, found.source)


def _stated(level: PolicyLevel, nodes: Sequence[KubeNode], remarks: Remarks) -> Column:
    keys = () if level.label is None else (level.label,)
    values = labelled(level.name, keys, nodes, remarks).values
    known = {node.name for node in nodes}
    if level.domains is not None:
        listed = {node: domain for domain, them in level.domains.items() for node in them}
        if not known.issuperset(listed):
            what = "names nodes that are not in the input; ignored"
            remarks.add(f"Policy level {level.name}", what)
        values = {node: domain for node, domain in listed.items() if node in known}
    if keys and nodes and not values:
        what = "no node has the label of this level; every node is alone there"
        remarks.add(f"Policy level {level.name}", what)
    return Column(
        level.name,
        values,
        keys,
        nvlink=level.nvlink,
        oversubscription=level.oversubscription,
        stated=True,
        counted=level.counted,
    )


def _of_file(topology: SlurmTopology, nodes: Sequence[KubeNode], remarks: Remarks) -> Found | None:
    """The levels of a topology file; None if it names none of the nodes."""
    if topology.domains.keys().isdisjoint(node.name for node in nodes):
        what = "names no node of the cluster; not used"
        remarks.add(topology.source, what, "node names must be those of the cluster")
        return None
    alone = "is not in the topology file; it is alone at every level"
    for node in nodes:
        if node.gpus and node.name not in topology.domains:
            remarks.add(node.object.subject, alone)
    columns = []
    for i, level in enumerate(topology.levels):
        domains = {node.name: topology.domain(node.name)[i] for node in nodes}
        values = {name: one for name, one in domains.items() if one is not None}
        columns.append(Column(level.name, values, oversubscription=level.oversubscription))
    return Found(topology.source, tuple(columns))


def _finished(builder: LevelBuilder, source: str) -> Levels:
    builder.finish()
    columns, nodes = builder.chain.columns, builder.nodes
    # Of two columns with one key the wider counts.
    named = [(one, len(columns)) for one in reversed(builder.single)]
    named += reversed([(one, depth) for depth, one in enumerate(columns)])
    labels = {key: depth for column, depth in named for key in reversed(column.keys)}
    tiers = {tier: depth for column, depth in named for tier in column.tiers}
    return Levels(
        levels=tuple(one.to_level(nodes) for one in columns),
        found=found_text(source, builder.chain),
        domains={node.name: tuple(one.values.get(node.name) for one in columns) for node in nodes},
        labels={**labels, HOSTNAME_LABEL: len(columns)},
        tiers=tiers,
        hypernodes=builder.hypernodes,
        refused=builder.refused,
    )


# Objects that define levels by node labels: of several Topologies one is used, and a remark names the others


def from_topologies(gathered: Objects, nodes: Sequence[KubeNode], remarks: Remarks) -> Found | None:
    """The levels of the Topology that most GPU nodes follow; None if there is none to use."""
    readers = [one.topologies for one in reversed(DIALECTS) if one.topologies is not None]
    followed: Counter[str | None] = sum(
        (one.followed(gathered, nodes) for one in readers), Counter()
    )
    usable: dict[tuple[int, int, int, str], tuple[str, dict[str, str]]] = {}
    for place, reader in enumerate(readers):
        for one in gathered.of("Topology", reader.group):
            levels, title = _levels(one), f"{reader.title} Topology {one.name}"
            keys = levels.keys() - {HOSTNAME_LABEL}
            if having := sum(any(node.labels.get(key) for key in keys) for node in nodes):
                usable[-followed[one.name], -having, place, one.name] = title, levels
            else:
                remarks.add(title, "no node has a label of its levels; not used")
    if not usable:
        return None
    chosen, levels = usable[min(usable)]
    for title, _ in usable.values():
        if title != chosen:
            what = f"not used; the levels are those of {chosen}"
            remarks.add(title, what, "state `levels` in the Policy to use others")
    named = levels.items()
    return Found(chosen, tuple(labelled(name, [key], nodes, remarks) for key, name in named))


def _levels(topology: KubeObject) -> dict[str, str]:
    result: dict[str, str] = {}
    for level in objects(topology.tree, "spec", "levels")[:_MAX_KEYS]:
        key = text(level, "nodeLabel")
        if key is not None:
            result.setdefault(key, text(level, "alias") or family_of(key).name)
    return result
