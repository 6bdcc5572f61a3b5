"""Where a pod that is not bound yet will stand: pinned, nominated, or labelled with our plan.

Promises: names nodes of the input only; what a tenant writes counts only for pods that are ours to
place. Called by ``pods``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.reading.kubernetes.forms import KubeNode, KubeObject
from planner.reading.kubernetes.looking import Tree, items, mapping, objects, text
from planner.reading.kubernetes.pods.constraints import HOSTNAME, REQUIRED

PLAN = "gangplan.dev/plan"
NODE = "gangplan.dev/node"


@dataclass(frozen=True, slots=True)
class Places:
    """Nodes by name, and by hostname label where that is one node's alone."""

    nodes: dict[str, KubeNode]
    hosts: dict[str, str]

    @classmethod
    def of(cls, nodes: Iterable[KubeNode]) -> Places:
        by_name = {node.name: node for node in nodes}
        hosts: dict[str, str] = {}
        twice = set()
        for node in by_name.values():
            host = node.labels.get(HOSTNAME, node.name)
            if hosts.setdefault(host, node.name) != node.name:
                twice.add(host)
        return cls(by_name, {host: name for host, name in hosts.items() if host not in twice})

    def pinned(self, spec: Tree) -> str | None:
        """The one node the spec allows: by hostname or, with required affinity, by name."""
        host = text(spec, "nodeSelector", HOSTNAME)
        if host is not None:
            return self.hosts.get(host)
        if "affinity" not in spec:
            return None
        required = mapping(spec, "affinity", "nodeAffinity", REQUIRED)
        found = {self._term(term) for term in objects(required, "nodeSelectorTerms")}
        return found.pop() if len(found) == 1 else None

    def _term(self, term: Tree) -> str | None:
        for entry in objects(term, "matchFields"):
            name = _only(entry, "metadata.name")
            if name is not None:
                return name if name in self.nodes else None
        for entry in objects(term, "matchExpressions"):
            host = _only(entry, HOSTNAME)
            if host is not None:
                return self.hosts.get(host)
        return None


def nominated(pod: KubeObject) -> str | None:
    return text(pod.tree, "status", "nominatedNodeName")


def planned(pod: KubeObject, places: Places) -> str | None:
    """The node our own plan names or pins it to, for a pod that is ours to place."""
    if PLAN not in pod.labels:
        return None
    return pod.annotations.get(NODE) or places.pinned(mapping(pod.tree, "spec"))


def _only(entry: Tree, key: str) -> str | None:
    """The one value an In requirement on a key allows."""
    values = items(entry, "values")
    if entry.get("key") != key or entry.get("operator") != "In" or len(values) != 1:
        return None
    return values[0] if isinstance(values[0], str) else None
