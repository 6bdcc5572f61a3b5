"""Where a pod stands or waits, and whether it is ours to place.

Promises: a pod bound to a node stands there whatever else it says; room planned for a pod is kept
until it is bound or gone. Called by ``pods``.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.policy import KubernetesPolicy
from planner.reading.kubernetes.forms import KubeObject
from planner.reading.kubernetes.looking import Tree, at, items, mapping, objects, text
from planner.reading.kubernetes.pods.claims import Claimed
from planner.reading.kubernetes.pods.pinning import Places, nominated, planned
from planner.reading.remarks import Remarks

FINISHED = ("Succeeded", "Failed")
DEFAULT_SCHEDULER = "default-scheduler"

_WAITING = (None, "Pending", "Unknown")


@dataclass(frozen=True, slots=True)
class Standing:
    """See ``KubePod``: the fields of the same names."""

    node: str | None
    bound: bool
    finished: str | None
    terminating: bool
    mode: str | None
    gates: tuple[str, ...]
    scheduler: str


def read_standing(
    pod: KubeObject, claimed: Claimed, places: Places, policy: KubernetesPolicy, remarks: Remarks
) -> Standing:
    """Where the pod is, or will be; ``mode`` only if it waits and is ours to place."""
    spec = mapping(pod.tree, "spec")
    phase = text(pod.tree, "status", "phase")
    finished = phase if phase in FINISHED else None
    terminating = at(pod.tree, "metadata", "deletionTimestamp") is not None
    scheduler = text(spec, "schedulerName") or DEFAULT_SCHEDULER
    gates = _gates(spec)
    node, bound = _bound(spec, places)
    mode = None
    if finished is not None:
        bound = False
    elif bound:
        if node is None:
            what = "bound to a node that is not there: it counts as missing"
            remarks.add(pod.subject, what)
    elif phase not in _WAITING:
        remarks.add(pod.subject, "runs, but on no node; it is left aside")
    elif not terminating:
        mode = _mode(scheduler, gates, policy)
        node = _planned(pod, spec, mode, claimed, places, remarks)
    return Standing(
        node=node,
        bound=bound,
        finished=finished,
        terminating=terminating,
        mode=mode if node is None else None,
        gates=gates,
        scheduler=scheduler,
    )


def _gates(spec: Tree) -> tuple[str, ...]:
    if "schedulingGates" not in spec:
        return ()
    return tuple(
        name
        for gate in objects(spec, "schedulingGates")
        if (name := text(gate, "name")) is not None
    )


def _bound(spec: Tree, places: Places) -> tuple[str | None, bool]:
    """(node, whether the pod is bound); the node is None where the input does not have it."""
    written = spec.get("nodeName")
    if written is None or written == "":
        return None, False
    return (written if isinstance(written, str) and written in places.nodes else None), True


def _mode(scheduler: str, gates: tuple[str, ...], policy: KubernetesPolicy) -> str | None:
    """How a waiting pod of ours is started; None if it is not ours."""
    if policy.scheduling_gate in gates:
        return "gate"
    return "binding" if scheduler == policy.scheduler_name else None


def _planned(
    pod: KubeObject,
    spec: Tree,
    mode: str | None,
    claimed: Claimed,
    places: Places,
    remarks: Remarks,
) -> str | None:
    """The node a waiting pod will go to whatever we plan; None if that is open."""
    found = [planned(pod, places) if mode is not None else None, nominated(pod)]
    if claimed.held and claimed.exclusive:
        found.append(claimed.node)
    # a pod of ours that is pinned still waits for us to bind it
    if mode is None and not items(spec, "schedulingGates"):
        found.append(places.pinned(spec))
    for name in found:
        if name is not None and name in places.nodes:
            return name
    if any(name is not None for name in found):
        remarks.add(pod.subject, "planned on a node that is not there; it waits")
    return None
