"""What goodput and services ask of a plan document, beside the checker's word on everything else.

Promises: nothing of the exhaustive planner, of the program or of the checker but the shares it finds; the
words of section 8, gang by gang. Called by ``exhaustive_naive``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from models.gang import Gang
from models.instance import Instance

Entry = dict[str, Any]
"""What a plan document says of one gang."""

Shares = Sequence[int | None]
"""Permille of the ideal bandwidth, a gang."""


def by_number(instance: Instance) -> Instance:
    """The instance with ``admission`` in the place of ``goodput``, which this module values."""
    objectives = tuple(
        replace(one, name="admission") if one.name == "goodput" else one
        for one in instance.policy.objectives
    )
    return replace(instance, policy=replace(instance.policy, objectives=objectives))


class Speeds:
    """``before``: speed of each gang as it stands, None where it does not run whole."""

    def __init__(self, instance: Instance, standing: Sequence[Entry], shares: Shares) -> None:
        self.instance = instance
        self.standing = standing
        self.models = {node.name: node.model for node in instance.cluster.nodes}
        self.before = [
            self._speed(gang, entry, share) if gang.running and not gang.missing() else None
            for gang, entry, share in zip(instance.gangs, standing, shares, strict=True)
        ]

    def values(
        self, entries: Sequence[Entry], shares: Shares, counted: Mapping[str, int]
    ) -> dict[str, int]:
        """Tiers under goodput. ``counted``: the same under admission, which count no speed."""
        values = {name.replace("admission/", "goodput/"): value for name, value in counted.items()}
        values |= {n: 0 for n in values if n.startswith(("goodput/", "aged/", "aged-waiting/"))}
        for g, (gang, entry, share) in enumerate(
            zip(self.instance.gangs, entries, shares, strict=True)
        ):
            left = gang.running and gang.missing() and entry == self.standing[g]
            if not entry["pods"] or left:
                continue
            speed = self._speed(gang, entry, share)
            before = self.before[g]
            worth = gang.weight_gpus * (speed if before is None else min(before, speed))
            values[f"goodput/{gang.priority}"] += worth
            if self.instance.aged(gang):
                values[f"aged/{gang.priority}"] += worth
                if f"aged-waiting/{gang.priority}" in values:
                    waiting = worth * self.instance.age(gang)
                    values[f"aged-waiting/{gang.priority}"] += waiting
        return values

    def _speed(self, gang: Gang, entry: Entry, share: int | None) -> int:
        """20 x floor(x / 20), x = floor(1000 r / ((1000 - c) + 1000 c / s))."""
        c, s = Fraction(0), 1000
        if share is not None and gang.pattern != "none":
            c, s = 1000 * gang.fraction, max(1, share)
        x = (1000 * self._relative(gang, entry)) // (1000 - c + 1000 * c / s)
        return x // 20 * 20

    def _relative(self, gang: Gang, entry: Entry) -> int:
        gpus = {role.name: role.gpus for role in gang.roles}
        nodes = {pod["node"] for pod in entry["pods"] if gpus[pod["role"]]}
        all_speeds = [model.relative_speed for model in self.models.values() if model]
        if not gang.counts_speed or not nodes or None in all_speeds:
            return 1000
        speeds = [model.relative_speed or 0 for n in nodes if (model := self.models[n])]
        return int(1000 * min(speeds) / max(speed or 0 for speed in all_speeds))

    def serves(self, entries: Sequence[Entry]) -> bool:
        """Whether the pods that come or move are on the GPU models of their services."""
        before: dict[tuple[str, str], set[str]] = {}
        come: dict[tuple[str, str], set[str]] = {}
        for gang, stood, entry in zip(self.instance.gangs, self.standing, entries, strict=True):
            if gang.service is None:
                continue
            service = (gang.namespace, gang.service)
            roles = {role.name: role for role in gang.roles}
            for pod in stood["pods"]:
                if roles[pod["role"]].gpus:
                    before.setdefault(service, set()).add(self._gpu(pod))
            for pod in entry["pods"]:
                role = roles[pod["role"]]
                if role.gpus and not role.mix_models and pod not in stood["pods"]:
                    come.setdefault(service, set()).add(self._gpu(pod))
        return all(
            models <= before[service] if before.get(service) else len(models) == 1
            for service, models in come.items()
        )

    def _gpu(self, pod: Entry) -> str:
        model = self.models[pod["node"]]
        return model.gpu if model else ""
