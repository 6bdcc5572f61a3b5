"""Which GPUs the pods that start get parts of: shared ones, and those of which claims make instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from models.documents.plan import PlanDocument
from models.gpu_shares import SHARE, amount_of, share_in
from models.mig import board_named, instance_in, resource_of

NewInstance = tuple[str, int, int]
"""An instance that a claim makes: its resource, the GPU, and a mask of its memory slices."""


class Shares:
    """Deals the GPUs that a plan shares to the pods that start, in the order of the plan."""

    def __init__(self, plan: PlanDocument) -> None:
        self._left: dict[tuple[str, str], list[int | str | None]] = {}
        for one in plan.spec.shares:
            gpu = one.gpu if one.gpu_group is None else one.gpu_group
            for part in one.parts:
                self._left.setdefault((one.node, SHARE + part), []).append(gpu)

    def next(self, node: str, requests: Mapping[str, int]) -> tuple[int | str, ...]:
        """The GPUs that a pod shares there, if all are known: those of which most parts are left."""
        resource = share_in(requests) or ""
        left = self._left.get((node, resource), [])
        counts, amount = Counter(left), amount_of(resource)
        chosen = sorted(counts, key=lambda gpu: -counts[gpu])[:amount] if amount > 1 else left[:1]
        for gpu in chosen:
            left.remove(gpu)
        return tuple(gpu for gpu in chosen if gpu is not None) if None not in chosen else ()


def needing_an_administrator(plan: PlanDocument) -> set[str]:
    """Nodes on which GPUs have to be partitioned before pods start.

    Claims that are allocated for pods make their instances, and so does HAMi on cards in MIG mode.
    """
    backend = plan.instance.policy.spec.kubernetes.gpu_backend
    if backend == "dra":
        return set()
    ready = set[tuple[str, int]]()
    if backend == "hami":
        for node in plan.instance.cluster.spec.nodes:
            ready.update((node.name, gpu) for m in node.mig if not m.profiles for gpu in m.gpus)
    return {one.node for one in plan.spec.partitions if (one.node, one.gpu) not in ready}


class Instances:
    """Deals the instances that claims or HAMi make to the pods that start, in the order of the plan.

    ``exact``: in just these slices; HAMi chooses them itself. First come the places of pods that leave, then
    new ones: all that a GPU is to have, so that whichever pods start first they leave room for the others.
    """

    def __init__(self, plan: PlanDocument) -> None:
        self._left: dict[tuple[str, str], list[NewInstance]] = {}
        backend = plan.instance.policy.spec.kubernetes.gpu_backend
        self.exact = backend == "dra"
        if backend not in ("dra", "hami"):
            return
        nodes = plan.instance.cluster.spec.nodes
        self._boards = {one.name: board_named(one.dynamic_mig or "") for one in nodes}
        self._in_use: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._leaving(plan, {(one.node, one.gpu) for one in plan.spec.partitions if one.anew})
        for one in plan.spec.partitions:
            board = self._boards[one.node]
            assert board is not None, "its GPUs may be partitioned"
            room = board.in_use(self._in_use.get((one.node, one.gpu), ()))
            places = None if room is None else board.places(one.profiles, room[0])
            for name, start in places or ():
                self._add(one.node, (resource_of(name), one.gpu, board.slices(name, start)))

    def _leaving(self, plan: PlanDocument, anew: Collection[tuple[str, int]]) -> None:
        """The places of running pods, those that leave them among what is dealt; none of GPUs ``anew``."""
        decided = {one.key: one for one in plan.spec.gangs}
        for gang in plan.instance.gangs:
            roles = {role.name: role for role in gang.spec.roles}
            own = decided.get(gang.key)
            changes = own is not None and own.decision not in ("keep", "wait")
            stays = {(pod.role, pod.index, pod.node) for pod in own.pods} if own else set()
            for pod in gang.running_pods:
                board = self._boards.get(pod.node or "")
                resource = instance_in(roles[pod.role].all_requests)
                if pod.node is None or pod.start is None or not pod.gpus:
                    continue
                if board is None or resource is None:
                    continue
                gpu, name = pod.gpus[0], board.named(resource)
                if (pod.node, gpu) in anew:
                    continue
                self._in_use.setdefault((pod.node, gpu), []).append((name, pod.start))
                if changes and (pod.role, pod.index, pod.node) not in stays:
                    self._add(pod.node, (resource, gpu, board.slices(name, pod.start)))

    def _add(self, node: str, instance: NewInstance) -> None:
        self._left.setdefault((node, instance[0]), []).append(instance)

    def next(self, node: str, requests: Mapping[str, int]) -> tuple[NewInstance, ...]:
        """The instances of a pod that starts there."""
        found = []
        for resource, amount in sorted(requests.items()):
            left = self._left.get((node, resource), [])
            found += [left.pop(0) for _ in range(min(amount, len(left)))]
        return tuple(found)
