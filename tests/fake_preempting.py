"""kube-scheduler's preemption: pods of lower priority go where that makes room.

Promises: only where nothing but room is missing, only pods of strictly lower priority, the least
important first and no more than needed; the winner is nominated and placed once they are gone. Called
by ``fake_scheduler``.
"""

from __future__ import annotations

from fake_amounts import asked
from fake_kinds import POD
from fake_store import Store
from fake_trees import Tree


def victims(store: Store, pod: Tree, node: Tree, free: dict[str, int]) -> list[Tree] | None:
    """Who has to go for the pod to fit on the node; None where that does not help.

    ``free``: what is left of the node, in thousandths.
    """
    if pod["spec"].get("preemptionPolicy") == "Never":
        return None
    wanted, left = asked(pod), dict(free)
    lower = [one for one in _bound(store, node) if _priority(one) < _priority(pod)]
    lower.sort(key=lambda one: (_priority(one), one["metadata"]["uid"]))
    going: list[Tree] = []
    for one in lower:
        if _fits(wanted, left):
            break
        going.append(one)
        for name, amount in asked(one).items():
            left[name] = left.get(name, 0) + amount
    return going if going and _fits(wanted, left) else None


def _bound(store: Store, node: Tree) -> list[Tree]:
    name = node["metadata"]["name"]
    return [
        pod
        for pod in store.all(POD)
        if pod["spec"].get("nodeName") == name
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def _fits(wanted: dict[str, int], free: dict[str, int]) -> bool:
    return all(amount <= free.get(name, 0) for name, amount in wanted.items())


def _priority(pod: Tree) -> int:
    found: int = pod["spec"].get("priority", 0)
    return found
