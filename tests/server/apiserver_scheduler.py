"""kube-scheduler: binds ungated pods where there is room, gangs of PodGroups whole, claims allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache

from apiserver_controllers import claims_of
from apiserver_kinds import CLAIM, NODE, POD, POD_GROUP, Kind, Tree
from apiserver_objects import Objects, is_alive, with_condition
from apiserver_rules import condition
from apiserver_store import admits, selects

Key = tuple[str, str]
Amounts = dict[str, int]
"""By resource, in thousandths."""

_UNITS = {"m": Decimal("0.001"), "": Decimal(1)}
_UNITS |= {unit: Decimal(1000 ** (n + 1)) for n, unit in enumerate("kMGTP")}
_UNITS |= {f"{unit}i": Decimal(1024 ** (n + 1)) for n, unit in enumerate("KMGTP")}

_CLAIMS = "cannot allocate all claims"
_ROOM = ("Insufficient", "Too many")
"""How reasons begin that fewer pods would help."""
_WAITING = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


@lru_cache(maxsize=4096)
def _thousandths(quantity: str | int) -> int:
    """``"1500m"`` is 1500, ``"2"`` is 2000."""
    text = str(quantity)
    number = text.rstrip("mkKMGTPi")
    return int(Decimal(number) * _UNITS[text[len(number) :]] * 1000)


def _asked(pod: Tree) -> Amounts:
    """What a pod asks for; one of ``pods`` included."""
    total = Counter({"pods": 1000})
    for container in pod["spec"].get("containers") or []:
        for name, amount in container["resources"].get("requests", {}).items():
            total[name] += _thousandths(amount)
    return total


def _holds(pod: Tree | None) -> str | None:
    """The node whose room a pod takes."""
    return None if pod is None or not is_alive(pod) else pod["spec"].get("nodeName")


class Scheduler:
    """``on``: it runs by itself. ``refuses``: nodes that take no pod, for a reason that no object shows."""

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.refuses: dict[str, str] = {}
        self._objects = objects
        self._store = objects.store
        self._pending: dict[Key, Tree] = {}
        self._asks: dict[str, Amounts] = {}
        self._used: dict[str, Amounts] = {}
        self._stirred = True
        objects.store.listeners.append(self._changed)

    def run(self) -> None:
        """Place what can be placed: highest priority first, then the oldest."""
        seen: set[Key] = set()
        while self._stirred and (waiting := self._pending.keys() - seen):
            self._stirred = False
            for key in sorted(waiting, key=lambda key: _rank(self._pending[key])):
                if key not in seen and (pod := self._pending.get(key)) is not None:
                    seen.add(key)
                    if self._objects.groups and "schedulingGroup" in pod["spec"]:
                        seen.update(self._tried_group(key[0], _group_of(pod)))
                    else:
                        self._tried([pod])

    def _tried_group(self, namespace: str, name: str | None) -> Iterator[Key]:
        """All of a gang, or nothing; its pods."""
        mine = [
            p
            for (inside, _), p in self._pending.items()
            if (inside, _group_of(p)) == (namespace, name)
        ]
        mine.sort(key=_rank)
        group = self._store.get(POD_GROUP, namespace, name or "")
        if group is not None:
            least = (group["spec"]["schedulingPolicy"].get("gang") or {}).get("minCount", 1)
            every = self._store.all(POD, namespace)
            standing = sum(_group_of(pod) == name and _holds(pod) is not None for pod in every)
            if standing + len(mine) >= least:
                self._tried(mine, least - standing)
        return ((namespace, pod["metadata"]["name"]) for pod in mine)

    def _tried(self, pods: list[Tree], least: int = 1) -> None:
        """Bind those that fit together, if they are so many; say of the others why not."""
        chosen: list[tuple[Tree, Tree]] = []
        refusals: dict[str, str] = {}
        for pod in pods:
            node, why = self._choice(pod)
            if node is None:
                refusals[pod["metadata"]["name"]] = why
            else:
                chosen.append((pod, node))
                self._take(node["metadata"]["name"], pod)
        for pod, node in chosen:
            self._take(node["metadata"]["name"], pod, -1)
        whole = len(chosen) >= least
        for pod, node in chosen if whole else ():
            self._bind(pod, node)
        placed = {pod["metadata"]["name"] for pod, _ in chosen if whole}
        for pod in pods:
            if (name := pod["metadata"]["name"]) not in placed:
                self._refuse(pod, refusals.get(name, _WAITING))

    def _choice(self, pod: Tree) -> tuple[Tree | None, str]:
        """The node for a pod, or why there is none."""
        nodes, reasons, best = list(self._store.all(NODE)), Counter[str](), None
        asks = self._asks_of(pod)
        for place, node in enumerate(nodes):
            free, whole = self._free(node)
            if why := self._misfit(pod, node, asks, free):
                reasons.update(why)
                continue
            shares = [
                (free[name] - asks.get(name, 0)) * 100 // whole[name]
                for name in ("cpu", "memory")
                if whole.get(name)
            ]
            score = (sum(shares) // len(shares) if shares else 0, -place)
            if best is None or score > best[0]:
                best = (score, node)
        return (None, _worded(len(nodes), reasons, pod)) if best is None else (best[1], "")

    def _misfit(self, pod: Tree, node: Tree, asks: Amounts, free: Amounts) -> list[str]:
        """Why a pod cannot go to a node; empty: it can."""
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if node["spec"].get("unschedulable") and not _tolerates(pod, cordon):
            return ["node(s) were unschedulable"]
        if why := self.refuses.get(node["metadata"]["name"]):
            return [why]
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] != "PreferNoSchedule" and not _tolerates(pod, taint):
                return ["node(s) had untolerated taint(s)"]
        if not admits(pod, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        if not self._has_devices(pod, node):
            return [_CLAIMS]
        short = sorted(name for name, amount in asks.items() if amount > free.get(name, 0))
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]

    def _bind(self, pod: Tree, node: Tree) -> None:
        why = self._reserved(pod)
        if why:
            self._refuse(pod, why, reason="SchedulerError")
        else:
            self._objects.bind(pod, node["metadata"]["name"], manager="kube-scheduler")

    def _refuse(self, pod: Tree, why: str, *, reason: str = "Unschedulable") -> None:
        """Say it in the pod's status; once."""
        conditions = pod["status"].get("conditions") or []
        old = next((one for one in conditions if one["type"] == "PodScheduled"), {})
        if (old.get("message"), old.get("reason")) == (why, reason):
            return
        # It says when the status changed: a gated pod's was False before.
        since = old.get("lastTransitionTime") or self._store.now()
        new = condition("PodScheduled", "False", since, reason=reason, message=why)
        self._store.keep(POD, with_condition(pod, new), manager="kube-scheduler", sub="status")

    # ---- room

    def _free(self, node: Tree) -> tuple[Amounts, Amounts]:
        """What is left of a node, negative where it is overfull; and the whole."""
        used = self._used.get(node["metadata"]["name"], {})
        found = (node.get("status") or {}).get("allocatable") or {}
        whole = {name: _thousandths(amount) for name, amount in found.items()}
        return {name: amount - used.get(name, 0) for name, amount in whole.items()}, whole

    def _take(self, node: str, pod: Tree, sign: int = 1) -> None:
        there = self._used.setdefault(node, Counter())
        for name, amount in self._asks_of(pod).items():
            there[name] += sign * amount

    def _asks_of(self, pod: Tree) -> Amounts:
        uid = pod["metadata"]["uid"]
        if uid not in self._asks:
            self._asks[uid] = _asked(pod)
        return self._asks[uid]

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if kind != POD:
            self._stirred = self._stirred or kind in (NODE, POD_GROUP, CLAIM)
            return
        tree = new or old or {}
        was, now = _holds(old), _holds(new)
        if was != now:
            if was is not None:
                self._take(was, tree, -1)
                self._stirred = True
            if now is not None:
                self._take(now, tree)
        key = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        if new is not None and _waits(new):
            if key not in self._pending or self._pending[key]["spec"] != new["spec"]:
                self._stirred = True
            self._pending[key] = new
        else:
            self._pending.pop(key, None)

    # ---- claims, which others have allocated

    def _claims(self, pod: Tree) -> list[Tree | None]:
        space = pod["metadata"]["namespace"]
        return [self._store.get(CLAIM, space, name or "") for name in claims_of(pod)]

    def _has_devices(self, pod: Tree, node: Tree) -> bool:
        """Whether every claim of the pod is allocated to that node."""
        for claim in self._claims(pod):
            allocation = ((claim or {}).get("status") or {}).get("allocation")
            if not allocation:
                return False
            if "nodeSelector" in allocation and not selects(allocation["nodeSelector"], node):
                return False
        return True

    def _reserved(self, pod: Tree) -> str:
        """Reserve the pod's claims; why the server refuses that."""
        metadata = pod["metadata"]
        holder = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        for claim in filter(None, self._claims(pod)):
            status, name = claim["status"], claim["metadata"]["name"]
            if holder in status.get("reservedFor", ()):
                continue
            if "allocationTimestamp" not in status["allocation"]:
                return (
                    'running PreBind plugin "DynamicResources": add reservation to claim '
                    f'{metadata["namespace"]}/{name}: ResourceClaim.resource.k8s.io "{name}" is '
                    "invalid: status.allocation: Invalid value: field is immutable"
                )
            new = status | {"reservedFor": [*status.get("reservedFor", ()), holder]}
            self._store.keep(CLAIM, claim | {"status": new}, manager="kube-scheduler", sub="status")
        return ""


