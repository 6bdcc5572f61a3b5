"""How the GPUs that a plan chose reach the node: one back end each way, chosen by the Policy."""

from __future__ import annotations

from collections.abc import Sequence

from models.apply.intents import PLAN
from models.apply.live_state import ClusterView, LivePod
from models.apply.plan_actions import PlanActions, PodStart
from planner.cluster.backends.base import Backend, fills_node, objections, scheduler_of
from planner.cluster.transport import Tree
from planner.read.kube.dialects import hami
from planner.read.kube.dialects.base import CannotEncode, annotation
from planner.read.kube.lookup import texts


def backend_of(name: str) -> Backend:
    """The back end that ``kubernetes.gpuBackend`` names. KeyError for an unknown name."""
    from planner.cluster.backends.dra import Dra

    if name == Dra.name:
        return Dra()
    plain: dict[str, Backend] = {one.name: one for one in (Advisory(), NodeChoice(), Hami())}
    return plain[name]


class Advisory(Backend):
    """``gangplan.dev/gpus`` on the pod names its GPUs: part of the intent, so nothing more is written."""

    name = "annotation"

    def note(self) -> str:
        return (
            "the node chooses which of its GPUs a pod gets; the annotation gangplan.dev/gpus only "
            "says which ones the plan chose"
        )


class NodeChoice(Backend):
    """The node chooses. The intent still names the GPUs, because the next plan needs them."""

    name = "none"

    def note(self) -> str:
        return "the node chooses the GPUs of each pod; only whole nodes are certain"


class Hami(Backend):
    """The annotation from which HAMi's scheduler takes the cards, by their uuids."""

    name = "hami"

    def note(self) -> str:
        return (
            f"{hami.USE} limits HAMi's scheduler to the cards that the plan chose; "
            "pods of other schedulers may still use them"
        )

    def check(self, orders: PlanActions, view: ClusterView) -> list[str]:
        """Gangs that take a part of a node and whose scheduler cannot be given chosen GPUs."""

        def objection(order: PodStart, seen: LivePod) -> str | None:
            why = _objection(seen.scheduler)
            return None if why is None else f"pod {order.name}: {why}"

        return objections(orders, view, objection)

    def annotations(self, order: PodStart, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """The annotation; nothing if the plan leaves the choice to the node."""
        gpus = order.gpus
        cards = tuple(gpu for gpu in order.shares if isinstance(gpu, int))
        shares = not gpus and len(cards) == len(order.shares) > 0
        if shares:
            gpus = cards
        if not gpus:
            return {}
        objection = _objection(scheduler_of(pod_tree))
        if objection is not None:
            if shares or fills_node(order, node_tree):
                return {}
            raise CannotEncode(objection)
        existing = texts(pod_tree, "metadata", "annotations")
        if annotation(existing, hami.USE) is not None and annotation(existing, PLAN) is None:
            raise CannotEncode(f"its own annotation {hami.USE} chooses cards already")
        return {hami.USE: _uuids(gpus, order.node, node_tree, pod_tree)}


def _objection(scheduler: str) -> str | None:
    """HAMi's scheduler is recognised by its name, ``hami-scheduler`` by default."""
    if "hami" in scheduler.lower():
        return None
    return f"its scheduler is {scheduler}, and only HAMi's scheduler reads a list of cards"


def _uuids(gpus: Sequence[int], node: str, node_tree: Tree, pod_tree: Tree) -> str:
    """The uuids of the GPUs, in their order."""
    cards: dict[int, list[str]] = {}
    for uuid, index in hami.registered(texts(node_tree, "metadata", "annotations")).items():
        cards.setdefault(index, []).append(uuid)
    chosen = []
    for index in gpus:
        uuids = cards.get(index, [])
        if len(uuids) != 1:
            number_ = "no card" if not uuids else "several cards"
            raise CannotEncode(f"node {node} registered {number_} with HAMi as GPU {index}")
        chosen.append(uuids[0])
    avoided = texts(pod_tree, "metadata", "annotations").get(hami.AVOID) or ""
    if not {part.strip() for part in avoided.split(",")}.isdisjoint(chosen):
        raise CannotEncode(f"its annotation {hami.AVOID} forbids a card that the plan gives it")
    return ",".join(chosen)
