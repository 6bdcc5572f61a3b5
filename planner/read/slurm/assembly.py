"""Nodes and jobs of Slurm as the compact documents of the same cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from models.documents.base import API_VERSION
from models.documents.cluster import ClusterDocument, Level
from models.documents.gang import GangDocument
from models.hardware import FindModel, ServerModel
from models.host_ranges import MAX_NAMES
from models.instance.policy import Policy
from models.units import plural, shown
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.lookup import clean, objects
from planner.read.slurm.constraints import Constraints
from planner.read.slurm.fields import expanded, said
from planner.read.slurm.gang_documents import GangDocuments, PriorityClasses
from planner.read.slurm.jobs import SlurmJob, SlurmJobs
from planner.read.slurm.levels import SlurmTopology
from planner.read.slurm.node_documents import Held, NodeDocuments, count_pods
from planner.read.slurm.nodes import SlurmNodes
from planner.read.sources import Source
from planner.read.validation import Entry, sound_gang

Json = dict[str, Any]

SOURCE = "the output of Slurm"


@dataclass(slots=True)
class SlurmState:
    """What the commands of Slurm said, of all files of the input."""

    nodes: SlurmNodes
    jobs: SlurmJobs

    def add(self, source: Source, tree: Json, findings: Findings, remarks: Remarks) -> None:
        """A document that a command of Slurm wrote."""
        name = said(tree, "meta", "slurm", "cluster") or said(tree, "meta", "Slurm", "cluster")
        if said_wrong := next(
            (said(one, "error") or said(one, "description") for one in objects(tree, "errors")), ""
        ):
            what = f"Slurm could not answer: {shown(said_wrong)}"
            findings.add(Finding(source, (*source.path, "errors"), what, "run the command again"))
        if isinstance(tree.get("jobs"), list):
            self.jobs.add(source, tree)
            self.jobs.clusters += [name] * bool(name)
        elif any(isinstance(tree.get(kind), list) for kind in ("nodes", "sinfo")):
            self.nodes.add(source, tree)
            self.nodes.clusters += [name] * bool(name)
        else:
            what = "lists partitions or reservations of Slurm, which are not read; nodes and jobs name theirs"
            remarks.add(source.name, what)

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return next(iter((*self.nodes.clusters, *self.jobs.clusters)), "slurm")


@dataclass(slots=True)
class Assembled:
    """The documents. ``cluster``: None where Slurm's nodes are not in the input."""

    gangs: list[Entry[GangDocument]]
    cluster: Entry[ClusterDocument] | None = None
    models: dict[str, ServerModel] = field(default_factory=dict)
    levels: tuple[str, ...] = ()


def assemble(
    state: SlurmState,
    policy: Policy,
    find: FindModel,
    findings: Findings,
    remarks: Remarks,
    topology: SlurmTopology | None,
    written: Sequence[ClusterDocument],
) -> Assembled:
    """One Cluster and its gangs. ``written``: Clusters of the input, which may state the nodes instead."""
    nodes = None
    labelled = {key for one in written for node in one.spec.nodes for key in node.labels}
    if state.nodes.all:
        nodes = NodeDocuments(state.nodes.all, policy, find, remarks)
        labelled.update(key for labels in nodes.labels.values() for key in labels)
    constraints = Constraints(nodes, labelled, remarks, nodes.largest if nodes is not None else 0)
    clusters = {*state.nodes.clusters, *state.jobs.clusters}
    if len(clusters) > 1:
        what = "are in the input together; jobs of one may be taken for those of another"
        subject = f"Slurm clusters {', '.join(sorted(clusters))}"
        remarks.add(subject, what, "plan one cluster at a time")
    jobs = list(state.jobs.throttled())
    levels = _Levels(topology, policy)
    names = set(state.nodes.all)
    names.update(topology.domains if nodes is None and topology is not None else ())
    for one in written:
        for node in one.spec.nodes:
            names.update(expanded(node.name, MAX_NAMES) or ())
    trees = GangDocuments(
        constraints,
        names,
        remarks,
        (classes := PriorityClasses([j for j in jobs if j.asks_for_gpus], policy.slurm_priorities)),
        levels.leaf,
        levels.block,
        policy.now or state.jobs.now or 0,
    )
    source = Source(SOURCE, "", "json")
    entries: list[Entry[GangDocument]] = []
    gangs: list[Json] = []
    for tree in trees.trees(jobs):
        document, wrong = sound_gang(tree)
        if document is None:  # what its pods hold counts as used by others
            subject = f"job {tree['metadata']['name']}"
            remarks.add(subject, f"cannot be planned ({wrong}); it is left out")
        else:
            entries.append(Entry(source, ("items", len(gangs)), document, findings))
            gangs.append(tree)
    _say_left_out(trees, jobs, remarks)
    if classes.stated > len(classes.tops):
        what = (
            f"the {classes.stated:,} priorities of jobs that wait count as {len(classes.tops):,}: of jobs"
            " whose priorities lie close together a lower one may start first"
        )
        remarks.add(
            "Slurm queue", what, f"slurmPriorities: {classes.stated} in the Policy tells all apart"
        )
    if nodes is None:
        return Assembled(entries)
    cluster = _cluster(state, nodes, levels, gangs)
    _check_nvlink(nodes, levels, remarks)
    return Assembled(
        entries, Entry(source, (), cluster, findings), nodes.models, tuple(levels.names)
    )


