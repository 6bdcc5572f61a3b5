"""PodDisruptionBudgets: the status that the disruption controller writes, and what evictions ask of it.

As kube-controller-manager and kube-apiserver 1.36.2 behave.
"""

from __future__ import annotations

import math

from apiserver_errors import ApiError
from apiserver_kinds import BUDGET, POD, Kind, Tree
from apiserver_objects import Objects
from apiserver_selectors import matches
from apiserver_store import Store

_MANAGER = "kube-controller-manager"
_SCALED = {"ReplicaSet", "StatefulSet", "ReplicationController", "Deployment"}
"""Controllers with a scale subresource."""


class DisruptionController:
    """``run`` brings the status of every budget up to date."""

    def __init__(self, objects: Objects) -> None:
        self._store = objects.store
        self._due = False
        objects.store.listeners.append(self._changed)

    def run(self) -> None:
        if not self._due:
            return
        self._due = False
        for budget in list(self._store.all(BUDGET)):
            status = _status(self._store, budget)
            if status != budget.get("status"):
                new = budget | {"status": status}
                self._store.keep(BUDGET, new, manager=_MANAGER, sub="status")

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        self._due = self._due or kind in (POD, BUDGET)


def _status(store: Store, budget: Tree) -> Tree:
    pods = [
        pod
        for pod in store.all(POD, budget["metadata"]["namespace"])
        if matches(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
    ]
    before = budget.get("status") or {}
    try:
        expected, desired = _wanted(store, budget["spec"], pods)
    except ValueError as error:
        # It fails safe: the rest of the status stays as it was.
        condition = _condition(store, before, "SyncFailed", "False", str(error))
        kept = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0} | before
        return kept | {"disruptionsAllowed": 0, "conditions": [condition]}
    disrupted = {
        pod["metadata"]["name"]: time
        for pod in pods
        if (time := (before.get("disruptedPods") or {}).get(pod["metadata"]["name"]))
        and "deletionTimestamp" not in pod["metadata"]
    }
    healthy = sum(
        is_ready(pod)
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted
    )
    allowed = max(0, healthy - desired) if expected else 0
    words = ("SufficientPods", "True") if allowed else ("InsufficientPods", "False")
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        **({"disruptedPods": disrupted} if disrupted else {}),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [_condition(store, before, *words, "")],
    }


def _wanted(store: Store, spec: Tree, pods: list[Tree]) -> tuple[int, int]:
    """(expected pods, desired healthy pods). Raises ValueError where they cannot be counted."""
    if "maxUnavailable" in spec:
        expected = _scale(store, pods)
        return expected, max(0, expected - _share(spec["maxUnavailable"], expected))
    least = spec.get("minAvailable", 1)
    if isinstance(least, str):
        expected = _scale(store, pods)
        return expected, _share(least, expected)
    return len(pods), least


def _scale(store: Store, pods: list[Tree]) -> int:
    """Replicas of all controllers of the pods; those without a controller do not count."""
    found: dict[str, int] = {}
    for pod in pods:
        owner = next(
            (one for one in pod["metadata"].get("ownerReferences") or [] if one.get("controller")),
            None,
        )
        if owner is None:
            continue
        if owner["kind"] not in _SCALED:
            group = owner["apiVersion"].partition("/")[0]
            plural = f"{owner['kind'].lower()}s.{group}"
            raise ValueError(f"{plural} does not implement the scale subresource")
        found[owner["uid"]] = _replicas(store, owner["uid"])
    return sum(found.values())


def _replicas(store: Store, uid: str) -> int:
    tree = next((one for one in store.everything() if one["metadata"].get("uid") == uid), {})
    replicas = (tree.get("spec") or {}).get("replicas", 1)
    return int(replicas)


def _condition(store: Store, before: Tree, reason: str, status: str, message: str) -> Tree:
    found = {
        "type": "DisruptionAllowed",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": store.now(),
    }
    for one in before.get("conditions") or []:
        if one["type"] == found["type"] and one["status"] == status and one["reason"] == reason:
            found["lastTransitionTime"] = one["lastTransitionTime"]
    return found


def is_ready(pod: Tree) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _share(amount: int | str, whole: int) -> int:
    """An IntOrString; percentages are rounded up."""
    if isinstance(amount, str):
        return math.ceil(int(amount.removesuffix("%")) * whole / 100)
    return amount


def spend(store: Store, pod: Tree, *, dry: bool) -> None:
    """Take one eviction off the budget of the pod. Raises ApiError if that is not allowed.

    A dry run takes nothing off, so any number of dry runs is allowed where one is.
    """
    if _unguarded(pod):
        return
    labels = pod["metadata"].get("labels") or {}
    mine = [
        budget
        for budget in store.all(BUDGET, pod["metadata"]["namespace"])
        if matches(budget["spec"].get("selector"), labels)
    ]
    if len(mine) > 1:
        said = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
        raise ApiError(500, said, reason="InternalError")
    for budget in mine:
        if not _free(budget, pod):
            _take(store, budget, pod, dry=dry)


def _unguarded(pod: Tree) -> bool:
    """Whether no budget is asked: of pods that do not run, or are going already."""
    return (
        pod["status"].get("phase") in ("Pending", "Succeeded", "Failed")
        or "deletionTimestamp" in pod["metadata"]
    )


def _free(budget: Tree, pod: Tree) -> bool:
    """Whether a pod that is not ready may go whatever the budget allows."""
    if is_ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _take(store: Store, budget: Tree, pod: Tree, *, dry: bool) -> None:
    name, status = budget["metadata"]["name"], dict(budget.get("status") or {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _refused(why, retry_after_s=10)
    if status["disruptionsAllowed"] < 1:
        why = (
            f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods and has "
            f"{status['currentHealthy']} currently"
        )
        raise _refused(why)
    if not dry:
        status["disruptionsAllowed"] -= 1
        status["disruptedPods"] = (status.get("disruptedPods") or {}) | {
            pod["metadata"]["name"]: store.now()
        }
        store.keep(BUDGET, budget | {"status": status}, manager="kube-apiserver", sub="status")


def _refused(why: str, *, retry_after_s: int | None = None) -> ApiError:
    said = "Cannot evict pod as it would violate the pod's disruption budget."
    details: Tree = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_after_s is not None:
        details["retryAfterSeconds"] = retry_after_s
    return ApiError(429, said, details=details, retry_after_s=retry_after_s)
