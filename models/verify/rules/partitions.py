"""GPUs that a plan partitions or shares are held by no pod after it, and it is known which they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.verify.outcome import Outcome
from models.verify.partitions import INSTANCES, board_of, fewest
from models.verify.rule import Judged
from models.verify.shares import fewest_shared, is_part
from models.verify.violation import Violation


def check(outcome: Outcome) -> Iterator[Violation]:
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


RULE = Judged(
    check,
    {
        "gpu-part": "a GPU is shared only if it may be, nobody holds it whole, and the parts fit",
        "partition": "a GPU is partitioned only if it may be, nobody holds it, and the instances fit",
    },
)
