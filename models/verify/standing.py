"""Gangs as they stand before the plan, and what then holds of those that keep their pods, whatever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from models.verify.changes import Change
from models.verify.facts import Facts
from models.verify.rates.bandwidth import Bandwidth
from models.verify.rates.ranks import ranked
from models.verify.rates.speed import GangSpeeds


@dataclass(frozen=True, slots=True)
class Figures:
    """What a plan must state of one gang; None where it has no pods (or too few GPUs)."""

    bandwidth: int | None
    share: int | None
    speed: int | None
    domains: dict[str, int] | None


class Standing:
    """Found once for all plans of an instance. ``changes[i]``, ``kept[i]`` belong to ``facts.gangs[i]``."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.changes: Sequence[Change] = tuple(
            Change.of(gang, "/".join(gang.key), gang.running_pods) for gang in facts.gangs
        )
        self._levels = [facts.level_name(level) for level in range(facts.node_level + 1)]
        self._named: dict[tuple[int, ...], dict[str, int]] = {}

    @cached_property
    def speeds(self) -> GangSpeeds:
        return GangSpeeds(self.facts, self.changes)

    @cached_property
    def kept(self) -> Sequence[tuple[Bandwidth, Figures] | None]:
        """What gangs reach if they keep their pods.

        None where it depends on the plan: on its ranks, or on which GPUs others have, or on what it states
        of a rate that is known within limits.
        """
        return tuple(map(self._kept, self.changes))

    def _kept(self, change: Change) -> tuple[Bandwidth, Figures] | None:
        gang, pods = change.gang, change.pods
        if any(pod.gpus is None for pod in pods.values()):
            return None
        if any(ranked(gang, number) for number in range(len(gang.roles))):
            return None
        rate = self.speeds.before.of(gang, pods)
        if not rate.exact:
            return None
        share = rate.share and rate.share[0]
        speed = self.speeds.before_plan(change, share)[0] if pods else None
        domains = self.by_level(domains_of(self.facts, change))
        return rate, Figures(rate.MBps and rate.MBps[0], share, speed, domains)

    def by_level(self, used: tuple[int, ...]) -> dict[str, int] | None:
        """Domains by the name of their level; None of a gang without pods."""
        named = dict(zip(self._levels, used, strict=False))
        return self._named.setdefault(used, named) if used else None


def domains_of(facts: Facts, change: Change) -> tuple[int, ...]:
    """Domains that a gang uses at every level after the plan."""
    nodes = {pod.node for pod in change.pods.values()}
    if len(nodes) == 1:
        return (1,) * (facts.node_level + 1)
    places = [facts.nodes[node].domain for node in nodes]
    return tuple(len(set(column)) for column in zip(*places, strict=True))
