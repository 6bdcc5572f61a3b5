"""What tests fill a cluster with: nodes, pods, gangs of a Job; and harmless changes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from apiserver_controllers import Controllers, reference
from apiserver_kinds import POD, Json, Place, Tree
from apiserver_objects import Objects
from kube import node as made_node

GATE = "gangplan.dev/placement"
GPU = "nvidia.com/gpu"


class Contents:
    """Of a ``FakeCluster``. Each returns the object as stored."""

    objects: Objects
    controllers: Controllers
    put: Callable[[Tree], Tree]
    create: Callable[[Tree], Tree]
    add_namespace: Callable[[str], Tree]
    change: Callable[..., Tree]
    report: Callable[[Tree, str], Tree]
    settle: Callable[[], None]
    pod: Callable[[str, str], Tree]

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
        return self.put(tree)

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
        made = self.objects.create(Place(POD, namespace), tree)
        if phase or node:
            self.report(made, phase or "Running")
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
        head = {"apiVersion": "batch/v1", "kind": "Job"}
        job, made = self.create(head | {"metadata": metadata, "spec": spec}), []
        for index in range(size):
            number = {"batch.kubernetes.io/job-completion-index": str(index)}
            more = number | {"batch.kubernetes.io/job-name": name} | dict(labels or {})
            given = {"annotations": number, "owner": job, "gates": [GATE], **pod}
            given |= {"gates": [], "node": nodes[index]} if index < len(nodes) else {}
            made.append(self.add_pod(f"{name}-{index}", namespace, gpus, labels=more, **given))
        if comes_back:
            self.controllers.births.append((job, list(map(_as_born, made))))
        return made

    def touch(self, kind: str, name: str, namespace: str = "default") -> Tree:
        """A harmless change: only an annotation, and so the resourceVersion, is another."""
        touched = {"example.com/touched": str(self.objects.revision)}

        def change(tree: Tree) -> Tree:
            notes = (tree["metadata"].get("annotations") or {}) | touched
            return tree | {"metadata": tree["metadata"] | {"annotations": notes}}

        return self.change(kind, name, change, namespace)

    def cordon(self, node: str) -> Tree:
        cordoned = {"unschedulable": True}
        return self.change("Node", node, lambda tree: tree | {"spec": tree["spec"] | cordoned})


def _as_born(pod: Tree) -> Tree:
    """What to post to make it again: neither where it ran nor what was written on it since."""
    keys = ("name", "namespace", "labels", "annotations", "ownerReferences")
    metadata = {key: pod["metadata"][key] for key in keys if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"metadata": metadata, "spec": spec | {"schedulingGates": [{"name": GATE}]}}
