"""Helpers that fill a test cluster, and change it behind a client's back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from apiserver_controllers import Controllers
from apiserver_errors import ApiError
from apiserver_kinds import (
    NAMESPACE,
    NODE,
    POD,
    Json,
    Kind,
    Kinds,
    Place,
    RequestInfo,
    Tree,
)
from apiserver_objects import Objects
from apiserver_rbac import User, service_account
from apiserver_store import Clock, Store

GATE = "gangplan.dev/placement"
GPU = "nvidia.com/gpu"


class ClusterSetup:
    """Helpers that fill and change a cluster. Each returns the object as stored, unless it says otherwise."""

    clock: Callable[[], float]
    kinds: Kinds
    store: Store
    objects: Objects
    controllers: Controllers
    tokens: dict[str, User]

    def settle(self) -> None:
        raise NotImplementedError

    # ---- making

    def put(self, tree: Tree, *, manager: str = "kubectl-create") -> Tree:
        """Store an object as it is: nothing is checked or filled in but uid and time."""
        kind = self.kinds.of(tree["apiVersion"], tree["kind"])
        metadata = {"uid": self.store.uid(), "creationTimestamp": self.store.now()}
        if kind.namespaced:
            metadata["namespace"] = "default"
        metadata |= tree["metadata"]
        if kind == POD:
            tree = {"spec": {}, "status": {"phase": "Pending"}} | tree
        if kind.namespaced:
            self.add_namespace(metadata["namespace"])
        kept = self.store.keep(kind, tree | {"metadata": metadata}, manager=manager)
        self.settle()
        return kept

    def create(self, tree: Tree, *, manager: str = "kubectl-create") -> Tree:
        """Create an object as an administrator. Raises ApiError."""
        kind = self.kinds.of(tree["apiVersion"], tree["kind"])
        namespace = tree["metadata"].get("namespace", "default") if kind.namespaced else ""
        made = self.objects.create(
            Place(kind, namespace, "", ""), tree, RequestInfo(manager=manager)
        )
        self.settle()
        return made

    def add_namespace(self, name: str) -> Tree:
        """The namespace; made where it is not there."""
        found = self.store.get(NAMESPACE, "", name)
        if found is not None:
            return found
        tree = {"metadata": {"name": name}}
        return self.objects.create(
            Place(NAMESPACE, "", "", ""), tree, RequestInfo(manager="kubectl")
        )

    def add_node(
        self,
        name: str,
        gpus: int = 8,
        taints: Iterable[tuple[str, str, str]] = (),
        labels: Mapping[str, str] | None = None,
        *,
        ready: bool = True,
        unschedulable: bool = False,
        cpu: str = "96",
        memory: str = "1Ti",
        **status: Json,
    ) -> Tree:
        """A node. ``taints``: (key, value, effect)."""
        amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | ({GPU: str(gpus)} if gpus else {})
        spec: Tree = {}
        listed = [
            {"key": key, "effect": effect} | ({"value": value} if value else {})
            for key, value, effect in taints
        ]
        if unschedulable:
            spec["unschedulable"] = True
            listed.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if not ready:
            listed.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
        if listed:
            spec["taints"] = listed
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "KubeletReady",
        }
        return self.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                },
                "spec": spec,
                "status": {
                    "capacity": dict(amounts),
                    "allocatable": dict(amounts),
                    "conditions": [condition],
                    **status,
                },
            },
            manager="kubelet",
        )

    def add_pod(
        self,
        name: str,
        namespace: str = "default",
        gpus: int = 1,
        *,
        node: str | None = None,
        gates: Iterable[str] = (),
        scheduler: str = "default-scheduler",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owner: Tree | None = None,
        priority: int = 0,
        phase: str | None = None,
        grace: int = 0,
        cpu: str = "1",
        memory: str = "1Gi",
        **spec: Json,
    ) -> Tree:
        """A pod. ``node``: bound there, and Running unless ``phase`` says otherwise.

        ``grace``: seconds it takes to end (0: at once). ``spec``: more fields of it.
        """
        self.add_namespace(namespace)
        metadata: Tree = {"name": name, "namespace": namespace}
        if labels:
            metadata["labels"] = dict(labels)
        if annotations:
            metadata["annotations"] = dict(annotations)
        if owner is not None:
            metadata["ownerReferences"] = [_reference(owner)]
        limits = {"cpu": cpu, "memory": memory} | ({GPU: str(gpus)} if gpus else {})
        containers = [{"name": "main", "image": "image", "resources": {"limits": limits}}]
        tree: Tree = {
            "metadata": metadata,
            "spec": {
                "containers": containers,
                "schedulerName": scheduler,
                "priority": priority,
                "terminationGracePeriodSeconds": grace,
                **({"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}),
                **({"nodeName": node} if node else {}),
                **spec,
            },
        }
        made = self.objects.create(
            Place(POD, namespace, "", ""), tree, RequestInfo(manager="kube-controller-manager")
        )
        if phase or node:
            self.standing(made, phase or "Running")
        self.settle()
        found = self.store.get(POD, namespace, name)
        assert found is not None
        return found

    def gang_of_pods(
        self,
        name: str,
        size: int,
        *,
        namespace: str = "default",
        gpus: int = 8,
        mode: str = "gate",
        nodes: Iterable[str] = (),
        comes_back: bool = False,
        annotations: Mapping[str, str] | None = None,
        **pod: Json,
    ) -> list[Tree]:
        """A Job and its pods ``NAME-0``, ``NAME-1``, ...: gated.

        ``mode``: gate or none. ``nodes``: where they run already, one each.
        ``comes_back``: a pod that goes is made again under its name. ``annotations``: of the Job.
        """
        self.add_namespace(namespace)
        gates = [GATE] if mode == "gate" else []
        job = self.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "annotations": dict(annotations or {}),
                },
                "spec": {"parallelism": size, "completions": size, "completionMode": "Indexed"},
            }
        )
        where = list(nodes)
        made = []
        for index in range(size):
            number = {"batch.kubernetes.io/job-completion-index": str(index)}
            labels = number | {"batch.kubernetes.io/job-name": name} | dict(pod.get("labels") or {})
            rest = {key: value for key, value in pod.items() if key != "labels"}
            node = where[index] if index < len(where) else None
            one = self.add_pod(
                f"{name}-{index}",
                namespace,
                gpus,
                node=node,
                gates=[] if node else gates,
                labels=labels,
                annotations=number,
                owner=job,
                **rest,
            )
            made.append(one)
        if comes_back:
            owner = self.controllers.recreate(self.kinds.named("Job"), job)
            for born in owner.births.values():
                if gates:
                    born["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
        return made

    def add_user(self, token: str, name: str, groups: Iterable[str] = ()) -> User:
        """Somebody who comes with a bearer token."""
        self.tokens[token] = User(name, (*groups, "system:authenticated"))
        return self.tokens[token]

    def add_service_account(self, token: str, namespace: str, name: str) -> User:
        self.add_namespace(namespace)
        self.tokens[token] = service_account(namespace, name)
        return self.tokens[token]

    # ---- looking

    def pod(self, name: str, namespace: str = "default") -> Tree:
        """Raises ApiError where there is none."""
        return self.objects.get(POD, namespace, name)

    def node_of(self, name: str, namespace: str = "default") -> str | None:
        """Where a pod is bound; None where it is not, or there is none."""
        found = self.store.get(POD, namespace, name)
        return None if found is None else found["spec"].get("nodeName")

    def pods(self, namespace: str = "") -> list[Tree]:
        return list(self.store.all(POD, namespace))

    # ---- what happens behind our back

    def change(
        self,
        kind: Kind | str,
        name: str,
        change: Callable[[Tree], Tree],
        namespace: str = "default",
    ) -> Tree:
        """Store what ``change`` makes of an object (it gets a copy of the top two levels)."""
        kind = self.kinds.named(kind) if isinstance(kind, str) else kind
        old = self.objects.get(kind, namespace if kind.namespaced else "", name)
        copy = {
            key: dict(value) if isinstance(value, dict) else value for key, value in old.items()
        }
        kept = self.store.keep(kind, change(copy), manager="somebody-else")
        self.settle()
        return kept

    def touch(self, kind: Kind | str, name: str, namespace: str = "default") -> Tree:
        """A harmless change: only an annotation, and so the resourceVersion, is another."""

        def change(tree: Tree) -> Tree:
            annotations = dict(tree["metadata"].get("annotations") or {})
            annotations["example.com/touched"] = str(self.store.revision)
            tree["metadata"]["annotations"] = annotations
            return tree

        return self.change(kind, name, change, namespace)

    def remove(self, kind: Kind | str, name: str, namespace: str = "default") -> None:
        """It goes at once, whatever it has of grace and finalizers."""
        kind = self.kinds.named(kind) if isinstance(kind, str) else kind
        self.store.drop(kind, self.objects.get(kind, namespace if kind.namespaced else "", name))
        self.settle()

    def cordon(self, node: str) -> Tree:
        def change(tree: Tree) -> Tree:
            tree["spec"]["unschedulable"] = True
            return tree

        return self.change(NODE, node, change)

    def run_pod(self, namespace: str, name: str, phase: str = "Running") -> Tree:
        """What a kubelet reports of a bound pod."""
        made = self.standing(self.objects.get(POD, namespace, name), phase)
        self.settle()
        return made

    def finish_terminating(self) -> int:
        """What kubelets do at the end of the grace periods; how many pods went."""
        going = [
            pod
            for pod in self.store.all(POD)
            if "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers")
        ]
        for pod in going:
            self.store.drop(POD, pod)
        self.settle()
        return len(going)

    def advance(self, seconds: float) -> None:
        """Move the cluster's own clock."""
        if not isinstance(self.clock, Clock):
            raise ApiError(500, "this cluster's clock is not its own")
        self.clock.advance(seconds)

    def standing(self, pod: Tree, phase: str) -> Tree:
        """The pod with a status as kubelets write it."""
        now = self.store.now()
        conditions = [
            one
            for one in pod["status"].get("conditions") or []
            if one["type"] not in ("Ready", "PodScheduled")
        ]
        for kind in ("PodScheduled", "Ready"):
            status = "True" if kind == "PodScheduled" or phase == "Running" else "False"
            condition = {"type": kind, "status": status, "lastTransitionTime": now}
            conditions.append(condition)
        status = pod["status"] | {"phase": phase, "startTime": now, "conditions": conditions}
        return self.store.keep(POD, pod | {"status": status}, manager="kubelet", sub="status")


def _reference(owner: Tree) -> Tree:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
