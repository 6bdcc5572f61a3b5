"""Which nodes the pods of a role may be placed on, leaving free space aside.

The same answers as ``Instance.eligible``, with each taint list, server model and label value examined once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from models.cluster import Node, Taint
from models.gang import NodeAffinity, NodeExpression, Role, Toleration, holds
from models.hardware import slug

Nodes = frozenset[int]


@dataclass(slots=True)
class Eligibility:
    """``labels``: of every node, implied ones included. ``usable``: indices of schedulable nodes."""

    nodes: tuple[Node, ...]
    labels: tuple[Mapping[str, str], ...]
    usable: Nodes
    _kept: dict[Hashable, Nodes] = field(default_factory=dict)
    _values: dict[str | None, dict[str | None, Nodes]] = field(default_factory=dict)

    def of(self, role: Role) -> Nodes:
        """Indices of the nodes that pods of the role may be placed on."""
        constraints = (role.node_selector, role.node_affinity, role.tolerations, role.model)
        return self._once(("role", constraints), partial(self._of, role))

    def of_gpu(self, nodes: Nodes, gpu: str) -> Nodes:
        """Those of the nodes that have this GPU model; the same set if that is all of them."""

        def found() -> Nodes:
            models = ((n, self.nodes[n].model) for n in nodes)
            having = frozenset(n for n, model in models if model is not None and model.gpu == gpu)
            return nodes if len(having) == len(nodes) else having

        return self._once(("gpu", nodes, gpu), found)

    def _once(self, key: Hashable, find: Callable[[], Nodes]) -> Nodes:
        if key not in self._kept:
            self._kept[key] = find()
        return self._kept[key]

    def _of(self, role: Role) -> Nodes:
        found = self.usable
        for key, value in role.node_selector:
            found &= self._by_value(key).get(value, frozenset())
        if role.node_affinity:
            found &= self._affine(role.node_affinity)
        tolerant = self._once(
            ("tolerations", role.tolerations), partial(self._tolerant, role.tolerations)
        )
        if role.model is not None:
            found &= self._once(("model", role.model), partial(self._modelled, role.model))
        return found & tolerant

    def _affine(self, affinity: NodeAffinity) -> Nodes:
        found: Nodes = frozenset()
        for term in affinity:
            suited = [self._once(("expression", one), partial(self._suited, one)) for one in term]
            found |= frozenset.intersection(*suited) if suited else frozenset()
        return found

    def _suited(self, one: NodeExpression) -> Nodes:
        """Nodes where an expression holds, evaluated once for each value."""
        values = self._by_value(None if one.field else one.key)
        if one.operator in ("In", "NotIn"):
            listed = self._union(values[value] for value in one.values if value in values)
            return listed if one.operator == "In" else self._all - listed
        return self._union(nodes for value, nodes in values.items() if holds(one, value))

    @property
    def _all(self) -> Nodes:
        return self._once(("all",), lambda: frozenset(range(len(self.nodes))))

    @staticmethod
    def _union(sets: Iterable[Nodes]) -> Nodes:
        return frozenset().union(*sets)

    def _by_value(self, key: str | None) -> dict[str | None, Nodes]:
        """All nodes by the value of a label, None where they lack it; by name for the key None."""
        if key not in self._values:
            groups: dict[str | None, list[int]] = {}
            for n, labels in enumerate(self.labels):
                value = self.nodes[n].name if key is None else labels.get(key)
                groups.setdefault(value, []).append(n)
            self._values[key] = {value: frozenset(found) for value, found in groups.items()}
        return self._values[key]

    def _tolerant(self, tolerations: tuple[Toleration, ...]) -> Nodes:
        return _alike(
            range(len(self.nodes)),
            lambda n: self.nodes[n].taints,
            lambda n: tolerated(tolerations, self.nodes[n].taints),
        )

    def _modelled(self, model: str) -> Nodes:
        return _alike(
            range(len(self.nodes)),
            lambda n: id(self.nodes[n].model),
            lambda n: model_matches(model, self.nodes[n]),
        )


def _alike(
    nodes: Iterable[int], look: Callable[[int], Hashable], answer: Callable[[int], bool]
) -> Nodes:
    """Nodes for which ``answer`` is true, evaluated once for nodes with equal ``look``."""
    answers: dict[Hashable, bool] = {}
    found = []
    for n in nodes:
        seen = look(n)
        if seen not in answers:
            answers[seen] = answer(n)
        if answers[seen]:
            found.append(n)
    return frozenset(found)


def model_matches(wanted: str, node: Node) -> bool:
    """Whether ``wanted`` is the slug of the node's GPU model, server model or an alias of it."""
    if node.model is None:
        return False
    return slug(wanted) in (slug(node.model.gpu), *node.model.slugs)


def tolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether every NoSchedule and NoExecute taint is tolerated."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(tolerates(one, taint) for one in tolerations)
        for taint in taints
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As Kubernetes: an empty effect matches all, an empty key with Exists matches every taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
