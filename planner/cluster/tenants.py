"""Namespaces that this account may start no pods in: what waits there is left out of the plans of ``run``.

Promises: one namespace without rights, which anybody may fill with pods that wait, stops no run for the
others; where all of them lack rights nothing is left out, and the run says so. Called by
``planner.live.rounds``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from models.applying.states import Ways
from planner.cluster.rights import lacking, working
from planner.cluster.wire import Tree, Wire
from planner.reading.kubernetes.looking import mapping, objects, text

if TYPE_CHECKING:
    from models.applying.seen import View


def unserved(wire: Wire, view: View, ways: Ways, backend: str) -> tuple[str, ...]:
    """Those where pods of ours wait and a right to start them is missing; none if it is so of all."""
    waiting = sorted(
        {
            pod.namespace
            for pod in view.pods.values()
            if not (ways.started(pod) or pod.finished or pod.terminating)
        }
    )
    if len(waiting) < 2:
        return ()
    missing = lacking(wire, working(waiting, evictions=False, backend=backend))
    found = {right.namespace for right in missing}
    return () if found.issuperset(waiting) else tuple(one for one in waiting if one in found)


def unyielding(wire: Wire, view: View, backend: str) -> tuple[str, ...]:
    """Those where pods with GPUs run and a right to evict them is missing."""
    running = sorted(
        {pod.namespace for pod in view.pods.values() if pod.node and pod.gpus and not pod.finished}
    )
    missing = lacking(wire, working(running, evictions=True, backend=backend))
    found = {right.namespace for right in missing}
    return tuple(one for one in running if one in found)


def waiting_in(namespaces: Collection[str], ways: Ways) -> Callable[[Tree], bool]:
    """Whether a pod waits for us in one of them."""

    def waits(tree: Tree) -> bool:
        spec = mapping(tree, "spec")
        if text(tree, "metadata", "namespace") not in namespaces or text(spec, "nodeName"):
            return False
        gates = (gate.get("name") for gate in objects(spec, "schedulingGates"))
        return ways.gate in gates or text(spec, "schedulerName") == ways.scheduler

    return waits


def told(namespaces: Collection[str]) -> str:
    """A line on what is left out."""
    named = ", ".join(sorted(namespaces)[:5]) + (", ..." if len(namespaces) > 5 else "")
    return f"not permitted to start pods in {named}: what waits there is not planned"
