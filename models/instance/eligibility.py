"""Which nodes the pods of a role may be placed on, leaving free space aside.

Each taint list, server model and label value is examined once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from models.documents.cluster import Taint
from models.documents.gang import GangDocument, NodeExpression, Toleration
from models.hardware import bits, slug
from models.instance.cluster import Node
from models.instance.gang import NodeAffinity, Role
from models.units import whole_number

CONDITIONS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that repeat a node's condition, and go with it."""

Nodes = frozenset[int]
Mask = int
"""A set of nodes: one bit a node."""


@dataclass(slots=True)
class Eligibility:
    """``labels``: of every node, implied ones included. ``usable``: indices of schedulable nodes."""

    nodes: tuple[Node, ...]
    labels: tuple[Mapping[str, str], ...]
    usable: Nodes
    _kept: dict[Hashable, Nodes] = field(default_factory=dict)
    _values: dict[str | None, dict[str | None, Mask]] = field(default_factory=dict)
    _sorted: dict[str | None, tuple[list[int], list[Mask]]] = field(default_factory=dict)

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
            found &= self._once(("label", key, value), partial(self._labelled, key, value))
        if role.node_affinity:
            found &= _members(self.affine(role.node_affinity))
        tolerant = self._once(
            ("tolerations", role.tolerations), partial(self._tolerant, role.tolerations)
        )
        if role.model is not None:
            found &= self._once(("model", role.model), partial(self._modelled, role.model))
        return found & tolerant

    def affine(self, affinity: NodeAffinity) -> Mask:
        """Nodes that a term of an affinity matches."""
        found = 0
        for term in affinity:
            suited = self._all if term else 0
            for one in term:
                suited &= self._suited(one)
            found |= suited
        return found

    def _labelled(self, key: str, value: str) -> Nodes:
        return _members(self.by_value(key).get(value, 0))

    def _suited(self, one: NodeExpression) -> Mask:
        """Nodes where an expression holds."""
        key = None if one.field else one.key
        values = self.by_value(key)
        match one.operator:
            case "In":
                return self._listed(values, one)
            case "NotIn":
                return self._all & ~self._listed(values, one)
            case "Exists":
                return self._all & ~values.get(None, 0)
            case "DoesNotExist":
                return values.get(None, 0)
        return self._compared(key, one)

    def _compared(self, key: str | None, one: NodeExpression) -> Mask:
        limit = whole_number(one.values[0]) if len(one.values) == 1 else None
        if limit is None:
            return 0
        numbers, below = self._by_number(key)
        if one.operator == "Gt":
            return below[-1] & ~below[bisect_right(numbers, limit)]
        return below[bisect_left(numbers, limit)]

    @property
    def _all(self) -> Mask:
        return (1 << len(self.nodes)) - 1

    @staticmethod
    def _listed(values: Mapping[str | None, Mask], one: NodeExpression) -> Mask:
        found = 0
        for value in one.values:
            found |= values.get(value, 0)
        return found

    def by_value(self, key: str | None) -> dict[str | None, Mask]:
        """All nodes by the value of a label, None where they lack it; by name for the key None."""
        if key not in self._values:
            groups: dict[str | None, Mask] = {}
            for n, labels in enumerate(self.labels):
                value = self.nodes[n].name if key is None else labels.get(key)
                groups[value] = groups.get(value, 0) | 1 << n
            self._values[key] = groups
        return self._values[key]

    def _by_number(self, key: str | None) -> tuple[list[int], list[Mask]]:
        """The whole numbers among the values, ascending, and the nodes with the first i of them."""
        if key not in self._sorted:
            groups: dict[int, Mask] = {}
            for value, nodes in self.by_value(key).items():
                number = None if value is None else whole_number(value)
                if number is not None:
                    groups[number] = groups.get(number, 0) | nodes
            below = [0]
            for number in sorted(groups):
                below.append(below[-1] | groups[number])
            self._sorted[key] = (sorted(groups), below)
        return self._sorted[key]

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


def _members(mask: Mask) -> Nodes:
    return frozenset(bits(mask))


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


def without_conditions(node: Node) -> Node:
    """The node without the taints that repeat its condition; the same node if it has none."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(CONDITIONS))
    return node if len(taints) == len(node.taints) else replace(node, taints=taints)


def tolerated_by_all(gangs: Iterable[GangDocument], taints: Sequence[Taint]) -> bool:
    """Whether every pod with GPUs tolerates the taints; without such pods, whether there are none.

    Taints that repeat a node's condition do not count.
    """
    own = [taint for taint in taints if not taint.key.startswith(CONDITIONS)]
    roles = [role.tolerations for gang in gangs for role in gang.spec.roles if role.gpus]
    return all(tolerated(one, own) for one in dict.fromkeys(roles or [()]))


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
