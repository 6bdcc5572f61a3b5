"""Kubernetes objects to the compact documents of the same cluster.

What is left out is a remark. What a pod holds stays held: in a gang, off ``allocatable``, or as GPUs that
are never given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from models.documents.base import document_tree
from models.documents.cluster import NO_NAME, ClusterDocument, NodeDocument
from models.documents.gang import GangDocument
from models.gpu_shares import share_in
from models.hardware import FindModel
from models.instance.policy import Policy
from planner.read.compact_cluster import ClusterInput, models_first
from planner.read.document_kinds import Documents
from planner.read.findings import Remarks
from planner.read.kube.gang_documents import (
    UNSUPPORTED,
    GangDocuments,
    hold_beyond_share,
    level_asks,
    warn_of_missing_claims,
)
from planner.read.kube.gangs.gangs import bound_checkpoints, leave_out_last, read_gangs
from planner.read.kube.gangs.terms import distrust_slow_ends, obey_budgets, report_overdue
from planner.read.kube.levels.levels import read_levels
from planner.read.kube.lookup import clean, is_label_key, is_name
from planner.read.kube.node_documents import (
    Json,
    NodeDocuments,
    Use,
    node_uses,
    partial_gpu_names,
)
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.nodes.servers import server_model
from planner.read.kube.pod_sets import PodSets, set_near
from planner.read.kube.pods.anti_affinity import exclude_by_anti_affinity
from planner.read.kube.pods.budgets import read_budgets
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.queues import read_quotas
from planner.read.kube.records import KubeGang, KubeNode, KubeObject, KubePod, Objects
from planner.read.kube.shares import hold_beyond_resources
from planner.read.kube.templates.waiting import expected_pods, remark_unseen
from planner.read.sources import KUBECTL, Source
from planner.read.validation import Entry, first_error, sound_gang

if TYPE_CHECKING:
    from planner.read.slurm.levels import SlurmTopology

MAX_LEFT_OUT = 20
"""Schedulers of waiting pods that are not planned and that a plan names."""

OTHERS = "others"

SOURCE = "the Kubernetes objects"


def assemble(
    documents: Documents,
    objects: Objects,
    policy: Policy,
    find: FindModel,
    topology: SlurmTopology | None,
    queues: Mapping[str, str | None],
    pinned: Mapping[str, frozenset[str]],
) -> tuple[ClusterInput, frozenset[str]]:
    """One Cluster, its gangs and queues, and ``partial_gpu_names``. Needs at least one Node.

    ``topology``: a topology file; its levels take precedence over those of the objects. ``queues``: those of
    Queue documents, by name their parents. ``pinned``: the nodes of pinned cells, by id.
    """
    remarks, findings = documents.remarks, documents.findings
    settings = policy.kubernetes
    expected = expected_pods(objects, settings, remarks)
    nodes = _named_nodes(objects, policy, remarks, expected.pods)
    remark_unseen(objects, remarks)
    pods = read_pods(objects, nodes, settings, remarks, expected.pods)
    if not objects.has_all("Pod"):
        remarks.add("Kubernetes pods", "none in the input, so all GPUs count as free", KUBECTL)
    gangs = leave_out_last(
        read_gangs(objects, pods, settings, remarks), policy.queue_limit, remarks
    )
    bound_checkpoints(gangs, policy, remarks)
    quotas = read_quotas(objects, nodes, settings, find, queues, remarks)
    quotas.assign(gangs, pinned)
    report_overdue(gangs, policy, remarks)
    if policy.reservations is None and not policy.trust_durations:
        for gang in gangs:
            gang.deadline_s = None  # nothing depends on it
    levels = read_levels(objects, nodes, settings, level_asks(gangs), remarks, topology)
    hold_beyond_share(gangs)
    hold_beyond_resources(gangs, nodes)
    set_near(gangs, levels, settings.ignore, remarks)
    sets = PodSets(gangs, pods, nodes, levels)
    if "podAntiAffinity" not in settings.ignore:
        exclude_by_anti_affinity(pods, nodes, remarks, sets.stated())
    partial = partial_gpu_names(nodes, gangs)
    sets.write(partial)
    marked_only = policy.gpu_binding == "none"
    names = {node.name for node in nodes}
    budgets = read_budgets(objects, remarks)
    obey_budgets(gangs, budgets, remarks)
    distrust_slow_ends(gangs, remarks)
    gang_trees = GangDocuments(levels, names, remarks, settings, partial, marked_only, budgets)
    read, members = _gangs(gangs, gang_trees, remarks)
    roles = [one for document in read for one in document.spec.roles]
    keys = {key for key, _ in policy.node_selector}  # that decide where pods may go
    keys.update(key for one in roles for key in one.node_selector)
    keys.update(e.key for one in roles for term in one.node_affinity for e in term)
    node_trees = NodeDocuments(
        levels=levels,
        find=find,
        keys=keys,
        requested=sorted({key for one in roles for key in one.requests}),
        partial=partial,
        marked_only=marked_only,
        remarks=remarks,
        failures=policy.lists("suspect"),
        by_claims=settings.gpu_backend == "dra",
    )
    used = node_uses(nodes, pods, members, objects)
    kept = _relevant(nodes, used, read)
    cluster = _cluster(objects, kept, used, node_trees, policy, gang_trees.named)
    joined = [node for node in kept if node.name in node_trees.joined]
    if joined:
        warn_of_missing_claims(gangs, joined, levels, settings, remarks)
    source = Source(SOURCE, "", "json")
    made = ClusterInput(
        [Entry(source, (), ClusterDocument.model_validate(cluster), findings)],
        models_first(node_trees.models, find),
        [Entry(source, ("items", i), one, findings) for i, one in enumerate(read)],
        levels.found,
        levels.policy_text,
        left_out=_left_out(pods, expected.left_out),
        schedulers=frozenset(pod.scheduler for pod in pods),
        queues=[Entry(source, ("items", i), q, findings) for i, q in enumerate(quotas.documents())],
    )
    return made, partial


def _gangs(
    gangs: Sequence[KubeGang], trees: GangDocuments, remarks: Remarks
) -> tuple[list[GangDocument], dict[tuple[str, str], dict[str, int]]]:
    """The documents of the gangs, and what each pod in one counts for, by the key of the pod.

    An invalid one keeps what its pods hold and starts nothing.
    """
    documents: list[GangDocument] = []
    members: dict[tuple[str, str], dict[str, int]] = {}
    for gang in gangs:
        tree = trees.tree(gang)
        document, what = sound_gang(tree)
        if document is None:
            document, _ = sound_gang(_running_only(tree, f"it cannot be planned: {what}"))
            remarks.add(gang.subject, f"cannot be planned ({what}); what its pods hold stays held")
        if document is not None:
            documents.append(document)
            for role, made in zip(gang.roles, document.spec.roles, strict=True):
                members.update((pod.key, made.requests) for _, pod in role.members)
    return documents, members


def _left_out(pods: Sequence[KubePod], expected: Mapping[str, int]) -> dict[str, int]:
    """Waiting pods that only their own schedulers place, most first; of many schedulers the last as one.

    ``expected``: pods that do not exist yet, by scheduler.
    """
    counts = Counter(clean(pod.scheduler) for pod in pods if pod.left_out)
    for scheduler, pods_of_it in expected.items():
        counts[clean(scheduler)] += pods_of_it
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    found = {name: counts[name] for name in ordered[:MAX_LEFT_OUT]}
    if rest := sum(counts[name] for name in ordered[MAX_LEFT_OUT:]):
        found[OTHERS] = found.get(OTHERS, 0) + rest
    return found


def _named_nodes(
    objects: Objects, policy: Policy, remarks: Remarks, expected: Sequence[KubeObject]
) -> list[KubeNode]:
    """Nodes whose name is valid in a plan."""
    found = []
    for node in read_nodes(objects, policy.kubernetes, remarks, expected):
        if is_name(node.name):
            found.append(node)
        else:
            remarks.add(node.object.where, "has a malformed name; ignored")
    if found and not any(node.gpus or node.installed or node.shared for node in found):
        names = ", ".join(policy.kubernetes.gpu_resources[:2])
        hint = f"a device plugin states them in status.allocatable, as {names} or kubernetes.gpuResources"
        remarks.add("Kubernetes nodes", f"none of the {len(found):,} offers GPUs", hint)
    return found


def _running_only(tree: Json, why: str) -> Json:
    """The tree without what only matters to new pods; held if any pod waits."""
    kept = ("name", "replicas", "gpus", "firstIndex", "podSets", "antiAffinity")
    roles = []
    most = 0
    for role in tree["spec"]["roles"]:
        requests = role.get("requests", {})
        sound = {name: requests[name] for name in requests if is_label_key(name)}
        roles.append({name: role[name] for name in kept if name in role} | {"requests": sound})
        replicas = role["replicas"]
        most += replicas["max"] if isinstance(replicas, dict) else replicas
    spec = {**tree["spec"], "topology": {}, "roles": roles}
    status = dict(tree["status"])
    if sum("node" in pod for pod in status["pods"]) < most:
        status["hold"] = {"code": UNSUPPORTED, "message": why}
    return {**tree, "spec": spec, "status": status}


def _relevant(
    nodes: Sequence[KubeNode],
    used: Mapping[str, Use],
    gangs: Sequence[GangDocument],
) -> list[KubeNode]:
    """Nodes with GPUs, and those without if a gang runs on them or has waiting pods without GPUs."""
    running = {pod.node for document in gangs for pod in document.status.pods}
    cpu_only = any(
        role.gpus == 0 and share_in(role.requests) is None
        for document in gangs
        if any(pod.node is None for pod in document.status.pods)
        for role in document.spec.roles
    )
    return [
        node
        for node in nodes
        if node.installed or used[node.name].gang_gpus or cpu_only or node.name in running
    ]


def _cluster(
    objects: Objects,
    nodes: Sequence[KubeNode],
    used: Mapping[str, Use],
    trees: NodeDocuments,
    policy: Policy,
    budgets: Mapping[tuple[str, str], int],
) -> Json:
    """``budgets``: the evictions that each disruption budget of a gang allows."""
    entries = []
    for node in nodes:
        selected = all(node.labels.get(key) == value for key, value in policy.node_selector)
        # Remarks on a node that nothing is planned on would only be noise.
        remarks = trees.remarks if node.shared is None and selected else Remarks()
        model = server_model(node, policy.kubernetes, trees.find, remarks)
        entries.append(_node(trees.tree(node, model, used[node.name]), node, trees.remarks))
    identity = objects.named("", "Namespace", "", "kube-system")
    uid = None if identity is None or not is_name(identity.uid or "") else identity.uid
    spec = {
        "levels": [one.to_json() for one in trees.levels.levels],
        "nodes": entries,
        "disruptionBudgets": [
            {"namespace": namespace, "name": name, "allowed": allowed}
            for (namespace, name), allowed in sorted(budgets.items())
        ],
    }
    return document_tree("Cluster", NO_NAME, spec, **({} if uid is None else {"uid": uid}))


def _node(tree: Json, node: KubeNode, remarks: Remarks) -> NodeDocument:
    """The entry; if it is invalid, one that keeps what runs there and takes nothing more."""
    try:
        return NodeDocument.model_validate(tree)
    except ValidationError as error:
        what = first_error(NodeDocument, tree, error)
    remarks.add(node.object.where, f"{what}; nothing is placed on it")
    safe = {name: tree[name] for name in ("name", "model", "domains", "podSets") if name in tree}
    return NodeDocument.model_validate({**safe, "unschedulable": True})
