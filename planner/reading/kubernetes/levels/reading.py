"""The topology levels of a Kubernetes cluster, from the first source that knows them.

Promises: Policy, topology file, Kueue or KAI Topology, HyperNodes, Koordinator, label families, in
this order; NVLink domains beside them; levels that gangs name are added where they nest; whatever
the objects hold, levels come out, and what is odd is remarked. Called by ``assembling``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.cluster import Level
from models.documents.cluster import HOSTNAME_LABEL, NODE_LEVEL
from models.policy import Domains, KubernetesPolicy
from planner.reading.kubernetes.forms import KubeNode, LevelAsk, Objects
from planner.reading.kubernetes.levels.columns import Column, Found, labelled, to_level
from planner.reading.kubernetes.levels.draft import Draft
from planner.reading.kubernetes.levels.families import from_labels
from planner.reading.kubernetes.levels.hypernodes import Tiers, read_tiers
from planner.reading.kubernetes.levels.texts import found_text, policy_text
from planner.reading.kubernetes.levels.topologies import from_koordinator, from_topologies
from planner.reading.remarks import Remarks
from planner.reading.slurm.forms import SlurmTopology


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
