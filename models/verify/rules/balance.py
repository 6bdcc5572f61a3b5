"""Balance: a gang's pods with GPUs are shared evenly by the domains of its level that have any.

It binds as soon as one of these pods is placed or moved; then those that stay count as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.verify.changes import Change
from models.verify.facts import Facts
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation


def check(outcome: Outcome) -> Iterator[Violation]:
    for change in outcome.changes:
        if change.gang.balance is not None and change.binding:
            yield from _uneven(outcome.facts, change, change.gang.balance)


def _uneven(facts: Facts, change: Change, level: int) -> Iterator[Violation]:
    roles = change.gang.roles
    if not any(roles[pod.role].gpus for pod in change.binding):
        return
    shares = Counter(
        facts.nodes[pod.node].domain[level]
        for pod in change.pods.values()
        if roles[pod.role].gpus
    )  # fmt: skip
    most, least = max(shares.values()), min(shares.values())
    if most > least + 1:
        what = f"has {most} pods with GPUs in one {facts.level_name(level)} and {least} in another"
        yield change.violation("balance", f"{what}: at most one more is allowed")


RULE = Judged(
    check,
    {"balance": "a gang's GPU pods are shared evenly by the domains of its level that have any"},
    on_empty=True,
    codes={"Balance": lambda _, gang: gang.balance is not None},
    binds={"balance": lambda gang, _: gang.spec.topology.balance is not None},
)
