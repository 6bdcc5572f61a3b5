"""What a plan is worth to those who must pay for its moves, and what a set of moves bought.

Promises: exact integers, no solver: the figures of ``status.moves``.
Called by ``planner.search.moves``; ``models.plan`` writes the result down.

Which moves of a plan belong together: gangs that make room for one another, or for one newcomer.

Promises: every gang decided ``move`` is in exactly one set; sets and gangs in Instance order; no solver.
Called by ``planner.search.moves``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.instance import Instance
from models.occupancy import PODS, Room, free_after, rooms
from models.solution import GangDecision, MoveSet
from models.tier_values import Evaluation, admitted, whole_domains, whole_nodes


@dataclass(frozen=True, slots=True)
class Worth:
    """``admitted``: indices of the gangs that run whole. ``gpus``: their w.

    ``bandwidth``: w x share of those that count in the bandwidth tier, whatever their weight, in
    permille-GPU. ``whole_nodes``: nodes whose free GPUs are as many as the largest node of their GPU
    model has; ``whole_gpus``: the GPUs of these. ``whole_domains``: domains of the innermost level with
    two or more nodes with GPUs, all of them whole.
    """

    admitted: frozenset[int]
    gpus: int
    bandwidth: int
    whole_nodes: int
    whole_gpus: int
    whole_domains: int


def worth(instance: Instance, decisions: Sequence[GangDecision]) -> Worth:
    """What one plan is worth. Shape of ``decisions``: one a gang."""
    values = Evaluation(instance, decisions).values
    runs = [i for i, decision in enumerate(decisions) if admitted(instance, i, decision)]
    bandwidth = 0
    for index in runs:
        gang, value = instance.gangs[index], values[index]
        if value is not None and value.share is not None and gang.pattern != "none":
            bandwidth += gang.weight_gpus * value.share
    whole = wholly_free(instance, decisions)
    return Worth(
        admitted=frozenset(runs),
        gpus=sum(instance.gangs[index].weight_gpus for index in runs),
        bandwidth=bandwidth,
        whole_nodes=len(whole),
        whole_gpus=sum(whole.values()),
        whole_domains=len(whole_domains(instance, whole)),
    )


def wholly_free(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """Nodes that are wholly free after the plan, with their GPUs."""
    pods = (
        (gang.roles[pod.role].gpus, pod)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        for pod in decision.pods
    )
    return whole_nodes(instance, free_after(instance, pods))


def bought(instance: Instance, gangs: Sequence[int], plan: Worth, without: Worth) -> MoveSet:
    """The set of moves of ``gangs``: what ``plan`` has beyond ``without``, the best plan without them.

    Gangs that hold no GPU count as one GPU moved in the gain.
    """
    moved = sum(
        instance.gangs[gang].roles[pod.role].gpus
        for gang in gangs
        for pod in instance.gangs[gang].running_pods
    )
    gpus = plan.gpus - without.gpus
    bandwidth = plan.bandwidth - without.bandwidth
    freed = plan.whole_gpus - without.whole_gpus
    return MoveSet(
        gangs=tuple(sorted(gangs)),
        moved_gpus=moved,
        admitted=tuple(sorted(plan.admitted - without.admitted)),
        gpus=gpus,
        bandwidth=bandwidth,
        whole_nodes=plan.whole_nodes - without.whole_nodes,
        whole_domains=plan.whole_domains - without.whole_domains,
        gain=(1000 * (gpus + freed) + bandwidth) // max(1, moved),
    )


GPUS = "GPUs"
"""The room of a node in GPUs, beside its resources; no resource has such a name."""


@dataclass(slots=True)
class _Passage:
    """What goes from and comes to one node: room by gang, and masks of known GPUs by gang.

    ``left``: of the gangs that move only; ``taken``: of all gangs.
    """

    left: dict[int, dict[str, int]] = field(default_factory=dict)
    taken: dict[int, dict[str, int]] = field(default_factory=dict)
    left_gpus: dict[int, int] = field(default_factory=dict)
    taken_gpus: dict[int, int] = field(default_factory=dict)


def move_sets(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[tuple[int, ...], ...]:
    """Sets of moving gangs that do without one another. Shape of ``decisions``: one a gang.

    Linked are gangs that leave one node; with all that come to a node whose left-over room would not
    hold what left it; on servers without a switch, with those that take one of the GPUs they left; and
    gangs that leave one innermost domain that is wholly free after the plan.
    """
    movers = [i for i, decision in enumerate(decisions) if decision.decision == "move"]
    if not movers:
        return ()
    passages = _passages(instance, decisions)
    left = rooms(instance, decisions)
    links = _Links(len(decisions))
    for node in sorted(passages):
        passage = passages[node]
        if passage.left:
            links.join(passage.left)
            links.join((*sorted(passage.left)[:1], *_takers(passage, left[node])))
            if not _switched(instance, node):
                _join_by_index(links, passage)
    for nodes in whole_domains(instance, wholly_free(instance, decisions)):
        links.join(gang for n in nodes if n in passages for gang in sorted(passages[n].left))
    sets: dict[int, list[int]] = {}
    for gang in movers:
        sets.setdefault(links.root(gang), []).append(gang)
    return tuple(tuple(gangs) for gangs in sets.values())


def _switched(instance: Instance, node: int) -> bool:
    model = instance.cluster.nodes[node].model
    return model is None or model.switched


def _passages(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, _Passage]:
    """Every node that pods leave or come to. A pod that changes GPUs in its node passes these only."""
    found: dict[int, _Passage] = {}
    for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        before = {(p.role, p.index): (p.node, p.gpus) for p in gang.running_pods}
        after = {(p.role, p.index): (p.node, p.gpus) for p in decision.pods}
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key), after.get(key)
            role = gang.roles[key[0]]
            if old == new:
                continue
            stays = old is not None and new is not None and old[0] == new[0]
            room = {} if stays else {PODS: 1, **dict(role.requests)}
            if old is not None and decision.decision == "move":
                assert old[0] is not None
                passage = found.setdefault(old[0], _Passage())
                _add(passage.left, passage.left_gpus, index, {**room, GPUS: role.gpus}, old[1])
            if new is not None:
                assert new[0] is not None
                passage = found.setdefault(new[0], _Passage())
                _add(passage.taken, passage.taken_gpus, index, {**room, GPUS: role.gpus}, new[1])
    return found


def _add(
    by_gang: dict[int, dict[str, int]],
    masks: dict[int, int],
    gang: int,
    room: dict[str, int],
    gpus: int | None,
) -> None:
    amounts = by_gang.setdefault(gang, {})
    for resource, amount in room.items():
        amounts[resource] = amounts.get(resource, 0) + amount
    masks[gang] = masks.get(gang, 0) | (gpus or 0)


def _takers(passage: _Passage, after: Room) -> list[int]:
    """Gangs that come to the node and need what left it: without that room not all of them would fit."""
    over = {GPUS: after.mask.bit_count() - after.unknown, **dict(after.left)}
    used = set()
    for resource, rest in over.items():
        vacated = sum(amounts.get(resource, 0) for amounts in passage.left.values())
        if rest < vacated:
            used.add(resource)
    return [
        gang
        for gang, amounts in sorted(passage.taken.items())
        if any(amounts.get(resource) for resource in used)
    ]


def _join_by_index(links: _Links, passage: _Passage) -> None:
    for gang, gpus in sorted(passage.left_gpus.items()):
        links.join(
            (gang, *(taker for taker, taken in sorted(passage.taken_gpus.items()) if taken & gpus))
        )


class _Links:
    """Disjoint sets of gangs by index."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def root(self, gang: int) -> int:
        while self._above[gang] != gang:
            self._above[gang] = self._above[self._above[gang]]
            gang = self._above[gang]
        return gang

    def join(self, gangs: Iterable[int]) -> None:
        """Put all of them into one set; the smallest index is its root."""
        roots = sorted({self.root(gang) for gang in gangs})
        for root in roots[1:]:
            self._above[root] = roots[0]
