"""The topology levels of a Kubernetes cluster, from the first source that has any.

Sources: the Policy, a topology file, a Kueue or KAI Topology, HyperNodes, label
families. NVLink domains are added, and the levels that gangs name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import yaml

from models.documents.base import API_VERSION, MAX_FIELDS
from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL, Domains, Level
from models.host_ranges import host_ranges
from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.levels.builder import LevelBuilder
from planner.read.kube.levels.hypernodes import Tiers, read_tiers
from planner.read.kube.levels.label_families import SOURCE, family_of, from_labels
from planner.read.kube.levels.node_domains import Chain, Column, Found, labelled
from planner.read.kube.lookup import is_name, objects, text, texts
from planner.read.kube.records import KubeNode, KubeObject, LevelAsk, Objects
from planner.read.slurm.levels import SlurmTopology
from planner.read.sources import printable

KUEUE = "kueue.x-k8s.io"
KAI = "kai.scheduler"
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
        count = f"{len(inside)}"
        if i == 0:
            count += " domain" if len(inside) == 1 else " domains"
        facts = [count, *(["NVLink"] if column.nvlink else []), *filter(None, [column.origin])]
        parts.append(f"{column.name} ({', '.join(facts)})")
    return printable(f"levels from {source}: {', '.join(parts)}")


def _entry(level: Level, nodes: dict[str, list[str]] | None) -> list[str]:
    """Lines of one level: a single one, unless its nodes are listed."""
    silent = (("oversubscription", 1), ("nvlink", False))
    fields = {key: value for key, value in level.to_json().items() if (key, value) not in silent}
    if nodes is None:
        flow = yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=1000)
        return [flow.strip()]
    fields["domains"] = nodes
    # None: brackets for the innermost lists only
    return yaml.safe_dump(fields, default_flow_style=None, sort_keys=False, width=110).splitlines()


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels widest first, the domains of every node, and the levels that gangs may name.

    ``found``: one sentence on where they come from. ``labels``, ``tiers``: level names by label key and by
    tier; ``node`` for what is no wider than a node. ``refused``: see ``LevelBuilder``.
    """

    levels: tuple[Level, ...]
    found: str
    domains: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tiers: Mapping[int, str] = field(default_factory=dict)
    hypernodes: Tiers = field(default_factory=Tiers)
    refused: Mapping[LevelAsk, str] = field(default_factory=dict)

    def domain(self, node: str) -> tuple[str | None, ...]:
        """The node's domains, one a level; None where it is alone."""
        return self.domains.get(node, (None,) * len(self.levels))

    def resolve(self, ask: LevelAsk) -> str | None:
        """The level's name, or ``node``; None if there is no such level."""
        if ask.label is not None:
            return self.labels.get(ask.label)
        tier = self.hypernodes.tier(ask)
        return None if tier is None else self.tiers.get(tier)

    def why_not(self, ask: LevelAsk) -> str:
        """Why there is no such level, in words that follow its name."""
        return self.refused.get(ask, "which this cluster does not have")

    def depth(self, level: str) -> int:
        """Position of a level from the widest; ``node`` comes last."""
        return next((i for i, one in enumerate(self.levels) if one.name == level), len(self.levels))

    def name(self, depth: int) -> str:
        """The level at a position from the widest."""
        return self.levels[depth].name if depth < len(self.levels) else "node"

    def policy_text(self) -> str:
        """A Policy document in YAML that states the levels: by their label, else by their nodes.

        If a level has more domains than a Policy can hold, it states no levels and says why.
        """
        levels = self.levels
        spread = [self._nodes(i) if level.label is None else None for i, level in enumerate(levels)]
        lines = [f"# {self.found}", f"apiVersion: {API_VERSION}", "kind: Policy"]
        lines += ["metadata: {name: levels-as-found}", "spec:"]
        if any(one is not None and len(one) > MAX_FIELDS for one in spread):
            lines += [
                f"  # A level without a label has more than {MAX_FIELDS:,} domains, too many for a Policy.",
                "  # Without `levels` here, all levels are found again from the same objects.",
                "  kubernetes: {}",
            ]
        elif levels:
            lines += ["  kubernetes:", "    levels:"]
            for level, nodes in zip(levels, spread, strict=True):
                first, *rest = _entry(level, nodes)
                lines += [f"    - {first}", *(f"      {line}" for line in rest)]
        else:
            lines.append("  kubernetes: {levels: []}")
        return "\n".join(lines) + "\n"

    def _nodes(self, level: int) -> dict[str, list[str]]:
        """The nodes of every domain of a level, as host ranges."""
        members: dict[str, list[str]] = {}
        for node, own in self.domains.items():
            domain = own[level]
            if domain is not None and is_name(node):
                members.setdefault(domain, []).append(node)
        return {domain: list(host_ranges(members[domain])) for domain in sorted(members)}


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
    hypernodes = read_tiers(gathered, nodes, remarks)
    if policy.levels is not None:
        of_nodes = dict(policy.level_domains)
        found = Found("the Policy", _stated(policy.levels, of_nodes, nodes, remarks))
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


