"""Which of the kinds a cluster serves, and in which version: learnt from its discovery documents.

Promises: a kind is served in one version, a known one where there is one; names of versions are
checked before they become part of a URL. Called by ``planner.cluster.snapshot``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from planner.cluster.answers import Reason, Refusal, Tree
from planner.cluster.kinds import Kind
from planner.cluster.kubectl import Kubectl
from planner.read.kube.lookup import items, objects, text

_VERSION = re.compile(r"v[0-9]{1,3}(?:(?:alpha|beta)[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Served:
    """A kind and the version to ask for."""

    kind: Kind
    version: str

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    def path(self, namespace: str | None = None) -> str:
        """URL path of the list, of one namespace or of all."""
        root = f"/apis/{self.api_version}" if self.kind.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{inside}/{self.kind.plural}"


def certain(kind: Kind) -> Served:
    """A kind of the core API, which every server has."""
    return Served(kind, kind.versions[0])


class Discovery:
    """Finds out which kinds are served. Ask early, look late: the answers come meanwhile."""

    def __init__(self, door: Kubectl, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._documents = _Documents(door)
        self._groups = door.ask_json("/apis")
        self._candidates: dict[Kind, tuple[str, ...]] = {}

    def ask(self) -> None:
        """Ask for the documents that will most likely be needed, without waiting for them."""
        served = _versions(self._groups.result())
        self._candidates = {kind: _candidates(kind, served) for kind in self._kinds}
        for kind, versions in self._candidates.items():
            if versions and not kind.certain:
                self._documents.ask(kind.group, versions[0])

    def found(self) -> tuple[list[Served], list[Kind]]:
        """Kinds that are served, and those that are not, each in the order given."""
        found, absent = [], []
        for kind, versions in self._candidates.items():
            version = next((name for name in versions if self._has(kind, name)), None)
            if version is None:
                absent.append(kind)
            else:
                found.append(Served(kind, version))
        return found, absent

    def _has(self, kind: Kind, version: str) -> bool:
        if kind.certain:
            return True
        listable = self._documents.listable(kind.group, version)
        return listable is None or kind.plural in listable


def _versions(answer: Tree | Refusal) -> dict[str, list[str]] | None:
    """Group name to its versions, the preferred one first; None where the user may not know."""
    if isinstance(answer, Refusal):
        return None
    found = {}
    for group in objects(answer, "groups"):
        named = [text(group, "preferredVersion", "version")]
        named += [text(version, "version") for version in objects(group, "versions")]
        versions = [name for name in named if name is not None and _VERSION.fullmatch(name)]
        found[text(group, "name") or ""] = list(dict.fromkeys(versions))
    return found


def _candidates(kind: Kind, served: dict[str, list[str]] | None) -> tuple[str, ...]:
    """Versions to look at: known ones first. Without discovery the known ones are tried."""
    if not kind.group or served is None:
        return kind.versions
    there = served.get(kind.group, [])
    known = tuple(version for version in kind.versions if version in there)
    if kind.certain:
        return known
    return known + tuple(version for version in there if version not in known)


class _Documents:
    """Discovery documents of groups and versions, each asked for once."""

    def __init__(self, door: Kubectl) -> None:
        self._door = door
        self._asked: dict[tuple[str, str], Future[Tree | Refusal]] = {}

    def ask(self, group: str, version: str) -> Future[Tree | Refusal]:
        key = (group, version)
        if key not in self._asked:
            self._asked[key] = self._door.ask_json(f"/apis/{group}/{version}")
        return self._asked[key]

    def listable(self, group: str, version: str) -> set[str] | None:
        """Plurals that can be listed; None where the user may not know."""
        answer = self.ask(group, version).result()
        if isinstance(answer, Refusal):
            return None if answer.reason is Reason.forbidden else set()
        return {
            name
            for entry in objects(answer, "resources")
            if (name := text(entry, "name")) is not None and "list" in items(entry, "verbs")
        }
