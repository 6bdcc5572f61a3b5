"""speed(gang) of a plan, as the contract's section 8 defines it: permille, in steps of 20.

A speed follows from a share, and is a range only where the share before the plan is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from models.hardware import ServerModel
from models.verify.changes import Change, usage_of
from models.verify.facts import Facts, Gang, Pod, PodKey
from models.verify.rates.group_rates import GroupBandwidths

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
