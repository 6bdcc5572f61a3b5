"""Amounts and matching of raw Kubernetes objects, free of our readers: for kube_feasible and the test server.

Promises: what a pod requests, tolerates and selects by the rules of kube-scheduler, in exact
fractions; raises on what an API server would have refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

Tree = dict[str, Any]
Name = tuple[str, str]
Amounts = dict[str, Fraction]

BINARY = {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}
UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), **BINARY}
UNITS |= {unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}


@lru_cache(maxsize=4096)
def amount(value: object) -> Fraction:
    """A Kubernetes quantity."""
    text = str(value).strip()
    unit = next((u for u in sorted(UNITS, key=len, reverse=True) if text.endswith(u)), "")
    return Fraction(text.removesuffix(unit)) * (UNITS[unit] if unit else 1)


def requests(pod: Tree) -> Amounts:
    """What the scheduler counts a pod as: containers, sidecars, init peaks, overhead, its slot."""
    spec, status = pod["spec"], pod.get("status") or {}
    told = {s["name"]: s for s in status.get("containerStatuses") or []}
    total: Amounts = defaultdict(Fraction)
    peak: Amounts = defaultdict(Fraction)
    sidecars: Amounts = defaultdict(Fraction)
    for one in spec.get("containers") or []:
        for key, value in asked(one, told.get(one.get("name"), {})).items():
            total[key] += value
    for one in spec.get("initContainers") or []:
        own = asked(one, {})
        if one.get("restartPolicy") == "Always":
            for key, value in own.items():
                sidecars[key] += value
            own = dict(sidecars)
        else:
            own = {key: own.get(key, 0) + sidecars[key] for key in {**own, **sidecars}}
        for key, value in own.items():
            peak[key] = max(peak[key], value)
    result = {
        key: max(total[key] + sidecars[key], peak[key]) for key in {**total, **sidecars, **peak}
    }
    result |= asked(spec, {})  # requests of the pod as a whole
    for key, value in (spec.get("overhead") or {}).items():
        result[key] = result.get(key, Fraction(0)) + amount(value)
    return {**result, "pods": Fraction(1)}


def asked(container: Tree, status: Tree) -> Amounts:
    """Requests, limits where there are none; a resized container counts as the larger of both."""
    resources = container.get("resources") or {}
    own = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    found = {key: amount(value) for key, value in own.items()}
    actual = (status.get("resources") or {}).get("requests") or {}
    for source in (status.get("allocatedResources") or {}, actual):
        for key, value in source.items():
            found[key] = max(found.get(key, Fraction(0)), amount(value))
    return found


def tolerated(taint: Tree, tolerations: Iterable[Tree]) -> bool:
    for one in tolerations:
        key, effect = one.get("key") or "", one.get("effect") or ""
        same = (one.get("value") or "") == (taint.get("value") or "")
        exists = one.get("operator") == "Exists"
        equal = key and same and one.get("operator", "Equal") in ("", "Equal")
        matches = key in ("", taint["key"]) and effect in ("", taint["effect"])
        if matches and (exists or equal):
            return True
    return False


def holds(expression: Tree, labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not re.fullmatch(r"[+-]?\d+", value):
        return False
    above = int(value) - int(values[0])
    return above > 0 if expression["operator"] == "Gt" else above < 0


def selects(selector: Tree, labels: dict[str, str]) -> bool:
    pairs = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    return pairs.items() <= labels.items() and all(holds(e, labels) for e in expressions)


def name_of(tree: Tree) -> Name:
    return tree["metadata"].get("namespace") or "", tree["metadata"]["name"]


def labels_of(tree: Tree) -> dict[str, str]:
    return tree["metadata"].get("labels") or {}


def annotations_of(tree: Tree) -> dict[str, str]:
    return tree["metadata"].get("annotations") or {}


def bound(pod: Tree) -> str | None:
    """The node on which the pod holds something."""
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return None if finished else pod["spec"].get("nodeName") or None


def chosen(selector: Tree, name: str, labels: dict[str, str]) -> bool:
    """Whether a member of a HyperNode is this one."""
    if exact := selector.get("exactMatch"):
        return bool(exact["name"] == name)
    if pattern := selector.get("regexMatch"):
        return re.search(pattern["pattern"], name) is not None
    return "labelMatch" in selector and selects(selector["labelMatch"], labels)


def in_terms(selector: Tree, node: Tree) -> bool:
    """A NodeSelector: one of its terms, which are never empty, holds."""
    labels, field = labels_of(node), {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(holds(e, labels) for e in term.get("matchExpressions") or [])
        and all(holds(e, field) for e in term.get("matchFields") or [])
        for term in selector["nodeSelectorTerms"]
    )


def refusals(pod: Tree, node: Tree) -> Iterator[str]:
    """Why the node would not take the pod, however empty it is."""
    conditions = (node.get("status") or {}).get("conditions") or []
    if any(c["type"] == "Ready" and c["status"] != "True" for c in conditions):
        yield "not ready"
    if (spec := node.get("spec") or {}).get("unschedulable"):
        yield "cordoned"
    for taint in spec.get("taints") or []:
        hard = taint["effect"] in ("NoSchedule", "NoExecute")
        if hard and not tolerated(taint, pod["spec"].get("tolerations") or []):
            yield f"taint {taint['key']}"
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels_of(node).items():
        yield "nodeSelector"
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if terms and not in_terms(terms, node):
        yield "nodeAffinity"
