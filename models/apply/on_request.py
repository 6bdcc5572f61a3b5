"""Requests for a placement as a way to start gangs: nodes are labelled, then the request is answered.

The answer is one write, so a gang is started as a whole or not at all; labels without an answer are taken off
by the next run. Pods go wherever the labels allow: a gang starts only where no order of its pods can take
room from one another, or from pods that are still to come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from models.apply.enforcer import PodBatch, Write, WritePlan
from models.apply.live_state import ClusterView, PodState, pod_of, pods_on, usage
from models.apply.placement_requests import (
    PLAN_DETAIL,
    SLOT_KEYS,
    LiveRequest,
    mark_of,
    node_details,
    request_of,
)
from models.apply.plan_actions import PodStart
from models.apply.records import PodPlace
from models.apply.requests import AnswerRequest, Done, LabelNode

Room = Mapping[str, int]
"""Amounts by resource; ``gpus`` whole GPUs."""

_GPUS = "gpus"
_PODS = "pods"

UNEVEN = (
    "its pods differ, and on these nodes they could take each other's room: a node selector "
    "cannot keep them apart"
)


OTHERS = "asks for other pods by now"


def request_for(view: ClusterView, order: PodStart) -> LiveRequest | None:
    """The request that a pod is to come of."""
    return view.requests.get(request_of(order.uid))


@dataclass(frozen=True, slots=True)
class OnRequest:
    """Answers requests for a placement."""

    def state(self, view: ClusterView, order: PodStart) -> PodState:
        request = request_for(view, order)
        if request is None or request.state not in ("waits", "placed"):
            return PodState.gone
        there = pod_of(view, order)
        if request.state == "waits":
            return PodState.gone if there is None else PodState.waiting
        return PodState.bound if there is None else PodState.ungated

    def refusal(self, view: ClusterView, batch: PodBatch) -> str | None:
        request = request_for(view, batch.pods[0])
        if request is None or request.state != "waits":
            return "its request for a placement waits no more"
        if _are_others(view, batch.pods):
            return f"request {request} {OTHERS}"
        if _slot(view, batch) is None:
            return f"a node has the labels of {len(SLOT_KEYS)} gangs already"
        if _may_block_itself(view, batch.pods):
            return UNEVEN
        try:
            node_details(_by_set(batch))
        except ValueError as error:
            return str(error)
        return None

    def places(self, view: ClusterView, batch: PodBatch) -> tuple[PodPlace, ...]:
        del view, batch
        return ()

    def plan(self, view: ClusterView, batch: PodBatch) -> WritePlan:
        request, slot = request_for(view, batch.pods[0]), _slot(view, batch)
        if request is None or slot is None or request.state != "waits":
            return WritePlan()
        mark = mark_of(request.uid)
        nodes = sorted({order.node for order in batch.pods})
        details = {slot: mark, PLAN_DETAIL: batch.plan, **node_details(_by_set(batch))}
        return WritePlan(
            tuple(labelled(node, slot, mark) for node in nodes),
            (answered(request, "placed", PLACED, details, batch.pods),),
        )

    def withdrawal(self, view: ClusterView, batch: PodBatch) -> tuple[Write, ...]:
        request = request_for(view, batch.pods[0])
        if request is not None and request.keeps_nodes:
            return ()
        return tuple(unneeded_labels(view, {order.node for order in batch.pods}))


def _are_others(view: ClusterView, orders: Iterable[PodStart]) -> bool:
    """Whether the pods that are to come are not those of the plan: its templates are its tenant's."""
    pods = ((pod_of(view, order), order.gpu_count) for order in orders)
    return any(pod is None or pod.gpus != gpus for pod, gpus in pods)


