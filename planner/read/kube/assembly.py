"""Objects to the compact documents of the same cluster: the end of every Kubernetes dialect.

Promises: what is left out is said; what a pod holds stays held, in a gang, off ``allocatable`` or
as GPUs that are never given. Called by the builder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from models.cluster import Level
from models.documents.base import API_VERSION
from models.documents.cluster import ClusterDocument, NodeDocument
from models.documents.gang import GangDocument
from models.hardware import ServerModel
from models.policy import Policy
from models.units import number
from planner.read.findings import Findings, Remarks
from planner.read.kube import gang_documents as offering
from planner.read.kube.gang_documents import UNSUPPORTED, GangTrees, Json, asks, warn_of_fabrics
from planner.read.kube.gangs.attributes import believed
from planner.read.kube.gangs.gangs import read_gangs
from planner.read.kube.levels.levels import Levels, read_levels
from planner.read.kube.lookup import is_label_key, is_name
from planner.read.kube.node_documents import NodeTrees, Use, uses
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.nodes.servers import Find, server_model
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.records import KubeGang, KubeNode, Objects
from planner.read.slurm.levels import SlurmTopology
from planner.read.sources import Source
from planner.read.validation import Entry, real_path, worded

SOURCE = "the Kubernetes objects"
CLUSTER_NAME = "kubernetes"


@dataclass(slots=True)
class Assembled:
    """The documents of a cluster's objects.

    ``telling``: see ``offering``. ``models``: server models that no catalogue has.
    """

    cluster: Entry[ClusterDocument]
    gangs: list[Entry[GangDocument]]
    levels: Levels
    telling: frozenset[str] = frozenset()
    models: dict[str, ServerModel] = field(default_factory=dict)


def assemble(
    objects: Objects,
    policy: Policy,
    find: Find,
    findings: Findings,
    remarks: Remarks,
    topology: SlurmTopology | None = None,
) -> Assembled:
    """One Cluster and its gangs. Needs at least one Node among the objects.

    ``topology``: a topology file, whose levels go before those of the objects.
    """
    settings = policy.kubernetes
    nodes = _named(read_nodes(objects, settings, remarks), remarks)
    pods = read_pods(objects, nodes, settings, remarks)
    gangs = believed(read_gangs(objects, pods, settings, remarks), policy, remarks)
    levels = read_levels(objects, nodes, settings, asks(gangs), remarks, topology)
    source = Source(SOURCE, "", "json")
    told = offering.telling(nodes, gangs)
    marked_only = policy.gpu_binding == "none"
    trees = GangTrees(levels, {node.name for node in nodes}, remarks, settings, told, marked_only)
    entries: list[Entry[GangDocument]] = []
    members: set[tuple[str, str]] = set()
    for gang in gangs:
        document = _gang(trees.tree(gang), gang, remarks)
        if document is not None:
            entries.append(Entry(source, ("items", len(entries)), document, findings))
            members.update(pod.key for pod in gang.pods())
    used = uses(nodes, pods, members)
    making = NodeTrees(
        levels=levels,
        find=find,
        keys=_keys(policy, entries),
        asked=_asked(entries),
        telling=told,
        marked_only=marked_only,
        remarks=remarks,
    )
    kept = _wanted(nodes, used, entries)
    cluster = _cluster(objects, kept, used, making, policy)
    if any(model.nvlink_domain_nodes > 1 for model in making.models.values()):
        warn_of_fabrics(gangs, levels, settings, remarks)
    whole = Entry(source, (), ClusterDocument.model_validate(cluster), findings)
    return Assembled(whole, entries, levels, told, making.models)


def _named(nodes: Iterable[KubeNode], remarks: Remarks) -> list[KubeNode]:
    """Nodes whose name can stand in a plan."""
    found = []
    for node in nodes:
        if is_name(node.name):
            found.append(node)
        else:
            remarks.add(node.object.where, "has a malformed name; it is left out")
    return found


def _gang(tree: Json, gang: KubeGang, remarks: Remarks) -> GangDocument | None:
    """The document; of one that is refused what its pods hold, and nothing new is placed."""
    document, what = _validated(tree)
    if document is None:
        document, _ = _validated(_bare(tree, f"it cannot be planned: {what}"))
        remarks.add(gang.subject, f"cannot be planned ({what}); what its pods hold stays held")
    return document


def _validated(tree: Json) -> tuple[GangDocument | None, str]:
    """The document of a tree; None, and what is wrong with it, if its own rules refuse it."""
    try:
        document = GangDocument.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return None, worded(GangDocument, dict(first), real_path(tree, first)[0])[0]
    wrong = next(iter(document.field_errors()), None)
    return (document, "") if wrong is None else (None, wrong.what)


def _bare(tree: Json, why: str) -> Json:
    """The tree less what only matters to new pods, and less what nobody can name; held if any wait."""
    kept = ("name", "replicas", "gpus", "firstIndex")
    roles = []
    for role in tree["spec"]["roles"]:
        bare = {name: role[name] for name in kept if name in role}
        requests = role.get("requests", {})
        bare["requests"] = {name: requests[name] for name in requests if is_label_key(name)}
        roles.append(bare)
    spec = {**tree["spec"], "topology": {}, "roles": roles}
    status = dict(tree["status"])
    wanted = sum(role["replicas"] for role in roles)
    if sum("node" in pod for pod in status["pods"]) < wanted:
        status["hold"] = {"code": UNSUPPORTED, "message": why}
    return {**tree, "spec": spec, "status": status}


def _keys(policy: Policy, gangs: Sequence[Entry[GangDocument]]) -> set[str]:
    """Label keys that decide where pods may go."""
    keys = {key for key, _ in policy.node_selector}
    for entry in gangs:
        for role in entry.document.spec.roles:
            keys.update(role.node_selector)
            keys.update(one.key for term in getattr(role, "node_affinity", ()) for one in term)
    return keys


def _asked(gangs: Sequence[Entry[GangDocument]]) -> list[str]:
    return sorted({key for e in gangs for role in e.document.spec.roles for key in role.requests})


def _wanted(
    nodes: Sequence[KubeNode], used: Mapping[str, Use], gangs: Sequence[Entry[GangDocument]]
) -> list[KubeNode]:
    """Nodes with GPUs, and those without if a gang stands on them or has pods that need none."""
    standing: set[str | None] = set()
    without = False
    for entry in gangs:
        pods = entry.document.status.pods
        standing.update(pod.node for pod in pods)
        if any(pod.node is None for pod in pods):
            without = without or any(role.gpus == 0 for role in entry.document.spec.roles)
    return [
        node
        for node in nodes
        if node.installed or used[node.name].gang_gpus or without or node.name in standing
    ]


def _cluster(
    objects: Objects,
    nodes: Sequence[KubeNode],
    used: Mapping[str, Use],
    making: NodeTrees,
    policy: Policy,
) -> Json:
    entries = []
    for node in nodes:
        taken = node.shared is None and _is_ours(node, policy)
        said = making.remarks if taken else Remarks()  # nothing of it is given: no matter
        model = server_model(node, policy.kubernetes, making.find, said)
        entries.append(_node(making.tree(node, model, used[node.name]), node, making.remarks))
    metadata: Json = {"name": CLUSTER_NAME}
    identity = objects.named("", "Namespace", "", "kube-system")
    if identity is not None and identity.uid is not None and is_name(identity.uid):
        metadata["uid"] = identity.uid
    levels = [_level(level) for level in making.levels.levels]
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": metadata,
        "spec": {"levels": levels, "nodes": entries},
    }


def _is_ours(node: KubeNode, policy: Policy) -> bool:
    return all(node.labels.get(key) == value for key, value in policy.node_selector)


def _node(tree: Json, node: KubeNode, remarks: Remarks) -> NodeDocument:
    """The entry; one that is refused keeps what stands on it, and takes nothing more."""
    try:
        return NodeDocument.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = worded(NodeDocument, dict(first), real_path(tree, first)[0])[0]
    remarks.add(node.object.where, f"{what}; nothing is placed on it")
    safe = {name: tree[name] for name in ("name", "model", "domains") if name in tree}
    return NodeDocument.model_validate({**safe, "unschedulable": True})


def _level(level: Level) -> Json:
    tree: Json = {"name": level.name, "nvlink": level.nvlink}
    tree["oversubscription"] = number(level.oversubscription)
    if level.label is not None:
        tree["label"] = level.label
    return tree
