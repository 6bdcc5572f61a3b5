"""Nodes and jobs of Slurm as the compact documents of the same cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from models.documents.base import document_tree, made
from models.documents.cluster import ClusterDocument, Level
from models.documents.gang import GangDocument
from models.hardware import FindModel, ServerModel
from models.host_ranges import MAX_NAMES
from models.instance.policy import Policy
from models.units import plural, shown
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.lookup import clean, objects
from planner.read.slurm.fields import expanded, said
from planner.read.slurm.gang_documents import Constraints, GangDocuments, PriorityClasses
from planner.read.slurm.jobs import SlurmJob, SlurmJobs
from planner.read.slurm.levels import BLOCK_LEVEL, SlurmTopology, remark_alone
from planner.read.slurm.nodes import Held, Json, NodeDocuments, SlurmNode, SlurmNodes, count_pods
from planner.read.sources import Source
from planner.read.validation import Entry, sound_gang

SOURCE = "the output of Slurm"


class SlurmState:
    """What the commands of Slurm said, of all files of the input. ``clusters``: names, by what lists them."""

    def __init__(self, findings: Findings, remarks: Remarks) -> None:
        self.findings, self.remarks = findings, remarks
        self.nodes, self.jobs = SlurmNodes(findings), SlurmJobs(findings, remarks)
        self.clusters: dict[str, list[str]] = {"nodes": [], "jobs": []}

    def add(self, source: Source, tree: dict[str, Any]) -> None:
        """A document that a command of Slurm wrote."""
        name = said(tree, "meta", "slurm", "cluster") or said(tree, "meta", "Slurm", "cluster")
        errors = (said(one, "error") or said(one, "description") for one in objects(tree, "errors"))
        if wrong := next(errors, ""):
            what = f"Slurm could not answer: {shown(wrong)}"
            path = (*source.path, "errors")
            self.findings.add(Finding(source, path, what, "run the command again"))
        if isinstance(tree.get("jobs"), list):
            self.jobs.add(source, tree)
            self.clusters["jobs"] += [name] * bool(name)
        elif any(isinstance(tree.get(kind), list) for kind in ("nodes", "sinfo")):
            self.nodes.add(source, tree)
            self.clusters["nodes"] += [name] * bool(name)
        else:
            what = "lists partitions or reservations of Slurm, which are not read; nodes and jobs name theirs"
            self.remarks.add(source.name, what)

    def cluster_names(self) -> list[str]:
        return [*self.clusters["nodes"], *self.clusters["jobs"]]


Assembled = tuple[list[Entry[GangDocument]], Entry[ClusterDocument] | None, dict[str, ServerModel]]


def assemble(
    state: SlurmState,
    policy: Policy,
    find: FindModel,
    topology: SlurmTopology | None,
    written: Sequence[ClusterDocument],
) -> Assembled:
    """Gangs, the Cluster or None where Slurm's nodes are not in the input, and its server models.

    ``written``: Clusters of the input, which may state the nodes instead.
    """
    remarks = state.remarks
    nodes = None
    if state.nodes.all:
        nodes = NodeDocuments(state.nodes.all, policy.kubernetes, find, remarks)
    stated = [node for one in written for node in one.spec.nodes]
    constraints = Constraints(nodes, {key for node in stated for key in node.labels}, remarks)
    clusters = sorted(set(state.cluster_names()))
    if len(clusters) > 1:
        what = "are in the input together; jobs of one may be taken for those of another"
        remarks.add(f"Slurm clusters {', '.join(clusters)}", what, "plan one cluster at a time")
    jobs = state.jobs.throttled()
    levels = topology or _of_policy(policy, state.nodes.all)
    innermost = levels.names[-1] if levels.names else None
    block = innermost if topology is not None and innermost == BLOCK_LEVEL else None
    leaf = innermost if block is None else None
    names = set(state.nodes.all)
    names.update(topology.domains if nodes is None and topology is not None else ())
    names.update(name for node in stated for name in expanded(node.name, MAX_NAMES) or ())
    classes = PriorityClasses([j for j in jobs if j.asks_for_gpus], policy.slurm_priorities)
    now = policy.now or state.jobs.now or 0
    documents = GangDocuments(constraints, names, classes, leaf, block, now)
    source = Source(SOURCE, "", "json")
    entries: list[Entry[GangDocument]] = []
    for tree in documents.trees(jobs):
        document, wrong = sound_gang(tree)
        if document is None:  # what its pods hold counts as used by others
            subject = f"job {tree['metadata']['name']}"
            remarks.add(subject, f"cannot be planned ({wrong}); it is left out")
        else:
            entries.append(Entry(source, ("items", len(entries)), document, state.findings))
    _remark_queue(documents, jobs, remarks)
    if nodes is None:
        return entries, None, {}
    trees = _node_trees(nodes, levels, [entry.document for entry in entries])
    name = next(iter(state.cluster_names()), "slurm")
    cluster = cluster_document(clean(name), levels.levels, trees)
    if topology is not None:
        for tree in trees:
            if "model" in tree and tree["name"] not in topology.domains:
                remark_alone(tree["name"], remarks)
        missing = len(topology.domains.keys() - nodes.nodes.keys())
        if missing:
            what = f"names {plural(missing, 'node')} that Slurm's list of nodes does not have; left out"
            remarks.add(topology.source, what)
    _check_nvlink(nodes.nodes.values(), levels, remarks)
    return entries, Entry(source, (), cluster, state.findings), nodes.models


def _remark_queue(documents: GangDocuments, jobs: Sequence[SlurmJob], remarks: Remarks) -> None:
    classes = documents.classes
    if any(documents.without_gpus.values()):
        running, waiting = documents.without_gpus[True], documents.without_gpus[False]
        what = (
            f"{plural(running, 'running job')} and {plural(waiting, 'waiting job')} without whole GPUs are"
            " left out; what they hold stays held"
        )
        remarks.add("Slurm queue", what)
    if not jobs:
        what = "no job in the input: GPUs that Slurm states as used are not given"
        remarks.add("Slurm queue", what, "squeue --json > queue.json")
    if classes.stated > len(classes.tops):
        what = (
            f"the {classes.stated:,} priorities of jobs that wait count as {len(classes.tops):,}: of jobs"
            " whose priorities lie close together a lower one may start first"
        )
        hint = f"slurmPriorities: {classes.stated} in the Policy tells all apart"
        remarks.add("Slurm queue", what, hint)


def cluster_document(name: str, levels: Iterable[Level], nodes: Sequence[Json]) -> ClusterDocument:
    spec = {"levels": [one.to_json() for one in levels], "nodes": nodes}
    return ClusterDocument.model_validate(document_tree("Cluster", name, spec))


def _of_policy(policy: Policy, nodes: Mapping[str, SlurmNode]) -> SlurmTopology:
    """The levels as the Policy states them, by labels of nodes or with the nodes of every domain."""
    levels = policy.kubernetes.levels or ()
    listed = {
        (level.name, node): domain
        for level in levels
        for domain, members in (level.domains or {}).items()
        for node in members
    }
    domains = {
        name: tuple(
            listed.get((level.name, name)) or node.labels.get(level.label or "") for level in levels
        )
        for name, node in nodes.items()
    }
    return SlurmTopology(tuple(made(Level, one) for one in levels), domains, "the Policy")


def _node_trees(
    nodes: NodeDocuments, topology: SlurmTopology, gangs: Sequence[GangDocument]
) -> list[Json]:
    """Nodes that have GPUs or jobs, and all where a gang waits for one without."""
    held = count_pods(gangs)
    may_start = (gang for gang in gangs if gang.status.hold is None)
    waits_without = any(not role.gpus for gang in may_start for role in gang.spec.roles)
    trees = []
    for name, node in sorted(nodes.nodes.items()):
        if "FUTURE" in node.states or not (node.gpus or waits_without or name in held):
            continue
        trees.append(nodes.tree(node, topology.named_domains(name), held.get(name, Held())))
    return trees


def _check_nvlink(nodes: Iterable[SlurmNode], levels: SlurmTopology, remarks: Remarks) -> None:
    linked = [n for n in nodes if n.server is not None and n.server.nvlink_domain_nodes > 1]
    if any(level.nvlink for level in levels.levels):
        return
    level = levels.names[-1] if levels.names else "rack"
    stated = f"kubernetes: {{levels: [{{name: {level}, nvlink: true}}]}}"
    hint = f"if each {level} is one NVLink domain, a Policy says so: {stated}"
    what = "share NVLink with other servers, and no level says with which: it counts inside a server only"
    for node in sorted(linked, key=lambda node: node.name):
        remarks.add(node.subject, what, hint)
