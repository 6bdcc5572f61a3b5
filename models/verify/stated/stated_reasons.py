"""What a plan states of gangs that wait, are stopped or lack pods, against what it does.

A code, or a field of its reason, that the plan itself contradicts is a violation. The sentence beside them is
not read; of a reason without fields nothing but the code is checked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from models.documents.plan import PlanReservation
from models.documents.reason import ReasonFields, ReasonGuard, unlisted
from models.units import quantity, requested
from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.empty_cluster import EmptyCluster
from models.verify.facts import Facts, Gang, Node, PodKey, Role
from models.verify.judged_rules import codes
from models.verify.outcome import Outcome
from models.verify.queues import ALL
from models.verify.room import Room, Work
from models.verify.rules.queue_order import first_waiting, rank
from models.verify.rules.reservations import holders_of, lacking_in_queues
from models.verify.rules.running import evictions
from models.verify.shares import unshared
from models.verify.stated.reason_context import lonely
from models.verify.stated.reason_grounds import POD_RULES, Grounds, barred, known
from models.verify.stated.reason_quotas import Quotas
from models.verify.stated.reason_rooms import Nodes, Rooms, held, role_named
from models.verify.violation import Violation, printable

OUTRANKED = "Outranked"
SELECTOR = "Selector"
STARTS = ("place", "complete")
NEVER = "Never"
QUEUE_ORDER = "QueueOrder"
QUOTA = "Quota"
QUEUE_LIMIT = "QueueLimit"
BACKOFF = "Backoff"
RESERVED = "Reserved"
COUNTED = ("NoRoom", "RequiredTopology", "Resources")
"""Codes of a shortage, which is Outranked where gangs that come first start."""

NO_ROOM = (*COUNTED, "Bandwidth", SELECTOR)
RULE = "reason"

WORK = 1_000_000
"""Visits of nodes for counting what is free."""

NOTHING = ReasonFields()


def check(outcome: Outcome) -> Iterator[Violation]:
    reasons = Reasons(outcome)
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        reason = stated.document.reason
        if reason is None:
            continue
        for what in reasons.faults(change, stated):
            yield change.violation(RULE, f"{printable(reason.code)}: {what}")


class Reasons:
    """Counts that many gangs share are made once."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.facts: Facts = outcome.facts
        self.work = Work(WORK)
        self.rooms = Rooms(outcome, self.work)
        self._where: dict[tuple[int, ...], int] = {}

    def faults(self, change: Change, stated: StatedGang) -> Iterator[str]:
        reason = stated.document.reason
        assert reason is not None, "see check"
        code, fields = reason.code, reason.fields or NOTHING
        for name in unlisted(code, fields, codes()):
            yield f"has no field {printable(name)}"
        if change.held_back:
            yield from self._held_back(change.gang, code, fields)
        elif change.kind == "preempt":
            yield from self._preempted(change, fields)
        elif change.kind == "keep":
            yield from _incomplete(change, fields)
        elif change.kind == "wait":
            yield from self._code(change.gang, code)
            yield from self._in_line(change.gang, code, reason.fields)
            yield from self._reserved_for(change.gang, code, reason.fields)
            yield from self._reserved_in_queues(change.gang, code, reason.fields)
            if reason.fields is not None:
                yield from self.grounds.faults(change.gang, code, fields)
                yield from lonely(change.gang, code, fields, self._levels_named)
                yield from self._fields(change.gang, code, fields)
            if not self.rooms.reshapes and self.work.left > 0:
                yield from self._room(change.gang, code, reason.fields)
            else:
                yield from self._running_holders(fields)

    def _held_back(self, gang: Gang, code: str, stated: ReasonFields) -> Iterator[str]:
        """Whether it says what the hold of the gang says, or how many gangs the policy plans."""
        if code == QUEUE_LIMIT:
            if stated.limit not in (None, self.facts.policy.queue_limit):
                yield f"says that {stated.limit} gangs are planned"
        elif code == BACKOFF:
            if stated.until != gang.starts_again:
                yield "says another time from which it may start"
        elif stated.text not in (None, gang.hold_text):
            yield "its words are not those of its hold"

    @cached_property
    def quotas(self) -> Quotas:
        return Quotas(self.outcome)

    @cached_property
    def grounds(self) -> Grounds:
        return Grounds(self.outcome, self.rooms, self.empty)

    # Stopped, and lacking pods

    def _preempted(self, change: Change, fields: ReasonFields) -> Iterator[str]:
        arrivals = {
            other.label: other.gang.stated_priority
            for other in self.outcome.gives_way_to(change, change.gang.running_pods)
        }
        if not arrivals:
            return  # it may not be stopped at all
        for one in fields.by:
            if arrivals.get(one.gang) != one.priority:
                yield f"{printable(one.gang)} of priority {one.priority} takes none of its nodes"
        if fields.by and len(fields.by) + fields.more != len(arrivals):
            yield f"{len(fields.by) + fields.more} gangs come to its nodes, but {len(arrivals)} do"

    # The code

    def _code(self, gang: Gang, code: str) -> Iterator[str]:
        """Whether there is such a rule as the code names, about this gang."""
        if code == "Bandwidth" and not gang.min_share:
            yield "it has no minBandwidthShare"
        levels = (gang.required, *(role.required for role in gang.roles))
        slices = any(role.slices for role in gang.roles)
        if code == "RequiredTopology" and not slices and all(level is None for level in levels):
            yield "it has no topology rule"
        if code == QUOTA and not self._in_reach_of_queues(gang):
            yield "no queue limits it, and none is guaranteed anything"
        if code in POD_RULES and not self._pod_rules(POD_RULES[code], gang):
            yield f"no {POD_RULES[code]} is about its pods"
        concerns = codes().get(code)
        if concerns is not None and not concerns(self.outcome, gang):
            yield "neither it, nor another gang, nor the policy has such a rule"
        if code == NEVER and (gang.running or (self.empty.fits(gang) and not self._unable(gang))):
            yield "no count says that it could not start on the empty cluster"

    def _unable(self, gang: Gang) -> bool:
        """Whether the plan says that it is proven unable to start, which is checked by itself."""
        label = "/".join(gang.key)
        return any(one.gang == label and one.proven for one in self.outcome.case.status.unable)

    def _fields(self, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
        """Whether the fields fit the code, the gang and the plan, whatever room there is."""
        outranked = any(self._first(gang)[:2])
        shown = fields.counted == "first" or (fields.ended and fields.fits is None)
        if (fields.counted == "empty") and code != NEVER:
            yield f"its fields mean {NEVER}"
        elif shown and code in COUNTED and outranked:
            yield f"its fields mean {OUTRANKED}"
        elif code == OUTRANKED and fields.fits is None and not outranked:
            yield "no gang of higher priority, and none that waited too long, starts"
        elif code == OUTRANKED and fields.counted == "running":
            yield "its fields mean that it has no room whoever starts"
        yield from self._starts(gang, fields)
        yield from self._levels(gang, code, fields)
        yield from _sizes(self.facts, gang, code, fields)
        if code == QUOTA:
            yield from self.quotas.faults(gang, fields)
        if code == NEVER:
            yield from self._never(gang, fields)
        if fields.guarded is not None:
            yield from self._guarded(fields.guarded)
        if fields.share not in (None, float(gang.min_share)):
            yield f"its minBandwidthShare is {float(gang.min_share):g}"

    @cached_property
    def _levels_named(self) -> list[str]:
        return [self.facts.level_name(level) for level in range(self.facts.node_level + 1)]

    def _levels(self, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
        """Whether a rule of the gang is about the level; how many nodes have what a role needs."""
        if code != QUOTA and fields.level is not None:
            levels = {gang.required, *(one.required for one in gang.roles)}
            levels |= {level for one in gang.roles for _, level in one.slices}
            if self.rooms.level(fields.level) not in levels - {None}:
                yield f"no rule of it is about the level {printable(fields.level)}"
        role = role_named(gang, fields.role)
        if fields.matching is not None and role is not None:
            there = len(self.empty.of(role))
            if fields.matching != there:
                yield f"{fields.matching} nodes have what it needs, but {there} do"

    def _starts(self, gang: Gang, fields: ReasonFields) -> Iterator[str]:
        """How many gangs of its priority or higher start, and how many of them come first."""
        first = fields.first
        if first is None:
            return
        bands = ("of higher priority", "of its priority that waited too long", "of its priority")
        stated = (first.higher, first.aged, first.peers)
        for which, says, there in zip(bands, stated, self._first(gang), strict=True):
            if says != there:
                yield f"{says} gangs {which} start where it could, but {there} do"

    def _first(self, gang: Gang) -> tuple[int, int, int]:
        """Gangs that start where it could: of higher priority, aged ones of its own if it is not, others."""
        there = self._starting_where(gang)
        low = bisect_left(self.priorities, gang.priority)
        high = bisect_right(self.priorities, gang.priority)
        own = there & ((1 << high) - (1 << low))
        aged = 0 if self.facts.aged(gang) else (own & self._aged).bit_count()
        return (there >> high).bit_count(), aged, own.bit_count() - aged

    def _starting_where(self, gang: Gang) -> int:
        """Which gangs of ``starting`` start on nodes of its GPU roles, as bits.

        The nodes of all roles count where none has GPUs.
        """
        roles = [role for role in gang.roles if role.gpus] or list(gang.roles)
        grounds = [self.rooms.nodes(gang, role) for role in roles]
        key = tuple(map(id, grounds))
        if key not in self._where:
            self.work.spend(sum(map(len, grounds)))
            found = 0
            for node in set[int]().union(*grounds):
                found |= self._starting_on.get(node, 0)
            self._where[key] = found
        return self._where[key]

    @cached_property
    def _starting_on(self) -> dict[int, int]:
        """By node, which gangs of ``starting`` start there."""
        found: dict[int, int] = {}
        for number, change in enumerate(self.starting):
            for pod in change.pods.values():
                found[pod.node] = found.get(pod.node, 0) | 1 << number
        return found

    @cached_property
    def _aged(self) -> int:
        return sum(1 << n for n, one in enumerate(self.starting) if self.facts.aged(one.gang))

    @cached_property
    def starting(self) -> list[Change]:
        """Those of the lowest priority come first."""
        found = [change for change in self.outcome.changes if change.kind in STARTS]
        return sorted(found, key=lambda change: change.gang.priority)

    @cached_property
    def priorities(self) -> list[int]:
        """Of the gangs that start, ascending."""
        return [change.gang.priority for change in self.starting]

    # Rules about several gangs

    def _in_line(self, gang: Gang, code: str, stated: ReasonFields | None) -> Iterator[str]:
        """Whether an earlier gang of its strict queue waits, and the one that is named."""
        if code != QUEUE_ORDER:
            return
        first = first_waiting(self.outcome).get(gang.queue or "")
        if first is None or rank(first.gang) >= rank(gang):
            yield "no earlier gang of a strict queue waits"
        elif stated is not None:
            named = [(one.gang, one.priority) for one in stated.by]
            if (stated.queue, named) != (gang.queue, [(first.label, first.gang.stated_priority)]):
                yield f"the first that waits in its queue is {printable(first.label)}"

    def _reserved_for(self, gang: Gang, code: str, stated: ReasonFields | None) -> Iterator[str]:
        """Whether nodes are reserved for other gangs, and for those that are named."""
        if code != RESERVED:
            return
        others = {
            stated.label: stated.document.reserved
            for stated in self.outcome.case.gangs
            if stated.document.reserved is not None and stated.document.key != gang.key
        }
        if not others:
            yield "no other gang holds a reservation"
            return
        if stated is not None and not stated.by:
            yield f"names no gang that holds a reservation, such as {printable(min(others))}"
        for one in () if stated is None else stated.by:
            held_for = others.get(one.gang)
            if held_for is None:
                yield f"{printable(one.gang)} holds no reservation"
            elif one.start not in (None, held_for.start):
                yield f"nodes are reserved for {printable(one.gang)} from another time"
            elif one.priority != self.by_name[one.gang].gang.stated_priority:
                yield f"{printable(one.gang)} does not have priority {one.priority}"
        if stated is not None:
            if stated.endless != (gang.duration is None):
                yield "whether it says how long it runs is stated otherwise"
            yield from _nodes_reserved(stated, others)

    def _reserved_in_queues(
        self, gang: Gang, code: str, stated: ReasonFields | None
    ) -> Iterator[str]:
        """Where no nodes are: whether one that is named could not start in its queues beside the gang."""
        if code != RESERVED or stated is None or stated.reserved_nodes is not None:
            return
        if not self.facts.queues:
            return
        named = {one.gang for one in stated.by}
        position = next(i for i, one in enumerate(self.facts.gangs) if one.key == gang.key)
        if stated.by and not any(
            lacking_in_queues(self.outcome, holder, position) is not None
            for holder in holders_of(self.outcome)
            if holder.waits and holder.change.label in named
        ):
            yield "those that are named could start in their queues beside it"

    def _in_reach_of_queues(self, gang: Gang) -> bool:
        """Whether a queue that it is in has a limit, or one has a guarantee that the gang could take."""
        if not self.facts.queues:
            return False
        queues = self.outcome.queues
        if queues.unlent and gang.managed:
            return True
        above = queues.above(gang.queue)
        if not gang.preemptible and any(queues.firm_limit[name] for name in above):
            return True
        return any(queues.limit[name] for name in above) or (
            gang.counts_against_promises
            and bool(queues.guaranteed or queues.cells.grounds or queues.closed(gang))
        )

    def _pod_rules(self, rule: str, gang: Gang) -> bool:
        """Whether the gang has such a rule."""
        return any(one.rule == rule for role in gang.roles for one in role.pod_rules)

    def _guarded(self, guard: ReasonGuard) -> Iterator[str]:
        """Whether disruption budgets, or its minimum run time, guard the gang that is named."""
        named = self.by_name.get(guard.gang)
        if named is None:
            yield f"there is no gang {printable(guard.gang)}"
            return
        gang = named.gang
        if guard.until is not None:
            ends = (gang.since or 0) + gang.min_run_time
            if not self.facts.protected(gang) or ends != guard.until:
                yield "no minimum run time of the gang ends then"
            return
        yield from self._by_budgets(gang, guard)

    def _by_budgets(self, gang: Gang, guard: ReasonGuard) -> Iterator[str]:
        """Whether a pod is in both budgets, or the one allows so many of so many evictions."""
        names = list[str]()
        for budget in guard.budgets:
            namespace, _, name = budget.partition("/")
            if namespace != gang.namespace:
                yield f"{printable(budget)} guards no pod of the gang"
                return
            names.append(name)
        if len(names) != (2 if guard.allowed is None else 1):
            yield "names other budgets than the one that is used up, or two of one pod"
            return
        if guard.allowed is None:
            if not any(set(names) <= {*own} for own in gang.budgets.values()):
                yield "no pod of the gang is in both budgets"
            return
        for name in names:
            wanted = sum(name in own for own in gang.budgets.values())
            allowed = self.facts.budgets.get((gang.namespace, name), 0)
            left = max(0, allowed - self.evicted[gang.namespace, name])
            if (guard.allowed, guard.evictions) != (left, wanted):
                yield f"the budget allows {left} of the {wanted} evictions"

    @cached_property
    def by_name(self) -> dict[str, Change]:
        return {change.label: change for change in self.outcome.changes}

    @cached_property
    def evicted(self) -> Counter[tuple[str, str]]:
        return evictions(self.outcome)

    # Room

    @cached_property
    def empty(self) -> EmptyCluster:
        return EmptyCluster(self.facts, Work(WORK))

    def _room(self, gang: Gang, code: str, stated: ReasonFields | None) -> Iterator[str]:
        if code == SELECTOR and all(self._has_node(role) for role in gang.roles):
            yield "every role has a node that accepts its pods"
        if stated is None:
            return
        short = next((role for role in gang.roles if self._fits(role) < role.min), None)
        if stated.fits == "instead":
            if not self.priorities or self.priorities[0] >= gang.priority:
                yield "no gang of lower priority starts"
        elif stated.fits == "beside" and short is not None:
            yield f"role {short.name} needs {short.min} pods, {self._fits(short)} fit after the plan"
        role = role_named(gang, stated.role)
        if role is None and stated.pods is not None:
            return  # a fault of its size
        yield from self._counted(gang, role if stated.pods is not None else None, stated)
        yield from self._holders(gang, role if stated.pods is not None else None, stated)

    def _counted(self, gang: Gang, role: Role | None, fields: ReasonFields) -> Iterator[str]:
        """The room that the reason states."""
        if role is not None and fields.room_pods is not None and fields.room_pods >= role.min:
            yield f"there is room for {fields.room_pods} pods of role {role.name}, which is enough"
        if fields.counted == "empty":
            yield from self._on_empty(role, fields)
            return
        room = self.rooms.counted(gang, fields)
        place = self.rooms.place(gang, role, fields)
        if room is None:  # counted without gangs that may stop or move
            if fields.without and (fields.room_gpus or 0) > self.rooms.free(
                self.rooms.alone, place
            ):
                yield f"{fields.room_gpus} GPUs are more than running gangs can leave there"
            return
        free = self.rooms.free(room, place)
        if fields.room_gpus is not None and fields.room_gpus != free:
            yield f"{fields.room_gpus} GPUs are free on its nodes, but {free} are"
        if role is not None:
            yield from self._pods(room, role, place, fields)
        elif fields.domain is not None and (level := self.rooms.level(fields.level)) is not None:
            sums: Counter[int] = Counter()
            for n in self.rooms.nodes(gang, None):
                sums[self.facts.nodes[n].domain[level]] += room.left(n)[0]
            if free < max(sums.values(), default=0):
                yield f"another {printable(fields.level or '')} has more GPUs free"

    def _pods(self, room: Room, role: Role, place: Nodes, fields: ReasonFields) -> Iterator[str]:
        """Pods or slices of a role for which there is room."""
        rooms, level = self.rooms, self.rooms.level(fields.level)
        if fields.slice_pods and level is not None:
            sums = rooms.pods(room, role, None, level)
            there = sum(pods // fields.slice_pods for pods in sums.values())
            if fields.room_slices != there:
                yield f"there is room for {fields.room_slices} slices, but it is {there}"
        elif fields.room_pods is not None:
            if level is not None:
                sums = rooms.pods(room, role, None, level)
                own: set[object] = {self.facts.nodes[n].domain[level] for n in place}
            elif fields.one_model:
                sums, own = rooms.by_model(room, role), {fields.model}
            else:
                sums, own = rooms.pods(room, role, fields.resources), {None}
            there = max(sums.values(), default=0)
            if fields.room_pods != there:
                yield f"there is room for {fields.room_pods} pods, but it is {there}"
            elif not any(sums.get(one, 0) == there for one in own):
                yield "there is more room elsewhere"

    def _on_empty(self, role: Role | None, fields: ReasonFields) -> Iterator[str]:
        if role is None or fields.level is not None or fields.one_model or fields.slices:
            return
        there = self.empty.room(role, fields.resources)
        if (fields.room_pods, fields.room_gpus) != there:
            yield f"there is room for {there[0]} pods on {there[1]} GPUs of the empty cluster"

    def _never(self, gang: Gang, fields: ReasonFields) -> Iterator[str]:
        """What no node, or no queue, has for the gang."""
        role = role_named(gang, fields.role)
        if fields.counted not in (None, "empty"):
            yield "is not about the empty cluster"
        if fields.queue is not None:
            stated = (fields.queue, fields.model or ALL, fields.gpus, fields.limit)
            gpus = self.facts.in_gpus
            beyond = self.empty.beyond_limits(gang)
            if not any(
                stated == (name, key, gpus(asked), gpus(most)) for name, key, asked, most in beyond
            ):
                yield f"queue {printable(fields.queue)} has no such limit"
        if role is None:
            return
        nodes = self.empty.of(role)
        if nodes and (fields.nodes_with or fields.taints or fields.models or fields.selected):
            yield f"role {role.name} has nodes that would accept its pods"
        if fields.node_gpus is not None:
            there = max((self._alone(n).whole_gpus for n in nodes), default=0)
            if fields.node_gpus != there or role.gpus <= there:
                yield f"the largest node that it may use has {there} GPUs"
        if fields.asked is not None and fields.offered is not None and fields.resources:
            resource = fields.resources[0]
            most = self.empty.offered(role, resource)
            wanted = role.requests.get(resource, 0)
            texts = (fields.asked, fields.offered)
            if [requested(resource, quantity(one)) for one in texts] != [wanted, most]:
                yield f"a pod requests {wanted} of {printable(resource)}, nodes offer {most}"

    def _holders(self, gang: Gang, role: Role | None, fields: ReasonFields) -> Iterator[str]:
        """Running gangs that are named: without all of them it must fit, by counts."""
        if not fields.holders:
            return
        place = set(self.rooms.place(gang, role, fields))
        for one in fields.holders:
            change = self.by_name.get(one.gang)
            if change is None or not change.gang.running or change.kind in STARTS:
                yield f"{printable(one.gang)} is no gang that runs on"
                return
            if (there := held(change, place)) != one.gpus:
                yield f"{printable(one.gang)} holds {one.gpus} GPUs there, but it holds {there}"
        gone = self._gone(gang, fields, place)
        roles = gang.roles if role is None or gang.required is not None else (role,)
        inside = place if fields.domain is None else self._inside(fields, place)
        alone = self.rooms.without(gone | self._named_holders(fields))
        if not self.rooms.suffices(alone, gang, inside, roles):
            yield "without those that it names it would not fit there"

    def _running_holders(self, fields: ReasonFields) -> Iterator[str]:
        """Whether the holders run on, and hold so much anywhere."""
        for one in fields.holders:
            change = self.by_name.get(one.gang)
            if change is None or not change.gang.running or change.kind in STARTS:
                yield f"{printable(one.gang)} is no gang that runs on"
            elif one.gpus > change.gpus:
                yield f"{printable(one.gang)} holds {change.gpus} GPUs, not {one.gpus}"

    def _inside(self, fields: ReasonFields, place: Nodes) -> Nodes:
        """All nodes of the domain, for roles with other nodes than the one that is named."""
        level = self.rooms.level(fields.level)
        if level is None:
            return place
        nodes = self.facts.nodes
        domains = {nodes[n].domain[level] for n in place}
        return {n for n, node in enumerate(nodes) if node.domain[level] in domains}

    def _gone(self, gang: Gang, fields: ReasonFields, place: Nodes) -> set[int]:
        """Gangs in the place besides the holders that do not count: stopped for this one, or starting.

        The latter only if it could start ``instead`` of them, which are not of higher priority.
        """
        self.work.spend(len(self.outcome.changes))
        found = set()
        for i, change in enumerate(self.outcome.changes):
            starts = change.kind == "place" and change.gang.priority <= gang.priority
            if (starts and fields.instead) or (
                change.gang.running
                and change.kind not in STARTS
                and change.gang.priority < gang.priority
                and self._may_stop(change.gang)
            ):
                found |= {i} if held(change, place) else set()
        return found

    def _may_stop(self, gang: Gang) -> bool:
        """Whether it is preemptible, has run long enough, and its budgets allow to evict all its pods."""
        if not gang.preemptible or self.facts.protected(gang):
            return False
        if any(len(names) > 1 for names in gang.budgets.values()):
            return False
        wanted = Counter(name for names in gang.budgets.values() for name in names)
        allowed = self.facts.budgets
        return all(n <= allowed.get((gang.namespace, name), 0) for name, n in wanted.items())

    def _named_holders(self, fields: ReasonFields) -> set[int]:
        """Positions of the gangs that a reason names as holders."""
        named = (self.by_name.get(one.gang) for one in fields.holders)
        return {self._position[one.gang.key] for one in named if one is not None}

    @cached_property
    def _position(self) -> dict[tuple[str, str], int]:
        return {change.gang.key: i for i, change in enumerate(self.outcome.changes)}

    def _fits(self, role: Role) -> int:
        """Pods of the role that fit after the plan, each node by itself."""
        return self.rooms.after.sums(role, -1).get(0, 0)

    def _alone(self, n: int) -> Node:
        return unshared(self.facts.nodes[n], self.facts.policy.gpu_binding)

    def _has_node(self, role: Role) -> bool:
        """Whether a node that accepts the role could hold one of its pods if it were empty."""
        nodes = self.facts.nodes
        self.work.spend(len(nodes))
        return any(
            self._alone(n).whole_gpus >= role.gpus
            and all(
                amount <= nodes[n].allocatable.get(resource, amount)
                for resource, amount in role.requests.items()
            )
            for n in self.rooms.after.grounds.of(role)
        )


def denies_room(stated: StatedGang) -> bool:
    """Whether the reason claims a proof that the gang does not fit."""
    reason = stated.document.reason
    if reason is None or reason.code == NEVER:
        return reason is not None
    f = reason.fields
    if f is None or not (reason.code in NO_ROOM or barred(reason.code)):
        return False
    counted = f.room_pods is not None or f.room_slices is not None or f.matching is not None
    few = f.room_gpus is not None and f.gpus is not None and f.room_gpus < f.gpus
    return counted or few or f.apart or f.share is not None


def _nodes_reserved(stated: ReasonFields, others: Mapping[str, PlanReservation]) -> Iterator[str]:
    """How many nodes are reserved for those that are named; for some more where a list is cut."""
    named = {name for one in stated.by if one.gang in others for name in others[one.gang].nodes}
    every = {name for one in others.values() for name in one.nodes}
    most = len(every if stated.more else named)
    if stated.reserved_nodes is not None and not len(named) <= stated.reserved_nodes <= most:
        yield f"{stated.reserved_nodes} nodes are reserved, but from {len(named)} to {most} are"
    if len(stated.by) + stated.more > len(others):
        yield f"{len(others)} gangs hold reservations"


def _sizes(facts: Facts, gang: Gang, code: str, fields: ReasonFields) -> Iterator[str]:
    """GPUs and pods that the gang asks for, at ``min``; with parts of GPUs where a queue counts them."""
    if fields.gpus is not None:
        most = fields.model is not None and code in (QUOTA, NEVER) and not fields.one_model
        counted = code == QUOTA or fields.queue is not None
        asked = facts.in_gpus(gang.counts_at_min) if counted else gang.gpus_at_min
        if fields.gpus > asked or (fields.gpus < asked and not most):
            yield f"needs {fields.gpus} GPUs, but it asks for {asked}"
    role = role_named(gang, fields.role)
    if fields.role is not None and role is None:
        yield f"there is no role {printable(fields.role)}"
    elif fields.pods is not None and role is None:
        yield "does not say which role lacks pods"
    elif role is not None:
        stated = (fields.pods, fields.gpus_per_pod)
        if any(
            own is not None and own != is_
            for own, is_ in zip(stated, (role.min, role.gpus), strict=True)
        ):
            yield f"role {role.name} asks for {role.min} pods of {role.gpus} GPUs"


def _incomplete(change: Change, fields: ReasonFields) -> Iterator[str]:
    missing = sum(1 for _ in missing_pods(change.gang, change.gang.running_pods))
    if fields.missing not in (None, missing):
        yield f"{fields.missing} pods are missing, but {missing} are"
    if fields.text is not None:
        yield "states the words of a hold, and has none"
    if fields.cause is not None and not known(fields.cause):
        yield f"there is no code {printable(fields.cause)}"


def missing_pods(gang: Gang, standing: Iterable[PodKey]) -> Iterator[PodKey]:
    """Pods that make the gang whole: of every role the least allowed count above those that stand."""
    there = set(standing)
    for number, role in enumerate(gang.roles):
        last = max((index for r, index in there if r == number), default=role.first - 1)
        steps = -(-(last + 1 - role.first - role.min) // role.step)
        for index in range(role.first, role.first + role.min + max(0, steps) * role.step):
            if (number, index) not in there:
                yield number, index
