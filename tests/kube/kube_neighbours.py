"""Filters of kube-scheduler about other pods: InterPodAffinity, PodTopologySpread and NodePorts.

On raw objects, free of our readers. Promises: pods start one by one; what never passes is told with the
filter that refuses it. By kube_feasible and test_kube_neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kube_arithmetic import Name, Tree, labels_of, refusals, selects, tolerated

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HARD = "DoNotSchedule"


class Neighbours:
    """Pods on nodes. ``places``: those that stand there, and are started one by one."""

    def __init__(
        self,
        nodes: Mapping[str, Tree],
        pods: Mapping[Name, Tree],
        namespaces: Mapping[Name, Tree],
        places: Mapping[Name, str],
    ) -> None:
        self.nodes = nodes
        self.pods = pods
        self.namespaces = {name: labels_of(tree) for (_, name), tree in namespaces.items()}
        self.places = {n: where for n, where in places.items() if n in pods and where in nodes}

    def start(self, wanted: Mapping[Name, str]) -> Iterator[str]:
        """Start pods in any order that the filters accept; yields why the rest is refused."""
        left = {n: where for n, where in wanted.items() if n in self.pods and where in self.nodes}
        while left:
            ready = [n for n in sorted(left) if not any(self.refusals(n, left[n]))]
            if not ready:
                break
            # One at a time: the next is filtered beside it.
            self.places[ready[0]] = left.pop(ready[0])
        for name, where in sorted(left.items()):
            for why in self.refusals(name, where):
                yield f"Pod {'/'.join(name)} on {where}: {why}"

    def refusals(self, name: Name, where: str) -> Iterator[str]:
        """Names of the filters that refuse a pod on a node."""
        if self.is_repelled(name, where):
            yield "InterPodAffinity (existing anti-affinity)"
        if self.repels(name, where):
            yield "InterPodAffinity (anti-affinity)"
        if not self.has_company(name, where):
            yield "InterPodAffinity (affinity)"
        if self.is_skewed(name, where, None) or self.is_skewed(name, where, where):
            yield "PodTopologySpread"

    # InterPodAffinity

    def terms(self, name: Name, kind: str) -> list[Tree]:
        affinity = (self.pods[name]["spec"].get("affinity") or {}).get(kind) or {}
        return affinity.get(REQUIRED) or []

    def is_meant(self, term: Tree, owner: Name, other: Name) -> bool:
        """Whether the term of a pod selects another."""
        selector = term.get("labelSelector")
        if selector is None:
            return False
        own, labels = labels_of(self.pods[owner]), labels_of(self.pods[other])
        same = all(labels.get(k) == own[k] for k in term.get("matchLabelKeys") or [] if k in own)
        odd = any(labels.get(k) == own[k] for k in term.get("mismatchLabelKeys") or [] if k in own)
        chosen = term.get("namespaceSelector")
        listed = term.get("namespaces") or ([owner[0]] if chosen is None else [])
        there = self.namespaces.get(other[0], {})
        inside = other[0] in listed or (chosen is not None and selects(chosen, there))
        return inside and same and not odd and selects(selector, labels)

    def value(self, where: str, key: str) -> str | None:
        return labels_of(self.nodes[where]).get(key)

    def is_together(self, one: str, other: str, key: str) -> bool:
        value = self.value(one, key)
        return value is not None and value == self.value(other, key)

    def is_repelled(self, name: Name, where: str) -> bool:
        return any(
            self.is_meant(term, other, name) and self.is_together(where, place, term["topologyKey"])
            for other, place in self.places.items()
            for term in self.terms(other, "podAntiAffinity")
        )

    def repels(self, name: Name, where: str) -> bool:
        return any(
            self.is_meant(term, name, other) and self.is_together(where, place, term["topologyKey"])
            for other, place in self.places.items()
            for term in self.terms(name, "podAntiAffinity")
        )

    def has_company(self, name: Name, where: str) -> bool:
        terms = self.terms(name, "podAffinity")
        counted: Counter[tuple[str, str]] = Counter()
        for other, place in self.places.items():
            if all(self.is_meant(term, name, other) for term in terms):
                for term in terms:
                    if (value := self.value(place, term["topologyKey"])) is not None:
                        counted[term["topologyKey"], value] += 1
        values = [(term["topologyKey"], self.value(where, term["topologyKey"])) for term in terms]
        if any(value is None for _, value in values):
            return False
        if all(counted[key, str(value)] for key, value in values):
            return True
        return not counted and all(self.is_meant(term, name, name) for term in terms)

    # PodTopologySpread

    def is_skewed(self, name: Name, where: str, pin: str | None) -> bool:
        """``pin``: the only node that the node affinity of the pod leaves, as a started pod has it."""
        spec = self.pods[name]["spec"]
        rules = spec.get("topologySpreadConstraints") or []
        hard = [one for one in rules if one.get("whenUnsatisfiable", HARD) == HARD]
        return any(self.exceeds(one, hard, name, where, pin) for one in hard)

    def exceeds(
        self, rule: Tree, hard: list[Tree], name: Name, where: str, pin: str | None
    ) -> bool:
        key, own = rule["topologyKey"], labels_of(self.pods[name])
        if self.value(where, key) is None:
            return True
        counts = {
            str(self.value(node, key)): 0
            for node in self.nodes
            if self.is_counted(node, rule, hard, name, pin)
        }
        for (space, other), place in self.places.items():
            tree = self.pods[space, other]
            leaves = tree["metadata"].get("deletionTimestamp")
            if space == name[0] and not leaves and self.is_counted(place, rule, hard, name, pin):
                labels = labels_of(tree)
                counts[str(self.value(place, key))] += self.is_spread(rule, own, labels)
        least = min(counts.values(), default=0) if len(counts) >= rule.get("minDomains", 1) else 0
        there = counts.get(str(self.value(where, key)), 0) + self.is_spread(rule, own, own)
        return bool(there - least > rule["maxSkew"])

    def is_spread(self, rule: Tree, own: Mapping[str, str], labels: dict[str, str]) -> bool:
        selector, keys = rule.get("labelSelector"), rule.get("matchLabelKeys") or []
        alike = all(labels.get(key) == own[key] for key in keys if key in own)
        return selector is not None and alike and selects(selector, labels)

    def is_counted(
        self, node: str, rule: Tree, hard: list[Tree], name: Name, pin: str | None
    ) -> bool:
        if any(self.value(node, one["topologyKey"]) is None for one in hard):
            return False
        tree, spec = self.nodes[node], self.pods[name]["spec"]
        if rule.get("nodeAffinityPolicy") != "Ignore":
            bare = {"metadata": tree["metadata"]}
            if pin not in (None, node) or any(refusals(self.pods[name], bare)):
                return False
        taints = (tree.get("spec") or {}).get("taints") or []
        return rule.get("nodeTaintsPolicy") != "Honor" or all(
            tolerated(taint, spec.get("tolerations") or [])
            for taint in taints
            if taint["effect"] in ("NoSchedule", "NoExecute")
        )
