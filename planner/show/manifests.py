"""A plan as the Kubernetes objects that applying it sends: patches and Evictions, for review.

The same plan gives the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.apply.plan_actions import GangActions, PlanActions, PodStart, PodStop
from models.apply.records import PodPlace
from models.apply.terms import PLAN
from models.documents.cluster import HOSTNAME_LABEL, NodeDocument
from models.units import plural
from planner.show.table import wrapped
from planner.show.text import yaml_text
from planner.untrusted_text import safe

Json = dict[str, Any]

UNPARTITIONED = "GPUs have to be partitioned first; gangplan show lists them"

_REVIEW = (
    "For review: the objects that `gangplan apply` sends. The same plan gives the same bytes.",
    "Never `kubectl apply` them, nor let Argo CD or Flux sync them: each patch starts one pod.",
)

_WIDTH = 78
"""Width of a comment line, which with its sign fits 80 columns."""


@dataclass(frozen=True, slots=True)
class GangObjects:
    """What a plan sends for one gang. ``remarks``: steps that no object represents, one sentence each."""

    gang: str
    decision: str
    objects: tuple[Json, ...]
    remarks: tuple[str, ...] = ()


def objects(orders: PlanActions, nodes: Iterable[NodeDocument]) -> list[GangObjects]:
    """Everything the orders send, gangs by namespace and name. ``nodes``: of the plan's instance."""
    names = {node.name: node.labels.get(HOSTNAME_LABEL, node.name) for node in nodes}
    counts = Counter(names.values())
    hosts = {name: host for name, host in names.items() if counts[host] == 1}
    found = [_gang(gang, orders, hosts) for gang in orders.gangs]
    found += [
        GangObjects("/".join(key), "place", (), (UNPARTITIONED,)) for key in orders.unpartitioned
    ]
    return found


def yaml_stream(orders: PlanActions, gangs: Sequence[GangObjects], note: str) -> str:
    """A document for each object. ``note``: of the back end, on GPUs."""
    starts = sum(len(gang.starts) for gang in orders.gangs)
    evictions = sum(one["kind"] == "Eviction" for gang in gangs for one in gang.objects)
    pods = f"{plural(starts, 'pod')} to start, {plural(evictions, 'pod')} to evict"
    cluster = f"Cluster: {safe(orders.cluster)}."
    heading = (f"Plan {orders.plan}: {pods}.", cluster, *_REVIEW, f"GPUs: {note}.")
    parts = [_comment(line for sentence in heading for line in wrapped(sentence, _WIDTH))]
    for gang in gangs:
        title = f"{gang.gang}: {gang.decision}"
        parts.append(_comment(["", title, *(f"- {safe(remark)}" for remark in gang.remarks)]))
        parts += ["---\n" + yaml_text(one) for one in gang.objects]
    return "".join(parts)


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _gang(gang: GangActions, orders: PlanActions, hosts: Mapping[str, str]) -> GangObjects:
    # A gang that shrinks loses its pods to its controller.
    stops = () if gang.decision == "resize" else gang.stops
    old = {stop.uid for stop in stops}
    now = tuple(pod for pod in gang.starts if pod.uid and pod.uid not in old)
    found = [_eviction(stop) for stop in stops]
    found += [_patch(orders, pod, hosts.get(pod.node)) for pod in now]
    remarks = [
        f"role {one.role}: {one.before} to {one.after} pods, by its controller's scale field"
        for one in gang.resizes
    ]
    for pod in (one for one in gang.starts if not one.uid or one.uid in old):
        gpus = f", GPUs {','.join(map(str, pod.gpus))}" if pod.gpus else ""
        rank = "" if pod.rank is None else f", rank {pod.rank}"
        place = f"node {pod.node}{gpus}{rank}"
        remarks.append(f"pod {pod.name}, once its controller has made it: {place}")
    return GangObjects("/".join(gang.key), gang.decision, tuple(found), tuple(remarks))


def _patch(orders: PlanActions, pod: PodStart, host: str | None) -> Json:
    place = PodPlace(pod.name, pod.uid, pod.node, pod.gpus or None, pod.rank)
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": {PLAN: orders.plan},
        "annotations": dict(sorted(place.annotations().items())),
    }
    spec = {"schedulingGates": [{"name": orders.gate, "$patch": "delete"}], **_pin(pod, host)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pin(pod: PodStart, host: str | None) -> Json:
    """A selector by hostname if only one node has it, else affinity by the node's name."""
    if host is not None:
        return {"nodeSelector": {HOSTNAME_LABEL: host}}
    field = {"key": "metadata.name", "operator": "In", "values": [pod.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": required}}


def _eviction(stop: PodStop) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": stop.name, "namespace": stop.namespace},
        "deleteOptions": {"preconditions": {"uid": stop.uid}},
    }
