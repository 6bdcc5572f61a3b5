"""An Instance as its JSON document: one entry per node, only the server models in use, all written out.

``planner.read.inputs.instance_from_document`` is the inverse: it gives the same Instance and digest.
Gangs and nodes are of few kinds: one of each kind is written with the document types, the others
from it. So equal parts may be one object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from models.documents.base import API_VERSION, Document, made
from models.documents.cluster import (
    ClusterDocument,
    ClusterMetadata,
    ClusterSpec,
    NodeDocument,
)
from models.documents.communication import Communication
from models.documents.gang import (
    LEVELS,
    GangDocument,
    GangMetadata,
    GangSpec,
    GangStatus,
    GangTopology,
    GroupDocument,
    GroupTopology,
    NearDocument,
    NextToDocument,
    ReplicaRange,
    RoleDocument,
    RoleTopology,
    SliceDocument,
    SpreadDocument,
)
from models.documents.policy import (
    LOST_RUNTIME,
    KubernetesDocument,
    MovesDocument,
    PolicyDocument,
    PolicyMetadata,
    PolicySpec,
    StarvationDocument,
)
from models.documents.queue import (
    AmountDocument,
    CellDocument,
    QueueDocument,
    QueueMetadata,
    QueueSpec,
)
from models.documents.server import NicDocument, ServerModelDocument
from models.hardware import ServerModel, bits
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, NextTo, NodeAffinity, Role, Spread, Together
from models.instance.instance import Instance
from models.instance.policy import Moves, Policy
from models.instance.queue import AMOUNTS, Amount, Queue
from models.units import duration_text, time_text

D = TypeVar("D", bound=Document)


def _shared_fields(kind: type, own: Sequence[str]) -> Callable[[Any], Hashable]:
    """Getter of the fields of a dataclass that are not its own."""
    return attrgetter(*(field.name for field in fields(kind) if field.name not in own))


def canonical_instance(instance: Instance) -> dict[str, Any]:
    """The ``instance`` of a plan."""
    cluster = instance.cluster
    gangs = _GangWriter(cluster)
    queues = {"queues": _queues(instance)} if instance.queues else {}
    what_if = {} if instance.what_if is None else {"whatIf": instance.what_if.to_json()}
    return {
        "cluster": _cluster(cluster),
        "gangs": [gangs.write(gang) for gang in instance.gangs],
        "policy": _policy(
            instance.policy, now=reference_time(instance), unit=instance.gpu_unit
        ).to_json(),
        **queues,
        **what_if,
    }


def reference_time(instance: Instance) -> int | None:
    """The time to write as ``now``: the policy's, else the one in force wherever ages decide anything."""
    policy = instance.policy
    decides = (
        policy.starvation_after_s is not None
        or policy.order == "shortest"
        or policy.disruption.weight == LOST_RUNTIME
        or policy.reservations is not None
        or policy.lists("suspect")
        or policy.min_run_time_s
        or any(queue.min_run_time_s for queue in instance.queues)
        or any(
            g.resize_after is not None or g.min_run_time_s is not None or g.evicted_at is not None
            for g in instance.gangs
        )
    )
    return instance.now if decides else policy.now


def server_model_document(model: ServerModel) -> ServerModelDocument:
    """A server model in full."""
    return ServerModelDocument.of(model, nics=_all(NicDocument, model.nics))


def _all(kind: type[D], sources: Iterable[object]) -> tuple[D, ...]:
    return tuple(kind.of(source) for source in sources)


def _queues(instance: Instance) -> list[dict[str, Any]]:
    cluster, queues = instance.cluster, instance.queues
    return [
        QueueDocument.model_construct(
            api_version=API_VERSION,
            kind="Queue",
            metadata=QueueMetadata.of(queue),
            spec=QueueSpec.of(
                queue,
                parent=None if queue.parent is None else queues[queue.parent].name,
                **{field: _amount(instance, getattr(queue, field)) for field in AMOUNTS},
                order="strict" if queue.strict else "bestEffort",
                cells=tuple(_cells(queue, cluster)),
            ),
        ).to_json()
        for queue in queues
    ]


def _cells(queue: Queue, cluster: Cluster) -> Iterator[CellDocument]:
    for cell in queue.cells:
        level = _level_name(cell.level, cluster)
        yield CellDocument.of(cell, level=level, domain=None, nodes=())
    for pin in queue.pins:
        level = _level_name(pin.level, cluster)
        yield CellDocument.model_construct(level=level, domain=pin.domain, nodes=pin.nodes)


