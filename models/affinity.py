"""Node affinity: terms of expressions over a node's labels, with Kubernetes' meaning.

Promises: pure; NotIn and DoesNotExist hold where the label is missing, Gt and Lt only between integers.
Called by ``Instance.eligible``, the reasons for waiting and the documents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NODE_NAME = "metadata.name"
"""The one field that an expression may be about."""

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class NodeExpression:
    """One requirement; ``field``: on the node's name, not on a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False

    def __str__(self) -> str:
        named = ", ".join(self.values)
        match self.operator:
            case "In" | "NotIn":
                inside = "in" if self.operator == "In" else "not in"
                return f"{self.key} {inside} ({named})"
            case "Gt" | "Lt":
                return f"{self.key} {'>' if self.operator == 'Gt' else '<'} {named}"
            case "DoesNotExist":
                return f"no {self.key}"
        return f"any {self.key}"


NodeTerm = tuple[NodeExpression, ...]
"""All of its expressions must hold; one without any holds nowhere."""

NodeAffinity = tuple[NodeTerm, ...]
"""Any of its terms must hold; without any it asks for nothing."""


def whole_number(text: str) -> int | None:
    """A decimal integer of 64 bits, as Kubernetes reads it; None if the text is none."""
    if not re.fullmatch(r"[+-]?[0-9]{1,64}", text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def matches(affinity: NodeAffinity, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node of this name and these labels (implied ones included) will do."""
    return not affinity or any(
        term and all(holds(one, name if one.field else labels.get(one.key)) for one in term)
        for term in affinity
    )


def holds(one: NodeExpression, value: str | None) -> bool:
    """Whether an expression holds for the value it is about; None: the node has no such label."""
    match one.operator:
        case "In":
            return value is not None and value in one.values
        case "NotIn":
            return value is None or value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    mine = None if value is None else whole_number(value)
    limit = whole_number(one.values[0]) if len(one.values) == 1 else None
    if mine is None or limit is None:
        return False
    return mine > limit if one.operator == "Gt" else mine < limit


def shown(affinity: NodeAffinity) -> str:
    """The affinity in words: ``zone in (a, b) and any gpu, or no spot``; empty where it asks nothing."""
    return ", or ".join(" and ".join(str(one) for one in term) or "nothing" for term in affinity)
