"""Names by which GPUs are asked for, where not every node offers its own by all of them.

Promises: a pod is kept to nodes that offer GPUs by its name, through labels that nodes and roles
are given in the plan alone. Called by ``assembling``, the trees, and ``planner.read.cluster_merge``.

NVLink between servers needs an IMEX channel, a ComputeDomain claim: which gangs do without.

Promises: the Policy says what that means for the plan, and the user is told.
Called by ``assembling`` and ``trees.gangs``.

Slice layers of a role: which of them ask anything, and whether they stand inside one another.

Promises: pure arithmetic on (size, depth) pairs; depth counts levels from the widest, ``node`` last.
Called by ``trees.gangs``.

Gangs as compact Gang documents: level names, roles, pods that stand, why one is held.

Promises: every pod that holds room stays in its gang's document or is counted as lost room; a
document that its own rules refuse becomes a remark. Called by ``assembling``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from models.documents.base import API_VERSION
from models.gang import Toleration
from models.policy import KubernetesPolicy
from models.units import time_text
from planner.read.findings import Remarks
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import LONGEST, SHORT, clean, distinct, is_name, is_object_name
from planner.read.kube.pods.constraints import IGNORABLE
from planner.read.kube.records import Expression, KubeGang, KubeNode, KubePod, KubeRole, LevelAsk
from planner.read.sources import printable

_PREFIX = "offers.gangplan.dev/"
_MAKERS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel", "habana": "intel", "gaudi": "intel"}
"""Words in names of resources and drivers, and whose GPUs they mean."""


def telling(nodes: Sequence[KubeNode], gangs: Sequence[KubeGang]) -> frozenset[str]:
    """Names by which gangs ask for GPUs and some node with GPUs does not offer its own."""
    asked = {pod.gpu_resource for gang in gangs for pod in gang.pods() if pod.gpus}
    offered = {node.asked_by for node in nodes if node.gpus}
    return frozenset(
        name for name in asked if name is not None and not all(name in one for one in offered)
    )


def label(name: str) -> str:
    """The label of nodes whose GPUs are asked for by this name."""
    return _PREFIX + clean(name.replace("/", "-"), SHORT)


def labels(names: Collection[str], told: Collection[str]) -> dict[str, str]:
    """What a node is labelled with that offers its GPUs by these names."""
    return {label(name): "true" for name in names if name in told}


def imagined(vendor: str, told: Collection[str]) -> dict[str, str]:
    """What a node nobody recorded is labelled with: its GPUs go by all names its maker may have."""
    maker = vendor.lower()
    known = maker in _MAKERS.values()
    names = []
    for name in sorted(told):
        makers = {of for word, of in _MAKERS.items() if word in name}
        if not known or not makers or maker in makers:
            names.append(name)
    return labels(names, told)


def unclaimed(gang: KubeGang) -> bool:
    """Whether several pods of the gang have GPUs and not all of them hold a claim."""
    speaking = [pod for pod in gang.pods() if pod.gpus and pod.finished is None]
    return len(speaking) > 1 and not all(pod.fabric for pod in speaking)


def network_only(gang: KubeGang, policy: KubernetesPolicy) -> bool:
    """Whether NVLink between servers counts for nothing in the gang's bandwidth."""
    return policy.nvlink_across_nodes == "claimed" and unclaimed(gang)


def warn_of_fabrics(
    gangs: Sequence[KubeGang], levels: Levels, policy: KubernetesPolicy, remarks: Remarks
) -> None:
    """Name the gangs without claims, where there is NVLink between servers at all."""
    if not any(level.nvlink for level in levels.levels):
        return
    for gang in gangs:
        if not unclaimed(gang):
            continue
        if network_only(gang, policy):
            remarks.add(
                gang.subject,
                "holds no ComputeDomain claim; the plan counts the network between its servers, "
                "and no NVLink",
                "nvlinkAcrossNodes: assumed in the Policy counts NVLink all the same",
            )
        else:
            remarks.add(
                gang.subject,
                "holds no ComputeDomain claim; the plan counts NVLink between servers all the same",
                "without the claim its pods reach each other over the network only; "
                "nvlinkAcrossNodes: claimed in the Policy counts that",
            )


Layer = tuple[int, int]


def nested_layers(layers: Sequence[Layer]) -> list[Layer]:
    """The layers without those that others imply, finest first.

    Pods that share a domain share every wider one; so a layer of larger slices at the same or a
    narrower level says all that one of smaller slices says.
    """
    kept: list[Layer] = []
    for size, depth in sorted(set(layers), key=lambda layer: (layer[0], -layer[1])):
        if kept and kept[-1][0] == size:
            continue  # the same slices at a wider level
        while kept and depth >= kept[-1][1]:
            kept.pop()
        kept.append((size, depth))
    return kept


