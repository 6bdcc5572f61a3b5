"""Which kinds a cluster serves, and in which version, from its discovery documents.

Versions are checked before they become part of a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cluster.api_paths import API_GROUPS, core, grouped, is_version
from planner.cluster.pages import failed
from planner.cluster.transport import Reply, Transport
from planner.read.kube.kinds import Kind
from planner.read.kube.lookup import items, objects, text


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind and the version to read."""

    kind: Kind
    version: str

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    def path(self, namespace: str | None = None) -> str:
        """URL path of the list, of one namespace or of all."""
        if not self.kind.group:
            return core(self.kind.plural, namespace=namespace)
        return grouped(self.kind.group, self.version, self.kind.plural, namespace=namespace)


def served_groups(transport: Transport) -> frozenset[str] | None:
    """The API groups; None if the server does not say."""
    reply = transport.send("GET", API_GROUPS)
    if not reply.ok:
        return None
    return frozenset(name for one in objects(reply.body, "groups") if (name := text(one, "name")))


def discover(transport: Transport, kinds: Sequence[Kind]) -> tuple[list[ServedKind], list[Kind]]:
    """Kinds that are served, and those that are not, each in the given order.

    Raises UnavailableError, NotPermittedError.
    """
    served = _served_versions(_document(transport, API_GROUPS))
    resources: dict[str, set[str] | None] = {}

    def has(kind: Kind, version: str) -> bool:
        if kind.certain:
            return True
        path = f"{API_GROUPS}/{kind.group}/{version}"
        if path not in resources:
            resources[path] = _listable(_document(transport, path))
        listable = resources[path]
        return listable is None or kind.plural in listable

    found, absent = [], []
    for kind in kinds:
        version = next((one for one in _candidates(kind, served) if has(kind, one)), None)
        if version is None:
            absent.append(kind)
        else:
            found.append(ServedKind(kind, version))
    return found, absent


def _document(transport: Transport, path: str) -> Reply:
    """A discovery document; also the reply that it is missing or forbidden."""
    reply = transport.send("GET", path)
    if reply.ok or reply.status in {403, 404, 410}:
        return reply
    raise failed(reply, f"GET {path}")


def _served_versions(groups: Reply) -> dict[str, list[str]] | None:
    """Group to its versions, the preferred one first; None if the user may not know."""
    if not groups.ok:
        return None
    found = {}
    for group in objects(groups.body, "groups"):
        names = [text(group, "preferredVersion", "version")]
        names += [text(version, "version") for version in objects(group, "versions")]
        versions = [name for name in names if name is not None and is_version(name)]
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


def _listable(resources: Reply) -> set[str] | None:
    """Plurals that can be listed; None if the user may not know."""
    if not resources.ok:
        return None if resources.status == 403 else set()
    return {
        name
        for entry in objects(resources.body, "resources")
        if (name := text(entry, "name")) is not None and "list" in items(entry, "verbs")
    }