def _by_set(batch: PodBatch) -> list[list[str]]:
    """The nodes of the pods of each set, in the order of the request."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for order in batch.pods:
        _, number, index = order.uid.rsplit("-", 2)
        found[int(number)].append((int(index), order.node))
    return [[node for _, node in sorted(found[number])] for number in sorted(found)]


def _slot(view: ClusterView, batch: PodBatch) -> str | None:
    """The first label that none of the nodes has for another gang."""
    mark = mark_of(request_of(batch.pods[0].uid))
    labels = [dict(view.nodes[node].labels) for node in {order.node for order in batch.pods}]
    free = (key for key in SLOT_KEYS if all(one.get(key, mark) == mark for one in labels))
    return next(free, None)


def unneeded_labels(view: ClusterView, nodes: Iterable[str]) -> Iterator[Write]:
    """Takes off the labels of nodes for which no request keeps them."""
    kept = {mark_of(one.uid) for one in view.requests.values() if one.keeps_nodes}
    for name in sorted(nodes):
        for key, value in view.nodes[name].labels if name in view.nodes else ():
            if key in SLOT_KEYS and value not in kept:
                yield labelled(name, key, None)


# ---- room that pods could take from one another


def contested(view: ClusterView, batch: PodBatch) -> str:
    """Why pods that have room kept on the nodes of a batch could lose it, or take its own; else empty.

    Those of a request on several nodes go to any of them: beside them nobody's pods may be on their way.
    """
    nodes = {order.node for order in batch.pods}
    for node in sorted(nodes - view.nodes.keys()):
        return f"node {node} is gone"
    own, uids = request_for(view, batch.pods[0]), {order.uid for order in batch.pods}
    for pod in pods_on(view, nodes) if own is not None and len(nodes) > 1 else ():
        if pod.node is None and pod.uid not in uids:
            return f"pods that are to come to node {pod.held_at} could lose their room to it"
    for one in view.requests.values():
        taken = nodes.intersection(one.nodes) if one.keeps_nodes and one.missing else ()
        if taken and one is not own and len(set(one.nodes)) > 1:
            return f"pods of request {one}, which are to come, could take its room on {min(taken)}"
    return ""


def _may_block_itself(view: ClusterView, orders: Iterable[PodStart]) -> bool:
    """Whether pods of the batch that are bound first could leave no room for others of it."""
    kinds: dict[tuple[tuple[str, int], ...], list[PodStart]] = defaultdict(list)
    for order in orders:
        kinds[tuple(sorted(_wants(order).items()))].append(order)
    every = [order for one in kinds.values() for order in one]
    nodes = {order.node for order in every}
    if len(kinds) < 2 or len(nodes) < 2:
        return False
    used = usage(view, nodes, without={order.uid for order in every})
    for own in kinds.values():
        wants = _wants(own[0])
        others = [_wants(order) for kind in kinds.values() if kind is not own for order in kind]
        free = [_free(view, node, used[node]) for node in sorted(nodes)]
        # At least that many are left: were all others on every node, or each took as many as it can.
        beside = sum(_times(wants, _less(room, others)) for room in free)
        after = sum(_times(wants, room) for room in free) - sum(_taken(wants, o) for o in others)
        if max(beside, after) < len(own):
            return True
    return False


def _wants(order: PodStart) -> Room:
    return {**dict(order.requests), _GPUS: order.gpu_count + len(order.parted), _PODS: 1}


def _free(view: ClusterView, node: str, used: Any) -> Room:  # noqa: ANN401  # NodeUsage
    there = view.nodes[node]
    taken = Counter(used.amounts)
    taken[_GPUS], taken[_PODS] = used.gpus + len(used.shared), used.pods
    offered = {**dict(there.allocatable), _GPUS: there.gpus}
    return {name: amount - taken[name] for name, amount in offered.items()}


def _less(room: Room, pods: Iterable[Room]) -> Room:
    """What is left beside pods; below 0 where they do not all fit."""
    left = dict(room)
    for wants in pods:
        left = {name: amount - wants.get(name, 0) for name, amount in left.items()}
    return left


def _taken(wants: Room, other: Room) -> int:
    """How many places of such pods another pod can take at most."""
    return max(-(-other.get(name, 0) // amount) for name, amount in wants.items() if amount)


def _times(wants: Room, room: Room) -> int:
    """How many such pods fit."""
    return max(0, min(room[name] // n for name, n in wants.items() if n and name in room))


# ---- the writes


def labelled(name: str, key: str, value: str | None) -> Write:
    """The node has the label with this value, or not at all (None)."""

    def done(view: ClusterView) -> bool:
        node = view.nodes.get(name)
        return (None if node is None else dict(node.labels).get(key)) == value

    def learn(view: ClusterView, _: Done) -> None:
        node = view.nodes[name]
        labels = dict(node.labels)
        labels.pop(key, None)
        labels |= {} if value is None else {key: value}
        view.nodes[name] = replace(node, labels=tuple(sorted(labels.items())))

    return Write(
        f"node {name}",
        None,
        lambda _: LabelNode(name, key, value),
        done,
        lambda view: None if name in view.nodes else "is gone",
        learn,
    )


PLACED = "gangplan chose its nodes"


def answered(
    seen: LiveRequest,
    state: str,
    message: str,
    details: Mapping[str, str] = MappingProxyType({}),
    pods: tuple[PodStart, ...] = (),
) -> Write:
    """The status of the request says that it is placed, waits or is over, and why.

    ``seen``: as it was when that was decided. ``details``, ``pods``: of one that gets its nodes.
    """

    def done(view: ClusterView) -> bool:
        request = view.requests.get(seen.uid)
        if request is None:
            return state != "placed"
        waits = state == "waits" and request.state in ("waits", "idle")
        return request.message == message if waits else request.state == state

    def obstacle(view: ClusterView) -> str | None:
        request = view.requests.get(seen.uid)
        if request is None or request.state != seen.state:
            return "is gone" if request is None else f"is {request.state} by now"
        return OTHERS if _are_others(view, pods) else None

    def learn(view: ClusterView, _: Done) -> None:
        before = view.requests[seen.uid]
        view.requests[before.uid] = replace(
            before,
            state="idle" if before.state == "evicted" and state == "waits" else state,
            nodes=tuple(order.node for order in pods),
            plan=details.get(PLAN_DETAIL),
            missing=len(pods),
            since=view.now,
            message=message,
        )
        for order in pods:
            pod = view.pods[order.key]
            view.pods[order.key] = structs.replace(pod, gates=(), held_at=order.node)
        expected = (one for one in view.pods.values() if one.expected and before.keeps_nodes)
        for key in [one.key for one in expected if request_of(one.uid) == before.uid]:
            view.pods.pop(key)  # the room that was kept for its pods is free again

    return Write(
        f"request {seen}",
        None,
        lambda view: AnswerRequest(view.requests[seen.uid], state, message, details),
        done,
        obstacle,
        learn,
    )
