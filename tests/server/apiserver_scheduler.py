"""kube-scheduler: binds ungated pods where there is room, gangs of PodGroups whole, claims allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Protocol

from apiserver_kinds import (
    CLAIM,
    NODE,
    POD,
    POD_GROUP,
    SLICE,
    Kind,
    Tree,
)
from apiserver_objects import Objects, with_group_condition
from apiserver_selectors import admits, selects
from apiserver_store import Store
from apiserver_subresources import bind

_UNITS = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(1000),
    "M": Decimal(1000**2),
    "G": Decimal(1000**3),
    "T": Decimal(1000**4),
    "P": Decimal(1000**5),
    "Ki": Decimal(1024),
    "Mi": Decimal(1024**2),
    "Gi": Decimal(1024**3),
    "Ti": Decimal(1024**4),
    "Pi": Decimal(1024**5),
}


@lru_cache(maxsize=4096)
def thousandths(quantity: str | int) -> int:
    """``"1500m"`` is 1500, ``"2"`` is 2000. Raises ValueError for what is no quantity."""
    text = str(quantity)
    number = text.rstrip("mkKMGTPEi")
    unit = text[len(number) :]
    if unit not in _UNITS:
        raise ValueError(f"no quantity: {text!r}")
    return int((Decimal(number) * _UNITS[unit]) * 1000)


def asked(pod: Tree) -> dict[str, int]:
    """What a pod asks for, in thousandths; one of ``pods`` included."""
    spec = pod["spec"]
    total: dict[str, int] = {"pods": 1000}
    for container in spec.get("containers") or []:
        _add(total, _requests(container))
    first: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            _add(total, _requests(container))
            continue
        for name, amount in _requests(container).items():
            first[name] = max(first.get(name, 0), amount)
    for name, amount in first.items():
        total[name] = max(total.get(name, 0), amount)
    _add(total, {name: thousandths(value) for name, value in (spec.get("overhead") or {}).items()})
    return total


def _requests(container: Tree) -> dict[str, int]:
    found = (container.get("resources") or {}).get("requests") or {}
    return {name: thousandths(value) for name, value in found.items()}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


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


def victims(store: Store, pod: Tree, node: Tree, free: dict[str, int]) -> list[Tree] | None:
    """Who has to go for the pod to fit on the node; None where that does not help.

    ``free``: what is left of the node, in thousandths.
    """
    if pod["spec"].get("preemptionPolicy") == "Never":
        return None
    wanted, left = asked(pod), dict(free)
    lower = [one for one in _bound(store, node) if _priority(one) < _priority(pod)]
    lower.sort(key=lambda one: (_priority(one), one["metadata"]["uid"]))
    going: list[Tree] = []
    for one in lower:
        if _fits(wanted, left):
            break
        going.append(one)
        for name, amount in asked(one).items():
            left[name] = left.get(name, 0) + amount
    return going if going and _fits(wanted, left) else None


def _bound(store: Store, node: Tree) -> list[Tree]:
    name = node["metadata"]["name"]
    return [
        pod
        for pod in store.all(POD)
        if pod["spec"].get("nodeName") == name
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def _fits(wanted: dict[str, int], free: dict[str, int]) -> bool:
    return all(amount <= free.get(name, 0) for name, amount in wanted.items())


def _priority(pod: Tree) -> int:
    found: int = pod["spec"].get("priority", 0)
    return found


Key = tuple[str, str]
Taken = dict[str, dict[str, int]]
"""By node and resource, in thousandths: what pods take that are placed together."""

_WAITING = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


class Scheduling(Protocol):
    """What a gang needs of the scheduler."""

    store: Store
    pending: dict[Key, Tree]

    def choice(
        self, pod: Tree, taken: Taken, domain: frozenset[str] | None
    ) -> tuple[Tree | None, str]: ...

    def bound(self, pod: Tree, node: Tree) -> None: ...

    def refused(self, pod: Tree, why: str) -> None: ...

    def asks(self, pod: Tree) -> dict[str, int]: ...


def tried_group(scheduler: Scheduling, namespace: str, name: str, seen: set[Key]) -> int:
    """All of a gang, or nothing; how many pods were bound. ``seen``: gets its pods."""
    store = scheduler.store
    group = store.get(POD_GROUP, namespace, name)
    mine = [
        pod
        for (inside, _), pod in scheduler.pending.items()
        if inside == namespace and group_of(pod) == name
    ]
    seen.update((namespace, pod["metadata"]["name"]) for pod in mine)
    if group is None:
        return 0
    policy = (group["spec"].get("schedulingPolicy") or {}).get("gang")
    least = policy["minCount"] if policy else 1
    standing = sum(1 for _ in _standing(store, namespace, name))
    if standing + len(mine) < least:
        return 0
    mine.sort(key=lambda pod: pod["metadata"]["uid"])
    domains = _domains(store, group)
    best: list[tuple[Tree, Tree]] = []
    refusals: dict[str, str] = {}
    for domain in domains:
        chosen, refusals = _chosen(scheduler, mine, domain)
        if standing + len(chosen) >= least and len(chosen) > len(best):
            best = chosen
    for pod, node in best:
        scheduler.bound(pod, node)
    placed = {pod["metadata"]["name"] for pod, _ in best}
    for pod in mine:
        if (title := pod["metadata"]["name"]) not in placed:
            scheduler.refused(pod, refusals.get(title, _WAITING))
    now = with_group_condition(group, placed=bool(best), placements=len(domains), time=store.now())
    if now is not group:
        store.keep(POD_GROUP, now, manager="kube-scheduler", sub="status")
    return len(best)


def take(used: Taken, node: str, asks: dict[str, int], sign: int = 1) -> None:
    """Add what a pod asks for to what is taken of its node."""
    there = used.setdefault(node, {})
    for name, amount in asks.items():
        there[name] = there.get(name, 0) + sign * amount


def group_of(pod: Tree) -> str | None:
    """Name of the pod's PodGroup."""
    found: str | None = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return found


