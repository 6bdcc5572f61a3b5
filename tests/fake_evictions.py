"""Evictions, and the PodDisruptionBudgets that may forbid them.

Promises: pods that do not run are evicted whatever a budget says, as in the real server; 429 with the
budget as cause otherwise; uid preconditions count. Called by ``fake_cluster``.
"""

from __future__ import annotations

import math

from fake_asking import Asking
from fake_deleting import check_preconditions
from fake_kinds import BUDGET, POD, Place
from fake_objects import Objects
from fake_selecting import matches
from fake_statuses import ApiError, success
from fake_store import Store
from fake_trees import Json, Tree
from fake_unknown import refuse_unknown


def evicted(objects: Objects, place: Place, body: Json, asking: Asking) -> Tree:
    """POST to pods/POD/eviction. Raises ApiError."""
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise ApiError(400, "the object provided is unrecognized (must be of type Eviction)")
    if asking.strict:
        refuse_unknown(POD, body, name="Eviction")
    metadata = body.get("metadata") or {}
    objects.namespace(place, metadata)
    if metadata.get("name", place.name) != place.name:
        raise ApiError(400, "name in URL does not match name in Eviction object")
    pod = objects.get(POD, place.namespace, place.name)
    options = body.get("deleteOptions") or {}
    check_preconditions(POD, pod, options.get("preconditions") or {})
    objects.admit("CREATE", place, place.name, place.namespace, None, body, asking)
    if _counts(pod):
        _spend(objects.store, pod)
    dry = asking.dry_run or options.get("dryRun") == ["All"]
    grace = options.get("gracePeriodSeconds")
    objects.removed(POD, pod, grace, dry_run=dry)
    return success()


def refreshed(store: Store, budget: Tree) -> Tree:
    """The budget with its status as the disruption controller would write it now."""
    pods = [
        pod
        for pod in store.all(POD, budget["metadata"]["namespace"])
        if matches(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    healthy = sum(1 for pod in pods if _healthy(pod))
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        desired = max(0, len(pods) - _share(spec["maxUnavailable"], len(pods)))
    else:
        desired = _share(spec.get("minAvailable", 1), len(pods))
    status = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": max(0, healthy - desired) if pods else 0,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": len(pods),
    }
    return budget | {"status": status}


def _counts(pod: Tree) -> bool:
    """Whether a budget is asked: not for pods that do not run, or are going already."""
    return (
        pod["status"].get("phase") not in ("Pending", "Succeeded", "Failed")
        and "deletionTimestamp" not in pod["metadata"]
    )


def _spend(store: Store, pod: Tree) -> None:
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
        status = refreshed(store, budget)["status"]
        if status["disruptionsAllowed"] < 1:
            why = (
                f"The disruption budget {budget['metadata']['name']} needs {status['desiredHealthy']} "
                f"healthy pods and has {status['currentHealthy']} currently"
            )
            said = "Cannot evict pod as it would violate the pod's disruption budget."
            causes = [{"reason": "DisruptionBudget", "message": why}]
            raise ApiError(429, said, details={"causes": causes})


def _healthy(pod: Tree) -> bool:
    """Running and not said to be unready; pods here rarely have the condition Ready."""
    if pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod["status"].get("conditions") or []
    return not any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)


def _share(amount: int | str, whole: int) -> int:
    """An IntOrString; percentages are rounded up."""
    if isinstance(amount, str):
        return math.ceil(int(amount.removesuffix("%")) * whole / 100)
    return amount
