"""Node affinity as the judge reads it: any term, all expressions of one, as in Kubernetes.

Promises: a hostile document gives faults, never an exception. Read by ``groups``, asked by ``rules.nodes``.
"""

from __future__ import annotations

from models.checking.facts import Expression, Node
from models.checking.form import Form

_EXPRESSION = frozenset(("key", "operator", "values", "field"))
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_ON_NAMES = ("In", "NotIn")
_MOST_DIGITS = 64


def affinity(form: Form, value: object, where: str) -> tuple[tuple[Expression, ...], ...]:
    """Terms of a role's ``nodeAffinity``."""
    return tuple(
        tuple(
            _expression(form, one, f"{where}[{t}][{e}]")
            for e, one in enumerate(form.items(term, f"{where}[{t}]"))
        )
        for t, term in enumerate(form.optional_items(value, where))
    )


def _expression(form: Form, value: object, where: str) -> Expression:
    doc = form.mapping(value, where, _EXPRESSION, required=("key", "operator"))
    key: str | None = form.text(doc.get("key"), f"{where}.key")
    operator = form.choice(doc.get("operator"), f"{where}.operator", _OPERATORS)
    values = [
        form.string(item, f"{where}.values[{i}]")
        for i, item in enumerate(form.optional_items(doc.get("values"), f"{where}.values"))
    ]
    if form.flag(doc.get("field"), f"{where}.field"):
        if key != "metadata.name" or operator not in _ON_NAMES:
            form.fault(where, "the only field is metadata.name, with In or NotIn")
        key = None
    limit = None
    if operator in ("Gt", "Lt"):
        limit = _integer(values[0]) if len(values) == 1 else None
        if limit is None:
            form.fault(where, f"{operator} needs one integer")
    return Expression(key, operator, frozenset(values), limit)


def _integer(text: str | None) -> int | None:
    """A signed 64-bit decimal."""
    digits = (text or "").removeprefix("-") if (text or "")[:1] != "+" else (text or "")[1:]
    if text is None or not (digits.isascii() and digits.isdigit()) or len(digits) > _MOST_DIGITS:
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None


def suits(node: Node, terms: tuple[tuple[Expression, ...], ...]) -> bool:
    """Whether one of the terms holds on the node; an empty term never does."""
    return any(term and all(_met(node, one) for one in term) for term in terms)


def _met(node: Node, one: Expression) -> bool:
    has = node.name if one.key is None else node.labels.get(one.key)
    if one.operator in ("NotIn", "DoesNotExist"):
        return has is None or (one.operator == "NotIn" and has not in one.values)
    if has is None:
        return False
    if one.operator in ("Gt", "Lt"):
        own = _integer(has)
        if own is None or one.limit is None:
            return False
        return own > one.limit if one.operator == "Gt" else own < one.limit
    return one.operator == "Exists" or has in one.values
