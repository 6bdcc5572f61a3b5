"""Short ways to fill a fake cluster: nodes, pods, gangs and users.

Promises: objects as a real cluster would hold them; what is put in so is written by other field
managers than ours. Part of ``FakeCluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fake_asking import Asking
from fake_controllers import Controllers
from fake_kinds import NAMESPACE, POD, Kinds, Place
from fake_meddling import Meddling
from fake_objects import Objects
from fake_rights import User, service_account
from fake_store import Store
from fake_trees import Json, Tree

GATE = "gangplan.dev/placement"
SCHEDULER = "gangplan"
GPU = "nvidia.com/gpu"


class Setup(Meddling):
    """The helpers of a cluster. Each returns the object as stored, unless it says otherwise."""

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
        made = self.objects.create(Place(kind, namespace, "", ""), tree, Asking(manager=manager))
        self.settle()
        return made

    def add_namespace(self, name: str) -> Tree:
        """The namespace; made where it is not there."""
        found = self.store.get(NAMESPACE, "", name)
        if found is not None:
            return found
        tree = {"metadata": {"name": name}}
        return self.objects.create(Place(NAMESPACE, "", "", ""), tree, Asking(manager="kubectl"))

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
            Place(POD, namespace, "", ""), tree, Asking(manager="kube-controller-manager")
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
        """A Job and its pods ``NAME-0``, ``NAME-1``, ...: gated, of our scheduler, or both.

        ``mode``: gate, binding, both or none. ``nodes``: where they run already, one each.
        ``comes_back``: a pod that goes is made again under its name. ``annotations``: of the Job.
        """
        self.add_namespace(namespace)
        gates = [GATE] if mode in ("gate", "both") else []
        scheduler = SCHEDULER if mode in ("binding", "both") else "default-scheduler"
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
                scheduler=scheduler,
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


def _reference(owner: Tree) -> Tree:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
