"""What a plan orders: per gang the pods to start and to stop, and the sizes to change.

Promises: pure; read from the plan document alone; a plan without the identity of its cluster, or of
a pod, cannot be ordered. Called by ``planner.cluster`` and the machine in this package.

From the plan document to what it orders: who starts where, who has to go, what nodes must be like.

Promises: pure; reads a plan that was verified; what cannot be applied raises CannotOrder.
Called by ``planner.pipelines.apply_steps`` and the verbs that look at the live cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from models.policy import KubernetesPolicy
from models.units import epoch_seconds, quantity, requested, shown

Key = tuple[str, str]
"""(namespace, name) of a pod or a gang."""


@dataclass(frozen=True, slots=True)
class PodOrder:
    """A pod to start on ``node``. ``gpus``: indices, ascending; None where the node decides.

    ``gpu_count``: whole GPUs it asks for. ``requests``: other resources (cpu in millicores, others in
    whole units), sorted. ``mode``: how it can be started, as the plan's input says: gate or binding.
    """

    namespace: str
    name: str
    uid: str
    role: str
    index: int
    node: str
    gpus: tuple[int, ...] | None
    gpu_count: int
    requests: tuple[tuple[str, int], ...] = ()
    mode: str | None = None

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class PodStop:
    """A standing pod that has to go: its gang is stopped, shrinks or moves."""

    namespace: str
    name: str
    uid: str
    role: str
    index: int
    node: str
    gpu_count: int

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Resize:
    """A role whose number of pods the plan changes, from ``before`` to ``after``."""

    role: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class GangOrder:
    """What the plan does with one gang.

    ``decision``: place, complete, move, resize or preempt (keep and wait order nothing).
    ``starts``: pods to start together, by (role, index); ``stops``: pods to evict before.
    ``weight``: w(gang) of the contract. ``submitted_at``: seconds since the epoch, None if unknown.
    ``members``: (role, pod) of one standing pod a role that is resized: its controller has the scale.
    """

    namespace: str
    name: str
    decision: str
    priority: int
    weight: int
    submitted_at: int | None = None
    starts: tuple[PodOrder, ...] = ()
    stops: tuple[PodStop, ...] = ()
    resizes: tuple[Resize, ...] = ()
    members: tuple[tuple[str, Key], ...] = ()

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class NodeAssumptions:
    """What the plan took for granted of a node it starts pods on.

    ``domains``: (level label, value) of the topology levels that have a label. ``labels``: the labels
    that selectors of its pods ask for; ``absent``: those they ask about and it did not have.
    ``taints``: (key, value, effect) that were there. ``gpus``: healthy.
    """

    name: str
    gpus: int
    domains: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything a plan orders. ``cluster``: uid of the namespace kube-system. Sorted by gang key.

    ``created_at``: RFC 3339 UTC, of the plan. ``gate``, ``scheduler``, ``backend``: of its Policy.
    """

    plan: str
    cluster: str
    created_at: str
    gate: str
    scheduler: str
    backend: str
    gangs: tuple[GangOrder, ...]
    nodes: tuple[NodeAssumptions, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods to start or stop, sorted."""
        return tuple(sorted({gang.namespace for gang in self.gangs if gang.starts or gang.stops}))


Json = Mapping[str, Any]
Slot = tuple[str, int]
"""(role, index) of a pod in its gang."""

_OWN_LABELS = "offers.gangplan.dev/"
"""Labels that nodes have in plans alone."""

_BACKEND = "annotation"
_DEFAULTS = KubernetesPolicy()


class CannotOrder(ValueError):  # noqa: N818  # it is raised and read as a verb
    """A plan that cannot be applied: what is missing, and what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def plan_id(document: Json) -> str:
    """``gp-`` and 20 hex digits of sha256 over the plan's two digests: a valid label value."""
    digests = document["status"]["digests"]
    text = f"{digests['instance']}\n{digests['spec']}"
    return f"gp-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def orders_of(document: Json) -> Orders:
    """What the plan orders. Raises CannotOrder without the identity of its cluster or of a pod."""
    instance = document["instance"]
    cluster = instance["cluster"]["metadata"].get("uid")
    if not cluster:
        raise CannotOrder(
            "the plan does not say which cluster it is for",
            "plan from a snapshot, or from objects with the namespace kube-system",
        )
    gangs = {(g["metadata"]["namespace"], g["metadata"]["name"]): g for g in instance["gangs"]}
    ordered = []
    asked: dict[str, set[str]] = {}
    for stated in document["spec"]["gangs"]:
        key = (stated["namespace"], stated["name"])
        ordered.append(_gang(stated, gangs[key], key))
        roles = {role["name"]: role for role in gangs[key]["spec"]["roles"]}
        for pod in ordered[-1].starts:
            asked.setdefault(pod.node, set()).update(_labels_asked(roles[pod.role]))
    spec = instance["policy"]["spec"]
    kubernetes = spec.get("kubernetes") or {}
    for labels in asked.values():
        labels.update(spec.get("nodeSelector", {}))
    return Orders(
        plan=plan_id(document),
        cluster=cluster,
        created_at=document["metadata"]["createdAt"],
        gate=kubernetes.get("schedulingGate", _DEFAULTS.scheduling_gate),
        scheduler=kubernetes.get("schedulerName", _DEFAULTS.scheduler_name),
        backend=kubernetes.get("gpuBackend", _BACKEND),
        gangs=tuple(sorted((g for g in ordered if _does(g)), key=lambda gang: gang.key)),
        nodes=tuple(_relied(instance["cluster"]["spec"], asked)),
    )


def _does(gang: GangOrder) -> bool:
    return bool(gang.starts or gang.stops or gang.resizes)


def _gang(stated: Json, gang: Json, key: Key) -> GangOrder:
    decision = stated["decision"]
    spec = gang["spec"]
    roles = {role["name"]: role for role in spec["roles"]}
    here = {(pod["role"], pod["index"]): pod for pod in gang["status"]["pods"]}
    stands = {slot: pod for slot, pod in here.items() if pod.get("node") is not None}
    planned: dict[Slot, Json] = {}
    if decision not in ("keep", "wait"):
        planned = {(pod["role"], pod["index"]): pod for pod in stated["pods"]}
    else:
        stands = {}
    goes = [slot for slot, pod in stands.items() if not _stays(pod, planned.get(slot), decision)]
    comes = [slot for slot in planned if slot not in stands or slot in goes]
    before, after = _counts(stands), _counts(planned)
    resizes = tuple(
        Resize(name, before.get(name, 0), after.get(name, 0))
        for name in roles
        if decision == "resize" and before.get(name, 0) != after.get(name, 0)
    )
    members = {slot[0]: (key[0], stands[slot]["name"]) for slot in sorted(stands, reverse=True)}
    starts = (
        _start(planned[slot], here.get(slot), roles[slot[0]], key, decision) for slot in comes
    )
    submitted = spec.get("submittedAt")
    return GangOrder(
        namespace=key[0],
        name=key[1],
        decision=decision,
        priority=spec.get("priority", 0),
        weight=sum(_least(role) * role["gpus"] for role in spec["roles"]) or 1,
        submitted_at=None if submitted is None else epoch_seconds(submitted),
        starts=tuple(sorted((s for s in starts if s), key=lambda pod: (pod.role, pod.index))),
        stops=tuple(_stop(stands[slot], roles[slot[0]], key) for slot in sorted(goes)),
        resizes=resizes,
        members=tuple((one.role, members[one.role]) for one in resizes if one.role in members),
    )


def _stays(pod: Json, planned: Json | None, decision: str) -> bool:
    """Whether a standing pod is left where it is; a gang that moves restarts only what moves."""
    if planned is None or planned["node"] != pod["node"]:
        return False
    held, wanted = pod.get("gpus"), planned["gpus"]
    return decision != "move" or held is None or wanted is None or list(held) == list(wanted)


def _counts(slots: Iterable[Slot]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for role, _ in slots:
        counts[role] = counts.get(role, 0) + 1
    return counts


def _least(role: Json) -> int:
    replicas = role["replicas"]
    return int(replicas if isinstance(replicas, int) else replicas["min"])


def _start(planned: Json, pod: Json | None, role: Json, key: Key, decision: str) -> PodOrder | None:
    uid = planned.get("uid") or (pod or {}).get("uid")
    if uid is None and decision != "resize":
        raise CannotOrder(
            f"the plan starts the pod {shown(planned['name'])} of gang {shown('/'.join(key))}"
            " without knowing its uid",
            "plan from a snapshot of the cluster, in which all pods exist",
        )
    requests = role.get("requests", {})
    return PodOrder(
        namespace=key[0],
        name=planned["name"],
        uid=uid or "",
        role=planned["role"],
        index=planned["index"],
        node=planned["node"],
        gpus=None if planned["gpus"] is None else tuple(planned["gpus"]),
        gpu_count=role["gpus"],
        requests=tuple(sorted((n, requested(n, quantity(text))) for n, text in requests.items())),
        mode=(pod or {}).get("mode"),
    )


def _stop(pod: Json, role: Json, key: Key) -> PodStop:
    uid = pod.get("uid")
    if uid is None:
        raise CannotOrder(
            f"the plan stops the pod {shown(pod['name'])} of gang {shown('/'.join(key))}"
            " without knowing its uid",
            "plan from a snapshot of the cluster",
        )
    return PodStop(
        namespace=key[0],
        name=pod["name"],
        uid=uid,
        role=pod["role"],
        index=pod["index"],
        node=pod["node"],
        gpu_count=role["gpus"],
    )


def _labels_asked(role: Json) -> set[str]:
    """Keys of the labels that a role's selector and affinity look at."""
    keys = set(role.get("nodeSelector", {}))
    for term in role.get("nodeAffinity", ()):
        keys.update(one["key"] for one in term if not one.get("field"))
    return keys


def _relied(spec: Json, asked: Mapping[str, set[str]]) -> Iterable[NodeAssumptions]:
    labelled = {level["name"]: level["label"] for level in spec["levels"] if level.get("label")}
    models = {model["name"]: model["gpus"] for model in spec["serverModels"]}
    for node in spec["nodes"]:
        if node["name"] not in asked:
            continue
        labels, domains = node["labels"], node["domains"]
        wanted = {key for key in asked[node["name"]] if not key.startswith(_OWN_LABELS)}
        wanted -= {*labelled.values(), "kubernetes.io/hostname"}
        installed = models[node["model"]] if node.get("model") else 0
        yield NodeAssumptions(
            name=node["name"],
            gpus=installed - len(node["unhealthyGpus"]) - node["unknownUnhealthy"],
            domains=tuple(
                (label, domains[level]) for level, label in labelled.items() if level in domains
            ),
            labels=tuple(sorted((key, labels[key]) for key in wanted if key in labels)),
            taints=tuple(
                sorted(
                    (t["key"], t["value"], t["effect"])
                    for t in node["taints"]
                    if t["effect"] != "PreferNoSchedule"
                )
            ),
            absent=tuple(sorted(key for key in wanted if key not in labels)),
        )
