"""Priorities of new pods, as the admission of PriorityClasses gives them.

Promises: a class that is not there is refused; without one the default class counts, if there is one.
Called by ``fake_objects``.
"""

from __future__ import annotations

from fake_kinds import POD, PRIORITY
from fake_statuses import ApiError, details
from fake_store import Store
from fake_trees import Tree

_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def resolved(store: Store, pod: Tree) -> Tree:
    """The pod with the priority of its class. Raises ApiError.

    A priority that no class gives is taken as it is, as helpers of tests write it.
    """
    spec = pod.get("spec") or {}
    name = spec.get("priorityClassName")
    if not name:
        default = next((one for one in store.all(PRIORITY) if one.get("globalDefault")), None)
        if default is None or "priority" in spec:
            return pod
        more = {"priorityClassName": default["metadata"]["name"], "priority": default["value"]}
        return pod | {"spec": spec | more}
    found = store.get(PRIORITY, "", name)
    if found is None and name not in _BUILT_IN:
        said = f"no PriorityClass with name {name} was found"
        title = pod["metadata"]["name"]
        raise ApiError(403, f'pods "{title}" is forbidden: {said}', details=details(POD, title))
    value = _BUILT_IN[name] if found is None else found["value"]
    more = {"priority": value}
    if found is not None and "preemptionPolicy" in found:
        more["preemptionPolicy"] = found["preemptionPolicy"]
    return pod | {"spec": spec | more}
