"""Required anti-affinity of bound pods: the domains it closes to the pods to place.

Where it is about the pods of its own gang alone it is a rule of their roles (``planner.read.kube.pod_sets``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import NodeExpression
from planner.read.findings import Remarks
from planner.read.kube.lookup import (
    LabelSets,
    Tree,
    at,
    bits,
    items,
    mapping,
    mask_key,
    objects,
    text,
    union,
)
from planner.read.kube.pods.constraints import (
    MAX_EXPRESSIONS,
    MAX_PARTS,
    MAX_TERMS,
    MAX_VALUES,
    Narrower,
    Term,
    selects_too_much,
)
from planner.read.kube.pods.pod_rules import REQUIRED
from planner.read.kube.records import KubeNode, KubePod

EXCLUDED = "kept off nodes of running pods whose required podAntiAffinity selects it"
REPELS_OTHERS = "its required podAntiAffinity keeps waiting pods of other namespaces off its {key}"
TOO_LARGE = (
    f"its required podAntiAffinity has more than {MAX_TERMS} terms, {MAX_EXPRESSIONS:,} expressions or"
    f" {MAX_VALUES:,} values, or more than the {MAX_PARTS:,} of its namespace; it closes no node here, the"
    " scheduler may refuse pods that are placed there"
)


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


_Closed = dict[tuple[str, bytes], tuple[int, set[str]]]
"""By topology label and pods, these as a mask and the values that are closed to them."""


def exclude_by_anti_affinity(
    pods: Sequence[KubePod],
    nodes: Iterable[KubeNode],
    remarks: Remarks,
    known: Collection[tuple[str, str]] = (),
) -> None:
    """Exclude the pods to place from the domains of running pods whose anti-affinity selects them.

    ``known``: keys of the pods whose anti-affinity is a rule of their role.
    """
    repelling = [
        pod for pod in pods if pod.bound and pod.holds_room and _terms(pod) and pod.key not in known
    ]
    if not repelling:
        return
    waiting = PodKinds(pod for pod in pods if pod.to_place)
    by_name = {node.name: node for node in nodes}
    closed: _Closed = {}
    for pod in repelling:
        _close(pod, by_name[pod.node or ""], waiting, closed, remarks)
    apart, narrower = _apart(closed, len(waiting.numbers)), Narrower()
    for pod, number in waiting.of:
        if apart[number]:
            remarks.add(pod.subject, EXCLUDED)
            narrower.narrow(pod, apart[number])


def _apart(closed: _Closed, waiting: int) -> list[Term]:
    """The expressions that keep each of the waiting off what is closed to it."""
    found: list[dict[str, set[str]]] = [{} for _ in range(waiting)]
    for (key, _), (mask, values) in closed.items():
        for number in bits(mask):
            found[number].setdefault(key, set()).update(values)
    known: dict[tuple[str, frozenset[str]], NodeExpression] = {}

    def apart(key: str, values: set[str]) -> NodeExpression:
        same = key, frozenset(values)
        if same not in known:
            known[same] = NodeExpression(key, "NotIn", tuple(sorted(values)))
        return known[same]

    return [tuple(apart(key, own[key]) for key in sorted(own)) for own in found]


def _terms(pod: KubePod) -> list[Tree]:
    return objects(pod.object.tree, "spec", "affinity", "podAntiAffinity", REQUIRED)


def _close(
    pod: KubePod, node: KubeNode, waiting: PodKinds, closed: _Closed, remarks: Remarks
) -> None:
    terms, namespace = _terms(pod), pod.object.namespace
    if selects_too_much(terms):
        remarks.add(pod.subject, TOO_LARGE)
        return
    for term in terms:
        key = text(term, "topologyKey")
        if key is None or not isinstance(at(term, "labelSelector"), dict):
            continue
        value = node.labels.get(key, node.name if key == HOSTNAME_LABEL else None)
        # A selector of namespaces counts as that of all, and matchLabelKeys as none: that closes more.
        listed = [one for one in items(term, "namespaces") if isinstance(one, str)] or [namespace]
        spaces = None if isinstance(at(term, "namespaceSelector"), dict) else listed
        numbers = waiting.selected(mapping(term, "labelSelector"), spaces) if value else 0
        if value and numbers:
            closed.setdefault((key, mask_key(numbers)), (numbers, set()))[1].add(value)
            if numbers & ~waiting.inside.get(namespace, 0):
                remarks.add(pod.subject, REPELS_OTHERS.format(key=key))
