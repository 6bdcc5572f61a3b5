"""Who writes besides clients: the controllers of Kubernetes, and kube-scheduler."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator

from apiserver_kinds import BUDGET, CLAIM, NODE, POD, Kind, Place, Tree
from apiserver_objects import Objects, budgets_of, is_alive, is_ready, with_condition
from kube_arithmetic import amount, in_terms, refusals, requests

FINALIZER = "resource.kubernetes.io/delete-protection"


def controller(tree: Tree) -> Tree:
    """The reference to its controller; {} without one."""
    owners = tree["metadata"].get("ownerReferences") or []
    return next((one for one in owners if one.get("controller")), {})


def reference(one: Tree) -> Tree:
    named = {"name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}
    api = {"apiVersion": one["apiVersion"], "kind": one["kind"]}
    return {**api, **named, "controller": True, "blockOwnerDeletion": True}


def owned(objects: Objects, kind: Kind, owner: Tree) -> Iterator[Tree]:
    metadata = owner["metadata"]
    for one in objects.all(kind, metadata["namespace"]):
        if controller(one).get("uid") == metadata["uid"]:
            yield one


def claims_of(pod: Tree) -> list[str | None]:
    """Names of the pod's claims; None for one of a template that is not made yet."""
    statuses = pod["status"].get("resourceClaimStatuses") or []
    made = {one["name"]: one["resourceClaimName"] for one in statuses}
    claims = pod["spec"].get("resourceClaims") or []
    return [one.get("resourceClaimName") or made.get(one["name"]) for one in claims]


class Controllers:
    """Of Jobs, owners, claims and budgets. ``on``: they run by themselves after every write.

    ``births``: pods, as posted, that come back when they go, with the Job that wants them.
    """

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.births: list[tuple[Tree, list[Tree]]] = []
        self._objects = objects
        self._gone: set[str] = set()
        objects.listeners.append(self._changed)

    def run(self) -> None:
        """Everything that is due."""
        objects = self._objects
        for owner, births in self.births:
            self._again(owner["metadata"], births)
        gone, self._gone = self._gone, set()
        for kind in (objects.kinds.named("ReplicaSet"), POD) if gone else ():
            for one in objects.all(kind):
                if (
                    controller(one).get("uid") in gone
                    and "deletionTimestamp" not in one["metadata"]
                ):
                    objects.removed(kind, one)
        for claim in objects.all(CLAIM):
            self._give_back(claim)
        for budget in objects.all(BUDGET):
            status = self._status_of(budget)
            if status != budget.get("status"):
                objects.keep(BUDGET, budget | {"status": status})

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if new is None and old is not None and kind != POD:
            self._gone.add(old["metadata"]["uid"])

    def _again(self, owner: Tree, births: list[Tree]) -> None:
        """Make pods that went once more, unless their owner is gone or wants fewer."""
        objects, space = self._objects, owner["namespace"]
        job = objects.find(objects.kinds.named("Job"), space, owner["name"])
        if job is not None and job["metadata"]["uid"] == owner["uid"]:
            there = {pod["metadata"]["name"] for pod in owned(objects, POD, job)}
            gone = [born for born in births if born["metadata"]["name"] not in there]
            for born in gone[: max(0, job["spec"]["parallelism"] - len(there))]:
                objects.create(Place(POD, space), copy.deepcopy(born))

    def _give_back(self, claim: Tree) -> None:
        """reservedFor follows the pods; a claim with the finalizer loses its allocation with them."""
        metadata, status = claim["metadata"], dict(claim.get("status") or {})
        before, space = status.get("reservedFor") or [], metadata["namespace"]
        pods = {
            pod["metadata"]["uid"]: pod for pod in self._objects.all(POD, space) if is_alive(pod)
        }
        after = [one for one in before if one.get("uid") in pods]
        for uid, pod in pods.items():
            holder = {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid}
            mine = pod["spec"].get("nodeName") and metadata["name"] in claims_of(pod)
            after += [holder] if mine and holder not in after else []
        if not status.get("allocation") or after == before:
            return
        status["reservedFor"] = after
        finalizers = metadata.get("finalizers") or []
        if not after and FINALIZER in finalizers:
            status = {k: v for k, v in status.items() if k not in ("allocation", "reservedFor")}
            finalizers = [one for one in finalizers if one != FINALIZER]
        about = {"metadata": metadata | {"finalizers": finalizers}, "status": status}
        self._objects.keep(CLAIM, claim | about)

    def _status_of(self, budget: Tree) -> Tree:
        """As kube-controller-manager 1.36.2 writes it; of a share of the pods of a Job: none may go."""
        pods = [
            pod
            for pod in self._objects.all(POD, budget["metadata"]["namespace"])
            if budget in budgets_of(self._objects, pod)
        ]
        before, desired = budget.get("status") or {}, budget["spec"].get("minAvailable")
        staying = {
            p["metadata"]["name"]: p for p in pods if "deletionTimestamp" not in p["metadata"]
        }
        disrupted = {k: v for k, v in before.get("disruptedPods", {}).items() if k in staying}
        healthy = sum(is_ready(pod) for name, pod in staying.items() if name not in disrupted)
        least = desired if isinstance(desired, int) else healthy
        return {
            "observedGeneration": budget["metadata"].get("generation", 1),
            **({"disruptedPods": disrupted} if disrupted else {}),
            "disruptionsAllowed": max(0, healthy - least) if pods else 0,
            "currentHealthy": healthy,
            "desiredHealthy": least,
            "expectedPods": len(pods),
        }


