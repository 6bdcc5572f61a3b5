"""The Policy as a canonical document: objectives, mix and limits as they are used.

Promises: what a policy leaves at its default since a later version is not written, so that older
plans keep their bytes. Called by ``models.canonical`` and the builder.
"""

from __future__ import annotations

from models.canonical.forms import Json, level_document, present
from models.documents.base import API_VERSION
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
from models.quantities import duration_text, number, time_text


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
