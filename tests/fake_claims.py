"""ResourceClaims: what the server checks of an allocation, and what it does not.

Promises: as measured: reservedFor needs an allocation, requests are known by name, an allocation is
never changed; devices are nobody's business here. Called by ``fake_objects``.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fake_kinds import Place
from fake_statuses import FieldError, barred, wrong
from fake_trees import Json, Tree

_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def updated_faults(
    old: Tree, new: Tree, place: Place, asking: Json, allowed: Callable[..., bool]
) -> list[FieldError]:
    """``allowed``: the authorizer; a change of the allocation asks for resourceclaims/binding."""
    if place.sub != "status":
        if old.get("spec") != new.get("spec"):
            return [wrong("spec", json.dumps(new.get("spec")), "field is immutable")]
        return []
    before, after = old.get("status") or {}, new.get("status") or {}
    changed = any(before.get(name) != after.get(name) for name in ("allocation", "reservedFor"))
    if changed and not allowed(asking, "patch", place.kind, place.namespace, "", "binding"):
        said = (
            'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding",'
            f' verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User "{asking.user}"'
            ' cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the'
            " cluster scope"
        )
        return [barred("status.allocation", said)]
    faults: list[FieldError] = []
    requests = {one["name"] for one in ((new["spec"].get("devices") or {}).get("requests") or [])}
    allocation = after.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or []
    for index, result in enumerate(results):
        if result.get("request", "").partition("/")[0] not in requests:
            field = f"status.allocation.devices.results[{index}].request"
            faults.append(wrong(field, json.dumps(result.get("request")), _REQUEST))
    if before.get("allocation") and allocation and before["allocation"] != allocation:
        value = json.dumps(allocation, separators=(",", ":"))
        faults.append(wrong("status.allocation", value, "field is immutable"))
    if after.get("reservedFor") and not allocation:
        faults.append(
            barred("status.reservedFor", "may not be specified when `allocated` is not set")
        )
    return faults
