"""An Instance as documents: one entry a node, only the server models in use, everything written out.

``planner.read.inputs.instance_from_document`` is the inverse: it gives the same Instance and digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from fractions import Fraction

from models.cluster import Cluster, Level, Node
from models.documents.base import API_VERSION
from models.documents.cluster import (
    ClusterDocument,
    ClusterMetadata,
    ClusterSpec,
    LevelDocument,
    NodeDocument,
    PolicyLevel,
    TaintDocument,
)
from models.documents.gang import (
    Communication,
    GangDocument,
    GangMetadata,
    GangSpec,
    GangStatus,
    GangTopology,
    HoldDocument,
    NodeExpressionDocument,
    PlannedDocument,
    PodDocument,
    ReplicaRange,
    RoleDocument,
    RoleTopology,
    SliceDocument,
    TolerationDocument,
)
from models.documents.plan import PlanInstance
from models.documents.policy import (
    DisruptionDocument,
    KubernetesDocument,
    MovesDocument,
    ObjectiveDocument,
    PolicyDocument,
    PolicyMetadata,
    PolicySpec,
    ServerModelChoice,
    SolveDocument,
    StarvationDocument,
)
from models.documents.server import NicDocument, ServerModelDocument
from models.gang import ExistingPod, Gang, Role
from models.hardware import Nic, ServerModel, bits
from models.instance import Instance
from models.policy import LOST_RUNTIME, KubernetesPolicy, Moves, Policy


def digest(document: object) -> str:
    """``sha256:<hex>`` of the document as compact JSON with sorted keys, in UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"


def canonical_instance(instance: Instance) -> PlanInstance:
    """The ``instance`` of a plan."""
    cluster = instance.cluster
    return PlanInstance.model_construct(
        cluster=_cluster(cluster),
        gangs=tuple(_gang(gang, cluster) for gang in instance.gangs),
        policy=_policy(instance.policy, now=reference_time(instance)),
    )


def reference_time(instance: Instance) -> int | None:
    """The time to write as ``now``: the policy's, else the one in force wherever ages decide anything."""
    policy = instance.policy
    decides = (
        policy.starvation_after_s is not None
        or policy.disruption.weight == LOST_RUNTIME
        or any(gang.resize_after is not None for gang in instance.gangs)
    )
    return instance.now if decides else policy.now


def server_model_document(model: ServerModel) -> ServerModelDocument:
    """A server model in full."""
    return ServerModelDocument.model_construct(
        name=model.name,
        aliases=model.aliases,
        vendor=model.vendor,
        gpu=model.gpu,
        gpus=model.gpus,
        fabric=model.fabric,
        matrix=model.matrix,
        link_mbps=model.link_MBps,
        links_per_gpu=model.links_per_gpu,
        pcie_mbps=model.pcie_MBps,
        sys_mbps=model.sys_MBps,
        numa=model.numa,
        pcie_switch=model.pcie_switch,
        nics=_nics(model.nics),
        nvlink_domain_nodes=model.nvlink_domain_nodes,
        sources=model.sources,
        confidence=model.confidence,
    )


def _nics(nics: Iterable[Nic]) -> tuple[NicDocument, ...]:
    return tuple(
        NicDocument.model_construct(name=nic.name, megabits=nic.megabits, gpus=nic.gpus)
        for nic in nics
    )


def _cluster(cluster: Cluster) -> ClusterDocument:
    used = {node.model.name: node.model for node in cluster.nodes if node.model is not None}
    return ClusterDocument.model_construct(
        api_version=API_VERSION,
        kind="Cluster",
        metadata=ClusterMetadata.model_construct(name=cluster.name, uid=cluster.uid),
        spec=ClusterSpec.model_construct(
            levels=tuple(_level(level) for level in cluster.levels),
            server_models=tuple(server_model_document(used[name]) for name in sorted(used)),
            nodes=tuple(_node(node, cluster.levels) for node in cluster.nodes),
        ),
    )


def _level(level: Level) -> LevelDocument:
    return LevelDocument.model_construct(
        name=level.name,
        label=level.label,
        oversubscription=level.oversubscription,
        nvlink=level.nvlink,
    )


def _node(node: Node, levels: tuple[Level, ...]) -> NodeDocument:
    domains = zip(levels, node.domains, strict=True)
    return NodeDocument.model_construct(
        name=node.name,
        model=None if node.model is None else node.model.name,
        domains={level.name: value for level, value in domains if value is not None},
        allocatable=_amounts(node.allocatable),
        unschedulable=node.unschedulable,
        ready=node.ready,
        unhealthy_gpus=tuple(bits(node.unhealthy)),
        unknown_unhealthy=node.unknown_unhealthy,
        labels=dict(node.labels),
        taints=tuple(
            TaintDocument.model_construct(key=one.key, value=one.value, effect=one.effect)
            for one in node.taints
        ),
        nics=None if node.nics is None else _nics(node.nics),
    )


def _amounts(units: Iterable[tuple[str, int]]) -> dict[str, Fraction]:
    """Amounts by resource; the units of cpu are millicores."""
    return {name: Fraction(count, 1000 if name == "cpu" else 1) for name, count in units}


