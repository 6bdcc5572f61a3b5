"""The interface of GPU back ends, and what most of them share.

Annotations depend on trees alone; only a back end that ``allocates`` sends requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from models.apply.live_state import ClusterView, LivePod
from models.apply.orders import Orders, PodOrder
from models.apply.requests import Done, Event
from models.policy import GPU_RESOURCES, KubernetesPolicy
from models.units import InvalidValueError, quantity
from planner.cluster.transport import Transport, Tree
from planner.read.kube.lookup import mapping, text

MODE_BINDING = "binding"

_SCHEDULER = "default-scheduler"
_OURS = KubernetesPolicy().scheduler_name


class Backend(Protocol):
    """One way to make a node use the GPUs that were chosen; keeps what it has read for one run.

    ``name``: as in the Policy. ``keys``: annotations of pods that it writes beside the intent's; they
    are taken off with the intent. ``accept``: regexes (without commas) of the URL paths it asks for,
    besides those of nodes and pods. ``allocates``: whether ``allocate`` and ``release`` do anything.
    """

    name: str
    keys: tuple[str, ...]
    accept: tuple[str, ...]
    allocates: bool

    def note(self) -> str:
        """What it enforces and what not, one sentence for people."""

    def check(self, orders: Orders, view: ClusterView) -> list[str]:
        """Gangs for which pods would be evicted in vain, as far as plan and view tell; sorted."""

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """What to write on the pod together with its intent; the trees as the server sent them.

        Raises CannotEncode.
        """

    def allocate(self, wire: Transport, order: PodOrder, seen: LivePod, pod_tree: Tree) -> Event:
        """Give the pod its devices; after a crash at any step the same call finishes it.

        Done; Gone where another pod has the name; Refused where it cannot be carried; Conflict or Lost
        where the same call may do later.
        """

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Take back what ``allocate`` gave to a pod that was never started; idempotent."""


class Plain(ABC):
    """A back end that sends nothing: annotations, or not even those."""

    name = ""
    keys: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    allocates = False

    @abstractmethod
    def note(self) -> str:
        """What it enforces and what not, one sentence for people."""

    def check(self, orders: Orders, view: ClusterView) -> list[str]:
        """Nothing speaks against it."""
        del orders, view
        return []

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """Nothing beside the intent."""
        del order, node_tree, pod_tree
        return {}

    def allocate(self, wire: Transport, order: PodOrder, seen: LivePod, pod_tree: Tree) -> Event:
        """Nothing to do."""
        del wire, order, seen, pod_tree
        return Done()

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Nothing was given."""
        del wire, pod_tree
        return Done()


def scheduler_of(pod_tree: Tree) -> str:
    """The scheduler that a pod names."""
    return text(pod_tree, "spec", "schedulerName") or _SCHEDULER


def bound_by_us(order: PodOrder, pod_tree: Tree) -> bool:
    """Whether no scheduler but us places the pod.

    A plan calls pods that are gated besides gated, and what recovers a gang knows no mode: then only the
    scheduler's name tells, where the Policy leaves it as it is.
    """
    return order.mode == MODE_BINDING or scheduler_of(pod_tree) == _OURS


def fills_node(order: PodOrder, node_tree: Tree) -> bool:
    """Whether the pod takes every GPU its node has, so that there is nothing to choose."""
    capacity = mapping(node_tree, "status", "capacity")
    counts = [_count(capacity.get(name)) for name in GPU_RESOURCES if name in capacity]
    return order.gpu_count > 0 and bool(counts) and order.gpu_count >= max(counts)


def _count(written: object) -> int:
    if not isinstance(written, str | int):
        return 0
    try:
        return int(quantity(str(written)))
    except InvalidValueError:
        return 0


def hindered(
    orders: Orders, view: ClusterView, words: Callable[[PodOrder, LivePod], str | None]
) -> list[str]:
    """A sentence for every gang with a pod that cannot be told of its GPUs, where the plan evicts.

    Nobody is evicted for a gang that then cannot start. In a plan that evicts nobody such a gang stops by
    itself, and must not stop the others. ``words``: what speaks against a pod, None if nothing.
    """
    if not any(gang.stops for gang in orders.gangs):
        return []
    found: dict[str, None] = {}
    for gang in orders.gangs:
        for order in gang.starts:
            seen, node = view.pods.get(order.key), view.nodes.get(order.node)
            whole = node is not None and order.gpu_count >= node.gpus
            if seen is None or not order.gpus or whole:
                continue
            if (why := words(order, seen)) is not None:
                found[f"gang {gang.namespace}/{gang.name}: {why}"] = None
    return sorted(found)
