"""What every back end can do: the interface, and what most of them do the same way.

Promises: no request of its own unless ``allocates``; judged from trees it is given. Implemented by the
other files of this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from models.applying.asking import Done, Event
from models.applying.orders import Orders, PodOrder
from models.applying.seen import PodSeen, View
from planner.cluster.wire import Tree, Wire


class CannotCarry(Exception):  # noqa: N818  # said of a plan, not of a fault of ours
    """The back end cannot tell the node which GPUs the pod was given.

    ``why``: a clause about the pod, without a full stop; may hold names of the cluster (untrusted).
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Backend(Protocol):
    """One way to make a node use the GPUs that were chosen.

    ``name``: as in the Policy. ``keys``: annotations of pods that it writes beside the intent's; they
    are taken off with the intent. ``accept``: regexes (without commas) of the URL paths it asks for,
    besides those of nodes and pods. ``allocates``: whether ``allocate`` and ``release`` send anything;
    whether a pod's and a node's trees are needed is in ``needs_trees``.
    """

    name: str
    keys: tuple[str, ...]
    accept: tuple[str, ...]
    allocates: bool
    needs_trees: bool

    def note(self) -> str:
        """What it enforces and what not, one sentence for people."""

    def check(self, orders: Orders, view: View) -> list[str]:
        """What speaks against carrying the plan, before anything is written; sorted, [] if nothing."""

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        """What to write on the pod together with its intent. Raises CannotCarry.

        ``node_tree``, ``pod_tree``: the objects as the server gave them; {} if not ``needs_trees``.
        """

    def allocate(
        self, wire: Wire, order: PodOrder, seen: PodSeen, *, clock: Callable[[], float]
    ) -> Event:
        """Give the pod its devices; after a crash at any step the same call finishes it.

        ``clock``: seconds since the epoch, used where the server does not say its time. Done; Refused
        where it cannot be carried; Conflict or Lost where it may be asked again.
        """

    def release(self, wire: Wire, seen: PodSeen) -> Event:
        """Take back what ``allocate`` gave to a pod that was never started; idempotent."""


class Plain(ABC):
    """A back end that needs no request and no tree: annotations of the intent, or nothing."""

    name = ""
    keys: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    allocates = False
    needs_trees = False

    @abstractmethod
    def note(self) -> str:
        """What it enforces and what not, one sentence for people."""

    def check(self, orders: Orders, view: View) -> list[str]:
        del orders, view
        return []

    def annotations(self, order: PodOrder, node_tree: Tree, pod_tree: Tree) -> dict[str, str]:
        del order, node_tree, pod_tree
        return {}

    def allocate(
        self, wire: Wire, order: PodOrder, seen: PodSeen, *, clock: Callable[[], float]
    ) -> Event:
        del wire, order, seen, clock
        return Done()

    def release(self, wire: Wire, seen: PodSeen) -> Event:
        del wire, seen
        return Done()
