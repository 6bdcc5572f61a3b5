"""Requests for a placement on the API server: read for applying, and answered.

They are read where the API is served and the account may; what a request stands for is read with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.apply.placement_requests import CLASS, LiveRequest
from models.apply.requests import AnswerRequest, LabelNode
from models.apply.terms import MANAGER
from models.units import time_text
from planner.cluster.pages import list_kind
from planner.cluster.transport import MERGE, ApiRequest, Transport, Tree, core, grouped
from planner.read.kube.dialect_registry import placement_requests
from planner.read.kube.dialects.base import PlacementRequest
from planner.read.kube.lookup import conditions, mapping, objects, text, texts, time_of
from planner.read.kube.records import Objects

GROUP, PLURAL = "autoscaling.x-k8s.io", "provisioningrequests"
READ = (f"{PLURAL}.{GROUP}", "podtemplates", "workloads.kueue.x-k8s.io")
"""Requests, and what they name."""

_REASON = "GangplanPlacement"
_SET = {
    "placed": {"Accepted": "True", "Provisioned": "True"},
    "waits": {"Accepted": "True", "Provisioned": "False"},
    "over": {"BookingExpired": "True"},
}
"""Conditions by the state that a request gets."""


@dataclass(slots=True)
class RequestLists:
    """``version``: the one that is served; empty if there is none, None before it was looked for.

    ``trees``: the requests of our class as last read, by uid.
    """

    wire: Transport
    version: str | None = None
    trees: dict[str, Tree] = field(default_factory=dict)

    def read(self) -> list[Tree]:
        """Lists of the requests of our class, and of what they name. Raises UnavailableError."""
        found = {} if self.version == "" else list_kind(self.wire, READ[0]) or {}
        self.version = (found.get("apiVersion") or self.version or "").rpartition("/")[2]
        listed = objects(found, "items")
        ours = [one for one in listed if text(one, "spec", "provisioningClassName") == CLASS]
        self.trees = {text(one, "metadata", "uid") or "": one for one in ours}
        if not ours:
            return []
        # of Workloads: what is not in their list has ended
        others = (list_kind(self.wire, one) for one in READ[1:])
        return [{**found, "items": ours}, *(one for one in others if one is not None)]

    def live(self, found: Objects) -> dict[str, LiveRequest]:
        """Every request by its uid. ``found``: the objects of these lists, and the pods."""
        made = ((one.object.uid, one) for one in placement_requests(found))
        return {uid: _live(uid, one, found) for uid, one in made if uid is not None}

    def answered(self, request: AnswerRequest, now: int, *, dry: bool) -> ApiRequest:
        """The write that sets the status. ``now``: seconds since the epoch."""
        seen, status = request.seen, mapping(self.trees.get(request.seen.uid), "status")
        old = texts(status, "provisioningClassDetails")
        body: Tree = {
            "metadata": {"uid": seen.uid, "resourceVersion": seen.version},
            "status": {
                "conditions": _conditions(objects(status, "conditions"), request, now),
                "provisioningClassDetails": {**dict.fromkeys(old), **request.details},
            },
        }
        about = {"namespace": seen.namespace, "name": seen.name, "sub": "status"}
        path = grouped(GROUP, self.version or "v1", PLURAL, **about)
        return ApiRequest("PATCH", path + _options(dry=dry), body, MERGE)


def labelled(request: LabelNode, node: Tree, *, dry: bool) -> ApiRequest:
    """The write that sets a label. ``node``: as last read."""
    labels = {request.key: request.value}
    body: Tree = {"metadata": {"uid": text(node, "metadata", "uid"), "labels": labels}}
    return ApiRequest("PATCH", core("nodes", name=request.node) + _options(dry=dry), body, MERGE)


def _options(*, dry: bool) -> str:
    return f"?fieldManager={MANAGER}&fieldValidation=Strict" + "&dryRun=All" * dry


def _live(uid: str, request: PlacementRequest, found: Objects) -> LiveRequest:
    tree = request.object.tree
    condition = next(iter(conditions(tree, "Provisioned")), {})
    pods = (found.named("", "Pod", *key) for key in request.members)
    unbound = [pod for pod in pods if pod and text(pod.tree, "spec", "nodeName") is None]
    unbound.sort(key=lambda pod: (pod.created or 0, pod.name))
    return LiveRequest(
        namespace=request.object.namespace,
        name=request.object.name,
        uid=uid,
        version=text(tree, "metadata", "resourceVersion") or "",
        state=request.state.value,
        nodes=tuple(sorted({node for one in request.nodes for node in one})),
        plan=request.plan if request.nodes else None,
        pods=len(request.members),
        missing=sum(map(len, request.missing)),
        admitted=request.admitted,
        pending=tuple(pod.name for pod in unbound),
        since=unbound[0].created if unbound else time_of(text(condition, "lastTransitionTime")),
        message=text(condition, "message") or "",
        gang=(request.object.namespace, request.stands_for[:3][-1][-1]),
    )


def _conditions(before: Sequence[Tree], request: AnswerRequest, now: int) -> list[Tree]:
    """All conditions with ours as they are to be; the time of one changes with its status."""
    kept = {text(one, "type"): one for one in before}
    for kind, status in _SET[request.state].items():
        old = kept.get(kind, {})
        same = old.get("status") == status
        kept[kind] = {
            "type": kind,
            "status": status,
            "reason": _REASON,
            "message": request.message,
            "lastTransitionTime": old.get("lastTransitionTime") if same else time_text(now),
        }
    return list(kept.values())
