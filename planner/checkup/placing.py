"""Checks of what plans rely on: nodes kept from other schedulers, PodGroups, the GPU back end.

Promises: judges one reading of the cluster, sends nothing but lists. Called by ``examining``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from models.applying.seen import NodeSeen, PodSeen, View
from planner.checkup.findings import Finding, Level, odd, well
from planner.cluster.guarding import open_nodes, unguarded
from planner.cluster.lists import GROUPS, SLICES
from planner.cluster.wire import Wire
from planner.errors import InputError, StaleError
from planner.showing.text import plural

if TYPE_CHECKING:
    from models.applying.orders import Orders
    from models.policy import KubernetesPolicy
    from planner.cluster.backends import Backend

_SHOWN = 3
_KEEP = "keep others off: kubectl taint nodes NAME example.com/gangplan=only:NoSchedule"


def waiting(view: View, settings: KubernetesPolicy) -> list[PodSeen]:
    """Pods that are ours to start, by (namespace, name)."""
    return [
        pod
        for _, pod in sorted(view.pods.items())
        if pod.node is None
        and not pod.finished
        and not pod.terminating
        and (pod.scheduler == settings.scheduler_name or settings.scheduling_gate in pod.gates)
    ]


def nodes(view: View, settings: KubernetesPolicy, orders: Orders | None) -> Finding:
    """Whether nodes that we bind pods onto are kept from other schedulers.

    With a plan its own nodes; without one every node with GPUs, where pods wait to be bound by us.
    """
    if orders is not None:
        opened = open_nodes(orders, view)
        if opened:
            said = f"{_named(opened)}; apply refuses to bind there"
            return Finding("nodes", Level.fail, said, _KEEP, StaleError.exit_code)
        return well("nodes", "those that the plan binds pods onto are kept from other schedulers")
    bound = [pod for pod in waiting(view, settings) if pod.scheduler == settings.scheduler_name]
    if not bound:
        return well("nodes", "no pods wait to be bound by us: kube-scheduler looks after the nodes")
    every = [node for _, node in sorted(view.nodes.items()) if _usable(node)]
    opened = unguarded(
        every,
        view.pods.values(),
        scheduler=settings.scheduler_name,
        gpu_resources=settings.gpu_resources,
    )
    if not opened:
        return well("nodes", f"{plural(len(every), 'node')} with GPUs, all kept from others")
    said = f"{len(opened):,} of {plural(len(every), 'node')} with GPUs open to others: {_named(opened)}"
    return odd("nodes", f"{said}; apply refuses to bind there", _KEEP)


def _usable(node: NodeSeen) -> bool:
    return node.gpus > 0 and node.ready and not node.unschedulable


def _named(opened: list[tuple[str, str]]) -> str:
    named = "; ".join(f"{name}: {why}" for name, why in opened[:_SHOWN])
    return named + (f"; and {len(opened) - _SHOWN:,} more" if len(opened) > _SHOWN else "")


def groups(wire: Wire) -> Finding:
    """Whether gangs can be atomic in gate mode."""
    if _served(wire, GROUPS):
        said = "served: a gang with one of its size starts whole or not at all"
    else:
        said = (
            "not served: a gang that is cut off half-way is finished, or reported, by the next run"
        )
    return well("native PodGroups", said)


def backend(wire: Wire, chosen: Backend, orders: Orders | None, view: View) -> Iterator[Finding]:
    """What the back end enforces, and what speaks against it."""
    if chosen.name == "dra" and not _served(wire, SLICES):
        said = "dra: this cluster serves no ResourceSlices"
        hint = "install a DRA driver, or choose another kubernetes.gpuBackend in the Policy"
        yield Finding("GPU back end", Level.fail, said, hint, InputError.exit_code)
        return
    complaints = [] if orders is None else chosen.check(orders, view)
    for complaint in complaints:
        hint = "see docs/gpus.md, or choose another kubernetes.gpuBackend in the Policy"
        said = f"{chosen.name}: {complaint}"
        yield Finding("GPU back end", Level.fail, said, hint, InputError.exit_code)
    if not complaints:
        yield well("GPU back end", f"{chosen.name}: {chosen.note()}")


def _served(wire: Wire, paths: tuple[str, ...]) -> bool:
    return any(wire.send("GET", f"{path}?limit=1").ok for path in paths)
