"""A plan as the Kubernetes objects that applying it sends: patches and Evictions, for review.

The same plan gives the same text.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from models.apply.intents import Intent
from models.apply.plan_actions import (
    GangActions,
    InapplicablePlanError,
    PlanActions,
    PodStart,
    PodStop,
    actions_of,
)
from models.documents.cluster import HOSTNAME_LABEL, NodeDocument
from models.documents.plan import PlanDocument
from models.units import plural
from planner.cluster.backends.registry import backend_of
from planner.show.table import wrapped
from planner.show.text import yaml_text
from planner.untrusted_text import document_safe, json_safe, safe

Json = dict[str, Any]

UNKNOWN = "-"
"""Replaces a uid that the plan does not know."""

_PATCH, _EVICTION = "patch", "eviction"


@dataclass(frozen=True, slots=True)
class Item:
    """One object. ``path``: of its file in the folder. ``command``: what sends it, run in the folder.

    ``command`` is empty without a uid: it might reach another pod.
    """

    kind: str
    path: str
    command: str
    manifest: Json


@dataclass(frozen=True, slots=True)
class GangItems:
    """What a plan sends for one gang. ``remarks``: steps that no object represents, one sentence each."""

    gang: str
    decision: str
    items: tuple[Item, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendering:
    """``known``: whether the plan knows its cluster and the uids of its pods. ``note``: on GPUs.

    Independent of when the plan was made: plans with the same content render alike.
    """

    plan: str
    cluster: str
    known: bool
    note: str
    gangs: tuple[GangItems, ...]

    @property
    def items(self) -> list[Item]:
        return [item for gang in self.gangs for item in gang.items]

    @property
    def started(self) -> int:
        """Pods that are patched."""
        return sum(item.kind == _PATCH for item in self.items)

    @property
    def evicted(self) -> int:
        return sum(item.kind == _EVICTION for item in self.items)


UNPARTITIONED = "left out: GPUs have to be partitioned first, as `gangplan show` says"


def rendering(plan: PlanDocument) -> Rendering:
    """Everything a verified plan sends, gangs by namespace and name."""
    try:
        known, orders = True, actions_of(plan)
    except InapplicablePlanError:
        known, orders = False, actions_of(plan, unknown_uid=UNKNOWN)
    hosts = _hosts(plan.instance.cluster.spec.nodes)
    gangs = tuple(_gang(gang, orders, hosts, known=known) for gang in orders.gangs)
    gangs += tuple(
        GangItems("/".join(key), "place", (), (UNPARTITIONED,)) for key in orders.unpartitioned
    )
    cluster = "" if orders.cluster == UNKNOWN else orders.cluster
    note = backend_of(orders.backend).note()
    return Rendering(orders.plan, cluster, known, note, gangs)


def _hosts(nodes: Iterable[NodeDocument]) -> dict[str, str | None]:
    """The hostname label of every node where no other node has it; None for the others."""
    names = {node.name: node.labels.get(HOSTNAME_LABEL, node.name) for node in nodes}
    counts = Counter(names.values())
    return {name: host if counts[host] == 1 else None for name, host in names.items()}


def _gang(
    gang: GangActions, orders: PlanActions, hosts: Mapping[str, str | None], *, known: bool
) -> GangItems:
    title = f"{gang.namespace}/{gang.name}"
    going = {stop.uid for stop in gang.stops if stop.uid != UNKNOWN}
    later = [pod for pod in gang.starts if not pod.uid or pod.uid in going]
    now = [pod for pod in gang.starts if pod.uid and pod.uid not in going]
    items: list[Item] = [_evicted(gang, stop) for stop in gang.stops if known]
    remarks = [f"evict {stop.namespace}/{stop.name}" for stop in gang.stops if not known]
    items += [_started(gang, pod, orders, hosts.get(pod.node), size=len(now)) for pod in now]
    remarks += [
        f"role {one.role}: {one.before} to {one.after} pods, by its controller's scale field"
        for one in gang.resizes
    ]
    remarks += [f"pod {pod.name}, once its controller has made it: {_place(pod)}" for pod in later]
    return GangItems(title, gang.decision, tuple(items), tuple(remarks))


def _place(pod: PodStart) -> str:
    gpus = "" if not pod.gpus else f", GPUs {','.join(map(str, pod.gpus))}"
    rank = "" if pod.rank is None else f", rank {pod.rank}"
    return f"node {pod.node}{gpus}{rank}"


def _started(
    gang: GangActions, pod: PodStart, orders: PlanActions, host: str | None, *, size: int
) -> Item:
    intent = Intent(
        orders.plan, gang.name, size, pod.node, pod.gpus, rank=pod.rank, terms=pod.terms
    )
    metadata: Json = {
        "name": pod.name,
        "namespace": pod.namespace,
        **({} if pod.uid == UNKNOWN else {"uid": pod.uid}),
        "labels": intent.labels(),
        "annotations": dict(sorted(intent.annotations().items())),
    }
    path = _path(gang, pod, _PATCH)
    spec = {"schedulingGates": [{"name": orders.gate, "$patch": "delete"}], **_pin(pod, host)}
    words = ["kubectl", "patch", "pod", pod.name, "-n", pod.namespace]
    words += ["--type=strategic", "--patch-file", path]
    command = "" if pod.uid == UNKNOWN else shlex.join(words)
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return Item(_PATCH, path, command, manifest)


def _pin(pod: PodStart, host: str | None) -> Json:
    """A selector by hostname if only one node has it, else affinity by the node's name."""
    if host is not None:
        return {"nodeSelector": {HOSTNAME_LABEL: host}}
    field = {"key": "metadata.name", "operator": "In", "values": [pod.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": required}}


def _evicted(gang: GangActions, stop: PodStop) -> Item:
    path = _path(gang, stop, _EVICTION)
    manifest: Json = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": stop.name, "namespace": stop.namespace},
        "deleteOptions": {"preconditions": {"uid": stop.uid}},
    }
    url = f"/api/v1/namespaces/{stop.namespace}/pods/{stop.name}/{_EVICTION}"
    # The only command that keeps the uid.
    command = shlex.join(["kubectl", "create", "--raw", url, "-f", path])
    return Item(_EVICTION, path, command, manifest)


def _path(gang: GangActions, pod: PodStart | PodStop, kind: str) -> str:
    """No suffix of a manifest: tools that sync a folder must not send these.

    File systems hold 255 bytes a name, which a pod's name of 253 and a suffix exceed; no name has a ``~``.
    """
    name = pod.name
    if len(name) > MAX_FILE_NAME:
        name = f"{name[:MAX_FILE_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{gang.namespace}/{gang.name}/{name}.{kind}"


MAX_FILE_NAME = 200
"""Most characters of a pod's name that the name of its file repeats."""

INDEX = "RENDERED"
"""File that lists the others, and marks the folder as a rendering."""

_WIDTH = 78
"""Width of a comment line, which with its sign fits 80 columns."""

_API_VERSION = "gangplan.dev/v1alpha1"


def heading(found: Rendering) -> list[str]:
    """What these objects are for, and how not to use them."""
    lines = [
        f"Plan {found.plan}: {counted(found)}.",
        f"Cluster: {safe(found.cluster) or 'not known'}.",
        "",
        "For review: the objects that `gangplan apply` sends, in a fixed order; the",
        "same plan gives the same bytes. Commit them, read the difference, then run",
        "`gangplan apply PLAN`. Never `kubectl apply` or `kubectl create -f` them, nor",
        "let Argo CD or Flux sync them: a patch starts one pod of a gang. By hand, one",
        "at a time: the command of each, in a folder of `gangplan render --to DIR`;",
        "nothing then checks the lock, the room, or that the whole gang starts.",
    ]
    if not found.known:
        lines.append("This plan knows no uids of cluster and pods: not to be applied.")
    return [*lines, "", *wrapped(f"GPUs: {found.note}.", _WIDTH)]


def counted(found: Rendering) -> str:
    """Number of pods that start and are evicted."""
    evicted = f", {plural(found.evicted, 'pod')} to evict" if found.evicted else ""
    return f"{plural(found.started, 'pod')} to start{evicted}"


def yaml_stream(found: Rendering) -> str:
    """One document for each object, with the command that sends it in a comment."""
    parts = [_comment(heading(found))]
    for gang in found.gangs:
        title = f"{gang.gang}: {gang.decision}"
        parts.append(_comment(["", title, *(f"- {safe(remark)}" for remark in gang.remarks)]))
        for item in gang.items:
            parts += ["---\n", _comment([_command(item)]), yaml_text(item.manifest)]
    return "".join(parts)


def json_document(found: Rendering) -> str:
    """One document of our own kind, which ``kubectl`` rejects."""
    document: dict[str, Any] = {
        "apiVersion": _API_VERSION,
        "kind": "Rendering",
        "metadata": {"name": found.plan, "cluster": found.cluster or None},
        "use": " ".join(line for line in heading(found) if line),
        "gangs": [
            {
                "gang": gang.gang,
                "decision": gang.decision,
                "remarks": list(gang.remarks),
                "objects": [
                    {"path": item.path, "command": item.command or None, "manifest": item.manifest}
                    for item in gang.items
                ],
            }
            for gang in found.gangs
        ],
    }
    return json_safe(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def files(found: Rendering) -> dict[str, str]:
    """Text by path; INDEX last."""
    written = {}
    for item in found.items:  # YAML if kubectl parses it, JSON if it is sent unchanged
        text = json.dumps(item.manifest, indent=2, ensure_ascii=False) + "\n"
        sent = text if document_safe(text) else json_safe(text)
        written[item.path] = yaml_text(item.manifest) if item.kind == _PATCH else sent
    lines = [_comment(heading(found))]
    for gang in found.gangs:
        lines.append(_comment(["", f"{gang.gang}: {gang.decision}"]))
        lines.append(_comment([f"- {safe(remark)}" for remark in gang.remarks]))
        lines += [f"{item.path}\t{_command(item)}\n" for item in gang.items]
    return {**written, INDEX: "".join(lines)}


def listed(index: str) -> list[str]:
    """Paths that an INDEX lists."""
    return [
        line.partition("\t")[0] for line in index.splitlines() if line and not line.startswith("#")
    ]


def _command(item: Item) -> str:
    return item.command or "do not send: the plan does not know the uid of this pod"


def _comment(lines: list[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
