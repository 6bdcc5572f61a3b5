"""GPUs: none is given that another pod has; sick ones are never given; what nobody knows is not named.

On a node after the plan, with healthy GPUs H, GPUs K of pods whose GPUs are known, and k GPUs held or sick
nobody knows which:  given without indices <= |H| - |K and H| - k;  k > 0 => pods placed there carry null;
k = 0 => they carry indices, unless the node decides (gpuBinding none, no switch, part of it): null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.verify.changes import Change, NodeUse, Usage
from models.verify.facts import Facts, Node, Pod
from models.verify.form import printable
from models.verify.violation import Violation


def check(facts: Facts, changes: Sequence[Change], usage: Usage) -> Iterator[Violation]:
    for node, use in zip(facts.nodes, usage.nodes, strict=True):
        if not use.tenants:
            continue
        if use.shared:
            yield from _shared(node, use, changes)
        if any(placed for _, _, placed in use.tenants):
            yield from _given(facts, node, use, changes)


def _shared(node: Node, use: NodeUse, changes: Sequence[Change]) -> Iterator[Violation]:
    """Pods that stay may have shared a GPU before the plan: only what it gives is at fault."""
    given = 0
    for _, pod, placed in use.tenants:
        given |= (pod.gpus or 0) if placed else 0
    for position, pod, _ in use.tenants:
        if pod.gpus and (contested := pod.gpus & use.shared & given):
            yield Violation(
                "gpu-shared",
                changes[position].label,
                f"node {printable(node.name)}: GPUs {_indices(contested)} belong to several pods",
            )


def _given(
    facts: Facts, node: Node, use: NodeUse, changes: Sequence[Change]
) -> Iterator[Violation]:
    name = printable(node.name)
    for position, pod, placed in use.tenants:
        if not placed:
            continue
        change = changes[position]
        wanted = change.gang.roles[pod.role].gpus
        if pod.gpus is not None and pod.gpus.bit_count() != wanted:
            yield Violation(
                "gpu-count",
                change.label,
                f"{_pod(change, pod)}: gets {pod.gpus.bit_count()} GPUs, asks for {wanted}",
            )
        if pod.gpus and pod.gpus & node.unhealthy:
            yield Violation(
                "gpu-unhealthy",
                change.label,
                f"{_pod(change, pod)}: GPUs {_indices(pod.gpus & node.unhealthy)} of {name} are unhealthy",
            )
        if wanted:
            yield from _named_or_not(facts, node, use, position, pod, change)
    if use.given_unknown and use.left(node) < 0:
        for position in sorted(
            {p for p, pod, placed in use.tenants if placed and pod.gpus is None}
        ):
            yield Violation(
                "unknown-gpus",
                changes[position].label,
                f"node {name}: {use.given_unknown} GPUs are given where only "
                f"{max(0, use.left(node) + use.given_unknown)} can be free",
            )


def _named_or_not(
    facts: Facts, node: Node, use: NodeUse, position: int, pod: Pod, change: Change
) -> Iterator[Violation]:
    """Whether the pod's GPUs are named exactly where they can be."""
    unknown = use.unaccounted(node)
    if unknown:
        if pod.gpus is not None:
            yield Violation(
                "unknown-gpus",
                change.label,
                f"{_pod(change, pod)}: names GPUs of {printable(node.name)}, "
                f"where {unknown} are held or sick and nobody knows which",
            )
        return
    switched = node.model is not None and node.model.switched
    if facts.policy.binds_exactly or switched:
        if pod.gpus is None:
            yield Violation(
                "gpu-binding", change.label, f"{_pod(change, pod)}: its GPUs must be named"
            )
    elif pod.gpus is not None and not _takes_the_rest(node, use, position, change):
        yield Violation(
            "gpu-binding",
            change.label,
            f"{_pod(change, pod)}: the node decides which of its GPUs a pod gets, so none can be named",
        )


def _takes_the_rest(node: Node, use: NodeUse, position: int, change: Change) -> bool:
    """The gang's new pods take every healthy GPU that staying pods leave: then its set is certain."""
    own = sum(change.gang.held(pod) for p, pod, placed in use.tenants if placed and p == position)
    return own == (node.healthy & ~use.staying).bit_count()


def _pod(change: Change, pod: Pod) -> str:
    return f"pod {printable(change.gang.roles[pod.role].name)}/{pod.index}"


def _indices(mask: int) -> str:
    return ", ".join(str(gpu) for gpu in range(mask.bit_length()) if mask >> gpu & 1)
