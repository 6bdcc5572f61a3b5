"""The lock's Lease on the test API server, and clients of it whose requests are slow or lost.

Time is a number that the test moves; each client has a clock of its own.
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apiserver import Clock, FakeCluster
from apiserver_kinds import LEASE, ApiError, Kind, Tree

from models.units import time_text
from planner.cluster.lock import Holder, Lock, acquire
from planner.cluster.transport import JSON, LOST, Reply

NAMESPACE = "gangplan-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH = f"{LEASES}/gangplan"

START = 1_795_255_200.0
"""2026-11-21T10:00:00Z."""


def micro(epoch: float) -> str:
    return time_text(int(epoch)).replace("Z", ".000000Z")


class LeaseServer:
    """``holders``: (time, holderIdentity) of every write. ``namespace``: whether there is one."""

    def __init__(self, *, now: float = START, namespace: bool = True) -> None:
        self.clock = Clock(now)
        self.cluster = FakeCluster(clock=self.clock)
        self.holders: list[tuple[float, str]] = []
        if namespace:
            self.cluster.add_namespace(NAMESPACE)
        self.cluster.objects.listeners.append(self._changed)

    @property
    def tree(self) -> Tree | None:
        """The Lease as it is stored; tests may change it in place."""
        return self.cluster.objects.find(LEASE, NAMESPACE, "gangplan")

    @property
    def spec(self) -> Tree:
        assert self.tree is not None
        return dict(self.tree["spec"])

    @property
    def notes(self) -> dict[str, str]:
        assert self.tree is not None
        return dict(self.tree["metadata"].get("annotations", {}))

    def taken_by(self, identity: str, renewed: float, *, duration: int = 60, **notes: str) -> None:
        """As if some client had written it."""
        spec = {"holderIdentity": identity, "leaseDurationSeconds": duration, "leaseTransitions": 0}
        spec |= {"acquireTime": micro(renewed), "renewTime": micro(renewed)}
        annotations = {f"gangplan.dev/{name}": text for name, text in notes.items()}
        metadata = {"name": "gangplan", "namespace": NAMESPACE, "annotations": annotations}
        api = {"apiVersion": LEASE.api_version, "kind": LEASE.name}
        self.cluster.put(api | {"metadata": metadata, "spec": spec})

    def _changed(self, kind: Kind, old: Tree | None, new: Tree | None) -> None:
        if kind == LEASE and new is not None:
            self.holders.append((self.clock.now, str(new["spec"].get("holderIdentity", ""))))


@dataclass
class LeaseWire:
    """A client's transport. ``offset``: its clock minus the server's. ``delay``: seconds there and back.

    ``fault``: what happens to the request of that number: None: all is well; before, after: the answer is
    lost, before or after it was done; a number: refused so. ``before``: called before it arrives.
    """

    server: LeaseServer
    offset: float = -1e6
    delay: Callable[[int], tuple[float, float]] = lambda _: (0.0, 0.0)
    fault: Callable[[int], str | None] = lambda _: None
    before: Callable[[int], object] = lambda _: None
    sent: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Tree | None] = field(default_factory=list)

    def clock(self) -> float:
        """The client's own, as ``acquire`` takes it."""
        return self.server.clock.now + self.offset

    def sleep(self, seconds: float) -> None:
        self.server.clock.now += seconds

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        assert content_type == JSON
        number, clock = len(self.sent), self.server.clock
        self.sent.append((method, path))
        self.bodies.append(copy.deepcopy(body))
        there, back = self.delay(number)
        clock.now += there
        self.before(number)
        fault = self.fault(number)
        if fault == "409" and method == "GET":
            fault = None  # no server says so of a read
        code, tree = LOST, {}
        if fault is not None and fault.isdigit():
            code, tree = int(fault), ApiError(int(fault), "refused by the test").tree()
        elif fault != "before":
            code, tree, _ = self.server.cluster.handle(method, path, copy.deepcopy(body))
        date = float(math.floor(clock.now))
        clock.now += back
        if fault in ("before", "after"):
            return Reply(LOST, why="no answer")
        return Reply(code, copy.deepcopy(tree), date)


def take(wire: LeaseWire, **more: Any) -> Lock:  # noqa: ANN401  # of acquire
    """Acquire the lock as somebody."""
    me = Holder(secrets.token_hex(5), "ana", "login1", "apply", "gp-1")
    given = {"namespace": NAMESPACE, "clock": wire.clock, "sleep": wire.sleep}
    return acquire(wire, me, **(given | more))
