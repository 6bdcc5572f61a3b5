"""How many equal gangs could start: exact counts on the free space of the nodes that they may use.

A gang has ``pods`` pods of ``gpus`` GPUs each, all on one GPU model and in one domain of its level. Its
pods are equal, so that a domain holds as many gangs as the pods that fit on its nodes make, and no pod counts
in two domains: the sums are the most gangs that could start together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from models.documents.gang import Toleration
from models.gpu_shares import amount_of
from models.instance.eligibility import model_matches, tolerated
from models.instance.instance import Instance
from models.instance.occupancy import PODS
from models.instance.solution import GangDecision
from models.rules.shape import held_nodes, spare_nodes
from models.values.leftover import gpu_models
from planner.search.free_arrays import Capacity, IntArray, sums
from planner.search.free_space import FreeSpace

CLUSTER = -1
"""The level whose only domain is the whole cluster."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``gpus``: of each pod. ``level``: index of the one that a gang may not leave, CLUSTER for none."""

    pods: int
    gpus: int
    level: int = CLUSTER


def usable_nodes(
    instance: Instance,
    *,
    model: str | None = None,
    selector: Iterable[tuple[str, str]] = (),
    tolerate: Iterable[str] = (),
) -> list[int]:
    """The nodes with GPUs that new pods may use, ascending.

    Schedulable ones, of the model, with the labels, and without taints but those of GPU resources and
    those with the keys of ``tolerate``.
    """
    keys = (*instance.policy.kubernetes.gpu_resources, *tolerate)
    tolerations = tuple(Toleration(key, "Exists") for key in keys)
    wanted = dict(selector).items()
    return [
        n
        for n, node in enumerate(instance.cluster.nodes)
        if node.gpus
        and instance.schedulable(node)
        and tolerated(tolerations, node.taints)
        and (model is None or model_matches(model, node))
        and (not wanted or wanted <= instance.labels_of(node).items())
    ]


class FreeRoom:
    """What new pods could have on some nodes, beside the pods of a plan.

    A free GPU counts with its share of the node's resources where the policy states ``perGpu``.
    """

    def __init__(
        self, instance: Instance, nodes: Iterable[int], decisions: Sequence[GangDecision]
    ) -> None:
        self._space = FreeSpace(instance, decisions)
        self._shares = tuple((name, share) for name, share in instance.policy.per_gpu if share)
        self._models = tuple(gpu_models(instance))
        self._nodes = frozenset(nodes) - self._closed()
        spared = self._spared()
        self._nodes -= spared
        self._for_parts = frozenset(nodes) - spared

    @property
    def gpus(self) -> int:
        """GPUs that new pods could have, all together."""
        return self._space.arrays.capacity((1, self._shares, self._nodes, None)).total

    def gangs(self, shape: Shape, level: int) -> IntArray:
        """The most gangs of a shape that could start in each domain of a level, none leaving it."""
        tree, inner = self._space.arrays.tree, max(shape.level, level)
        size = 1 if level == CLUSTER else tree.sizes[level]
        found: IntArray = np.zeros(size, dtype=np.int64)
        for table in self._tables(shape.gpus):
            gangs = table.at(inner) // shape.pods
            found += gangs if inner == level else sums(tree.parents(inner, level), gangs, size)
        return found

    def largest(self, gpus: int, level: int) -> tuple[int, int]:
        """The most pods of this size that one gang could have in a domain of a level, and the domain."""
        found = [_most(table, level) for table in self._tables(gpus)]
        return max(found, key=lambda one: (one[0], -one[1]), default=(0, 0))

    def parts(self, resource: str, level: int) -> tuple[int, int]:
        """The most pods with this part in a domain of a level, and the domain."""
        by_node = self._space.by_node
        offering = frozenset(n for n in self._for_parts if resource in by_node[n].left)
        requests = ((PODS, 1), (resource, amount_of(resource)))
        return _most(self._space.arrays.capacity((0, requests, offering, None)), level)

    def _tables(self, gpus: int) -> list[Capacity]:
        """Pods of so many GPUs that fit where, for each GPU model."""
        requests = ((PODS, 1), *((name, share * gpus) for name, share in self._shares))
        kinds = ((gpus, requests, self._nodes, model) for model in self._models)
        return [self._space.arrays.capacity(kind) for kind in kinds]

    def _spared(self) -> frozenset[int]:
        """The nodes that stay free for failures: of those in order and idle, the ones with the least room."""
        instance, spared = self._space.instance, set[int]()
        rules = sorted(spare_nodes(instance), key=lambda rule: len(rule.nodes))
        busy = held_nodes(instance, self._space.pods) if rules else set()
        room = self._space.arrays.capacity((1, self._shares, self._nodes, None)).pods
        for rule in rules:
            idle = [n for n in rule.nodes if n not in busy and n not in spared]
            idle.sort(key=lambda n: (int(room[n]), -n))
            spared.update(idle[: max(0, rule.least - sum(n in spared for n in rule.nodes))])
        return frozenset(spared)

    def _closed(self) -> frozenset[int]:
        """The nodes in domains that a gang has for itself."""
        cluster, found = self._space.instance.cluster, set[int]()
        for gang, pods in zip(self._space.instance.gangs, self._space.pods, strict=True):
            for pod in pods if gang.exclusive is not None else ():
                if gang.exclusive is not None and gang.roles[pod.role].gpus:
                    domain = cluster.domain_of[gang.exclusive][pod.node]
                    found.update(cluster.domains[gang.exclusive][domain].nodes)
        return frozenset(found)


def _most(table: Capacity, level: int) -> tuple[int, int]:
    """The most pods in a domain of a level, and the first that has room for so many."""
    pods = table.at(level)
    if not len(pods):
        return 0, 0  # a cluster without nodes
    best = int(pods.argmax())
    return int(pods[best]), best