def _chosen(
    scheduler: Scheduling, pods: list[Tree], domain: frozenset[str] | None
) -> tuple[list[tuple[Tree, Tree]], dict[str, str]]:
    """(pod and node, for those that fit together; why the others do not)."""
    chosen: list[tuple[Tree, Tree]] = []
    refusals: dict[str, str] = {}
    taken: Taken = {}
    for pod in pods:
        node, why = scheduler.choice(pod, taken, domain)
        if node is None:
            refusals[pod["metadata"]["name"]] = why
            continue
        chosen.append((pod, node))
        take(taken, node["metadata"]["name"], scheduler.asks(pod))
    return chosen, refusals


def _standing(store: Store, namespace: str, name: str) -> Iterator[Tree]:
    for pod in store.all(POD, namespace):
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if group_of(pod) == name and pod["spec"].get("nodeName") and not ended:
            yield pod


def _domains(store: Store, group: Tree) -> list[frozenset[str] | None]:
    """Sets of nodes, one of which a gang has to stay in; None: all nodes."""
    keys = (group["spec"].get("schedulingConstraints") or {}).get("topology") or []
    if not keys:
        return [None]
    domains: dict[str, set[str]] = {}
    for node in store.all(NODE):
        value = (node["metadata"].get("labels") or {}).get(keys[0]["key"])
        if value is not None:
            domains.setdefault(value, set()).add(node["metadata"]["name"])
    return [frozenset(domains[value]) for value in sorted(domains)]


_CLAIMS = "cannot allocate all claims"
_AFFINITY = "node(s) didn't match Pod's node affinity/selector"


