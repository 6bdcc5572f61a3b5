"""The lock's Lease on the test API server, and clients of it whose requests are slow or lost.

Time is a number that the test moves; each client has a clock of its own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from apiserver import FakeCluster
from apiserver_errors import ApiError
from apiserver_kinds import LEASE, Kind, Tree
from apiserver_store import Clock

from models.units import time_text
from planner.cluster.transport import JSON, LOST, Reply

NAMESPACE = "gangplan-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH = f"{LEASES}/gangplan"

START = 1_795_255_200.0
"""2026-11-21T10:00:00Z."""


class LeaseServer:
    """``holders``: (time, holderIdentity) of every write. ``namespace``: whether there is one."""

    def __init__(self, *, now: float = START, namespace: bool = True) -> None:
        self._clock = Clock(now)
        self._cluster = FakeCluster(clock=self._clock)
        self.holders: list[tuple[float, str]] = []
        if namespace:
            self._cluster.add_namespace(NAMESPACE)
        self._cluster.store.listeners.append(self._changed)

    @property
    def now(self) -> float:
        return self._clock.now

    @now.setter
    def now(self, seconds: float) -> None:
        self._clock.now = seconds

    @property
    def tree(self) -> Tree | None:
        """The Lease as it is stored; tests may change it in place."""
        return self._cluster.store.get(LEASE, NAMESPACE, "gangplan")

    @tree.setter
    def tree(self, tree: Tree | None) -> None:
        if tree is None and self.tree is not None:
            self._cluster.store.drop(LEASE, self.tree)

    @property
    def spec(self) -> Tree:
        assert self.tree is not None
        return dict(self.tree["spec"])

    @property
    def notes(self) -> dict[str, str]:
        assert self.tree is not None
        return dict(self.tree["metadata"].get("annotations", {}))

    def handle(self, method: str, target: str, body: Tree | None) -> tuple[int, Tree]:
        code, tree, _ = self._cluster.handle(method, target, copy.deepcopy(body))
        return code, copy.deepcopy(tree)

    def taken_by(self, identity: str, renewed: float, *, duration: int = 60, **notes: str) -> None:
        """As if some client had written it."""
        written = {f"gangplan.dev/{name}": text for name, text in notes.items()}
        spec = {
            "holderIdentity": identity,
            "leaseDurationSeconds": duration,
            "acquireTime": micro(renewed),
            "renewTime": micro(renewed),
            "leaseTransitions": 0,
        }
        metadata = {"name": "gangplan", "namespace": NAMESPACE, "annotations": written}
        api = {"apiVersion": LEASE.api_version, "kind": LEASE.name}
        self._cluster.put(api | {"metadata": metadata, "spec": spec})

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if kind == LEASE and new is not None:
            self.holders.append((self.now, str(new["spec"].get("holderIdentity", ""))))


def micro(epoch: float) -> str:
    return time_text(int(epoch)).replace("Z", ".000000Z")


Fault = str | None
"""None: all is well. before, after: the answer is lost, before or after it was done. A number: refused so."""


@dataclass
class LeaseWire:
    """A client's transport. ``offset``: its clock minus the server's. ``delay``: seconds there and back.

    ``fault``: what happens to the request of that number; ``before``: called before it arrives.
    """

    server: LeaseServer
    offset: float = -1e6
    delay: Callable[[int], tuple[float, float]] = lambda _: (0.0, 0.0)
    fault: Callable[[int], Fault] = lambda _: None
    before: Callable[[int], object] = lambda _: None
    sent: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Tree | None] = field(default_factory=list)

    def clock(self) -> float:
        """The client's own, as ``acquire`` takes it."""
        return self.server.now + self.offset

    def sleep(self, seconds: float) -> None:
        self.server.now += seconds

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        assert content_type == JSON
        number = len(self.sent)
        self.sent.append((method, path))
        self.bodies.append(copy.deepcopy(body))
        there, back = self.delay(number)
        self.server.now += there
        self.before(number)
        fault = self.fault(number)
        if fault == "409" and method == "GET":
            fault = None  # no server says so of a read
        if fault == "before":
            self.server.now += back
            return Reply(LOST, why="no answer")
        if fault is not None and fault.isdigit():
            code, tree = int(fault), ApiError(int(fault), "refused by the test").tree()
        else:
            code, tree = self.server.handle(method, path, body)
        date = float(math.floor(self.server.now))
        self.server.now += back
        if fault == "after":
            return Reply(LOST, why="no answer")
        return Reply(code, tree, date)
