"""What is said of levels that were found: a sentence, and a Policy that fixes them.

Promises: the Policy, read again, gives the same levels and domains, or says why it cannot.
Called by ``levels``.

The topology levels of a Kubernetes cluster, from the first source that knows them.

Promises: Policy, topology file, Kueue or KAI Topology, HyperNodes, Koordinator, label families, in
this order; NVLink domains beside them; levels that gangs name are added where they nest; whatever
the objects hold, levels come out, and what is odd is remarked. Called by ``assembling``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import yaml

from models.cluster import Level
from models.documents.base import API_VERSION, MAX_FIELDS
from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL
from models.host_ranges import host_ranges
from models.policy import Domains, KubernetesPolicy
from models.units import number
from planner.read.findings import Remarks
from planner.read.kube.levels.columns import Chain, Column, Found, is_name, labelled, to_level
from planner.read.kube.levels.draft import Draft
from planner.read.kube.levels.hypernodes import Tiers, read_tiers
from planner.read.kube.levels.label_families import from_labels
from planner.read.kube.levels.topologies import from_koordinator, from_topologies
from planner.read.kube.records import KubeNode, LevelAsk, Objects
from planner.read.slurm.levels import SlurmTopology
from planner.read.sources import printable


def found_text(source: str, chain: Chain) -> str:
    """One sentence: ``levels from Kueue Topology gke: block (3 domains), subblock (9)``."""
    if not chain.columns:
        if source == "the Policy":
            return "no levels: the Policy says so"
        if source == "node labels":
            return "no levels: no topology label that is known divides the nodes"
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


def policy_text(
    levels: Sequence[Level], domains: Mapping[str, Sequence[str | None]], found: str
) -> str:
    """A Policy document in YAML that states the levels: by their label, else by their nodes.

    ``domains``: by node, its domain at every level. A level of more domains than a Policy can hold
    is said to be one, and then all are left to be found again.
    """
    spread = [_nodes(domains, i) if level.label is None else None for i, level in enumerate(levels)]
    lines = [f"# {found}", f"apiVersion: {API_VERSION}", "kind: Policy"]
    lines += ["metadata: {name: levels-as-found}", "spec:"]
    if any(one is not None and len(one) > MAX_FIELDS for one in spread):
        lines += [
            f"  # A level without a label has more than {MAX_FIELDS:,} domains, too many to be written.",
            "  # Without `levels` here, all of them are found again from the same objects.",
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


def _nodes(domains: Mapping[str, Sequence[str | None]], level: int) -> dict[str, list[str]]:
    """The nodes of every domain of a level, as host ranges."""
    members: dict[str, list[str]] = {}
    for node, own in domains.items():
        domain = own[level]
        if domain is not None and is_name(node):
            members.setdefault(domain, []).append(node)
    return {domain: list(host_ranges(members[domain])) for domain in sorted(members)}


def _entry(level: Level, nodes: dict[str, list[str]] | None) -> list[str]:
    """Lines of one level: a single one, unless its nodes are written out."""
    fields: dict[str, object] = {"name": level.name}
    if level.label is not None:
        fields["label"] = level.label
    if level.oversubscription != 1:
        fields["oversubscription"] = number(level.oversubscription)
    if level.nvlink:
        fields["nvlink"] = True
    if nodes is None:
        flow = yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=1000)
        return [flow.strip()]
    fields["domains"] = nodes
    # None: brackets for the innermost lists only
    return yaml.safe_dump(fields, default_flow_style=None, sort_keys=False, width=110).splitlines()


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels widest first, where every node is, and what the names of gangs mean.

    ``label`` of a level, where it has one, says on every node exactly what its domains say.
    ``found``: one sentence on where they come from. ``labels``, ``tiers``: level names by label
    key and by tier; ``node`` for what is no wider than one.
    """

    levels: tuple[Level, ...]
    found: str
    domains: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tiers: Mapping[int, str] = field(default_factory=dict)
    hypernodes: Tiers = field(default_factory=Tiers)

    def domain(self, node: str) -> tuple[str | None, ...]:
        """Short names of the node's domains, one a level; None where it stands alone."""
        return self.domains.get(node, (None,) * len(self.levels))

    def resolve(self, ask: LevelAsk) -> str | None:
        """The level's name, or ``node``; None for a level that is not there."""
        if ask.label is not None:
            return self.labels.get(ask.label)
        tier = self.hypernodes.tier(ask)
        return None if tier is None else self.tiers.get(tier)

    def depth(self, level: str) -> int:
        """Position of a level from the widest; ``node`` comes last."""
        return next((i for i, one in enumerate(self.levels) if one.name == level), len(self.levels))

    def name(self, depth: int) -> str:
        """The level at a position from the widest."""
        return self.levels[depth].name if depth < len(self.levels) else "node"

    def policy_text(self) -> str:
        """A Policy document, as YAML, that states these levels."""
        return policy_text(self.levels, self.domains, self.found)