class Scheduler:
    """``on``: it runs by itself; ``names``: the schedulerNames it answers to.

    ``preempts``: pods of lower priority go where that makes room. ``refuses``: nodes that take no pod, for
    a reason that no object shows.
    """

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.preempts = True
        self.refuses: dict[str, str] = {}
        self.names = {"default-scheduler"}
        self.objects = objects
        self.store = objects.store
        self._devices = Devices(objects)
        self.pending: dict[Key, Tree] = {}
        self._asked: dict[str, dict[str, int]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._stirred = True
        objects.store.listeners.append(self._changed)

    def run(self) -> int:
        """Place what can be placed; how many pods were bound."""
        if not self._stirred or not self.pending:
            self._stirred = False
            return 0
        placed = 0
        seen: set[Key] = set()
        while True:
            waiting = [key for key in self._queue() if key not in seen]
            if not waiting:
                return placed  # what is stirred still is for the next pass
            self._stirred = False
            for key in waiting:
                seen.add(key)
                if key in self.pending:
                    placed += self._tried(self.pending[key], seen)

    def free(self, node: Tree) -> dict[str, int]:
        """What is left of a node, in thousandths; negative where it is overfull."""
        used = self._used.get(node["metadata"]["name"], {})
        found = (node.get("status") or {}).get("allocatable") or {}
        return {name: thousandths(amount) - used.get(name, 0) for name, amount in found.items()}

    def _queue(self) -> list[Key]:
        """Highest priority first, then the oldest."""
        return sorted(
            self.pending,
            key=lambda key: (
                -self.pending[key]["spec"].get("priority", 0),
                self.pending[key]["metadata"]["uid"],
            ),
        )

    def _tried(self, pod: Tree, seen: set[Key]) -> int:
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if group and self.objects.groups:
            return tried_group(self, pod["metadata"]["namespace"], group, seen)
        node, why = self.choice(pod, {}, None)
        if node is None:
            self.refused(pod, why)
            if self.preempts:
                self._preempted(pod)
            return 0
        self.bound(pod, node)
        return 1

    def choice(
        self, pod: Tree, taken: dict[str, dict[str, int]], domain: frozenset[str] | None
    ) -> tuple[Tree | None, str]:
        """The node for a pod, or why there is none. ``taken``: by pods placed with it."""
        nodes = list(self.store.all(NODE))
        reasons: Counter[str] = Counter()
        best: tuple[int, int, Tree] | None = None
        asks = self.asks(pod)
        nominated = pod["status"].get("nominatedNodeName")
        for place, node in enumerate(nodes):
            name = node["metadata"]["name"]
            if domain is not None and name not in domain:
                continue
            free = self.free(node)
            for resource, amount in taken.get(name, {}).items():
                free[resource] = free.get(resource, 0) - amount
            if why := self._misfit(pod, node, asks, free):
                reasons.update(why)
                continue
            if name == nominated:
                return node, ""
            score = _least_allocated(node, free, asks)
            if best is None or (score, -place) > best[:2]:
                best = (score, -place, node)
        if best is not None:
            return best[2], ""
        gang = "schedulingGroup" in pod["spec"]
        return None, _worded(len(nodes), reasons, gang=gang)

    def _misfit(  # one return a reason
        self, pod: Tree, node: Tree, asks: dict[str, int], free: dict[str, int]
    ) -> list[str]:
        """Why a pod cannot go to a node; empty: it can."""
        if node["spec"].get("unschedulable") and not _tolerates(
            pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        ):
            return ["node(s) were unschedulable"]
        if why := self.refuses.get(node["metadata"]["name"]):
            return [why]
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] != "PreferNoSchedule" and not _tolerates(pod, taint):
                return ["node(s) had untolerated taint(s)"]
        if not admits(pod, node):
            return [_AFFINITY]
        if not self._devices.fit(pod, node):
            return [_CLAIMS]
        short = [name for name, amount in asks.items() if amount > free.get(name, 0)]
        return [
            "Too many pods" if name == "pods" else f"Insufficient {name}" for name in sorted(short)
        ]

    def _preempted(self, pod: Tree) -> None:
        """Make room for a pod, where others are less important; on the node where the fewest go."""
        asks = self.asks(pod)
        found: list[tuple[int, str, list[Tree]]] = []
        for node in self.store.all(NODE):
            free = self.free(node)
            short = self._misfit(pod, node, asks, free)
            if all(why.startswith(("Insufficient", "Too many")) for why in short):
                going = victims(self.store, pod, node, free)
                if going is not None:
                    found.append((len(going), node["metadata"]["name"], going))
        if not found:
            return
        _, name, going = min(found, key=lambda one: one[:2])
        title = pod["metadata"]["name"]
        current = self.objects.get(POD, pod["metadata"]["namespace"], title)
        if any("deletionTimestamp" not in one["metadata"] for one in going):
            status = current["status"] | {"nominatedNodeName": name}
            self.store.keep(
                POD, current | {"status": status}, manager="kube-scheduler", sub="status"
            )
        for one in going:
            if "deletionTimestamp" not in one["metadata"]:
                self.objects.removed(POD, one, None)

    def bound(self, pod: Tree, node: Tree) -> None:
        name = node["metadata"]["name"]
        if self._devices.reserve(pod, node):
            current = self.store.get(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
            assert current is not None
            bind(self.objects, current, name, manager="kube-scheduler")
        else:
            self.refused(pod, self._devices.why, reason="SchedulerError")

    def refused(self, pod: Tree, why: str, *, reason: str = "Unschedulable") -> None:
        """Say it in the pod's status; once."""
        conditions = pod["status"].get("conditions") or []
        old = next((one for one in conditions if one["type"] == "PodScheduled"), None)
        if old is not None and old.get("message") == why and old.get("reason") == reason:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            # It says when the status changed: a gated pod's was False before.
            "lastTransitionTime": self.store.now() if old is None else old["lastTransitionTime"],
            "reason": reason,
            "message": why,
        }
        others = [one for one in conditions if one["type"] != "PodScheduled"]
        status = pod["status"] | {"conditions": [*others, condition]}
        self.store.keep(POD, pod | {"status": status}, manager="kube-scheduler", sub="status")

    def asks(self, pod: Tree) -> dict[str, int]:
        uid = pod["metadata"]["uid"]
        if uid not in self._asked:
            self._asked[uid] = asked(pod)
        return self._asked[uid]

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if kind == POD:
            self._changed_pod(old, new)
        elif kind in (NODE, POD_GROUP, CLAIM, SLICE):
            self._stirred = True

    def _changed_pod(self, old: Tree | None, new: Tree | None) -> None:
        was, now = _holds(old), _holds(new)
        if was != now:
            if was is not None and old is not None:
                take(self._used, was, self.asks(old), -1)
                self._stirred = True
            if now is not None and new is not None:
                take(self._used, now, self.asks(new))
        tree = new or old
        assert tree is not None
        key = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        if new is not None and self._waits(new):
            if key not in self.pending or self.pending[key]["spec"] != new["spec"]:
                self._stirred = True
            self.pending[key] = new
        else:
            self.pending.pop(key, None)

    def _waits(self, pod: Tree) -> bool:
        spec = pod["spec"]
        return (
            not spec.get("nodeName")
            and spec.get("schedulerName", "default-scheduler") in self.names
            and not spec.get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        )


