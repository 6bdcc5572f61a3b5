"""Which pod of a role takes which of its places: its own, or the one an earlier plan had for it.

Promises: a permutation of the places among the pods to place; a pod that may have the place where it
stands or was planned gets it, as many as can be; pods in slices keep the place their slice has.
Called by ``decoding``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.instance import Instance
from models.placement.demands import Demand
from models.solution import PodPlacement

Key = tuple[int, int]


def homeward(
    instance: Instance,
    demand: Demand,
    pods: Sequence[PodPlacement],
    assigned: Mapping[Key, Sequence[int]],
) -> list[PodPlacement]:
    """The same places, those wanted given to the pods that want them.

    ``assigned``: nodes of which a pod must have one; of a role whose pods are told apart every pod has.
    """
    gang = instance.gangs[demand.gang]
    planned = {(pod.role, pod.index): pod.node for pod in gang.planned}
    stood = {(p.role, p.index): p for p in gang.standing if p.node is not None}
    where = {key: pod.node for key, pod in stood.items() if pod.node is not None}
    exact = {
        key: (pod.node, pod.gpus if gang.roles[key[0]].gpus else 0)
        for key, pod in stood.items()
        if pod.node is not None
    }
    found: list[PodPlacement] = []
    for role in demand.roles:
        own = [pod for pod in pods if pod.role == role.role]
        if gang.roles[role.role].slice_layers:
            found += own
        elif any(key[0] == role.role for key in assigned):
            found += _as_told(own, assigned)
        else:
            found += _given(own, [exact, planned, where] if not planned else [planned, where])
    return found


def _as_told(
    pods: Sequence[PodPlacement], assigned: Mapping[Key, Sequence[int]]
) -> list[PodPlacement]:
    places = [(pod.node, pod.gpus) for pod in pods]
    found: list[PodPlacement] = []
    for pod in pods:
        place = next(p for p in places if p[0] in assigned[pod.role, pod.index])
        places.remove(place)
        found.append(PodPlacement(pod.role, pod.index, *place))
    return found


def _given(
    pods: Sequence[PodPlacement], wishes: Sequence[Mapping[Key, object]]
) -> list[PodPlacement]:
    """Pods with their places exchanged: wishes of the first kind first."""
    places = [(pod.node, pod.gpus) for pod in pods]
    left = [(pod.role, pod.index) for pod in pods]
    found: list[PodPlacement] = []
    for wish in wishes:
        for key in list(left):
            match = next((p for p in places if wish.get(key) in (p, p[0])), None)
            if key in wish and match is not None:
                left.remove(key)
                places.remove(match)
                found.append(PodPlacement(*key, *match))
    found += [PodPlacement(*key, *place) for key, place in zip(left, places, strict=True)]
    return sorted(found)
