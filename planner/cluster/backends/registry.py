"""How the GPUs that a plan chose reach the node: one back end each way, chosen by the Policy."""

from __future__ import annotations

from models.apply.intents import PLAN
from models.apply.live_state import ClusterView, LivePod
from models.apply.plan_actions import PlanActions, PodStart
from planner.cluster.backends.base import Backend, Plain, fills_node, objections, scheduler_of
from planner.cluster.transport import Tree
from planner.read.kube.dialect_registry import annotation_backends
from planner.read.kube.dialects.base import AnnotationBackend, CannotEncode, annotation
from planner.read.kube.lookup import texts


def backend_of(name: str) -> Backend:
    """The back end that ``kubernetes.gpuBackend`` names. KeyError for an unknown name."""
    from planner.cluster.backends.dra import Dra

    if name == Dra.name:
        return Dra()
    plain: dict[str, Backend] = {one.name: one for one in (Advisory(), NodeChoice())}
    return plain[name] if name in plain else Annotated(annotation_backends()[name])


class Advisory(Plain):
    """``gangplan.dev/gpus`` on the pod names its GPUs: part of the intent, so nothing more is written."""

    name = "annotation"

    def note(self) -> str:
        return (
            "gangplan.dev/gpus on a pod names the GPUs that the plan gave it and enforces nothing: "
            "the node chooses"
        )


class NodeChoice(Plain):
    """The node chooses. The intent still names the GPUs, because the next plan needs them."""

    name = "none"

    def note(self) -> str:
        return "the node chooses the GPUs of each pod; only whole nodes are certain"


class Annotated(Plain):
    """The annotation of a dialect, from which a scheduler or the node takes the GPUs."""

    def __init__(self, backend: AnnotationBackend) -> None:
        self._backend = backend
        self.name = backend.name
        self.keys = (backend.key,)

    def note(self) -> str:
        return self._backend.note

    def check(self, orders: PlanActions, view: ClusterView) -> list[str]:
        """Gangs that take a part of a node and whose scheduler cannot be given chosen GPUs."""

        def objection(order: PodStart, seen: LivePod) -> str | None:
            why = self._backend.objection(seen.scheduler)
            return None if why is None else f"pod {order.name}: {why}"

        return objections(orders, view, objection)

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """The annotation; nothing if the plan leaves the choice to the node."""
        backend, gpus = self._backend, order.gpus
        cards = tuple(gpu for gpu in order.shares if isinstance(gpu, int))
        shares = not gpus and backend.shares and len(cards) == len(order.shares) > 0
        if shares:
            gpus = cards
        if not gpus:
            return {}
        objection = backend.objection(scheduler_of(pod_tree))
        if objection is not None:
            if shares or fills_node(order, node_tree):
                return {}
            raise CannotEncode(objection)
        existing = texts(pod_tree, "metadata", "annotations")
        if annotation(existing, backend.key) is not None and annotation(existing, PLAN) is None:
            raise CannotEncode(f"its own annotation {backend.key} {backend.chosen_by_owner}")
        return {backend.key: backend.value(gpus, order.node, node_tree, pod_tree)}