def _rank(pod: Tree) -> tuple[int, str]:
    return -pod["spec"]["priority"], pod["metadata"]["uid"]


def _group_of(pod: Tree) -> str | None:
    """Name of the pod's PodGroup."""
    found: str | None = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return found


def _waits(pod: Tree) -> bool:
    spec, ours = pod["spec"], "default-scheduler"
    free = not spec.get("nodeName") and not spec.get("schedulingGates") and is_alive(pod)
    return (
        free
        and spec.get("schedulerName", ours) == ours
        and "deletionTimestamp" not in pod["metadata"]
    )


def _tolerates(pod: Tree, taint: Tree) -> bool:
    for one in pod["spec"].get("tolerations") or []:
        same = [one.get(key) in (None, "", taint[key]) for key in ("effect", "key")]
        exists = one.get("operator") == "Exists"
        if all(same) and (exists or one.get("value", "") == taint.get("value", "")):
            return True
    return False


def _worded(nodes: int, reasons: Counter[str], pod: Tree) -> str:
    """The message of Unschedulable. A pod of a gang may not preempt others by itself."""
    if not nodes:
        return "no nodes available to schedule pods"
    said = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    short = sum(count for why, count in reasons.items() if why.startswith(_ROOM))
    helpless = [f"{short} No preemption victims found for incoming pod"] if short else []
    if nodes - short > 0:
        helpless.append(f"{nodes - short} Preemption is not helpful for scheduling")
    claims = "still not schedulable" if _CLAIMS in reasons else "no new claims to deallocate"
    end = f"0/{nodes} nodes are available: {', '.join(helpless)}."
    if "schedulingGroup" in pod["spec"]:
        end = "not eligible due to workload aware preemption enabled"
    return f"0/{nodes} nodes are available: {said}. {claims}, preemption: {end}"
