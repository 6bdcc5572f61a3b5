"""Parts that several canonical documents share.

Promises: one way to write every quantity; what is absent is not written. Called by this package.

The Cluster as a canonical document: nodes by name, exactly the server models in use.

Promises: one entry a node, ranges expanded. Called by ``models.canonical``.

A Gang as a canonical document, with its pods that exist and those an earlier plan wanted.

Promises: pods by role and index; fields that say nothing beyond the default are not written where
that keeps older plans as they were. Called by ``models.canonical``.

The Policy as a canonical document: objectives, mix and limits as they are used.

Promises: what a policy leaves at its default since a later version is not written, so that older
plans keep their bytes. Called by ``models.canonical`` and the builder.

An Instance as canonical documents, and the digest that tells two documents apart.

Promises: everything written out, one entry a node, only the server models in use, one way to write
every quantity; reading the result gives the same Instance and digest.
Called by ``models.plan``; ``planner.read.inputs.instance_from_document`` is its inverse.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from models.cluster import Cluster, Level, Node
from models.documents.base import API_VERSION
from models.gang import Gang, NodeTerm, PlannedPod, Role, StandingPod
from models.hardware import Nic, ServerModel
from models.instance import Instance
from models.policy import (
    GPU_BACKENDS,
    LOST_RUNTIME,
    Disruption,
    Domains,
    KubernetesPolicy,
    Moves,
    Policy,
)
from models.units import duration_text, exact, number, quantity_text, time_text

Json = dict[str, Any]


def present(**fields: object) -> Json:
    """The fields that have a value: an absent one is not written as null."""
    return {name: value for name, value in fields.items() if value is not None}


def level_document(level: Level) -> Json:
    return {
        "name": level.name,
        **present(label=level.label),
        "oversubscription": number(level.oversubscription),
        "nvlink": level.nvlink,
    }


def quantities(amounts: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {resource: quantity_text(resource, units) for resource, units in amounts}


def gpu_indices(mask: int) -> list[int]:
    """Indices of a bit mask, ascending."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]


def cluster_document(cluster: Cluster) -> Json:
    """One Cluster: nodes by name, the server models in use by name."""
    used = {node.model.name: node.model for node in cluster.nodes if node.model is not None}
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name, **present(uid=cluster.uid)},
        "spec": {
            "levels": [level_document(level) for level in cluster.levels],
            "serverModels": [server_model_document(used[name]) for name in sorted(used)],
            "nodes": [_node(node, cluster.levels) for node in cluster.nodes],
        },
    }


def _node(node: Node, levels: tuple[Level, ...]) -> Json:
    return {
        "name": node.name,
        **present(model=node.model.name if node.model else None),
        "domains": {
            level.name: value
            for level, value in zip(levels, node.domains, strict=True)
            if value is not None
        },
        "allocatable": quantities(node.allocatable),
        "unschedulable": node.unschedulable,
        "ready": node.ready,
        "unhealthyGpus": gpu_indices(node.unhealthy),
        "unknownUnhealthy": node.unknown_unhealthy,
        "labels": dict(node.labels),
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
        **present(nics=None if node.nics is None else [_nic(nic) for nic in node.nics]),
    }


def _nic(nic: Nic) -> Json:
    gbps = None if nic.megabits is None else number(exact(nic.megabits) / 1000)
    near = None if nic.gpus is None else list(nic.gpus)
    return {"name": nic.name, "gbps": gbps, **present(gpus=near)}


def server_model_document(model: ServerModel) -> Json:
    """A server model in full."""
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "vendor": model.vendor,
        "gpu": model.gpu,
        "gpus": model.gpus,
        "fabric": model.fabric,
        **present(
            matrix=None if model.matrix is None else [list(row) for row in model.matrix],
            linkMBps=model.link_MBps,
            linksPerGpu=model.links_per_gpu,
        ),
        "pcieMBps": model.pcie_MBps,
        "sysMBps": model.sys_MBps,
        **present(
            numa=None if model.numa is None else list(model.numa),
            pcieSwitch=None if model.pcie_switch is None else list(model.pcie_switch),
        ),
        "nics": [_nic(nic) for nic in model.nics],
        "nvlinkDomainNodes": model.nvlink_domain_nodes,
        "sources": list(model.sources),
        "confidence": model.confidence,
    }


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


