"""Which pods belong to one gang: those of one pod group, or of one controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import controller_reader, names
from planner.read.kube.dialects.base import Controller, PodGroup
from planner.read.kube.records import ControllerKey, GroupKey, KubeObject, KubePod, Objects

LOOSE = "requires one domain for pods that start one by one, which cannot be guaranteed; ignored"


class Membership(Struct):
    """The pods of one gang.

    ``groups``: its pod groups, several under one composite; ``loose``: groups whose pods may start
    one by one. ``controllers``: those of its pods; ``complete``: those with no pod in another gang.
    """

    namespace: str
    pods: list[KubePod] = []
    groups: dict[GroupKey, PodGroup] = {}
    loose: dict[GroupKey, PodGroup] = {}
    controllers: dict[ControllerKey, Controller] = {}
    complete: set[ControllerKey] = set()

    @property
    def lone(self) -> bool:
        """Whether it is a pod that belongs to no group and no controller of gangs."""
        return not (self.groups or self.controllers)

    @property
    def unfinished(self) -> list[KubePod]:
        """Its pods that have not finished, else all."""
        return [pod for pod in self.pods if pod.finished is None] or self.pods

    def controller_objects(self) -> list[KubeObject]:
        """Those of its controllers that are in the input."""
        return [one.object for one in self.sorted_controllers() if one.object is not None]

    def sorted_controllers(self) -> list[Controller]:
        return [self.controllers[key] for key in sorted(self.controllers)]


def group_pods(api: Objects, pods: Sequence[KubePod], remarks: Remarks) -> list[Membership]:
    """The gangs; what belongs to no group and no controller of gangs is one of its own, at the end."""
    _set_owners(api, pods)
    by_controller: dict[ControllerKey, list[KubePod]] = {}
    for pod in pods:
        if pod.controller is not None:
            by_controller.setdefault(pod.controller, []).append(pod)
    groups = _groups(api, pods, remarks)
    controllers = {
        key: controller_reader(key.kind).read(key, own, api) for key, own in by_controller.items()
    }
    gangs: dict[tuple[object, ...], Membership] = {}
    alone: list[Membership] = []
    for pod in pods:
        group = groups[pod.group] if pod.group is not None else None
        key: tuple[object, ...]
        if group is not None and group.gang:
            above = group.parent
            key = group.key if above is None else (group.key.reader, group.key.namespace, above, "")
        elif pod.controller is not None:
            key = ("controller", *pod.controller)
        else:
            alone.append(Membership(pod.object.namespace, [pod]))
            if group is not None and group.required is not None:
                remarks.add(group.subject, LOOSE)
            continue
        gang = gangs.setdefault(key, Membership(pod.object.namespace))
        gang.pods.append(pod)
        if group is not None:
            (gang.groups if group.gang else gang.loose)[group.key] = group
        if pod.controller is not None:
            gang.controllers[pod.controller] = controllers[pod.controller]
    for gang in gangs.values():
        here = Counter(pod.controller for pod in gang.pods)
        gang.complete = {key for key in gang.controllers if here[key] == len(by_controller[key])}
    return [*gangs.values(), *alone]


def _set_owners(api: Objects, pods: Sequence[KubePod]) -> None:
    """Set ``group`` and ``controller`` of the pods.

    Pods that lost the name of their group belong to the only group that their controller's pods name.
    """
    by_controller: dict[ControllerKey, dict[GroupKey, None]] = {}
    for pod in pods:
        mine, pod.controller = names(api).of(pod.object)
        # Of several groups the first whose object exists.
        there = (key for key in mine if names(api).object_of(key) is not None)
        pod.group = next(there, mine[0]) if mine else None
        if pod.controller is not None and pod.group is not None:
            by_controller.setdefault(pod.controller, {})[pod.group] = None
    common: dict[ControllerKey, GroupKey] = {}
    for controller, named in by_controller.items():
        existing = [
            key
            for key in named
            if names(api).reader_of[key.reader].api_group is None
            or names(api).object_of(key) is not None
        ]
        if len(existing) == 1 or len(named) == 1:
            common[controller] = (existing or list(named))[0]
    for pod in pods:
        if pod.controller in common:
            pod.group = common[pod.controller]


def _groups(api: Objects, pods: Sequence[KubePod], remarks: Remarks) -> dict[GroupKey, PodGroup]:
    by_group: dict[GroupKey, list[KubePod]] = {}
    for pod in pods:
        if pod.group is not None:
            by_group.setdefault(pod.group, []).append(pod)
    groups = {}
    for key, own in by_group.items():
        reader = names(api).reader_of[key.reader]
        group = reader.read(key, own, api, remarks)
        if group.object is None and group.minimum is None and reader.api_group is not None:
            remarks.add(group.subject, "PodGroup not found; its pods are grouped by label")
        controlled = any(pod.controller is not None for pod in own)
        asks = group.required or group.preferred or group.colocations or group.problems
        if group.minimum == 1 and not (controlled or asks or group.parent):
            # Schedulers put every lone pod, and the pods of a Deployment, in a group of one.
            group = replace(group, gang=False)
        groups[key] = group
    return groups
