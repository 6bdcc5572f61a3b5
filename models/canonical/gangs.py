"""A Gang as a canonical document, with its pods that exist and those an earlier plan wanted.

Promises: pods by role and index; fields that say nothing beyond the default are not written where
that keeps older plans as they were. Called by ``models.canonical``.
"""

from __future__ import annotations

from models.affinity import NodeTerm
from models.canonical.forms import Json, gpu_indices, present, quantities
from models.cluster import Cluster
from models.documents.base import API_VERSION
from models.gang import Gang, PlannedPod, Role, StandingPod
from models.quantities import duration_text, number, time_text


def gang_document(gang: Gang, cluster: Cluster) -> Json:
    """One Gang with the pods that exist."""
    hold, started, checkpoint = gang.hold, gang.started_at, gang.last_checkpoint
    return {
        "apiVersion": API_VERSION,
        "kind": "Gang",
        "metadata": {"name": gang.name, "namespace": gang.namespace},
        "spec": _gang_spec(gang, cluster),
        "status": {
            "pods": [_pod(pod, gang, cluster) for pod in gang.pods],
            **present(
                hold=None if hold is None else {"code": hold.code, "message": hold.message},
                startedAt=None if started is None else time_text(started),
                lastCheckpoint=None if checkpoint is None else time_text(checkpoint),
                planned=[_planned(pod, gang, cluster) for pod in sorted(gang.planned)] or None,
            ),
        },
    }


def _gang_spec(gang: Gang, cluster: Cluster) -> Json:
    share = gang.min_bandwidth_share
    submitted, duration = gang.submitted_at, gang.expected_duration_s
    held = gang.resize_after
    return {
        **present(
            queue=gang.queue,
            submittedAt=None if submitted is None else time_text(submitted),
            expectedDuration=None if duration is None else duration_text(duration),
            resizeAfter=None if held is None else time_text(held),
        ),
        "priority": gang.priority,
        "preemptible": gang.preemptible,
        "movable": gang.movable,
        "topology": {
            **_topology(gang.required, gang.preferred, cluster),
            **present(minBandwidthShare=None if share is None else number(share)),
        },
        "roles": [_role(role, cluster) for role in gang.roles],
        "communication": {
            "pattern": gang.pattern,
            "weight": gang.weight,
            **present(nvlinkAcrossNodes=None if gang.nvlink_across_nodes else False),
        },
    }


def _topology(required: int | None, preferred: int | None, cluster: Cluster) -> Json:
    return present(
        required=None if required is None else cluster.level_name(required),
        preferred=None if preferred is None else cluster.level_name(preferred),
    )


def _role(role: Role, cluster: Cluster) -> Json:
    replicas: int | Json = role.min
    if role.elastic:
        replicas = {"min": role.min, "max": role.max, "step": role.step}
    piece = None
    if role.slice_size is not None and role.slice_level is not None:
        piece = {"size": role.slice_size, "required": cluster.level_name(role.slice_level)}
    outer = [
        {"size": size, "required": cluster.level_name(level)} for size, level in role.outer_slices
    ]
    return {
        "name": role.name,
        "replicas": replicas,
        **present(firstIndex=role.first_index or None),
        "gpus": role.gpus,
        "requests": quantities(role.requests),
        "topology": _topology(role.required, role.preferred, cluster),
        **present(slice=piece, outerSlices=outer or None, model=role.model),
        "nodeSelector": dict(role.node_selector),
        **present(nodeAffinity=[_term(term) for term in role.node_affinity] or None),
        "tolerations": [
            {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
            for t in role.tolerations
        ],
        "mixModels": role.mix_models,
    }


def _term(term: NodeTerm) -> list[Json]:
    return [
        {
            "key": one.key,
            "operator": one.operator,
            "values": list(one.values),
            **present(field=one.field or None),
        }
        for one in term
    ]


def _pod(pod: StandingPod, gang: Gang, cluster: Cluster) -> Json:
    runs: Json = {} if pod.node is None else {"node": cluster.nodes[pod.node].name}
    if pod.node is not None:
        runs["gpus"] = None if pod.gpus is None else gpu_indices(pod.gpus)
    return {
        "name": pod.name,
        **present(uid=pod.uid),
        "role": gang.roles[pod.role].name,
        "index": pod.index,
        **runs,
        **present(mode=pod.mode),
    }


def _planned(pod: PlannedPod, gang: Gang, cluster: Cluster) -> Json:
    return {
        "role": gang.roles[pod.role].name,
        "index": pod.index,
        "node": cluster.nodes[pod.node].name,
    }
