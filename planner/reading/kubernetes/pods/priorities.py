"""Priority of a pod: its own, else its class's, else the default class's.

Promises: labels and annotations never give priority; results lie within the documents' bounds.
Called by ``pods``.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.reading.kubernetes.forms import KubeObject, Objects
from planner.reading.kubernetes.looking import flag, text, whole

MOST = 2_000_000_000
"""Largest priority, either sign; Kubernetes' own two classes lie at and above it."""

_GROUP = "scheduling.k8s.io"
_SYSTEM = {"system-node-critical": MOST, "system-cluster-critical": MOST}


@dataclass(frozen=True, slots=True)
class Priorities:
    """Priority classes by name, and the value where a pod names none."""

    classes: dict[str, int]
    default: int

    @classmethod
    def of(cls, found: Objects) -> Priorities:
        classes: dict[str, int] = dict(_SYSTEM)
        defaults = []
        for one in found.of("PriorityClass", _GROUP):
            value = whole(one.tree, "value")
            if value is not None:
                classes[one.name] = _bounded(value)
                if flag(one.tree, "globalDefault"):
                    defaults.append(_bounded(value))
        # of several defaults Kubernetes takes the lowest
        return cls(classes, min(defaults, default=0))

    def named(self, name: str | None) -> int | None:
        """Priority of a class; the default without a name; None for a class nobody described."""
        return self.default if name is None else self.classes.get(name)

    def of_pod(self, pod: KubeObject) -> int | None:
        """Priority of a pod; None where it names a class nobody described."""
        own = whole(pod.tree, "spec", "priority")
        if own is not None:
            return _bounded(own)
        return self.named(text(pod.tree, "spec", "priorityClassName"))


def _bounded(value: int) -> int:
    return max(-MOST, min(value, MOST))
