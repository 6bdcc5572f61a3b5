"""Kueue as far as requests for a placement go, played over the API as its provisioning controller does it.

After ``pkg/controller/admissionchecks/provisioning/controller.go`` of kubernetes-sigs/kueue (Apache License
2.0), read in July 2026: what it writes and in which order, in our words. All it knows is in the API.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from apiserver_kinds import Kind
from live_checks import overfull

Tree = dict[str, Any]
Api = Callable[[str, str, Any, str], tuple[int, Tree]]
"""Method, path, body and content type to the status and the answer."""

MERGE = "application/merge-patch+json"
CLASS = "placement.gangplan.dev"
CHECK = "gangplan"
SLOTS = NODE_LABELS = tuple(f"gangplan.dev/placement-{slot}" for slot in range(8))
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"

SERVED = (
    Kind("ProvisioningRequest", "provisioningrequests", "autoscaling.x-k8s.io", subs=("status",)),
    Kind("Workload", "workloads", "kueue.x-k8s.io", "v1beta2", subs=("status",)),
    Kind("PodTemplate", "podtemplates"),
)
"""What an API server has to serve for it."""

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/{}provisioningrequests"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/{}workloads"
JOB = ("Job", "batch/v1", "/apis/batch/v1/{}jobs")
"""Kind, version and path of what owns the pods."""

TEMPLATES = "/api/v1/{}podtemplates"
PODS = "/api/v1/{}pods"

NOW = "2026-11-20T09:00:00Z"


def true(tree: Mapping[str, Any], kind: str) -> bool:
    conditions = tree.get("status", {}).get("conditions", ())
    return any((one["type"], one["status"]) == (kind, "True") for one in conditions)


def condition(tree: Mapping[str, Any], kind: str) -> Tree | None:
    return next(
        (c for c in tree.get("status", {}).get("conditions", ()) if c["type"] == kind), None
    )


@dataclass
class PlayedKueue:
    """``limit``: failures of a request after which a workload is given up. ``keeps``: whether the requests of
    a workload that ends or is evicted are left, as before its feature gate for that. ``job``: what owns pods.
    """

    api: Api
    limit: int = 3
    keeps: bool = True
    namespace: str = "default"
    job: tuple[str, str, str] = JOB

    @property
    def here(self) -> str:
        return f"namespaces/{self.namespace}/"

    # ---- what users do

    def submit(self, name: str, *sets: tuple[int, int], priority: int = 0, **pod: Any) -> None:  # noqa: ANN401
        """A job of sets of pods, each (pods, GPUs of each), suspended, with its Workload."""
        podsets = []
        for number, (count, gpus) in enumerate(sets):
            asks = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
            main = {
                "name": "main",
                "image": "image",
                "resources": {"requests": asks, "limits": asks},
            }
            spec = {"containers": [main], "restartPolicy": "Never", **pod}
            role = "main" if len(sets) == 1 else f"set{number}"
            podsets.append({"name": role, "count": count, "template": {"spec": spec}})
        kind, version, path = self.job
        job = self._make(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}})
        self._make(
            WORKLOADS,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": f"job-{name}", "ownerReferences": [_owner(job)]},
            },
            spec={"queueName": "q", "priority": priority, "active": True, "podSets": podsets},
        )

    def finish(self, name: str) -> None:
        """The job is done: its pods have succeeded."""
        self._end_pods(name)
        self._tell(WORKLOADS, f"job-{name}", Finished="True")
        if not self.keeps:
            self._drop_requests(f"job-{name}")

    def evict(self, name: str) -> None:
        """Its quota goes to others; it will be tried again."""
        self._stop(name)
        if not self.keeps:
            self._drop_requests(f"job-{name}")

    def revoke(self, name: str) -> None:
        """Somebody says of its last request that its nodes are no more: Kueue ends it for good."""
        request = max(self._owned(self.one(WORKLOADS, f"job-{name}")), key=_attempt)
        self._tell(REQUESTS, request["metadata"]["name"], CapacityRevoked="True")
        self.step()

    def delete(self, name: str) -> None:
        """The job is deleted, and all that it owns in time: but the request is still there."""
        self._end_pods(name)
        self.api("DELETE", f"{self.job[2].format(self.here)}/{name}", None, "")
        self.api("DELETE", f"{WORKLOADS.format(self.here)}/job-{name}", None, "")

    # ---- what Kueue does

    def step(self) -> None:
        """Everything that is due, once."""
        for workload in self.all(WORKLOADS):
            over = true(workload, "Finished") or not workload["spec"]["active"]
            if over or "deletionTimestamp" in workload["metadata"]:
                continue
            self.reserve(workload["metadata"]["name"])

    def reserve(self, name: str) -> None:
        """Reserve the quota of a workload, and do what is due for it."""
        if not true(self.one(WORKLOADS, name), "QuotaReserved"):
            self._tell(WORKLOADS, name, QuotaReserved="True", Evicted="False")
        self._sync(self.one(WORKLOADS, name))

    def _sync(self, workload: Tree) -> None:
        name = workload["metadata"]["name"]
        request = max(self._owned(workload), key=_attempt, default=None)
        if request is None:
            self._ask(workload, 1)
        elif true(request, "Failed") or (
            true(request, "BookingExpired") and not true(workload, "Admitted")
        ):
            if _attempt(request) <= self.limit:
                self._ask(workload, _attempt(request) + 1)
            else:
                self._give_up(name)
        elif true(request, "CapacityRevoked"):
            self._stop(workload["metadata"]["ownerReferences"][0]["name"])
            self._give_up(name)
        elif true(request, "Provisioned"):
            if not true(workload, "Admitted"):
                self._admit(workload, request)
        elif true(request, "Accepted") and (told := condition(request, "Provisioned")):
            check = {"name": CHECK, "state": "Pending", "message": told["message"]}
            if workload["status"].get("admissionChecks") != [check]:
                self._status(WORKLOADS, name, {"admissionChecks": [check]})

    def _ask(self, workload: Tree, attempt: int) -> None:
        """Templates first, then the request: the order of the source since 0.14."""
        name = f"{workload['metadata']['name']}-{CHECK}-{attempt}"
        podsets = []
        for podset in workload["spec"]["podSets"]:
            template = f"ppt-{name}-{podset['name']}"
            about = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": template}}
            self._make(TEMPLATES, about, template=podset["template"])
            podsets.append({"podTemplateRef": {"name": template}, "count": podset["count"]})
        owners = [_owner(workload)]
        about = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest"}
        metadata = {"name": name, "ownerReferences": owners}
        spec = {"provisioningClassName": CLASS, "parameters": {}, "podSets": podsets}
        self._make(REQUESTS, {**about, "metadata": metadata}, spec=spec)

    def _admit(self, workload: Tree, request: Tree) -> None:
        """Ready: the details become node selectors, one that is missing is skipped; then the job runs."""
        details = request["status"].get("provisioningClassDetails", {})
        selector = {key: details[key] for key in SLOTS if key in details}
        self._tell(WORKLOADS, workload["metadata"]["name"], Admitted="True")
        (owner,) = workload["metadata"]["ownerReferences"]
        for podset in workload["spec"]["podSets"]:
            for index in range(podset["count"]):
                spec = copy.deepcopy(podset["template"]["spec"])
                spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **selector}
                metadata = {
                    "name": f"{owner['name']}-{podset['name']}-{index}",
                    "labels": {"kueue.x-k8s.io/podset": podset["name"]},
                    "annotations": {CONSUMES: request["metadata"]["name"]},
                    "ownerReferences": [owner],
                }
                self._make(
                    PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, spec=spec
                )

    def _stop(self, name: str) -> None:
        self._end_pods(name)
        changes = {"Evicted": "True", "Admitted": "False", "QuotaReserved": "False"}
        self._tell(WORKLOADS, f"job-{name}", **changes)

    def _give_up(self, workload: str) -> None:
        self._patch(WORKLOADS, workload, {"spec": {"active": False}})

    def _drop_requests(self, workload: str) -> None:
        for request in self._owned(self.one(WORKLOADS, workload)):
            self.api(
                "DELETE", f"{REQUESTS.format(self.here)}/{request['metadata']['name']}", None, ""
            )

    def sound(self, pods: Iterable[Tree], revoked: Collection[str] = ()) -> None:
        """No GPU twice, no gang half there, none given up that was not ``revoked``, and none with `Failed`.

        ``pods``: all there are.
        """
        found = {pod["metadata"]["name"]: pod for pod in pods}
        assert overfull(found) == []
        ours = [pod for pod in found.values() if CONSUMES in pod["metadata"].get("annotations", {})]
        unbound = [pod["metadata"]["name"] for pod in ours if "nodeName" not in pod["spec"]]
        assert unbound == []
        given_up = [one for one in self.all(WORKLOADS) if not one["spec"]["active"]]
        assert {one["metadata"]["name"] for one in given_up} == {f"job-{name}" for name in revoked}
        requests = self.all(REQUESTS)
        assert not any(true(one, "Failed") for one in requests)
        assert sum(true(one, "CapacityRevoked") for one in requests) == len(revoked)

    # ---- the API

    def all(self, path: str) -> list[Tree]:
        found: list[Tree] = self.api("GET", path.format(self.here), None, "")[1]["items"]
        return found

    def one(self, path: str, name: str) -> Tree:
        return self.api("GET", f"{path.format(self.here)}/{name}", None, "")[1]

    def pods_of(self, name: str) -> list[Tree]:
        return [pod for pod in self.all(PODS) if _owners(pod) == [name]]

    def _owned(self, workload: Tree) -> Iterator[Tree]:
        uid = workload["metadata"]["uid"]
        for request in self.all(REQUESTS):
            if [one["uid"] for one in request["metadata"].get("ownerReferences", ())] == [uid]:
                yield request

    def _end_pods(self, name: str) -> None:
        for pod in self.pods_of(name):
            now = {"gracePeriodSeconds": 0}
            self.api("DELETE", f"{PODS.format(self.here)}/{pod['metadata']['name']}", now, "")

    def _make(self, path: str, about: Tree, **parts: Any) -> Tree:  # noqa: ANN401
        code, tree = self.api("POST", path.format(self.here), {**about, **copy.deepcopy(parts)}, "")
        assert code in (201, 409), tree
        return tree

    def _tell(self, path: str, name: str, **conditions: str) -> None:
        before = self.one(path, name).get("status", {}).get("conditions", ())
        kept = {one["type"]: one for one in before}
        for kind, status in conditions.items():
            about = {"reason": "Played", "message": "", "lastTransitionTime": NOW}
            kept[kind] = {"type": kind, "status": status, **about}
        self._status(path, name, {"conditions": list(kept.values())})

    def _status(self, path: str, name: str, status: Tree) -> None:
        self._patch(path, f"{name}/status", {"status": status})

    def _patch(self, path: str, name: str, body: Tree) -> None:
        code, tree = self.api("PATCH", f"{path.format(self.here)}/{name}", body, MERGE)
        assert code == 200, tree


SIZES = [(1, 1), (1, 4), (2, 4), (2, 8), (3, 2), (4, 8), (1, 8)]
"""Pods, and GPUs of each."""


def come_and_go(
    count: int,
    chance: Random,
    played: Callable[[], PlayedKueue],
    run: Callable[[], object],
    sound: Callable[[Collection[str]], object],
    **pod: Any,  # noqa: ANN401
) -> set[str]:
    """So many gangs of all sizes come, are started by runs, and go.

    Some are stopped by Kueue and come again; of those returned somebody revoked the nodes.
    """
    waiting = [f"g{number}" for number in range(count)]
    came, ended, revoked = set[str](), set[str](), set[str]()
    for _ in range(40 * count):
        for name in waiting[: chance.randrange(1, 7)]:
            played().submit(name, chance.choice(SIZES), priority=chance.randrange(3), **pod)
            waiting.remove(name)
            came.add(name)
        played().step()
        run()
        played().step()
        sound(revoked)
        for name in sorted(name for name in came - ended if played().pods_of(name)):
            fate = chance.random()
            if fate < 0.5:
                played().finish(name)
            elif fate < 0.6:
                played().evict(name)
            elif fate < 0.68:
                played().revoke(name)
                revoked.add(name)
            ended |= {name} if fate < 0.5 or name in revoked else set()
        if not waiting and came == ended:
            return revoked
    raise AssertionError("no end")


def all_over(kueue: PlayedKueue) -> bool:
    over = ("BookingExpired", "CapacityRevoked")
    return all(any(true(one, kind) for kind in over) for one in kueue.all(REQUESTS))


def _attempt(request: Tree) -> int:
    return int(request["metadata"]["name"].rpartition("-")[2])


def _owner(one: Tree) -> Tree:
    about = {key: one[key] for key in ("apiVersion", "kind")}
    named = {key: one["metadata"][key] for key in ("name", "uid")}
    return {**about, **named, "controller": True, "blockOwnerDeletion": True}


def _owners(pod: Tree) -> list[str]:
    return [one["name"] for one in pod["metadata"].get("ownerReferences", ())]
