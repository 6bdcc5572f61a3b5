"""The dialects: a module of ``planner.read.kube.dialects`` for each scheduler or controller.

Whatever module there has a ``DIALECT`` is one: nothing else names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from planner.read.kube import dialects
from planner.read.kube.dialects.base import (
    ASKS_NOTHING,
    Asked,
    ControllerReader,
    Dialect,
    GroupReader,
    Holder,
    HoldingReader,
    Makes,
    PlacementRequest,
    PodKey,
    RequestState,
    Scale,
    owner_line,
)
from planner.read.kube.dialects.gpus import GpuSystem
from planner.read.kube.dialects.quotas import CellReader, QuotaReader
from planner.read.kube.lookup import mapping
from planner.read.kube.records import ControllerKey, GroupKey, KubeObject, Objects, once


def _found() -> tuple[Dialect, ...]:
    names = sorted(one.name for one in iter_modules(dialects.__path__))
    modules = (import_module(f"{dialects.__name__}.{name}") for name in names)
    found = [one.DIALECT for one in modules if hasattr(one, "DIALECT")]
    return tuple(sorted(found, key=lambda one: one.precedence))


DIALECTS: tuple[Dialect, ...] = _found()
"""In order of precedence."""


def group_readers() -> tuple[GroupReader, ...]:
    return tuple(reader for dialect in DIALECTS for reader in dialect.groups)


def controller_readers() -> tuple[ControllerReader, ...]:
    return tuple(one.controller for one in DIALECTS if one.controller is not None)


def dialect_of(controller: str) -> Dialect:
    """The dialect that reads controllers of a kind."""
    return next(one for one in DIALECTS if one.controller and one.controller.kind == controller)


def controller_reader(kind: str) -> ControllerReader:
    """The reader of keys of this kind."""
    found = dialect_of(kind).controller
    assert found is not None, "it has the kind"
    return found


class Named(NamedTuple):
    """What a pod names: its groups, first things first, and the first controller."""

    groups: tuple[GroupKey, ...]
    controller: ControllerKey | None


class Names:
    """What the pods of an input name. A pod is asked about once, by those readers that its marks concern."""

    def __init__(
        self,
        api: Objects,
        groups: Sequence[GroupReader],
        controllers: Sequence[ControllerReader],
    ) -> None:
        self._api = api
        self._readers: tuple[GroupReader | ControllerReader, ...] = (*groups, *controllers)
        self._fields = [field for reader in self._readers for field in reader.fields]
        self._concerned: dict[object, list[GroupReader | ControllerReader]] = {}
        self._found: dict[KubeObject, Named] = {}
        self._same: dict[Named, Named] = {}
        self.reader_of = {reader.name: reader for reader in groups}

    def of(self, pod: KubeObject) -> Named:
        found = self._found.get(pod)
        if found is None:
            found = self._read(pod)
            # Pods of one controller share what they name, which saves the garbage collector time.
            found = self._found[pod] = self._same.setdefault(found, found)
        return found

    def _read(self, pod: KubeObject) -> Named:
        groups: list[GroupKey] = []
        for reader in self._asked(pod):
            if name := reader.name_on(pod, self._api):
                if isinstance(reader, ControllerReader):
                    key = ControllerKey(reader.kind, pod.namespace, name, reader.part(pod, name))
                    return Named(tuple(groups), key)
                groups.append(GroupKey(reader.name, pod.namespace, name))
        return Named(tuple(groups), None)

    def _asked(self, pod: KubeObject) -> list[GroupReader | ControllerReader]:
        """The readers that may find a name: the same for pods with the same keys, fields and owners."""
        owners = [(one.group, one.kind) for one in owner_line(pod, self._api)]
        spec = mapping(pod.tree, "spec")
        fields = [field for field in self._fields if field in spec]
        shape = (*owners, *fields, "", *pod.labels, "", *pod.annotations)
        asked = self._concerned.get(shape)
        if asked is None:
            marks = frozenset(shape)
            asked = [one for one in self._readers if not marks.isdisjoint(one.marks)]
            self._concerned[shape] = asked
        return asked

    def object_of(self, key: GroupKey) -> KubeObject | None:
        """The object of a group."""
        return self.reader_of[key.reader].object_of(self._api, key)


@once
def names(api: Objects) -> Names:
    """What the pods of an input name."""
    return Names(api, group_readers(), controller_readers())


def holding_readers() -> tuple[HoldingReader, ...]:
    return tuple(reader for dialect in DIALECTS for reader in dialect.holdings)


def gpu_systems() -> tuple[GpuSystem, ...]:
    return tuple(system for dialect in reversed(DIALECTS) for system in dialect.gpus)


def makers() -> dict[tuple[str, ...], Makes]:
    """By API group and kind."""
    return {kind: makes for dialect in DIALECTS for kind, makes in dialect.makes.items()}


def holders() -> tuple[Holder, ...]:
    return tuple(one.holder for one in reversed(DIALECTS) if one.holder is not None)


@once
def placement_requests(api: Objects) -> tuple[PlacementRequest, ...]:
    """Requests of every dialect that a plan answers."""
    return tuple(one for dialect in DIALECTS if dialect.requests for one in dialect.requests(api))


@once
def placed_on_request(api: Objects) -> frozenset[PodKey]:
    """Pods whose system asked for their nodes: only that starts and stops them."""
    placed = (RequestState.placed, RequestState.evicted)
    found = (one.members for one in placement_requests(api) if one.state in placed)
    return frozenset[PodKey]().union(*found)


def asked_topology(annotations: dict[str, str], job_size: int) -> Asked:
    """What the annotations of a pod ask of the topology: of the first dialect that finds anything."""
    found = (one.topology(annotations, job_size) for one in DIALECTS if one.topology is not None)
    return next((one for one in found if one != ASKS_NOTHING), ASKS_NOTHING)


def queue_keys() -> dict[str, str]:
    """Keys that name a queue, in order of precedence, and the dialect whose it is."""
    found = [(place, key, one.name) for one in DIALECTS for key, place in one.queue_keys.items()]
    return {key: system for _, key, system in sorted(found)}


def cell_readers() -> dict[str, CellReader]:
    """By the name of the dialect."""
    return {one.name: one.cells for one in DIALECTS if one.cells is not None}


def scales() -> dict[tuple[str, str], Scale]:
    """By API group and kind."""
    return {kind: scale for dialect in DIALECTS for kind, scale in dialect.scales.items()}


def quota_readers() -> dict[str, QuotaReader]:
    """By the name of the dialect; those that tenants may write come last, so that they take no name."""
    found = [(one.name, one.quotas) for one in DIALECTS if one.quotas is not None]
    return dict(sorted(found, key=lambda one: one[1].precedence))


def kept_annotations() -> frozenset[str]:
    """Keys of annotations that are read, and domains with a slash."""
    stated = (key for dialect in DIALECTS for key in dialect.annotations.split())
    return frozenset((*stated, *(key for one in holding_readers() for key in one.keys)))
