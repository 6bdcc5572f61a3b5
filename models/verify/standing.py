"""Gangs as they stand before the plan, and what then holds of those that keep their pods, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from models.hardware import ServerModel
from models.verify.changes import Change, usage_of
from models.verify.facts import Facts, Gang, Pod, PodKey
from models.verify.rates.bandwidth import Bandwidth
from models.verify.rates.group_rates import GroupBandwidths, ranked


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


FULL_SPEED = 1000
STEP = 20


def speed_of(share: int | None, fraction: Fraction, relative: int) -> int:
    """20 x floor(x / 20) with x = floor(1000 r / ((1000 - c) + 1000 c / s)).

    s = ``share``, at least 1; c = 1000 x ``fraction``, 0 without a share; r = ``relative``.
    With the fraction a / b, multiplied by b s / 1000: x = floor(r b s / ((b - a) s + 1000 a)).
    """
    if share is None:
        x = relative
    else:
        a, b = fraction.as_integer_ratio()
        s = max(1, share)
        x = relative * b * s // ((b - a) * s + 1000 * a)
    return x // STEP * STEP


class GangSpeeds:
    """Computes the speeds of gangs in all plans of an instance; ``standing``: as all stand before these."""

    def __init__(self, facts: Facts, standing: Sequence[Change]) -> None:
        self.facts = facts
        self.standing = standing
        models = {id(node.model): node.model for node in facts.nodes if node.model is not None}
        self.known = sorted({one.relative_speed for one in models.values() if one.relative_speed})
        self._before: dict[tuple[int, bool, int | None], tuple[int, int]] = {}
        self._of_model = {key: self._permille(model) for key, model in models.items()}

    @cached_property
    def before(self) -> GroupBandwidths:
        """Bandwidths where every running pod stands as before the plan."""
        return GroupBandwidths(self.facts, usage_of(self.facts, self.standing))

    def of(self, change: Change, share: int | None) -> tuple[int, int] | None:
        """Least and most speed of a gang with this share after the plan; None without pods.

        One that runs whole before the plan counts the smaller of its speeds before and after, unless
        restarts are free.
        """
        gang, pods = change.gang, change.pods
        if not pods:
            return None
        after = self.after(change, share)
        kept = change.kind == "keep" and all(pod.gpus is not None for pod in pods.values())
        if kept or not gang.running or not gang.whole or self.facts.free_restarts:
            return after, after
        low, high = self.before_plan(change, share)
        return min(low, after), min(high, after)

    def after(self, change: Change, share: int | None) -> int:
        """The speed of a gang with this share after the plan, whatever it had before."""
        return self._speed(change.gang, change.pods, share)

    def before_plan(self, change: Change, share: int | None) -> tuple[int, int]:
        """Least and most speed before the plan of a gang that runs whole then.

        ``share``: after the plan, which is that before where no pod changes and all GPUs are known.
        """
        key = (id(change.gang), change.kind == "keep", share)
        if key not in self._before:
            self._before[key] = self._before_plan(change, share)
        return self._before[key]

    def _before_plan(self, change: Change, share: int | None) -> tuple[int, int]:
        gang, standing = change.gang, change.gang.running_pods
        if change.kind == "keep" and all(pod.gpus is not None for pod in standing.values()):
            speed = self._speed(gang, standing, share)
            return speed, speed
        shares = self.before.of(gang, standing).share or (None, None)
        low, high = (self._speed(gang, standing, one) for one in shares)
        return low, high

    def _speed(self, gang: Gang, pods: Mapping[PodKey, Pod], share: int | None) -> int:
        share = None if gang.pattern == "none" else share
        return speed_of(share, gang.fraction, self._relative(gang, pods))

    def _relative(self, gang: Gang, pods: Mapping[PodKey, Pod]) -> int:
        """r: of the slowest model that holds GPUs of the gang."""
        if not self.known or not gang.counts_speed:
            return FULL_SPEED
        nodes = {pod.node for pod in pods.values() if gang.held(pod)}
        models = {id(model) for n in nodes if (model := self.facts.nodes[n].model)}
        return min((self._of_model[model] for model in models), default=FULL_SPEED)

    def _permille(self, model: ServerModel) -> int:
        """Of the fastest model of the cluster; one of unknown speed is as slow as the slowest known."""
        if not self.known:
            return FULL_SPEED
        return int(1000 * (model.relative_speed or self.known[0]) / self.known[-1])
