"""kube-scheduler: binds ungated pods where there is room, gangs of PodGroups whole, claims allocated."""

from __future__ import annotations

from collections import Counter, defaultdict

from apiserver_controllers import claims_of
from apiserver_kinds import CLAIM, NODE, POD, POD_GROUP, Tree
from apiserver_objects import Objects, is_alive, with_condition
from apiserver_rules import condition
from kube_arithmetic import amount, in_terms, refusals, requests

Amounts = Counter[str]
"""By resource, in thousandths."""

_MISFITS = {
    "cordoned": "node(s) were unschedulable",
    "nodeSelector": "node(s) didn't match Pod's node affinity/selector",
    "nodeAffinity": "node(s) didn't match Pod's node affinity/selector",
}
_CLAIMS = "cannot allocate all claims"
_ROOM = ("Insufficient", "Too many")
"""How reasons begin that fewer pods would help."""
_WAITING = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


def _thousandths(quantities: Tree) -> Amounts:
    return Amounts({name: int(1000 * amount(value)) for name, value in quantities.items()})


class Scheduler:
    """``on``: it runs by itself. ``refuses``: nodes that take no pod, for a reason that no object shows."""

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.refuses: dict[str, str] = {}
        self._objects = objects
        self._store = objects.store
        self._used: defaultdict[str, Amounts] = defaultdict(Amounts)
        self._asks: dict[str, Amounts] = {}
        self._seen = 0

    def run(self) -> None:
        """Place what can be placed: highest priority first, then the oldest; gangs whole."""
        if self._seen == self._store.revision:
            return
        pods = list(self._store.all(POD))
        waiting = sorted(filter(_waits, pods), key=_rank)
        self._used.clear()
        for pod in pods if waiting else ():
            if node := _holds(pod):
                self._used[node] += self._asked(pod)
        groups: dict[tuple[str, str], list[Tree]] = {}
        for pod in waiting:
            named = _group_of(pod) if self._objects.groups else None
            metadata = pod["metadata"]
            own = f"pod {metadata['name']}" if named is None else named
            groups.setdefault((metadata["namespace"], own), []).append(pod)
        for (namespace, name), mine in groups.items():
            least = self._least(namespace, name, pods) if _group_of(mine[0]) == name else 1
            if least is not None and len(mine) >= least:
                self._tried(mine, least)
        self._seen = self._store.revision

    def _asked(self, pod: Tree) -> Amounts:
        """What a pod asks for; one of ``pods`` included."""
        uid = pod["metadata"]["uid"]
        if uid not in self._asks:
            self._asks[uid] = _thousandths(requests(pod))
        return self._asks[uid]

    def _least(self, namespace: str, name: str, pods: list[Tree]) -> int | None:
        """How many more pods of a group have to be placed together; None where there is none."""
        group = self._store.get(POD_GROUP, namespace, name)
        if group is None:
            return None
        mine = [p for p in pods if (p["metadata"]["namespace"], _group_of(p)) == (namespace, name)]
        policy: Tree = group["spec"]["schedulingPolicy"].get("gang") or {}
        return int(policy.get("minCount", 1)) - sum(_holds(pod) is not None for pod in mine)

    def _tried(self, pods: list[Tree], least: int) -> None:
        """Bind those that fit together, if they are so many; say of the others why not."""
        chosen: dict[str, str] = {}
        refusals: dict[str, str] = {}
        for pod in pods:
            node, why = self._choice(pod)
            if node is None:
                refusals[pod["metadata"]["name"]] = why
            else:
                chosen[pod["metadata"]["name"]] = node
                self._used[node] += self._asked(pod)
        whole = len(chosen) >= least
        for pod in pods:
            name = pod["metadata"]["name"]
            if name in chosen and whole:
                self._bind(pod, chosen[name])
                continue
            if name in chosen:
                self._used[chosen[name]] -= self._asked(pod)
            self._refuse(pod, refusals.get(name, _WAITING))

    def _choice(self, pod: Tree) -> tuple[str | None, str]:
        """The node for a pod, the one with most cores left; or why there is none."""
        nodes, reasons, fitting = list(self._store.all(NODE)), Counter[str](), []
        for node in nodes:
            whole = _thousandths((node.get("status") or {}).get("allocatable") or {})
            used = self._used[node["metadata"]["name"]]
            free = {name: whole[name] - used[name] for name in whole}
            why = self._misfit(pod, node, free)
            reasons.update(why)
            if not why:
                fitting.append((free.get("cpu", 0), node["metadata"]["name"]))
        if not fitting:
            return None, _worded(len(nodes), reasons, pod)
        return max(fitting, key=lambda one: one[0])[1], ""

    def _misfit(self, pod: Tree, node: Tree, free: dict[str, int]) -> list[str]:
        """Why a pod cannot go to a node; empty: it can."""
        if why := self.refuses.get(node["metadata"]["name"]):
            return [why]
        for why in refusals(pod, node):
            return [_MISFITS.get(why, "node(s) had untolerated taint(s)")]
        if not self._has_devices(pod, node):
            return [_CLAIMS]
        short = sorted(
            name for name, amount in self._asked(pod).items() if amount > free.get(name, 0)
        )
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]

    def _bind(self, pod: Tree, node: str) -> None:
        why = self._reserved(pod)
        if why:
            self._refuse(pod, why, reason="SchedulerError")
        else:
            self._objects.bind(pod, node, manager="kube-scheduler")

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
            if "nodeSelector" in allocation and not in_terms(allocation["nodeSelector"], node):
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
                return f"add reservation to claim {name}: status.allocation: field is immutable"
            new = status | {"reservedFor": [*status.get("reservedFor", ()), holder]}
            self._store.keep(CLAIM, claim | {"status": new}, manager="kube-scheduler", sub="status")
        return ""


def _holds(pod: Tree) -> str | None:
    """The node whose room a pod takes."""
    return pod["spec"].get("nodeName") if is_alive(pod) else None


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
