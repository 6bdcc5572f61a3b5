"""One gang of a plan in full: what it is, and which nodes could hold it.

Everything follows from the plan document by counting; nothing is searched, so that a count says what
cannot be, and never that a placement exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.documents.plan import PlanDocument, PlanGang
from models.documents.reason import ReasonFields
from models.hardware import mask_of
from models.instance.cluster import Node
from models.instance.eligibility import model_matches, tolerated
from models.instance.gang import Gang, Role, label_texts, matches
from models.instance.gang import shown as affinity_text
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room, beside_parts, rooms
from models.instance.solution import GangDecision, PodPlacement, Reason
from models.queues.pins import beside_pins, closed_by_pins, trespassing
from models.units import shortened
from planner.errors import Fault, InputError
from planner.show.text import listed


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes for one role. ``excluded``: (cause, nodes), each node by the first cause that holds for it.

    ``eligible``: nodes that accept the role and are large enough. ``gpus``: that are free there after the
    plan; ``pods``: that fit beside it, each node by itself. ``needed``: pods that the gang lacks.
    """

    role: Role
    needed: int
    excluded: tuple[tuple[str, int], ...]
    eligible: int
    gpus: int
    pods: int


class Explanation:
    """``decisions``: of every gang of the instance, in its order. ``index``: of the gang to explain."""

    def __init__(self, instance: Instance, decisions: tuple[GangDecision, ...], index: int) -> None:
        self.instance = instance
        self.decisions = decisions
        self.gang = instance.gangs[index]
        self.decision = decisions[index]
        self.index = index

    @cached_property
    def waits(self) -> bool:
        """Whether pods of the gang are left out: it waits, or runs with pods missing."""
        return self.decision.decision in ("wait", "keep") and self.decision.reason is not None

    @cached_property
    def candidates(self) -> tuple[Candidates, ...]:
        """For every role, in order."""
        instance = self.instance
        found = rooms(instance, self.decisions)
        left = tuple(beside_parts(instance, n, room) for n, room in enumerate(found))
        missing = Counter(role for role, _ in self.gang.missing()) if self.waits else Counter[int]()
        return tuple(
            self._candidates(role, missing[number], left)
            for number, role in enumerate(self.gang.roles)
        )

    def _candidates(self, role: Role, needed: int, left: Sequence[Room]) -> Candidates:
        instance = self.instance
        first: Counter[str] = Counter()
        pins = closed_by_pins(instance, self.gang) if role.gpus else frozenset[int]()
        for n, node in enumerate(instance.cluster.nodes):
            cause = next(_causes(instance, role, node), None)
            if cause is None and n in pins:
                cause = f"pinned to queue {next(iter(trespassing(instance, self.gang, [n])))}"
            if cause is not None:
                first[cause] += 1
        able = beside_pins(instance, self.gang, role, instance.eligible_nodes(role))
        nodes = [n for n in able if instance.cluster.nodes[n].gpus >= role.gpus]
        return Candidates(
            role,
            needed,
            tuple(first.most_common()),
            len(nodes),
            sum(left[n].free_gpus for n in nodes),
            sum(_pods(role, left[n]) for n in nodes),
        )


def _pods(role: Role, room: Room) -> int:
    """Pods of the role that fit into the room of a node, at most as many as it can have."""
    fit = [role.max]
    if role.gpus:
        fit.append(room.free_gpus // role.gpus)
    for resource, amount in ((PODS, 1), *role.requests):
        left = room.left_of(resource)
        if amount and left is not None:
            fit.append(max(0, left) // amount)
    return min(fit)


TOO_SMALL = "fewer GPUs installed than one pod asks for"


def _causes(instance: Instance, role: Role, node: Node) -> Iterator[str]:
    """Every cause for which a node is no candidate; none for an eligible one."""
    labels = instance.labels_of(node)
    tests: tuple[tuple[bool, Callable[[], str]], ...] = (
        (instance.ours(node), lambda: "not selected by the Policy's nodeSelector"),
        (node.ready, lambda: "not ready"),
        (not node.unschedulable, lambda: "cordoned"),
        (
            all(labels.get(key) == value for key, value in role.node_selector),
            lambda: "without " + listed(label_texts(role.node_selector), "and"),
        ),
        (
            matches(role.node_affinity, labels, node.name),
            lambda: f"node affinity {shortened(affinity_text(role.node_affinity), _MAX_AFFINITY)}",
        ),
        (tolerated(role.tolerations, node.taints), lambda: _taint(role, node)),
        (
            role.model is None or model_matches(role.model, node),
            lambda: f"another model than {role.model}",
        ),
        (node.gpus >= role.gpus, lambda: TOO_SMALL),
    )
    yield from (cause() for passed, cause in tests if not passed)


def _taint(role: Role, node: Node) -> str:
    """The first taint that is not tolerated."""
    taint = next(one for one in node.taints if not tolerated(role.tolerations, [one]))
    return f"taint {taint.key}{f'={taint.value}' * bool(taint.value)}:{taint.effect}"


_MAX_AFFINITY = 200
"""Characters of a node affinity that are shown."""


def explanation(plan: PlanDocument, instance: Instance, key: tuple[str, str]) -> Explanation:
    """The explanation of a gang of the plan. ``instance``: of the plan.

    Raises InputError if the plan's instance does not have the gang. Pods on nodes or of roles that
    the instance does not have are ignored: ``verify`` reports them.
    """
    stated = {gang.key: gang for gang in plan.spec.gangs}
    nodes = {node.name: n for n, node in enumerate(instance.cluster.nodes)}
    decisions = tuple(_decision(gang, stated.get(gang.key), nodes) for gang in instance.gangs)
    index = next((i for i, gang in enumerate(instance.gangs) if gang.key == key), None)
    if index is None:
        what = f"the plan decides on gang {'/'.join(key)}, which its instance does not have"
        raise InputError(Fault(what, "verify lists what else was changed"))
    return Explanation(instance, decisions, index)


def _decision(gang: Gang, stated: PlanGang | None, nodes: Mapping[str, int]) -> GangDecision:
    if stated is None:
        return GangDecision("wait")
    roles = {role.name: number for number, role in enumerate(gang.roles)}
    pods = tuple(
        PodPlacement(
            roles[pod.role],
            pod.index,
            nodes[pod.node],
            0
            if not gang.roles[roles[pod.role]].gpus
            else None
            if pod.gpus is None
            else mask_of(pod.gpus),
        )
        for pod in stated.pods
        if pod.role in roles and pod.node in nodes
    )
    reason = None
    if stated.reason is not None:
        reason = Reason(stated.reason.code, stated.reason.fields or ReasonFields())
    expected = stated.expected_start
    return GangDecision(stated.decision, pods, reason, expected_start=expected)
