"""The number of pods of a controller, set through its scale, and which of them a ReplicaSet gives up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.apply.intents import MANAGER
from models.apply.plan_actions import Key, PodStop
from models.apply.requests import Conflict, Done, Event, Gone, NoAnswer, NotDone, Rejected, Scale
from planner.cluster.api_paths import core, grouped
from planner.cluster.transport import MERGE, Transport, Tree
from planner.cluster.writes import event_of, pod_request
from planner.read.kube.dialect_registry import scales
from planner.read.kube.lookup import mapping, objects, text, texts, whole

_MAX_OWNERS = 3
_MARK_TRIES = 3

COST = "controller.kubernetes.io/pod-deletion-cost"
GOES_FIRST = str(-(2**31))
"""The least cost that Kubernetes accepts."""


def scale(wire: Transport, request: Scale, pods: Mapping[Key, Tree], *, dry: bool = False) -> Event:
    """Set the scale unless another client went beyond what the plan saw. ``pods``: as last read.

    A ReplicaSet that shrinks removes the pods that are marked for that, after those that do not run; the
    others remove the highest indices.
    """
    resize, member = request.resize, pods.get(request.member, {})
    path = _owner(wire, member, request.member[0], resize.role)
    if path is None:
        return Rejected("its controller has no scale field for this role")
    reply = wire.send("GET", path + "/scale")
    if not reply.ok:
        found = event_of(reply, lambda _: None)
        return Rejected(found.message) if isinstance(found, Gone) else found
    now = whole(reply.body, "spec", "replicas") or 0
    if now == resize.after:
        return Done()
    # It may count more pods than the plan: those beyond the range, and those not created yet.
    shrinks = resize.after < resize.before
    if not (now > resize.after if shrinks else resize.before <= now < resize.after):
        return Rejected(f"its scale is {now:,}, the plan saw {resize.before:,}")
    marks = _Marks(wire, pods, dry=dry)
    if shrinks and _is_of_set(member):
        failure = marks.write(member, request.going)
        if failure is not None:
            return failure
    body: Tree = {
        "metadata": {"resourceVersion": text(reply.body, "metadata", "resourceVersion")},
        "spec": {"replicas": resize.after},
    }
    query = f"?fieldManager={MANAGER}" + "&dryRun=All" * dry
    reply = wire.send("PATCH", path + "/scale" + query, body, content_type=MERGE)
    event = event_of(reply, lambda _: None)
    if isinstance(event, Rejected):
        marks.take_back()
    return event


@dataclass(slots=True)
class _Marks:
    """The pods of a ReplicaSet that are to go first, marked by their deletion cost.

    ``written``: those marked here, with the cost that they had.
    """

    wire: Transport
    pods: Mapping[Key, Tree]
    dry: bool
    written: list[tuple[Key, str | None]] = field(default_factory=list)

    def write(self, member: Tree, going: Sequence[PodStop]) -> NotDone | None:
        """Mark these pods and no others of the set: a run that was cut off may have marked some."""
        owner, leaving = _controller(member), {stop.key for stop in going}
        namespace = text(member, "metadata", "namespace")
        own = [
            key for key in self.pods if key[0] == namespace and _controller(self.pods[key]) == owner
        ]
        for key in sorted(own):
            cost = texts(self.pods[key], "metadata", "annotations").get(COST)
            wanted = GOES_FIRST if key in leaving else None
            if (cost == GOES_FIRST) == (wanted is not None):
                continue
            event = self._set(key, wanted)
            if isinstance(event, Gone):
                continue
            if isinstance(event, NotDone):
                self.take_back()
                what = f"pod {key[1]} cannot be marked as the one to go: {event.message}"
                return Rejected(what) if isinstance(event, Rejected) else event
            if wanted is not None:
                self.written.append((key, cost))
        return None

    def take_back(self) -> None:
        """Give the marked pods their former cost; what fails does no harm before the next shrinking."""
        for key, cost in self.written:
            self._set(key, cost)

    def _set(self, key: Key, cost: str | None) -> Event:
        """Set the cost of the pod that was read; again if the server has a newer version of it."""
        metadata = mapping(self.pods[key], "metadata")
        event: Event = NoAnswer("")
        for _ in range(_MARK_TRIES):
            body: Tree = {
                "metadata": {
                    "uid": text(metadata, "uid"),
                    "resourceVersion": text(metadata, "resourceVersion"),
                    "annotations": {COST: cost},
                }
            }
            sent = pod_request("PATCH", *key, body, dry=self.dry)
            event = event_of(
                self.wire.send(sent.method, sent.path, sent.body, content_type=sent.content_type),
                lambda _: None,
            )
            if not isinstance(event, Conflict):
                break
            reply = self.wire.send("GET", core("pods", namespace=key[0], name=key[1]))
            found = mapping(reply.body, "metadata")
            if not reply.ok or found.get("uid") != metadata.get("uid"):
                return Gone("is gone") if reply.ok or reply.status == 404 else event
            metadata = found
        return event


def _controller(tree: Tree) -> str | None:
    """The uid of its controller."""
    owners = objects(tree, "metadata", "ownerReferences")
    return next((text(one, "uid") for one in owners if one.get("controller")), None)


def _is_of_set(tree: Tree) -> bool:
    """Whether a ReplicaSet made the pod, which removes pods in an order of its own."""
    owners = objects(tree, "metadata", "ownerReferences")
    return any(one.get("controller") and one.get("kind") == "ReplicaSet" for one in owners)


def _owner(wire: Transport, tree: Tree, namespace: str, role: str) -> str | None:
    """The path of the topmost controller with a scale."""
    found = None
    for _ in range(_MAX_OWNERS):
        owner = next(
            (one for one in objects(tree, "metadata", "ownerReferences") if one.get("controller")),
            {},
        )
        group, _, version = (text(owner, "apiVersion") or "").rpartition("/")
        kind, name = text(owner, "kind") or "", text(owner, "name") or ""
        scale = scales().get((group, kind))
        if scale is None or (scale.role or role).lower() != role.lower():
            return None if owner else found  # a controller above it would revert the number
        found = grouped(group, version, scale.plural, namespace=namespace, name=name)
        reply = wire.send("GET", found)
        if not reply.ok or mapping(reply.body, "metadata").get("uid") != owner.get("uid"):
            return None
        tree = reply.body
    return found
