"""Ranks of the pods of a gang: which roles have them, which pods keep theirs, and the plainest dealing.

The rank of a pod is that of its first GPU among those of its role; its other GPUs have the next ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from models.verify.facts import Gang, Pod, PodKey

Ranks = Mapping[PodKey, int]


def ranked(gang: Gang, number: int) -> bool:
    """Whether the pods of a role have ranks."""
    role = gang.roles[number]
    if not role.gpus:
        return False
    if role.parallelism is not None or gang.ordered:
        return True
    return gang.pattern == "pipeline" and all(one.parallelism is None for one in gang.roles)


def sound(ranks: Collection[int | None], gpus: int, pods: int) -> bool:
    """Whether ranks are distinct multiples of ``gpus``, the GPUs of a pod, of a role with so many pods."""
    known = [rank for rank in ranks if rank is not None]
    every = all(0 <= rank < gpus * pods and rank % gpus == 0 for rank in known)
    return every and len(set(known)) == len(ranks)


def kept(gang: Gang, number: int, pods: Collection[Pod]) -> dict[PodKey, int]:
    """Ranks that are given: of pods that keep node and GPUs, or of all where those contradict each other.

    ``pods``: of the role, after the plan.
    """
    gpus = gang.roles[number].gpus
    keys = sorted((pod.role, pod.index) for pod in pods)
    consecutive = {key: gpus * place for place, key in enumerate(keys)}
    found = {
        key: gang.ranks.get(key, consecutive[key])
        for key, pod in sorted(((pod.role, pod.index), pod) for pod in pods)
        if gang.running_pods.get(key) == pod
    }
    return found if sound(found.values(), gpus, len(keys)) else consecutive


def plainest(gang: Gang, number: int, pods: Collection[Pod]) -> dict[PodKey, int]:
    """The ranks that are kept, and the others in the order of the indices; without kept ones consecutive."""
    gpus = gang.roles[number].gpus
    found = kept(gang, number, pods)
    taken = set(found.values())
    left = (rank for rank in range(0, gpus * len(pods), gpus) if rank not in taken)
    keys = sorted((pod.role, pod.index) for pod in pods)
    return {key: found[key] if key in found else next(left) for key in keys}
