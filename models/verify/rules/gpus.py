"""Which GPUs pods get, and which of them a plan partitions or shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from models.verify.changes import Change, NodeUse
from models.verify.facts import Facts, Node, Pod
from models.verify.outcome import Outcome
from models.verify.partitions import INSTANCES, board_of, fewest
from models.verify.rule import Judged
from models.verify.shares import fewest_shared, is_part
from models.verify.violation import Violation


def _given_gpus(outcome: Outcome) -> Iterator[Violation]:
    """GPUs: no two pods share one, unhealthy ones are never given, unknown ones are not named.

    With H the healthy GPUs of a node, K those of pods with known GPUs, and k GPUs held or unhealthy of
    unknown index: given without indices <= |H| - |K and H| - k. If k > 0 placed pods carry null. If k = 0
    they carry indices, except on part of a server without a switch under gpuBinding none.
    """
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
            what = f"node {node.name}: GPUs {_indices(contested)} belong to several pods"
            yield changes[position].violation("gpu-shared", what)


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
            what = f"gets {pod.gpus.bit_count()} GPUs, requests {wanted}"
            yield change.violation("gpu-count", f"{_pod(change, pod)}: {what}")
        if pod.gpus and pod.gpus & node.unhealthy:
            why = "partitioned" if pod.gpus & node.partitioned else "unhealthy"
            what = f"GPUs {_indices(pod.gpus & node.unhealthy)} of {name} are {why}"
            yield change.violation("gpu-unhealthy", f"{_pod(change, pod)}: {what}")
        if wanted:
            yield from _named_or_not(facts, node, use, position, pod, change)
    if use.given_unknown and use.left(node) < 0:
        can = max(0, use.left(node) + use.given_unknown)
        what = f"node {name}: {use.given_unknown} GPUs are given where only {can} can be free"
        for i in sorted({p for p, pod, placed in use.tenants if placed and pod.gpus is None}):
            yield changes[i].violation("unknown-gpus", what)


def _named_or_not(
    facts: Facts, node: Node, use: NodeUse, position: int, pod: Pod, change: Change
) -> Iterator[Violation]:
    """The indices of a placed pod's GPUs are stated exactly where they are known."""
    who = _pod(change, pod)
    if unknown := use.unaccounted(node):
        if pod.gpus is not None:
            where = f"where {unknown} GPUs of unknown index are held or unhealthy"
            what = f"{who}: states GPU indices on {node.name}, {where}"
            yield change.violation("unknown-gpus", what)
        return
    if facts.policy.gpu_binding == "exact" or (node.model is not None and node.model.switched):
        if pod.gpus is None:
            yield change.violation("gpu-binding", f"{who}: its GPU indices are missing")
    elif pod.gpus is not None:
        held = change.gang.held
        own = sum(held(pod) for p, pod, placed in use.tenants if placed and p == position)
        if own != (node.healthy & ~use.staying).bit_count():  # it does not take all that is left
            what = f"{who}: the node chooses its GPUs, so indices must be null"
            yield change.violation("gpu-binding", what)


def _pod(change: Change, pod: Pod) -> str:
    return f"pod {change.gang.roles[pod.role].name}/{pod.index}"


def _indices(mask: int) -> str:
    return ", ".join(str(gpu) for gpu in range(mask.bit_length()) if mask >> gpu & 1)


GPUS = Judged(
    _given_gpus,
    {
        "gpu-count": "a placed pod gets as many GPUs as its role requests",
        "gpu-shared": "a GPU belongs to at most one pod",
        "gpu-unhealthy": "unhealthy and partitioned GPUs are never given",
        "gpu-binding": "GPU indices are stated where the plan chooses them, and only there",
        "unknown-gpus": "no more GPUs are given than can be free where unknown ones are held or unhealthy",
    },
    on_empty=True,
)


def _partitioned(outcome: Outcome) -> Iterator[Violation]:
    """GPUs that a plan partitions or shares are held by no pod after it, and it is known which they are."""
    for node, use in outcome.checked_uses:
        if not node.comes and not node.unknown_comes:
            continue
        rule, done = ("partition", "partitions") if node.sharing is None else ("gpu-part", "shares")
        for position, pod, _ in use.tenants:
            if (pod.gpus or 0) & node.comes:
                what = f"node {node.name}: holds a GPU that the plan {done}"
                yield outcome.changes[position].violation(rule, what)
        if use.left(node) < 0:
            what = f"node {node.name}: its pods hold more GPUs than it has beside shared ones"
            yield Violation(rule, None, what)
        if node.comes and use.unaccounted(node):
            what = f"node {node.name}: GPUs of unknown index are held, so this one may be held too"
            yield Violation(rule, None, what)


def lacking(outcome: Outcome) -> Iterator[Violation]:
    """Comers to nodes whose idle GPUs, partitioned as is best, are too few for what all pods ask for."""
    for node, use in outcome.checked_uses:
        board = board_of(node)
        if (board is None and node.sharing is None) or not use.comers:
            continue
        wanted = Counter[str]()
        for position, pod, _ in use.tenants:
            wanted.update(outcome.changes[position].gang.roles[pod.role].requests)
        there = Counter({n: c for n, c in node.stated.items() if n.startswith(INSTANCES)})
        there.update(part for one in node.sharers for part in one.parts)
        counted = filter(is_part, wanted) if board is None else there
        short = {name: wanted[name] - there[name] for name in counted if wanted[name] > there[name]}
        in_use = [one.instances for one in node.sharers]
        gpus = fewest_shared(node, short) if board is None else fewest(board, short, in_use)
        if short and gpus > max(0, use.left(node)):
            for position in sorted({p for p, _, placed in use.tenants if placed}):
                what = f"node {node.name}: its GPUs have no room for so many instances or parts"
                yield outcome.changes[position].violation("partition", what)


PARTITIONS = Judged(
    _partitioned,
    {
        "gpu-part": "a GPU is shared only if it may be, nobody holds it whole, and the parts fit",
        "partition": "a GPU is partitioned only if it may be, nobody holds it, and the instances fit",
    },
)
