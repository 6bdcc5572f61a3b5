"""One Lease of an API server, from memory: its preconditions, its clock, and answers that are lost.

Promises: the answers are those measured on kube-apiserver 1.36 for create, replace and get of a Lease;
time is a number that the test moves. A LeaseWire is one client's way to it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.cluster.transport import JSON, LOST, Reply

Tree = dict[str, Any]

NAMESPACE = "gangplan-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH = f"{LEASES}/gangplan"
RESOURCE = 'leases.coordination.k8s.io "gangplan"'

START = 1_795_255_200.0
"""2026-11-21T10:00:00Z."""


def status(code: int, reason: str, message: str) -> tuple[int, Tree]:
    tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, {**tree, "message": message, "reason": reason, "code": code}


@dataclass
class LeaseServer:
    """``now``: its clock; ``holders``: (time, holderIdentity) of every write that was done."""

    now: float = START
    tree: Tree | None = None
    namespace: bool = True
    holders: list[tuple[float, str]] = field(default_factory=list)
    _version: int = 4194

    def handle(self, method: str, target: str, body: Tree | None) -> tuple[int, Tree]:
        path = target.partition("?")[0]
        if method == "GET" and path == PATH:
            if self.tree is None:
                return status(404, "NotFound", f"{RESOURCE} not found")
            return 200, copy.deepcopy(self.tree)
        if method == "POST" and path == LEASES and body is not None:
            return self._created(body)
        if method == "PUT" and path == PATH and body is not None:
            return self._replaced(body)
        return status(404, "NotFound", "the server could not find the requested resource")

    def taken_by(self, identity: str, renewed: float, *, duration: int = 60, **notes: str) -> None:
        """As if some client had written it."""
        written = {f"gangplan.dev/{name}": text for name, text in notes.items()}
        self._write(
            {
                "metadata": {"name": "gangplan", "namespace": NAMESPACE, "annotations": written},
                "spec": {
                    "holderIdentity": identity,
                    "leaseDurationSeconds": duration,
                    "acquireTime": micro(renewed),
                    "renewTime": micro(renewed),
                    "leaseTransitions": 0,
                },
            }
        )

    @property
    def spec(self) -> Tree:
        assert self.tree is not None
        return dict(self.tree["spec"])

    @property
    def notes(self) -> dict[str, str]:
        assert self.tree is not None
        return dict(self.tree["metadata"].get("annotations", {}))

    def _created(self, body: Tree) -> tuple[int, Tree]:
        if not self.namespace:
            return status(404, "NotFound", f'namespaces "{NAMESPACE}" not found')
        if self.tree is not None:
            return status(409, "AlreadyExists", f"{RESOURCE} already exists")
        assert "resourceVersion" not in body["metadata"]
        return 201, self._write(body)

    def _replaced(self, body: Tree) -> tuple[int, Tree]:
        if self.tree is None:
            return status(404, "NotFound", f"{RESOURCE} not found")
        version = body["metadata"].get("resourceVersion")
        if version is None:
            return status(422, "Invalid", f"{RESOURCE} is invalid: metadata.resourceVersion: ...")
        if version != self.tree["metadata"]["resourceVersion"]:
            return status(409, "Conflict", f"Operation cannot be fulfilled on {RESOURCE}: ...")
        return 200, self._write(body)

    def _write(self, body: Tree) -> Tree:
        self._version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version), "uid": "u-1"}
        self.tree = {**copy.deepcopy(body), "metadata": copy.deepcopy(metadata)}
        self.holders.append((self.now, str(body["spec"].get("holderIdentity", ""))))
        return copy.deepcopy(self.tree)


def micro(epoch: float) -> str:
    from models.units import time_text

    return time_text(int(epoch)).replace("Z", ".000000Z")


Fault = str | None
"""None: all is well. before, after: the answer is lost, before or after it was done. A number: refused so."""


@dataclass
class LeaseWire:
    """A client's wire. ``offset``: its clock minus the server's. ``delay``: seconds to the server, and back.

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
            code, tree = status(int(fault), "Whatever", "refused by the test")
        else:
            code, tree = self.server.handle(method, path, copy.deepcopy(body))
        date = float(math.floor(self.server.now))
        self.server.now += back
        if fault == "after":
            return Reply(LOST, why="no answer")
        return Reply(code, tree, date)