def nest(layers: Sequence[Layer]) -> bool:
    """Whether every slice of a layer is cut from one slice of the next; finest first."""
    return all(outer[0] % inner[0] == 0 for inner, outer in pairwise(layers))


Json = dict[str, Any]

UNSUPPORTED = "Unsupported"
INCOMPLETE = "Incomplete"

ACK_SCHEDULE = "ack.node.gpu.schedule"
"""ACK's node label; here also a taint on nodes that refuse GPU pods without ACK's mark."""


@dataclass(slots=True)
class GangTrees:
    """Turns gangs into documents.

    ``nodes``: names of the nodes of the cluster. ``telling``: names by which GPUs are asked for, but
    not on every node: their roles must be kept to nodes that have them. ``marked_only``: ACK's
    topology nodes refuse GPU pods that are not marked.
    """

    levels: Levels
    nodes: Collection[str]
    remarks: Remarks
    policy: KubernetesPolicy = field(default_factory=KubernetesPolicy)
    telling: Collection[str] = ()
    marked_only: bool = False
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    pod_names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    uids: set[str] = field(default_factory=set)

    def tree(self, gang: KubeGang) -> Json:
        """The document of a gang."""
        namespace = clean(gang.namespace or "default")
        name = distinct(clean(gang.name), self.names[namespace])
        if name != gang.name:
            self.remarks.add(gang.subject, f"is called {name} in the plan")
        spec: Json = {
            "priority": gang.priority,
            "preemptible": gang.preemptible,
            "movable": gang.movable,
            "topology": self._topology(gang, gang.required, gang.preferred),
            "roles": [],
        }
        if gang.queue is not None and is_name(gang.queue):
            spec["queue"] = gang.queue
        _set_time(spec, "submittedAt", gang.submitted_at)
        _set_time(spec, "resizeAfter", gang.resize_after)
        if gang.kind == "Pod":
            spec["communication"] = {"pattern": "none"}
        elif network_only(gang, self.policy):
            spec["communication"] = {"nvlinkAcrossNodes": False}
        status: Json = {"pods": []}
        _set_time(status, "startedAt", gang.started_at)
        _set_time(status, "lastCheckpoint", gang.last_checkpoint)
        role_names: set[str] = set()
        for role in gang.roles:
            role_name = distinct(clean(role.name, SHORT), role_names, SHORT)
            spec["roles"].append(self._role(gang, role, role_name))
            gpus = spec["roles"][-1]["gpus"]
            status["pods"] += self._pods(namespace, role, role_name, gpus)
        if (held := self._hold(gang)) is not None:
            status["hold"] = held
        metadata = {"name": name, "namespace": namespace}
        return {
            "apiVersion": API_VERSION,
            "kind": "Gang",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }

    def _topology(
        self, gang: KubeGang, required: LevelAsk | None, preferred: LevelAsk | None
    ) -> Json:
        found: Json = {}
        for name, ask in (("required", required), ("preferred", preferred)):
            level = None if ask is None else self.levels.resolve(ask)
            if level is not None:
                found[name] = level
            elif ask is not None and name == "preferred":
                what = f"prefers level {ask}, which no node has; it is not preferred any more"
                self.remarks.add(gang.subject, what)
        return found

    def _role(self, gang: KubeGang, role: KubeRole, name: str) -> Json:
        model = _model_pod(role)
        if model is None:  # nothing of it exists yet: the gang is held until something does
            return {"name": name, "replicas": max(1, role.size), "gpus": 0}
        requests, differ = _requests(role)
        if differ:
            what = "pods of one role ask for different amounts; the largest counts for all"
            self.remarks.add(gang.subject, what)
        tree: Json = {
            "name": name,
            "replicas": max(1, role.size),
            "gpus": model.gpus,
            "requests": requests,
            "topology": self._topology(gang, role.required, role.preferred),
            "nodeSelector": dict(model.selector),
            "tolerations": [_toleration(one) for one in model.tolerations],
        }
        if role.first_index:
            tree["firstIndex"] = role.first_index
        if model.affinity:
            tree["nodeAffinity"] = [[_expression(one) for one in term] for term in model.affinity]
        asked = model.gpu_resource
        if asked is not None and asked in self.telling and model.gpus:
            tree["nodeSelector"][label(asked)] = "true"
        if self.marked_only and (not model.gpus or model.topology_scheduled):
            tree["tolerations"].append({"key": ACK_SCHEDULE, "operator": "Exists"})
        if (layers := self._layers(role)) and nest(layers):
            finest, *outer = [
                {"size": size, "required": self.levels.name(depth)} for size, depth in layers
            ]
            tree["slice"] = finest
            tree |= {"outerSlices": outer} if outer else {}
        return tree

    def _layers(self, role: KubeRole) -> list[tuple[int, int]]:
        """(size, depth of its level) of every slice layer that asks something, finest first."""
        found = []
        for ask in role.slices:
            level = self.levels.resolve(ask.level)
            if ask.size > 0 and level is not None:
                found.append((ask.size, self.levels.depth(level)))
        return nested_layers(found)

    def _pods(self, namespace: str, role: KubeRole, role_name: str, gpus: int) -> Iterator[Json]:
        for index, pod in role.members:
            name = distinct(clean(pod.name), self.pod_names[namespace])
            tree: Json = {"name": name, "role": role_name, "index": index}
            uid = pod.object.uid
            if uid is not None and is_name(uid, LONGEST):
                if uid in self.uids:
                    self.remarks.add(pod.subject, "has the uid of another pod; it is left out")
                else:
                    self.uids.add(uid)
                    tree["uid"] = uid
            if pod.node is not None and pod.node in self.nodes and pod.finished is None:
                tree["node"] = pod.node
                known = pod.indices is not None and len(pod.indices) == gpus
                tree["gpus"] = list(pod.indices or ()) if known else None
            elif pod.mode is not None and pod.ours:
                tree["mode"] = pod.mode
            yield tree

    def _hold(self, gang: KubeGang) -> Json | None:
        """Why the gang cannot be started by us, if it cannot."""
        problems = list(dict.fromkeys((*gang.problems, *self._problems(gang))))
        if problems:
            return {
                "code": UNSUPPORTED,
                "message": _bounded("; ".join(problems) + _way_out(problems)),
            }
        if gang.missing is not None:
            return {"code": INCOMPLETE, "message": _bounded(gang.missing)}
        return None

    def _problems(self, gang: KubeGang) -> Iterator[str]:
        asks = [gang.required, *(role.required for role in gang.roles)]
        asks += [piece.level for role in gang.roles for piece in role.slices]
        for ask in asks:
            if ask is not None and self.levels.resolve(ask) is None:
                yield f"it requires level {ask}, which this cluster does not have"
        for role in gang.roles:
            waiting = [pod for _, pod in role.members if pod.ours]
            for pod in waiting:
                yield from pod.unsupported
                if not is_object_name(pod.name):
                    yield "a pod with a name that no API server gives, so nothing can be sent to it"
            if len({_where(pod) for pod in waiting}) > 1:
                yield f"pods of role {role.name} differ in the nodes they may use"
            if not nest(self._layers(role)):
                yield f"the slice layers of role {role.name} do not stand inside one another"


