"""What a plan states of starts that are later than an earlier plan stated: by whom, as far as it can be seen.

The earlier plan is not in the document: what it promised, and whom it knew, is taken as it is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.documents.plan import PlanDelay
from models.verify.changes import Change
from models.verify.facts import Node
from models.verify.outcome import Outcome
from models.verify.rules.reservations import NAME
from models.verify.stated.stated_reservations import turn
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    nodes = {node.name: node for node in outcome.facts.nodes}
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        late, reserved = stated.document.delayed, stated.document.reserved
        if late is None:
            continue
        if change.kind != "wait":
            yield change.violation(NAME, "does not wait: it is not delayed")
        elif reserved is not None and reserved.start <= late.promised:
            yield change.violation(NAME, "is said to be delayed, but starts no later than promised")
        if list(late.by) != sorted(set(late.by)):
            yield change.violation(
                NAME, "the causes of its delay are not sorted, or twice the same"
            )
        if bool(late.by) == (late.cause == "Input"):
            what = "the cause of its delay names nobody, or somebody though it is another input"
            yield change.violation(NAME, what)
        for name in late.by:
            if late.cause == "Failure":
                if name in nodes and _in_order(nodes[name]):
                    what = f"is said to be delayed by node {printable(name)}, with which nothing is wrong"
                    yield change.violation(NAME, what)
            else:
                yield from _by_gang(outcome, change, late, name)


def _by_gang(outcome: Outcome, change: Change, late: PlanDelay, label: str) -> Iterator[Violation]:
    other = outcome.by_label.get(label)
    if other is None or other is change:
        what = f"is said to be delayed by {quoted(label)}, which is no other gang"
        yield change.violation(NAME, what)
    elif late.cause == "Overrun":
        if not other.gang.running:
            what = f"is said to be delayed by {printable(label)}, which does not run"
            yield change.violation(NAME, what)
    elif not other.gang.running and turn(outcome, other.gang) > turn(outcome, change.gang):
        what = f"is said to be delayed by {printable(label)}, which does not come before it"
        yield change.violation(NAME, what)


def _in_order(node: Node) -> bool:
    """Whether nothing is wrong with a node."""
    return node.usable and not node.unhealthy and not node.unknown_unhealthy
