"""The way back while gangplan is away: pods at its gate go to the schedulers that they name.

Only if no run has made a plan for a given time. Under the lock, so never while a run starts gangs; what a
run has begun is completed or withdrawn first, as ``run`` does it, and pods of gangs that stay partial are
left to ``run``. All other pods at the gate are given back, so no gang is given back in part; an attempt
that is cut off goes on with the next one. Needs no right that ``run`` does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.apply.live_state import ClusterView, LivePod, PodClassifier
from models.apply.recovery import recorded_gangs
from models.apply.requests import Done, Gone, NotDone
from models.instance.policy import KubernetesPolicy
from planner.cluster import rights
from planner.cluster.lock import Lock, read_lease
from planner.cluster.request_sender import LEAST_LEFT_S, RequestSender
from planner.cluster.retry import RetryingTransport
from planner.cluster.transport import Tree, send_all
from planner.cluster.writes import event_of, pod_request
from planner.errors import Fault, LockedError
from planner.pipelines.apply import (
    ApplyOptions,
    ClusterTarget,
    recover,
    run_paths,
    sender_of,
    take_lock,
)
from planner.read.kube.lookup import at, time_of
from planner.show.console import Console
from planner.show.give_back import GivenBack
from planner.signals import Stop

_TOGETHER = 16
"""Patches on their way at once."""


@dataclass(frozen=True, slots=True)
class GiveBackRequest:
    """``after_s``: seconds without a plan after which pods are given back."""

    target: ClusterTarget
    settings: KubernetesPolicy
    lock_namespace: str
    after_s: int


def give_back(request: GiveBackRequest, console: Console, stop: Stop) -> GivenBack:
    """Give back every pod at the gate if gangplan is away.

    Raises LockedError if a run is at work, NotPermittedError, UnavailableError, Interrupted.
    """
    options = ApplyOptions(request.lock_namespace, wait_s=0)
    with request.target.connect(run_paths(options, request.settings)) as wire:
        transport = RetryingTransport(wire)
        lease = read_lease(transport, request.lock_namespace)
        if lease.planned is not None and lease.now is not None:
            quiet_s = int(lease.now) - lease.planned
            if quiet_s < request.after_s:
                return GivenBack(quiet_s)
        needed = (rights.IDENTITY, *rights.VIEW, *rights.lock_rights(request.lock_namespace))
        rights.require(transport, needed)
        lock = take_lock(wire, console, stop, options, operation="give-back")
        try:
            sender = sender_of(wire, lock, stop, request.settings, options)
            return _Attempt(request, options, lock, sender, stop, console.warn).carry_out()
        finally:
            lock.release()  # what it says of the last run stays


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt under the lock."""

    request: GiveBackRequest
    options: ApplyOptions
    lock: Lock
    sender: RequestSender
    stop: Stop
    warn: Callable[[str], None]

    def carry_out(self) -> GivenBack:
        view = self.sender.read_view()
        classifier = PodClassifier(self.sender.settings.scheduling_gate)
        quiet_s = self._quiet_s(_waiting(view, classifier))
        found = GivenBack(quiet_s)
        if quiet_s is None or quiet_s < self.request.after_s:
            return found
        if recover(view, self.options, self.sender, self.warn) is not None:
            self.stop.check()
            view = self.sender.read_view()
        begun = {order.key for group in recorded_gangs(view, classifier) for order in group.waiting}
        pods = _waiting(view, classifier)
        spaces = sorted({pod.namespace for pod in pods})
        wanted = rights.work_rights(spaces, evictions=False, backend="none")
        missing = rights.missing_rights(self.sender.wire, wanted)
        found.closed = tuple(sorted({str(right.namespace) for right in missing}))
        found.left = [pod.key for pod in pods if pod.key in begun]
        self._send(
            [p for p in pods if p.key not in begun and p.namespace not in found.closed], found
        )
        return found

    def _quiet_s(self, waiting: Sequence[LivePod]) -> int | None:
        """Since the last plan; if there is none, since the first of the pods was created."""
        since = self.lock.planned
        if since is None:
            trees = (self.sender.reader.pods[pod.key] for pod in waiting)
            created = [time_of(at(tree, "metadata", "creationTimestamp")) for tree in trees]
            since = min((one for one in created if one is not None), default=None)
        return None if since is None else self.lock.now() - since

    def _send(self, pods: Sequence[LivePod], found: GivenBack) -> None:
        """Take off the gate; the uid keeps a pod that is made again under the name as it is."""
        gate = self.sender.settings.scheduling_gate
        gates = [{"$patch": "delete", "name": gate}]
        for first in range(0, len(pods), _TOGETHER):
            self.stop.check()
            if not self.lock.holds(LEAST_LEFT_S):
                raise LockedError(Fault(f"the lock was lost: {self.lock.lost or 'not renewed'}"))
            batch = pods[first : first + _TOGETHER]
            bodies: list[Tree] = [
                {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}} for pod in batch
            ]
            sent = [
                pod_request("PATCH", *pod.key, body, dry=False)
                for pod, body in zip(batch, bodies, strict=True)
            ]
            for pod, reply in zip(batch, send_all(self.sender.wire, sent), strict=True):
                event = event_of(reply)
                if isinstance(event, Done):
                    found.pods.append(pod.key)
                elif isinstance(event, NotDone) and not isinstance(event, Gone):
                    found.failed.append((pod.key, event.message))


def _waiting(view: ClusterView, classifier: PodClassifier) -> list[LivePod]:
    """Pods at the gate, by name: those of one gang mostly stand together."""
    pods = (pod for _, pod in sorted(view.pods.items()) if not pod.expected)
    return [pod for pod in pods if pod.stays and not classifier.started(pod)]
