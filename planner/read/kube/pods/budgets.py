"""PodDisruptionBudgets: how many evictions each allows now, and which pods it counts.

Read as the eviction API of the server decides. What cannot be read guards: a budget whose numbers are
malformed allows nothing, one whose selector is guards every pod of its namespace. Nothing raises.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.instance.disruption_budgets import DisruptionBudgets, Key
from planner.read.findings import Remarks
from planner.read.kube.lookup import (
    LabelSets,
    Tree,
    at,
    bits,
    conditions,
    holds_condition,
    is_label_selector,
    mapping,
    selector_parts,
    text,
    whole,
)
from planner.read.kube.pods.constraints import MAX_PARTS, exceeds_bounds
from planner.read.kube.records import KubeObject, Objects

UNREADABLE_SELECTOR = "its selector cannot be read; it guards every pod of its namespace"
TOO_MANY_PARTS = "the selectors of its namespace are too many; it guards every pod of its namespace"


def read_budgets(found: Objects, remarks: Remarks) -> DisruptionBudgets:
    """The budgets among the objects, and the pods that they guard."""
    by_namespace: dict[str, list[KubeObject]] = {}
    for one in found.of("PodDisruptionBudget", "policy"):
        by_namespace.setdefault(one.namespace, []).append(one)
    pods: dict[str, list[tuple[KubeObject, str]]] = {}
    for pod in found.of("Pod", "") if by_namespace else ():
        if pod.namespace in by_namespace and (state := _state(pod.tree)) is not None:
            pods.setdefault(pod.namespace, []).append((pod, state))
    allowed = dict[Key, int]()
    guards, forbids = dict[Key, tuple[str, ...]](), dict[Key, tuple[str, ...]]()
    for namespace in sorted(by_namespace):
        budgets = sorted(by_namespace[namespace], key=lambda one: one.name)
        for budget in budgets:
            allowed[namespace, budget.name] = _allowed(budget, remarks)
        _guard(budgets, pods.get(namespace, []), guards, forbids, remarks)
    return DisruptionBudgets(allowed, guards, forbids)


_READY, _UNREADY, _WAITS = "ready", "unready", "waits"


def _state(pod: Tree) -> str | None:
    """Whether a pod that budgets may guard runs, and is ready, or waits; None for others.

    The server evicts pods in other phases whatever their budgets allow.
    """
    phase = text(pod, "status", "phase")
    if at(pod, "metadata", "deletionTimestamp") is not None or phase in ("Succeeded", "Failed"):
        return None
    if phase == "Pending":
        return _WAITS if text(pod, "spec", "nodeName") is None else None
    return _READY if holds_condition(pod, "Ready") else _UNREADY


def _forbids(budget: Tree) -> bool:
    """Whether pods that it guards could not all be evicted once they run: it would count their eviction.

    It allows as many more as start only if it has the healthy pods that it needs without them.
    """
    healthy, desired = (
        whole(budget, "status", name) for name in ("currentHealthy", "desiredHealthy")
    )
    known = _is_up_to_date(budget) and healthy is not None and desired is not None
    return not known or (healthy or 0) < (desired or 0)


def _is_up_to_date(budget: Tree) -> bool:
    """Whether the server has seen its newest version, and can count the pods."""
    status = mapping(budget, "status")
    seen = whole(status, "observedGeneration") or 0
    if not seen or seen < (whole(budget, "metadata", "generation") or 0):
        return False
    found = conditions(budget, "DisruptionAllowed")
    return not any(one.get("reason") == "SyncFailed" for one in found)


def _allowed(budget: KubeObject, remarks: Remarks) -> int:
    """The evictions that it allows now; pods that were evicted and still exist are off already.

    Nothing before the server has seen its newest version, and where it cannot count the pods.
    """
    if not _is_up_to_date(budget.tree):
        return 0
    status = mapping(budget.tree, "status")
    numbers = [
        whole(status, name) for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy")
    ]
    if None in numbers:
        remarks.add(budget.subject, "its status cannot be read; it allows no eviction")
        return 0
    allowed, healthy, desired = (number or 0 for number in numbers)
    return max(0, min(allowed, healthy - desired))


def _guard(
    budgets: Sequence[KubeObject],
    pods: Sequence[tuple[KubeObject, str]],
    guards: dict[Key, tuple[str, ...]],
    forbids: dict[Key, tuple[str, ...]],
    remarks: Remarks,
) -> None:
    """Note the budgets of each guarded pod of one namespace: the first two, which are as many as matter.

    Those of pods that run, then of pods that wait those that would forbid their eviction. Pods with equal
    labels, and in one state, are one; sets of them are bit masks.
    """
    alike: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
    numbers = [
        alike.setdefault((state, frozenset(pod.labels.items())), len(alike)) for pod, state in pods
    ]
    labels = LabelSets([dict(pairs) for _, pairs in alike])
    states = [state for state, _ in alike]
    names: list[list[str]] = [[] for _ in alike]
    free: list[bool] = [False] * len(alike)
    once = twice = parts = 0
    for budget in budgets:
        selector = at(budget.tree, "spec", "selector")
        if selector is None:
            continue  # a null selector selects no pod, an empty one all
        parts += selector_parts(mapping(selector))
        many = parts > MAX_PARTS
        if many or exceeds_bounds([mapping(selector)]) or not is_label_selector(selector):
            remarks.add(budget.subject, TOO_MANY_PARTS if many else UNREADABLE_SELECTOR)
            selector = {}
        selected = labels.matching(mapping(selector)) & ~twice
        lets_unready_go = _lets_unready_go(budget.tree)
        for number in bits(selected):
            names[number].append(budget.name)
            free[number] = lets_unready_go and states[number] != _READY
        twice |= once & selected
        once |= selected
    forbidding = {budget.name for budget in budgets if _forbids(budget.tree)}
    for (pod, state), number in zip(pods, numbers, strict=True):
        own, key = tuple(names[number]), (pod.namespace, pod.name)
        if state == _WAITS and (len(own) > 1 or not forbidding.isdisjoint(own)):
            forbids[key] = own
        elif state != _WAITS and (len(own) > 1 or (own and not free[number])):
            guards[key] = own


def _lets_unready_go(budget: Tree) -> bool:
    policy = text(budget, "spec", "unhealthyPodEvictionPolicy") or "IfHealthyBudget"
    if policy == "AlwaysAllow":
        return True
    status = mapping(budget, "status")
    healthy, desired = whole(status, "currentHealthy") or 0, whole(status, "desiredHealthy") or 0
    return policy == "IfHealthyBudget" and healthy >= desired > 0
