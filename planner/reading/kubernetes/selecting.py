"""Label selectors of group objects and of pods.

Promises: a selector that cannot be read selects nothing it does not surely select. Called by the
group dialects, and by ``pods`` for anti-affinity.
"""

from __future__ import annotations

from planner.reading.kubernetes.looking import Tree, items, mapping, objects, text


def matches(selector: Tree, labels: dict[str, str]) -> bool:
    """Whether a label selector (matchLabels, matchExpressions) selects these labels."""
    for key, value in mapping(selector, "matchLabels").items():
        if labels.get(key) != value:
            return False
    return all(_holds(entry, labels) for entry in objects(selector, "matchExpressions"))


def _holds(entry: Tree, labels: dict[str, str]) -> bool:
    key, operator = text(entry, "key"), text(entry, "operator")
    if key is None:
        return False
    value, values = labels.get(key), items(entry, "values")
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    return operator == "DoesNotExist" and value is None
