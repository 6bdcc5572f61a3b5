"""An Instance as canonical documents, and the digest that tells two documents apart.

Promises: everything written out, one entry a node, only the server models in use, one way to write
every quantity; reading the result gives the same Instance and digest.
Called by ``models.plan``; ``planner.reading.instance_from_document`` is its inverse.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from models.affinity import NodeTerm
from models.cluster import Cluster, Level, Node
from models.documents.base import API_VERSION
from models.gang import Gang, Role, StandingPod
from models.hardware import Nic, ServerModel
from models.instance import Instance
from models.policy import Domains, KubernetesPolicy, Policy
from models.quantities import duration_text, exact, number, quantity_text, time_text

Json = dict[str, Any]


def instance_document(instance: Instance) -> Json:
    """``{"cluster": document, "gangs": [documents], "policy": document}``, canonical."""
    return {
        "cluster": cluster_document(instance.cluster),
        "gangs": [gang_document(gang, instance.cluster) for gang in instance.gangs],
        "policy": policy_document(instance.policy),
    }


def digest(document: object) -> str:
    """``sha256:<hex>`` of the document as compact JSON with sorted keys, in UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"


def cluster_document(cluster: Cluster) -> Json:
    """One Cluster: nodes by name, the server models in use by name."""
    used = {node.model.name: node.model for node in cluster.nodes if node.model is not None}
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name, **_present(uid=cluster.uid)},
        "spec": {
            "levels": [_level(level) for level in cluster.levels],
            "serverModels": [server_model_document(used[name]) for name in sorted(used)],
            "nodes": [_node(node, cluster.levels) for node in cluster.nodes],
        },
    }


def _present(**fields: object) -> Json:
    """The fields that have a value: an absent one is not written as null."""
    return {name: value for name, value in fields.items() if value is not None}


def _level(level: Level) -> Json:
    return {
        "name": level.name,
        **_present(label=level.label),
        "oversubscription": number(level.oversubscription),
        "nvlink": level.nvlink,
    }


def _node(node: Node, levels: tuple[Level, ...]) -> Json:
    return {
        "name": node.name,
        **_present(model=node.model.name if node.model else None),
        "domains": {
            level.name: value
            for level, value in zip(levels, node.domains, strict=True)
            if value is not None
        },
        "allocatable": _quantities(node.allocatable),
        "unschedulable": node.unschedulable,
        "ready": node.ready,
        "unhealthyGpus": gpu_indices(node.unhealthy),
        "unknownUnhealthy": node.unknown_unhealthy,
        "labels": dict(node.labels),
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
        **_present(nics=None if node.nics is None else [_nic(nic) for nic in node.nics]),
    }


def gpu_indices(mask: int) -> list[int]:
    """Indices of a bit mask, ascending."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]


def _quantities(amounts: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {resource: quantity_text(resource, units) for resource, units in amounts}


def _nic(nic: Nic) -> Json:
    gbps = None if nic.megabits is None else number(exact(nic.megabits) / 1000)
    near = None if nic.gpus is None else list(nic.gpus)
    return {"name": nic.name, "gbps": gbps, **_present(gpus=near)}


def server_model_document(model: ServerModel) -> Json:
    """A server model in full."""
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "vendor": model.vendor,
        "gpu": model.gpu,
        "gpus": model.gpus,
        "fabric": model.fabric,
        **_present(
            matrix=None if model.matrix is None else [list(row) for row in model.matrix],
            linkMBps=model.link_MBps,
            linksPerGpu=model.links_per_gpu,
        ),
        "pcieMBps": model.pcie_MBps,
        "sysMBps": model.sys_MBps,
        **_present(
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
    hold = gang.hold
    return {
        "apiVersion": API_VERSION,
        "kind": "Gang",
        "metadata": {"name": gang.name, "namespace": gang.namespace},
        "spec": _gang_spec(gang, cluster),
        "status": {
            "pods": [_pod(pod, gang, cluster) for pod in gang.pods],
            **_present(hold=None if hold is None else {"code": hold.code, "message": hold.message}),
        },
    }


def _gang_spec(gang: Gang, cluster: Cluster) -> Json:
    share = gang.min_bandwidth_share
    submitted, duration = gang.submitted_at, gang.expected_duration_s
    return {
        **_present(
            queue=gang.queue,
            submittedAt=None if submitted is None else time_text(submitted),
            expectedDuration=None if duration is None else duration_text(duration),
        ),
        "priority": gang.priority,
        "preemptible": gang.preemptible,
        "movable": gang.movable,
        "topology": {
            **_topology(gang.required, gang.preferred, cluster),
            **_present(minBandwidthShare=None if share is None else number(share)),
        },
        "roles": [_role(role, cluster) for role in gang.roles],
        "communication": {
            "pattern": gang.pattern,
            "weight": gang.weight,
            **_present(nvlinkAcrossNodes=None if gang.nvlink_across_nodes else False),
        },
    }


def _topology(required: int | None, preferred: int | None, cluster: Cluster) -> Json:
    return _present(
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
        **_present(firstIndex=role.first_index or None),
        "gpus": role.gpus,
        "requests": _quantities(role.requests),
        "topology": _topology(role.required, role.preferred, cluster),
        **_present(slice=piece, outerSlices=outer or None, model=role.model),
        "nodeSelector": dict(role.node_selector),
        **_present(nodeAffinity=[_term(term) for term in role.node_affinity] or None),
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
            **_present(field=one.field or None),
        }
        for one in term
    ]


def _pod(pod: StandingPod, gang: Gang, cluster: Cluster) -> Json:
    runs: Json = {} if pod.node is None else {"node": cluster.nodes[pod.node].name}
    if pod.node is not None:
        runs["gpus"] = None if pod.gpus is None else gpu_indices(pod.gpus)
    return {
        "name": pod.name,
        **_present(uid=pod.uid),
        "role": gang.roles[pod.role].name,
        "index": pod.index,
        **runs,
        **_present(mode=pod.mode),
    }


def policy_document(policy: Policy) -> Json:
    """The Policy with mix and objectives as they are used."""
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
            **_present(kubernetes=_kubernetes(policy.kubernetes)),
        },
    }


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
        **_present(
            levels=None
            if levels is None
            else [
                {**_level(level), **_present(domains=_domains(nodes_of.get(level.name)))}
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
    }


def _domains(domains: Domains | None) -> Json | None:
    return None if domains is None else {domain: list(nodes) for domain, nodes in domains}
