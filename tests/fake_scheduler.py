"""kube-scheduler: binds ungated pods of its own name to nodes that have room, as measured.

Promises: one pass leaves no pod waiting that fits; gangs of a PodGroup go whole or not at all; pods
that fit nowhere get the condition Unschedulable with its message. Called by ``fake_cluster`` after
every write.
"""

from __future__ import annotations

from collections import Counter

from fake_amounts import asked, thousandths
from fake_binding import bind
from fake_devices import Devices
from fake_kinds import CLAIM, NODE, POD, POD_GROUP, SLICE, Kind
from fake_objects import Objects
from fake_selecting import admits
from fake_trees import Tree

Key = tuple[str, str]

_WAITING = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
_AFFINITY = "node(s) didn't match Pod's node affinity/selector"


class Scheduler:
    """``on``: it runs by itself; ``names``: the schedulerNames it answers to."""

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.names = {"default-scheduler"}
        self._objects = objects
        self._store = objects.store
        self._devices = Devices(objects)
        self._pending: dict[Key, Tree] = {}
        self._asked: dict[str, dict[str, int]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._stirred = True
        objects.store.listeners.append(self._changed)

    def run(self) -> int:
        """Place what can be placed; how many pods were bound."""
        if not self._stirred or not self._pending:
            self._stirred = False
            return 0
        placed = 0
        seen: set[Key] = set()
        while True:
            self._stirred = False
            waiting = [key for key in self._queue() if key not in seen]
            if not waiting:
                return placed
            for key in waiting:
                seen.add(key)
                if key in self._pending:
                    placed += self._tried(self._pending[key], seen)

    def free(self, node: Tree) -> dict[str, int]:
        """What is left of a node, in thousandths; negative where it is overfull."""
        used = self._used.get(node["metadata"]["name"], {})
        found = (node.get("status") or {}).get("allocatable") or {}
        return {name: thousandths(amount) - used.get(name, 0) for name, amount in found.items()}

    def _queue(self) -> list[Key]:
        """Highest priority first, then the oldest."""
        return sorted(
            self._pending,
            key=lambda key: (
                -self._pending[key]["spec"].get("priority", 0),
                self._pending[key]["metadata"]["uid"],
            ),
        )

    def _tried(self, pod: Tree, seen: set[Key]) -> int:
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if group and self._objects.groups:
            return self._tried_group(pod["metadata"]["namespace"], group, seen)
        node, why = self._choice(pod, {}, None)
        if node is None:
            self._refused(pod, why)
            return 0
        self._bound(pod, node)
        return 1

    def _tried_group(self, namespace: str, name: str, seen: set[Key]) -> int:
        """All of a gang, or nothing."""
        group = self._store.get(POD_GROUP, namespace, name)
        mine = [
            pod
            for key, pod in self._pending.items()
            if key[0] == namespace
            and (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == name
        ]
        seen.update((namespace, pod["metadata"]["name"]) for pod in mine)
        if group is None:
            return 0
        policy = (group["spec"].get("schedulingPolicy") or {}).get("gang")
        least = policy["minCount"] if policy else 1
        standing = sum(
            1
            for pod in self._store.all(POD, namespace)
            if (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == name
            and pod["spec"].get("nodeName")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        )
        if standing + len(mine) < least:
            return 0
        mine.sort(key=lambda pod: pod["metadata"]["uid"])
        best: list[tuple[Tree, Tree]] = []
        refusals: dict[str, str] = {}
        for domain in self._domains(group):
            chosen: list[tuple[Tree, Tree]] = []
            refusals = {}
            taken: dict[str, dict[str, int]] = {}
            for pod in mine:
                node, why = self._choice(pod, taken, domain)
                if node is None:
                    refusals[pod["metadata"]["name"]] = why
                    continue
                chosen.append((pod, node))
                _take(taken, node["metadata"]["name"], self._asks(pod))
            if standing + len(chosen) >= least and len(chosen) > len(best):
                best = chosen
        placed = {pod["metadata"]["name"] for pod, _ in best}
        for pod, node in best:
            self._bound(pod, node)
        for pod in mine:
            if pod["metadata"]["name"] not in placed:
                self._refused(pod, refusals.get(pod["metadata"]["name"], _WAITING))
        return len(best)

    def _domains(self, group: Tree) -> list[frozenset[str] | None]:
        """Sets of nodes, one of which a gang has to stay in; None: all nodes."""
        keys = (group["spec"].get("schedulingConstraints") or {}).get("topology") or []
        if not keys:
            return [None]
        domains: dict[str, set[str]] = {}
        for node in self._store.all(NODE):
            value = (node["metadata"].get("labels") or {}).get(keys[0]["key"])
            if value is not None:
                domains.setdefault(value, set()).add(node["metadata"]["name"])
        return [frozenset(domains[value]) for value in sorted(domains)]

    def _choice(
        self, pod: Tree, taken: dict[str, dict[str, int]], domain: frozenset[str] | None
    ) -> tuple[Tree | None, str]:
        """The node for a pod, or why there is none. ``taken``: by pods placed with it."""
        nodes = list(self._store.all(NODE))
        reasons: Counter[str] = Counter()
        best: tuple[int, int, Tree] | None = None
        asks = self._asks(pod)
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
        return None, _worded(len(nodes), reasons)

    def _misfit(
        self, pod: Tree, node: Tree, asks: dict[str, int], free: dict[str, int]
    ) -> list[str]:
        """Why a pod cannot go to a node; empty: it can."""
        if node["spec"].get("unschedulable") and not _tolerates(
            pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        ):
            return ["node(s) were unschedulable"]
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] != "PreferNoSchedule" and not _tolerates(pod, taint):
                return ["node(s) had untolerated taint(s)"]
        if not admits(pod, node):
            return [_AFFINITY]
        if not self._devices.fit(pod, node):
            return ["cannot allocate all claims"]
        short = [name for name, amount in asks.items() if amount > free.get(name, 0)]
        return [
            "Too many pods" if name == "pods" else f"Insufficient {name}" for name in sorted(short)
        ]

    def _bound(self, pod: Tree, node: Tree) -> None:
        name = node["metadata"]["name"]
        if self._devices.reserve(pod, node):
            current = self._store.get(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
            assert current is not None
            bind(self._objects, current, name, manager="kube-scheduler")
        else:
            self._refused(pod, self._devices.why, reason="SchedulerError")

    def _refused(self, pod: Tree, why: str, *, reason: str = "Unschedulable") -> None:
        """Say it in the pod's status; once."""
        conditions = pod["status"].get("conditions") or []
        old = next((one for one in conditions if one["type"] == "PodScheduled"), None)
        if old is not None and old.get("message") == why and old.get("reason") == reason:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": self._store.now(),
            "reason": reason,
            "message": why,
        }
        others = [one for one in conditions if one["type"] != "PodScheduled"]
        status = pod["status"] | {"conditions": [*others, condition]}
        self._store.keep(POD, pod | {"status": status}, manager="kube-scheduler", sub="status")

    def _asks(self, pod: Tree) -> dict[str, int]:
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
                _take(self._used, was, self._asks(old), -1)
                self._stirred = True
            if now is not None and new is not None:
                _take(self._used, now, self._asks(new))
        tree = new or old
        assert tree is not None
        key = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        if new is not None and self._waits(new):
            if key not in self._pending or self._pending[key]["spec"] != new["spec"]:
                self._stirred = True
            self._pending[key] = new
        else:
            self._pending.pop(key, None)

    def _waits(self, pod: Tree) -> bool:
        spec = pod["spec"]
        return (
            not spec.get("nodeName")
            and spec["schedulerName"] in self.names
            and not spec.get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        )


def _holds(pod: Tree | None) -> str | None:
    """The node whose room a pod takes."""
    if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return None
    return pod["spec"].get("nodeName")


def _take(used: dict[str, dict[str, int]], node: str, asks: dict[str, int], sign: int = 1) -> None:
    there = used.setdefault(node, {})
    for name, amount in asks.items():
        there[name] = there.get(name, 0) + sign * amount


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
    shares = []
    for name in ("cpu", "memory"):
        if name in allocatable and (whole := thousandths(allocatable[name])):
            shares.append((free.get(name, 0) - asks.get(name, 0)) * 100 // whole)
    return sum(shares) // len(shares) if shares else 0


def _worded(nodes: int, reasons: Counter[str]) -> str:
    """The message of Unschedulable."""
    if not nodes:
        return "no nodes available to schedule pods"
    said = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    short = sum(n for why, n in reasons.items() if why.startswith(("Insufficient", "Too many")))
    helpless = [f"{short} No preemption victims found for incoming pod"] if short else []
    if nodes - short > 0:
        helpless.append(f"{nodes - short} Preemption is not helpful for scheduling")
    return (
        f"0/{nodes} nodes are available: {said}. no new claims to deallocate, preemption: "
        f"0/{nodes} nodes are available: {', '.join(helpless)}."
    )
