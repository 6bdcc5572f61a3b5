"""GPUs: no two pods share one, unhealthy ones are never given, unknown ones are not named.

With H the healthy GPUs of a node, K those of pods with known GPUs, and k GPUs held or unhealthy of
unknown index: given without indices <= |H| - |K and H| - k. If k > 0 placed pods carry null. If k = 0
they carry indices, except on part of a server without a switch under gpuBinding none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.verify.changes import Change, NodeUse
from models.verify.facts import Facts, Node, Pod
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation


def check(outcome: Outcome) -> Iterator[Violation]:
    for node, use in outcome.checked_uses:
        if use.shared:
            yield from _shared(node, use, outcome.changes)
        if use.comers:
            yield from _given(outcome.facts, node, use, outcome.changes)


def _shared(node: Node, use: NodeUse, changes: Sequence[Change]) -> Iterator[Violation]:
    """Pods that stay may have shared a GPU before; only GPUs that the plan gives count."""
    given = 0
    for _, pod, placed in use.tenants:
        given |= (pod.gpus or 0) if placed else 0
    for position, pod, _ in use.tenants:
        if pod.gpus and (contested := pod.gpus & use.shared & given):
            yield changes[position].violation(
                "gpu-shared",
                f"node {node.name}: GPUs {_indices(contested)} belong to several pods",
            )


def _given(
    facts: Facts, node: Node, use: NodeUse, changes: Sequence[Change]
) -> Iterator[Violation]:
    name = node.name
    for position, pod, placed in use.tenants:
        if not placed:
            continue
        change = changes[position]
        wanted = change.gang.roles[pod.role].gpus
        if pod.gpus is not None and pod.gpus.bit_count() != wanted:
            yield change.violation(
                "gpu-count",
                f"{_pod(change, pod)}: gets {pod.gpus.bit_count()} GPUs, requests {wanted}",
            )
        if pod.gpus and pod.gpus & node.unhealthy:
            why = "partitioned" if pod.gpus & node.partitioned else "unhealthy"
            yield change.violation(
                "gpu-unhealthy",
                f"{_pod(change, pod)}: GPUs {_indices(pod.gpus & node.unhealthy)} of {name} are {why}",
            )
        if wanted:
            yield from _named_or_not(facts, node, use, position, pod, change)
    if use.given_unknown and use.left(node) < 0:
        for position in sorted(
            {p for p, pod, placed in use.tenants if placed and pod.gpus is None}
        ):
            yield changes[position].violation(
                "unknown-gpus",
                f"node {name}: {use.given_unknown} GPUs are given where only "
                f"{max(0, use.left(node) + use.given_unknown)} can be free",
            )


def _named_or_not(
    facts: Facts, node: Node, use: NodeUse, position: int, pod: Pod, change: Change
) -> Iterator[Violation]:
    """The indices of a placed pod's GPUs are stated exactly where they are known."""
    unknown = use.unaccounted(node)
    if unknown:
        if pod.gpus is not None:
            yield change.violation(
                "unknown-gpus",
                f"{_pod(change, pod)}: states GPU indices on {node.name}, "
                f"where {unknown} GPUs of unknown index are held or unhealthy",
            )
        return
    switched = node.model is not None and node.model.switched
    if facts.policy.gpu_binding == "exact" or switched:
        if pod.gpus is None:
            yield change.violation(
                "gpu-binding", f"{_pod(change, pod)}: its GPU indices are missing"
            )
    elif pod.gpus is not None and not _takes_the_rest(node, use, position, change):
        yield change.violation(
            "gpu-binding",
            f"{_pod(change, pod)}: the node chooses its GPUs, so indices must be null",
        )


def _takes_the_rest(node: Node, use: NodeUse, position: int, change: Change) -> bool:
    """Whether the gang's new pods take every healthy GPU that staying pods leave."""
    own = sum(change.gang.held(pod) for p, pod, placed in use.tenants if placed and p == position)
    return own == (node.healthy & ~use.staying).bit_count()


def _pod(change: Change, pod: Pod) -> str:
    return f"pod {change.gang.roles[pod.role].name}/{pod.index}"


def _indices(mask: int) -> str:
    return ", ".join(str(gpu) for gpu in range(mask.bit_length()) if mask >> gpu & 1)


RULE = Judged(
    check,
    {
        "gpu-count": "a placed pod gets as many GPUs as its role requests",
        "gpu-shared": "a GPU belongs to at most one pod",
        "gpu-unhealthy": "unhealthy and partitioned GPUs are never given",
        "gpu-binding": "GPU indices are stated where the plan chooses them, and only there",
        "unknown-gpus": "no more GPUs are given than can be free where unknown ones are held or unhealthy",
    },
    on_empty=True,
)
