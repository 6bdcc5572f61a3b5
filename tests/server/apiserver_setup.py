"""Helpers that fill a test cluster, and change it behind a client's back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from apiserver_controllers import Controllers, reference
from apiserver_kinds import NAMESPACE, NODE, POD, Json, Kind, Kinds, Place, RequestInfo, Tree
from apiserver_objects import Objects
from apiserver_rbac import User
from apiserver_store import Clock, Store
from kube import node as made_node

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
    settle: Callable[[], None]

    # ---- making

    def put(self, tree: Tree, *, manager: str = "kubectl-create") -> Tree:
        """Store an object as it is: nothing is checked or filled in but uid and time."""
        kind = self.kinds.of(tree["apiVersion"], tree["kind"])
        metadata = {"uid": self.store.uid(), "creationTimestamp": self.store.now()}
        metadata |= {"namespace": "default"} if kind.namespaced else {}
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
        made = self.objects.create(Place(kind, namespace), tree, RequestInfo(manager=manager))
        self.settle()
        return made

    def add_namespace(self, name: str) -> Tree:
        """The namespace; made where it is not there."""
        found = self.store.get(NAMESPACE, "", name)
        tree = {"metadata": {"name": name}}
        return found or self.objects.create(Place(NAMESPACE), tree, RequestInfo(manager="kubectl"))

    def add_node(
        self,
        name: str,
        gpus: int = 8,
        taints: Iterable[tuple[str, str, str]] = (),
        labels: Mapping[str, str] | None = None,
        *,
        ready: bool = True,
        unschedulable: bool = False,
        **status: Json,
    ) -> Tree:
        """A node. ``taints``: (key, value, effect)."""
        tree, keys = made_node(name, gpus=gpus, **(labels or {})), ("key", "value", "effect")
        listed = [{k: word for k, word in zip(keys, one, strict=True) if word} for one in taints]
        tree["spec"] |= {"taints": listed} if listed else {}
        tree["spec"] |= {"unschedulable": True} if unschedulable else {}
        tree["status"] |= {"conditions": [{"type": "Ready", "status": str(ready)}]} | status
        return self.put(tree, manager="kubelet")

    def add_pod(
        self,
        name: str,
        namespace: str = "default",
        gpus: int = 1,
        *,
        node: str | None = None,
        gates: Iterable[str] = (),
        scheduler: str = "default-scheduler",
        owner: Tree | None = None,
        phase: str | None = None,
        grace: int = 0,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Json,
    ) -> Tree:
        """A pod. ``node``: bound there, and Running unless ``phase`` says otherwise.

        ``grace``: seconds it takes to end (0: at once). ``spec``: more fields of it.
        """
        self.add_namespace(namespace)
        limits = {"cpu": "1", "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {})
        metadata: Tree = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
        metadata["annotations"] = dict(annotations or {})
        metadata["ownerReferences"] = [reference(owner)] if owner else []
        fields: Tree = {
            "containers": [{"name": "main", "image": "image", "resources": {"limits": limits}}],
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": grace,
            "schedulingGates": [{"name": gate} for gate in gates],
            "nodeName": node,
            **spec,
        }
        parts = {"metadata": metadata, "spec": fields}
        tree = {k: {n: v for n, v in part.items() if v or v == 0} for k, part in parts.items()}
        info = RequestInfo(manager="kube-controller-manager")
        made = self.objects.create(Place(POD, namespace), tree, info)
        if phase or node:
            self._report(made, phase or "Running")
        self.settle()
        return self.pod(name, namespace)

    def gang_of_pods(
        self,
        name: str,
        size: int,
        *,
        namespace: str = "default",
        gpus: int = 8,
        nodes: Sequence[str] = (),
        comes_back: bool = False,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **pod: Json,
    ) -> list[Tree]:
        """A Job and its pods ``NAME-0``, ``NAME-1``, ...: gated.

        ``nodes``: where they run already, one each. ``comes_back``: a pod that goes is made again under its
        name. ``annotations``: of the Job.
        """
        self.add_namespace(namespace)
        metadata = {"name": name, "namespace": namespace, "annotations": dict(annotations or {})}
        spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
        api = {"apiVersion": "batch/v1", "kind": "Job"}
        job, made = self.create(api | {"metadata": metadata, "spec": spec}), []
        for index in range(size):
            number = {"batch.kubernetes.io/job-completion-index": str(index)}
            more = number | {"batch.kubernetes.io/job-name": name} | dict(labels or {})
            given = {"annotations": number, "owner": job, "gates": [GATE], **pod}
            given |= {"gates": [], "node": nodes[index]} if index < len(nodes) else {}
            made.append(self.add_pod(f"{name}-{index}", namespace, gpus, labels=more, **given))
        if comes_back:
            for born in self.controllers.recreate(self.kinds.named("Job"), job).values():
                born["spec"]["schedulingGates"] = [{"name": GATE}]
        return made

    def add_user(self, token: str, name: str, groups: Iterable[str] = ()) -> User:
        """Somebody who comes with a bearer token."""
        self.tokens[token] = User(name, (*groups, "system:authenticated"))
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
        copy = {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}
        kept = self.store.keep(kind, change(copy), manager="somebody-else")
        self.settle()
        return kept

    def touch(self, kind: Kind | str, name: str, namespace: str = "default") -> Tree:
        """A harmless change: only an annotation, and so the resourceVersion, is another."""

        def change(tree: Tree) -> Tree:
            touched = {"example.com/touched": str(self.store.revision)}
            annotations = (tree["metadata"].get("annotations") or {}) | touched
            return tree | {"metadata": tree["metadata"] | {"annotations": annotations}}

        return self.change(kind, name, change, namespace)

    def remove(self, kind: Kind | str, name: str, namespace: str = "default") -> None:
        """It goes at once, whatever it has of grace and finalizers."""
        kind = self.kinds.named(kind) if isinstance(kind, str) else kind
        self.store.drop(kind, self.objects.get(kind, namespace if kind.namespaced else "", name))
        self.settle()

    def cordon(self, node: str) -> Tree:
        cordoned = {"unschedulable": True}
        return self.change(NODE, node, lambda tree: tree | {"spec": tree["spec"] | cordoned})

    def run_pod(self, namespace: str, name: str, phase: str = "Running") -> Tree:
        """What a kubelet reports of a bound pod."""
        made = self._report(self.objects.get(POD, namespace, name), phase)
        self.settle()
        return made

    def finish_terminating(self) -> int:
        """What kubelets do at the end of the grace periods; how many pods went."""
        going = [pod for pod in self.store.all(POD) if "deletionTimestamp" in pod["metadata"]]
        for pod in going:
            self.store.drop(POD, pod)
        self.settle()
        return len(going)

    def advance(self, seconds: float) -> None:
        """Move the cluster's own clock."""
        assert isinstance(self.clock, Clock)
        self.clock.advance(seconds)

    def _report(self, pod: Tree, phase: str) -> Tree:
        """The pod with a status as kubelets write it."""
        now, before = self.store.now(), pod["status"].get("conditions") or []
        words = {"PodScheduled": "True", "Ready": str(phase == "Running")}
        conditions = [one for one in before if one["type"] not in words]
        conditions += [
            {"type": kind, "status": word, "lastTransitionTime": now}
            for kind, word in words.items()
        ]
        status = pod["status"] | {"phase": phase, "startTime": now, "conditions": conditions}
        return self.store.keep(POD, pod | {"status": status}, manager="kubelet", sub="status")