def _gang(gang: Gang, cluster: Cluster) -> GangDocument:
    return GangDocument.model_construct(
        api_version=API_VERSION,
        kind="Gang",
        metadata=GangMetadata.model_construct(name=gang.name, namespace=gang.namespace),
        spec=GangSpec.model_construct(
            queue=gang.queue,
            submitted_at=gang.submitted_at,
            expected_duration=gang.expected_duration_s,
            resize_after=gang.resize_after,
            priority=gang.priority,
            preemptible=gang.preemptible,
            movable=gang.movable,
            topology=GangTopology.model_construct(
                required=_level_name(gang.required, cluster),
                preferred=_level_name(gang.preferred, cluster),
                min_bandwidth_share=gang.min_bandwidth_share,
            ),
            roles=tuple(_role(role, cluster) for role in gang.roles),
            communication=Communication.model_construct(
                pattern=gang.pattern,
                weight=gang.weight,
                nvlink_across_nodes=gang.nvlink_across_nodes,
            ),
        ),
        status=_status(gang, cluster),
    )


def _level_name(level: int | None, cluster: Cluster) -> str | None:
    return None if level is None else cluster.level_name(level)


def _status(gang: Gang, cluster: Cluster) -> GangStatus:
    hold = gang.hold
    return GangStatus.model_construct(
        pods=tuple(_pod(pod, gang, cluster) for pod in gang.pods),
        hold=None
        if hold is None
        else HoldDocument.model_construct(code=hold.code, message=hold.message),
        started_at=gang.started_at,
        last_checkpoint=gang.last_checkpoint,
        planned=tuple(
            PlannedDocument.model_construct(
                role=gang.roles[pod.role].name, index=pod.index, node=cluster.nodes[pod.node].name
            )
            for pod in sorted(gang.planned)
        ),
    )


def _pod(pod: ExistingPod, gang: Gang, cluster: Cluster) -> PodDocument:
    return PodDocument.model_construct(
        name=pod.name,
        uid=pod.uid,
        role=gang.roles[pod.role].name,
        index=pod.index,
        node=None if pod.node is None else cluster.nodes[pod.node].name,
        gpus=None if pod.node is None or pod.gpus is None else tuple(bits(pod.gpus)),
        mode=pod.mode,
    )


def _role(role: Role, cluster: Cluster) -> RoleDocument:
    replicas: int | ReplicaRange = role.min
    if role.elastic:
        replicas = ReplicaRange.model_construct(min=role.min, max=role.max, step=role.step)
    slices = [_slice(size, level, cluster) for size, level in role.slice_layers]
    return RoleDocument.model_construct(
        name=role.name,
        replicas=replicas,
        first_index=role.first_index,
        gpus=role.gpus,
        requests=_amounts(role.requests),
        topology=RoleTopology.model_construct(
            required=_level_name(role.required, cluster),
            preferred=_level_name(role.preferred, cluster),
        ),
        slice=slices[0] if slices else None,
        outer_slices=tuple(slices[1:]),
        model=role.model,
        node_selector=dict(role.node_selector),
        node_affinity=tuple(
            tuple(
                NodeExpressionDocument.model_construct(
                    key=one.key, operator=one.operator, values=one.values, field=one.field
                )
                for one in term
            )
            for term in role.node_affinity
        ),
        tolerations=tuple(
            TolerationDocument.model_construct(
                key=one.key, operator=one.operator, value=one.value, effect=one.effect
            )
            for one in role.tolerations
        ),
        mix_models=role.mix_models,
    )


def _slice(size: int, level: int, cluster: Cluster) -> SliceDocument:
    return SliceDocument.model_construct(size=size, required=cluster.level_name(level))


def _policy(policy: Policy, *, now: int | None) -> PolicyDocument:
    """The policy with mix and objectives as they are used. ``now``: of ``reference_time``."""
    starvation, solve, disruption = policy.starvation_after_s, policy.solve, policy.disruption
    moves = policy.moves or Moves()
    return PolicyDocument.model_construct(
        api_version=API_VERSION,
        kind="Policy",
        metadata=PolicyMetadata.model_construct(name=policy.name),
        spec=PolicySpec.model_construct(
            objectives=tuple(
                ObjectiveDocument.model_construct(name=one.name, tolerance=one.tolerance)
                for one in policy.objectives
            ),
            mix=dict(policy.mix),
            min_bandwidth_share=policy.min_bandwidth_share,
            gpu_binding=policy.gpu_binding,
            node_selector=dict(policy.node_selector),
            solve=SolveDocument.model_construct(
                budget=solve.budget,
                time_limit=solve.time_limit_s,
                workers=solve.workers,
                seed=solve.seed,
            ),
            moves=MovesDocument.model_construct(
                max_gangs=moves.max_gangs, max_gpus=moves.max_gpus, min_gain=moves.min_gain
            ),
            disruption=DisruptionDocument.model_construct(
                weight=disruption.weight, cap=disruption.cap_s
            ),
            starvation=None
            if starvation is None
            else StarvationDocument.model_construct(after=starvation),
            now=now,
            kubernetes=_kubernetes(policy.kubernetes),
        ),
    )


def _kubernetes(policy: KubernetesPolicy) -> KubernetesDocument:
    domains = dict(policy.level_domains)
    levels = policy.levels
    return KubernetesDocument.model_construct(
        scheduler_name=policy.scheduler_name,
        scheduling_gate=policy.scheduling_gate,
        gpu_resources=policy.gpu_resources,
        levels=None
        if levels is None
        else tuple(
            PolicyLevel.model_construct(
                **dict(_level(level)),
                domains=dict(domains[level.name]) if level.name in domains else None,
            )
            for level in levels
        ),
        server_models=tuple(
            ServerModelChoice.model_construct(node_selector=dict(selector), model=model)
            for selector, model in policy.server_models
        ),
        ignore=policy.ignore,
        trust_submitted_at=policy.trust_submitted_at,
        nvlink_across_nodes=policy.nvlink_across_nodes,
        gpu_backend=policy.gpu_backend,
    )
