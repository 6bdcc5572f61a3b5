"""The subresources binding, eviction and scale, as measured."""

from __future__ import annotations

from dataclasses import replace

from apiserver_disruption import spend
from apiserver_errors import ApiError, conflict, success
from apiserver_kinds import BINDING, NODE, POD, Json, Kind, Place, RequestInfo, Tree
from apiserver_objects import Objects, check_preconditions, precondition
from apiserver_patch import patched
from apiserver_validation import refuse_unknown

_ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def bound(objects: Objects, place: Place, body: Json, info: RequestInfo) -> Tree:
    """POST to either. Raises ApiError."""
    if not isinstance(body, dict) or body.get("kind", "Binding") != "Binding":
        raise ApiError(400, "the object provided is unrecognized (must be of type Binding)")
    if info.strict:
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
    _preconditions(pod, metadata, info, on_pod=on_pod)
    why = _refusal(pod)
    if why:
        raise conflict(POD, name, f"pod {name} {why}", sub="binding")
    objects.admit("CREATE", place, name, namespace, None, body, info)
    if not info.dry_run:
        node = objects.store.get(NODE, "", target["name"]) if on_pod else None
        labels = dict(metadata.get("labels") or {})
        found = ((node or {}).get("metadata") or {}).get("labels") or {}
        labels |= {key: found[key] for key in _ZONES if key in found}
        bind(
            objects,
            pod,
            target["name"],
            manager=info.manager,
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


def _preconditions(pod: Tree, metadata: Tree, info: RequestInfo, *, on_pod: bool) -> None:
    for key, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = metadata.get(key)
        if not wanted or (key == "uid" and not on_pod):
            continue
        if wanted != pod["metadata"][key]:
            raise precondition(POD, pod, what, wanted, dry_run=info.dry_run)


def _refusal(pod: Tree) -> str | None:
    name = pod["metadata"].get("deletionTimestamp")
    if name:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return None


def evicted(objects: Objects, place: Place, body: Json, info: RequestInfo) -> Tree:
    """POST to pods/POD/eviction. Raises ApiError."""
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise ApiError(400, "the object provided is unrecognized (must be of type Eviction)")
    if info.strict:
        refuse_unknown(POD, body, name="Eviction")
    metadata = body.get("metadata") or {}
    objects.namespace(place, metadata)
    if metadata.get("name", place.name) != place.name:
        raise ApiError(400, "name in URL does not match name in Eviction object")
    pod = objects.get(POD, place.namespace, place.name)
    options = body.get("deleteOptions") or {}
    check_preconditions(POD, pod, options.get("preconditions") or {})
    objects.admit("CREATE", place, place.name, place.namespace, None, body, info)
    dry = info.dry_run or options.get("dryRun") == ["All"]
    spend(objects.store, pod, dry=dry)
    grace = options.get("gracePeriodSeconds")
    objects.removed(POD, pod, grace, dry_run=dry)
    return success()


def scale_of(kind: Kind, owner: Tree) -> Tree:
    """The Scale of an object."""
    metadata = {
        key: owner["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in owner["metadata"]
    }
    replicas = _at(owner, kind.replicas)
    status = {"replicas": (owner.get("status") or {}).get("replicas", replicas)}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": status,
    }


def scaled(
    objects: Objects, place: Place, method: str, body: Json, content_type: str, info: RequestInfo
) -> Tree:
    """GET, PUT or PATCH of a scale. Raises ApiError."""
    kind = place.kind
    owner = objects.get(kind, place.namespace, place.name)
    old = scale_of(kind, owner)
    if method == "GET":
        return old
    new = patched(old, body, content_type) if method == "PATCH" else body
    version = (new.get("metadata") or {}).get("resourceVersion") or ""
    if version not in ("", owner["metadata"]["resourceVersion"]):
        raise conflict(kind, place.name)
    uid = (new.get("metadata") or {}).get("uid", owner["metadata"]["uid"])
    if uid != owner["metadata"]["uid"]:
        raise ApiError(
            409,
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
        )
    replicas = (new.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        why = f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
        raise ApiError(422, f'Scale.autoscaling "{place.name}" is invalid: {why}')
    set_to = _with(owner, kind.replicas, replicas)
    metadata = {k: v for k, v in owner["metadata"].items() if k != "managedFields"}
    whole = replace(place, sub="")
    made = objects.replaced(whole, owner, set_to | {"metadata": metadata}, info)
    return scale_of(kind, made)


def _at(tree: Tree, path: tuple[str, ...]) -> int:
    found: Json = tree
    for part in path:
        found = (found or {}).get(part)
    return found or 0


def _with(tree: Tree, path: tuple[str, ...], value: int) -> Tree:
    if len(path) == 1:
        return tree | {path[0]: value}
    return tree | {path[0]: _with(tree.get(path[0]) or {}, path[1:], value)}
