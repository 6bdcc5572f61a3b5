"""Which nodes accept pods of a role, if there is room: usable, tolerated, selected, of the role's model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from models.documents.cluster import Taint
from models.documents.gang import NodeExpression, Toleration
from models.hardware import slug
from models.verify.facts import Node, Role

INTEGERS = range(-(2**63), 2**63)
"""Values that Gt and Lt compare."""

MAX_DIGITS = 64

NAME = ""
"""In place of a label: the name of a node."""

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Beginnings of taints that go when a node's condition does."""

Known = dict[int, bool]
"""Whether affinities hold on one node, by their identity."""


def in_order(node: Node) -> Node:
    """The node as it is when it is ready and uncordoned again."""
    if not node.taints and node.usable == node.selected:
        return node
    taints = tuple(one for one in node.taints if not one.key.startswith(PASSING))
    return replace(node, usable=node.selected, taints=taints)


def accepts(node: Node, role: Role) -> bool:
    """Whether pods of the role may be placed on the node, if there is room."""
    return next(faults(node, role, {}), None) is None


def open_to(node: Node, role: Role) -> bool:
    """Whether the node would accept pods of the role but for its labels."""
    return next(_faults_beside_labels(node, role), None) is None


def accepting(role: Role) -> object:
    """Roles of which this is equal are accepted by the same nodes."""
    return tuple(role.selector.items()), role.affinity, role.tolerations, role.model


def labelled(nodes: Sequence[Node], role: Role, known: dict[object, set[int]]) -> Collection[int]:
    """Nodes that have a label that the role asks for, the rarest one; all where it asks for none.

    ``known``: nodes by label, filled by need.
    """
    asked = [_having(nodes, key, (value,), known) for key, value in role.selector.items()]
    terms = [
        [
            _having(
                nodes,
                NAME if one.field else one.key,
                one.values if one.operator == "In" else (),
                known,
            )
            for one in term
            if one.operator not in ("NotIn", "DoesNotExist")
        ]
        for term in role.affinity
        if term
    ]
    if role.affinity and all(terms):
        asked.append(set().union(*(min(sets, key=len) for sets in terms)))
    return min(asked, key=len, default=range(len(nodes)))


def _having(
    nodes: Sequence[Node], key: str, values: Sequence[str], known: dict[object, set[int]]
) -> set[int]:
    """Nodes with one of these values of a label, or with any where none is given."""
    if key not in known:
        known[key] = set()
        for n, node in enumerate(nodes):
            value = node.name if key == NAME else node.labels.get(key)
            if value is not None:
                known[key].add(n)
                known.setdefault((key, value), set()).add(n)
    return set().union(*(known.get((key, one), ()) for one in values)) if values else known[key]


def selected(node: Node, role: Role) -> bool:
    """Whether node selector and node affinity of the role hold, whatever else is wrong with the node."""
    if any(node.labels.get(key) != value for key, value in role.selector.items()):
        return False
    return not role.affinity or _affine(node, role, {})


def faults(node: Node, role: Role, known: Known) -> Iterator[tuple[str, str]]:
    """(rule, what is wrong) with pods of the role on the node."""
    yield from _faults_beside_labels(node, role)
    for key, value in sorted(role.selector.items()):
        if node.labels.get(key) != value:
            yield "selector", f"label {key} does not match"
    if role.affinity and not _affine(node, role, known):
        yield "selector", "its node affinity does not hold"


def _faults_beside_labels(node: Node, role: Role) -> Iterator[tuple[str, str]]:
    if not node.usable:
        yield "schedulable", "is cordoned, not ready or not selected by the policy"
    for taint in node.taints:
        if not any(_tolerates(one, taint) for one in role.tolerations):
            yield "taint", f"taint {taint.key} is not tolerated"
    if role.model is not None and not (
        node.model is not None and role.model in (slug(node.model.gpu), *node.model.slugs)
    ):
        yield "selector", f"is not of the model {role.model}"


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: no effect matches every effect, no key with Exists every taint."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def _affine(node: Node, role: Role, known: Known) -> bool:
    """Whether any term holds; roles may share one affinity."""
    if id(role.affinity) not in known:
        known[id(role.affinity)] = any(
            term and all(_holds(node, one) for one in term) for term in role.affinity
        )
    return known[id(role.affinity)]


def _holds(node: Node, expression: NodeExpression) -> bool:
    value = node.name if expression.field else node.labels.get(expression.key)
    operator = expression.operator
    if operator in ("NotIn", "DoesNotExist"):
        return value is None or (operator == "NotIn" and value not in expression.values)
    if value is None:
        return False
    if operator in ("Gt", "Lt"):
        own, limit = _integer(value), _integer(expression.values[0])
        if own is None or limit is None:
            return False
        return own > limit if operator == "Gt" else own < limit
    return operator == "Exists" or value in expression.values


def _integer(text: str) -> int | None:
    """A signed 64-bit decimal."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > MAX_DIGITS:
        return None
    number = int(text)
    return number if number in INTEGERS else None
