"""Bindings: ``pods/POD/binding`` and ``bindings``, which differ in what they check.

Promises: as measured: uid and resourceVersion count on pods/binding only (bindings drops the uid),
labels and annotations are copied unchecked, nothing is asked about the node. Called by ``fake_cluster``.
"""

from __future__ import annotations

from fake_asking import Asking
from fake_kinds import BINDING, NODE, POD, Place
from fake_objects import Objects, precondition
from fake_statuses import ApiError, conflict, success
from fake_trees import Json, Tree
from fake_unknown import refuse_unknown

_ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def bound(objects: Objects, place: Place, body: Json, asking: Asking) -> Tree:
    """POST to either. Raises ApiError."""
    if not isinstance(body, dict) or body.get("kind", "Binding") != "Binding":
        raise ApiError(400, "the object provided is unrecognized (must be of type Binding)")
    if asking.strict:
        refuse_unknown(BINDING, body)
    metadata = body.get("metadata") or {}
    namespace = objects.namespace(place, metadata)
    on_pod = place.kind == POD
    name = metadata.get("name") or ""
    if on_pod and name != place.name:
        raise ApiError(400, "name in URL does not match name in Binding object")
    target = body.get("target") or {}
    if target.get("kind", "") not in ("", "Node"):
        said = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise ApiError(500, said, reason="")
    if not target.get("name"):
        raise ApiError(500, "target.name: Required value", reason="")
    pod = objects.get(POD, namespace, name)
    _preconditions(pod, metadata, asking, on_pod=on_pod)
    why = _refusal(pod)
    if why:
        raise conflict(POD, name, f"pod {name} {why}", sub="binding")
    objects.admit("CREATE", place, name, namespace, None, body, asking)
    if not asking.dry_run:
        node = objects.store.get(NODE, "", target["name"]) if on_pod else None
        labels = dict(metadata.get("labels") or {})
        found = ((node or {}).get("metadata") or {}).get("labels") or {}
        labels |= {key: found[key] for key in _ZONES if key in found}
        bind(
            objects,
            pod,
            target["name"],
            manager=asking.manager,
            labels=labels,
            annotations=metadata.get("annotations") or {},
        )
    return success()


def bind(
    objects: Objects,
    pod: Tree,
    node: str,
    *,
    manager: str,
    labels: Tree | None = None,
    annotations: Tree | None = None,
) -> Tree:
    """Set the node of a pod, as the storage of bindings does."""
    metadata = dict(pod["metadata"])
    for key, more in (("labels", labels), ("annotations", annotations)):
        if more:
            metadata[key] = (metadata.get(key) or {}) | more
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": objects.store.now(),
    }
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    others = [one for one in status.get("conditions") or [] if one["type"] != "PodScheduled"]
    status["conditions"] = [*others, condition]
    spec = pod["spec"] | {"nodeName": node}
    new = pod | {"metadata": metadata, "spec": spec, "status": status}
    return objects.store.keep(POD, new, manager=manager, sub="binding")


def _preconditions(pod: Tree, metadata: Tree, asking: Asking, *, on_pod: bool) -> None:
    for key, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = metadata.get(key)
        if not wanted or (key == "uid" and not on_pod):
            continue
        if wanted != pod["metadata"][key]:
            raise precondition(POD, pod, what, wanted, dry_run=asking.dry_run)


def _refusal(pod: Tree) -> str | None:
    name = pod["metadata"].get("deletionTimestamp")
    if name:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return None
