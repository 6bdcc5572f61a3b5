"""One gang of a plan in full: what it needs, which nodes could hold it, who holds them, what would help.

Everything follows from the plan document by counting; nothing is searched, so that a count says what
cannot be, and never that a placement exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from models.documents.plan import PlanDocument, PlanGang, PlanReservation
from models.documents.reason import MAX_NAMED, ReasonFields
from models.hardware import mask_of
from models.instance.cluster import Domain, Node
from models.instance.eligibility import model_matches, tolerated
from models.instance.gang import Gang, Role, label_texts, matches
from models.instance.gang import shown as affinity_text
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room, beside_parts, rooms
from models.instance.policy import SLURM
from models.instance.reshaping import unshared
from models.instance.solution import NEVER, RESERVED, GangDecision, PodPlacement, Reason
from models.queues.pins import beside_pins, closed_by_pins, trespassing
from models.queues.queue_order import behind
from models.queues.queue_shares import guarantee_turns, queue_of, shares
from models.queues.reservations import end_of, expected_end
from models.rules.pod_rules import Kind
from models.units import decimal_text, plural, shortened, shown, shown_of
from planner.errors import Fault, InputError
from planner.show.text import domain_text, listed

MAX_CAUSES = 4
"""Causes named in one hint."""


@dataclass(frozen=True, slots=True)
class Place:
    """What nodes have for the pods of a role.

    ``name``: of a domain, its path; None for a set of nodes. ``gpus``: healthy GPUs that no pod holds
    after the plan; ``most_gpus``: on one node. ``pods``: how many fit beside the plan, each node by
    itself; ``if_empty``: how many would if no gang had a pod there.
    """

    name: str | None
    nodes: int
    gpus: int
    most_gpus: int
    pods: int
    if_empty: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes for one role. ``excluded``: (cause, nodes), each node by the first cause that holds for it.

    ``alone``: nodes that only one cause excludes, by cause. ``best``: (level, domain) with most pods.
    ``needed``: pods that the gang lacks. ``largest``: pods that the best domain of the required level
    would hold if empty, None without such a level.
    """

    role: Role
    needed: int
    excluded: tuple[tuple[str, int], ...]
    alone: tuple[tuple[str, int], ...]
    eligible: Place
    best: tuple[tuple[str, Place], ...]
    required: str | None
    largest: int | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A gang with pods on the gang's candidates after the plan. ``gpus``: that it has there.

    ``end``: when it is expected to end, in seconds since the epoch, None if nobody knows. ``assumed``: when
    it is taken to end, later than that if it is overdue.
    """

    gang: Gang
    decision: str
    gpus: float
    end: int | None = None
    assumed: int | None = None

    @property
    def overdue(self) -> bool:
        """Whether it runs although it should have ended."""
        return self.end != self.assumed


def _beside_parts(instance: Instance, found: Sequence[Room]) -> tuple[Room, ...]:
    return tuple(beside_parts(instance, n, room) for n, room in enumerate(found))


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
    def _rooms(self) -> tuple[Room, ...]:
        return _beside_parts(self.instance, rooms(self.instance, self.decisions))

    @cached_property
    def _empty(self) -> tuple[Room, ...]:
        """Room of every node without pods of gangs."""
        cluster = self.instance.cluster
        nodes = tuple(unshared(self.instance, node) for node in cluster.nodes)
        empty = replace(self.instance, cluster=replace(cluster, nodes=nodes))
        return _beside_parts(empty, rooms(empty, [NOBODY] * len(self.decisions)))

    @cached_property
    def candidates(self) -> tuple[Candidates, ...]:
        """For every role, in order."""
        missing = Counter(role for role, _ in self.gang.missing()) if self.waits else Counter[int]()
        return tuple(
            self._candidates(role, missing[number]) for number, role in enumerate(self.gang.roles)
        )

    def _candidates(self, role: Role, needed: int) -> Candidates:
        instance = self.instance
        first: Counter[str] = Counter()
        alone: Counter[str] = Counter()
        pins = closed_by_pins(instance, self.gang) if role.gpus else frozenset[int]()
        for n, node in enumerate(instance.cluster.nodes):
            causes = list(_causes(instance, role, node))
            if n in pins:
                causes.append(
                    f"pinned to queue {next(iter(trespassing(instance, self.gang, [n])))}"
                )
            if causes:
                first[causes[0]] += 1
            if len(causes) == 1:
                alone[causes[0]] += 1
        nodes = self._eligible(role)
        required = [x for x in (self.gang.required, role.required) if x is not None]
        domains = {
            level: [
                self._place(_path(domain), role, inside)
                for domain, inside in self._members(level, nodes)
            ]
            for level in range(instance.cluster.node_level + 1)
        }
        return Candidates(
            role,
            needed,
            tuple(first.most_common()),
            tuple(alone.most_common()),
            self._place(None, role, nodes),
            tuple(
                (
                    instance.cluster.level_name(level),
                    max(found, key=lambda one: (one.pods, one.gpus)),
                )
                for level, found in domains.items()
                if found
            ),
            instance.cluster.level_name(max(required)) if required else None,
            max((one.if_empty for one in domains[max(required)]), default=0) if required else None,
        )

    def _eligible(self, role: Role) -> list[int]:
        """Nodes that accept the role and are large enough, free or not."""
        nodes = self.instance.cluster.nodes
        able = beside_pins(self.instance, self.gang, role, self.instance.eligible_nodes(role))
        return sorted(n for n in able if nodes[n].gpus >= role.gpus)

    def _place(self, name: str | None, role: Role, nodes: Collection[int]) -> Place:
        free = [self._rooms[n].free_gpus for n in nodes]
        return Place(
            name,
            len(nodes),
            sum(free),
            max(free, default=0),
            sum(_pods(role, self._rooms[n]) for n in nodes),
            sum(_pods(role, self._empty[n]) for n in nodes),
        )

    def _members(self, level: int, nodes: Collection[int]) -> Iterator[tuple[Domain, list[int]]]:
        """The domains of a level, in order, and which of the nodes they have."""
        members: dict[int, list[int]] = {}
        for n in nodes:
            members.setdefault(self.instance.cluster.domain_of[level][n], []).append(n)
        for domain, inside in sorted(members.items()):
            yield self.instance.cluster.domains[level][domain], inside

    @cached_property
    def holders(self) -> tuple[Holder, ...]:
        """Other gangs with GPUs on nodes that suit its roles with GPUs after the plan, most GPUs first."""
        return self._holders_on(
            {n for role in self.gang.roles if role.gpus for n in self._eligible(role)}
        )

    def _holders_on(self, nodes: Collection[int]) -> tuple[Holder, ...]:
        found = []
        for index, (gang, decision) in enumerate(
            zip(self.instance.gangs, self.decisions, strict=True)
        ):
            held = gang.units_of(pod for pod in decision.pods if pod.node in nodes)
            gpus = self.instance.in_gpus(held)
            if gpus and index != self.index:
                end = expected_end(self.instance, index, decision)
                assumed = end_of(self.instance, index, decision)
                found.append(Holder(gang, decision.decision, gpus, end, assumed))
        return tuple(sorted(found, key=lambda one: (-one.gpus, one.gang.key)))

    def overdue_for(self, held: PlanReservation | None) -> list[Holder]:
        """Overdue gangs on the nodes that are reserved for it, or on all that suit it."""
        holders = self.holders
        if held is not None:
            names = {node.name: n for n, node in enumerate(self.instance.cluster.nodes)}
            holders = self._holders_on({names[name] for name in held.nodes if name in names})
        return [one for one in holders if one.overdue]

    @cached_property
    def help(self) -> tuple[str, ...]:
        """What would have to change, as far as counts show; each sentence is true by itself."""
        if not self.waits:
            return ()
        hold = self.gang.hold
        if hold is not None:
            holds = _SLURM_HOLDS if self.gang.scheduler == SLURM else _HOLDS
            return (holds[hold.code],) if hold.code in holds else ()
        reason = self.decisions[self.index].reason
        never = reason is not None and reason.code == NEVER
        givers = () if never else self._givers()  # nobody who gives way would help it
        by_rules = self._rules_about_pods() if reason is not None and reason.code in _RULES else ()
        reserved = (
            "it may start on reserved nodes if it states an expectedDuration and ends before the"
            " reservation starts, or if it is preemptible and of lower priority"
        )
        before = [
            *([reserved] if reason is not None and reason.code == RESERVED else []),
            *self._in_line(),
            *([] if never else self._used_up()),
            *self._shortages(),
        ]
        return tuple(dict.fromkeys([*before, *by_rules, *givers]))

    def _rules_about_pods(self) -> Iterator[str]:
        """What keeps its pods apart, where that is why it waits."""
        cluster = self.instance.cluster
        for one in self.candidates:
            role, nodes = one.role, self._eligible(one.role)
            for rule in role.anti_affinity if one.needed else ():
                there = len({cluster.domain_of[rule.level][n] for n in nodes})
                if rule.pod_set is None and there < role.min:
                    level = cluster.level_name(rule.level)
                    yield (
                        f"role {role.name}: ask for at most {plural(there, 'pod')}, or allow two in one"
                        f" {level}: its nodes are in {plural(there, level)}"
                    )
        if all(one.eligible.pods >= one.needed for one in self.candidates):
            yield "by count its pods fit: loosen its rules about pods, or free nodes in other domains"

    def _in_line(self) -> Iterator[str]:
        """The gang that comes first in its queue."""
        first = behind(self.instance, [one.pods for one in self.decisions], self.index)
        if first is not None:
            yield (
                f"{'/'.join(self.instance.gangs[first].key)} is before it in its queue, and must start or go:"
                " the queue's `order` is strict"
            )

    def _used_up(self) -> Iterator[str]:
        """Who uses up the guarantees of its queues before its turn."""
        known, asked, gpus = shares(self.instance), self.gang.least_units, self.instance.in_gpus
        if known is None or not asked or self.gang.key in known.within:
            return
        names, before = queue_of(self.instance), guarantee_turns(self.instance)
        for q in known.path(names[self.index]):
            guarantee = known.guarantee(q)
            users = [turn for turn in before if q in turn.queues and turn.gang != self.index]
            if not guarantee or not users:
                continue
            said = []
            for turn in users[: shown_of(len(users), MAX_NAMED)]:
                gang = self.instance.gangs[turn.gang]
                waits = self.decisions[turn.gang].decision == "wait"
                does = "runs" if gang.running else "waits" if waits else "starts"
                said.append(
                    f"{'/'.join(gang.key)} ({decimal_text(gpus(turn.gpus.get(None, 0)))}, {does})"
                )
            rest = len(users) - len(said)
            said += [f"{rest:,} more"] if rest else []
            left = guarantee - sum(turn.gpus.get(None, 0) for turn in users)
            yield (
                f"it is not within the guarantee of queue {shown(known.names[q])},"
                f" {plural(gpus(guarantee), 'GPU')}: it needs {decimal_text(gpus(asked))}, and"
                f" {decimal_text(gpus(max(0, left)))} are left by those whose turn is earlier:"
                f" {listed(said, 'and')}"
            )

    def _shortages(self) -> Iterator[str]:
        for one in self.candidates:
            said = next(self._lacks(one), None) if one.needed else None
            if said is None:
                continue
            yield f"role {one.role.name}: {said}"
            for cause, count in one.alone[:MAX_CAUSES]:
                if cause != TOO_SMALL:
                    more = "node is" if count == 1 else "nodes are"
                    alone = f"{count:,} {more} excluded for this reason alone"
                    yield f"role {one.role.name}: {alone}: {cause}"

    def _lacks(self, one: Candidates) -> Iterator[str]:
        """Every count that shows that the role does not fit, the clearest first."""
        role, needed, there = one.role, one.needed, one.eligible
        nodes = self.instance.cluster.nodes
        if role.gpus > max((node.gpus for node in nodes), default=0):
            yield f"ask for fewer GPUs a pod: no node has {role.gpus:,}"
        if there.if_empty < needed:
            add = "add"
            if there.if_empty:
                add = f"ask for at most {plural(there.if_empty, 'pod')}, or add"
            most = f"{there.if_empty:,} of its {plural(needed, 'pod')}"
            hold = f"the {plural(there.nodes, 'eligible node')} would hold {most}"
            why = f"even if empty, {hold}" if there.nodes else "none is eligible"
            yield f"{add} nodes: {why}"
        if one.largest is not None and one.largest < needed:
            hold = f"the best {one.required} would hold {plural(one.largest, 'pod')} of {needed:,}"
            yield f"do not require one {one.required}, or ask for fewer pods: even empty, {hold}"
        best = dict(one.best).get(one.required or "")
        if best is not None and best.pods < needed:
            name = domain_text(best.name or "")
            room = f"the best, {name}, has room for {plural(best.pods, 'pod')} of {needed:,}"
            every = f"all eligible nodes have room for {there.pods:,}"
            yield f"room must become free in one {one.required}: {room}; {every}"
        if 0 < there.most_gpus < role.gpus:
            are = "is" if there.most_gpus == 1 else "are"
            free = f"at most {there.most_gpus:,} {are} free on one node after this plan"
            yield f"{plural(role.gpus, 'GPU')} must become free on one node for each pod: {free}"
        lacking = needed * role.gpus - there.gpus
        if lacking > 0:
            free = f"{there.gpus:,} of {needed * role.gpus:,} are after this plan"
            where = plural(there.nodes, "eligible node")
            yield f"at least {plural(lacking, 'more GPU')} must become free on the {where}: {free}"
        if there.pods < needed:
            room = f"there is room for {plural(there.pods, 'pod')} of {needed:,}"
            yield f"GPUs, cpu, memory and pods must become free on the same nodes: {room}"

    def _givers(self) -> Iterator[str]:
        """Gangs of lower priority that may not give way, and those that start where it might."""
        mine = self.gang.priority
        lower = [one for one in self.holders if one.gang.priority < mine]
        firm = [one for one in lower if one.gang.running and not one.gang.preemptible]
        if firm:
            yield (
                f"{plural(len(firm), 'running gang')} of lower priority with"
                f" {plural(sum(one.gpus for one in firm), 'GPU')} there may not be stopped:"
                " `preemptible: true` would allow it, within their disruption budgets"
            )
        starting = [one for one in self.holders if one.decision in ("place", "complete")]
        before = [one for one in starting if one.gang.priority >= mine]
        lacks_room = not self._fits_without(())  # or it waits for a rule about pods
        if before and lacks_room and self._fits_without({one.gang.key for one in before}):
            yield (
                f"{plural(len(before), 'gang')} of its priority or higher"
                f" {'starts' if len(before) == 1 else 'start'} there in this plan, on"
                f" {plural(sum(one.gpus for one in before), 'GPU')}: a priority above"
                f" {max(one.gang.own_priority for one in before)} would put it first"
            )

    def _fits_without(self, gone: Collection[tuple[str, str]]) -> bool:
        """Whether each role by itself would have room if so many gangs of the plan were not there."""
        left = tuple(
            GangDecision("wait") if gang.key in gone else decision
            for gang, decision in zip(self.instance.gangs, self.decisions, strict=True)
        )
        other = Explanation(self.instance, left, self.index)
        places = [
            (dict(one.best).get(one.required or "", one.eligible), one.needed)
            for one in other.candidates
        ]
        return all(place.pods >= needed for place, needed in places)


NOBODY = GangDecision("wait")


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

_RULES = {kind.value for kind in Kind}
"""Codes of reasons that name a rule about pods."""

_HOLDS = {
    "Incomplete": "its controller must create the pods that it lacks, unless they have finished",
    "Gated": "the controller that holds its pods must remove its scheduling gate, or let its queue go on",
    "Unsupported": "the constraint that is not modelled must be removed from its pods",
    "Backoff": "nothing: it may start again when its pause after evictions is over (evictionBackoff)",
    "QueueLimit": "gangs before it in its namespace must start or go, or the Policy's queueLimit be raised",
}

_SLURM_HOLDS = {
    "Incomplete": "the input must have all parts of the job: squeue --json without a filter",
    "Gated": "Slurm must release the job: scontrol show job says what it waits for",
    "Unsupported": "the option that is not modelled must be removed from the job",
    "Backoff": _HOLDS["Backoff"],
    "QueueLimit": _HOLDS["QueueLimit"],
}


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


def _path(domain: Domain) -> str:
    return "/".join(domain.path)


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
    return GangDecision(stated.decision, pods, reason)
