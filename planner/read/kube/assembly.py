"""Kubernetes objects to the cluster, the gangs and the queues of an instance.

What is left out is a remark. What a pod holds stays held: in a gang, off ``allocatable``, or as GPUs that
are never given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from models.documents.cluster import NO_NAME, DisruptionBudget
from models.gpu_shares import share_in
from models.hardware import FindModel
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.instance.cluster import Cluster
from models.instance.policy import Policy
from planner.read.compact_cluster import ClusterInput
from planner.read.document_kinds import Documents
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import gpu_systems
from planner.read.kube.gang_builder import (
    GangBuilder,
    hold_beyond_share,
    level_asks,
    role_requests,
    unplannable,
    warn_of_missing_claims,
)
from planner.read.kube.gangs.gangs import bound_checkpoints, leave_out_last, read_gangs
from planner.read.kube.gangs.terms import distrust_slow_ends, obey_budgets, report_overdue
from planner.read.kube.levels.levels import read_levels
from planner.read.kube.lookup import clean, is_name
from planner.read.kube.node_builder import NodeBuilder, Use, node_uses, partial_gpu_names
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pod_sets import PodSets, set_near
from planner.read.kube.pods.anti_affinity import exclude_by_anti_affinity
from planner.read.kube.pods.budgets import read_budgets
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.queues import read_quotas
from planner.read.kube.records import KubeGang, KubeNode, KubeObject, KubePod, Objects
from planner.read.kube.shares import hold_beyond_resources
from planner.read.kube.templates.waiting import expected_pods, remark_unseen
from planner.read.sources import KUBECTL, Source
from planner.read.validation import Entry

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
    """The cluster of the objects, its gangs and queues, and ``partial_gpu_names``. Needs at least one Node.

    ``topology``: a topology file; its levels take precedence over those of the objects. ``queues``: those of
    Queue documents, by name their parents. ``pinned``: the nodes of pinned cells, by id.
    """
    remarks, findings, settings = documents.remarks, documents.findings, policy.kubernetes
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
    marks = [one.mark for one in gpu_systems() if one.mark] if policy.gpu_binding == "none" else []
    budgets = read_budgets(objects, remarks)
    obey_budgets(gangs, budgets, remarks)
    distrust_slow_ends(gangs, remarks)
    gangs = [gang for gang in gangs if _is_plannable(gang, remarks)]
    members = _counted(gangs)
    used = node_uses(nodes, pods, members, objects)
    kept = _relevant(nodes, used, gangs)
    names = {node.name for node in kept}
    written = [one.name for entry in documents.clusters for one in entry.document.spec.nodes]
    if sum(map(host_count, written)) <= MAX_NAMES:  # else a fault
        names.update(name for hosts_ in written for name in hosts(hosts_))
    numbers = {name: number for number, name in enumerate(sorted(names))}
    made = GangBuilder(levels, numbers, remarks, settings, partial, marks, budgets)
    found = [made.gang(gang) for gang in gangs]
    roles = [role for gang in found for role in gang.roles]
    keys = {key for key, _ in policy.node_selector}  # that decide where pods may go
    keys.update(key for role in roles for key, _ in role.node_selector)
    affinities = {id(role.node_affinity): role.node_affinity for role in roles}
    keys.update(e.key for one in affinities.values() for term in one for e in term)
    of_nodes = NodeBuilder(
        levels,
        settings,
        find,
        keys,
        sorted({key for role in roles for key, _ in role.requests}),
        partial,
        marks,
        remarks,
        policy.lists("suspect"),
    )
    cluster = _cluster(objects, kept, used, of_nodes, policy, made.named)
    joined = [node for node in kept if node.name in of_nodes.joined]
    if joined:
        warn_of_missing_claims(gangs, joined, levels, settings, remarks)
    return ClusterInput(
        [],
        find,
        found=levels.found,
        levels_policy=levels.policy_text,
        left_out=_left_out(pods, expected.left_out),
        schedulers=frozenset(pod.scheduler for pod in pods),
        queues=[
            Entry(Source(SOURCE, "", "json"), ("items", i), q, findings)
            for i, q in enumerate(quotas.documents())
        ],
        base=cluster,
        made=found,
    ), partial


def _is_plannable(gang: KubeGang, remarks: Remarks) -> bool:
    if (why := unplannable(gang)) is not None:
        remarks.add(gang.subject, f"cannot be planned ({why}); what its pods hold stays held")
    return why is None


def _counted(gangs: Sequence[KubeGang]) -> dict[tuple[str, str], dict[str, int]]:
    """Set what the pods of each role count for. Returns it by the keys of the pods."""
    members: dict[tuple[str, str], dict[str, int]] = {}
    for role in (role for gang in gangs for role in gang.roles):
        role.requests = role_requests(role)
        members.update((pod.key, role.requests) for _, pod in role.members)
    return members


def _cluster(
    objects: Objects,
    nodes: Sequence[KubeNode],
    used: Mapping[str, Use],
    builder: NodeBuilder,
    policy: Policy,
    budgets: Mapping[tuple[str, str], int],
) -> Cluster:
    """``budgets``: the evictions that each disruption budget of a gang allows."""
    made = []
    for node in nodes:
        selected = all(node.labels.get(key) == value for key, value in policy.node_selector)
        # Remarks on a node that nothing is planned on would only be noise.
        remarks = builder.remarks if node.shared is None and selected else Remarks()
        made.append(builder.node(node, used[node.name], remarks))
    space = objects.named("", "Namespace", "", "kube-system")
    uid = None if space is None or not is_name(space.uid or "") else space.uid
    stated = tuple(DisruptionBudget(*key, allowed) for key, allowed in sorted(budgets.items()))
    return Cluster(NO_NAME, builder.levels.levels, tuple(made), uid, stated)


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


def _relevant(
    nodes: Sequence[KubeNode], used: Mapping[str, Use], gangs: Sequence[KubeGang]
) -> list[KubeNode]:
    """Nodes with GPUs, and those without if a gang runs on them or has waiting pods without GPUs."""
    running = {pod.node for gang in gangs for pod in gang.pods() if pod.holds_room}
    cpu_only = any(
        (model := role.model) is None or not (model.gpus or share_in(role.requests))
        for gang in gangs
        if not all(pod.holds_room for pod in gang.pods())
        for role in gang.roles
    )
    return [
        node
        for node in nodes
        if node.installed or used[node.name].gang_gpus or cpu_only or node.name in running
    ]
