"""An Instance as documents: one entry per node, only the server models in use, everything written out.

``planner.read.inputs.instance_from_document`` is the inverse: it gives the same Instance and digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from fractions import Fraction
from typing import TypeVar

from models.cluster import Cluster, Level, Node
from models.documents.base import API_VERSION, Document
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
from models.hardware import ServerModel, bits
from models.instance import Instance
from models.policy import LOST_RUNTIME, KubernetesPolicy, Moves, Policy

D = TypeVar("D", bound=Document)


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
    return ServerModelDocument.of(
        model,
        link_mbps=model.link_MBps,
        pcie_mbps=model.pcie_MBps,
        sys_mbps=model.sys_MBps,
        nics=_all(NicDocument, model.nics),
    )


def _all(kind: type[D], sources: Iterable[object]) -> tuple[D, ...]:
    return tuple(kind.of(source) for source in sources)


def _cluster(cluster: Cluster) -> ClusterDocument:
    used = {node.model.name: node.model for node in cluster.nodes if node.model is not None}
    return ClusterDocument.model_construct(
        api_version=API_VERSION,
        kind="Cluster",
        metadata=ClusterMetadata.of(cluster),
        spec=ClusterSpec.model_construct(
            levels=_all(LevelDocument, cluster.levels),
            server_models=tuple(server_model_document(used[name]) for name in sorted(used)),
            nodes=tuple(_node(node, cluster.levels) for node in cluster.nodes),
        ),
    )


def _node(node: Node, levels: tuple[Level, ...]) -> NodeDocument:
    domains = zip(levels, node.domains, strict=True)
    return NodeDocument.of(
        node,
        model=None if node.model is None else node.model.name,
        domains={level.name: value for level, value in domains if value is not None},
        allocatable=_amounts(node.allocatable),
        unhealthy_gpus=tuple(bits(node.unhealthy)),
        labels=dict(node.labels),
        taints=_all(TaintDocument, node.taints),
        nics=None if node.nics is None else _all(NicDocument, node.nics),
    )


def _amounts(units: Iterable[tuple[str, int]]) -> dict[str, Fraction]:
    """Amounts by resource; the units of cpu are millicores."""
    return {name: Fraction(count, 1000 if name == "cpu" else 1) for name, count in units}


def _gang(gang: Gang, cluster: Cluster) -> GangDocument:
    return GangDocument.model_construct(
        api_version=API_VERSION,
        kind="Gang",
        metadata=GangMetadata.of(gang),
        spec=GangSpec.of(
            gang,
            expected_duration=gang.expected_duration_s,
            topology=GangTopology.of(
                gang,
                required=_level_name(gang.required, cluster),
                preferred=_level_name(gang.preferred, cluster),
            ),
            roles=tuple(_role(role, cluster) for role in gang.roles),
            communication=Communication.of(gang),
        ),
        status=GangStatus.of(
            gang,
            pods=tuple(_pod(pod, gang, cluster) for pod in gang.pods),
            hold=None if gang.hold is None else HoldDocument.of(gang.hold),
            planned=tuple(
                PlannedDocument.of(
                    pod, role=gang.roles[pod.role].name, node=cluster.nodes[pod.node].name
                )
                for pod in sorted(gang.planned)
            ),
        ),
    )


def _level_name(level: int | None, cluster: Cluster) -> str | None:
    return None if level is None else cluster.level_name(level)


def _pod(pod: ExistingPod, gang: Gang, cluster: Cluster) -> PodDocument:
    return PodDocument.of(
        pod,
        role=gang.roles[pod.role].name,
        node=None if pod.node is None else cluster.nodes[pod.node].name,
        gpus=None if pod.node is None or pod.gpus is None else tuple(bits(pod.gpus)),
    )


def _role(role: Role, cluster: Cluster) -> RoleDocument:
    slices = [
        SliceDocument.model_construct(size=size, required=cluster.level_name(level))
        for size, level in role.slice_layers
    ]
    return RoleDocument.of(
        role,
        replicas=ReplicaRange.of(role) if role.elastic else role.min,
        requests=_amounts(role.requests),
        topology=RoleTopology.model_construct(
            required=_level_name(role.required, cluster),
            preferred=_level_name(role.preferred, cluster),
        ),
        slice=slices[0] if slices else None,
        outer_slices=tuple(slices[1:]),
        node_selector=dict(role.node_selector),
        node_affinity=tuple(_all(NodeExpressionDocument, term) for term in role.node_affinity),
        tolerations=_all(TolerationDocument, role.tolerations),
    )


def _policy(policy: Policy, *, now: int | None) -> PolicyDocument:
    """The policy with mix and objectives as they are used. ``now``: of ``reference_time``."""
    after, solve, disruption = policy.starvation_after_s, policy.solve, policy.disruption
    return PolicyDocument.model_construct(
        api_version=API_VERSION,
        kind="Policy",
        metadata=PolicyMetadata.of(policy),
        spec=PolicySpec.of(
            policy,
            objectives=_all(ObjectiveDocument, policy.objectives),
            mix=dict(policy.mix),
            node_selector=dict(policy.node_selector),
            solve=SolveDocument.of(solve, time_limit=solve.time_limit_s),
            moves=MovesDocument.of(policy.moves or Moves()),
            disruption=DisruptionDocument.of(disruption, cap=disruption.cap_s),
            starvation=None if after is None else StarvationDocument.model_construct(after=after),
            now=now,
            kubernetes=_kubernetes(policy.kubernetes),
        ),
    )


def _kubernetes(policy: KubernetesPolicy) -> KubernetesDocument:
    nodes_of = {level: dict(domains) for level, domains in policy.level_domains}
    levels = policy.levels
    return KubernetesDocument.of(
        policy,
        levels=None
        if levels is None
        else tuple(PolicyLevel.of(level, domains=nodes_of.get(level.name)) for level in levels),
        server_models=tuple(
            ServerModelChoice.model_construct(node_selector=dict(selector), model=model)
            for selector, model in policy.server_models
        ),
    )
