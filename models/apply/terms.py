"""The terms that a gang was started under, as its intents have them: what it gave in return for its room.

Sealed with the intent, so that its tenant cannot take them back while it runs. One form of text, and anything
else is no terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from models.units import InvalidValueError, epoch_seconds, time_text

_TERMS = re.compile(
    r"priority=(?P<priority>0|-?[1-9][0-9]{0,9})(?P<preemptible> preemptible)?(?P<movable> movable)?"
    r"(?: since=(?P<since>[0-9T:-]{19}Z))?(?: until=(?P<until>[0-9T:-]{19}Z))?"
    r"(?: queue=(?P<queue>[A-Za-z0-9_.-]{1,253}))?"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """``until``: its expected end in seconds since the epoch, None for none. ``queue``: in the plan.

    ``since``: when it started first, on pods that complete a gang that runs; None on those of its start,
    which say themselves when they started.
    """

    priority: int
    preemptible: bool = False
    movable: bool = False
    until: int | None = None
    queue: str | None = None
    since: int | None = None

    def text(self) -> str:
        """As the annotation has it: ``priority=10 preemptible until=2026-11-21T14:00:00Z queue=research``."""
        words = [f"priority={self.priority}"]
        words += ["preemptible"] * self.preemptible + ["movable"] * self.movable
        if self.since is not None:
            words.append(f"since={time_text(self.since)}")
        if self.until is not None:
            words.append(f"until={time_text(self.until)}")
        if self.queue is not None:
            words.append(f"queue={self.queue}")
        return " ".join(words)


def read_terms(written: str) -> Terms | None:
    """The terms in an annotation; None if it is not in the exact form that we write."""
    found = _TERMS.fullmatch(written)
    if found is None:
        return None
    try:
        since, until = (
            None if found[name] is None else epoch_seconds(found[name])
            for name in ("since", "until")
        )
    except InvalidValueError:
        return None
    return Terms(
        int(found["priority"]),
        found["preemptible"] is not None,
        found["movable"] is not None,
        until,
        found["queue"],
        since,
    )


def strictest(each: Iterable[Terms]) -> Terms | None:
    """What binds a gang whose pods were started under several terms: the worst of each for it.

    The queue is that of the first.
    """
    known = list(each)
    if not known:
        return None
    return Terms(
        min(one.priority for one in known),
        any(one.preemptible for one in known),
        any(one.movable for one in known),
        min((one.until for one in known if one.until is not None), default=None),
        known[0].queue,
        min((one.since for one in known if one.since is not None), default=None),
    )
