"""GPUs that a plan partitions are held by no pod after it, and it is known which GPUs those are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.verify.outcome import Outcome
from models.verify.partitions import INSTANCES, board_of, fewest
from models.verify.rule import Judged
from models.verify.violation import Violation


def check(outcome: Outcome) -> Iterator[Violation]:
    for node, use in outcome.checked_uses:
        if not node.comes:
            continue
        for position, pod, _ in use.tenants:
            if (pod.gpus or 0) & node.comes:
                what = f"node {node.name}: holds a GPU that the plan partitions"
                yield outcome.changes[position].violation("partition", what)
        if use.unaccounted(node):
            what = f"node {node.name}: GPUs of unknown index are held, so none can be partitioned"
            yield Violation("partition", None, what)


def lacking(outcome: Outcome) -> Iterator[Violation]:
    """Comers to nodes whose idle GPUs, partitioned as is best, are too few for what all pods ask for."""
    for node, use in outcome.checked_uses:
        board = board_of(node)
        if board is None or not use.comers:
            continue
        wanted = Counter[str]()
        for position, pod, _ in use.tenants:
            wanted.update(outcome.changes[position].gang.roles[pod.role].requests)
        short = {
            name: wanted[name] - most
            for name, most in node.stated.items()
            if name.startswith(INSTANCES) and wanted[name] > most
        }
        if short and fewest(board, short) > max(0, use.left(node)):
            for position in sorted({p for p, _, placed in use.tenants if placed}):
                what = f"node {node.name}: its GPUs have no room for so many instances"
                yield outcome.changes[position].violation("partition", what)


RULE = Judged(
    check,
    {
        "partition": "a GPU is partitioned only if it may be, nobody holds it, and the instances fit",
    },
)
