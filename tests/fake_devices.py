"""kube-scheduler's part in dynamic resource allocation: it keeps our allocation or makes its own.

Promises: as measured: an allocation of ours with a time stamp, or reserved already, is kept; one with
neither is a SchedulerError; devices of other claims are not taken. Called by ``fake_scheduler``.
"""

from __future__ import annotations

from fake_kinds import CLAIM, SLICE
from fake_objects import Objects
from fake_selecting import selects
from fake_trees import Tree

Device = tuple[str, str, str]
"""(driver, pool, name)."""

FINALIZER = "resource.kubernetes.io/delete-protection"


class Devices:
    """``why``: what the last reservation failed of."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store
        self.why = ""

    def fit(self, pod: Tree, node: Tree) -> bool:
        """Whether every claim of the pod is allocated to that node, or can be."""
        if not pod["spec"].get("resourceClaims"):
            return True
        for name in claims_of(pod):
            claim = self._store.get(CLAIM, pod["metadata"]["namespace"], name) if name else None
            if claim is None:
                return False
            allocation = (claim.get("status") or {}).get("allocation")
            if allocation:
                if "nodeSelector" in allocation and not selects(allocation["nodeSelector"], node):
                    return False
            elif self._found(claim, node) is None:
                return False
        return True

    def reserve(self, pod: Tree, node: Tree) -> bool:
        """Allocate and reserve the pod's claims; False where the server refuses."""
        for name in claims_of(pod):
            assert name is not None
            claim = self._store.get(CLAIM, pod["metadata"]["namespace"], name)
            assert claim is not None
            status = dict(claim.get("status") or {})
            metadata = pod["metadata"]
            holder = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
            reserved = status.get("reservedFor") or []
            if status.get("allocation"):
                if holder in reserved:
                    continue
                if "allocationTimestamp" not in status["allocation"]:
                    self.why = (
                        f'running PreBind plugin "DynamicResources": add reservation to claim '
                        f'{metadata["namespace"]}/{name}: ResourceClaim.resource.k8s.io "{name}" is '
                        "invalid: status.allocation: Invalid value: field is immutable"
                    )
                    return False
            else:
                results = self._found(claim, node)
                assert results is not None
                status["allocation"] = _allocation(results, node, self._store.now())
                finalizers = claim["metadata"].get("finalizers") or []
                if FINALIZER not in finalizers:
                    claim = claim | {
                        "metadata": claim["metadata"] | {"finalizers": [*finalizers, FINALIZER]}
                    }
            status["reservedFor"] = [*reserved, holder]
            new = claim | {"status": status}
            self._store.keep(CLAIM, new, manager="kube-scheduler", sub="status")
        return True

    def _found(self, claim: Tree, node: Tree) -> list[Tree] | None:
        """Free devices of the node for each request, in the order of the slices."""
        taken = self._taken()
        results: list[Tree] = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            exact = request.get("exactly") or {}
            count = exact.get("count", 1)
            free = [one for one in self._of(node) if one not in taken][:count]
            if len(free) < count:
                return None
            taken.update(free)
            results += [
                {"request": request["name"], "driver": driver, "pool": pool, "device": name}
                for driver, pool, name in free
            ]
        return results

    def _of(self, node: Tree) -> list[Device]:
        return [
            (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"])
            for one in self._store.all(SLICE)
            if one["spec"].get("nodeName") == node["metadata"]["name"]
            for device in one["spec"].get("devices") or []
        ]

    def _taken(self) -> set[Device]:
        return {
            (one["driver"], one["pool"], one["device"])
            for claim in self._store.all(CLAIM)
            for one in (
                (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get(
                    "results"
                )
                or []
            )
        }


def claims_of(pod: Tree) -> list[str | None]:
    """Names of the pod's claims; None for one of a template that is not made yet."""
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in pod["status"].get("resourceClaimStatuses") or []
    }
    return [
        one.get("resourceClaimName") or made.get(one["name"])
        for one in pod["spec"].get("resourceClaims") or []
    ]


def _allocation(results: list[Tree], node: Tree, time: str) -> Tree:
    field = {"key": "metadata.name", "operator": "In", "values": [node["metadata"]["name"]]}
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        "allocationTimestamp": time,
    }
