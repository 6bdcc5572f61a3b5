"""The Clusters of the input, whatever they were read from.

Slurm's output and topology files become Cluster documents. A Cluster without levels takes
over those that were found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from models.documents.cluster import HOSTNAME_LABEL, Level
from models.documents.gang import GangDocument
from models.hardware import FindModel, ServerModel, slug
from models.instance.policy import Policy
from models.units import plural, shown
from planner.errors import Fault
from planner.read.compact_cluster import ClusterEntry, ClusterInput, ServerModels, models_first
from planner.read.document_kinds import Documents
from planner.read.sources import KUBECTL, Source
from planner.read.validation import Entry

if TYPE_CHECKING:
    from planner.read.kube.records import Objects
    from planner.read.slurm.levels import SlurmTopology

NODES_HINT = f"record nodes and pods together: {KUBECTL}; listing nodes needs a right of its own"


def collect_clusters(documents: Documents, policy: Policy, find: FindModel) -> ClusterInput:
    """The Clusters of the input, whatever they were read from."""
    topology = _only_topology(documents)
    objects, slurm = documents.objects, documents.slurm
    if objects is not None and slurm is not None and (objects.of("Node") or objects.of("Pod")):
        what = "Kubernetes objects and the output of Slurm in one input"
        documents.findings.fault(Fault(what, "plan one cluster at a time"))
    elif objects is not None and slurm is None:
        if objects.of("Node"):
            return _kubernetes(documents, objects, policy, find, topology)
        _without_nodes(documents, objects)
    if topology is not None:
        from planner.read.slurm.levels import with_policy_levels  # only where there is a file

        topology = with_policy_levels(topology, policy.kubernetes.levels, documents.remarks)
    written = any(entry.document.spec.nodes for entry in documents.clusters)
    if slurm is None and (topology is None or written):
        return ClusterInput(documents.clusters, find, topology=topology)
    find = _inline_first(documents.clusters, find)
    _check_policy_models(documents, find)
    gangs: list[Entry[GangDocument]] = []
    base: ClusterEntry | None = None
    if slurm is not None:
        from planner.read.slurm.assembly import assemble  # only where there is such output

        stated = [entry.document for entry in documents.clusters]
        gangs, base, models = assemble(slurm, policy, find, topology, stated)
        find = models_first(models, find)
    if base is None and topology is not None and not written:
        base, find = _topology_alone(documents, policy, find, topology, gangs)
    result = ClusterInput(documents.clusters, find, gangs, topology=topology)
    result.now = None if slurm is None else slurm.jobs.now
    if base is not None:
        result.clusters = [base, *_adopt_levels(documents.clusters, base.document.spec.levels)]
        result.topology = None
        if topology is not None or base.document.spec.levels:
            source = "the Policy" if topology is None else topology.source
            names = ", ".join(level.name for level in base.document.spec.levels) or "none"
            result.found = f"levels from {source}: {names}"
    return result


def _without_nodes(documents: Documents, objects: Objects) -> None:
    if objects.of("Pod"):
        documents.findings.fault(
            Fault("Kubernetes pods, but no Node among the objects", NODES_HINT)
        )
        return
    for kind, found in sorted(objects.by_kind.items()):
        what = "an object that says nothing without Nodes; it is left out"
        documents.remarks.add(f"{kind} {found[0].name}", what)


def _only_topology(documents: Documents) -> SlurmTopology | None:
    for source, _ in documents.topologies[1:]:
        what = "a second topology file"
        hint = f"keep one; the first is {documents.topologies[0][0].name}"
        documents.findings.fault(Fault(what, hint, source.name, 1, 1))
    if not documents.topologies:
        return None
    topology = documents.topologies[0][1]
    for remark in topology.remarks:
        documents.remarks.add(remark.subject, remark.what, remark.hint)
    return topology


def _kubernetes(
    documents: Documents,
    objects: Objects,
    policy: Policy,
    find: FindModel,
    topology: SlurmTopology | None,
) -> ClusterInput:
    from planner.read.kube.assembly import assemble  # only where there are objects

    find = _inline_first(documents.clusters, find)
    own: dict[str, str | None] = {}
    pinned: dict[str, frozenset[str]] = {}
    if documents.hived:
        from planner.read.hived import pinned_cells, virtual_clusters  # only where there is one

        own, pinned = (
            dict.fromkeys(virtual_clusters(documents.hived)),
            pinned_cells(documents.hived),
        )
    own |= {one.document.metadata.name: one.document.spec.parent for one in documents.queues}
    made, partial = assemble(documents, objects, policy, find, topology, own, pinned)
    assert made.base is not None, "it was read of objects"
    made.clusters += _adopt_levels(documents.clusters, made.base.levels)
    if partial:
        _add_gpu_labels(documents.clusters, partial, find)
    return made


def _inline_first(entries: Sequence[ClusterEntry], find: FindModel) -> FindModel:
    """Models as Clusters of the input write them, before those of the catalogue."""
    written: dict[str, ServerModel] = {}
    for entry in entries:
        for document in entry.document.spec.server_models:
            if not any(document.field_errors()):
                model = document.to_server_model()
                for text in model.slugs:
                    written.setdefault(text, model)
    return models_first(written, find)


def _add_gpu_labels(
    entries: Sequence[ClusterEntry], partial: Collection[str], find: FindModel
) -> None:
    """Add to compact nodes the labels of the GPU resources that Kubernetes pods request."""
    from planner.read.kube.node_builder import assumed_gpu_labels  # only where there are objects

    for entry in entries:
        own = {slug(one.name): one.vendor for one in entry.document.spec.server_models}
        nodes = []
        for node in entry.document.spec.nodes:
            model = find(node.model) if node.model is not None else None
            vendor = own.get(slug(node.model or ""), model.vendor if model is not None else "")
            labels = {**assumed_gpu_labels(vendor, partial), **node.labels}
            nodes.append(node.model_copy(update={"labels": labels}))
        spec = entry.document.spec.model_copy(update={"nodes": tuple(nodes)})
        entry.document = entry.document.model_copy(update={"spec": spec})


def _topology_alone(
    documents: Documents,
    policy: Policy,
    find: FindModel,
    topology: SlurmTopology,
    jobs: Sequence[Entry[GangDocument]],
) -> tuple[ClusterEntry, FindModel]:
    """The nodes of the topology file; their server models are those of a Policy, or unknown.

    Clusters of the input have no nodes; they may describe server models. ``jobs``: of Slurm's queue.
    """
    from planner.read.kube.nodes.servers import unknown_model  # only where it is needed
    from planner.read.slurm.assembly import cluster_document

    gangs = (*documents.gangs, *jobs)
    asked = [role.gpus for entry in gangs for role in entry.document.spec.roles]
    unknown = unknown_model("unknown", max(asked)) if any(asked) else None
    guessed = 0
    nodes = []
    for name in topology.domains:
        node: dict[str, object] = {"name": name, "domains": topology.named_domains(name)}
        model = policy.kubernetes.server_model_of({HOSTNAME_LABEL: name})
        if model is None:
            guessed += 1
            model = None if unknown is None else unknown.name
        elif find(model) is None:
            model = None
        nodes.append(node if model is None else {**node, "model": model})
    if guessed:
        counted = "nodes without GPUs"
        if unknown is not None:
            counted = f"servers of {unknown.gpus} unknown GPUs, PCIe only"
        what = f"says nothing of GPUs: {plural(guessed, 'node')} of it count as {counted}"
        documents.remarks.add(topology.source, what, _NO_MODELS)
    document = cluster_document("slurm", topology.levels, nodes)
    entry = Entry(Source(topology.source, "", "json"), (), document, documents.findings)
    return entry, models_first({} if unknown is None else {slug(unknown.name): unknown}, find)


_NO_MODELS = (
    "add scontrol show nodes --json > nodes.json to the paths; or name their model in a Policy: "
    "kubernetes: {serverModels: [{nodeSelector: {}, model: DGX H100}]}"
)


def _check_policy_models(documents: Documents, find: FindModel) -> None:
    """Report an unknown server model in the Policy, which alone names the models of these nodes."""
    for entry in documents.policies[:1]:
        for i, choice in enumerate(entry.document.spec.kubernetes.server_models):
            if find(choice.model) is None:
                at = ("spec", "kubernetes", "serverModels", i, "model")
                what = f"unknown server model {shown(choice.model)}"
                entry.fault(at, what, ServerModels(find).hint(choice.model))


def _adopt_levels(entries: Sequence[ClusterEntry], levels: tuple[Level, ...]) -> list[ClusterEntry]:
    """Clusters that state no levels take over these."""
    for entry in entries:
        if not entry.document.spec.levels:
            spec = entry.document.spec.model_copy(update={"levels": levels})
            entry.document = entry.document.model_copy(update={"spec": spec})
    return list(entries)
