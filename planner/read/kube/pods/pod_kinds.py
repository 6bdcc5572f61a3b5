"""Pods and nodes as numbers, so that selectors find them as bit masks.

Work grows with what selectors state plus what pods and nodes have, not with their product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression
from models.instance.gang import NodeAffinity, holds
from planner.read.kube.lookup import LabelSets, Tree, union
from planner.read.kube.records import KubeNode, KubePod


class PodKinds:
    """Pods; those of one namespace with equal labels are of one kind, and have one number.

    ``keys``: labels that count; None: all.
    """

    def __init__(self, pods: Iterable[KubePod], keys: Collection[str] | None = None) -> None:
        self.numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self.of: list[tuple[KubePod, int]] = []
        for pod in pods:
            labels = pod.labels.items()
            named = labels if keys is None else (one for one in labels if one[0] in keys)
            same = (pod.object.namespace, frozenset(named))
            self.of.append((pod, self.numbers.setdefault(same, len(self.numbers))))
        self.labels = LabelSets([dict(labels) for _, labels in self.numbers])
        self.inside: dict[str, int] = {}
        for (namespace, _), number in self.numbers.items():
            self.inside[namespace] = self.inside.get(namespace, 0) | 1 << number

    def selected(self, selector: Tree, namespaces: Iterable[str] | None) -> int:
        """Kinds that a selector selects in these namespaces; None: in all."""
        found = self.labels.matching(selector)
        if namespaces is None or not found:
            return found
        return found & union(self.inside.get(one, 0) for one in namespaces)


class NodeMasks:
    """Nodes in order, as bits. ``installed``: those with GPUs."""

    def __init__(self, nodes: Sequence[KubeNode]) -> None:
        self.sets = LabelSets([{HOSTNAME_LABEL: node.name, **node.labels} for node in nodes])
        self.all = self.sets.all
        self.number = {node.name: number for number, node in enumerate(nodes)}
        self.installed = union(1 << n for n, node in enumerate(nodes) if node.installed)
        self._by_value: dict[str, dict[str, int]] = {}
        self._matching: dict[tuple[object, ...], tuple[NodeAffinity, int]] = {}

    def having(self, key: str) -> int:
        """Nodes with this label."""
        return self.sets.having(key)

    def by_value(self, key: str) -> dict[str, int]:
        """Nodes with each value of this label."""
        if key not in self._by_value:
            self._by_value[key] = self.sets.by_value(key)
        return self._by_value[key]

    def matching(self, selector: Mapping[str, str], affinity: NodeAffinity) -> int:
        """Nodes that a node selector and any term of an affinity match."""
        same = (tuple(sorted(selector.items())), id(affinity))
        if same not in self._matching:
            found = self.sets.matching({"matchLabels": selector})
            if affinity:
                found &= union(self._term(term) for term in affinity)
            self._matching[same] = (affinity, found)  # the affinity keeps its id
        return self._matching[same][1]

    def _term(self, term: Sequence[NodeExpression]) -> int:
        found = self.all
        for one in term:
            found &= self._expression(one)
        return found

    def _expression(self, one: NodeExpression) -> int:
        if one.field:
            known = {name: 1 << number for name, number in self.number.items()}
        else:
            known = self.by_value(one.key)
        if one.operator in ("In", "NotIn"):
            listed = union(known[value] for value in one.values if value in known)
            return listed if one.operator == "In" else self.all & ~listed
        found = union(mask for value, mask in known.items() if holds(one, value))
        return found | (self.all & ~self.having(one.key) if holds(one, None) else 0)
