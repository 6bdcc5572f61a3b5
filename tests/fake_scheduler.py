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
from fake_gangs import take, tried_group
from fake_kinds import CLAIM, NODE, POD, POD_GROUP, SLICE, Kind
from fake_objects import Objects
from fake_preempting import victims
from fake_selecting import admits
from fake_trees import Tree

Key = tuple[str, str]

_CLAIMS = "cannot allocate all claims"
_AFFINITY = "node(s) didn't match Pod's node affinity/selector"


class Scheduler:
    """``on``: it runs by itself; ``names``: the schedulerNames it answers to.

    ``preempts``: pods of lower priority go where that makes room.
    """

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.preempts = True
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
            "lastTransitionTime": self.store.now(),
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