def _say_left_out(trees: GangDocuments, jobs: Sequence[SlurmJob], remarks: Remarks) -> None:
    running, waiting = trees.without_gpus[True], trees.without_gpus[False]
    if running or waiting:
        what = (
            f"{plural(running, 'running job')} and {plural(waiting, 'waiting job')} without whole GPUs are"
            " left out; what they hold stays held"
        )
        remarks.add("Slurm queue", what)
    if not jobs:
        what = "no job in the input: GPUs that Slurm states as used are not given"
        remarks.add("Slurm queue", what, "squeue --json > queue.json")


@dataclass(slots=True)
class _Levels:
    """Levels and domains: of the topology file, else as the Policy states them.

    ``listed``: by node, its domains by level, where the Policy names the nodes of every domain.
    """

    topology: SlurmTopology | None
    policy: Policy
    listed: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for level, domains in self.policy.kubernetes.level_domains:
            for domain, members in domains:
                for node in members:
                    self.listed.setdefault(node, {})[level] = domain

    @property
    def levels(self) -> tuple[Level, ...]:
        if self.topology is not None:
            return self.topology.levels
        return self.policy.kubernetes.levels or ()

    @property
    def names(self) -> list[str]:
        return [level.name for level in self.levels]

    @property
    def leaf(self) -> str | None:
        """The level of leaf switches."""
        return self.names[-1] if self.names and self.block is None else None

    @property
    def block(self) -> str | None:
        """The level of base blocks."""
        return "block" if self.topology is not None and self.names[-1:] == ["block"] else None

    def domains(self, node: str, labels: Json) -> dict[str, str]:
        if self.topology is not None:
            own = zip(self.names, self.topology.domain(node), strict=True)
            return {level: domain for level, domain in own if domain is not None}
        found = {
            level.name: labels[level.label]
            for level in self.levels
            if level.label is not None and level.label in labels
        }
        return found | self.listed.get(node, {})


def _cluster(
    state: SlurmState, nodes: NodeDocuments, levels: _Levels, gangs: Sequence[Json]
) -> ClusterDocument:
    held = count_pods(gangs)
    waits_without = any(
        not role["gpus"]
        for gang in gangs
        if "hold" not in gang["status"]
        for role in gang["spec"]["roles"]
    )
    entries = []
    for name, node in sorted(state.nodes.all.items()):
        if "FUTURE" in node.states:
            continue
        if nodes.installed[name].total or waits_without or name in held:
            domains = levels.domains(name, nodes.labels[name])
            entries.append(nodes.tree(node, domains, held.get(name, Held())))
    if levels.topology is not None:
        _check_topology(levels.topology, nodes, [one["name"] for one in entries])
    return ClusterDocument.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "Cluster",
            "metadata": {"name": clean(state.cluster)},
            "spec": {
                "levels": [one.to_json() for one in levels.levels],
                "nodes": entries,
            },
        }
    )


def _check_topology(topology: SlurmTopology, nodes: NodeDocuments, names: Sequence[str]) -> None:
    for name in names:
        if name not in topology.domains and nodes.installed[name].total:
            what = "is not in the topology file: it is alone at every level"
            nodes.remarks.add(f"node {name}", what)
    known = set(nodes.nodes)
    missing = sum(name not in known for name in topology.domains)
    if missing:
        what = f"names {plural(missing, 'node')} that Slurm's list of nodes does not have; left out"
        nodes.remarks.add(topology.source, what)


def _check_nvlink(nodes: NodeDocuments, levels: _Levels, remarks: Remarks) -> None:
    linked = sorted(name for name, model in nodes.servers.items() if model.nvlink_domain_nodes > 1)
    if not linked or any(level.nvlink for level in levels.levels):
        return
    level = levels.names[-1] if levels.names else "rack"
    stated = f"kubernetes: {{levels: [{{name: {level}, nvlink: true}}]}}"
    hint = f"if each {level} is one NVLink domain, a Policy says so: {stated}"
    what = "share NVLink with other servers, and no level says with which: it counts inside a server only"
    for name in linked:
        remarks.add(f"node {name}", what, hint)
