"""What happens in a cluster behind our back, and how a test looks at it.

Promises: changes are those of other field managers; the controllers and kube-scheduler have reacted when
a call returns. Part of ``FakeCluster``.
"""

from __future__ import annotations

from collections.abc import Callable

from fake_kinds import NODE, POD, Kind, Kinds
from fake_objects import Objects
from fake_statuses import ApiError
from fake_store import Clock, Store
from fake_trees import Tree


class Meddling:
    """Helpers of a cluster. Each returns the object as stored, unless it says otherwise."""

    clock: Callable[[], float]
    kinds: Kinds
    store: Store
    objects: Objects

    def settle(self) -> None:
        raise NotImplementedError

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
