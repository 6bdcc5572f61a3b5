"""GPUs that a plan partitions are held by no pod after it, and it is known which GPUs those are."""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.outcome import Outcome
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


RULE = Judged(
    check,
    {
        "partition": "a GPU is partitioned only if it may be, nobody holds it, and the instances fit",
    },
)
