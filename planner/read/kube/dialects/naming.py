"""Which groups and which controller pods name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from planner.read.kube.dialects.base import (
    ControllerKey,
    ControllerReader,
    GroupKey,
    GroupReader,
    owner_line,
)
from planner.read.kube.lookup import mapping
from planner.read.kube.records import KubeObject, Objects


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
