"""Kueue's Workloads: whose pods each one stands for, and the priority it gives them.

Kueue's order counts while a workload waits and after it was admitted. Kueue writes Workloads; labels that
name a priority class are the tenant's, and count for pods only where Workloads are not in the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from models.units import InvalidValueError, epoch_seconds
from planner.read.kube.dialects.kueue_quotas import GROUP
from planner.read.kube.lookup import at, holds_condition, objects, text, whole
from planner.read.kube.records import Key, KubeObject, Objects

KIND = "Workload"
QUEUE = f"{GROUP}/queue-name"
PRIORITY = f"{GROUP}/priority-class"
"""Names the WorkloadPriorityClass that counts in Kueue's queue."""

_NAMES = (f"{GROUP}/pod-group-name", f"{GROUP}/prebuilt-workload-name", f"{GROUP}/workload")
"""Labels and annotations of pods and controllers that name their Workload."""

_CLASSES = {"PriorityClass": "scheduling.k8s.io", "WorkloadPriorityClass": GROUP}
"""API groups of the kinds that a Workload may take its priority from."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """Workloads by owner (by their own name, if they have none), found once for all objects."""

    api: Objects
    by_owner: dict[Key, KubeObject] = field(default_factory=dict)

    @classmethod
    def of(cls, api: Objects) -> Workloads:
        found = cls(api)
        for one in api.of(KIND, GROUP):
            key = one.owner_key or one.key
            found.by_owner[key] = max(one, found.by_owner.get(key, one), key=_precedence)
        return found

    def owned_by(self, line: Iterable[Key]) -> KubeObject | None:
        """The Workload of the first of these objects that has one."""
        return next((self.by_owner[key] for key in line if key in self.by_owner), None)

    def standing_for(self, every: Iterable[KubeObject]) -> KubeObject | None:
        """The Workload of pods, their controllers and groups: the one that they name, else their owners'."""
        if not self.by_owner:
            return None
        for one in every:
            notes = (part.get(key) for key in _NAMES for part in (one.labels, one.annotations))
            named = (self.api.named(GROUP, KIND, one.namespace, name) for name in notes if name)
            found = next((made for made in named if made is not None), None)
            found = found or self.owned_by([one.key, *self.api.owners(one)])
            if found is not None:
                return found
        return None

    def priority(self, workload: KubeObject | None, every: Iterable[KubeObject]) -> int | None:
        """The priority in Kueue's queue; None if it is that of the pods.

        ``every``: the objects whose labels may name a class if no Workload states a priority.
        """
        own = None if workload is None else whole(workload.tree, "spec", "priority")
        if own is not None:
            return own
        names = (one.labels.get(PRIORITY) for one in every)
        classes = [("WorkloadPriorityClass", name) for name in names if name]
        if workload is not None:
            classes[:0] = _stated_class(workload)
        found = (self.api.named(_CLASSES[kind], kind, "", name) for kind, name in classes)
        values = (whole(one.tree, "value") for one in found if one is not None)
        return next((value for value in values if value is not None), None)

    def priority_of_pods(self, every: Iterable[KubeObject]) -> int | None:
        """The priority of pods that exist; ``every``: they, their controllers and groups.

        Where Workloads are in the input, what has none is not Kueue's.
        """
        every = list(every)
        workload = self.standing_for(every)
        if workload is not None:
            return self.priority(workload, every)
        if self.api.has_all(KIND):
            return None
        return self.priority(None, (one for one in every if one.labels.get(QUEUE)))


def _stated_class(workload: KubeObject) -> list[tuple[str, str]]:
    """(kind, name) of the class that a Workload names: in a reference, before v1beta2 in two fields."""
    kind, name = (
        text(workload.tree, "spec", "priorityClassRef", part) for part in ("kind", "name")
    )
    if name is None:
        name = text(workload.tree, "spec", "priorityClassName")
        source = text(workload.tree, "spec", "priorityClassSource") or ""
        kind = "PriorityClass" if source.startswith("scheduling") else "WorkloadPriorityClass"
    return [(kind, name)] if name is not None and kind in _CLASSES else []


def _precedence(workload: KubeObject) -> tuple[bool, int, str]:
    """Of the Workloads of one owner the newest that is not over counts."""
    return (not is_finished(workload), workload.created or 0, workload.name)


def is_finished(workload: KubeObject) -> bool:
    """Whether it has finished or is being deleted."""
    ended = holds_condition(workload.tree, "Finished")
    return ended or at(workload.tree, "metadata", "deletionTimestamp") is not None


def admitted_at(workload: KubeObject) -> int | None:
    """When Kueue let it go last, seconds since the epoch; None while it does not, or if unknown."""
    for one in objects(workload.tree, "status", "conditions"):
        if one.get("type") == "Admitted" and one.get("status") == "True":
            try:
                return epoch_seconds(text(one, "lastTransitionTime") or "")
            except InvalidValueError:
                return None
    return None
