"""A plan in which a few gangs change otherwise than in another plan, worked out from that plan.

``Variant`` answers every question that an ``Outcome`` does; ``Part`` those about a few of its gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from models.verify.changes import Change, NodeUse, Overlay, Usage, usage_with
from models.verify.facts import Node, Pod, PodKey
from models.verify.outcome import Outcome
from models.verify.queues import Queues
from models.verify.rates.bandwidth import Bandwidth
from models.verify.rates.group_rates import GroupBandwidths
from models.verify.rates.ranks import Ranks
from models.verify.standing import Figures, domains_of


class Variant(Outcome):
    """``pods``: of the gangs that differ from ``base``, by position.

    A rate that is only known within limits counts as its least.
    """

    def __init__(self, base: Outcome, pods: Mapping[int, Mapping[PodKey, Pod]]) -> None:
        self.base = base
        self.case, self.facts = base.case, base.facts
        self.altered: dict[int, Change] = {}
        for position, own in pods.items():
            old = base.changes[position]
            ordered = dict(sorted(own.items()))
            self.altered[position] = Change.of(old.gang, old.label, ordered)
        self.changes = Overlay(base.changes, self.altered)

    @cached_property
    def _usage(self) -> tuple[Usage, set[int]]:
        return usage_with(self.base.usage, self.base.changes, self.altered)

    @cached_property
    def usage(self) -> Usage:
        return self._usage[0]

    @property
    def checked_uses(self) -> Iterable[tuple[Node, NodeUse]]:
        """Those whose use differs. Of a base that breaks no rule, the others break none."""
        return ((self.facts.nodes[n], self.usage.nodes[n]) for n in sorted(self.touched))

    @cached_property
    def free_gpus(self) -> Sequence[int]:
        found = list(self.base.free_gpus)
        for n in self.touched:
            found[n] = self.usage.free(n, self.facts.nodes[n])
        return found

    @cached_property
    def models(self) -> Mapping[str, Sequence[int]]:
        return self.base.models

    @cached_property
    def touched(self) -> set[int]:
        """Nodes whose use differs."""
        return self._usage[1]

    @cached_property
    def affected(self) -> tuple[int, ...]:
        """Gangs whose figures may differ: those that change otherwise, and where GPUs are not known."""
        found = set(self.altered)
        for n in self.touched:
            for nodes in (self.usage.nodes, self.base.usage.nodes):
                found.update(p for p, pod, _ in nodes[n].tenants if pod.gpus is None)
        return tuple(sorted(found))

    @property
    def queues(self) -> Queues:
        return self.base.queues

    @cached_property
    def queue_gpus(self) -> Sequence[Counter[str]]:
        found = {
            i: self.queues.held(change.gang, change.pods.values())
            for i, change in self.altered.items()
        }
        return Overlay(self.base.queue_gpus, found)

    @cached_property
    def latest_submission(self) -> int:
        return self.base.latest_submission

    @cached_property
    def counting(self) -> dict[object, set[int]]:
        return self.base.counting

    @cached_property
    def rates(self) -> GroupBandwidths:
        return self.base.rates.beside(self.usage)

    def ranks(self, i: int) -> Ranks | None:
        """Gangs that differ have ranks that are certainly allowed; better ones may be."""
        return None if i in self.altered else self.base.ranks(i)

    @cached_property
    def fair_counts(self) -> dict[str, int]:
        found = dict(self.base.fair_counts)
        for i, change in self.altered.items():
            name = change.gang.queue
            if name in found:
                found[name] += self.fair_count(change) - self.fair_count(self.base.changes[i])
        return found

    @cached_property
    def bandwidths(self) -> Sequence[Bandwidth]:
        return Overlay(self.base.bandwidths, {i: self._bandwidth(i) for i in self.affected})

    @cached_property
    def domains(self) -> Sequence[tuple[int, ...]]:
        found = {i: domains_of(self.facts, change) for i, change in self.altered.items()}
        return Overlay(self.base.domains, found)

    @cached_property
    def figures(self) -> Sequence[Figures]:
        found = {}
        for i in self.affected:
            bandwidth = self.bandwidths[i]
            share = None if bandwidth.share is None else bandwidth.share[0]
            speed = self.speeds.of(self.changes[i], share)
            found[i] = Figures(
                None if bandwidth.MBps is None else bandwidth.MBps[0],
                share,
                None if speed is None else speed[0],
                None,
            )
        return Overlay(self.base.figures, found)


class Part(Outcome):
    """Some gangs of an outcome, for values that are sums over gangs."""

    def __init__(self, whole: Outcome, positions: Collection[int]) -> None:
        self.case, self.facts = whole.case, whole.facts
        self.changes = tuple(whole.changes[i] for i in positions)
        self.figures = tuple(whole.figures[i] for i in positions)
        self.domains = tuple(whole.domains[i] for i in positions)
        self.latest_submission = whole.latest_submission
        if self.facts.queues:
            self.queues = whole.queues