def _amount(instance: Instance, amount: Amount) -> AmountDocument:
    return AmountDocument.model_construct(
        gpus=None if amount.gpus is None else instance.in_gpus(amount.gpus),
        models={model: instance.in_gpus(gpus) for model, gpus in amount.models},
    )


def _cluster(cluster: Cluster) -> dict[str, Any]:
    used = {node.model.name: node.model for node in cluster.nodes if node.model is not None}
    document = ClusterDocument.model_construct(
        api_version=API_VERSION,
        kind="Cluster",
        metadata=ClusterMetadata.of(cluster),
        spec=ClusterSpec.model_construct(
            levels=cluster.levels,
            server_models=tuple(server_model_document(used[name]) for name in sorted(used)),
            disruption_budgets=cluster.budgets,
        ),
    ).to_json()
    document["spec"]["nodes"] = _nodes(cluster)
    return document


def _nodes(cluster: Cluster) -> list[dict[str, Any]]:
    names = [level.name for level in cluster.levels]
    kinds: dict[Hashable, dict[str, Any]] = {}
    written = []
    for node in cluster.nodes:
        kind = (None if node.model is None else node.model.name, _node_kind(node))
        if kind not in kinds:
            kinds[kind] = _node(node).to_json()
        domains = zip(names, node.domains, strict=True)
        own = {
            "name": node.name,
            "domains": {name: value for name, value in domains if value is not None},
            "unhealthyGpus": list(bits(node.unhealthy & ~node.partitioned)),
            "labels": dict(node.labels),
        }
        written.append({**kinds[kind], **own})
    return written


_node_kind = _shared_fields(Node, own=("name", "model", "domains", "unhealthy", "labels"))


def _node(node: Node) -> NodeDocument:
    """A node without what is its own."""
    return NodeDocument.of(
        node,
        model=None if node.model is None else node.model.name,
        domains={},
        unhealthy_gpus=(),
        unknown_unhealthy=node.unknown_unhealthy - node.unknown_partitioned,
        unknown_partitioned=node.unknown_partitioned - node.unknown_shared,
        allocatable=node.stated,
        labels={},
        nics=None if node.nics is None else _all(NicDocument, node.nics),
    )


_OWN_TIMES = (
    ("spec", "submittedAt", "submitted_at", time_text),
    ("spec", "expectedDuration", "expected_duration_s", duration_text),
    ("spec", "minRunTime", "min_run_time_s", duration_text),
    ("spec", "resizeAfter", "resize_after", time_text),
    ("status", "startedAt", "started_at", time_text),
    ("status", "runsSince", "runs_since", time_text),
    ("status", "expectedLeft", "expected_left_s", duration_text),
    ("status", "lastCheckpoint", "last_checkpoint", time_text),
    ("status", "evictedAt", "evicted_at", time_text),
)
"""Optional times of a gang: (part and field of the document, attribute, its text)."""

_TIMES = tuple(attribute for _, _, attribute, _ in _OWN_TIMES)
_gang_times = attrgetter(*_TIMES)
_gang_kind = _shared_fields(Gang, own=("namespace", "name", "pods", "planned", *_TIMES))


