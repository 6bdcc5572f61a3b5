"""A search for places of the pods of a gang on the empty cluster.

Pods are placed one by one, with a way back, until the steps are used up. A placement counts that keeps every
rule of a plan. Nodes that nothing tells apart are tried once, so that a small search is exhaustive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt

from models.hardware import bits, mask_of
from models.instance.gang import Role
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room
from models.instance.reshaping import is_blind, taken_gpus
from models.instance.solution import PodPlacement
from models.program.packing import SetType
from models.queues.cells import Reach, cells_by_model
from models.queues.pins import beside_pins
from models.queues.queue_shares import QueueCounts, shares
from models.rules.pod_rules import Kind, PodCounts, Rule, counted_nodes, pod_rules
from models.rules.registry import allows, breaking_on_empty
from models.values.tier_values import gang_value

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FREE = 1 << 40
"""Of a resource that a node does not limit."""

LAST = np.iinfo(np.int64).max


class Found(Enum):
    """``ENDED``: the steps were used up, or GPUs of a mesh were chosen among more sets than are tried."""

    PLACE = "place"
    NONE = "none"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class _Pod:
    role: int
    index: int


class _Nodes:
    """What nodes offer. ``of``: domains, by level. ``free``: GPUs that pods may have.

    ``models``: number of the GPU model, -1 for none.
    """

    def __init__(self, empty: Instance) -> None:
        cluster = empty.cluster
        self.of: list[IntArray] = [np.array(of, np.int64) for of in cluster.domain_of]
        self.free: IntArray = np.array(
            [node.healthy_gpus if empty.ours(node) else 0 for node in cluster.nodes], np.int64
        )
        names = sorted({node.model.gpu for node in cluster.nodes if node.model is not None})
        number = {name: i for i, name in enumerate(names)}
        self.models: IntArray = np.array(
            [-1 if n.model is None else number[n.model.gpu] for n in cluster.nodes], np.int64
        )
        self._offers = [dict(node.allocatable) for node in cluster.nodes]
        self._known: dict[str, IntArray | None] = {}

    def offers(self, name: str) -> IntArray | None:
        """What each node offers of a resource; None of one that no node limits."""
        if name not in self._known:
            limited = any(name in own for own in self._offers)
            amounts = [own.get(name, FREE) for own in self._offers] if limited else []
            self._known[name] = np.array(amounts, np.int64) if limited else None
        return self._known[name]


class Search:
    """``empty``: the instance without pods. ``index``: of the gang, with ``sizes`` pods of its roles.

    ``scope``: level of one domain that holds them all; None for the whole cluster. ``spent``: steps so far.
    ``pods``: their number.
    """

    def __init__(
        self, empty: Instance, index: int, sizes: Sequence[int], scope: int | None = None
    ) -> None:
        self._empty = empty
        self._index = index
        self._gang = empty.gangs[index]
        self._sizes = sizes
        self._scope = scope
        self.spent = 0
        self._pods = list(self._ordered())
        self.pods = len(self._pods)
        self._at: list[int] = []
        nodes = empty.once(_Nodes)
        self._of, self._free = nodes.of, nodes.free.copy()
        asked = {name for p in self._pods for name, _ in self._role(p).requests} | {PODS}
        self._left = {
            name: left.copy() for name in sorted(asked) if (left := nodes.offers(name)) is not None
        }
        self._counts = PodCounts(pod_rules(empty))
        self._uncertain = False

    def _role(self, pod: _Pod) -> Role:
        return self._gang.roles[pod.role]

    def _ordered(self) -> Iterator[_Pod]:
        """Pods of one role after another, the largest first."""
        roles = self._gang.roles
        for r in sorted(range(len(roles)), key=lambda r: (-roles[r].gpus, r)):
            for i in roles[r].indices(self._sizes[r]):
                yield _Pod(r, i)

    def run(self, most: int) -> Found:
        """Whether the pods have places. ``most``: steps."""
        ways: list[Iterator[int]] = []
        if not self._pods:
            return Found.PLACE
        ways.append(self._candidates(0))
        while ways:
            if len(self._at) == len(ways):
                self._take(self._at.pop(), -1)
            n = next(ways[-1], None)
            if n is None:
                ways.pop()
                continue
            self.spent += 1
            if self.spent > most:
                return Found.ENDED
            self._take(n, 1)
            pod = self._pods[len(self._at) - 1]
            if any(self._counts.broken(rule) for rule in self._apart[pod.role]):
                continue
            if len(self._at) == len(self._pods):
                self.spent += len(self._empty.gangs) // 16
                if self._keeps_rules():
                    return Found.PLACE
                continue
            ways.append(self._candidates(len(self._at)))
        return Found.ENDED if self._uncertain else Found.NONE

    def _take(self, n: int, sign: int) -> None:
        """Put the next pod on a node, or with -1 take the last one off, which is no longer in ``_at``."""
        pod = self._pods[len(self._at)]
        role = self._role(pod)
        self._free[n] -= sign * role.gpus
        for name, amount in ((PODS, 1), *role.requests):
            if name in self._left:
                self._left[name][n] -= sign * amount
        placement = PodPlacement(pod.role, pod.index, n, None)
        self._counts.add(self._index, placement, new=True, pods=sign)
        if sign > 0:
            self._at.append(n)

    @cached_property
    def _apart(self) -> dict[int, list[Rule]]:
        by_role = pod_rules(self._empty).by_role
        return {
            p.role: [r for r in by_role.get((self._index, p.role), ()) if r.kind is Kind.APART]
            for p in self._pods
        }

    # Where the next pod may go

    def _candidates(self, k: int) -> Iterator[int]:
        """Nodes for a pod, the most promising first; of nodes that nothing tells apart one."""
        mask = self._open(k)
        score = np.where(mask, self._score(k), LAST)
        if not len(score):
            return
        first = int(score.argmin())
        if not mask[first]:
            return
        yield first
        used, seen = set(self._at), set[object]()
        for n in np.argsort(score, kind="stable").tolist():
            if not mask[n]:
                return
            look = n if n in used else self._looks[n]
            if n != first and look not in seen:
                yield n
            seen.add(look)

    def _open(self, k: int) -> Mask:
        """Nodes that have room for the pod, in domains that have room for those that must follow it there."""
        pod = self._pods[k]
        role, fits = self._role(pod), self._fits(pod)
        mask = fits > 0
        for level, members, rest in self._together(k):
            of = self._of[level]
            if members:
                mask &= of == of[members[0]]
            else:
                mask &= _sums(of, np.where(mask, fits, 0))[of] >= rest
        levels = [level for level in (self._gang.required, self._scope) if level is not None]
        if k == 0 and levels:
            mask &= self._holds_all(max(levels))
        if role.gpus and not role.mix_models:
            mask &= self._one_model(k, fits)  # slices to come may be elsewhere
        return mask

    def _together(self, k: int) -> Iterator[tuple[int, list[int], int]]:
        """(level, nodes of placed pods that share its domain, this pod and those to come that do)."""
        role = self._role(self._pods[k])
        for size, level in reversed(role.slice_layers):
            start, end = self._span(k, size)
            yield level, [self._at[i] for i in range(start, k)], end - k
        if role.required is not None:
            start, end = self._span(k, None)
            yield role.required, [self._at[i] for i in range(start, k)], end - k
        _, end = self._span(k, None)
        for whole in (self._gang.required, self._scope):
            if whole is not None:
                yield whole, self._at[:1], end - k

    def _span(self, k: int, size: int | None) -> tuple[int, int]:
        """Positions of the pods of one role, or of one slice of it; they follow each other."""
        if size not in self._spans:
            of: dict[object, list[int]] = {}
            for i, pod in enumerate(self._pods):
                of.setdefault((pod.role, None if size is None else pod.index // size), []).append(i)
            spans = [(0, 0)] * len(self._pods)
            for own in of.values():
                for i in own:
                    spans[i] = own[0], own[-1] + 1
            self._spans[size] = spans
        return self._spans[size][k]

    @cached_property
    def _spans(self) -> dict[int | None, list[tuple[int, int]]]:
        return {}

    def _fits(self, pod: _Pod) -> IntArray:
        """Pods of the same role for which every node has room."""
        role, most = self._role(pod), len(self._pods)
        fits = (
            np.minimum(self._free // role.gpus, most)
            if role.gpus
            else np.full(len(self._free), most, np.int64)
        )
        for name, amount in ((PODS, 1), *role.requests):
            if amount and name in self._left:
                fits = np.minimum(fits, np.maximum(self._left[name], 0) // amount)
        return np.where(self._eligible[pod.role], fits, 0)

    @cached_property
    def _eligible(self) -> dict[int, Mask]:
        found = {}
        for pod in {p.role: p for p in self._pods}.values():
            mask, role = np.zeros(len(self._free), np.bool_), self._role(pod)
            nodes = self._empty.eligible_nodes(role)
            mask[list(beside_pins(self._empty, self._gang, role, nodes))] = True
            found[pod.role] = mask
        return found

    def _holds_all(self, level: int) -> Mask:
        """Nodes in domains that have room for each role of the gang by itself."""
        of = self._of[level]
        mask, counts = np.ones(len(self._free), np.bool_), Counter(p.role for p in self._pods)
        for pod in {p.role: p for p in self._pods}.values():
            mask &= _sums(of, self._fits(pod))[of] >= counts[pod.role]
        return mask

    def _one_model(self, k: int, fits: IntArray) -> Mask:
        """Nodes of the GPU model of the role's pods so far; before the first, of those with enough room."""
        start, end = self._span(k, None)
        models = self._empty.once(_Nodes).models
        if start < k:
            same: Mask = models == models[self._at[start]]
            return same
        enough: Mask = (models >= 0) & (_sums(models + 1, fits)[models + 1] >= end - k)
        return enough

    def _score(self, k: int) -> IntArray:
        """The least first: near the last pod; where pods are spread, in domains with the fewest of them."""
        pod = self._pods[k]
        role, gang = self._role(pod), self._gang
        score = np.zeros(len(self._free), np.int64)
        spread = [one.level for one in role.anti_affinity]
        spread += [one.level for one in role.spread]
        spread += [] if gang.balance is None else [gang.balance]
        if self._at and not role.anti_affinity and not role.spread:
            for of in self._of:
                score += of != of[self._at[-1]]
        for level in sorted(set(spread)):
            of = self._of[level]
            score = score * 1024 + np.bincount(of[self._at], minlength=len(self._free))[of]
        return score * 4096 - np.minimum(self._fits(pod), 4095)

    @cached_property
    def _looks(self) -> list[object]:
        """What tells nodes apart as long as no pod is on them."""
        empty, cluster = self._empty, self._empty.cluster
        spreads = {
            p.role: counted_nodes(empty, self._role(p)) for p in self._pods if self._role(p).spread
        }
        return [
            (
                None if not cluster.levels else cluster.domain_of[cluster.node_level - 1][n],
                id(node.model),
                node.nics,
                node.allocatable,
                node.healthy,
                node.unknown_unhealthy,
                tuple(bool(mask[n]) for mask in self._eligible.values()),
                tuple(n in nodes for nodes in spreads.values()),
            )
            for n, node in enumerate(cluster.nodes)
        ]

    # Whether the places keep the rules

    def _keeps_rules(self) -> bool:
        empty, index, own = self._empty, self._index, self._placed()
        rules = pod_rules(empty).of.get(index, ())
        if any(self._counts.broken(rule) for rule in rules) or not allows(empty, self._gang, own):
            return False
        every = [own if g == index else () for g in range(len(empty.gangs))]
        if index in breaking_on_empty(empty, every):
            return False
        known = shares(empty)
        if known is not None and not QueueCounts(empty, known).allow(index, own):
            return False
        placed = [(self._gang.roles[pod.role], pod) for pod in own]
        taken = taken_gpus(self._empty, placed, {pod.node for pod in own})
        if any(gpus > self._free[n] for n, gpus in taken.items()):
            return False
        firm = cells_by_model(empty) and self._gang.firm_on_gpus
        return (not firm or Reach(empty, [(index, own)]).keep()) and self._fast(own)

    def _fast(self, pods: tuple[PodPlacement, ...]) -> bool:
        """Whether the gang reaches its minBandwidthShare."""
        empty, gang = self._empty, self._gang
        if not empty.min_share(gang):
            return True
        known = dict.fromkeys((pod.node for pod in pods), 0)
        for pod in pods:
            known[pod.node] |= pod.gpus or 0
        fast = gang_value(empty, gang, pods, known).meets_min_share
        nodes = empty.cluster.nodes
        models = (nodes[pod.node].model for pod in pods)
        self._uncertain |= not fast and any(m is not None and not m.switched for m in models)
        return fast

    def _placed(self) -> tuple[PodPlacement, ...]:
        """The pods with their GPUs, which matter for its bandwidth alone."""
        at = list(zip(self._pods, self._at, strict=True))
        if not self._empty.min_share(self._gang):
            return tuple(PodPlacement(p.role, p.index, n, None) for p, n in at)
        taken = Counter[int]()
        for pod, n in at:
            taken[n] += self._role(pod).gpus
        masks = {n: self._fastest(n, gpus, several=len(taken) > 1) for n, gpus in taken.items()}
        found = []
        for pod, n in at:
            own, left = 0, masks[n]
            if left is not None:
                own = mask_of(bits(left)[: self._role(pod).gpus])
                masks[n] = left & ~own
            blind = left is None and self._role(pod).gpus
            found.append(PodPlacement(pod.role, pod.index, n, None if blind else own))
        return tuple(found)

    def _fastest(self, n: int, gpus: int, *, several: bool) -> int | None:
        """The fastest set of so many GPUs of a node; None where the node decides."""
        from models.program.servers import sets_of  # it asks for all rules

        node = self._empty.cluster.nodes[n]
        if is_blind(self._empty, node, 0):
            return None
        if gpus in (0, node.gpus):
            return node.healthy if gpus else 0
        sets = sets_of(node, Room(node.healthy, 0, node.healthy_gpus, (), blind=False))

        def rate(kind: SetType) -> Fraction | float:
            inside = inf if kind.inside is None else kind.inside
            return min(inside, kind.network or 0) if several else inside

        chosen = sets.fastest(node.healthy, gpus, rate)
        return mask_of(range(gpus)) if chosen is None else chosen


def _sums(of: IntArray, amounts: IntArray) -> IntArray:
    """Sums of the amounts by domain."""
    found: IntArray = np.zeros(int(of.max(initial=0)) + 1, np.int64)
    np.add.at(found, of, amounts)
    return found