def read_levels(
    gathered: Objects,
    nodes: Sequence[KubeNode],
    policy: KubernetesPolicy,
    asks: Collection[LevelAsk],
    remarks: Remarks,
    topology: SlurmTopology | None = None,
) -> Levels:
    """The levels of the cluster. ``topology``: a topology file, which goes before its objects."""
    hypernodes = read_tiers(gathered, nodes, remarks)
    found = _source(gathered, nodes, policy, hypernodes, topology, remarks)
    draft = Draft(nodes, hypernodes, remarks)
    draft.start(found)
    stated = policy.levels
    if stated is None or (stated and not any(level.nvlink for level in stated)):
        draft.add_nvlink()
    for ask in sorted(asks, key=_order):
        draft.add_asked(ask)
    return _finished(draft, found.source)


def _order(ask: LevelAsk) -> tuple[str, int, str]:
    return ask.label or "", ask.tier or 0, ask.tier_name or ""


def _source(
    gathered: Objects,
    nodes: Sequence[KubeNode],
    policy: KubernetesPolicy,
    hypernodes: Tiers,
    topology: SlurmTopology | None,
    remarks: Remarks,
) -> Found:
    """The levels of the first source that has any."""
    if policy.levels is not None:
        of_nodes = dict(policy.level_domains)
        return Found("the Policy", _stated(policy.levels, of_nodes, nodes, remarks))
    if topology is not None and (of_file := _of_file(topology, nodes, remarks)) is not None:
        return of_file
    if (kueue := from_topologies(gathered, nodes, remarks)) is not None:
        return kueue
    if hypernodes.columns:
        return hypernodes.found()
    if (koordinator := from_koordinator(gathered, nodes, remarks)) is not None:
        return koordinator
    return from_labels(nodes, remarks)


def _stated(
    levels: Sequence[Level],
    of_nodes: Mapping[str, Domains],
    nodes: Sequence[KubeNode],
    remarks: Remarks,
) -> tuple[Column, ...]:
    """The Policy's levels, all of them, as it states them."""
    columns = []
    for level in levels:
        keys = () if level.label is None else (level.label,)
        column = labelled(level.name, keys, nodes, remarks)
        if level.name in of_nodes:
            values = _written_out(level.name, of_nodes[level.name], nodes, remarks)
            column = replace(column, values=values)
        if keys and nodes and not column.values:
            what = "no node has the label of this level: every node stands alone there"
            remarks.add(f"Policy level {level.name}", what)
        columns.append(
            replace(
                column,
                nvlink=level.nvlink,
                oversubscription=level.oversubscription,
                stated=True,
            )
        )
    return tuple(columns)


def _written_out(
    level: str, domains: Domains, nodes: Sequence[KubeNode], remarks: Remarks
) -> dict[str, str]:
    """The domain of every node that the Policy names."""
    known = {node.name for node in nodes}
    values = {node: domain for domain, members in domains for node in members}
    if not known.issuperset(values):
        remarks.add(f"Policy level {level}", "names nodes that are not there: left aside")
    return {node: domain for node, domain in values.items() if node in known}


def _of_file(topology: SlurmTopology, nodes: Sequence[KubeNode], remarks: Remarks) -> Found | None:
    """The levels of a topology file; None if it names none of the nodes."""
    known = [node.name for node in nodes if node.name in topology.domains]
    if not known:
        what = "names no node of the cluster: not used"
        remarks.add(topology.source, what, "node names must be those of the cluster")
        return None
    for node in nodes:
        if node.gpus and node.name not in topology.domains:
            what = "is not in the topology file: it stands alone at every level"
            remarks.add(node.object.subject, what)
    columns = []
    for i, level in enumerate(topology.levels):
        values = {name: value for name in known if (value := topology.domains[name][i]) is not None}
        columns.append(Column(level.name, values, oversubscription=level.oversubscription))
    return Found(topology.source, tuple(columns))


def _finished(draft: Draft, source: str) -> Levels:
    """Levels, domains and what names mean, of what was put together."""
    draft.finish()
    columns, nodes = draft.chain.columns, draft.nodes
    labels = {HOSTNAME_LABEL: NODE_LEVEL}
    tiers: dict[int, str] = {}
    named = [(one, one.name) for one in columns] + [(one, NODE_LEVEL) for one in draft.single]
    for column, name in named:
        for key in column.keys:
            labels.setdefault(key, name)
        for tier in column.tiers:
            tiers.setdefault(tier, name)
    return Levels(
        levels=tuple(to_level(one, nodes) for one in columns),
        found=found_text(source, draft.chain),
        domains={node.name: tuple(one.values.get(node.name) for one in columns) for node in nodes},
        labels=labels,
        tiers=tiers,
        hypernodes=draft.hypernodes,
    )
