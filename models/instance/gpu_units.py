"""What pods count wherever plans count GPUs (section 9): whole GPUs, or thousandths where pods have parts.

A fraction counts its fraction, memory and cores the larger share of the GPU, an instance (MIG) the larger of
its compute and memory slices in those of its board. Where that depends on the GPU, pods that run count by
those that they stand on, all of a role its largest share; others by the largest GPU that they may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from models.gpu_shares import part_of
from models.instance.cluster import Node
from models.instance.gang import Gang, Role, has_parts, is_part
from models.instance.instance import Instance
from models.instance.queue import AMOUNTS, Amount, Queue
from models.mig import RESOURCE, board_named, boards, boards_of

THOUSANDTHS = 1000


def in_gpu_units(instance: Instance) -> Instance:
    """The instance with all GPUs that plans count in one unit; its queues still state thousandths."""
    roles = (role for gang in instance.gangs for role in gang.roles)
    if not any(has_parts(role.requests) for role in roles) and _whole(instance.queues):
        return replace(instance, queues=tuple(map(_in_whole_gpus, instance.queues)))
    counts, moves = _Counts(instance), instance.policy.moves
    policy = instance.policy
    if moves is not None and moves.max_gpus is not None:
        policy = replace(policy, moves=replace(moves, max_gpus=THOUSANDTHS * moves.max_gpus))
    gangs = tuple(map(counts.counted, instance.gangs))
    return replace(instance, gangs=gangs, policy=policy, gpu_unit=THOUSANDTHS)


def _whole(queues: Iterable[Queue]) -> bool:
    """Whether all amounts of these queues are whole GPUs."""
    amounts: list[Amount] = [getattr(queue, field) for queue in queues for field in AMOUNTS]
    return all(
        not n % THOUSANDTHS for one in amounts for n in (one.gpus or 0, *dict(one.models).values())
    )


def _in_whole_gpus(queue: Queue) -> Queue:
    def gpus(one: Amount) -> Amount:
        models = tuple((model, n // THOUSANDTHS) for model, n in one.models)
        return Amount(None if one.gpus is None else one.gpus // THOUSANDTHS, models)

    changed: dict[str, Any] = {field: gpus(getattr(queue, field)) for field in AMOUNTS}
    return replace(queue, **changed)


class _Counts:
    """Thousandths of what roles ask for, once for each kind of them."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known: dict[object, int] = {}

    def counted(self, gang: Gang) -> Gang:
        """The gang, whose roles count thousandths."""
        stand = dict[int, set[int]]()
        for pod in gang.pods:
            if pod.node is not None:
                stand.setdefault(pod.role, set()).add(pod.node)
        roles = enumerate(gang.roles)
        return replace(
            gang,
            roles=tuple(
                replace(role, thousandths=self._of(role, frozenset(stand.get(number, ()))))
                for number, role in roles
            ),
        )

    def _of(self, role: Role, stand: frozenset[int]) -> int:
        total = THOUSANDTHS * role.gpus
        for resource, amount in role.requests:
            if is_part(resource):
                nodes = stand or self._instance.matching_nodes(role)
                key = (resource, nodes, bool(stand))
                if key not in self._known:
                    self._known[key] = self._part(resource, nodes, stands=bool(stand))
                total += amount * self._known[key]
        return total

    def _part(self, resource: str, nodes: Iterable[int], *, stands: bool) -> int:
        """What one part counts; of GPUs of which nobody knows enough, that of the best known one."""
        part, every = part_of(resource), self._instance.cluster.nodes
        if part is not None and part.permille:
            return max(part.permille, part.cores_permille)
        for own, worst in (((every[n] for n in nodes), stands), (every, False)):
            found = list(_instances(resource, own, stands=worst) if part is None else _memory(own))
            if part is None and found:
                return max(found) if worst else min(found)
            if part is not None and found:
                memory = min(found) if worst else max(found)
                return max(THOUSANDTHS * part.memory_MiB // memory, part.cores_permille)
        if part is not None:
            return part.cores_permille or THOUSANDTHS
        known = (board.thousandths(resource) for board in boards())
        return min((n for n in known if n is not None), default=_by_name(resource))


def _by_name(resource: str) -> int:
    """What an instance of no known board counts: the compute slices of its name, of 7."""
    compute = resource.removeprefix(RESOURCE).partition("g")[0]
    return THOUSANDTHS * min(7, int(compute)) // 7 if compute.isdecimal() else THOUSANDTHS


def _memory(nodes: Iterable[Node]) -> Iterator[int]:
    """Memory of the GPUs that pods may share, MiB."""
    for node in nodes:
        if node.sharing is not None and node.sharing.memory:
            yield node.sharing.memory


def _instances(resource: str, nodes: Iterable[Node], *, stands: bool) -> Iterator[int]:
    """What an instance counts on these nodes, of those that offer some unless it is there.

    Of the boards that a GPU may be the one with the most memory counts.
    """
    for node in nodes:
        board = board_named(node.dynamic_mig or "")
        offered = stands or board is not None or dict(node.allocatable).get(resource, 0) > 0
        own = boards_of(node.model.gpu) if node.model is not None and offered else ()
        counts = [one.thousandths(resource) for one in (own if board is None else (board,))]
        known = [count for count in counts if count is not None]
        if known:
            yield min(known)
