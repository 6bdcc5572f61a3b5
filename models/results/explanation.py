"""One gang of a plan as it is decided on, and which nodes could hold it.

Everything follows from the plan document by counting; nothing is searched, so that a count says what
cannot be, and never that a placement exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.documents.answers import Candidates, Excluded
from models.documents.gang import slurm_option
from models.documents.plan import PlanDocument, PlanGang
from models.documents.reason import ReasonFields
from models.hardware import mask_of
from models.instance.eligibility import model_matches, tolerated
from models.instance.gang import Gang, Role, label_texts, matches, selects
from models.instance.gang import shown as affinity_text
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room, beside_parts, rooms
from models.instance.solution import GangDecision, PodPlacement, Reason
from models.queues.pins import closed_by_pins, trespassing
from models.rates.gang_rates import own_sets
from models.rates.gpu_sets import UnknownRate
from models.rates.group_bandwidth import GroupRates, Kind, Place
from models.rates.ranks import placed_kinds
from models.units import shortened
from models.values.tier_values import known_masks

Cause = tuple[str, tuple[str, ...]]
"""Why a node is no candidate: a word for it, and what of the role, the node or a queue it is about."""

MAX_AFFINITY = 200
"""Characters of a node affinity that are named."""


@dataclass(frozen=True)
class Explanation:
    """``decisions``: of every gang of the instance, in its order. ``index``: of the gang to explain."""

    instance: Instance
    decisions: tuple[GangDecision, ...]
    index: int

    @property
    def gang(self) -> Gang:
        return self.instance.gangs[self.index]

    @property
    def decision(self) -> GangDecision:
        return self.decisions[self.index]

    @cached_property
    def waits(self) -> bool:
        """Whether pods of the gang are left out: it waits, or runs with pods missing."""
        return self.decision.decision in ("wait", "keep") and self.decision.reason is not None

    @cached_property
    def candidates(self) -> tuple[Candidates, ...]:
        """For every role, in order."""
        free = rooms(self.instance, self.decisions)
        free = tuple(beside_parts(self.instance, n, room) for n, room in enumerate(free))
        missing = Counter(role for role, _ in self.gang.missing if self.waits)
        return tuple(
            self._candidates(number, missing[number], free)
            for number in range(len(self.gang.roles))
        )

    def groups(self, index: int, pods: Sequence[int]) -> list[tuple[Kind, int]]:
        """The kinds of groups of a role, each with its rate in MB/s; none where one is not known.

        ``pods``: indices in the order of their ranks.
        """
        instance, gang = self.instance, self.gang
        by_index = {pod.index: pod for pod in self.decision.pods if pod.role == index}
        own = [by_index[number] for number in pods if number in by_index]
        sets = own_sets(instance, gang, own, known_masks(instance, self.decisions))
        kinds = placed_kinds(gang, index, own, sets) or ()
        places = [Place.of(pod.node, pod.gpus) for pod in own]
        gpus, joined = gang.roles[index].gpus, gang.nvlink_across_nodes
        try:
            rates = GroupRates(instance.cluster, places, sets, kinds, gpus, joined=joined)
            found = rates.rates(range(len(own)))
        except UnknownRate:
            return []
        return [(kind, int(rate)) for kind, rate in zip(kinds, found, strict=True)]

    def _candidates(self, number: int, needed: int, free: Sequence[Room]) -> Candidates:
        role, excluded, able = self.gang.roles[number], Counter[Cause](), list[int]()
        for n in range(len(self.instance.cluster.nodes)):
            cause = next(_causes(self.instance, self.gang, role, n), None)
            if cause is None:
                able.append(n)
            else:
                excluded[cause] += 1
        return Candidates.model_construct(
            role=role.name,
            needed_pods=needed,
            excluded=tuple(
                Excluded(cause=cause, about=about, nodes=nodes)
                for (cause, about), nodes in excluded.most_common()
            ),
            eligible_nodes=len(able),
            free_gpus=sum(free[n].free_gpus for n in able),
            pods=sum(_fitting(role, free[n]) for n in able),
        )


def _fitting(role: Role, room: Room) -> int:
    """Pods of the role that fit on a node."""
    most = min(role.max, room.free_gpus // role.gpus) if role.gpus else role.max
    for resource, amount in ((PODS, 1), *role.requests):
        left = room.left_of(resource)
        if amount and left is not None:
            most = min(most, max(0, left) // amount)
    return most


def _causes(instance: Instance, gang: Gang, role: Role, n: int) -> Iterator[Cause]:
    """Every cause for which a node is no candidate; none for an eligible one."""
    node = instance.cluster.nodes[n]
    labels = instance.labels_of(node)
    barred = (
        ("policy", not instance.ours(node)),
        ("notReady", not node.ready),
        ("cordoned", node.unschedulable),
    )
    yield from ((word, ()) for word, holds in barred if holds)
    if not selects(role.node_selector, (), labels, node.name):
        yield "labels", tuple(label_texts(role.node_selector))
    if not matches(role.node_affinity, labels, node.name):
        yield "affinity", (shortened(affinity_text(role.node_affinity), MAX_AFFINITY),)
    for taint in node.taints:
        if not tolerated(role.tolerations, (taint,)):
            value = f"={taint.value}" if taint.value else ""
            option = slurm_option(taint.key, taint.value or "")
            yield "taint", (option or f"{taint.key}{value}:{taint.effect}",)
    if role.model is not None and not model_matches(role.model, node):
        yield "model", (role.model,)
    if node.gpus < role.gpus:
        yield "small", ()
    if role.gpus and n in closed_by_pins(instance, gang):
        yield "pinned", (next(iter(trespassing(instance, gang, (n,)))),)


def decisions_of(plan: PlanDocument, instance: Instance) -> tuple[GangDecision, ...]:
    """What a plan decides on every gang of its instance.

    Pods on nodes or of roles that the instance does not have are ignored: ``verify`` reports them.
    """
    stated = {gang.key: gang for gang in plan.spec.gangs}
    nodes = {node.name: n for n, node in enumerate(instance.cluster.nodes)}
    return tuple(
        _decision(gang, stated[gang.key], nodes) if gang.key in stated else GangDecision("wait")
        for gang in instance.gangs
    )


def _decision(gang: Gang, stated: PlanGang, nodes: dict[str, int]) -> GangDecision:
    roles = {role.name: number for number, role in enumerate(gang.roles)}
    pods = []
    for pod in stated.pods:
        if pod.role in roles and pod.node in nodes:
            role = roles[pod.role]
            gpus = None if pod.gpus is None else mask_of(pod.gpus)
            here = gpus if gang.roles[role].gpus else 0
            pods.append(PodPlacement(role, pod.index, nodes[pod.node], here))
    reason = None
    if stated.reason is not None:
        reason = Reason(stated.reason.code, stated.reason.fields or ReasonFields())
    return GangDecision(stated.decision, tuple(pods), reason, expected_start=stated.expected_start)