class _GangWriter:
    """Writes gangs. Of one kind are gangs that differ only in names, times, pods and planned places."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = [node.name for node in cluster.nodes]
        self._kinds: dict[Hashable, dict[str, Any]] = {}
        self._affinities: dict[NodeAffinity, list[Any]] = {}

    def write(self, gang: Gang) -> dict[str, Any]:
        times = _gang_times(gang)
        kind = (_gang_kind(gang), *[time is None for time in times])
        if kind not in self._kinds:
            self._kinds[kind] = self._kind(gang)
        document = dict(self._kinds[kind])
        for part in ("metadata", "spec", "status"):
            document[part] = dict(document[part])
        document["metadata"].update(name=gang.name, namespace=gang.namespace)
        for (part, field, _, text), time in zip(_OWN_TIMES, times, strict=True):
            if time is not None:
                document[part][field] = text(time)
        document["status"]["pods"] = [self._pod(pod, gang) for pod in gang.pods]
        roles = gang.roles
        if gang.planned:
            document["status"]["planned"] = [
                {"role": roles[pod.role].name, "index": pod.index, "node": self._nodes[pod.node]}
                for pod in sorted(gang.planned)
            ]
        return document

    def _kind(self, gang: Gang) -> dict[str, Any]:
        document = gang_document(gang, self._cluster).to_json()
        terms = self._affinities
        for role, written in zip(gang.roles, document["spec"]["roles"], strict=True):
            if role.node_affinity:
                if (own := role.node_affinity) not in terms:
                    terms[own] = [[one.to_json() for one in term] for term in own]
                written["nodeAffinity"] = terms[own]
        return document

    def _pod(self, pod: ExistingPod, gang: Gang) -> dict[str, Any]:
        """As ``PodDocument`` has it, in its order."""
        own: dict[str, Any] = {"name": pod.name}
        if pod.uid is not None:
            own["uid"] = pod.uid
        own |= {"role": gang.roles[pod.role].name, "index": pod.index}
        if pod.node is not None:
            own["node"] = self._nodes[pod.node]
            own["gpus"] = None if pod.gpus is None else list(bits(pod.gpus))
        last = {"mode": pod.mode, "budgets": list(pod.budgets) or None, "rank": pod.rank}
        last |= {"gpuGroup": pod.gpu_group, "start": pod.start}
        return own | {name: value for name, value in last.items() if value is not None}


def gang_document(gang: Gang, cluster: Cluster) -> GangDocument:
    """A gang without its pods and planned places."""
    return GangDocument.model_construct(
        api_version=API_VERSION,
        kind="Gang",
        metadata=GangMetadata.of(gang),
        spec=GangSpec.of(
            gang,
            priority=gang.own_priority,
            topology=GangTopology.of(
                gang,
                order=gang.ordered,
                **{name: _level_name(getattr(gang, name), cluster) for name in LEVELS},
            ),
            roles=tuple(_role(role, cluster) for role in gang.roles),
            groups=tuple(_group(gang, one, cluster) for one in gang.together),
            near=None
            if gang.near is None
            else NearDocument.of(gang.near, level=cluster.level_name(gang.near.level)),
            communication=Communication.of(
                gang, model=None, speed="count" if gang.counts_speed else "ignore"
            ),
        ),
        status=GangStatus.of(gang, pods=(), planned=()),
    )


def _group(gang: Gang, group: Together, cluster: Cluster) -> GroupDocument:
    """A group that should share a domain; what others require is read as rules about pods."""
    return GroupDocument.model_construct(
        name=group.name,
        roles=tuple(gang.roles[number].name for number in group.roles),
        topology=GroupTopology.model_construct(preferred=cluster.level_name(group.level)),
    )


def _level_name(level: int | None, cluster: Cluster) -> str | None:
    return None if level is None else cluster.level_name(level)


def _role(role: Role, cluster: Cluster) -> RoleDocument:
    slices = [
        SliceDocument.model_construct(size=size, required=cluster.level_name(level))
        for size, level in role.slice_layers
    ]
    return RoleDocument.of(
        role,
        replicas=ReplicaRange.of(role) if role.elastic else role.min,
        topology=RoleTopology.model_construct(
            required=_level_name(role.required, cluster),
            preferred=_level_name(role.preferred, cluster),
        ),
        slice=slices[0] if slices else None,
        outer_slices=tuple(slices[1:]),
        # in its place, until the writer puts the affinity there that roles share
        node_affinity=((),) if role.node_affinity else (),
        anti_affinity=_rules(NextToDocument, role.anti_affinity, cluster),
        affinity=_rules(NextToDocument, role.affinity, cluster),
        spread=_rules(SpreadDocument, role.spread, cluster),
        gpu=None,  # read as a request of an instance
    )


def _rules(kind: type[D], rules: Iterable[NextTo | Spread], cluster: Cluster) -> tuple[D, ...]:
    return tuple(kind.of(rule, level=cluster.level_name(rule.level)) for rule in rules)


def _policy(policy: Policy, *, now: int | None, unit: int) -> PolicyDocument:
    """The policy with mix and objectives as they are used. ``now``: of ``reference_time``.

    ``unit``: in which GPUs are counted.
    """
    moves = policy.moves or Moves()
    if moves.max_gpus is not None:
        moves = replace(moves, max_gpus=moves.max_gpus // unit)
    after = policy.starvation_after_s
    return PolicyDocument.model_construct(
        api_version=API_VERSION,
        kind="Policy",
        metadata=PolicyMetadata.of(policy),
        spec=PolicySpec.of(
            policy,
            preset=None,
            moves=MovesDocument.of(moves),
            starvation=None if after is None else StarvationDocument.model_construct(after=after),
            now=now,
            kubernetes=made(KubernetesDocument, policy.kubernetes),
        ),
    )
