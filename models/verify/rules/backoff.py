"""A gang that plans stopped is held as ``Backoff`` until its pause is over, and no other gang is."""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation

CODE = "Backoff"


def check(outcome: Outcome) -> Iterator[Violation]:
    now = outcome.facts.now
    for change in outcome.changes:
        gang = change.gang
        again = None if gang.running else gang.starts_again
        pauses, held = again is not None and now < again, gang.hold == CODE
        if held and not pauses:
            yield change.violation("backoff", f"is held as {CODE}, but may start")
        elif pauses and gang.hold in (None, "QueueLimit"):
            yield change.violation("backoff", f"may not start yet, but is not held as {CODE}")


RULE = Judged(
    check, {"backoff": "of waiting gangs those that plans stopped lately are held, no others"}
)
