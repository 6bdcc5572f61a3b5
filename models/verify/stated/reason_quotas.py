"""Reasons about limits, guarantees and cells of queues: what a queue holds, and whether it has no room.

What the plan's gangs hold is counted once, what one more gang would add for each kind of gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from models.documents.reason import ReasonFields
from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.violation import printable

ALTERNATIVES = (
    ("queue", "held", "limit", "not_preemptible"),
    ("queue", "held", "limit", "kept"),
    ("queue", "kept"),
    ("queue", "unused", "guarantee"),
    ("queue", "cells", "level", "cell_gpus"),
    ("cells",),
    ("queue", "pinned"),
)
"""Fields, beside GPUs and their model, of each kind of reason; others would be about nothing."""

STATED = (
    "queue",
    "held",
    "limit",
    "guarantee",
    "unused",
    "kept",
    "cells",
    "level",
    "cell_gpus",
    "pinned",
)


class Quotas:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.queues = outcome.queues
        self._denied: dict[object, bool] = {}

    def faults(self, gang: Gang, f: ReasonFields) -> Iterator[str]:
        """What is wrong with a reason of the code ``Quota``."""
        stated = {name for name in STATED if getattr(f, name) is not None}
        stated |= {"not_preemptible"} if f.not_preemptible else set()
        if not any(stated <= {*own} for own in ALTERNATIVES):
            yield "states a limit, a guarantee or cells beside what is another reason"
        if f.queue is None:
            if f.cells != 0:
                yield "does not say which queue"
        elif f.queue not in self.queues.specs:
            yield f"there is no queue {printable(f.queue)}"
        else:
            yield from self._of(gang, f, f.queue, f.model or ALL)

    def _of(self, gang: Gang, f: ReasonFields, name: str, key: str) -> Iterator[str]:
        if f.pinned is not None:
            closed = self.queues.closed(gang)
            there = sum(n in closed for n, of in self.queues.cells.pinned.items() if name in of)
            if not 0 < f.pinned <= there:
                yield f"{there} nodes that queue {printable(name)} pins are closed to it"
        elif f.kept is not None:
            yield from self._unlent(gang, f, name, key)
        elif f.limit is not None:
            yield from self._limit(gang, f, name, key)
        elif f.guarantee is not None:
            promised = self.queues.guarantee[name].get(key, 0)
            if f.guarantee != self._gpus(promised) or (f.unused or 0) > f.guarantee:
                yield f"queue {printable(name)} is guaranteed {self._gpus(promised)}"
            elif not self._beyond_promises(gang, f, key):
                yield "with it, what is promised to queues would still be there"

    def _limit(self, gang: Gang, f: ReasonFields, name: str, key: str) -> Iterator[str]:
        """Whether the queue holds so much, and the gang would be too much for its limit."""
        holds, limit = self._of_limit(name, key, firm=f.not_preemptible)
        if name not in self.queues.above(gang.queue):
            yield f"it is not in queue {printable(name)}"
        elif f.not_preemptible and gang.preemptible:
            yield "it is preemptible"
        elif (f.held, f.limit) != (self._gpus(holds), self._gpus(limit or 0)):
            yield f"queue {printable(name)} holds {self._gpus(holds)} of {self._gpus(limit or 0)}"
        elif holds + self._asked(gang, f) <= (limit or 0):
            yield f"queue {printable(name)} may hold {self._gpus(self._asked(gang, f))} more"

    def _of_limit(self, name: str, key: str, *, firm: bool) -> tuple[int, int | None]:
        """(what gangs in a queue hold, the most they may); ``firm``: those that are not preemptible."""
        queues, gpus = self.queues, self.held
        before, limits = queues.held_before, queues.limit
        if firm:
            gpus, before, limits = self._firm, queues.firm_before, queues.firm_limit
        most = limits[name].get(key)
        return gpus[name][key], None if most is None else max(before[name][key], most)

    def _unlent(self, gang: Gang, f: ReasonFields, name: str, key: str) -> Iterator[str]:
        """What the queue, or, where its limit is stated, those below it do not lend and do not hold."""
        queues, holds = self.queues, self.held[name][key]
        if f.limit is None:
            most = queues.kept[name].get(key, 0)
            if (f.kept or 0) > self._gpus(most):
                yield f"queue {printable(name)} keeps at most {self._gpus(most)} to itself"
            return
        taken = self._taken.get((name, key), holds)
        most = max(queues.limit[name].get(key, 0), queues.lent_before.get((name, key), 0))
        if name not in queues.above(gang.queue):
            yield f"it is not in queue {printable(name)}"
        elif (f.held, f.kept, f.limit) != (*map(self._gpus, (holds, taken - holds, most)),):
            of, unlent = self._gpus(most), self._gpus(taken - holds)
            yield f"queue {printable(name)} holds {self._gpus(holds)} of {of}, and {unlent} are not lent"
        elif taken + self._asked(gang, f) <= most:
            yield f"queue {printable(name)} may hold {self._gpus(self._asked(gang, f))} more"

    def _asked(self, gang: Gang, f: ReasonFields) -> int:
        """What it needs, of the model that is stated, as GPUs are counted."""
        unit = self.outcome.facts.gpu_unit
        return gang.counts_at_min if f.gpus is None else round(unit * f.gpus)

    def _gpus(self, counted: int) -> float:
        return self.outcome.facts.in_gpus(counted)

    def _beyond_promises(self, gang: Gang, f: ReasonFields, key: str) -> bool:
        """Whether more of what is promised would be lacking with the gang beside all that the plan holds."""
        if not gang.counts_against_promises:
            return False
        gpus = self._asked(gang, f)
        asked = (gang.queue, key, gpus)
        if asked not in self._denied:
            before = self.queues.shortfall_before.get(key, 0)
            short = self.queues.lacking_with(self._promised, gang.queue, Counter({key: gpus}))
            self._denied[asked] = short[key] > before
        return self._denied[asked]

    @cached_property
    def held(self) -> dict[str, Counter[str]]:
        return self.queues.sums(self.outcome.queue_gpus)

    @cached_property
    def _promised(self) -> dict[str | None, Counter[str]]:
        return self.queues.firm_sums(self.outcome.queue_gpus)

    @cached_property
    def _firm(self) -> dict[str, Counter[str]]:
        return self.queues.sums(self.outcome.queue_gpus, firm=True)

    @cached_property
    def _taken(self) -> dict[tuple[str | None, str], int]:
        return self.queues.lent_too_much(self.outcome.queue_gpus, {})
