"""Required anti-affinity of bound pods: the domains it closes to waiting pods of ours.

Work grows with what the terms state plus what the pods have, not with their product: sets of pods are bit
masks, and pods of one namespace with equal labels are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from models.documents.cluster import HOSTNAME_LABEL
from models.gang import NodeExpression
from planner.read.findings import Remarks
from planner.read.kube.lookup import (
    LabelSets,
    Tree,
    at,
    bits,
    items,
    mapping,
    objects,
    text,
    union,
)
from planner.read.kube.pods.constraints import (
    MAX_EXPRESSIONS,
    MAX_PARTS,
    MAX_TERMS,
    MAX_VALUES,
    REQUIRED,
    Affinity,
    selects_too_much,
)
from planner.read.kube.records import KubeNode, KubePod, Objects

EXCLUDED = "kept off nodes of running pods whose required podAntiAffinity selects it"
REPELS_OTHERS = "its required podAntiAffinity keeps waiting pods of other namespaces off its {key}"
TOO_LARGE = (
    f"its required podAntiAffinity has more than {MAX_TERMS} terms, {MAX_EXPRESSIONS:,} expressions or"
    f" {MAX_VALUES:,} values, or more than the {MAX_PARTS:,} of its namespace; it closes no node here, the"
    " scheduler may refuse pods that are placed there"
)


class _Waiting:
    """Waiting pods of ours. Those of one namespace with equal labels have one number."""

    def __init__(self, pods: Iterable[KubePod], found: Objects) -> None:
        self.numbers: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self.of: list[tuple[KubePod, int]] = []
        for pod in pods:
            same = (pod.object.namespace, frozenset(pod.labels.items()))
            self.of.append((pod, self.numbers.setdefault(same, len(self.numbers))))
        self.labels = LabelSets([dict(labels) for _, labels in self.numbers])
        self.inside: dict[str, int] = {}
        for (namespace, _), number in self.numbers.items():
            self.inside[namespace] = self.inside.get(namespace, 0) | 1 << number
        self.namespaces = list(self.inside)
        described = [found.named("", "Namespace", "", name) for name in self.namespaces]
        self.namespace_labels = LabelSets([{} if one is None else one.labels for one in described])
        # A namespace that is not in the input counts as selected.
        self.unknown = sum(1 << number for number, one in enumerate(described) if one is None)

    def selected(self, term: Tree, namespace: str) -> int:
        """Numbers that a term of a running pod of the namespace selects."""
        found = self.labels.matching(mapping(term, "labelSelector"))
        return found and found & self._covered(term, namespace)

    def _covered(self, term: Tree, own: str) -> int:
        """Those in namespaces that the term is about: by default only its own."""
        listed, selector = items(term, "namespaces"), at(term, "namespaceSelector")
        named = {one for one in listed if isinstance(one, str)}
        covered = union(self.inside.get(one, 0) for one in named)
        if not isinstance(selector, dict):
            return covered if listed else self.inside.get(own, 0)
        if not selector:
            return self.labels.all
        chosen = self.namespace_labels.matching(selector) | self.unknown
        return covered | union(
            self.inside[name] for number, name in enumerate(self.namespaces) if chosen >> number & 1
        )


@dataclass(slots=True)
class _Closed:
    """By topology label, the numbers of pods and the values that are closed to them."""

    values: dict[str, dict[int, dict[str, None]]] = field(default_factory=dict)

    def add(self, key: str, numbers: int, value: str) -> None:
        self.values.setdefault(key, {}).setdefault(numbers, {})[value] = None

    def apart(self, waiting: int) -> list[tuple[NodeExpression, ...]]:
        """The expressions that keep each of the waiting off what is closed to it."""
        found: list[list[NodeExpression]] = [[] for _ in range(waiting)]
        for key in sorted(self.values):
            names = sorted(set().union(*self.values[key].values()))
            place = {name: number for number, name in enumerate(names)}
            closed = [0] * waiting
            for numbers, values in self.values[key].items():
                mask = sum(1 << place[value] for value in values)
                for number in bits(numbers):
                    closed[number] |= mask
            known: dict[int, NodeExpression] = {}
            for number, mask in enumerate(closed):
                if mask:
                    if mask not in known:
                        listed = tuple(names[i] for i in bits(mask))
                        known[mask] = NodeExpression(key, "NotIn", listed)
                    found[number].append(known[mask])
        return [tuple(expressions) for expressions in found]


def exclude_by_anti_affinity(
    pods: Iterable[KubePod], nodes: Iterable[KubeNode], found: Objects, remarks: Remarks
) -> None:
    """Exclude waiting pods of ours from the domains of running pods whose anti-affinity selects them."""
    pods = list(pods)
    repelling = [pod for pod in pods if pod.bound and pod.holds_room and _terms(pod)]
    if not repelling:
        return
    waiting = _Waiting((pod for pod in pods if pod.ours), found)
    by_name = {node.name: node for node in nodes}
    closed = _Closed()
    for pod in repelling:
        _close(pod, by_name[pod.node or ""], waiting, closed, remarks)
    apart = closed.apart(len(waiting.numbers))
    narrowed: dict[tuple[int, int], tuple[Affinity, Affinity]] = {}
    for pod, number in waiting.of:
        if not apart[number]:
            continue
        remarks.add(pod.subject, EXCLUDED)
        same = (id(pod.affinity), number)
        if same not in narrowed:
            terms = tuple((*term, *apart[number]) for term in pod.affinity or ((),))
            narrowed[same] = (pod.affinity, terms)  # the first keeps its id
        pod.affinity = narrowed[same][1]


def _terms(pod: KubePod) -> list[Tree]:
    return objects(pod.object.tree, "spec", "affinity", "podAntiAffinity", REQUIRED)


def _close(
    pod: KubePod, node: KubeNode, waiting: _Waiting, closed: _Closed, remarks: Remarks
) -> None:
    """Close the domains of one running pod to the waiting pods that its terms select."""
    terms, namespace = _terms(pod), pod.object.namespace
    if selects_too_much(terms):
        remarks.add(pod.subject, TOO_LARGE)
        return
    for term in terms:
        key = text(term, "topologyKey")
        if key is None or not isinstance(at(term, "labelSelector"), dict):
            continue
        value = node.labels.get(key, node.name if key == HOSTNAME_LABEL else None)
        numbers = waiting.selected(term, namespace) if value else 0
        if value and numbers:
            closed.add(key, numbers, value)
            if numbers & ~waiting.inside.get(namespace, 0):
                remarks.add(pod.subject, REPELS_OTHERS.format(key=key))