def counted_to(instance: Instance) -> int | None:
    """The time to write as ``now``: the policy's, else the one in force wherever ages decide anything."""
    policy = instance.policy
    decides = (
        policy.starvation_after_s is not None
        or policy.disruption.weight == LOST_RUNTIME
        or any(gang.resize_after is not None for gang in instance.gangs)
    )
    return instance.now if decides else policy.now


def policy_document(policy: Policy, *, now: int | None) -> Json:
    """The Policy with mix and objectives as they are used. ``now``: of ``counted_to``."""
    starvation = policy.starvation_after_s
    return {
        "apiVersion": API_VERSION,
        "kind": "Policy",
        "metadata": {"name": policy.name},
        "spec": {
            "objectives": [
                {"name": objective.name, "tolerance": number(objective.tolerance)}
                for objective in policy.objectives
            ],
            "mix": {str(gpus): permille for gpus, permille in policy.mix},
            "minBandwidthShare": number(policy.min_bandwidth_share),
            "gpuBinding": policy.gpu_binding,
            "nodeSelector": dict(policy.node_selector),
            "solve": {
                "budget": policy.solve.budget,
                "timeLimit": duration_text(policy.solve.time_limit_s),
                "workers": policy.solve.workers,
                "seed": policy.solve.seed,
            },
            **present(
                moves=_moves(policy.moves),
                disruption=_disruption(policy.disruption),
                starvation=None if starvation is None else {"after": duration_text(starvation)},
                now=None if now is None else time_text(now),
                kubernetes=_kubernetes(policy.kubernetes),
            ),
        },
    }


def _moves(moves: Moves | None) -> Json | None:
    if moves is None or moves == Moves():
        return None
    return {
        **present(maxGangs=moves.max_gangs, maxGPUs=moves.max_gpus),
        "minGain": number(moves.min_gain),
    }


def _disruption(disruption: Disruption) -> Json | None:
    if disruption == Disruption():
        return None
    return {"weight": disruption.weight, "cap": duration_text(disruption.cap_s)}


def _kubernetes(policy: KubernetesPolicy) -> Json | None:
    """How Kubernetes objects are read; None for the usual way, which is not written."""
    if policy == KubernetesPolicy():
        return None
    levels = policy.levels
    nodes_of = dict(policy.level_domains)
    return {
        "schedulerName": policy.scheduler_name,
        "schedulingGate": policy.scheduling_gate,
        "gpuResources": list(policy.gpu_resources),
        **present(
            levels=None
            if levels is None
            else [
                {**level_document(level), **present(domains=_domains(nodes_of.get(level.name)))}
                for level in levels
            ]
        ),
        "serverModels": [
            {"nodeSelector": dict(selector), "model": model}
            for selector, model in policy.server_models
        ],
        "ignore": list(policy.ignore),
        "trustSubmittedAt": policy.trust_submitted_at,
        "nvlinkAcrossNodes": policy.nvlink_across_nodes,
        **present(gpuBackend=None if policy.gpu_backend == GPU_BACKENDS[0] else policy.gpu_backend),
    }


def _domains(domains: Domains | None) -> Json | None:
    return None if domains is None else {domain: list(nodes) for domain, nodes in domains}


__all__ = ["counted_to", "digest", "instance_document", "server_model_document"]


def instance_document(instance: Instance) -> Json:
    """``{"cluster": document, "gangs": [documents], "policy": document}``, canonical."""
    return {
        "cluster": cluster_document(instance.cluster),
        "gangs": [gang_document(gang, instance.cluster) for gang in instance.gangs],
        "policy": policy_document(instance.policy, now=counted_to(instance)),
    }


def digest(document: object) -> str:
    """``sha256:<hex>`` of the document as compact JSON with sorted keys, in UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"
