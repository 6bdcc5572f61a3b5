"""Pods that stand and share no domain with others: their required anti-affinity, seen from there.

Promises: exact where the selectors can be read; a namespace nobody described counts as selected.
Called by ``pods``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from planner.reading.kubernetes.forms import Expression, KubeNode, KubePod, Objects
from planner.reading.kubernetes.looking import Tree, at, items, mapping, objects, text
from planner.reading.kubernetes.pods.constraints import HOSTNAME, REQUIRED
from planner.reading.kubernetes.selecting import matches
from planner.reading.remarks import Remarks

_KIND = "podAntiAffinity"
KEPT_OFF = (
    "kept off the nodes of pods that stand there and whose required podAntiAffinity selects it"
)


@dataclass(slots=True)
class _Repulsion:
    """One term of standing pods. ``values``: of the label ``key``, where they stand."""

    term: Tree
    namespace: str
    key: str
    values: dict[str, None] = field(default_factory=dict)


def kept_apart(
    pods: Iterable[KubePod],
    nodes: Iterable[KubeNode],
    found: Objects,
    ignore: Collection[str],
    remarks: Remarks,
) -> dict[tuple[str, str], KubePod]:
    """Pods of ours that wait, by key, where some domains are closed to them: with these left out."""
    if _KIND in ignore:
        return {}
    pods = list(pods)
    repulsions = _repulsions(pods, {node.name: node for node in nodes})
    if not repulsions:
        return {}
    changed = {}
    for pod in pods:
        closed: dict[str, dict[str, None]] = {}
        for one in repulsions if pod.ours else ():
            if _selects(one, pod, found):
                closed.setdefault(one.key, {}).update(one.values)
        if closed:
            remarks.add(pod.subject, KEPT_OFF)
            apart = tuple(
                Expression(key, "NotIn", tuple(sorted(closed[key]))) for key in sorted(closed)
            )
            terms = pod.affinity or ((),)
            changed[pod.key] = replace(pod, affinity=tuple((*term, *apart) for term in terms))
    return changed


def _repulsions(pods: Iterable[KubePod], nodes: dict[str, KubeNode]) -> list[_Repulsion]:
    """Every different term, with the domains it is about."""
    different: dict[str, _Repulsion] = {}
    for pod in pods:
        if pod.node is None or pod.finished is not None:
            continue
        node = nodes[pod.node]
        for term, key in _terms(mapping(pod.object.tree, "spec", "affinity", _KIND)):
            value = node.labels.get(key, node.name if key == HOSTNAME else None)
            if value:
                same = json.dumps([pod.object.namespace, term], sort_keys=True, default=str)
                own = different.setdefault(same, _Repulsion(term, pod.object.namespace, key))
                own.values[value] = None
    return list(different.values())


def _terms(rules: Tree) -> Iterator[tuple[Tree, str]]:
    """(term, topology key) of those that can select any pod."""
    if REQUIRED not in rules:
        return
    for term in objects(rules, REQUIRED):
        key = text(term, "topologyKey")
        if key is not None and isinstance(at(term, "labelSelector"), dict):
            yield term, key


def _selects(one: _Repulsion, pod: KubePod, found: Objects) -> bool:
    return matches(mapping(one.term, "labelSelector"), pod.labels) and _namespace(one, pod, found)


def _namespace(one: _Repulsion, pod: KubePod, found: Objects) -> bool:
    """Whether the term is about pods of this namespace: its own, unless it says others."""
    listed, selector = items(one.term, "namespaces"), at(one.term, "namespaceSelector")
    own = pod.object.namespace
    if own in listed:
        return True
    if not isinstance(selector, dict):
        return not listed and own == one.namespace
    described = found.named("", "Namespace", "", own)
    return not selector or described is None or matches(selector, described.labels)