def _stated(
    levels: Sequence[Level],
    of_nodes: Mapping[str, Domains],
    nodes: Sequence[KubeNode],
    remarks: Remarks,
) -> tuple[Column, ...]:
    """The Policy's levels, all of them, as it states them."""
    known = {node.name for node in nodes}
    columns = []
    for level in levels:
        keys = () if level.label is None else (level.label,)
        column = labelled(level.name, keys, nodes, remarks)
        if level.name in of_nodes:
            listed = {node: domain for domain, them in of_nodes[level.name] for node in them}
            if not known.issuperset(listed):
                what = "names nodes that are not in the input; ignored"
                remarks.add(f"Policy level {level.name}", what)
            values = {node: domain for node, domain in listed.items() if node in known}
            column = replace(column, values=values)
        if keys and nodes and not column.values:
            what = "no node has the label of this level; every node is alone there"
            remarks.add(f"Policy level {level.name}", what)
        column = replace(column, nvlink=level.nvlink, counted=level.counted, stated=True)
        columns.append(replace(column, oversubscription=level.oversubscription))
    return tuple(columns)


def _of_file(topology: SlurmTopology, nodes: Sequence[KubeNode], remarks: Remarks) -> Found | None:
    """The levels of a topology file; None if it names none of the nodes."""
    known = [node.name for node in nodes if node.name in topology.domains]
    if not known:
        what = "names no node of the cluster; not used"
        remarks.add(topology.source, what, "node names must be those of the cluster")
        return None
    for node in nodes:
        if node.gpus and node.name not in topology.domains:
            remarks.add(
                node.object.subject, "is not in the topology file; it is alone at every level"
            )
    columns = []
    for i, level in enumerate(topology.levels):
        values = {name: value for name in known if (value := topology.domains[name][i]) is not None}
        columns.append(Column(level.name, values, oversubscription=level.oversubscription))
    return Found(topology.source, tuple(columns))


def _finished(builder: LevelBuilder, source: str) -> Levels:
    builder.finish()
    columns, nodes = builder.chain.columns, builder.nodes
    labels = {HOSTNAME_LABEL: NODE_LEVEL}
    tiers: dict[int, str] = {}
    named = [(one, one.name) for one in columns] + [(one, NODE_LEVEL) for one in builder.single]
    for column, name in named:
        for key in column.keys:
            labels.setdefault(key, name)
        for tier in column.tiers:
            tiers.setdefault(tier, name)
    return Levels(
        levels=tuple(one.to_level(nodes) for one in columns),
        found=found_text(source, builder.chain),
        domains={node.name: tuple(one.values.get(node.name) for one in columns) for node in nodes},
        labels=labels,
        tiers=tiers,
        hypernodes=builder.hypernodes,
        refused=builder.refused,
    )


# Objects that define levels by node labels: of several Topologies one is used, and a remark names the others


def from_topologies(gathered: Objects, nodes: Sequence[KubeNode], remarks: Remarks) -> Found | None:
    """The levels of the Topology that most GPU nodes follow; None if there is none to use."""
    found = gathered.of("Topology", KUEUE, KAI)
    if not found:
        return None
    flavored = _flavored(gathered, nodes)
    usable: list[tuple[tuple[int, int, bool, str], KubeObject]] = []
    for one in found:
        keys = _levels(one).keys() - {HOSTNAME_LABEL}
        if having := sum(any(node.labels.get(key) for key in keys) for node in nodes):
            order = (-flavored.get(one.name, 0), -having, one.group != KUEUE, one.name)
            usable.append((order, one))
        else:
            remarks.add(_title(one), "no node has a label of its levels; not used")
    if not usable:
        return None
    _, chosen = min(usable, key=lambda entry: entry[0])
    for _, one in usable:
        if one is not chosen:
            what = f"not used; the levels are those of {_title(chosen)}"
            remarks.add(_title(one), what, "state `levels` in the Policy to use others")
    levels = _levels(chosen).items()
    return Found(
        _title(chosen), tuple(labelled(name, [key], nodes, remarks) for key, name in levels)
    )


def _title(topology: KubeObject) -> str:
    maker = "Kueue" if topology.group == KUEUE else "KAI"
    return f"{maker} Topology {topology.name}"


def _levels(topology: KubeObject) -> dict[str, str]:
    """Names of its levels by their labels, widest first."""
    result: dict[str, str] = {}
    for level in objects(topology.tree, "spec", "levels")[:_MAX_KEYS]:
        key = text(level, "nodeLabel")
        if key is not None:
            result.setdefault(key, text(level, "alias") or family_of(key).name)
    return result


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
