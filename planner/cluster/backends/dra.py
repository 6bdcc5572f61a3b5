"""The back end ``dra``: the pod's ResourceClaims are allocated with the devices that were chosen.

Promises: a pod is given all its devices or refused in words; what went wrong on the way is an event, never
an exception. Called through ``backend_of``.
"""

from __future__ import annotations

from models.apply.live_state import LivePod
from models.apply.orders import PodOrder
from models.apply.requests import Done, Event, Gone, NoAnswer, Rejected
from planner.cluster.backends.base import Plain, bound_by_us, fills_node
from planner.cluster.backends.dra_allocation import Answered, User, allocate, release
from planner.cluster.backends.dra_devices import VERSION, Devices
from planner.cluster.pages import NotServedError
from planner.cluster.transport import Transport, Tree
from planner.errors import NotPermittedError, UnavailableError
from planner.read.kube.devices.slices import GROUP
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import objects, text
from planner.untrusted_text import one_line

_ACCEPT = (
    r"^/apis/resource\.k8s\.io/v1/"
    r"(resourceslices|deviceclasses|resourceclaims|"
    r"namespaces/[a-z0-9.-]+/resourceclaims/[a-z0-9.-]+(/status)?)$"
)


class Dra(Plain):
    """Allocates claims in place of kube-scheduler."""

    name = "dra"
    accept: tuple[str, ...] = (_ACCEPT,)
    allocates = True

    def __init__(self) -> None:
        """Devices are read with the first pod of a run."""
        self._devices: Devices | None = None

    def note(self) -> str:
        return (
            "ResourceClaims are allocated with the devices that the plan chose, and drivers give "
            "exactly those; no server stops another scheduler from allocating one of them meanwhile"
        )

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """None; a pod without claims can only take whole nodes."""
        claims = objects(pod_tree, "spec", "resourceClaims")
        if order.gpus and not claims and not fills_node(order, node_tree):
            raise CannotEncode("it asks for its GPUs without a ResourceClaim, so the node chooses")
        if order.gpu_count and order.gpus is None and claims and bound_by_us(order, pod_tree):
            raise CannotEncode("nobody would allocate its claims: the plan leaves the GPUs open")
        return {}

    def allocate(self, wire: Transport, order: PodOrder, seen: LivePod, pod_tree: Tree) -> Event:
        """Allocate and reserve every claim of the pod that is about GPUs."""
        if not objects(pod_tree, "spec", "resourceClaims"):
            return Done()
        if text(pod_tree, "metadata", "uid") != order.uid:
            return Gone("another pod stands under its name")
        plan = order.uid if seen.intent is None else seen.intent.plan
        user = User(order.namespace, order.name, order.uid, plan)
        try:
            if self._devices is None:
                self._devices = Devices.read(wire)
            return allocate(wire, self._devices, order, user, pod_tree)
        except (Answered, CannotEncode, ValueError, NotPermittedError, UnavailableError) as error:
            return _event(error)

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Deallocate the claims that we allocated for the pod, if it uses them alone."""
        try:
            freed = release(wire, pod_tree)
        except (Answered, ValueError) as error:
            return _event(error)
        if self._devices is not None:
            for holder in freed:
                self._devices.take(holder)
        return Done()


def _event(error: Exception) -> Event:
    """What an error on the way means to the machine."""
    match error:
        case Answered(event=event):
            return event
        case NotServedError():
            return Rejected(f"this cluster does not serve {GROUP}/{VERSION}")
        case UnavailableError():
            return NoAnswer(one_line(str(error)))
        case _:
            return Rejected(one_line(str(error)))
