"""Reasons about limits, guarantees and cells of queues: what a queue holds, and whether it has no room.

What the plan's gangs hold is counted once, what one more gang would add for each kind of gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.documents.reason import ReasonFields
from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.violation import printable


class Quotas:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.queues = outcome.queues
        self._gpus = outcome.facts.in_gpus
        self._denied: dict[object, bool] = {}
        held, queues = outcome.queue_gpus, outcome.queues
        self._held, self._firm = queues.sums(held), queues.sums(held, firm=True)
        self._promised, self._taken = queues.firm_sums(held), queues.lent_too_much(held, {})

    def faults(self, gang: Gang, f: ReasonFields) -> Iterator[str]:
        """What is wrong with a reason of the code ``Quota``."""
        name, key = f.queue, f.model or ALL
        if name is None:
            if f.limit is not None or not self.queues.cells.grounds:
                yield "does not say which queue"
        elif name not in self.queues.specs:
            yield f"there is no queue {printable(name)}"
        elif f.held is not None:
            yield from self._limit(gang, f, name, key)
        elif f.limit is not None:
            guarantee, kept = (
                self._gpus(promises[name].get(key, 0))
                for promises in (self.queues.guarantee, self.queues.kept)
            )
            if not f.limit or f.limit not in (guarantee, kept):
                yield f"queue {printable(name)} is promised {max(guarantee, kept)}"
            elif not kept and not self._beyond_promises(gang, f, key):
                yield "with it, what is promised to queues would still be there"
        elif not self.queues.cells.grounds:
            closed = self.queues.closed(gang)
            if not any(n in closed for n, of in self.queues.cells.pinned.items() if name in of):
                yield f"nothing that is promised to queue {printable(name)} is closed to it"

    def _limit(self, gang: Gang, f: ReasonFields, name: str, key: str) -> Iterator[str]:
        """Whether the queue holds so much, and the gang would be too much for a limit of it.

        Limits are that of all gangs, that of gangs that are not preemptible, and, with what queues below do
        not lend, that of all gangs again.
        """
        if name not in self.queues.above(gang.queue):
            yield f"it is not in queue {printable(name)}"
            return
        pairs = list(self._limits(name, key, firm=not gang.preemptible))
        own = [
            (held, most)
            for held, most in pairs
            if (f.held, f.limit) == (self._gpus(held), self._gpus(most))
        ]
        asked = self._asked(gang, f)
        if not own:
            held, most = map(self._gpus, pairs[0])
            yield f"queue {printable(name)} holds {held} of {most}"
        elif all(held + asked <= most for held, most in own):
            yield f"queue {printable(name)} may hold {self._gpus(asked)} more"

    def _limits(self, name: str, key: str, *, firm: bool) -> Iterator[tuple[int, int]]:
        """(what gangs in a queue hold, the most they may)."""
        queues, held = self.queues, self._held[name][key]
        most = queues.limit[name].get(key, 0)
        yield held, max(queues.held_before[name][key], most)
        yield self._taken.get((name, key), held), max(most, queues.lent_before.get((name, key), 0))
        if firm and key in queues.firm_limit[name]:
            most = queues.firm_limit[name][key]
            yield self._firm[name][key], max(queues.firm_before[name][key], most)

    def _asked(self, gang: Gang, f: ReasonFields) -> int:
        """What it needs, of the model that is stated, as GPUs are counted."""
        unit = self.outcome.facts.gpu_unit
        return gang.counts_at_min if f.gpus is None else round(unit * f.gpus)

    def _beyond_promises(self, gang: Gang, f: ReasonFields, key: str) -> bool:
        """Whether more of what is promised would be lacking with the gang beside all that the plan holds."""
        if not gang.counts_against_promises:
            return False
        asked = gang.queue, key, self._asked(gang, f)
        if asked not in self._denied:
            short = self.queues.lacking_with(self._promised, gang.queue, Counter({key: asked[-1]}))
            self._denied[asked] = short[key] > self.queues.shortfall_before.get(key, 0)
        return self._denied[asked]