class Scheduler:
    """Binds ungated pods where there is room: highest priority first, then the oldest. ``on``: by itself.

    ``refuses``: nodes that take no pod, for a reason that no object shows.
    """

    def __init__(self, objects: Objects) -> None:
        self.on = True
        self.refuses: dict[str, str] = {}
        self._objects = objects
        self._free: dict[str, Counter[str]] = {}
        self._asks: dict[str, Counter[str]] = {}
        self._seen = 0

    def run(self) -> None:
        """Place what can be placed; say of the others why not, once."""
        objects, pods = self._objects, list(self._objects.all(POD))
        seen, self._seen = self._seen, objects.revision
        if seen == self._seen or not (waiting := sorted(filter(_waits, pods), key=_rank)):
            return
        self._free = {
            node["metadata"]["name"]: _thousandths((node.get("status") or {}).get("allocatable"))
            for node in objects.all(NODE)
        }
        for pod in pods:
            if is_alive(pod) and (node := pod["spec"].get("nodeName")) in self._free:
                self._free[node].subtract(self._asked(pod))
        for pod in waiting:
            node, why = self._choice(pod)
            if node is not None:
                self._free[node].subtract(self._asked(pod))
                objects.bind(pod, node)
                continue
            conditions = pod["status"].get("conditions") or []
            old = next((one for one in conditions if one["type"] == "PodScheduled"), {})
            # It says when the status changed: a gated pod's was False before.
            since = old.get("lastTransitionTime") or objects.now()
            words = {"reason": "Unschedulable", "message": why}
            if not words.items() <= old.items():
                objects.keep(POD, with_condition(pod, "PodScheduled", "False", since, **words))

    def _asked(self, pod: Tree) -> Counter[str]:
        uid = pod["metadata"]["uid"]
        if uid not in self._asks:
            self._asks[uid] = _thousandths(requests(pod))
        return self._asks[uid]

    def _choice(self, pod: Tree) -> tuple[str | None, str]:
        """The node for a pod, the one with most cores left; or why there is none."""
        reasons, fitting = Counter[str](), []
        for node in self._objects.all(NODE):
            why = self._misfit(pod, node)
            reasons.update(why)
            if not why:
                name = node["metadata"]["name"]
                fitting.append((self._free[name]["cpu"], name))
        if fitting:
            return max(fitting, key=lambda one: one[0])[1], ""
        said = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
        return None, f"0/{len(self._free)} nodes are available: {said}."

    def _misfit(self, pod: Tree, node: Tree) -> list[str]:
        """Why a pod cannot go to a node; empty: it can."""
        name = node["metadata"]["name"]
        if why := self.refuses.get(name):
            return [why]
        for why in refusals(pod, node):
            return [f"node(s) did not suit: {why}"]
        for claim in claims_of(pod):
            found = self._objects.find(CLAIM, pod["metadata"]["namespace"], claim or "") or {}
            allocation = (found.get("status") or {}).get("allocation")
            if not allocation or not in_terms(allocation["nodeSelector"], node):
                return ["cannot allocate all claims"]
        short = [key for key, most in self._asked(pod).items() if most > self._free[name][key]]
        return ["Too many pods" if key == "pods" else f"Insufficient {key}" for key in short]


def _thousandths(quantities: Tree | None) -> Counter[str]:
    return Counter({name: int(1000 * amount(value)) for name, value in (quantities or {}).items()})


def _rank(pod: Tree) -> tuple[int, str]:
    return -pod["spec"]["priority"], pod["metadata"]["uid"]


def _waits(pod: Tree) -> bool:
    spec, ours = pod["spec"], "default-scheduler"
    free = not spec.get("nodeName") and not spec.get("schedulingGates") and is_alive(pod)
    mine = spec.get("schedulerName", ours) == ours
    return free and mine and "deletionTimestamp" not in pod["metadata"]
