"""Label, field and node selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from apiserver_errors import ApiError
from apiserver_kinds import Json, Kind, Tree

Test = Callable[[Tree], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s,=!()]+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)\s*$")
_POD_FIELDS = {
    "spec.nodeName": ("spec", "nodeName"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "spec.restartPolicy": ("spec", "restartPolicy"),
    "status.phase": ("status", "phase"),
    "status.podIP": ("status", "podIP"),
}
_EVENT_FIELDS = {
    f"involvedObject.{name}": ("involvedObject", name)
    for name in ("name", "namespace", "kind", "uid")
}


def by_labels(selector: str) -> Test:
    """Raises ApiError 400 for what is no selector."""
    tests = [_label_test(part) for part in _parts(selector)]

    def test(tree: Tree) -> bool:
        labels = tree["metadata"].get("labels") or {}
        return all(one(labels) for one in tests)

    return test


def by_fields(kind: Kind, selector: str) -> Test:
    """Raises ApiError 400 for a field the kind has no index of."""
    tests = [_field_test(kind, part) for part in selector.split(",") if part]
    return lambda tree: all(one(tree) for one in tests)


def matches(selector: Mapping[str, Json] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector of an object; an empty one matches everything, None nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(expressed(one, labels) for one in selector.get("matchExpressions") or [])


def expressed(expression: Mapping[str, Json], values: Mapping[str, str]) -> bool:
    """One requirement of a label or node selector."""
    key, operator = expression["key"], expression["operator"]
    wanted = expression.get("values") or []
    match operator:
        case "In":
            return values.get(key) in wanted
        case "NotIn":
            return values.get(key) not in wanted
        case "Exists":
            return key in values
        case "DoesNotExist":
            return key not in values
        case _:
            number = values.get(key, "")
            if not re.fullmatch(r"-?\d+", number):
                return False
            bound = int(wanted[0])
            return int(number) > bound if operator == "Gt" else int(number) < bound


def admits(pod: Tree, node: Tree) -> bool:
    """Node selector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or selects(required, node)


def selects(selector: Tree, node: Tree) -> bool:
    """A NodeSelector: one of its terms, which are never empty, holds."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or []:
        by_label, by_field = term.get("matchExpressions") or [], term.get("matchFields") or []
        if (by_label or by_field) and (
            all(expressed(one, labels) for one in by_label)
            and all(expressed(one, fields) for one in by_field)
        ):
            return True
    return False


@lru_cache(maxsize=1024)
def _parts(selector: str) -> tuple[str, ...]:
    """Split at commas outside parentheses."""
    return tuple(part for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _label_test(part: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(part):
        key = found["key"]
        values = {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for sign in ("!=", "==", "="):
        if sign in part:
            key, _, value = (piece.strip() for piece in part.partition(sign))
            if sign == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
    key = part.strip()
    if key.startswith("!"):
        return lambda labels: key[1:].strip() not in labels
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", key):
        raise ApiError(400, f"unable to parse requirement: found '{key}', expected: identifier")
    return lambda labels: key in labels


def _field_test(kind: Kind, part: str) -> Test:
    sign = next((sign for sign in ("!=", "==", "=") if sign in part), None)
    if sign is None:
        raise ApiError(400, f'invalid selector: "{part}"; can\'t understand "{part}"')
    key, _, value = part.partition(sign)
    known = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}
    if kind.name == "Pod":
        known |= _POD_FIELDS
    elif kind.name == "Event":
        known |= _EVENT_FIELDS
    elif kind.name == "Node":
        known |= {"spec.unschedulable": ("spec", "unschedulable")}
    if key not in known:
        raise ApiError(400, f"field label not supported: {key}")
    outer, inner = known[key]
    wanted = sign != "!="

    def test(tree: Tree) -> bool:
        found = (tree.get(outer) or {}).get(inner, "")
        said = str(found).lower() if isinstance(found, bool) else found
        return (said == value) is wanted

    return test