def asks(gangs: Collection[KubeGang]) -> tuple[LevelAsk, ...]:
    """Every level that some gang names, once, in order of first mention."""
    found: dict[LevelAsk, None] = {}
    for gang in gangs:
        named = [gang.required, gang.preferred]
        for role in gang.roles:
            named += [role.required, role.preferred, *(piece.level for piece in role.slices)]
        found.update((ask, None) for ask in named if ask is not None)
    return tuple(found)


def _model_pod(role: KubeRole) -> KubePod | None:
    """The pod that speaks for its role: one that waits for us, else one that is not finished."""
    pods = sorted(
        (pod for _, pod in role.members), key=lambda pod: (not pod.ours, bool(pod.finished))
    )
    return pods[0] if pods else None


def _requests(role: KubeRole) -> tuple[Json, bool]:
    """The largest request of its unfinished pods a resource, and whether they differ."""
    pods = [pod for _, pod in role.members if pod.finished is None] or [role.members[0][1]]
    first = pods[0].requests
    if all(pod.requests == first for pod in pods):
        return amounts(first), False
    largest: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.requests.items():
            largest[resource] = max(amount, largest.get(resource, 0))
    return amounts(largest), True


def amounts(units: Mapping[str, int]) -> Json:
    """Amounts as quantities: cpu is kept in millicores."""
    return {
        resource: f"{units[resource]}m" if resource == "cpu" else units[resource]
        for resource in sorted(units)
    }


def _where(pod: KubePod) -> tuple[object, ...]:
    return (tuple(sorted(pod.selector.items())), pod.affinity, frozenset(pod.tolerations))


def _toleration(one: Toleration) -> Json:
    fields = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in fields.items() if value}


def _expression(one: Expression) -> Json:
    tree: Json = {"key": one.key, "operator": one.operator}
    if one.values:
        tree["values"] = list(one.values)
    if one.field:
        tree["field"] = True
    return tree


def _set_time(tree: Json, name: str, seconds: int | None) -> None:
    if seconds is not None:
        tree[name] = time_text(seconds)


def _way_out(problems: Sequence[str]) -> str:
    """How a Policy gets round these problems, if it can get round all of them."""
    names = [IGNORABLE[words] for words in problems if words in IGNORABLE]
    if len(names) < len(problems):
        return ""
    return f"; a Policy with kubernetes.ignore: [{', '.join(names)}] plans it all the same"


def _bounded(message: str) -> str:
    """Fit to stand in a document: what tenants wrote into it escaped and not too long."""
    message = printable(message)
    return message if len(message) <= 1000 else message[:997] + "..."