def _holds(pod: Tree | None) -> str | None:
    """The node whose room a pod takes."""
    if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return None
    found: str | None = pod["spec"].get("nodeName")
    return found


def _tolerates(pod: Tree, taint: Tree) -> bool:
    for one in pod["spec"].get("tolerations") or []:
        if one.get("effect") not in (None, "", taint["effect"]):
            continue
        if one.get("key") not in (None, "", taint["key"]):
            continue
        if one.get("operator") == "Exists":
            return True
        if one.get("key") and one.get("value", "") == taint.get("value", ""):
            return True
    return False


def _least_allocated(node: Tree, free: dict[str, int], asks: dict[str, int]) -> int:
    """0 to 100: what share of cpu and memory stays free; other resources have no weight."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    shares = [
        (free.get(name, 0) - asks.get(name, 0)) * 100 // whole
        for name in ("cpu", "memory")
        if name in allocatable and (whole := thousandths(allocatable[name]))
    ]
    return sum(shares) // len(shares) if shares else 0


def _worded(nodes: int, reasons: Counter[str], *, gang: bool) -> str:
    """The message of Unschedulable. ``gang``: of a pod that may not preempt others by itself."""
    if not nodes:
        return "no nodes available to schedule pods"
    said = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    short = sum(n for why, n in reasons.items() if why.startswith(("Insufficient", "Too many")))
    helpless = [f"{short} No preemption victims found for incoming pod"] if short else []
    if nodes - short > 0:
        helpless.append(f"{nodes - short} Preemption is not helpful for scheduling")
    claims = "still not schedulable" if _CLAIMS in reasons else "no new claims to deallocate"
    end = (
        "not eligible due to workload aware preemption enabled"
        if gang
        else f"0/{nodes} nodes are available: {', '.join(helpless)}."
    )
    return f"0/{nodes} nodes are available: {said}. {claims}, preemption: {end}"
